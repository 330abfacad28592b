#!/usr/bin/env python3
"""Measures what counting costs a server while nobody looks, while it is watched, and while files are counted, interleaved.

    cargo build --release -p trunkline && cargo build --release -p client --example load
    docs/results/compare-watched.py target/release/trunkline target/release/examples/load --turns 8

The cases:

    alone      a server without --metrics
    unwatched  a server with --metrics, whose history is kept but which nobody asks
    watched    the same server; each second a scrape of /metrics, a snapshot as `trunkline top` takes it, and the page's history
    by-file    as watched, and the server counts by file

The last lines have, for each workload and case, the medians of the speed and of the server's CPU time for an operation, and
the ratio to `alone`. Each run is compared with the run of `alone` in the same turn, and the ratio is the median of these.
After the runs each case is left without load for some seconds: what the server's processors do then is the asking alone.
"""
import argparse
import json
import statistics
import threading
import time
import urllib.request

import turns

PORTS = {"alone": "42061", "metrics": "42062"}
IDLE_SECONDS = 10
METRICS = "127.0.0.1:42063"
CASES = ["alone", "unwatched", "watched", "by-file"]
WORKLOADS = [("randread", 4 << 10, 32), ("randwrite", 4 << 10, 32), ("read", 1 << 20, 16), ("write", 1 << 20, 16)]


class Watcher(threading.Thread):
    """Asks what a Prometheus, `top` and a browser with the page open ask, each second, until it is stopped."""

    def __init__(self, by_file):
        super().__init__()
        self.stopped = threading.Event()
        self.paths = ["/metrics", "/snapshot?files=5" if by_file else "/snapshot", "/history?by=client&window=120"]

    def run(self):
        while True:
            for path in self.paths:
                urllib.request.urlopen(f"http://{METRICS}{path}", timeout=10).read()
            if self.stopped.wait(1):
                return


def measure(options, case, servers, work):
    name = "alone" if case == "alone" else "metrics"
    watcher = Watcher(case == "by-file") if case in ("watched", "by-file") else None
    if watcher:
        watcher.start()
    try:
        run = turns.measure(options.load, servers[name], PORTS[name], (*work, options.connections), options.seconds, options.mib)
    finally:
        if watcher:
            watcher.stopped.set()
            watcher.join()
    return {**run, "case": case}


def idle(servers, case):
    """The share of one processor that a server without calls takes in a case."""
    server = servers["alone" if case == "alone" else "metrics"]
    watcher = Watcher(case == "by-file") if case in ("watched", "by-file") else None
    if watcher:
        watcher.start()
    before = turns.cpu_seconds(server.pid)
    time.sleep(IDLE_SECONDS)
    used = turns.cpu_seconds(server.pid) - before
    if watcher:
        watcher.stopped.set()
        watcher.join()
    return {"case": case, "idle_share": round(used / IDLE_SECONDS, 5)}


def show(runs, work):
    mode, block, _depth = work
    mine = {case: [run for run in runs if (run["work"], run["block"], run["case"]) == (mode, block, case)] for case in CASES}
    for case in CASES:
        middle = {key: statistics.median(run[key] for run in mine[case]) for key in ("gbytes_per_s", "iops", "server_us")}
        ratios = {key: statistics.median(run[key] / alone[key] for run, alone in zip(mine[case], mine["alone"]))
                  for key in ("iops", "server_us")}
        print(f"# {mode:<9} {block >> 10:>4} KiB  {case:<9} {middle['gbytes_per_s']:6.3f} GB/s {middle['iops']:9.0f}/s "
              f"ratio {ratios['iops']:.3f}   server's us {middle['server_us']:7.2f} ratio {ratios['server_us']:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trunkline")
    parser.add_argument("load")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    parser.add_argument("--mib", type=int, default=256, help="size of each file")
    parser.add_argument("--connections", type=int, default=2, help="as many files")
    options = parser.parse_args()
    servers, runs = {}, []
    memory = ("--mem", f"{options.mib * options.connections * 2 + 256}MiB")
    try:
        for name, more in {"alone": (), "metrics": ("--metrics", METRICS)}.items():
            servers[name] = turns.start_server(options.trunkline, *memory, "--listen", f"127.0.0.1:{PORTS[name]}", *more)
            turns.measure(options.load, servers[name], PORTS[name], ("fill", 1 << 20, 16, options.connections), 1, options.mib)
        for turn in range(options.turns):
            for work in WORKLOADS:
                for case in CASES if turn % 2 == 0 else CASES[::-1]:
                    runs.append(measure(options, case, servers, work))
                    print(json.dumps(runs[-1]), flush=True)
        idles = [idle(servers, case) for case in CASES]
    finally:
        turns.end(servers.values())
    for work in WORKLOADS:
        show(runs, work)
    for it in idles:
        print(json.dumps(it))
        print(f"# without load  {it['case']:<9} {100 * it['idle_share']:.2f} % of one processor")


if __name__ == "__main__":
    main()
