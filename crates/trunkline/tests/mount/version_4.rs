//! Tests mounted directories of NFS version 4: the main promises once more, and what such a mount
//! says of itself.

use crate::fixture::{Server, shell, text};
use crate::mounts::MOUNT_TIMEOUT;
use crate::semantics::pattern;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use testkit::Deadline;

const MINORS: [&str; 2] = ["vers=4.1", "vers=4.2"];

#[test]
fn a_directory_of_version_4_holds_what_programs_put_there() {
    let server = Server::start(2);
    for (index, vers) in MINORS.into_iter().enumerate() {
        let mount = server.mount(&format!("m{index}"), &format!("{vers},nolock"));
        let at = |name: &str| mount.path(&format!("{index} {name}"));
        let data = pattern(9 << 20 | 4321, 3);
        fs::write(at("file"), &data).unwrap();
        assert!(fs::read(at("file")).unwrap() == data);
        let file = fs::OpenOptions::new().read(true).write(true).open(at("file")).unwrap();
        file.write_all_at(b"in the middle", 1_000_000).unwrap();
        file.sync_all().unwrap();
        file.set_len(2_000_000).unwrap();
        let mut back = [0; 13];
        file.read_exact_at(&mut back, 1_000_000).unwrap();
        assert_eq!((&back, file.metadata().unwrap().len()), (b"in the middle", 2_000_000));
        drop(file);

        fs::create_dir(at("directory")).unwrap();
        fs::set_permissions(at("directory"), fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(fs::metadata(at("directory")).unwrap().mode() & 0o7777, 0o750);
        fs::rename(at("file"), at("renamed")).unwrap();
        fs::hard_link(at("renamed"), at("link")).unwrap();
        assert_eq!(fs::metadata(at("link")).unwrap().nlink(), 2);
        symlink("renamed", at("symlink")).unwrap();
        assert_eq!(fs::read_link(at("symlink")).unwrap().to_str(), Some("renamed"));
        let exists = fs::OpenOptions::new().write(true).create_new(true).open(at("link"));
        assert_eq!(exists.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        assert!(fs::remove_file(at("directory")).is_err() && fs::remove_dir(at("link")).is_err());
        for name in ["renamed", "link", "symlink"] {
            fs::remove_file(at(name)).unwrap();
        }
        fs::remove_dir(at("directory")).unwrap();
        assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), 0);
    }
}

#[test]
fn two_mounts_of_version_4_see_what_the_other_has_closed() {
    let server = Server::start(2);
    let (one, other) = (server.mount("one", "vers=4.2"), server.mount("other", "vers=4.1"));
    let third = server.mount("third", "vers=3");
    for round in 0..5_u8 {
        let data = pattern(300_000 + usize::from(round) * 1000, round);
        fs::write(one.path("f"), &data).unwrap();
        assert!(fs::read(other.path("f")).unwrap() == data, "round {round}");
        assert!(fs::read(third.path("f")).unwrap() == data, "round {round}");
        fs::write(other.path("f"), &data[..1000]).unwrap();
        assert!(fs::read(one.path("f")).unwrap() == data[..1000], "round {round}");
    }
}

#[test]
fn a_file_removed_while_open_is_read_and_written_until_it_is_closed() {
    let server = Server::start(1);
    let mount = server.mount("m", "vers=4.2");
    let data = pattern(200_000, 9);
    fs::write(mount.path("f"), &data).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(mount.path("f")).unwrap();
    fs::remove_file(mount.path("f")).unwrap();
    file.write_all_at(b"still there", 5).unwrap();
    file.sync_all().unwrap();
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back[..5] == data[..5] && &back[5..16] == b"still there" && back[16..] == data[16..]);
    drop(file);
    assert_eq!(fs::read_dir(mount.path("")).unwrap().count(), 0);
}

#[test]
fn a_thousand_files_are_made_listed_and_removed() {
    let server = Server::start(2);
    let mount = server.mount("m", "vers=4.2,nolock");
    shell(
        &mount.path(""),
        "mkdir d && cd d && for i in $(seq 1000); do echo $i > f$i; done && test $(ls | wc -l) = 1000 && \
         grep -qx 1000 f1000 && test $(ls -l | grep -c f) = 1000 && cd .. && rm -r d && test -z \"$(ls -A)\"",
    );
}

#[test]
fn status_says_which_version_a_mount_speaks() {
    let server = Server::start(1);
    let mount = server.mount("m", "vers=4");
    let status = Command::new(env!("CARGO_BIN_EXE_trunkline")).arg("status").arg(mount.path("")).output();
    let status = text(&status.unwrap().stdout);
    assert!(status.contains("vers=4.2"), "{status}");
}

/// A server that still knows it would wait for it after a restart.
#[test]
fn a_mount_that_ends_leaves_no_client_at_the_server() {
    let server = Server::start_in(1, |directory| {
        let (exported, state) = (directory.join("exported"), directory.join("state"));
        fs::create_dir(&exported).unwrap();
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        format!("dir = \"{}\"\nstate = \"{}\"", exported.display(), state.display())
    });
    let file = recovery_file(&server.path("state"));
    let known = || {
        let lines = fs::read_to_string(&file).unwrap_or_default();
        let count = |kind: &str| lines.lines().filter(|line| line.starts_with(kind)).count();
        count("client ") - count("gone ")
    };
    let stays = server.mount("stays", "vers=4.2,nolock");
    fs::write(stays.path("kept"), "kept").unwrap();
    assert_eq!(known(), 1);
    for vers in MINORS {
        let mount = server.mount(vers, &format!("{vers},nolock"));
        fs::write(mount.path(vers), "data").unwrap();
        assert_eq!(known(), 2);
        // The process of the mount is killed when the mount is dropped, so it ends before.
        shell(Path::new("/"), &format!("umount {}", mount.directory.display()));
        Deadline::wait_until("the client to go", MOUNT_TIMEOUT, || (known() == 1).then_some(()));
    }
    assert_eq!(fs::read(stays.path("kept")).unwrap(), b"kept");
}

/// The file in which a server of one directory keeps its clients.
fn recovery_file(state: &Path) -> std::path::PathBuf {
    let mut of_exports = fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path());
    let found = of_exports.find_map(|path| Some(path.join("nfs4-clients")).filter(|file| file.exists()));
    found.expect("a file of clients")
}
