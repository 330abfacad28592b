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
        if id "$user" >/dev/null 2>&1; then
            [ "$(id -u "$user")" = "$uid" ] ||
                fail "$user has UID $(id -u "$user") here, and $uid on the cluster, which would refuse its writes. \
If nothing here needs the old number: usermod --uid $uid $user, and chown the files that it has outside of its home. \
Else name another user and its uid in the site file"
        else
            useradd --uid "$uid" --create-home "$user"
            remember users "$user"
        fi
        ;;
    verify)
        [ "$(id -u "$user")" = "$uid" ] || fail "$user has UID $(id -u "$user") here, and $uid on the cluster"
        ;;
    undo)
        need_root
        for one in $(recalled users); do
            home=$(getent passwd "$one" | cut -d : -f 6)
            # The home directory goes as useradd has made it. One that has been used may have data.
            if diff -r /etc/skel "$home" >/dev/null 2>&1; then
                userdel --remove "$one"
            else
                userdel "$one"
                [ ! -e "$home" ] || echo "$home stays: it has been used" >&2
            fi
        done
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
