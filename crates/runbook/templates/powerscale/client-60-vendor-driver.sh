#!/bin/bash
# Builds and installs the vendor's multipath driver from its source, on RHEL and its rebuilds. Needed
# for DRIVER=vendor only; vendor-driver.md says what it takes. DRIVER_ZIP names the archive.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

case ${1-} in
    do)
        need_root
        [ -e "${DRIVER_ZIP-}" ] || fail "set DRIVER_ZIP to the archive with the driver's source"
        kernel=$(uname -r)
        install_packages unzip rpm-build gcc make git "kernel-devel-$kernel"
        [ -e "/lib/modules/$kernel/build/Makefile" ] || fail "/lib/modules/$kernel/build has no source of the kernel"
        source=$(mktemp -d)
        trap 'rm -rf "$source"' EXIT
        unzip -q "$DRIVER_ZIP" -d "$source"
        (cd "$source"/*/ && ./build.sh bin)
        dnf install -y "$source"/*/dist/dellnfs-*.rpm
        remember driver dellnfs
        # The new modules must be in the initial file system too.
        dracut -f
        echo "restart this machine now"
        ;;
    verify)
        dellnfs-ctl status
        modinfo -n rpcrdma | grep dellnfs >/dev/null || fail "the kernel's own rpcrdma would be loaded"
        ;;
    undo)
        need_root
        for one in $(recalled driver); do dnf remove -y "$one"; done
        dracut -f
        remove_packages
        echo "restart this machine now"
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
