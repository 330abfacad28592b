#!/bin/bash
# Gives this host its persistent NVMe name (NQN) and the addresses of its targets.
#
# HOST_NAME chooses the host's folder below by-name; it is the short host name unless it is set.
# REPLACE_IDENTITY=yes replaces a name or targets that the host uses for other storage.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

own=by-name/${HOST_NAME:-$(hostname -s)}
[ -d "$own" ] || fail "there is no $own: set HOST_NAME to one of $(ls by-name)"

# Fails if the host has targets or a name of its own, which other storage may know it by.
is_free() {
    [ "${REPLACE_IDENTITY-}" = yes ] && return
    local transport lines
    if [ ! -e "$state/placed/etc/nvme/discovery.conf" ]; then
        lines=$(grep -v '^[[:space:]]*\(#\|$\)' /etc/nvme/discovery.conf 2>/dev/null || :)
        [ -z "$lines" ] || fail "/etc/nvme/discovery.conf has other targets; REPLACE_IDENTITY=yes replaces them"
    fi
    if [ ! -e "$state/placed/etc/nvme/hostnqn" ]; then
        for transport in /sys/class/nvme/nvme*/transport; do
            [ "$(cat "$transport" 2>/dev/null || echo pcie)" = pcie ] ||
                fail "this host is connected to other targets by its present name; REPLACE_IDENTITY=yes changes it"
        done
    fi
}

case ${1-} in
    do)
        need_root
        is_free
        place "$own/hostnqn" /etc/nvme/hostnqn 644
        place "$own/discovery.conf" /etc/nvme/discovery.conf 644
        # Kernels refuse a host ID that another NQN uses, so it must differ between clones of one
        # image: remove /etc/nvme/hostid from the image.
        if [ ! -s /etc/nvme/hostid ]; then
            fresh=$(mktemp)
            cat /proc/sys/kernel/random/uuid >"$fresh"
            place "$fresh" /etc/nvme/hostid 644
            rm -f "$fresh"
        fi
        ;;
    verify)
        is_placed "$own/hostnqn" /etc/nvme/hostnqn
        is_placed "$own/discovery.conf" /etc/nvme/discovery.conf
        [ -s /etc/nvme/hostid ] || fail "/etc/nvme/hostid is empty"
        ;;
    undo)
        need_root
        take_back /etc/nvme/hostid
        take_back /etc/nvme/discovery.conf
        take_back /etc/nvme/hostnqn
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
