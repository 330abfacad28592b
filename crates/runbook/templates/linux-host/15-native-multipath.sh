#!/bin/bash
# Turns native NVMe multipath on: the NVMe driver joins the paths to a volume. RHEL 8 has it off by
# default. Where the driver is in use already, it is on only after a RESTART of this machine, and this
# script says so.
#
# REPLACE_MULTIPATH=yes goes on where DM-Multipath joins paths of NVMe devices now.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

conf=/etc/modprobe.d/trunkline-nvme.conf
parameter=/sys/module/nvme_core/parameters/multipath

is_on() {
    [ "$(cat "$parameter" 2>/dev/null)" = Y ]
}

# The kernels that may start next: the running one and the default one. The others, and what is kept
# for rescue, stay as they are, so that there is always one that starts.
kernels() {
    local default=''
    if command -v grubby >/dev/null; then
        default=$(grubby --default-kernel 2>/dev/null || :)
    elif [ -e /boot/vmlinuz ]; then
        default=$(readlink -f /boot/vmlinuz)
    elif [ -e /vmlinuz ]; then
        default=$(readlink -f /vmlinuz)
    fi
    {
        uname -r
        case $default in */vmlinuz-*) echo "${default##*/vmlinuz-}" ;; esac
    } | sort -u
}

# make_initial_file_systems KERNEL...: a machine that starts from NVMe loads the driver from its initial
# file system, which has a copy of the driver's options.
make_initial_file_systems() {
    local kernel
    for kernel in "$@"; do
        # It may be uninstalled by now.
        [ -d "/lib/modules/$kernel" ] || continue
        if command -v dracut >/dev/null; then
            dracut --force --kver "$kernel"
        elif command -v update-initramfs >/dev/null && [ -e "/boot/initrd.img-$kernel" ]; then
            update-initramfs -u -k "$kernel"
        fi
    done
}

# Fails if DM-Multipath joins paths of NVMe devices: after the change they have other names, and what is
# mounted, or planned to be, by the present ones is not found.
is_unused() {
    local device slave
    [ "${REPLACE_MULTIPATH-}" != yes ] || return 0
    for device in /sys/block/dm-*; do
        case $(cat "$device/dm/uuid" 2>/dev/null) in
            mpath-*) ;;
            *) continue ;;
        esac
        for slave in "$device"/slaves/nvme*; do
            [ ! -e "$slave" ] ||
                fail "DM-Multipath joins paths of ${slave##*/} in $(cat "$device/dm/name"): unmount and flush it first (multipath -f); REPLACE_MULTIPATH=yes goes on all the same"
        done
    done
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
        is_unused
        place files/modprobe.conf "$conf" 644
        for kernel in $(kernels); do remember kernels "$kernel"; done
        # Word splitting is wanted: a list of kernels.
        # shellcheck disable=SC2046
        make_initial_file_systems $(kernels)
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
            # One that was installed since has the option too, and is the running or the default one.
            # shellcheck disable=SC2046
            make_initial_file_systems $({ recalled kernels; kernels; } | sort -u)
            echo "native multipath stays on until this machine is restarted"
        fi
        unload_modules
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
