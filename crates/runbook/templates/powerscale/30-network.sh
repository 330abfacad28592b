#!/bin/sh
# Creates a subnet and a pool of addresses on interfaces that do RDMA.
set -eu
cd "$(dirname "$0")"
# shellcheck source=knows.sh
. ./knows.sh

case ${1-} in
    do)
        only=$(knows nfs-rroce-only nfsv3-rroce-only -- isi network pools create)
        isi network subnets create {{ nas.subnet }} ipv4 {{ nas.prefix_length }} --mtu {{ nas.mtu }}
        isi network pools create {{ nas.pool }} \
            --ranges {{ nas.ranges(",", false) }} \
            --ifaces {{ nas.interfaces() }} \
            "--$only" true \
            --alloc-method static \
            --description "NFS over RDMA"
        ;;
    verify)
        isi network pools view {{ nas.pool }}
        isi network interfaces list -v | grep '{{ nas.first() }}' >/dev/null || fail "no interface has {{ nas.first() }}"
        ;;
    undo)
        isi network pools delete {{ nas.pool }} --force
        isi network subnets delete {{ nas.subnet }} --force
        ;;
    *)
        echo "usage: $0 do|verify|undo" >&2
        exit 2
        ;;
esac
