#!/usr/bin/env python3
"""Measures a directory on a tmpfs against memory, both served by our server, interleaved: A B, B A, A B, ...

    cargo build --release -p trunkline && cargo build --release -p client --example load
    docs/results/compare-stores.py target/release/trunkline target/release/examples/load --turns 5

The directory is a new one in --in (default /dev/shm, a tmpfs). Another file system has its page cache measured; it must be
large enough, and the machine must have memory to spare. The last lines have, for each workload, the medians of the speed and
of the server's CPU time for an operation, and the ratio of directory to memory by speed and by CPU time. Compare speeds on a
machine that does nothing else, and CPU times on a machine that other programs use too.

A run during which other programs used more than a tenth of the machine is disturbed, and left out of the medians where
enough undisturbed runs are there.
"""
import argparse
import json
import os
import shutil
import statistics
import tempfile

import turns

PORTS = {"mem": "42061", "dir": "42062"}
WORKLOADS = [("read", 1 << 20, 16), ("read", 64 << 10, 32), ("randread", 4 << 10, 32), ("write", 1 << 20, 16),
             ("write", 64 << 10, 32), ("randwrite", 4 << 10, 32)]


def start_server(options, name, *store):
    return turns.start_server(options.trunkline, *store, "--listen", f"127.0.0.1:{PORTS[name]}")


def measure(options, name, server, work):
    work = (*work, options.connections)
    return {**turns.measure(options.load, server, PORTS[name], work, options.seconds, options.mib), "store": name}


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
          f"{len(calm)} of {len(mine)} runs undisturbed")


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
        for work, name in turns.by_turns(options.turns, works, PORTS):
            runs.append(measure(options, name, servers[name], work))
            print(json.dumps(runs[-1]), flush=True)
    finally:
        turns.end(servers.values())
        shutil.rmtree(place)
    for work in works:
        show(runs, work)


if __name__ == "__main__":
    main()
