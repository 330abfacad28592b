#!/bin/bash
# Turns native NVMe multipath on: the NVMe driver joins the paths to a volume. RHEL 8 has it off by
# default. Where the driver is in use already, it is on only after a RESTART of this machine, and this
# script says so.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

conf=/etc/modprobe.d/trunkline-nvme.conf
parameter=/sys/module/nvme_core/parameters/multipath

is_on() {
    [ "$(cat "$parameter" 2>/dev/null)" = Y ]
}

# A machine that starts from NVMe loads the driver from its initial file system, which has a copy of
# the driver's options.
make_initial_file_systems() {
    if command -v dracut >/dev/null; then
        dracut --force --regenerate-all
    elif command -v update-initramfs >/dev/null; then
        update-initramfs -u -k all
    fi
}

# Fails if something else decides.
is_free() {
    local others
    [ -e "$parameter" ] || fail "this kernel has no native NVMe multipath: $parameter is missing"
    ! grep -Eqw 'nvme_core\.multipath=[Nn0]' /proc/cmdline ||
        fail "the kernel's command line turns it off: remove nvme_core.multipath=N there, and restart"
    [ "$(modinfo -n nvme_core)" != '(builtin)' ] ||
        fail "the driver is built in: add nvme_core.multipath=Y to the kernel's command line, and restart"
    others=$(grep -lE '^options[[:space:]]+nvme[-_]core[[:space:]].*multipath=[Nn0]' /etc/modprobe.d/*.conf 2>/dev/null || :)
    [ -z "$others" ] || fail "$others turns it off: remove that line first"
}

case ${1-} in
    do)
        need_root
        load_modules nvme_core
        if is_on; then
            echo "native multipath is on"
            exit 0
        fi
        is_free
        place files/modprobe.conf "$conf" 644
        make_initial_file_systems
        # A driver that this step has loaded serves nobody yet.
        if has_loaded nvme_core && modprobe -r nvme_core 2>/dev/null; then modprobe nvme_core; fi
        is_on || echo "RESTART THIS MACHINE NOW, then run $0 verify: native multipath is off until then"
        ;;
    verify)
        is_on && exit 0
        [ ! -e "$conf" ] || fail "native multipath is off until this machine is restarted"
        fail "native multipath is off: run $0 do"
        ;;
    undo)
        need_root
        if [ -e "$state/placed$conf" ]; then
            take_back "$conf"
            make_initial_file_systems
            echo "native multipath stays on until this machine is restarted"
        fi
        unload_modules
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
