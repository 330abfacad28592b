#!/bin/sh
# Gives {{ nas.administrator }} the privileges that the next steps need. Run it as the cluster's first
# administrator.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

case ${1-} in
    do)
        if ! isi auth roles view SystemAdmin | grep -w '{{ nas.administrator }}' >/dev/null; then
            isi auth roles modify SystemAdmin --add-user {{ nas.administrator }}
            note administrator
        fi
        # Identities are mapped by hand with this privilege only.
        isi auth roles view TrunklineIdMapping >/dev/null 2>&1 ||
            isi auth roles create TrunklineIdMapping --description "Maps identities by hand"
        isi auth roles modify TrunklineIdMapping --add-priv ISI_PRIV_AUTH
        isi auth roles modify TrunklineIdMapping --add-user {{ nas.administrator }}
        ;;
    verify)
        isi auth roles view SystemAdmin | grep '{{ nas.administrator }}' >/dev/null || fail "{{ nas.administrator }} is not in SystemAdmin"
        isi auth roles view TrunklineIdMapping | grep ISI_PRIV_AUTH >/dev/null || fail "TrunklineIdMapping lacks ISI_PRIV_AUTH"
        ;;
    undo)
        if isi auth roles view TrunklineIdMapping >/dev/null 2>&1; then
            isi auth roles delete TrunklineIdMapping --force
        fi
        # Who was an administrator before stays one.
        if noted administrator; then
            isi auth roles modify SystemAdmin --remove-user {{ nas.administrator }}
            forget administrator
        fi
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
