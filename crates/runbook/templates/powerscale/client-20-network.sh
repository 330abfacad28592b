#!/bin/bash
# Gives this host its address and MTU on the storage network, now and at every start, by what manages
# the interface: NetworkManager, systemd-networkd (with or without netplan) or ifupdown.
#
# HOST_NAME chooses the host's line of hosts.list; it is the short host name unless it is set.
# NETWORK_BY=networkmanager, networkd or ifupdown chooses where a host has several.
#
# Do and undo refuse an interface that the host needs for something else: with a default route, an SSH
# session, NFS or NVMe over it, or a part of a bond, bridge or VLAN. Where it has other addresses too, they
# would be lost: REPLACE_ADDRESSES=yes goes on. Where all is as planned, do changes nothing.
set -euo pipefail
cd "$(dirname "$0")"
shopt -s extglob
# shellcheck source=placing.sh
. ./placing.sh

name=${HOST_NAME:-$(hostname -s)}
read -r _ interface address < <(awk -v name="$name" '$1 == name' hosts.list) ||
    fail "hosts.list has no $name: set HOST_NAME to one of $(awk '{ print $1 }' hosts.list | xargs)"
mtu={{ nas.mtu }}
fields=ipv4.method,ipv4.addresses,ipv4.gateway,ipv4.dns,802-3-ethernet.mtu
# Before the files of netplan (10-netplan-...): networkd takes the first one that matches.
networkd_file=/etc/systemd/network/05-trunkline-$interface.network
# interfaces(5): source-directory reads no file with a dot in its name, which that of a VLAN has.
ifupdown_file=/etc/network/interfaces.d/trunkline-${interface//./-}
# What NetworkManager had, and the MTU before another one had this interface.
before=$state/network-$interface
before_mtu=$state/network-mtu-$interface

# What manages the interface.
manager() {
    if [ -n "${NETWORK_BY-}" ]; then
        case $NETWORK_BY in networkmanager | networkd | ifupdown) ;; *) return 1 ;; esac
        echo "$NETWORK_BY"
    elif has_networkmanager; then
        echo networkmanager
    elif command -v networkctl >/dev/null && systemctl is-active --quiet systemd-networkd; then
        echo networkd
    elif command -v ifup >/dev/null && [ -e /etc/network/interfaces ]; then
        echo ifupdown
    fi
}

# The connection of the interface, as NetworkManager names it.
connection() {
    nmcli -g GENERAL.CONNECTION device show "$interface"
}

networkd_text() {
    # No gateway and no DNS: only the storage is reached through this interface. The machine need not
    # wait for it at a start.
    printf '[Match]\nName=%s\n\n[Link]\nMTUBytes=%s\nRequiredForOnline=no\n\n[Network]\nAddress=%s\nIPv6AcceptRA=no\n' \
        "$interface" "$mtu" "$address"
}

ifupdown_text() {
    printf 'auto %s\niface %s inet static\n    address %s\n    mtu %s\n' "$interface" "$interface" "$address" "$mtu"
}

# The global addresses of the interface, each with its prefix.
addresses() {
    ip -o address show dev "$interface" | awk '$3 ~ /^inet6?$/ && / scope global/ { print $4 }'
}

# The local addresses of SSH sessions: sudo drops SSH_CONNECTION, and others work here too.
sessions() {
    echo "${SSH_CONNECTION-}" | awk '{ print $3 }'
    ss -Htnp state established | grep '"sshd' | awk '{ print $3 }' |
        sed -e 's/:[0-9]*$//' -e 's/^\[//' -e 's/\]$//' -e 's/%.*//' -e 's/^::ffff://' || :
}

# The addresses of NFS servers and NVMe-oF targets that are in use. RUNBOOK_MOUNTS is for tests.
peers() {
    local file name
    awk '$3 ~ /^(nfs4?|fuse\.trunkline)$/ {
        print "host", substr($1, 1, match($1, /:\//) - 1)
        count = split($4, options, ",")
        for (at = 1; at <= count; at++)
            if (options[at] ~ /^(addr|remoteports)=/) {
                sub(/^[a-z]*=/, "", options[at])
                ends = split(options[at], all, /[~-]/)
                for (end = 1; end <= ends; end++) print "address", all[end]
            }
    }' "${RUNBOOK_MOUNTS:-/proc/mounts}" | while read -r kind name; do
        name=${name#[}
        name=${name%]}
        case $kind-$name in
            *- | *-dns) ;;
            host-*[!0-9.]*) case $name in *:*) echo "$name" ;; *) getent ahosts "$name" | awk '{ print $1 }' || : ;; esac ;;
            *) echo "$name" ;;
        esac
    done
    for file in /sys/class/nvme/*/address; do
        [ ! -e "$file" ] || sed -n 's/^.*traddr=\([0-9a-fA-F.:]*\).*$/\1/p' "$file"
    done
}

# is_usable: fails if the interface is not there, or is a VLAN above one with smaller frames.
is_usable() {
    local one below
    [ -d "/sys/class/net/$interface" ] || fail "there is no interface $interface here: a VLAN is created first"
    for one in "/sys/class/net/$interface"/lower_*; do
        [ -e "$one/mtu" ] || continue
        below=$(cat "$one/mtu")
        [ "$below" -ge "$mtu" ] || fail "the MTU of ${one##*/lower_} below $interface is $below: set it to $mtu first"
    done
}

# guard: fails if the host needs the interface for something else.
guard() {
    local one own
    for one in "/sys/class/net/$interface/master" "/sys/class/net/$interface"/upper_*; do
        # A link that leads nowhere here counts too.
        if [ -L "$one" ] || [ -e "$one" ]; then
            fail "$interface is a part of $(basename "$(readlink "$one" || echo "$one")")"
        fi
    done
    # An interface with the way to everything else, or with a session, is not one for storage.
    [ -z "$(ip route show default dev "$interface"; ip -6 route show default dev "$interface")" ] ||
        fail "$interface has the default route: hosts.list names another interface for storage"
    command -v ss >/dev/null || fail "ss is missing, which tells of SSH sessions: install iproute2 or iproute"
    own=$(addresses)
    for one in $(sessions); do
        ! grep -qxF "$one" <<<"${own//\/*([0-9])/}" || fail "an SSH session comes through $interface ($one): use the console, or" \
            "another interface"
    done
    for one in $(peers | sort -u); do
        ! ip -o route get "$one" 2>/dev/null | grep -E " dev ${interface//./\\.}( |\$)" >/dev/null ||
            fail "NFS or NVMe with $one goes through $interface: unmount or disconnect it first"
    done
    own=$(grep -vxF "$address" <<<"$own" || :)
    [ -z "$own" ] || [ "${REPLACE_ADDRESSES-}" = yes ] ||
        fail "$interface has other addresses ($(echo "$own" | xargs)), which would be lost: REPLACE_ADDRESSES=yes $0 $verb"
}

# has_address: exactly this one, with this prefix.
has_address() {
    addresses | grep -xF "$address" >/dev/null
}

has_mtu() {
    [ "$(cat "/sys/class/net/$interface/mtu")" = "$mtu" ]
}

# is_right MANAGER: whether all is as planned already, now and at the next start.
is_right() {
    local file=${1}_file one
    has_address && has_mtu || return 1
    if [ "$1" = networkmanager ]; then
        [ -s "$before" ] && [ "$(nmcli -g ipv4.method,ipv4.addresses,802-3-ethernet.mtu connection show "$(connection)")" = \
            "manual"$'\n'"$address"$'\n'"$mtu" ]
    else
        [ -e "$state/placed${!file}" ] && [ "$("${1}_text")" = "$(cat "${!file}" 2>/dev/null)" ]
    fi
}

# The files of ifupdown, but for ours, that have the interface.
of_ifupdown() {
    grep -rlE --exclude="${ifupdown_file##*/}" "^[[:space:]]*iface[[:space:]]+${interface//./\\.}[[:space:]]+inet6?[[:space:]]" \
        /etc/network/interfaces /etc/network/interfaces.d 2>/dev/null || :
}

has_networkmanager() {
    command -v nmcli >/dev/null && [ "$(nmcli -g RUNNING general 2>/dev/null)" = running ] &&
        [[ $(nmcli -g GENERAL.STATE device show "$interface" 2>/dev/null) != *unmanaged* ]]
}

# place_text TEXT DESTINATION
place_text() {
    local file
    file=$(mktemp)
    printf '%s\n' "$1" >"$file"
    place "$file" "$2" 644
    rm -f "$file"
}

# keep_mtu: notes the MTU that the interface has.
keep_mtu() {
    mkdir -p "$state"
    [ -e "$before_mtu" ] || cat "/sys/class/net/$interface/mtu" >"$before_mtu"
}

by_networkmanager() {
    [ -n "$(connection)" ] || fail "NetworkManager has no connection for $interface: nmcli device"
    mkdir -p "$state"
    if [ ! -s "$before" ]; then
        nmcli -g "$fields" connection show "$(connection)" >"$before.new"
        mv -f "$before.new" "$before"
    fi
    # No gateway and no DNS: only the storage is reached through this interface.
    nmcli connection modify "$(connection)" ipv4.addresses "$address" ipv4.method manual \
        ipv4.gateway "" ipv4.dns "" 802-3-ethernet.mtu "$mtu"
    nmcli connection up "$(connection)"
}

by_networkd() {
    ! has_networkmanager || fail "NetworkManager has $interface: NETWORK_BY=networkmanager, or make it unmanaged there first"
    if [ -n "$(of_ifupdown)" ] || [ -e "$ifupdown_file" ]; then
        fail "ifupdown has $interface ($(of_ifupdown | xargs)): take it out there first"
    fi
    keep_mtu
    place_text "$(networkd_text)" "$networkd_file"
    networkctl reload
    networkctl reconfigure "$interface"
}

by_ifupdown() {
    grep -Eq '^[[:space:]]*source(-directory)?[[:space:]]+(/etc/network/)?interfaces\.d' /etc/network/interfaces ||
        fail "/etc/network/interfaces does not read interfaces.d: add the line: source /etc/network/interfaces.d/*"
    ! has_networkmanager || fail "NetworkManager has $interface: NETWORK_BY=networkmanager, or make it unmanaged there first"
    [ -z "$(of_ifupdown)" ] || fail "$interface is in a file of /etc/network already: take it out there first: $(of_ifupdown | xargs)"
    keep_mtu
    if [ -e "$ifupdown_file" ]; then ifdown "$interface"; fi
    place_text "$(ifupdown_text)" "$ifupdown_file"
    ifup "$interface"
}

# Takes the address away that a manager leaves where it does not manage the interface any more, and puts
# the MTU back.
left_alone() {
    if has_address; then ip address del "$address" dev "$interface"; fi
    if [ -e "$before_mtu" ]; then ip link set dev "$interface" mtu "$(cat "$before_mtu")"; fi
}

verb=${1-}
case ${1-} in
    do)
        need_root
        by=$(manager) || fail "NETWORK_BY is networkmanager, networkd or ifupdown"
        [ -n "$by" ] ||
            fail "there is no NetworkManager, systemd-networkd or ifupdown here: give $interface the address $address and" \
                "the MTU $mtu by other means"
        is_usable
        if is_right "$by"; then
            echo "$interface has $address and the MTU $mtu already"
            exit
        fi
        guard
        "by_$by"
        ;;
    verify)
        has_address || fail "$interface does not have $address"
        has_mtu || fail "the MTU of $interface is not $mtu"
        # Only a file gives the address at the next start.
        for kind in networkd ifupdown; do
            file=${kind}_file
            [ ! -e "$state/placed${!file}" ] || [ "$("${kind}_text")" = "$(cat "${!file}" 2>/dev/null)" ] ||
                fail "${!file} is not as this step has made it"
        done
        # A frame of the whole MTU reaches the cluster unfragmented: 28 bytes are headers.
        ping -c 1 -M "do" -s $((mtu - 28)) {{ nas.first() }}
        ;;
    undo)
        need_root
        if [ -e "$state/placed$ifupdown_file" ] || [ -e "$state/placed$networkd_file" ] || [ -e "$before" ]; then guard; fi
        # What is noted is forgotten last: an undo that ends in the middle can run again.
        if [ -e "$state/placed$ifupdown_file" ]; then
            ifdown "$interface" || :
            put_back "$ifupdown_file"
            left_alone
            take_back "$ifupdown_file"
            rm -f "$before_mtu"
        fi
        if [ -e "$state/placed$networkd_file" ]; then
            put_back "$networkd_file"
            networkctl reload
            left_alone
            # An earlier file, if there is one, counts again.
            networkctl reconfigure "$interface"
            take_back "$networkd_file"
            rm -f "$before_mtu"
        fi
        if [ -e "$before" ]; then
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
        fi
        tidy_up
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
