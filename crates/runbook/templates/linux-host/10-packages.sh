#!/bin/bash
# Installs the tools that the next steps use.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

if command -v apt-get >/dev/null; then
    packages=(nvme-cli kmod{% if has_rdma %} rdma-core{% endif %}{% if has_multipath_conf %} multipath-tools{% endif %})
else
    packages=(nvme-cli kmod{% if has_rdma %} rdma-core{% endif %}{% if has_multipath_conf %} device-mapper-multipath{% endif %})
fi

case ${1-} in
    do)
        need_root
        install_packages "${packages[@]}"
        ;;
    verify)
        nvme version
{%- if has_multipath_conf %}
        command -v multipath
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
