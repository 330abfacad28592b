#!/bin/bash
# Gives this host its address and MTU on the storage network, by NetworkManager.
#
# HOST_NAME chooses the host's line of hosts.list; it is the short host name unless it is set.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=placing.sh
. ./placing.sh

name=${HOST_NAME:-$(hostname -s)}
read -r _ interface address < <(awk -v name="$name" '$1 == name' hosts.list) ||
    fail "hosts.list has no $name: set HOST_NAME to one of $(awk '{ print $1 }' hosts.list | xargs)"
mtu={{ nas.mtu }}
fields=ipv4.method,ipv4.addresses,ipv4.gateway,ipv4.dns,802-3-ethernet.mtu

# The connection of the interface, as NetworkManager names it.
connection() {
    nmcli -g GENERAL.CONNECTION device show "$interface"
}

case ${1-} in
    do)
        need_root
        command -v nmcli >/dev/null ||
            fail "there is no NetworkManager here: give $interface the address $address and the MTU $mtu by other means"
        # An interface with the way to everything else, or with this session, is not one for storage.
        [ -z "$(ip route show default dev "$interface")" ] ||
            fail "$interface has the default route: hosts.list names another interface for storage"
        session=$(echo "${SSH_CONNECTION-}" | awk '{ print $3 }')
        [ -z "$session" ] || ! ip -o address show dev "$interface" | grep -wF "$session" >/dev/null ||
            fail "this session comes through $interface: use the console, or another interface"
        [ -n "$(connection)" ] || fail "NetworkManager has no connection for $interface: nmcli device"
        mkdir -p "$state"
        before=$state/network-$interface
        if [ ! -s "$before" ]; then
            nmcli -g "$fields" connection show "$(connection)" >"$before.new"
            mv -f "$before.new" "$before"
        fi
        # No gateway and no DNS: only the storage is reached through this interface.
        nmcli connection modify "$(connection)" ipv4.addresses "$address" ipv4.method manual \
            ipv4.gateway "" ipv4.dns "" 802-3-ethernet.mtu "$mtu"
        nmcli connection up "$(connection)"
        ;;
    verify)
        ip -brief address show dev "$interface" | grep " $address" >/dev/null || fail "$interface does not have $address"
        [ "$(cat "/sys/class/net/$interface/mtu")" = "$mtu" ] || fail "the MTU of $interface is not $mtu"
        # A frame of the whole MTU reaches the cluster unfragmented: 28 bytes are headers.
        ping -c 1 -M "do" -s $((mtu - 28)) {{ nas.first() }}
        ;;
    undo)
        need_root
        before=$state/network-$interface
        [ -e "$before" ] || exit 0
        {
            read -r method
            read -r addresses
            read -r gateway
            read -r dns
            read -r mtu
        } <"$before"
        nmcli connection modify "$(connection)" ipv4.method "$method" ipv4.addresses "$addresses" \
            ipv4.gateway "$gateway" ipv4.dns "$dns" 802-3-ethernet.mtu "$mtu"
        nmcli connection up "$(connection)"
        rm -f "$before"
        tidy_up
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
