#!/usr/bin/env python3
"""Measures busy polling at both ends against none at either, interleaved: A B, B A, A B, ...

    cargo build --release -p trunkline && cargo build --release -p client --example load
    docs/results/compare-busy-poll.py target/release/trunkline target/release/examples/load --turns 10

Run this on a machine that does nothing else. The last lines have, for each workload, the medians of the operations a second
and of the server's CPU time for an operation, each with the lowest and highest run.
"""
import argparse
import json
import statistics
import tempfile

import turns

PORTS, SPANS = {"off": "42071", "on": "42072"}, {"off": 0, "on": 100}
WORKLOADS = [("randread", 4 << 10, 1, 1), ("randread", 4 << 10, 32, 1), ("randread", 4 << 10, 32, 4),
             ("randwrite", 4 << 10, 32, 1), ("randwrite", 4 << 10, 32, 4), ("read", 64 << 10, 32, 2)]
MIB = 64


def start_server(options, name, directory):
    path = f"{directory}/{name}.toml"
    with open(path, "w") as file:
        file.write(f'busy_poll_us = {SPANS[name]}\n[[node]]\nlisten = ["127.0.0.1:{PORTS[name]}"]\n'
                   '[[export]]\npath = "/export"\nmem = "1GiB"\nallow = ["127.0.0.0/8"]\nrw = true\n'
                   'root_squash = false\n')
    return turns.start_server(options.trunkline, "--config", path)


def measure(options, name, server, work):
    spans = f"busypoll={SPANS[name]}"
    run = turns.measure(options.load, server, PORTS[name], work, options.seconds, MIB, spans)
    return {**run, "busy_poll": name}


def show(runs, work):
    mode, block, depth, connections = work
    words = []
    for name in PORTS:
        mine = [run for run in runs if run["busy_poll"] == name and
                (run["work"], run["block"], run["depth"], run["connections"]) == work]
        iops, used = [run["iops"] for run in mine], [run["server_us"] for run in mine]
        words.append(f"{name:>3} {statistics.median(iops):>7.0f}/s ({min(iops):.0f} to {max(iops):.0f}), server "
                     f"{statistics.median(used):.2f} us")
    print(f"# {mode:<9} {block >> 10:>2} KiB depth {depth:>2} on {connections}:  {';  '.join(words)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trunkline")
    parser.add_argument("load")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1, help="of each run")
    options = parser.parse_args()
    servers, runs = {}, []
    with tempfile.TemporaryDirectory(prefix="compare-busy-poll-") as directory:
        try:
            for name in PORTS:
                servers[name] = start_server(options, name, directory)
                measure(options, name, servers[name], ("fill", 1 << 20, 16, 4))
            for work, name in turns.by_turns(options.turns, WORKLOADS, PORTS):
                runs.append(measure(options, name, servers[name], work))
                print(json.dumps(runs[-1]), flush=True)
        finally:
            turns.end(servers.values())
    for work in WORKLOADS:
        show(runs, work)


if __name__ == "__main__":
    main()
