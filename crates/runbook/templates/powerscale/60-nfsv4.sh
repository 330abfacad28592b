#!/bin/sh
# Enables NFSv4.1 beside NFSv3.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

case ${1-} in
    do)
        if ! isi nfs settings global view | grep 'NFSv4 Enabled: *Yes' >/dev/null; then
            isi nfs settings global modify --nfsv4-enabled true
            note nfsv4
        fi
        if ! isi nfs settings global view | grep 'v4.1 Enabled: *Yes' >/dev/null; then
            isi nfs settings global modify --nfsv41-enabled true
            note nfsv41
        fi
        ;;
    verify)
        isi nfs settings global view | grep 'NFSv4 Enabled: *Yes' >/dev/null || fail "NFSv4 is not enabled"
        isi nfs settings global view | grep 'v4.1 Enabled: *Yes' >/dev/null || fail "NFSv4.1 is not enabled"
        ;;
    undo)
        # What was on before stays on.
        for one in nfsv41 nfsv4; do
            noted "$one" || continue
            isi nfs settings global modify "--$one-enabled" false
            forget "$one"
        done
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
