#!/bin/bash
# Connects this host to its targets now, and at every start.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

case ${1-} in
    do)
        need_root
        place files/trunkline-nvme /usr/local/sbin/trunkline-nvme 755
        place files/trunkline-nvme.service /etc/systemd/system/trunkline-nvme.service 644
        if has_systemd; then
            systemctl daemon-reload
            systemctl enable trunkline-nvme.service
            systemctl start trunkline-nvme.service
        else
            /usr/local/sbin/trunkline-nvme connect
        fi
        ;;
    verify)
        /usr/local/sbin/trunkline-nvme verify
        ;;
    undo)
        need_root
        # First the paths, then what would connect them again.
        if [ -x /usr/local/sbin/trunkline-nvme ]; then /usr/local/sbin/trunkline-nvme disconnect; fi
        if has_systemd; then systemctl disable --now trunkline-nvme.service; fi
        take_back /etc/systemd/system/trunkline-nvme.service
        take_back /usr/local/sbin/trunkline-nvme
        if has_systemd; then systemctl daemon-reload; fi
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
