#!/bin/bash
# Makes the mount points, and adds the lines of a driver to /etc/fstab: DRIVER=trunkline (no kernel
# module), kernel (one address for each mount) or vendor (with the multipath driver). A mount is made
# on demand: mount /mnt/{{ nas.name }}/rdma-mp
#
# HOST_NAME chooses the lines of a host with localports; it is the short host name unless it is set.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

driver=${DRIVER:-trunkline}
lines=files/fstab.$driver
[ -e "$lines" ] || fail "DRIVER is trunkline, kernel or vendor"
name=${HOST_NAME:-$(hostname -s)}
[ ! -e "files/by-name/$name/fstab.$driver" ] || lines=files/by-name/$name/fstab.$driver

begin="# BEGIN of the lines of the runbook of {{ nas.name }}"
end="# END of the lines of the runbook of {{ nas.name }}"

# The mount points of the lines.
points() {
    awk '$1 !~ /^#/ { print $2 }' "$lines"
}

# The mount points of the lines that a step has put into /etc/fstab, by whichever DRIVER.
placed_points() {
    awk -v begin="$begin" -v end="$end" '$0 == end { ours = 0 } ours && $1 !~ /^#/ { print $2 } $0 == begin { ours = 1 }' /etc/fstab
}

# /etc/fstab without the lines that a step has put there.
others() {
    awk -v begin="$begin" -v end="$end" '$0 == begin { ours = 1 } !ours; $0 == end { ours = 0 }' /etc/fstab
}

case ${1-} in
    do)
        need_root
        awk -v name="$name" '$1 == name { found = 1 } END { exit !found }' hosts.list ||
            fail "hosts.list has no $name: set HOST_NAME to one of $(awk '{ print $1 }' hosts.list | xargs)"
        if [ "$driver" = trunkline ]; then
            command -v mount.trunkline >/dev/null || fail "install trunkline first: mount.trunkline is its mount helper"
        fi
        while read -r point; do
            [ -d "$point" ] || { mkdir "$point"; remember points "$point"; }
        done < <(echo /mnt/{{ nas.name }}; points)
        while read -r point; do
            [ -z "$(others | awk -v point="$point" '$2 == point')" ] || fail "/etc/fstab has a line for $point already"
        done < <(points)
        whole=$(mktemp)
        {
            others
            echo "$begin"
            cat "$lines"
            echo "$end"
        } >"$whole"
        place "$whole" /etc/fstab 644
        rm -f "$whole"
        if has_systemd; then systemctl daemon-reload; fi
        ;;
    verify)
        # An account of the cluster writes on every route.
        while read -r point; do
            mountpoint -q "$point" || mount "$point"
            runuser -u {{ nas.user }} -- sh -c "echo works >$point/runbook-$$ && rm $point/runbook-$$" ||
                fail "{{ nas.user }} cannot write below $point: compare the UIDs"
            echo "$point works"
        done < <(points)
        ;;
    undo)
        need_root
        while read -r point; do
            if mountpoint -q "$point"; then umount "$point"; fi
        done < <(placed_points)
        # Lines that others have added since stay.
        if [ -e "$state/placed/etc/fstab" ]; then
            whole=$(mktemp)
            others >"$whole"
            install -m 644 "$whole" /etc/fstab.new
            mv -f /etc/fstab.new /etc/fstab
            rm -f "$whole" "$state/placed/etc/fstab" "$state/kept/etc/fstab"
        fi
        for point in $(recalled points); do rmdir "$point" 2>/dev/null || :; done
        if has_systemd; then systemctl daemon-reload; fi
        tidy_up
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
