#!/usr/bin/env python3
"""Measures two builds of the client library on one server of ours, interleaved: A B, B A, A B, ...

    cargo build --release -p trunkline && cargo build --release -p client --example load
    docs/results/compare-clients.py target/release/trunkline before=OTHER/load after=target/release/examples/load

Run this on a machine that does nothing else. A turn in which other programs used more than a tenth of the machine does not
count. The last lines have, for each workload, the medians of the speed and of the server's CPU time for an operation, with
the lowest and highest run, and the median of the ratios to the first build within turns.
"""
import argparse
import json
import statistics

import turns

PORT, MIB = "42081", 256
WORKLOADS = [("randread", 4 << 10, 32, 4), ("randwrite", 4 << 10, 32, 4), ("read", 64 << 10, 32, 2),
             ("write", 64 << 10, 32, 2), ("read", 1 << 20, 16, 2), ("write", 1 << 20, 16, 2),
             ("write", 1 << 20, 16, 1), ("randread", 4 << 10, 1, 1)]


def show(runs, work, names):
    mode, block, depth, connections = work
    print(f"# {mode} {block >> 10} KiB, depth {depth}, connections {connections}")
    mine = [run for run in runs if (run["work"], run["block"], run["depth"], run["connections"]) == work]
    calm = [turn for turn in zip(*[iter(mine)] * len(names)) if all(run["calm"] for run in turn)]
    if not calm:
        return print("#   no undisturbed turn")

    def of(name, what):
        return [run[what] for turn in calm for run in turn if run["build"] == name]

    for name in names:
        speed, used = of(name, "gbytes_per_s"), of(name, "server_us")
        ratio = statistics.median(mine / first for mine, first in zip(speed, of(names[0], "gbytes_per_s")))
        print(f"#   {name:<10} {statistics.median(speed):.2f} GB/s ({min(speed):.2f} to {max(speed):.2f}), server "
              f"{statistics.median(used):.2f} us ({min(used):.2f} to {max(used):.2f}), {ratio:.2f} times {names[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trunkline")
    parser.add_argument("loads", nargs="+", metavar="NAME=LOAD", help="builds of the client's example `load`")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1, help="of each run")
    options = parser.parse_args()
    loads = dict(load.split("=", 1) for load in options.loads)
    server = turns.start_server(options.trunkline, "--listen", f"127.0.0.1:{PORT}", "--mem", "2GiB")
    runs = []
    try:
        turns.measure(next(iter(loads.values())), server, PORT, ("fill", 1 << 20, 16, 4), 60, MIB)
        for work, name in turns.by_turns(options.turns, WORKLOADS, loads):
            run = turns.measure(loads[name], server, PORT, work, options.seconds, MIB)
            runs.append({**run, "build": name})
            print(json.dumps(runs[-1]), flush=True)
    finally:
        turns.end([server])
    for work in WORKLOADS:
        show(runs, work, list(loads))


if __name__ == "__main__":
    main()
