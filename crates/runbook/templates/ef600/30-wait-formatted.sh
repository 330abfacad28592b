#!/bin/bash
# Waits until the array has formatted all volumes of this runbook. Map nothing before.
#
# WAIT_S bounds the wait (default: 6 hours).
set -euo pipefail
cd "$(dirname "$0")"

volumes=({% for (lun, volume) in volumes %}{% if !loop.first %} {% endif %}{{ volume.name }}{% endfor %})
deadline=$((SECONDS + ${WAIT_S:-21600}))
query=$(mktemp --suffix=.smcli)
trap 'rm -f "$query"' EXIT
echo 'show storageArray longRunningOperations;' >"$query"

while :; do
    running=$(./run.sh "$query")
    # Without this line the array has not answered, and an empty list would say nothing.
    grep -q 'completed successfully' <<<"$running" || { echo "$running" >&2; exit 1; }
    waiting=()
    for volume in "${volumes[@]}"; do
        if grep -qw -- "$volume" <<<"$running"; then waiting+=("$volume"); fi
    done
    [ ${waiting[0]+set} ] || break
    [ $SECONDS -lt $deadline ] || { echo "still being formatted: ${waiting[*]}" >&2; exit 1; }
    echo "being formatted: ${waiting[*]}"
    sleep 30
done
echo "all volumes are formatted"
