#!/bin/bash
# Makes an account with the UID that {{ nas.user }} has on the cluster: over AUTH_SYS the cluster goes by
# the number, and refuses writes of any other. `isi auth users view {{ nas.user }} --zone={{ nas.zone }}` shows it.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

user={{ nas.user }}
uid={{ nas.uid }}

case ${1-} in
    do)
        need_root
        if ! id "$user" >/dev/null 2>&1; then
            useradd --uid "$uid" --create-home "$user"
            remember users "$user"
        fi
        ;;
    verify)
        [ "$(id -u "$user")" = "$uid" ] || fail "$user has UID $(id -u "$user") here, and $uid on the cluster"
        ;;
    undo)
        need_root
        for one in $(recalled users); do userdel "$one"; done
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
