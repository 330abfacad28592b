#!/bin/busybox sh
# The script of the initramfs: it loads the modules, and goes on with the disk as the root.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module"; done < /order
$b mount -t ext4 /dev/vda /new
for one in proc sys dev; do $b mount --move /$one /new/$one; done
exec $b switch_root /new /bin/init
