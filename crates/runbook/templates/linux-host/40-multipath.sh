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
{%- if has_multipath_conf %}

# A configuration that is there already stays; ours is read in addition.
multipath_conf=/etc/multipath.conf
if [ -e /etc/multipath.conf ] && [ ! -e "$state/placed/etc/multipath.conf" ]; then
    multipath_conf=/etc/multipath/conf.d/trunkline.conf
fi
{%- endif %}

case ${1-} in
    do)
        need_root
{%- if has_udev_rules %}
        place files/71-trunkline-nvme.rules /etc/udev/rules.d/71-trunkline-nvme.rules 644
        ! command -v udevadm >/dev/null || udevadm control --reload || :
{%- endif %}
{%- if has_multipath_conf %}
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
{%- endif %}
        ;;
    verify)
{%- if has_native_multipath %}
        ./15-native-multipath.sh verify
{%- endif %}
{%- if has_udev_rules %}
        is_placed files/71-trunkline-nvme.rules /etc/udev/rules.d/71-trunkline-nvme.rules
{%- endif %}
{%- if has_multipath_conf %}
        is_placed files/multipath.conf "$multipath_conf"
        multipath -t | grep 'NetApp E-Series' >/dev/null
{%- endif %}
        ;;
    undo)
        need_root
{%- if has_multipath_conf %}
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
{%- endif %}
{%- if has_udev_rules %}
        take_back /etc/udev/rules.d/71-trunkline-nvme.rules
        ! command -v udevadm >/dev/null || udevadm control --reload || :
{%- endif %}
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
