//! File systems that have no handles, or no offsets that stay good.

use crate::again::with_own_mounts;
use crate::beneath::many;
use crate::fixture::{Home, ROOT, list};
use crate::listing::{all_are_listed_once, changes_in_between_disturb_nothing};
use std::process::Command;
use store::{Error, Store};

/// An overlay without handles of its own: objects are named by when they were made, and found by the map.
#[test]
fn the_sides_do_not_differ_where_the_file_system_has_no_handles() {
    with_own_mounts("mounts::the_sides_do_not_differ_where_the_file_system_has_no_handles", || {
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

#[test]
fn names_are_numbered_where_offsets_do_not_stay_good() {
    with_own_mounts("mounts::names_are_numbered_where_offsets_do_not_stay_good", || {
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
        assert_eq!(
            of_before,
            Err(Error::BadCookie),
            "a number of an earlier numbering is no place in this one"
        );
    });
}
