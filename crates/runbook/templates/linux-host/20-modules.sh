#!/bin/bash
# Loads the host side of NVMe over Fabrics, now and at every start.
{%- if has_rdma %}
# With the OFED of the card's vendor, the modules must be those of that OFED: install it with NVMe-oF
# (mlnxofedinstall --add-kernel-support --with-nvmf) before this step.
{%- endif %}
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

modules=({{ modules }})

case ${1-} in
    do)
        need_root
        place files/modules.conf /etc/modules-load.d/trunkline-nvme.conf 644
        load_modules "${modules[@]}"
        ;;
    verify)
        is_placed files/modules.conf /etc/modules-load.d/trunkline-nvme.conf
        for module in "${modules[@]}"; do
            [ -d "/sys/module/${module//-/_}" ] || fail "$module is not loaded: modprobe $module"
        done
        ;;
    undo)
        need_root
        take_back /etc/modules-load.d/trunkline-nvme.conf
        unload_modules
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
