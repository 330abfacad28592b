//! A full file system, one that was made read-only, and a mount within the export.

use crate::again::with_own_mounts;
use crate::fixture::{Home, ROOT, directory, file, list, look, mode, read, write};
use std::path::Path;
use std::process::Command;
use store::{CreateMode, NewObject, Stability, Status, Store, Wait};

fn mount(arguments: &[&str], at: &Path) {
    let status = Command::new("mount").args(arguments).arg(at).status().unwrap();
    assert!(status.success(), "mount {arguments:?}");
}

#[test]
fn a_full_file_system_reports_no_space_until_there_is_room() {
    with_own_mounts("faults::a_full_file_system_reports_no_space_until_there_is_room", || {
        let home = Home::new();
        mount(&["-t", "tmpfs", "-o", "size=1m,nr_inodes=20", "tmpfs"], &home.path(""));
        let store = home.open();
        let root = store.root();
        let made = file(&store, ROOT, root, "f", 0o644);
        let block = vec![7; 256 << 10];
        let mut at = 0;
        let full = loop {
            match store.write(ROOT, made, at, &block, Stability::FileSync, Wait::Allowed).unwrap().1 {
                Ok(written) => at += u64::from(written.count),
                Err(error) => break error,
            }
        };
        assert_eq!(full, Status::NoSpace);
        assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().size, at);
        assert_eq!(store.space().free_bytes, 0);
        store.remove(ROOT, root, b"f").1.unwrap();
        assert_eq!(store.space().total_bytes, store.space().free_bytes, "what was removed is closed");
        let names: Vec<_> = (0..30)
            .map(|number| {
                store
                    .create(
                        ROOT,
                        root,
                        format!("{number}").as_bytes(),
                        NewObject::File(CreateMode::Unchecked(mode(0o644))),
                    )
                    .1
            })
            .collect();
        assert_eq!(names.last(), Some(&Err(Status::NoSpace)), "no room for another object");
    });
}

#[test]
fn a_read_only_file_system_is_read_and_refuses_changes() {
    with_own_mounts("faults::a_read_only_file_system_is_read_and_refuses_changes", || {
        let home = Home::new();
        mount(&["-t", "tmpfs", "tmpfs"], &home.path(""));
        let store = home.open();
        let root = store.root();
        let made = file(&store, ROOT, root, "f", 0o644);
        write(&store, ROOT, made, b"content").unwrap();
        let made_ro = Command::new("mount").args(["-o", "remount,ro"]).arg(home.path("")).status().unwrap();
        if !made_ro.success() {
            // A descriptor that is open for writing holds it off; so does the kernel everywhere.
            drop(store);
            mount(&["-o", "remount,ro"], &home.path(""));
        }
        let store = home.open();
        assert_eq!(read(&store, ROOT, made).unwrap(), b"content");
        assert_eq!(write(&store, ROOT, made, b"more"), Err(Status::ReadOnly));
        let new = store.create(ROOT, root, b"g", NewObject::File(CreateMode::Guarded(mode(0o644)))).1;
        assert_eq!(new, Err(Status::ReadOnly));
        assert_eq!(store.remove(ROOT, root, b"f").1, Err(Status::ReadOnly));
        assert_eq!(store.set_attributes(ROOT, made, &mode(0o600), None).1, Err(Status::ReadOnly));
    });
}

#[test]
fn a_mount_within_the_export_is_not_entered() {
    with_own_mounts("faults::a_mount_within_the_export_is_not_entered", || {
        let home = Home::new();
        let store = home.open();
        let root = store.root();
        for name in ["other", "same"] {
            directory(&store, ROOT, root, name, 0o755);
        }
        mount(&["-t", "tmpfs", "tmpfs"], &home.path("other"));
        std::fs::create_dir(home.beside("elsewhere")).unwrap();
        // On the same file system, so that only the mount distinguishes it.
        mount(&["--bind", home.beside("elsewhere").to_str().unwrap()], &home.path("same"));
        std::fs::write(home.path("other/secret"), b"").unwrap();
        std::fs::write(home.path("same/secret"), b"").unwrap();
        for name in ["other", "same"] {
            assert_eq!(look(&store, root, name), Err(Status::Access));
        }
        let listed = list(&store, root, 100).unwrap();
        assert_eq!(listed.len(), 2, "a mount point is not shown: {listed:?}");
        assert_eq!(store.remove_directory(ROOT, root, b"other").1, Err(Status::Access));
    });
}
