#!/bin/bash
# What the suite blktests runs to set its target up: serves one volume with our program. TRUNKLINE
# is the program, TRANSPORT is tcp or rdma, ADDRESS is where the target listens, and BLOCK is the
# size of blocks.
#
#   target.sh config --show-...      what the suite is to connect to
#   target.sh setup [--hostkey SECRET] [--ctrlkey SECRET]
#   target.sh cleanup
#   target.sh set KEY VALUE          a line of the host in the configuration file, and SIGHUP
#   target.sh identify               the identity of the volume, once, before the suite runs

place=/run/blktests/$TRANSPORT-$BLOCK
subsystem=nqn.2026-11.org.trunkline:blktests
host_id=0f01fb42-9f7f-4856-b0b3-51e60b8de349
host=nqn.2014-08.org.nvmexpress:uuid:$host_id
port=4420

write_configuration() {
    local prefix=
    [ "$TRANSPORT" = rdma ] && prefix=rdma:
    # The file has secrets.
    (umask 077 && cat > "$place/block.toml") << END
nqn = "$subsystem"
listen = ["$prefix$ADDRESS:$port"]
allow = ["host"]
state = "$place/state"
[[host]]
name = "host"
nqn = "$host"
$(cat "$place"/host/* 2> /dev/null)
[[volume]]
source = "$(cat "$place/device")"
block = $BLOCK
END
}

# Keys of the file are files of the directory, so that a later value replaces an earlier one.
set_host() {
    mkdir -p "$place/host"
    echo "$1 = $2" > "$place/host/$1"
}

says() {
    for _ in $(seq 600); do
        grep -q "$1" "$place/log" && return
        kill -0 "$(cat "$place/pid")" || break
        sleep 0.05
    done
    echo "the server does not say: $1" >&2
    cat "$place/log" >&2
    exit 1
}

start() {
    write_configuration
    : > "$place/log"
    setsid "$TRUNKLINE" block serve -v -c "$place/block.toml" >> "$place/log" 2>&1 < /dev/null &
    echo $! > "$place/pid"
    says '^ready$'
}

stop() {
    local pid
    pid=$(cat "$place/pid")
    kill "$pid"
    while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
    cat "$place/log" >> "$place/all.log"
    rm -rf "$place/host"
}

verb=$1
shift
case "$verb $1" in
    'config --show-blkdev-type') echo device ;;
    'config --show-trtype') echo "$TRANSPORT" ;;
    'config --show-hostnqn') echo $host ;;
    'config --show-hostid') echo $host_id ;;
    'config --show-traddr') echo "$ADDRESS" ;;
    'config --show-trsvid') echo $port ;;
    'config --show-subsys-uuid') cat "$place/uuid" ;;
    'config --show-subsysnqn') echo $subsystem ;;
    setup*)
        while [ $# -gt 1 ]; do
            case $1 in
                --hostkey) set_host secret "\"$2\"" ;;
                # The suite names it without the second l.
                --ctrlkey | --ctrkey) set_host controller_secret "\"$2\"" ;;
            esac
            shift 2
        done
        start
        ;;
    cleanup*) stop ;;
    set*)
        set_host "$1" "$2"
        write_configuration
        : > "$place/log"
        kill -HUP "$(cat "$place/pid")"
        says '^reloaded'
        ;;
    identify*)
        mkdir -p "$place"
        modprobe loop
        truncate -s 512M "$place/volume.img"
        # A file in memory has no blocks of 512 bytes, in which most cases count.
        losetup --find --show --sector-size 512 "$place/volume.img" > "$place/device"
        start
        "$TRUNKLINE" block list --json | sed -n 's/.*"uuid": "\(.*\)".*/\1/p' > "$place/uuid"
        stop
        ;;
    *)
        echo "$0: not known: $verb $1" >&2
        exit 1
        ;;
esac
