//! A guest boots from a disk, and what its fio has written is what the disk's file has.

use crate::beside_others;
use crate::guest::{Drive, FioResult, Guest};
use crate::image::{check, verify_here};
use crate::storage::{Kind, Storage};

/// Files that fio writes at random and verifies: name, block, size, and the size in KiB.
const FILES: [([&str; 3], u64); 2] =
    [(["small", "4k", "16m"], 16 << 10), (["large", "64k", "48m"], 48 << 10)];

fn boots_from(kind: Kind, trims: bool) {
    let _others = beside_others();
    let mut storage = Storage::with_images(kind, 1);
    let guest = Guest::boot(&storage, 0, Drive::Uri);
    let mounts = guest.sh("mount");
    assert!(mounts.lines().any(|line| line.starts_with("/dev/vda on / type ext4 (rw")), "{mounts}");
    for ([name, block, size], kib) in FILES {
        guest.begin(&format!("verify {name} {block} {size}"));
        guest.end_verification(kib);
    }
    for pattern in ["randread", "randwrite"] {
        let result = FioResult::of(&guest.sh(&format!("measure {pattern} 4k 2")));
        println!("{kind:?}: {pattern}: {result:?}");
        assert!(result.error == 0 && result.read.kib + result.written.kib > 0, "{result:?}");
    }
    if trims {
        let before = storage.allocated_bytes(0);
        guest.sh("rm /data/measured && sync && fstrim /");
        let after = storage.allocated_bytes(0);
        assert!(after + (60 << 20) < before, "the room of 64 MiB is given back: {before} {after}");
    }
    guest.power_off();
    storage.end();
    check(&storage.file(0));
    for (file, _) in FILES {
        verify_here(&storage.file(0), file);
    }
}

#[test]
fn a_guest_boots_from_a_volume() {
    boots_from(Kind::Volume, true);
}

#[test]
fn a_guest_boots_from_a_file_of_an_nfs_server() {
    boots_from(Kind::NfsFile("nconnect=4"), false);
}

#[test]
fn a_guest_boots_from_a_file_of_an_nfs_server_of_version_4_2() {
    boots_from(Kind::NfsFile("vers=4.2,nconnect=4"), true);
}
