#!/bin/sh
# Measures a server from all hosts of a hostfile of MPI: mpirun starts an agent on each of them, and the
# experiment runs here. The key is the same file on all hosts:
# (umask 077; head -c 32 /dev/urandom | base64 > ~/bench.key)
#
#   sh docs/examples/bench-mpi.sh hosts my-nas.toml
set -u
hosts=${1:?a hostfile}
experiment=${2:?an experiment file}
key=${TRUNKLINE_BENCH_KEY:-$HOME/bench.key}

mpirun --hostfile "$hosts" --map-by ppr:1:node trunkline agent --listen 0.0.0.0 --key "$key" --once &
agents=$!
# Agents wait for an experiment without a limit. Whatever ends this script ends them.
trap 'kill "$agents" 2>/dev/null; wait "$agents"' EXIT
trap 'exit 143' INT TERM

trunkline bench --client "$(awk '/^[^#]/ { print $1 }' "$hosts" | paste -sd, -)" --client-key "$key" "$experiment"
