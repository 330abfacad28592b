#!/bin/bash
# Connects this host to its targets now, and at every start.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

case ${1-} in
    do)
        need_root
        place_service trunkline-nvme connect
        ;;
    verify)
        /usr/local/sbin/trunkline-nvme verify
        ;;
    undo)
        need_root
        # First the paths, then what would connect them again.
        if [ -x /usr/local/sbin/trunkline-nvme ]; then /usr/local/sbin/trunkline-nvme disconnect; fi
        if has_systemd; then systemctl disable --now trunkline-nvme.service; fi
        take_back_service trunkline-nvme
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
