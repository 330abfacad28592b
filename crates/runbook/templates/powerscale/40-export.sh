#!/bin/sh
# Makes the directory, and exports it to the clients of the site.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

clients={{ clients }}

# The number of the export of exactly this directory, which OneFS chose.
number() {
    isi nfs exports list --zone {{ nas.zone }} --format csv --no-header --no-footer |
        awk -F, -v path='{{ nas.export }}' '{ for (field = 2; field <= NF; field++) if ($field == path) { print $1; next } }'
}

# missing DIRECTORY: the directory and those above it that are not there, the lowest first.
missing() {
    directory=$1
    while [ ! -d "$directory" ]; do
        echo "$directory"
        directory=$(dirname "$directory")
    done
}

case ${1-} in
    do)
        # The owner and the mode of a directory that is there already are somebody's choice.
        if [ ! -d {{ nas.export }} ]; then
            if ! noted directories; then note directories "$(missing {{ nas.export }})"; fi
            mkdir -p {{ nas.export }}
            chown {{ nas.uid }} {{ nas.export }}
            chmod 755 {{ nas.export }}
        fi
        if [ -z "$(number)" ]; then
            isi nfs exports create {{ nas.export }} \
                --description "Runbook of {{ nas.name }}" \
                --clients "$clients" \
                --read-write-clients "$clients" \
                --root-clients "$clients" \
                --all-dirs yes \
                --zone {{ nas.zone }}
            note export
        elif ! noted export; then
            fail "{{ nas.export }} is exported already: isi nfs exports list"
        fi
        ;;
    verify)
        [ -n "$(number)" ] || fail "{{ nas.export }} is not exported"
        view=$(isi nfs exports view "$(number)" --zone {{ nas.zone }})
        echo "$view"
        for kind in "" "Read Write " "Root "; do
            has=$(echo "$view" | field "${kind}Clients")
            ! differs "$has" "$clients" || fail "${kind}Clients of {{ nas.export }} are $has, and $clients are planned"
        done
        isi nfs exports check
        ;;
    undo)
        # An export that was there before stays.
        if noted export; then
            for one in $(number); do isi nfs exports delete "$one" --zone {{ nas.zone }} --force; done
            forget export
        fi
        # A directory that has data stays, and so does one that was there before.
        if noted directories; then
            for one in $(before directories); do
                [ ! -d "$one" ] || rmdir "$one" 2>/dev/null || { echo "$one stays: it has been used" >&2; break; }
            done
            forget directories
        fi
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
