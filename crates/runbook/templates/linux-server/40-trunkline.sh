#!/bin/bash
# Sets up Trunkline's NFS server. Its package is installed before (docs/INSTALL.md); without the
# package, the program must be /usr/bin/trunkline, and the unit of this folder is used.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

directories=({% for export in own.exports %}{% if let Some(dir) = export.dir %} {{ dir }}{% endif %}{% endfor %} )

# What the server keeps of each directory that it serves, such as the key of its file handles: a
# directory for each, whose file `path` names it.
kept=/var/lib/trunkline

# kept_of DIRECTORY: prints what the server keeps of it.
kept_of() {
    local path directory
    directory=$(readlink -m "$1")
    for path in "$kept"/*/path; do
        [ "$(cat "$path" 2>/dev/null)" != "$directory" ] || echo "${path%/path}"
    done
}

# Where no service manager runs, the server is a process in the background, with its number here.
process=/run/trunkline-runbook.pid

# Ends that process, and waits until its ports are free.
end_process() {
    local number
    number=$(cat "$process" 2>/dev/null || :)
    rm -f "$process"
    [ "$(cat "/proc/${number:-none}/comm" 2>/dev/null)" = trunkline ] || return 0
    kill "$number" 2>/dev/null || :
    for _ in $(seq 300); do
        [ -e "/proc/$number" ] || return 0
        sleep 0.1
    done
    fail "the server (process $number) does not end"
}

# Whether the server answers at its first address, for each export.
answers() {
{%- if let Some(address) = own.addresses.first() %}
{%- for export in own.exports %}
    trunkline stat --fs 'nfs://{{ own.tcp(address) }}{{ export.path }}?mountport={{ own.port }}'{% if !loop.last %} &&{% endif %}
{%- endfor %}
{%- endif %}
}

case ${1-} in
    do)
        need_root
        command -v trunkline >/dev/null || fail "install trunkline first"
        [ -e "$kept" ] || remember keeps "$kept"
        for directory in "${directories[@]}"; do
            # What an earlier server keeps of it stays.
            [ -n "$(kept_of "$directory")" ] || remember new "$directory"
            if [ ! -d "$directory" ]; then
                mkdir -p "$directory"
                remember served "$directory"
            fi
        done
        place files/serve.toml /etc/trunkline/serve.toml 644
        if [ ! -e /usr/lib/systemd/system/trunkline.service ] && [ ! -e /lib/systemd/system/trunkline.service ]; then
            place files/trunkline.service /etc/systemd/system/trunkline.service 644
        fi
        if has_systemd; then
            systemctl daemon-reload
            systemctl is-enabled -q trunkline.service || remember trunkline trunkline.service
            systemctl enable trunkline.service
            systemctl restart trunkline.service
        else
            end_process
            trunkline serve -c /etc/trunkline/serve.toml </dev/null >/dev/null 2>&1 &
            echo $! >"$process"
            remember trunkline process
        fi
        for _ in $(seq 30); do
            if answers >/dev/null 2>&1; then exit 0; fi
            sleep 1
        done
        answers
        ;;
    verify)
        is_placed files/serve.toml /etc/trunkline/serve.toml
        answers
        ;;
    undo)
        need_root
        case $(recalled trunkline) in
            process) end_process ;;
            trunkline.service) systemctl disable --now trunkline.service ;;
        esac
        take_back /etc/trunkline/serve.toml
        take_back /etc/systemd/system/trunkline.service
        if has_systemd; then
            systemctl daemon-reload
            systemctl try-restart trunkline.service || :
        fi
        # Where the program's processes are found (trunkline top); each makes them if it needs them.
        rmdir /run/trunkline-live /run/trunkline-live-files 2>/dev/null || :
        for directory in $(recalled new); do
            for one in $(kept_of "$directory"); do rm -r "$one"; done
        done
        for directory in $(recalled keeps); do
            [ ! -d "$directory" ] || rmdir "$directory" 2>/dev/null || echo "$directory stays: it is not empty" >&2
        done
        for directory in $(recalled served); do
            rmdir "$directory" 2>/dev/null || echo "$directory stays: it is not empty" >&2
        done
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
