#!/bin/bash
# Waits until the array has formatted all volumes of this runbook. Map nothing before.
#
# The volumes must be there, and two answers some seconds apart must name none of them: an array that
# has just made a volume may not have begun to format it.
#
# WAIT_S bounds the wait (default: 6 hours); CONFIRM_S is between the two answers (default: 15 seconds).
set -euo pipefail
cd "$(dirname "$0")"

volumes=({% for (lun, volume) in volumes %}{% if !loop.first %} {% endif %}{{ volume.name }}{% endfor %})
deadline=$((SECONDS + ${WAIT_S:-21600}))
query=$(mktemp --suffix=.smcli)
trap 'rm -f "$query"' EXIT

# What the array answers to a command.
ask() {
    local answer
    echo "$1" >"$query"
    answer=$(./run.sh "$query") || { echo "$answer" >&2; exit 1; }
    # Without this line the array has not answered, and an empty list would say nothing.
    grep -q 'completed successfully' <<<"$answer" || { echo "$answer" >&2; exit 1; }
    echo "$answer"
}

# Whether an answer names a volume, and not only one whose name is longer.
has() {
    grep -qE -- "(^|[^A-Za-z0-9_-])$2([^A-Za-z0-9_-]|\$)" <<<"$1"
}

there=$(ask 'show allVolumes summary;')
missing=()
for volume in "${volumes[@]}"; do
    has "$there" "$volume" || missing+=("$volume")
done
[ ! ${missing[0]+set} ] || { echo "the array has no volume ${missing[*]}: create them first" >&2; exit 1; }

idle=0
while [ $idle -lt 2 ]; do
    running=$(ask 'show storageArray longRunningOperations;')
    waiting=()
    for volume in "${volumes[@]}"; do
        if has "$running" "$volume"; then waiting+=("$volume"); fi
    done
    if [ ${waiting[0]+set} ]; then
        idle=0
        [ $SECONDS -lt $deadline ] || { echo "still being formatted: ${waiting[*]}" >&2; exit 1; }
        echo "being formatted: ${waiting[*]}"
        sleep 30
    else
        idle=$((idle + 1))
        [ $idle -ge 2 ] || sleep "${CONFIRM_S:-15}"
    fi
done
echo "all volumes are formatted"
