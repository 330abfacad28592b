#!/bin/sh
# Creates a subnet and a pool of addresses on interfaces that do RDMA.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

# The addresses of ranges with commas, with commas.
addresses_of() {
    echo "$1" | tr , '\n' | awk -F '[-.]' '
        NF == 8 && $1 == $5 && $2 == $6 && $3 == $7 { for (at = $4; at <= $8; at++) print $1 "." $2 "." $3 "." at; next }
        { print }' | paste -sd , -
}

# One line for each interface of a node: LNN:NAME, MTU, addresses, pools.
interfaces() {
    isi network interfaces list -v | awk '
        function done() { if (name != "") print lnn ":" name, mtu, addresses, owners }
        { at = index($0, ":"); key = substr($0, 1, at - 1); value = substr($0, at + 1); sub(/^ +/, "", key); gsub(/ /, "", value) }
        value == "" { value = "-" }
        key == "IP Addresses" { done(); lnn = name = mtu = owners = ""; addresses = value }
        key == "LNN" { lnn = value }
        key == "Name" { name = value }
        key == "MTU" { mtu = value }
        key == "Owners" { owners = value }
        END { done() }'
}

case ${1-} in
    do)
        only=$(knows nfs-rroce-only nfsv3-rroce-only -- isi network pools create)
        if isi network subnets view {{ nas.subnet }} >/dev/null 2>&1; then
            noted subnet || fail "there is a subnet {{ nas.subnet }} already: choose another name"
        else
            isi network subnets create {{ nas.subnet }} ipv4 {{ nas.prefix_length }} --mtu {{ nas.mtu }}
            note subnet
        fi
        if isi network pools view {{ nas.pool }} >/dev/null 2>&1; then
            noted pool || fail "there is a pool {{ nas.pool }} already: choose another name"
        else
            isi network pools create {{ nas.pool }} \
                --ranges {{ nas.ranges(",", false) }} \
                --ifaces {{ nas.interfaces() }} \
                "--$only" true \
{%- if nas.zone != "System" %}
                --access-zone {{ nas.zone }} \
{%- endif %}
                --alloc-method static \
                --description "NFS over RDMA"
            note pool
        fi
        ;;
    verify)
        pool=$(isi network pools view {{ nas.pool }})
        echo "$pool"
        subnet=$(isi network subnets view {{ nas.subnet }})
        mtu=$(echo "$subnet" | field MTU)
        [ "$mtu" = {{ nas.mtu }} ] || fail "the MTU of {{ nas.subnet }} is $mtu, and {{ nas.mtu }} is planned"
        zone=$(echo "$pool" | field "Access Zone")
        [ "$zone" = {{ nas.zone }} ] || fail "the access zone of {{ nas.pool }} is $zone, and {{ nas.zone }} is planned"
        ifaces=$(echo "$pool" | field Ifaces)
        ! differs "$ifaces" {{ nas.interfaces() }} ||
            fail "the interfaces of {{ nas.pool }} are $ifaces, and {{ nas.interfaces() }} are planned"
        ranges=$(echo "$pool" | field "IP Ranges")
        ! differs "$(addresses_of "$ranges")" "$(addresses_of {{ nas.ranges(",", false) }})" ||
            fail "the addresses of {{ nas.pool }} are $ranges, and {{ nas.ranges(",", false) }} are planned"
        all=$(interfaces)
        for one in{% for node in nas.nodes %} {{ node.lnn }}:{{ node.interface }}{% endfor %}; do
            mtu=$(echo "$all" | awk -v of="$one" '$1 == of { print $2 }')
            [ -n "$mtu" ] || fail "there is no interface $one: isi network interfaces list -v"
            [ "$mtu" = {{ nas.mtu }} ] || fail "the MTU of $one is $mtu, and {{ nas.mtu }} is planned"
        done
        # Which interface of the pool has which address is up to OneFS.
        for one in{% for node in nas.nodes %} {{ node.address }}{% endfor %}; do
            echo "$all" | awk -v address="$one" -v planned=",{{ nas.interfaces() }}," '
                { count = split($3, own, ","); for (at = 1; at <= count; at++) if (own[at] == address) found = $1 }
                END { exit !(found != "" && index(planned, "," found ",")) }' ||
                fail "no interface of the plan has $one: is each one up? isi network interfaces list -v"
        done
        ;;
    undo)
        # Only what this step has made: others may serve from a subnet of the same name.
        if noted pool; then
            isi network pools delete {{ nas.pool }} --force
            forget pool
        fi
        if noted subnet; then
            isi network subnets delete {{ nas.subnet }} --force
            forget subnet
        fi
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
