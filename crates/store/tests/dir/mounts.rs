//! Tests file systems without handles, or without offsets that remain valid.

use crate::again::with_own_mounts;
use crate::beneath::many;
use crate::changing::{Order, has_an_end_and_tells_what_stays_once};
use crate::fixture::{Home, ROOT, directory, file, list, look, read, write};
use crate::listing::{all_are_listed_once, changes_in_between_disturb_nothing};
use std::process::Command;
use store::{Status, Store, Wait};

/// Tests an overlay without its own handles: objects are named by their creation time, and found
/// through the map.
#[test]
fn the_store_and_a_directory_without_handles_never_differ() {
    with_own_mounts("mounts::the_store_and_a_directory_without_handles_never_differ", || {
        let overlaid = || {
            let home = Home::new();
            for name in ["lower", "upper", "work"] {
                std::fs::create_dir(home.beside(name)).unwrap();
            }
            let beside = |name| home.beside(name).display().to_string();
            let options = ["lower", "upper", "work"].map(beside);
            let options = format!("lowerdir={},upperdir={},workdir={}", options[0], options[1], options[2]);
            let mut mount = Command::new("mount");
            mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(home.path(""));
            assert!(mount.status().unwrap().success());
            home
        };
        let home = overlaid();
        assert!(home.open().notes()[0].contains("a map in"), "{:?}", home.open().notes());
        many(12, 60, overlaid);
    });
}

/// Tests an overlay of several file systems: the files of a layer have the device of that layer,
/// not that of the overlay, and a number that a file of another layer may have.
#[test]
fn an_overlay_of_layers_on_several_file_systems_is_one_file_system_to_clients() {
    with_own_mounts(
        "mounts::an_overlay_of_layers_on_several_file_systems_is_one_file_system_to_clients",
        || {
            let home = Home::new();
            run(
                &home,
                "mkdir lower top outside; mount -t tmpfs lower lower; mount -t tmpfs top top
                 mkdir lower/d top/upper top/work; echo below > lower/d/f; echo seen > outside/f
                 touch $(seq -f lower/%g 50); rm lower/[0-9]*; echo other > lower/f
                 mount -t overlay overlay -o lowerdir=lower,upperdir=top/upper,workdir=top/work,xino=off export
                 number() { stat -c %i $1; }
                 touch $(seq -f export/%g 100)
                 for name in export/[0-9]*; do
                   if [ $(number $name) = $(number lower/f) ]; then mv $name export/g; else rm $name; fi
                 done
                 echo above > export/g; [ $(number export/g) = $(number lower/f) ]; touch export/crossed; mount --bind outside/f export/crossed",
            );
            let store = home.open();
            let root = store.root();
            let text = |store: &store::DirStore, object| read(store, ROOT, object).unwrap();
            let found = |directory, name| look(&store, directory, name).unwrap().object;
            let (f, g, inner) = (found(root, "f"), found(root, "g"), found(found(root, "d"), "f"));
            assert_eq!(
                [f, g, inner].map(|object| text(&store, object)),
                [b"other\n", b"above\n", b"below\n"]
            );
            assert!(f.fileid != g.fileid && g.fileid != inner.fileid && inner.fileid != f.fileid);
            assert_eq!(look(&store, root, "crossed").unwrap_err(), Status::Access, "another mount");
            let mut names: Vec<_> =
                list(&store, root, 1000).unwrap().into_iter().map(|(name, _)| name).collect();
            names.sort();
            assert_eq!(names, [&b"."[..], b"..", b"d", b"f", b"g"]);
            drop(store);
            let store = home.open();
            assert_eq!(
                [f, g, inner].map(|object| text(&store, object)),
                [b"other\n", b"above\n", b"below\n"]
            );
        },
    );
}

#[test]
fn names_are_numbered_where_offsets_do_not_remain_valid() {
    with_own_mounts("mounts::names_are_numbered_where_offsets_do_not_remain_valid", || {
        let home = Home::new();
        let mounted = Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(home.path("")).status();
        assert!(mounted.unwrap().success());
        changes_in_between_disturb_nothing(&home);
        all_are_listed_once(&home, 2000);
        let store = home.open();
        let (_, cookie) = list(&store, store.root(), 1000).unwrap()[5];
        drop(store);
        let store = home.open();
        let of_before = store.read_directory(ROOT, store.root(), cookie, &mut |_| true);
        assert_eq!(of_before, Err(Status::BadCookie), "a cookie from before the restart");
    });
}

#[test]
fn a_listing_of_numbered_names_ends_whatever_changes() {
    with_own_mounts("mounts::a_listing_of_numbered_names_ends_whatever_changes", || {
        for seed in 0..60 {
            let home = Home::new();
            let mounted = Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(home.path("")).status();
            assert!(mounted.unwrap().success());
            has_an_end_and_tells_what_stays_once(&home.open(), Order::NewestFirst, seed);
            let gone = Command::new("umount").arg(home.path("")).status();
            assert!(gone.unwrap().success());
        }
    });
}

fn run(home: &Home, line: &str) {
    let done = Command::new("sh").args(["-ec", line]).current_dir(home.beside("")).status();
    assert!(done.unwrap().success(), "{line}");
}

/// Mounts an overlay on an overlay: each adds 21 bytes or more to the handle of the one below.
fn mount_overlay_over_overlay(home: &Home) {
    run(
        home,
        "mkdir lower lower/d upper-1 work-1 inner upper-2 work-2
         echo within > lower/d/f; echo gone > lower/gone; echo once > lower/once
         with='index=on,nfs_export=on,xino=on'
         mount -t overlay one -o lowerdir=lower,upperdir=upper-1,workdir=work-1,$with inner
         mount -t overlay two -o lowerdir=inner,upperdir=upper-2,workdir=work-2,$with export",
    );
}

#[test]
fn objects_whose_kernel_handles_do_not_fit_are_found_through_the_map() {
    with_own_mounts("mounts::objects_whose_kernel_handles_do_not_fit_are_found_through_the_map", || {
        let home = Home::new();
        mount_overlay_over_overlay(&home);
        let store = home.open();
        let root = store.root();
        let found = |store: &store::DirStore| {
            let inner = look(store, look(store, root, "d").unwrap().object, "f").unwrap().object;
            [inner, look(store, root, "gone").unwrap().object, look(store, root, "once").unwrap().object]
        };
        let [inner, gone, once] = found(&store);
        for object in [inner, gone, once] {
            // The name has a digest of the kernel's handle, which `name.rs` marks by 2.
            assert_eq!((object.name()[0], object.name().len()), (2, 17), "{object:?}");
        }
        assert_eq!(read(&store, ROOT, inner).unwrap(), b"within\n");
        // This write copies the lower file up; the file is still the same object.
        write(&store, ROOT, inner, b"WITHIN").unwrap();
        assert_eq!(read(&store, ROOT, inner).unwrap(), b"WITHIN\n");
        store.rename(ROOT, (root, b"once"), (root, b"renamed")).2.unwrap();
        let new = file(&store, ROOT, root, "new", 0o644);
        drop(store);

        std::fs::remove_file(home.path("gone")).unwrap();
        let store = home.open();
        assert_eq!(read(&store, ROOT, inner).unwrap(), b"WITHIN\n", "after a restart, before any lookup");
        assert_eq!(read(&store, ROOT, once).unwrap(), b"once\n", "by its new name");
        assert_eq!(read(&store, ROOT, gone), Err(Status::Stale), "deleted while no store was open");
        assert_eq!(look(&store, root, "gone"), Err(Status::NotFound));
        assert!(store.attributes(new, Wait::Allowed).unwrap().is_ok());
        // A different file with the same name is a different object.
        std::fs::remove_file(home.path("d/f")).unwrap();
        std::fs::write(home.path("d/f"), "another").unwrap();
        assert_eq!(read(&store, ROOT, inner), Err(Status::Stale));
        let another = look(&store, look(&store, root, "d").unwrap().object, "f").unwrap().object;
        assert_ne!(another, inner);
        assert_eq!(read(&store, ROOT, another).unwrap(), b"another");
        store.remove(ROOT, root, b"renamed").1.unwrap();
        assert_eq!(read(&store, ROOT, once), Err(Status::Stale), "deleted through the store");
        directory(&store, ROOT, root, "e", 0o755);
    });
}
