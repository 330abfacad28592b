//! Tests the Linux kernel's NFS client on directories that we serve as root, each the root of a
//! file system on a device.

use crate::kernel_client::{Mounted, READY_TIMEOUT, fio_finds_what_it_wrote};
use crate::{alone, lab, sh, trunkline};
use std::process::Command;

/// Makes a file system in a file of the guest, and serves it.
fn served(kind: &str, port: u16) -> Mounted {
    let (make, options) = match kind {
        "ext4" => ("mkfs.ext4 -q -F", "loop"),
        "xfs" => ("mkfs.xfs -q", "loop,uquota"),
        "btrfs" => ("mkfs.btrfs -q", "loop"),
        _ => panic!("unknown file system {kind}"),
    };
    sh(&format!(
        "truncate -s 320M /root/{kind}.img; {make} /root/{kind}.img
         modprobe loop; mkdir -p /srv/{kind}; mount -o {options} /root/{kind}.img /srv/{kind}
         chmod 1777 /srv/{kind}"
    ));
    let (directory, state) = (format!("/srv/{kind}"), format!("/root/{kind}.state"));
    Mounted::serving(kind, port, "nconnect=2", &["--dir", &directory, "--state", &state])
}

/// Runs a command as an ordinary user.
const AS: &str = r#"as() { id=$1; shift; setpriv --reuid $id --regid $id --clear-groups "$@"; }"#;

/// Checks what a file server must do on any file system.
fn it_is_a_file_system(mounted: &mut Mounted, kind: &str) {
    let directory = mounted.directory().to_owned();
    fio_finds_what_it_wrote(&directory, &[("64k", "8m")]);
    sh(&format!("rm {directory}/f*"));
    callers_are_who_they_are(&directory, kind);
    changes_beneath_are_seen(&directory, kind);
    open_files_outlive_the_server(mounted, kind);
    a_full_file_system_says_so(&directory, kind);
}

/// Users 1001 and 1002, and root, who is squashed.
fn callers_are_who_they_are(directory: &str, kind: &str) {
    sh(&format!(
        "{AS}
         cd {directory}
         as 1001 sh -c 'umask 077; echo secret > mine; mkdir home; echo x > home/x'
         [ \"$(stat -c %u:%g /srv/{kind}/mine)\" = 1001:1001 ]
         [ \"$(as 1001 cat mine)\" = secret ]
         fails as 1002 cat mine; fails as 1002 ls home; fails as 1002 rm -f mine; fails cat mine
         touch by-root; [ \"$(stat -c %u /srv/{kind}/by-root)\" = 65534 ]
         as 1001 sh -c 'echo once > only; chmod 0444 only; mv only kept'
         [ \"$(as 1002 cat kept)\" = once ]; fails as 1002 sh -c 'echo x >> kept'
         in_group() {{ setpriv --reuid 1002 --regid 1002 --groups 1001 \"$@\"; }}
         fails in_group cat mine
         as 1001 chmod 640 mine; [ \"$(in_group cat mine)\" = secret ]"
    ));
}

fn changes_beneath_are_seen(directory: &str, kind: &str) {
    sh(&format!(
        "echo before > /srv/{kind}/beneath; chmod 666 /srv/{kind}/beneath
         [ \"$(cat {directory}/beneath)\" = before ]
         exec 9< {directory}/beneath
         rm /srv/{kind}/beneath
         echo 3 > /proc/sys/vm/drop_caches
         fails cat <&9 | grep -q 'Stale file handle'
         exec 9<&-
         truncate -s 1M /srv/{kind}/hole; printf end >> /srv/{kind}/hole
         [ \"$(tail -c 3 {directory}/hole)\" = end ]; [ $(stat -c %s {directory}/hole) = 1048579 ]"
    ));
}

/// A program continues to write, and a listing continues, after the server was replaced by another
/// process.
fn open_files_outlive_the_server(mounted: &mut Mounted, kind: &str) {
    let directory = mounted.directory().to_owned();
    sh(&format!(
        "mkdir /srv/{kind}/many; cd /srv/{kind}/many; seq -f n-%04g 1000 | xargs touch
         [ $(ls {directory}/many | wc -l) = 1000 ]"
    ));
    let script =
        format!("cd {directory}; exec 3> through; echo first >&3; echo began; read -r go; echo second >&3");
    let mut writer = lab().client().spawn(Command::new("sh").args(["-c", &script])).expect("the guest runs");
    writer.wait_for_line("began", READY_TIMEOUT).expect("the program writes");
    mounted.restart();
    writer.input(b"go\n");
    writer.end_input();
    let status = writer.wait(drop).expect("the guest runs");
    assert!(status.success(), "{status}");
    let said = sh(&format!(
        "cat /srv/{kind}/through
         echo 3 > /proc/sys/vm/drop_caches
         ls {directory}/many | sort -u | wc -l; ls -f {directory}/many | grep -c n-"
    ));
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["first", "second", "1000", "1000"]);
}

fn a_full_file_system_says_so(directory: &str, kind: &str) {
    sh(&format!(
        "{AS}
         cd {directory}
         fallocate -l $(($(df -B1 --output=avail /srv/{kind} | tail -1) - 8000000)) /srv/{kind}/ballast
         fails as 1001 dd if=/dev/zero of=full bs=1M count=16 conv=fsync | grep -q 'No space left'
         as 1001 rm full; rm /srv/{kind}/ballast; sync -f /srv/{kind}
         as 1001 sh -c 'echo again > again'; [ \"$(cat /srv/{kind}/again)\" = again ]"
    ));
}

/// A user with a limit of 2 MiB and ten objects, who owns nothing yet: on XFS, removed objects
/// count for a while. Objects first: a user without a free block gets no object either.
fn a_quota_is_told(directory: &str) {
    let said = sh(&format!(
        "{AS}
         xfs_quota -x -c 'limit -u bhard=2m ihard=10 1003' /srv/xfs
         cd {directory}
         as 1003 touch $(seq -f quota-%g 10)
         fails as 1003 touch quota-11 > /tmp/over; cat /tmp/over; grep -q 'quota exceeded' /tmp/over
         fails as 1003 dd if=/dev/zero of=quota-1 bs=64k count=256 conv=fsync > /tmp/over; cat /tmp/over
         grep -q 'quota exceeded' /tmp/over
         [ $(du -k /srv/xfs/quota-1 | cut -f 1) -le 2048 ]
         as 1002 dd if=/dev/zero of=others bs=64k count=64 conv=fsync 2>&1
         xfs_quota -x -c 'report -u -n -b -i' /srv/xfs"
    ));
    assert!(said.contains("#1003"), "{said}");
}

/// The device accepts less than its size. So a write into the server's memory succeeds, and the
/// write to the device fails; UNSTABLE writes report that at COMMIT. What the device says is up to
/// the server's kernel: up to Linux 6.1 an I/O error, later that there is no space.
#[test]
fn a_write_that_fails_at_the_device_is_reported_to_the_kernel() {
    let _turn = alone();
    sh("mkdir -p /root/small /srv/small; mount -t tmpfs -o size=12m tmpfs /root/small
        truncate -s 320M /root/small/img; mkfs.ext4 -q -F -O ^has_journal /root/small/img
        modprobe loop; mount -o loop /root/small/img /srv/small; chmod 1777 /srv/small");
    let arguments = ["--dir", "/srv/small", "--state", "/root/small.state"];
    let mounted = Mounted::serving("small", 12063, "nconnect=1", &arguments);
    let directory = mounted.directory();
    sh(&format!(
        "cd {directory}
         echo small > small; sync small
         fails dd if=/dev/zero of=large bs=1M count=24 conv=fsync > /tmp/failed; cat /tmp/failed
         grep -q -e 'Input/output error' -e 'No space left' /tmp/failed
         [ \"$(cat small)\" = small ]"
    ));
}

/// In its own network namespace, where port 111 is free.
#[test]
fn the_kernel_mounts_a_directory_that_it_finds_by_program_number() {
    let _turn = alone();
    let said = sh(&format!(
        "mkdir -p /srv/found /mnt/found; echo here > /srv/found/file; mkfifo /tmp/found.says
         chmod 755 /srv/found; chmod 644 /srv/found/file; [ \"$(stat -f -c %T /srv/found)\" = overlayfs ]
         cat > /tmp/found.sh <<'END'
         set -e
         ip link set lo up
         {} serve --dir /srv/found --state /root/found.state --listen 127.0.0.1:4049 --rpcbind > /tmp/found.says &
         server=$!; trap 'kill $server 2> /dev/null || true' EXIT
         exec 3< /tmp/found.says
         while read -r line <&3; do [ \"$line\" != ready ] || break; done
         showmount -e --no-headers 127.0.0.1
         for how in udp tcp; do
           mount -t nfs -o vers=3,nolock,mountproto=$how 127.0.0.1:/export /mnt/found
           cat /mnt/found/file
           grep ' /mnt/found ' /proc/mounts | grep -o \"mountproto=$how\"
           umount /mnt/found
         done
         trap - EXIT; kill $server; wait $server
END
         unshare --net --mount sh /tmp/found.sh",
        trunkline().display()
    ));
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with("/export "), "{said}");
    assert_eq!(lines[1..], ["here", "mountproto=udp", "here", "mountproto=tcp"]);
}

#[test]
fn the_kernel_mounts_a_directory_on_ext4() {
    let _turn = alone();
    it_is_a_file_system(&mut served("ext4", 12060), "ext4");
}

#[test]
fn the_kernel_mounts_a_directory_on_xfs() {
    let _turn = alone();
    let mut mounted = served("xfs", 12061);
    it_is_a_file_system(&mut mounted, "xfs");
    a_quota_is_told(mounted.directory());
}

#[test]
fn the_kernel_mounts_a_directory_on_btrfs() {
    let _turn = alone();
    it_is_a_file_system(&mut served("btrfs", 12062), "btrfs");
}
