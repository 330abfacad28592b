#!/bin/bash
# Prints an NSD stanza for each volume of the site, from what `nvme netapp smdevices` and
# `multipath -ll` print, with DM-Multipath (RHEL 7) or native multipath (RHEL 8 and later).
#
#   nsd-stanza.sh [--smdevices FILE] [--multipath FILE]     read captured output instead
#
# A volume is told by its ID, which both commands print: device names differ between nodes, and
# nvme0n1 is also the beginning of nvme0n10.
set -euo pipefail

# Each volume: name and failure group.
volumes() {
    cat <<'LIST'
{%- for (volume, group) in volumes %}
{{ volume }} {{ group }}
{%- endfor %}
LIST
}

# Whether free space is to be given back to the array.
reclaim={% if scale.has_reclaim %}yes{% else %}no{% endif %}
smdevices='' multipath=''
while [ $# -gt 0 ]; do
    case $1 in
        --smdevices) smdevices=$2 ;;
        --multipath) multipath=$2 ;;
        *)
            echo "usage: $0 [--smdevices FILE] [--multipath FILE]" >&2
            exit 2
            ;;
    esac
    shift 2
done

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# Each volume of any array: ID and name.
ids() {
    if [ -n "$smdevices" ]; then cat "$smdevices"; else nvme netapp smdevices; fi |
        tr '\n' ' ' | sed 's|/dev/|\n/dev/|g' |
        sed -n 's/.*Volume Name \([^,]*\),.*Volume ID \([0-9a-fA-F]*\),.*/\2 \1/p' | sort -u
}

# Each multipath device: ID and device.
devices() {
    if [ -n "$multipath" ]; then cat "$multipath"; else multipath -ll; fi | awk '
        /NetApp E-Series/ && match($0, /eui\.[0-9a-fA-F]+/) {
            id = substr($0, RSTART + 4, RLENGTH - 4)
            if (match($0, /\[nvme\]: *nvme[0-9]+n[0-9]+/)) {
                device = substr($0, RSTART, RLENGTH)
                sub(/.*: */, "", device)
            } else if (match($0, / dm-[0-9]+/)) {
                device = substr($0, RSTART + 1, RLENGTH - 1)
            } else next
            print id, device
        }'
}

all_ids=$(ids)
all_devices=$(devices)
[ -n "$all_ids" ] || fail "nvme netapp smdevices shows no volume: connect first"
[ -n "$all_devices" ] || fail "multipath -ll shows no volume: see 40-multipath.sh of the hosts"

while read -r name group; do
    [ -n "$name" ] || continue
    id=$(awk -v name="$name" '$2 == name { print $1 }' <<<"$all_ids")
    [ -n "$id" ] || fail "the volume $name is not visible here"
    [ "$(wc -l <<<"$id")" = 1 ] || fail "there are several volumes $name"
    device=$(awk -v id="$id" '$1 == id { print $2 }' <<<"$all_devices")
    [ -n "$device" ] || fail "no multipath device has the volume $name ($id)"
    thin=no
    if [ "$reclaim" = yes ]; then
        # The array itself says whether it takes freed space back.
        if [ -z "$multipath" ] && [ "$(cat "/sys/block/$device/queue/discard_max_bytes")" = 0 ]; then
            fail "$name takes no space back: reclaim = false in the site file"
        fi
        thin=nvme
    fi
    echo "%nsd: device=/dev/$device nsd=$name usage=dataAndMetadata failureGroup=$group pool=system thinDiskType=$thin"
done < <(volumes)
