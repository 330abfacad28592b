#!/bin/sh
# Enables NFS over RDMA.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

# OneFS 9.8 has one switch for NFSv3 and NFSv4; before there was one for NFSv3. A guide prints a third.
option=$(knows nfs-rdma-enabled nfsv3-rdma-enabled enable-rdma -- isi nfs settings global modify)

case ${1-} in
    do)
        isi network interfaces list -v | grep -i SUPPORTS_RDMA_RROCE >/dev/null ||
            fail "no interface has the flag SUPPORTS_RDMA_RRoCE: isi network interfaces list -v"
        if ! isi nfs settings global view | grep -i 'RDMA Enabled: *Yes' >/dev/null; then
            isi nfs settings global modify "--$option" true
            note rdma
        fi
        ;;
    verify)
        isi nfs settings global view | grep -i 'RDMA Enabled: *Yes' >/dev/null || fail "RDMA is not enabled"
        ;;
    undo)
        # It stays on if it was on before.
        if noted rdma; then
            isi nfs settings global modify "--$option" false
            forget rdma
        fi
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
