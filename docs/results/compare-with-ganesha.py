#!/usr/bin/env python3
"""Measures nfs-ganesha with libnfs against our server with our client, in turns: A B, B A, A B, ...

Needs root, nfs-ganesha, nfs-ganesha-vfs, rpcbind, and three programs built from this repository:

    cargo build --release -p trunkline && cargo build --release -p trunkline-client --example load
    cc -O2 crates/trunkline/tests/peers/load.c -lnfs -lpthread -o /tmp/load-libnfs
    docs/results/compare-with-ganesha.py target/release/trunkline target/release/examples/load \
        /tmp/load-libnfs --pairs 7 --minutes 15

Each run notes how much CPU others used meanwhile; a pair with more than a tenth of the machine in either run is
marked as disturbed. It runs until each workload has --pairs undisturbed ones, or --minutes are over.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

FILE_MIB, SECONDS, DISTURBED = "512", "3", 0.10
GANESHA_PORT, GANESHA_MOUNT_PORT, OUR_PORT = "42049", "42048", "42050"
WORKLOADS = [("read", 1 << 20, 16, 1), ("read", 1 << 20, 16, 2), ("write", 1 << 20, 16, 1),
             ("write", 1 << 20, 16, 2), ("randread", 4096, 32, 1), ("randread", 4096, 32, 4)]
CLOCK = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """CPU time that the whole machine has used."""
    user, nice, system, _idle, _wait, interrupt, soft = map(int, open("/proc/stat").readline().split()[1:8])
    return (user + nice + system + interrupt + soft) / CLOCK


def cpu_seconds(pid):
    """CPU time that a process has used."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK


def start_servers(options, place, children):
    """Starts both; gives for each the client's command and the server's pid."""
    def start(*command):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        children.append(child)
        return child
    export = f"{place}/export"
    os.mkdir(export)
    plugins = os.path.dirname(glob.glob("/usr/lib/*/ganesha/libfsalvfs.so")[0])
    with open(f"{place}/ganesha.conf", "w") as conf:
        conf.write(f"""NFS_CORE_PARAM {{ NFS_Port = {GANESHA_PORT}; MNT_Port = {GANESHA_MOUNT_PORT}; Protocols = 3;
  Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = None; Bind_addr = 127.0.0.1; Plugins_Dir = "{plugins}"; }}
NFSv4 {{ Graceless = true; }}
EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
  Protocols = 3; Transports = TCP; PrivilegedPort = false; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = WARN; }}
""")
    namespace = start("unshare", "--mount", "--propagation", "private", "sh", "-c",
                      f"mount -t tmpfs -o size=5G,mode=777 none {export} && exec sleep infinity")
    start("rpcbind", "-f")
    time.sleep(1)
    ganesha = start("nsenter", f"--mount=/proc/{namespace.pid}/ns/mnt", "ganesha.nfsd", "-F", "-f",
                    f"{place}/ganesha.conf", "-L", f"{place}/ganesha.log", "-p", f"{place}/ganesha.pid")
    ours = start(options.trunkline, "serve", "--mem", "5GiB", "--listen", f"127.0.0.1:{OUR_PORT}")
    time.sleep(2)
    return {"A": ([options.load_libnfs, "127.0.0.1", GANESHA_PORT, GANESHA_MOUNT_PORT, export], ganesha.pid),
            "B": ([options.load_ours, "127.0.0.1", OUR_PORT, OUR_PORT, "/export"], ours.pid)}


def measure(side, mode, block, depth, connections):
    """One run: speed, and the share of the machine that others used meanwhile."""
    command, server = side
    began, busy, served, clients = time.time(), busy_seconds(), cpu_seconds(server), os.times()
    arguments = [mode, str(block), str(depth), str(connections), SECONDS, FILE_MIB]
    done = subprocess.run(command + arguments, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    after = os.times()
    ours = cpu_seconds(server) - served + sum(after[2:4]) - sum(clients[2:4])
    others = (busy_seconds() - busy - ours) / (time.time() - began) / os.cpu_count()
    values = dict(word.split("=") for word in done.stdout.split() if "=" in word)
    return {"gbytes_per_s": float(values["gbytes_per_s"]), "iops": float(values["iops"]),
            "others": max(0.0, others), "load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for program in ("trunkline", "load_ours", "load_libnfs"):
        parser.add_argument(program)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=15)
    options = parser.parse_args()
    children, pairs, end = [], [], time.time() + options.minutes * 60
    with tempfile.TemporaryDirectory() as place:
        try:
            sides = start_servers(options, place, children)
            for side in sides.values():
                measure(side, "fill", 1 << 20, 16, 4)
            good, turn = dict.fromkeys(WORKLOADS, 0), 0
            while time.time() < end and min(good.values()) < options.pairs:
                for work in WORKLOADS:
                    if good[work] < options.pairs and time.time() < end:
                        pair = {name: measure(sides[name], *work) for name in ("AB" if turn % 2 == 0 else "BA")}
                        calm = max(run["others"] for run in pair.values()) < DISTURBED
                        good[work] += calm
                        pairs.append({"work": work, "calm": calm, **pair})
                        print(json.dumps(pairs[-1]), flush=True)
                turn += 1
        finally:
            for child in reversed(children):
                child.terminate()
            time.sleep(2)
            for child in children:
                child.kill()
                child.wait()
    for work in WORKLOADS:
        key = "iops" if work[0] == "randread" else "gbytes_per_s"
        for name, chosen in (("calm", [p for p in pairs if p["calm"]]), ("all", pairs)):
            mine = [p for p in chosen if p["work"] == work]
            if mine:
                middle = [statistics.median(p[s][key] for p in mine) for s in "AB"]
                ratio = statistics.median(p["B"][key] / p["A"][key] for p in mine)
                print(*work, name, f"pairs={len(mine)} A={middle[0]:.3f} B={middle[1]:.3f} ratio={ratio:.2f}")


if __name__ == "__main__":
    main()
