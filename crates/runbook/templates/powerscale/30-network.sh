#!/bin/sh
# Creates a subnet and a pool of addresses on interfaces that do RDMA.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

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
                --alloc-method static \
                --description "NFS over RDMA"
            note pool
        fi
        ;;
    verify)
        isi network pools view {{ nas.pool }}
        isi network interfaces list -v | grep '{{ nas.first() }}' >/dev/null || fail "no interface has {{ nas.first() }}"
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
