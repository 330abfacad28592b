//! The root file system of the guests, made by `mke2fs -d`, and what is checked in it when a guest
//! has ended.

use crate::run;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;
use testkit::require_program;

/// A disk of a guest: what fio needs, and room for its files.
pub const DISK_BYTES: u64 = 320 << 20;

/// An image of [`DISK_BYTES`], made once: busybox, fio with its libraries, and the first program.
pub fn image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let image = kept("root.img");
        let tree = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        make(tree.path(), &image);
        image
    })
}

/// A file that all tests use. A later run replaces it, because nothing ends after the last test.
pub fn kept(name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guests-{name}"));
    // Usually there is none.
    let _ = std::fs::remove_file(&file);
    file
}

fn make(tree: &Path, image: &Path) {
    for directory in ["bin", "usr/bin", "proc", "sys", "dev", "run", "data"] {
        std::fs::create_dir_all(tree.join(directory)).expect("a directory");
    }
    let copy = |from: &Path, to: &str| {
        let to = tree.join(to.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        testkit::copy_program(from, &to);
    };
    let fio = require_program("fio");
    copy(&require_program("busybox"), "bin/busybox");
    copy(&fio, "usr/bin/fio");
    // A line is `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` of the loader.
    let needed = run(Command::new("ldd").arg(&fio));
    for library in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        copy(Path::new(library), library);
    }
    let init = tree.join("bin/init");
    std::fs::write(&init, include_str!("init.sh")).expect("a file");
    std::fs::set_permissions(&init, Permissions::from_mode(0o755)).expect("its mode");
    std::fs::File::create(image).and_then(|file| file.set_len(DISK_BYTES)).expect("a file");
    run(Command::new(require_program("mke2fs")).args(["-q", "-t", "ext4", "-d"]).arg(tree).arg(image));
}

/// Checks a file system that no guest has mounted any more.
#[track_caller]
pub fn check(disk: &Path) {
    run(Command::new(require_program("e2fsck")).arg("-fn").arg(disk));
}

/// Takes a file that a guest's fio has written out of the disk, and verifies it here.
#[track_caller]
pub fn verify_here(disk: &Path, [name, block, size]: [&str; 3]) {
    let copy = disk.with_extension(name);
    let dump = format!("dump /data/{name} {}", copy.display());
    run(Command::new(require_program("debugfs")).args(["-R", &dump]).arg(disk));
    let mut fio = Command::new(require_program("fio"));
    fio.arg(format!("--name={name}")).arg(format!("--filename={}", copy.display()));
    fio.args([format!("--bs={block}"), format!("--size={size}")]);
    run(fio.args([
        "--rw=randwrite",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_only",
        "--verify_state_save=0",
    ]));
    std::fs::remove_file(copy).expect("a file");
}
