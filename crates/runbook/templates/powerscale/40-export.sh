#!/bin/sh
# Makes the directory, and exports it to the clients of the site.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

clients={{ clients }}

# The number of the export, which OneFS chose.
number() {
    isi nfs exports list --zone {{ nas.zone }} --format csv --no-header --no-footer |
        grep '{{ nas.export }}' | cut -d, -f1
}

case ${1-} in
    do)
        mkdir -p {{ nas.export }}
        chown {{ nas.uid }} {{ nas.export }}
        chmod 755 {{ nas.export }}
        [ -n "$(number)" ] || isi nfs exports create {{ nas.export }} \
            --description "Runbook of {{ nas.name }}" \
            --clients "$clients" \
            --read-write-clients "$clients" \
            --root-clients "$clients" \
            --all-dirs yes \
            --zone {{ nas.zone }}
        ;;
    verify)
        [ -n "$(number)" ] || fail "{{ nas.export }} is not exported"
        isi nfs exports view "$(number)" --zone {{ nas.zone }}
        isi nfs exports check
        ;;
    undo)
        # The directory stays: it may have data.
        for one in $(number); do isi nfs exports delete "$one" --zone {{ nas.zone }} --force; done
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
