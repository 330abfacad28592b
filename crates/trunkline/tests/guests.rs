//! Boots virtual machines of QEMU from volumes and from files of an NFS server, as docs/BLOCK.md
//! says: fio verifies what it writes there, servers and attachments are killed meanwhile, and up
//! to six guests are measured beside their host. `cargo xtask test guests` runs these tests.
//!
//! QEMU emulates the processor on every machine, so that the suite is the same on each.

#[path = "guests/boot.rs"]
mod boot;
#[path = "guests/failover.rs"]
mod failover;
#[path = "guests/guest.rs"]
mod guest;
#[path = "guests/image.rs"]
mod image;
#[path = "guests/storage.rs"]
mod storage;
#[path = "guests/table.rs"]
mod table;

use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs a program that must succeed; returns what it printed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

static TURNS: RwLock<()> = RwLock::new(());

/// For a test that other tests may run beside.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    TURNS.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that measures.
fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().unwrap_or_else(PoisonError::into_inner)
}
