#!/bin/bash
# Runs a file of SMcli commands on {{ array.label }}: ./run.sh 10-basic.smcli
#
# The password of the user admin is read from the file that EF600_PASSWORD_FILE names, or from
# EF600_PASSWORD. SMcli takes it from a file or from its command line, which every user sees: so
# EF600_PASSWORD is handed over in a file in memory that only this user may read, and that is then removed.
# EF600_OPTIONS replaces -k, which accepts a certificate that nobody signed.
set -euo pipefail

[ $# = 1 ] || { echo "usage: $0 FILE.smcli" >&2; exit 2; }

# What was there before the first step must not be replaced by what is there now.
if [ "${1##*/}" = 05-save.smcli ] && [ -e before.smcli ]; then
    echo "$0: before.smcli is there already: move it away to save again" >&2
    exit 1
fi

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
    password=$(mktemp --tmpdir="$memory")
    trap 'rm -f "$password"' EXIT
    printf '%s\n' "$EF600_PASSWORD" >"$password"
fi

# Word splitting is wanted: EF600_OPTIONS may be several options, or none.
# shellcheck disable=SC2086
SMcli {{ a }} {{ b }} ${EF600_OPTIONS--k} -u admin -P "$password" -f "$1"
