#!/bin/sh
# Enables NFSv4.1 beside NFSv3.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

case ${1-} in
    do)
        isi nfs settings global modify --nfsv4-enabled true --nfsv41-enabled true
        ;;
    verify)
        isi nfs settings global view | grep 'NFSv4 Enabled: *Yes' >/dev/null || fail "NFSv4 is not enabled"
        isi nfs settings global view | grep 'v4.1 Enabled: *Yes' >/dev/null || fail "NFSv4.1 is not enabled"
        ;;
    undo)
        isi nfs settings global modify --nfsv41-enabled false --nfsv4-enabled false
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
