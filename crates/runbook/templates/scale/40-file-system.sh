#!/bin/bash
# Creates the file system {{ scale.file_system }} and mounts it on every node. Every node, and every manager, has
# connected to the volumes before.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

PATH=$PATH:/usr/lpp/mmfs/bin

case ${1-} in
    do)
        need_root
        mmcrfs {{ scale.file_system }} -F {{ scale.file_system }}.stanza -T {{ scale.mount_point }} -B {{ block }} \
            -E no -S relatime -K whenpossible -m 1 -M 2 -r 1 -R 2 -n {{ scale.nodes }} -A no
{%- if let Some(inodes) = scale.inodes %} \
            --inode-limit {{ inodes[0] }}:{{ inodes[1] }}
{%- endif %}
        mmmount {{ scale.file_system }} -a
        ;;
    verify)
        mmlsfs {{ scale.file_system }}
        mmlsmount {{ scale.file_system }} -L
        mountpoint -q {{ scale.mount_point }} || fail "{{ scale.file_system }} is not mounted at {{ scale.mount_point }}"
        df {{ scale.mount_point }}
        ;;
    undo)
        need_root
        mmumount {{ scale.file_system }} -a
        mmlsmount {{ scale.file_system }} -L
        [ "${DELETE_DATA-}" = yes ] || fail "it is unmounted; DELETE_DATA=yes deletes the file system with all its data"
        mmdelfs {{ scale.file_system }}
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
