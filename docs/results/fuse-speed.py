#!/usr/bin/env python3
"""Measures a mounted directory beside a FUSE file system that does nothing and beside the client library without a
mount, interleaved: A B C, C B A, ...

Our server serves memory on loopback. fio does the work in both directories, crates/client/examples/load.rs through the
library. The script needs root, fio and fuse3:

    cargo build --release -p trunkline -p client -p mount --bin trunkline --example load --example null
    docs/results/fuse-speed.py target/release

Processor time is that of fio, the process of the file system, and the server. "Allowed" is the speed at which all processors
are busy if each operation costs what it costs FUSE that does nothing and the library together. Each line of output is JSON:
one for each run, then one for each work with its medians and its mark.
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
import time

CPUS = len(os.sched_getaffinity(0))
ONCE = "--loops=1 --ioengine=psync --direct=0"
# Programs that write files of their own: one alone waits for each of its writes, so that it keeps no two processors busy.
FILES = 4
EACH = f"{ONCE} --numjobs={FILES} --thread"
# Name, what fio is told, then the library's mode, block and depth; what is asked, and of what.
WORKS = [
    ("direct READ 1 MiB, depth 16", "--rw=read --bs=1m --ioengine=libaio --iodepth=16 --direct=1", ("read", 1 << 20, 16), "library"),
    ("direct WRITE 1 MiB, depth 16", "--rw=write --bs=1m --ioengine=libaio --iodepth=16 --direct=1", ("write", 1 << 20, 16), "library"),
    ("random direct READ 4 KiB, 8 threads", "--rw=randread --bs=4k --ioengine=psync --numjobs=8 --thread --direct=1", ("randread", 4096, 8), "allowed"),
    ("random direct READ 4 KiB, depth 32", "--rw=randread --bs=4k --ioengine=libaio --iodepth=32 --direct=1", ("randread", 4096, 32), "allowed"),
    ("buffered READ 1 MiB", f"--rw=read --bs=1m {ONCE}", ("read", 1 << 20, 16), "allowed"),
    ("buffered WRITE 1 MiB", f"--rw=write --bs=1m --end_fsync=1 {ONCE}", ("write", 1 << 20, 16), "allowed"),
    ("buffered random WRITE 4 KiB", f"--rw=randwrite --bs=4k --end_fsync=1 {ONCE}", ("randwrite", 4096, 32), "allowed"),
    (f"buffered WRITE 1 MiB, {FILES} files", f"--rw=write --bs=1m --end_fsync=1 {EACH}", ("write", 1 << 20, 16), "allowed"),
    (f"buffered random WRITE 4 KiB, {FILES} files", f"--rw=randwrite --bs=4k --end_fsync=1 {EACH}", ("randwrite", 4096, 32), "allowed"),
]
ASKED = {"library": 0.6, "allowed": 0.8}


def cpu_seconds(pid):
    """Processor time of a process, to the nanosecond, of all its threads that are there."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            total += int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0])
        except OSError:
            pass
    return total / 1e9


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def until(condition, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"error: {what}")
        time.sleep(0.05)


def run(command, others):
    """Runs a command; gives its output and the processor time of it and of others."""
    before = sum(map(cpu_seconds, others))
    own = os.times()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    after = os.times()
    spent = after.children_user + after.children_system - own.children_user - own.children_system
    return done.stdout, spent + sum(map(cpu_seconds, others)) - before


def fio_words(directory, mib):
    return ["fio", "--name=job", f"--directory={directory}", f"--size={mib}m", "--group_reporting", "--output-format=json"]


def fio_alone(directory, options):
    """Processor time that fio takes before and after its work: next to nothing is read."""
    command = fio_words(directory, options.mib)
    command += ["--filename=load.1", "--rw=read", "--bs=4k", "--io_size=4k"]
    return min(run(command, [])[1] for _ in range(3))


def fio(directory, arguments, options, others):
    timed = [] if "--loops" in arguments else ["--time_based", f"--runtime={options.seconds}"]
    own = EACH in arguments
    command = fio_words(directory, options.mib // FILES if own else options.mib)
    command += ["--filename_format=load.$jobnum"] if own else ["--filename=load.1"]
    command += ["--norandommap", "--random_generator=lfsr", *timed, *arguments.split()]
    text, cpu = run(command, others)
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = job["read"] if job["read"]["total_ios"] else job["write"]
    jobs = re.search(r"--numjobs=(\d+)", arguments)
    # With what fsync(2) took.
    took = max(job["job_runtime"] / int(jobs[1] if jobs else 1), side["runtime"]) / 1e3
    return side["total_ios"] / took, max(0, cpu - options.fio_alone) * 1e6 / side["total_ios"]


def library(load, port, work, options, server):
    mode, block, depth = work
    words = [mode, str(block), str(depth), "1", str(options.seconds), str(options.mib)]
    text, cpu = run([load, "127.0.0.1", port, port, "/export", *words], [server])
    seen = dict(word.split("=", 1) for word in text.split() if "=" in word)
    return float(seen["iops"]), cpu * 1e6 / float(seen["operations"])


def measure(place, options):
    programs = options.programs
    port = free_port()
    server = subprocess.Popen([f"{programs}/trunkline", "serve", "--mem", "4GiB", "--listen", f"127.0.0.1:{port}", "--export", "/export"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started = [server]
    mounted = []
    try:
        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", int(port))) == 0
        until(listens, "the server does not listen")
        load = f"{programs}/examples/load"
        subprocess.run([load, "127.0.0.1", port, port, "/export", "fill", str(1 << 20), "4", str(FILES), "60", str(options.mib)], check=True, stdout=subprocess.DEVNULL)
        for name, command in [
            ("mount", [f"{programs}/trunkline", "mount", "-f", "127.0.0.1:/export", f"{place}/mount", "-o", f"port={port},mountport={port},nconnect=2,{options.options}".rstrip(",")]),
            ("null", [f"{programs}/examples/null", f"{place}/null", str(options.mib)]),
        ]:
            os.mkdir(f"{place}/{name}")
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            mounted.append(f"{place}/{name}")
            until(lambda: os.path.ismount(f"{place}/{name}"), f"{name} does not come up")
        _, mount, null = started
        options.fio_alone = fio_alone(f"{place}/null", options)
        for name, arguments, work, of in WORKS:
            if options.work and options.work not in name:
                continue
            who = {
                "library": lambda: library(load, port, work, options, server.pid),
                "mount": lambda: fio(f"{place}/mount", arguments, options, [mount.pid, server.pid]),
                "null": lambda: fio(f"{place}/null", arguments, options, [null.pid]),
            }
            seen = {key: [] for key in who}
            for turn in range(options.turns):
                for key in list(who) if turn % 2 == 0 else list(who)[::-1]:
                    per_s, cpu_us = who[key]()
                    seen[key].append((per_s, cpu_us))
                    print(json.dumps({"work": name, "who": key, "per_s": round(per_s, 1), "cpu_us": round(cpu_us, 2)}), flush=True)
            middle = {key: [statistics.median(values) for values in zip(*runs)] for key, runs in seen.items()}
            # fio's operations of 1 MiB are the library's; both count operations.
            allowed = CPUS * 1e6 / (middle["null"][1] + middle["library"][1])
            base = middle["library"][0] if of == "library" else allowed
            share = middle["mount"][0] / base
            print(json.dumps({"work": name, "library_per_s": round(middle["library"][0]), "null_per_s": round(middle["null"][0]), "mount_per_s": round(middle["mount"][0]), "mount_cpu_us": round(middle["mount"][1], 2), "allowed_per_s": round(allowed), "share": round(share, 3), "of": of, "asked": ASKED[of], "reached": share >= ASKED[of]}), flush=True)
    finally:
        for directory in mounted:
            subprocess.run(["umount", "-l", directory], stderr=subprocess.DEVNULL)
        for process in reversed(started):
            process.terminate()
            process.wait()


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("programs", help="the directory of the release build")
    words.add_argument("--seconds", type=float, default=3, help="measured time of a run that has no end of its own")
    words.add_argument("--turns", type=int, default=5)
    words.add_argument("--mib", type=int, default=512, help="size of the files")
    words.add_argument("--work", help="only works whose names have this in them")
    words.add_argument("--options", default="", help="more mount options")
    options = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="trunkline-fuse-") as place:
        measure(place, options)


if __name__ == "__main__":
    main()
