#!/bin/bash
{%- if has_native_multipath %}
# Paths to a volume are joined by the NVMe driver (native multipath). DM-Multipath only reports them.
{%- else %}
# Paths to a volume are joined by DM-Multipath: RHEL 7 has no native NVMe multipath.
{%- endif %}
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

# A configuration that is there already stays; ours is read in addition.
multipath_conf=/etc/multipath.conf
if [ -e /etc/multipath.conf ] && [ ! -e "$state/placed/etc/multipath.conf" ]; then
    multipath_conf=/etc/multipath/conf.d/trunkline.conf
fi

case ${1-} in
    do)
        need_root
        place files/multipath.conf "$multipath_conf" 644
        # Without it, local disks of a host that had no configuration would become multipath devices.
        if [ "$multipath_conf" = /etc/multipath.conf ]; then
            place files/find-multipaths.conf /etc/multipath/conf.d/trunkline.conf 644
        fi
        if has_systemd; then
            systemctl is-enabled --quiet multipathd || remember multipathd enabled
            systemctl enable multipathd
            systemctl restart multipathd
        fi
        ;;
    verify)
{%- if has_native_multipath %}
        ./15-native-multipath.sh verify
{%- endif %}
        is_placed files/multipath.conf "$multipath_conf"
        multipath -t | grep 'NetApp E-Series' >/dev/null
        ;;
    undo)
        need_root
        take_back /etc/multipath/conf.d/trunkline.conf
        take_back "$multipath_conf"
        # A service that was on before stays on: it may serve other disks.
        if has_systemd; then
            if [ -n "$(recalled multipathd)" ]; then
                systemctl disable --now multipathd
            else
                systemctl restart multipathd
            fi
        fi
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
