#!/bin/bash
# Creates NSDs on the volumes, named as the volumes are.
#
# ATTENTION: only this cluster may reach the volumes. A second cluster that uses them as directly
# attached disks would destroy them.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

PATH=$PATH:/usr/lpp/mmfs/bin
stanza={{ scale.file_system }}.stanza

case ${1-} in
    do)
        need_root
        ./nsd-stanza.sh >"$stanza.new"
        mv -f "$stanza.new" "$stanza"
        # -v yes refuses a volume that carries an NSD already, of another cluster too.
        mmcrnsd -F "$stanza" -v yes
        ;;
    verify)
        mmlsnsd -m
        for nsd in {{ volumes }}; do
            mmlsnsd -d "$nsd" | grep 'directly attached' >/dev/null || fail "$nsd is not directly attached"
        done
        ;;
    undo)
        need_root
        mmdelnsd "{{ nsds }}"
        rm -f "$stanza"
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
