#!/bin/bash
# Connects this host to its targets and applies the settings, now and at every start.
#
# HOST_NAME chooses the host's folder below by-name; it is the short host name unless it is set.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

# udev reads its rules again, where it runs.
read_rules() {
    if command -v udevadm >/dev/null; then udevadm control --reload 2>/dev/null || :; fi
}

case ${1-} in
    do)
        need_root
        # The rules run the program, which is there first.
        place files/trunkline-nvme /usr/local/sbin/trunkline-nvme 755
        place files/71-trunkline-nvme.rules /etc/udev/rules.d/71-trunkline-nvme.rules 644
        read_rules
        place_service trunkline-nvme "connect --now"
        ;;
    verify)
        # The paths are compared with this file, so it must be the plan's.
        own=by-name/${HOST_NAME:-$(hostname -s)}
        [ -d "$own" ] || fail "there is no $own: set HOST_NAME to one of $(ls by-name)"
        is_placed "$own/discovery.conf" /etc/nvme/discovery.conf
        is_placed files/trunkline-nvme /usr/local/sbin/trunkline-nvme
        is_placed files/trunkline-nvme.service /etc/systemd/system/trunkline-nvme.service
        is_placed files/71-trunkline-nvme.rules /etc/udev/rules.d/71-trunkline-nvme.rules
        /usr/local/sbin/trunkline-nvme verify
        ;;
    undo)
        need_root
        # First the paths, then what would connect them again.
        if [ -x /usr/local/sbin/trunkline-nvme ]; then /usr/local/sbin/trunkline-nvme disconnect; fi
        if has_systemd; then systemctl disable --now trunkline-nvme.service; fi
        take_back /etc/udev/rules.d/71-trunkline-nvme.rules
        read_rules
        take_back_service trunkline-nvme
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
