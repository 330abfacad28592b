#!/bin/bash
# Gives free space back to the arrays. It is much work for them: run it when there is little else.
# RECLAIM_THRESHOLD is the least share of a segment that is worth it, in percent.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

PATH=$PATH:/usr/lpp/mmfs/bin

case ${1-} in
    do)
        need_root
        mmreclaimspace {{ scale.file_system }} --reclaim-threshold "${RECLAIM_THRESHOLD:-0}"
        ;;
    verify)
        grep -q 'thinDiskType=nvme' {{ scale.file_system }}.stanza || fail "the NSDs were not made for space reclaim"
        ;;
    undo)
        echo "nothing to undo: space that is given back was free"
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
