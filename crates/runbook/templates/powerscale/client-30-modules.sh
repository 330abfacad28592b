#!/bin/bash
# Loads the kernel's side of NFS over RDMA, now and at every start.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

modules=(rpcrdma rdma_ucm)

case ${1-} in
    do)
        need_root
        place files/modules.conf /etc/modules-load.d/trunkline-nfs-rdma.conf 644
        load_modules "${modules[@]}"
        ;;
    verify)
        is_placed files/modules.conf /etc/modules-load.d/trunkline-nfs-rdma.conf
        for module in "${modules[@]}"; do
            [ -d "/sys/module/$module" ] || fail "$module is not loaded: modprobe $module"
        done
        ;;
    undo)
        need_root
        take_back /etc/modules-load.d/trunkline-nfs-rdma.conf
        unload_modules
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
