#!/usr/bin/env python3
"""Measures our target beside SPDK's over NVMe/TCP on loopback, each loaded by our host and by SPDK's, interleaved: A B, B A, ...

    cargo build --release -p trunkline
    docs/results/compare-spdk.py target/release/trunkline SPDK/build/bin --turns 6

Needs root, two processors, and huge pages for SPDK (`echo 1024 > /proc/sys/vm/nr_hugepages`, hugetlbfs mounted), or --no-huge.
The targets:

    trunkline       `trunkline block serve`, a volume in memory, its loops on all processors
    spdk            `nvmf_tgt` with a malloc bdev on processor 0, which it polls without end
    spdk-interrupt  the same with --interrupt-mode, which sleeps when there is nothing to do

The hosts are `trunkline bench` (ours) and `spdk_nvme_perf`, which polls processor 1. Only one target runs at a time: each is
started anew for its place in a turn, and filled before it is measured. All have 4 queues, and commands of up to 1 MiB. The
last lines have, for each workload, host and target, the medians of the speed, of the processors that the target used in the
middle of a run, and of its processor time for an operation; and the ratio of the speed to that of `spdk` in the same turn.

`busy` is the part of the time in which the target `spdk` was busy by its own count, and not only polling. A run during which
other programs used more than a tenth of the machine is disturbed and repeated, up to --tries times. What stays disturbed is
left out of the last lines where three undisturbed turns of each target are there.
"""
import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import turns

NQN = "nqn.2026-11.org.example:compared"
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:0f01fe25-21c8-4a8b-9d0c-8a3a3f0f9e11"
PORT = "42071"
QUEUES = 4
MIB = 256
# Name, pattern of SPDK's host, bytes, operations in flight on each queue.
WORKLOADS = [("read", "read", 1 << 20, 8), ("write", "write", 1 << 20, 8), ("randread", "randread", 4 << 10, 32)]
HOSTS = ["trunkline", "spdk"]
TARGETS = ["trunkline", "spdk", "spdk-interrupt"]


def spdk_config(path):
    """One malloc bdev in one subsystem, which takes commands of 1 MiB as ours does."""
    address = {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": PORT}
    bdev = [("bdev_malloc_create", {"name": "Malloc0", "num_blocks": MIB * 256, "block_size": 4096})]
    nvmf = [("nvmf_create_transport", {"trtype": "TCP", "max_io_size": 1 << 20}),
            ("nvmf_create_subsystem", {"nqn": NQN, "allow_any_host": True, "serial_number": "SPDK1"}),
            ("nvmf_subsystem_add_ns", {"nqn": NQN, "namespace": {"bdev_name": "Malloc0", "nsid": 1}}),
            ("nvmf_subsystem_add_listener", {"nqn": NQN, "listen_address": address})]
    of = [{"subsystem": name, "config": [{"method": method, "params": params} for method, params in calls]}
          for name, calls in (("bdev", bdev), ("nvmf", nvmf))]
    with open(path, "w") as file:
        json.dump({"subsystems": of}, file)


class Target:
    """A target that listens, until it is ended."""

    def __init__(self, options, name, place):
        self.name, self.rpc = name, f"{place}/rpc.sock"
        if name == "trunkline":
            command = [options.trunkline, "block", "serve", "--volume", f"mem:{MIB}MiB", "--listen", f"127.0.0.1:{PORT}",
                       "--nqn", NQN, "--allow", "any", "--state", f"{place}/state"]
        else:
            spdk_config(f"{place}/spdk.json")
            command = [f"{options.spdk}/nvmf_tgt", "-m", "0x1", "-s", "1024", "--no-pci", "-r", self.rpc, "-c",
                       f"{place}/spdk.json", *options.memory]
            if name == "spdk-interrupt":
                command.append("--interrupt-mode")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(f"{place}/{name}.log", "w"))
        deadline = time.time() + 30
        while not self.listens():
            if self.process.poll() is not None or time.time() > deadline:
                sys.exit(f"{name} does not start: " + open(f"{place}/{name}.log").read())
            time.sleep(0.05)
        if name != "trunkline":
            # It listens before its subsystem takes hosts.
            self.ask("framework_wait_init")

    @staticmethod
    def listens():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(PORT))) == 0

    def cpu(self):
        return turns.cpu_seconds(self.process.pid)

    def ask(self, method):
        """What a target of SPDK answers to a call."""
        with socket.socket(socket.AF_UNIX) as rpc:
            rpc.connect(self.rpc)
            rpc.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode())
            answer = b""
            while True:
                answer += rpc.recv(1 << 16)
                try:
                    return json.loads(answer)["result"]
                except json.JSONDecodeError:
                    continue

    def busy(self):
        """Ticks in which a target that polls was busy and idle, by its own count."""
        if self.name != "spdk":
            return None
        reactors = self.ask("framework_get_reactors")["reactors"]
        return sum(one["busy"] for one in reactors), sum(one["idle"] for one in reactors)

    def end(self):
        turns.end([self.process])


class Sampler(threading.Thread):
    """What the target uses in the middle half of a run of `seconds` that begins `lead` seconds from now."""

    def __init__(self, target, lead, seconds):
        super().__init__()
        self.target, self.wait, self.seconds = target, lead + seconds / 4, seconds / 2
        self.cores = self.busy = None

    def run(self):
        time.sleep(self.wait)
        began, cpu, busy = time.time(), self.target.cpu(), self.target.busy()
        time.sleep(self.seconds)
        self.cores = (self.target.cpu() - cpu) / (time.time() - began)
        if busy is not None:
            worked, idle = (after - before for after, before in zip(self.target.busy(), busy))
            self.busy = worked / max(worked + idle, 1)


def experiment(options, work, path):
    """The workload for `trunkline bench`: a reader or writer for each queue. Writes overwrite the whole volume."""
    name, pattern, block, depth = work
    writes = pattern == "write"
    with open(path, "w") as file:
        file.write(f"""name = "{name}"
repeats = 1
window_ms = {int(options.seconds * 1000)}

[[route]]
name = "volume"
target = "nvme-tcp://127.0.0.1:{PORT}/{NQN}"
options = "queues={QUEUES},hostnqn={HOST_NQN}{',overwrite' if writes else ''}"

[[workload]]
name = "{name}"
block = "{block >> 10}KiB"
pattern = "{'random' if pattern == 'randread' else 'sequential'}"
{'writers' if writes else 'readers'} = {QUEUES}
depth = {depth}
file = "{MIB // QUEUES}MiB"
""")


def by_ours(options, place, work):
    """Loads by our host: operations a second."""
    experiment(options, work, f"{place}/bench.toml")
    command = [options.trunkline, "bench", f"{place}/bench.toml", "--no-report", "--force", "--record", f"{place}/bench.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    record = json.load(open(f"{place}/bench.json"))
    return record["routes"][0]["workloads"][0]["write" if work[1] == "write" else "read"]["iops"]


def by_spdk(options, work, *more):
    """Loads by SPDK's host: operations a second. Its depth is that of all queues together."""
    _, pattern, block, depth = work
    address = f"trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{PORT} subnqn:{NQN} hostnqn:{HOST_NQN}"
    command = [f"{options.spdk}/spdk_nvme_perf", "-r", address, "-c", "0x2", "-P", str(QUEUES), "-q", str(QUEUES * depth),
               "-o", str(block), "-w", pattern, "-t", str(options.seconds), "-s", "768", *options.memory, *more]
    done = subprocess.run(command, capture_output=True, text=True)
    total = re.search(r"^Total\s*:\s*([0-9.]+)", done.stdout, re.MULTILINE)
    if done.returncode or not total:
        sys.exit(done.stdout + done.stderr)
    return float(total[1])


def measure(options, place, target, host, work):
    """One run, with what the target used. `lead` is about how long a host takes until its load begins."""
    lead = 0.1 if host == "trunkline" else 0.7
    sampler = Sampler(target, lead, options.seconds)
    began, busy, served, hosts = time.time(), turns.busy_seconds(), target.cpu(), os.times()
    sampler.start()
    iops = by_ours(options, place, work) if host == "trunkline" else by_spdk(options, work)
    sampler.join()
    after, served = os.times(), target.cpu() - served
    ours = served + sum(after[2:4]) - sum(hosts[2:4])
    others = max(0.0, (turns.busy_seconds() - busy - ours) / (time.time() - began) / os.cpu_count())
    run = {"work": work[0], "block": work[2], "depth": work[3], "queues": QUEUES, "target": target.name, "host": host,
           "gbytes_per_s": round(iops * work[2] / 1e9, 3), "iops": round(iops), "target_cores": round(sampler.cores, 3),
           "target_us": round(sampler.cores / iops * 1e6, 2), "others": round(others, 3), "calm": others < turns.DISTURBED}
    if sampler.busy is not None:
        run["busy"] = round(sampler.busy, 3)
    return run


def show(runs, targets, work, host):
    mine = [run for run in runs if (run["work"], run["host"]) == (work[0], host)]
    # Of the tries of a turn the last one counts.
    by = {target: {run["turn"]: run for run in mine if run["target"] == target} for target in targets}
    calm = {target: {turn: run for turn, run in of.items() if run["calm"]} for target, of in by.items()}
    counted = by if min(map(len, calm.values())) < 3 else calm
    for target, of in counted.items():
        middle = {key: statistics.median(run[key] for run in of.values())
                  for key in ("gbytes_per_s", "iops", "target_cores", "target_us")}
        ratios = sorted(of[turn]["iops"] / other["iops"] for turn, other in counted["spdk"].items() if turn in of)
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios else "none"
        busy = f", busy {statistics.median(run['busy'] for run in of.values()):.2f}" if target == "spdk" else ""
        print(f"# {work[0]:<9}{work[2] >> 10:>5} KiB  host {host:<10} target {target:<15} {middle['gbytes_per_s']:6.2f} GB/s "
              f"{middle['iops']:8.0f}/s  to spdk {ratio}  target {middle['target_cores']:.2f} processors, "
              f"{middle['target_us']:.2f} us an operation{busy}  {len(calm[target])} of {len(by[target])} turns undisturbed")


def version(program):
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trunkline")
    parser.add_argument("spdk", help="directory of nvmf_tgt and spdk_nvme_perf")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS, help="spdk must be one of them")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=60, help="no turn begins after this time")
    parser.add_argument("--tries", type=int, default=3, help="of each run while it is disturbed")
    parser.add_argument("--seconds", type=int, default=2, help="of each run")
    parser.add_argument("--no-huge", dest="memory", action="store_const", const=["--no-huge"], default=[])
    options = parser.parse_args()
    if os.cpu_count() != 2:
        sys.exit("the processors that SPDK polls are those of a machine with two")
    print(json.dumps({"versions": [version(options.trunkline), version(f"{options.spdk}/nvmf_tgt")], "kernel": os.uname().release,
                      "seconds": options.seconds, "tries": options.tries, "volume_mib": MIB}), flush=True)
    runs, began = [], time.time()
    for turn in range(options.turns):
        if time.time() > began + options.minutes * 60:
            break
        for name in options.targets if turn % 2 == 0 else options.targets[::-1]:
            with tempfile.TemporaryDirectory(prefix="compare-spdk-") as place:
                target = Target(options, name, place)
                try:
                    by_spdk(options, WORKLOADS[1], "-d", "100%")
                    for work in WORKLOADS:
                        for host in HOSTS:
                            for _ in range(options.tries):
                                runs.append({"turn": turn, **measure(options, place, target, host, work)})
                                print(json.dumps(runs[-1]), flush=True)
                                if runs[-1]["calm"]:
                                    break
                finally:
                    target.end()
    for work in WORKLOADS:
        for host in HOSTS:
            show(runs, options.targets, work, host)


if __name__ == "__main__":
    main()
