#!/bin/bash
# Sets up Trunkline's NFS server. Its package is installed before (docs/INSTALL.md); without the
# package, the program must be /usr/bin/trunkline, and the unit of this folder is used.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

directories=({% for export in own.exports %}{% if let Some(dir) = export.dir %} {{ dir }}{% endif %}{% endfor %} )

case ${1-} in
    do)
        need_root
        command -v trunkline >/dev/null || fail "install trunkline first"
        for directory in "${directories[@]}"; do
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
            # Where no service manager runs, the server is a process in the background.
            trunkline serve -c /etc/trunkline/serve.toml </dev/null >/dev/null 2>&1 &
            echo $! >/run/trunkline-runbook.pid
            remember trunkline process
        fi
        ;;
    verify)
        is_placed files/serve.toml /etc/trunkline/serve.toml
{%- if let Some(address) = own.addresses.first() %}
{%- for export in own.exports %}
        trunkline stat --fs 'nfs://{{ own.tcp(address) }}{{ export.path }}?mountport={{ own.port }}'
{%- endfor %}
{%- endif %}
        ;;
    undo)
        need_root
        case $(recalled trunkline) in
            process)
                kill "$(cat /run/trunkline-runbook.pid)" 2>/dev/null || :
                rm -f /run/trunkline-runbook.pid
                ;;
            trunkline.service) systemctl disable --now trunkline.service ;;
        esac
        take_back /etc/trunkline/serve.toml
        take_back /etc/systemd/system/trunkline.service
        if has_systemd; then
            systemctl daemon-reload
            systemctl try-restart trunkline.service || :
        fi
        for directory in $(recalled served); do
            rmdir "$directory" 2>/dev/null || echo "$directory stays: it is not empty" >&2
        done
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
