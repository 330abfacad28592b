#!/bin/busybox sh
# The first program of a guest. It executes lines of the second serial port, one at a time, and
# writes what they print there, and then `@ done` with their exit status.

/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin
mount -t tmpfs tmpfs /run

# Runs fio, and prints the result as one line: the error, then KiB, KiB/s, IOPS and milliseconds of
# what it read, and the same of what it wrote.
run_fio() {
    fio --minimal --direct=1 --ioengine=libaio "$@" > /run/fio 2>&1
    status=$?
    awk -F ';' 'NF > 100 { print "fio", $5, $6, $7, $8, $9, $47, $48, $49, $50 }' /run/fio
    [ $status = 0 ] || cat /run/fio
    return $status
}

# Writes a file in blocks of this size at random, then reads and verifies all of it.
verify() {
    name=$1 block=$2 size=$3
    run_fio --name="$name" --filename="/data/$name" --bs="$block" --size="$size" --rw=randwrite \
        --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
        --end_fsync=1
}

# The sectors that were written to the disk so far.
sectors() {
    read -r _ _ _ _ _ _ written _ < /sys/block/vda/stat
    echo "$written"
}

# The same as `verify`, and says when the first 4 MiB are written.
verify_loudly() {
    end=$(($(sectors) + 8192))
    verify "$@" &
    fio=$!
    while [ "$(sectors)" -lt $end ] && kill -0 $fio; do usleep 20000; done
    echo "@ writing"
    wait $fio
}

# Reads or writes for some seconds.
measure() {
    pattern=$1 block=$2 seconds=$3
    run_fio --name=measure --filename=/data/measured --size=64m --rw="$pattern" --bs="$block" \
        --iodepth=128 --time_based --runtime="$seconds" --ramp_time=1
}

# What the kernel has complained about.
complaints() {
    dmesg | grep -E 'I/O error|EXT4-fs (error|warning)|JBD2|timed out|blocked for more'
}

stty -F /dev/ttyS1 raw -echo
exec < /dev/ttyS1 > /dev/ttyS1 2>&1
echo "@ up"
while IFS= read -r line; do
    (eval "$line")
    echo "@ done $?"
done
