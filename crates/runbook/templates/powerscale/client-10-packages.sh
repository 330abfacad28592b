#!/bin/bash
# Installs the tools of NFS and RDMA, and fio for the baseline.
#
# TRANSPORT=tcp leaves RDMA out, for a client that mounts the routes tcp and tcp-mp only.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

if command -v apt-get >/dev/null; then
    packages=(nfs-common ethtool pciutils numactl fio kmod)
    rdma=(rdma-core ibverbs-utils)
else
    packages=(nfs-utils ethtool pciutils numactl fio kmod)
    rdma=(rdma-core libibverbs-utils)
fi
case ${TRANSPORT-rdma} in
    rdma) packages+=("${rdma[@]}") ;;
    tcp) ;;
    *) fail "TRANSPORT is rdma or tcp" ;;
esac

case ${1-} in
    do)
        need_root
        install_packages "${packages[@]}"
        ;;
    verify)
        if [ "${TRANSPORT-rdma}" = rdma ]; then
            ibv_devinfo | grep PORT_ACTIVE >/dev/null ||
                fail "no RDMA port is active: ibv_devinfo; rdma link    # a client without RDMA: TRANSPORT=tcp $0 verify"
        fi
        fio --version
        ;;
    undo)
        need_root
        remove_packages
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
