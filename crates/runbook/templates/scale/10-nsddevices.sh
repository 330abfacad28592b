#!/bin/bash
# Lets Spectrum Scale find the volumes on this node. Spectrum Scale is installed before.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

case ${1-} in
    do)
        need_root
        [ -d /var/mmfs ] || fail "install Spectrum Scale first"
        place files/nsddevices /var/mmfs/etc/nsddevices 755
        ;;
    verify)
        is_placed files/nsddevices /var/mmfs/etc/nsddevices
        found=$(ksh /var/mmfs/etc/nsddevices | wc -l)
        [ "$found" -ge {{ volumes }} ] || fail "$found volumes are found, and {{ volumes }} are planned: trunkline-nvme status"
        ;;
    undo)
        need_root
        take_back /var/mmfs/etc/nsddevices
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
