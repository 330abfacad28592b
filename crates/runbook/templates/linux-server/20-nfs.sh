#!/bin/bash
# Sets up the kernel's NFS server{% if nfs.is_over_rdma %}, over TCP and over RDMA{% endif %}.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

directories=({% for export in nfs.exports %}{% if !loop.first %} {% endif %}{{ export.path }}{% endfor %})

# Starts the server, or has it read its configuration again.
start() {
    if has_systemd; then
        systemctl enable nfs-server
        systemctl restart nfs-server
        return
    fi
    if ! mountpoint -q /proc/fs/nfsd; then
        mount -t nfsd nfsd /proc/fs/nfsd
        remember started nfsd
    fi
    if ! rpcinfo -p >/dev/null 2>&1; then
        rpcbind -w
        remember started rpcbind
    fi
    exportfs -r
    rpc.nfsd {{ nfs.threads }}{% if nfs.is_over_rdma %}
    # rpc.nfsd of old releases does not read rdma from the file.
    grep -q '^rdma ' /proc/fs/nfsd/portlist || echo 'rdma 20049' >/proc/fs/nfsd/portlist{% endif %}
    if ! pgrep -x rpc.mountd >/dev/null; then
        rpc.mountd
        remember started rpc.mountd
    fi
}

# end_process NAME: ends it, and waits until it is gone: it uses the server's modules.
end_process() {
    pkill -x "$1" || return 0
    for _ in $(seq 100); do
        pgrep -x "$1" >/dev/null || return 0
        sleep 0.1
    done
    fail "$1 does not end"
}

case ${1-} in
    do)
        need_root
        for directory in "${directories[@]}"; do
            if [ ! -d "$directory" ]; then
                mkdir -p "$directory"
                remember directories "$directory"
            fi
        done
{%- if nfs.is_over_rdma %}
        place files/nfs-modules.conf /etc/modules-load.d/trunkline-nfs.conf 644
{%- endif %}
        load_modules nfsd{% if nfs.is_over_rdma %} rpcrdma{% endif %}
        if has_systemd; then
            systemctl is-enabled -q nfs-server 2>/dev/null || remember enabled nfs-server
        elif [ "$(cat /proc/fs/nfsd/threads 2>/dev/null || echo 0)" = 0 ]; then
            remember enabled rpc.nfsd
        fi
        place files/nfs.conf /etc/nfs.conf.d/trunkline.conf 644
        place files/exports /etc/exports.d/trunkline.exports 644
        start
        ;;
    verify)
        is_placed files/nfs.conf /etc/nfs.conf.d/trunkline.conf
        is_placed files/exports /etc/exports.d/trunkline.exports
        for directory in "${directories[@]}"; do
            exportfs -s | grep "^$directory " >/dev/null || fail "$directory is not exported"
        done
        [ "$(cat /proc/fs/nfsd/threads)" -gt 0 ] || fail "the server has no threads"
{%- if nfs.is_over_rdma %}
        grep -q '^rdma 20049' /proc/fs/nfsd/portlist || fail "the server does not listen over RDMA: rdma link"
{%- endif %}
        ;;
    undo)
        need_root
        take_back /etc/exports.d/trunkline.exports
        take_back /etc/nfs.conf.d/trunkline.conf
        case $(recalled enabled) in
            nfs-server) systemctl disable --now nfs-server ;;
            rpc.nfsd)
                rpc.nfsd 0
                exportfs -ua
                for one in $(recalled started); do
                    if [ "$one" = nfsd ]; then umount /proc/fs/nfsd; else end_process "$one"; fi
                done
                ;;
            *) if has_systemd; then systemctl restart nfs-server; else exportfs -r; fi ;;
        esac
{%- if nfs.is_over_rdma %}
        take_back /etc/modules-load.d/trunkline-nfs.conf
{%- endif %}
        unload_modules
        # Only what is still empty: nothing that clients have written is removed.
        for directory in $(recalled directories); do
            rmdir "$directory" 2>/dev/null || echo "$directory stays: it is not empty" >&2
        done
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
