#!/bin/bash
# Sets up the kernel's NVMe-oF target, now and at every start.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

case ${1-} in
    do)
        need_root
        # The program of an earlier plan knows what to remove.
        before=$(sed -n 's/^nqn=//p' /usr/local/sbin/trunkline-nvmet 2>/dev/null || :)
        [ -z "$before" ] || [ "$before" = {{ nqn }} ] ||
            fail "an earlier plan made the target $before: disconnect its hosts, run $0 undo, then this again"
        # A plan that is refused is not put in place: the next start would follow it.
        files/trunkline-nvmet check
        place files/nvmet-modules.conf /etc/modules-load.d/trunkline-nvmet.conf 644
        load_modules {{ modules }}
        place_service trunkline-nvmet configure
        ;;
    verify)
        is_placed files/trunkline-nvmet /usr/local/sbin/trunkline-nvmet
        is_placed files/trunkline-nvmet.service /etc/systemd/system/trunkline-nvmet.service
        /usr/local/sbin/trunkline-nvmet verify
        ;;
    undo)
        need_root
        if has_systemd; then systemctl disable --now trunkline-nvmet.service; fi
        if [ -x /usr/local/sbin/trunkline-nvmet ]; then /usr/local/sbin/trunkline-nvmet remove; fi
        take_back_service trunkline-nvmet
        take_back /etc/modules-load.d/trunkline-nvmet.conf
        unload_modules
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
