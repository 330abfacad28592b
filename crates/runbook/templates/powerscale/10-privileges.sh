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
        if isi auth roles view TrunklineIdMapping >/dev/null 2>&1; then
            noted mapping || fail "there is a role TrunklineIdMapping already, which this step has not made: rename it"
        else
            isi auth roles create TrunklineIdMapping --description "Maps identities by hand"
            note mapping
        fi
        isi auth roles view TrunklineIdMapping | grep -w ISI_PRIV_AUTH >/dev/null ||
            isi auth roles modify TrunklineIdMapping --add-priv ISI_PRIV_AUTH
        isi auth roles view TrunklineIdMapping | grep -w '{{ nas.administrator }}' >/dev/null ||
            isi auth roles modify TrunklineIdMapping --add-user {{ nas.administrator }}
        ;;
    verify)
        isi auth roles view SystemAdmin | grep -w '{{ nas.administrator }}' >/dev/null || fail "{{ nas.administrator }} is not in SystemAdmin"
        isi auth roles view TrunklineIdMapping | grep -w ISI_PRIV_AUTH >/dev/null || fail "TrunklineIdMapping lacks ISI_PRIV_AUTH"
        isi auth roles view TrunklineIdMapping | grep -w '{{ nas.administrator }}' >/dev/null || fail "{{ nas.administrator }} is not in TrunklineIdMapping"
        ;;
    undo)
        if noted mapping; then
            isi auth roles delete TrunklineIdMapping --force
            forget mapping
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
