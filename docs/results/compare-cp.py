#!/usr/bin/env python3
"""Times `trunkline cp` against `nfs-cp` (libnfs-utils) and the local `cp`, interleaved: A B C, C B A, A B C, ...

The script copies one large file and many small ones, to a server and from the server. All copies start and end on a tmpfs, so
no disk is measured. The server is ours, serves memory, and is the same for A and B. nfs-cp copies one file at a time, so it
runs once for each of --sample small files, and its time is extrapolated to all of them.

The script needs root (for the tmpfs), libnfs-utils and our program:

    cargo build --release -p trunkline
    docs/results/compare-cp.py target/release/trunkline --turns 5 > docs/results/cp.jsonl

Memory holds the large file at most three times at once (source, server, copy), so --gib 4 takes a little more than
12 GiB. The script checks for that much free memory before it starts. Each line of output is one run; the last lines are
medians. A run during which other programs used more than a tenth of the machine is disturbed, and is left out of the
medians where undisturbed runs are there.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PORT, DISTURBED, SMALL_BYTES = "42051", 0.10, 4096
CLOCK = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """CPU time that the whole machine has used."""
    user, nice, system, _idle, _wait, interrupt, soft = map(int, open("/proc/stat").readline().split()[1:8])
    return (user + nice + system + interrupt + soft) / CLOCK


def cpu_seconds(pid):
    """CPU time that a process has used."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK


def free_gib():
    for line in open("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / (1 << 20)
    return 0


def make_sources(place, options):
    """One large file of random bytes (a block repeated with a number, so that making it is quick), many small ones."""
    block = bytearray(random.randbytes(1 << 20))
    with open(f"{place}/large", "wb") as file:
        for number in range(int(options.gib * 1024)):
            block[:8] = number.to_bytes(8, "little")
            file.write(block)
    for number in range(options.files):
        directory = f"{place}/small/{number // 100:03}"
        os.makedirs(directory, exist_ok=True)
        with open(f"{directory}/{number:05}", "wb") as file:
            file.write(random.randbytes(SMALL_BYTES))


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


class Bed:
    """What is copied where, and by whom."""

    def __init__(self, options, place):
        self.options, self.place = options, place
        self.url = f"nfs://127.0.0.1:{PORT}/export"
        self.libnfs = f"nfs://127.0.0.1/export/{{}}?nfsport={PORT}&mountport={PORT}"
        self.more = ["-o", options.mount] if options.mount else []

    def small_sample(self):
        step = max(1, self.options.files // self.options.sample)
        return [f"small/{number // 100:03}/{number:05}" for number in range(0, self.options.files, step)]

    def ours(self, work):
        source, target = {
            "large to": (f"{self.place}/large", f"{self.url}/copy"),
            "large from": (f"{self.url}/large", f"{self.place}/out/copy"),
            "small to": (f"{self.place}/small", f"{self.url}/copies"),
            "small from": (f"{self.url}/small", f"{self.place}/out/copies"),
        }[work]
        run(self.options.trunkline, "cp", "-r", *self.more, *self.options.flags.split(), source, target)
        return 1

    def theirs(self, work):
        """Gives by what its time is to be multiplied."""
        if work == "large to":
            run("nfs-cp", f"{self.place}/large", self.libnfs.format("copy"))
        elif work == "large from":
            run("nfs-cp", self.libnfs.format("large"), f"{self.place}/out/copy")
        else:
            sample = self.small_sample()
            for number, name in enumerate(sample):
                if work == "small to":
                    run("nfs-cp", f"{self.place}/{name}", self.libnfs.format(f"sample/{number}"))
                else:
                    run("nfs-cp", self.libnfs.format(name), f"{self.place}/out/{number}")
            return self.options.files / len(sample)
        return 1

    def local(self, work):
        what = "large" if work.startswith("large") else "small"
        run("cp", "-r", "--preserve=mode,timestamps,links", f"{self.place}/{what}", f"{self.place}/out/copy")
        return 1

    def clean(self):
        """Removes what the last run made, on both sides: the server starts again."""
        shutil.rmtree(f"{self.place}/out")
        os.mkdir(f"{self.place}/out")


def start_server(bed):
    memory = f"{int(bed.options.gib * 2) + 1}GiB"
    server = subprocess.Popen([bed.options.trunkline, "serve", "--mem", memory, "--listen", f"127.0.0.1:{PORT}"],
                              stdout=subprocess.PIPE, text=True)
    while "ready" not in (line := server.stdout.readline()):
        if not line:
            sys.exit("the server does not start")
    os.mkdir(f"{bed.place}/sample")
    run(bed.options.trunkline, "cp", "-r", f"{bed.place}/sample", bed.url)
    os.rmdir(f"{bed.place}/sample")
    return server


def prepare(bed, work):
    """What a copy from the server needs to be there."""
    if work == "large from":
        run(bed.options.trunkline, "cp", f"{bed.place}/large", f"{bed.url}/large")
    if work == "small from":
        run(bed.options.trunkline, "cp", "-r", f"{bed.place}/small", f"{bed.url}/small")


def measure(bed, who, work):
    """One run on a server of its own: seconds, and the share of the machine that others used meanwhile."""
    server = start_server(bed)
    try:
        prepare(bed, work)
        began, busy, served, children = time.time(), busy_seconds(), cpu_seconds(server.pid), os.times()
        factor = {"trunkline": bed.ours, "nfs-cp": bed.theirs, "cp": bed.local}[who](work)
        seconds, after = time.time() - began, os.times()
        ours = cpu_seconds(server.pid) - served + sum(after[2:4]) - sum(children[2:4])
        ours += sum(after[0:2]) - sum(children[0:2])
        others = max(0.0, (busy_seconds() - busy - ours) / seconds / os.cpu_count())
    finally:
        server.terminate()
        server.wait()
        bed.clean()
    return {"work": work, "who": who, "seconds": round(seconds * factor, 4), "reckoned": factor != 1,
            "others": round(others, 3), "calm": others < DISTURBED}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trunkline")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--gib", type=float, default=4, help="size of the large file")
    parser.add_argument("--files", type=int, default=10_000, help="how many small ones")
    parser.add_argument("--sample", type=int, default=200, help="how many of them nfs-cp copies")
    parser.add_argument("--mount", default="nconnect=4", help="mount options for trunkline")
    parser.add_argument("--flags", default="", help="more options of trunkline cp, such as --verify")
    options = parser.parse_args()
    needed = options.gib * 3 + options.files * 3 * 8192 / (1 << 30) + 1
    if free_gib() < needed:
        sys.exit(f"{needed:.1f} GiB of memory are needed, {free_gib():.1f} are free; give a smaller --gib")
    place = tempfile.mkdtemp(prefix="compare-cp-")
    run("mount", "-t", "tmpfs", "-o", f"size={int(needed)}G", "none", place)
    runs = []
    try:
        os.mkdir(f"{place}/out")
        make_sources(place, options)
        bed = Bed(options, place)
        for turn in range(options.turns):
            for work in ("large to", "large from", "small to", "small from"):
                sides = ["trunkline", "nfs-cp", "cp"]
                for who in sides if turn % 2 == 0 else reversed(sides):
                    runs.append(measure(bed, who, work))
                    print(json.dumps(runs[-1]), flush=True)
    finally:
        run("umount", place)
        os.rmdir(place)
    for work in dict.fromkeys(run["work"] for run in runs):
        for who in ("trunkline", "nfs-cp", "cp"):
            mine = [run for run in runs if (run["work"], run["who"]) == (work, who)]
            calm = [run for run in mine if run["calm"]] or mine
            middle = statistics.median(run["seconds"] for run in calm)
            speed = (f"{options.gib * 1.073741824 / middle:.2f} GB/s" if work.startswith("large")
                     else f"{options.files / middle:.0f} files/s")
            print(f"# {work:<10} {who:<9} median {middle:.3f} s, {speed}, of {len(calm)} runs, "
                  f"{sum(run['calm'] for run in mine)} undisturbed")


if __name__ == "__main__":
    main()
