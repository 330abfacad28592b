#!/bin/bash
# Installs what the next steps use.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

if command -v apt-get >/dev/null; then
    packages=(kmod{% if has_nfs %} nfs-kernel-server{% endif %}{% if has_rdma %} rdma-core{% endif %}{% if has_nvmet %} iproute2 uuid-runtime{% endif %})
else
    packages=(kmod{% if has_nfs %} nfs-utils{% endif %}{% if has_rdma %} rdma-core{% endif %}{% if has_nvmet %} iproute util-linux{% endif %})
fi

case ${1-} in
    do)
        need_root
        install_packages "${packages[@]}"
        ;;
    verify)
        modprobe --version >/dev/null
{%- if has_nfs %}
        command -v exportfs
{%- endif %}
{%- if has_rdma %}
        [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ] || fail "there is no RDMA device: rdma link"
{%- endif %}
{%- if has_trunkline %}
        trunkline --version
{%- endif %}
        ;;
    undo)
        need_root
        remove_packages
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
