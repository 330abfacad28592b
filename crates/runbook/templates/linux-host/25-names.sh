#!/bin/bash
# Adds the names of the storage network to /etc/hosts: those of hosts.txt, and the ports of the arrays. The
# lines are between two marks; everything else stays. Leave this step out where DNS has the names.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

lines=files/hosts
begin="# BEGIN of the names of the runbook of {{ site }}"
end="# END of the names of the runbook of {{ site }}"

# /etc/hosts without the lines between the marks. One mark alone is somebody's accident.
others() {
    [ -e /etc/hosts ] || return 0
    awk -v begin="$begin" -v end="$end" '
        $0 == begin { if (ours) bad = 1; ours = 1; next }
        $0 == end { if (!ours) bad = 1; ours = 0; next }
        !ours
        END { exit bad || ours }' /etc/hosts || fail "/etc/hosts has one of the two marks without the other: mend it first"
}

# named NAME: the addresses that other lines of /etc/hosts give to a name.
named() {
    others | awk -v name="$1" '$1 !~ /^#/ { sub(/#.*/, ""); for (at = 2; at <= NF; at++) if ($at == name) print $1 }'
}

# write_hosts FILE: the file appears whole, with the mode and the owner that it had.
write_hosts() {
    if [ -e /etc/hosts ]; then
        cp -a /etc/hosts /etc/hosts.new
    else
        remember made /etc/hosts
        install -m 644 /dev/null /etc/hosts.new
    fi
    cat "$1" >/etc/hosts.new
    mv -f /etc/hosts.new /etc/hosts
}

case ${1-} in
    do)
        need_root
        whole=$(mktemp)
        others >"$whole"
        while read -r address name _; do
            for one in $(named "$name"); do
                [ "$one" = "$address" ] || { rm -f "$whole"; fail "/etc/hosts gives $name another address ($one)"; }
            done
        done < <(grep -v '^#' "$lines")
        {
            echo "$begin"
            grep -v '^#' "$lines"
            echo "$end"
        } >>"$whole"
        cmp -s "$whole" /etc/hosts || write_hosts "$whole"
        rm -f "$whole"
        ;;
    verify)
        while read -r address name _; do
            getent ahostsv4 "$name" | awk -v address="$address" '$1 == address { found = 1 } END { exit !found }' ||
                fail "$name is not $address here: getent hosts $name"
        done < <(grep -v '^#' "$lines")
        ;;
    undo)
        need_root
        whole=$(mktemp)
        others >"$whole"
        if [ -e /etc/hosts ]; then cmp -s "$whole" /etc/hosts || write_hosts "$whole"; fi
        rm -f "$whole"
        # A file that was not there goes again, unless somebody has written into it.
        if [ -n "$(recalled made)" ] && [ ! -s /etc/hosts ]; then rm -f /etc/hosts; fi
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
