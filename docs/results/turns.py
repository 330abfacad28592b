"""Shared by the scripts that compare two servers of ours: starts a server, and runs the load of the client library."""
import os
import subprocess
import sys
import time

DISTURBED = 0.10
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


def start_server(trunkline, *arguments):
    """A server that listens."""
    server = subprocess.Popen([trunkline, "serve", *arguments], stdout=subprocess.PIPE, text=True)
    while "ready" not in (line := server.stdout.readline()):
        if not line:
            sys.exit("the server does not start")
    return server


def end(servers):
    for server in servers:
        server.terminate()
        server.wait()


def measure(load, server, port, work, seconds, mib, *mount_options):
    """One run of a work (mode, block, depth, connections): its speed, the server's and the client's CPU time for an operation,
    and the share of the machine that others used. A run during which that was more than a tenth is disturbed."""
    began, busy, served, clients = time.time(), busy_seconds(), cpu_seconds(server.pid), os.times()
    command = [load, "127.0.0.1", port, port, "/export", *map(str, work), str(seconds), str(mib), *mount_options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    after, served = os.times(), cpu_seconds(server.pid) - served
    loaded = sum(after[2:4]) - sum(clients[2:4])
    ours = served + loaded
    others = max(0.0, (busy_seconds() - busy - ours) / (time.time() - began) / os.cpu_count())
    values = dict(word.split("=") for word in done.stdout.split() if "=" in word)
    mode, block, depth, connections = work
    return {"work": mode, "block": block, "depth": depth, "connections": connections,
            "gbytes_per_s": float(values["gbytes_per_s"]), "iops": float(values["iops"]),
            "server_us": round(served * 1e6 / int(values["operations"]), 2),
            "client_us": round(loaded * 1e6 / int(values["operations"]), 2),
            "others": round(others, 3), "calm": others < DISTURBED}


def by_turns(turns, works, names):
    """Each work for each name, those in the other order every other time."""
    for turn in range(turns):
        for work in works:
            for name in sorted(names, reverse=turn % 2 == 0):
                yield work, name
