//! What a guest's disk needs is killed while the guest's fio writes. The guest sees no error.

use crate::beside_others;
use crate::guest::{Drive, Guest};
use crate::image::{check, verify_here};
use crate::storage::{Kind, Storage};

/// How long QEMU waits for an attachment that is started again.
const RECONNECT_SECONDS: u32 = 120;

/// A file that is written during each fault.
const BLOCK: &str = "4k";
const SIZE: &str = "16m";
const SIZE_KIB: u64 = 16 << 10;

/// Kills something while a guest's fio writes, and restores it. The guest goes on meanwhile.
#[track_caller]
fn strike(
    storage: &mut Storage,
    guest: &Guest,
    name: &str,
    kill: impl FnOnce(&mut Storage),
    restore: impl FnOnce(&mut Storage),
) {
    guest.begin(&format!("verify_loudly {name} {BLOCK} {SIZE}"));
    guest.wait_for("@ writing");
    kill(storage);
    assert!(guest.is_silent(), "the guest's fio was at work when it was struck");
    restore(storage);
    guest.end_verification(SIZE_KIB);
}

/// Ends a guest and its disk, and checks what is left.
#[track_caller]
fn end(mut storage: Storage, guest: Guest, names: &[&str]) {
    guest.power_off();
    storage.end();
    check(&storage.file(0));
    for name in names {
        verify_here(&storage.file(0), [name, BLOCK, SIZE]);
    }
}

#[test]
fn a_guest_goes_on_when_either_process_of_a_pair_is_killed() {
    let _others = beside_others();
    let mut storage = Storage::with_images(Kind::Pair, 1);
    let guest = Guest::boot(&storage, 0, Drive::Uri);
    for (name, lost) in [("first", 0), ("second", 1)] {
        strike(
            &mut storage,
            &guest,
            name,
            |storage| storage.servers[lost].kill(),
            |storage| storage.wait_for_owner(1 - lost),
        );
        storage.servers[lost] = storage.serve(lost);
    }
    end(storage, guest, &["first", "second"]);
}

/// Kills the attachment, and then the server; both are started again.
fn goes_on(kind: Kind) {
    let _others = beside_others();
    let mut storage = Storage::with_images(kind, 1);
    let guest = Guest::boot(&storage, 0, Drive::Reconnects(RECONNECT_SECONDS));
    let kill = |storage: &mut Storage| storage.attached[0].kill();
    strike(&mut storage, &guest, "attachment", kill, |storage| storage.attached[0] = storage.attach(0));
    let kill = |storage: &mut Storage| storage.servers[0].kill();
    strike(&mut storage, &guest, "server", kill, |storage| storage.servers[0] = storage.serve(0));
    end(storage, guest, &["attachment", "server"]);
}

#[test]
fn a_guest_on_a_volume_goes_on_when_attachment_and_server_are_killed_and_started_again() {
    goes_on(Kind::Volume);
}

#[test]
fn a_guest_on_a_file_goes_on_when_attachment_and_server_are_killed_and_started_again() {
    goes_on(Kind::NfsFile("nconnect=4"));
}
