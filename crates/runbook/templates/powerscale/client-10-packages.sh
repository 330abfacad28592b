#!/bin/bash
# Installs the tools of NFS and RDMA, and fio for the baseline.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

if command -v apt-get >/dev/null; then
    packages=(nfs-common rdma-core ibverbs-utils ethtool pciutils numactl fio kmod)
else
    packages=(nfs-utils rdma-core libibverbs-utils ethtool pciutils numactl fio kmod)
fi

case ${1-} in
    do)
        need_root
        install_packages "${packages[@]}"
        ;;
    verify)
        ibv_devinfo | grep PORT_ACTIVE >/dev/null || fail "no RDMA port is active: ibv_devinfo; rdma link"
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
