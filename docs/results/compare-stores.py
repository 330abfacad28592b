#!/usr/bin/env python3
"""Measures a directory on a tmpfs against memory, both served by our server, in turns: A B, B A, A B, ...

    cargo build --release -p trunkline && cargo build --release -p trunkline-client --example load
    docs/results/compare-stores.py target/release/trunkline target/release/examples/load --turns 5

The directory is a new one in --in (default /dev/shm, a tmpfs); name another file system to have its page cache measured,
large enough and with memory to spare. Each workload has a line at the end: medians of speed and of the server's CPU
time for an operation, and the ratio of directory to memory, once by speed and once by that CPU time. Speed is what
counts on a machine that does nothing else; where others work too, CPU time is what can be compared.

A run during which others used more than a tenth of the machine is marked as disturbed, and left out of the medians
where enough calm ones are there.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PORTS, DISTURBED = {"mem": "42061", "dir": "42062"}, 0.10
WORKLOADS = [("read", 1 << 20, 16), ("read", 64 << 10, 32), ("randread", 4 << 10, 32), ("write", 1 << 20, 16),
             ("write", 64 << 10, 32), ("randwrite", 4 << 10, 32)]
CLOCK = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """CPU time that the whole machine has used."""
    user, nice, system, _idle, _wait, interrupt, soft = map(int, open("/proc/stat").readline().split()[1:8])
    return (user + nice + system + interrupt + soft) / CLOCK


def cpu_seconds(pid):
    """CPU time that the threads of a process have used."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        total += int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0])
    return total / 1e9


def start_server(options, name, *store):
    server = subprocess.Popen([options.trunkline, "serve", *store, "--listen", f"127.0.0.1:{PORTS[name]}"],
                              stdout=subprocess.PIPE, text=True)
    while "ready" not in (line := server.stdout.readline()):
        if not line:
            sys.exit("the server does not start")
    return server


def measure(options, name, server, work):
    """One run: speed, the server's CPU time for an operation, and the share of the machine that others used."""
    mode, block, depth = work
    began, busy, served, clients = time.time(), busy_seconds(), cpu_seconds(server.pid), os.times()
    command = [options.load, "127.0.0.1", PORTS[name], PORTS[name], "/export", mode, str(block), str(depth),
               str(options.connections), str(options.seconds), str(options.mib)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    after, served = os.times(), cpu_seconds(server.pid) - served
    ours = served + sum(after[2:4]) - sum(clients[2:4])
    others = max(0.0, (busy_seconds() - busy - ours) / (time.time() - began) / os.cpu_count())
    values = dict(word.split("=") for word in done.stdout.split() if "=" in word)
    return {"work": mode, "block": block, "store": name, "gbytes_per_s": float(values["gbytes_per_s"]),
            "iops": float(values["iops"]), "server_us": served * 1e6 / int(values["operations"]),
            "others": round(others, 3), "calm": others < DISTURBED}


def show(runs, work):
    mode, block, _depth = work
    mine = [run for run in runs if (run["work"], run["block"]) == (mode, block)]
    calm = [run for run in mine if run["calm"]]
    by = {name: [run for run in calm if run["store"] == name] for name in PORTS}
    if min(map(len, by.values())) < 3:
        by = {name: [run for run in mine if run["store"] == name] for name in PORTS}
    middle = {name: {key: statistics.median(run[key] for run in of) for key in ("gbytes_per_s", "server_us")}
              for name, of in by.items()}
    mem, directory = middle["mem"], middle["dir"]
    print(f"# {mode:<9} {block >> 10:>4} KiB  GB/s: mem {mem['gbytes_per_s']:.3f} dir {directory['gbytes_per_s']:.3f} "
          f"ratio {directory['gbytes_per_s'] / mem['gbytes_per_s']:.2f}   server's us: mem {mem['server_us']:.2f} "
          f"dir {directory['server_us']:.2f} ratio {mem['server_us'] / directory['server_us']:.2f}   "
          f"{len(calm)} of {len(mine)} runs calm")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trunkline")
    parser.add_argument("load")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    parser.add_argument("--mib", type=int, default=256, help="size of each file")
    parser.add_argument("--connections", type=int, default=2, help="as many files")
    parser.add_argument("--in", dest="place", default="/dev/shm", help="where the directory is made")
    parser.add_argument("--only", help="one workload: read, randread, write or randwrite")
    options = parser.parse_args()
    works = [work for work in WORKLOADS if options.only in (None, work[0])]
    place, servers, runs = tempfile.mkdtemp(prefix="compare-stores-", dir=options.place), {}, []
    try:
        os.mkdir(f"{place}/export", 0o777)
        os.chmod(f"{place}/export", 0o777)
        servers["mem"] = start_server(options, "mem", "--mem", f"{options.mib * options.connections * 2 + 256}MiB")
        servers["dir"] = start_server(options, "dir", "--dir", f"{place}/export", "--state", f"{place}/state")
        for name, server in servers.items():
            measure(options, name, server, ("fill", 1 << 20, 16))
        for turn in range(options.turns):
            for work in works:
                for name in sorted(PORTS, reverse=turn % 2 == 0):
                    runs.append(measure(options, name, servers[name], work))
                    print(json.dumps(runs[-1]), flush=True)
    finally:
        for server in servers.values():
            server.terminate()
            server.wait()
        shutil.rmtree(place)
    for work in works:
        show(runs, work)


if __name__ == "__main__":
    main()
