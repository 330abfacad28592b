#!/bin/bash
# Runs the baseline on a route, on the processors beside the network card: ROUTE=rdma-mp (default),
# tcp, tcp-mp or rdma. Results go to baseline-ROUTE.json.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

name=${HOST_NAME:-$(hostname -s)}
read -r _ interface _ < <(awk -v name="$name" '$1 == name' hosts.list) || fail "hosts.list has no $name"
route=${ROUTE:-rdma-mp}
point=/mnt/{{ nas.name }}/$route
result=baseline-$route.json

# A machine with one NUMA node says -1 or has no such file. A VLAN is on the card of the interface below it.
node=$(cat "/sys/class/net/$interface"{,/lower_*}/device/numa_node 2>/dev/null | tail -n 1 || :)
pin=()
if [ "${node:--1}" -ge 0 ]; then pin=(numactl --cpunodebind="$node" --membind="$node"); fi

case ${1-} in
    do)
        mountpoint -q "$point" || fail "$point is not mounted"
        DIRECTORY=$point "${pin[@]}" runuser -u {{ nas.user }} --preserve-environment -- \
            fio --output-format=json+ baseline.fio >"$result"
        ;;
    verify)
        grep -q '"jobname"' "$result" || fail "$result has no results"
        trunkline report "$result" >/dev/null && echo "$result can be compared: trunkline report"
        ;;
    undo)
        rm -f "$result" "$point"/baseline.*
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
