#!/bin/bash
# Runs a file of SMcli commands on {{ array.label }}: ./run.sh 10-basic.smcli
#
# SMcli's commands have no conditions, so this asks for a word before it runs a file that
#
#   sets host ports while a volume is mapped   CHANGE_PORT_ADDRESSES=yes: hosts lose their paths through them
#   removes mappings                           HOSTS_DISCONNECTED=yes: every host loses its volumes
#   deletes volumes, pools or groups           DELETE_DATA=yes
#
# The password of the user admin is read from the file that EF600_PASSWORD_FILE names, or from
# EF600_PASSWORD. SMcli takes it from a file or from its command line, which every user sees: so
# EF600_PASSWORD is handed over in a file in memory that only this user may read, and that is then removed.
# EF600_OPTIONS replaces -k, which accepts a certificate that nobody signed.
set -euo pipefail

[ $# = 1 ] || { echo "usage: $0 FILE.smcli" >&2; exit 2; }
[ -r "$1" ] || { echo "$0: there is no file $1" >&2; exit 1; }

# What was there before the first step must not be replaced by what is there now.
saves=''
if [ "${1##*/}" = 05-save.smcli ]; then
    saves=yes
    [ ! -e before.smcli ] || { echo "$0: before.smcli is there already: move it away to save again" >&2; exit 1; }
fi

own='' query=''
trap 'rm -f ${own:+"$own"} ${query:+"$query"}' EXIT
if [ -n "${EF600_PASSWORD_FILE-}" ]; then
    password=$EF600_PASSWORD_FILE
else
    [ -n "${EF600_PASSWORD-}" ] || { echo "$0: set EF600_PASSWORD_FILE or EF600_PASSWORD" >&2; exit 2; }
    # Elsewhere the password could stay behind on a disk.
    memory=/dev/shm
    if [ ! -w "$memory" ] || [ "$(stat --file-system --format=%T "$memory")" != tmpfs ]; then
        echo "$0: $memory is no file system in memory that takes files: set EF600_PASSWORD_FILE" >&2
        exit 1
    fi
    own=$(mktemp --tmpdir="$memory")
    printf '%s\n' "$EF600_PASSWORD" >"$own"
    password=$own
fi

# smcli FILE
smcli() {
    # Word splitting is wanted: EF600_OPTIONS may be several options, or none.
    # shellcheck disable=SC2086
    SMcli {{ a }} {{ b }} ${EF600_OPTIONS--k} -u admin -P "$password" -f "$1"
}

# The mappings of the array, but for those of the access volume, which carries no data. A line that is not
# known is taken for a mapping.
mappings() {
    local answer
    echo 'show storageArray lunMappings;' >"$query"
    answer=$(smcli "$query") || { echo "$answer" >&2; return 1; }
    # Without this line the array has not answered, and an empty list would say nothing.
    grep -q 'completed successfully' <<<"$answer" || { echo "$answer" >&2; return 1; }
    tr -d '\r' <<<"$answer" | grep -viE \
        -e '^[[:space:]]*$' \
        -e '^(Performing syntax check|Syntax check complete|Executing script|Script execution complete|SMcli completed)' \
        -e '^[[:space:]]*MAPPINGS[[:space:]]*(\(|-|$)' \
        -e '^[[:space:]]*Volume Name[[:space:]]+LUN[[:space:]]' \
        -e '^[[:space:]]*Access Volume[[:space:]]' || :
}

# The commands on one line, without comments.
code=$(sed 's|//.*||' "$1" | tr -s ' \t\r\n' ' ')
if grep -qiE '(^|;) ?remove [^;]*lunMapping' <<<"$code" && [ "${HOSTS_DISCONNECTED-}" != yes ]; then
    echo "$0: $1 takes the volumes away from every host: unmount and disconnect on all of them, and say so:" \
        "HOSTS_DISCONNECTED=yes" >&2
    exit 1
fi
if grep -qiE '(^|;) ?(delete (allVolumes|volumes?|diskPool|volumeGroup)|clear storageArray)' <<<"$code" &&
    [ "${DELETE_DATA-}" != yes ]; then
    echo "$0: $1 deletes volumes with their data: DELETE_DATA=yes" >&2
    exit 1
fi
if grep -qi hostPort <<<"$code" && [ "${CHANGE_PORT_ADDRESSES-}" != yes ]; then
    query=$(mktemp --suffix=.smcli)
    mapped=$(mappings) || { echo "$0: whether volumes are mapped is not known: nothing is changed" >&2; exit 1; }
    if [ -n "$mapped" ]; then
        echo "$mapped" >&2
        echo "$0: volumes are mapped, and $1 sets the addresses of host ports: hosts lose their paths through a port" \
            "whose address changes. Disconnect them first, and say so: CHANGE_PORT_ADDRESSES=yes" >&2
        exit 1
    fi
fi

# The profile has settings that the saved commands may lack.
if [ -n "$saves" ]; then smcli "$1" | tee before.txt; else smcli "$1"; fi
