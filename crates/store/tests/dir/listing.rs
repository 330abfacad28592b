//! Tests that all names of a directory are listed once, in pages, while other names are created and
//! removed.

use crate::again::as_root_and_not;
use crate::fixture::{Home, ROOT, list};
use std::collections::BTreeSet;
use store::{Status, Store};

const MANY: usize = 100_000;

pub fn all_are_listed_once(home: &Home, many: usize) {
    let already = std::fs::read_dir(home.path("")).unwrap().count();
    for number in 0..many {
        std::fs::File::create(home.path(&format!("name-{number}"))).unwrap();
    }
    let store = home.open();
    let found = list(&store, store.root(), 777).unwrap();
    let names: BTreeSet<_> = found.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!((found.len(), names.len()), (already + many + 2, already + many + 2));
    let cookies: BTreeSet<_> = found.iter().map(|(_, cookie)| *cookie).collect();
    assert_eq!(cookies.len(), found.len(), "each name has its own cookie");
}

/// Lists the names of [`all_are_listed_once`] and meanwhile removes a quarter of them, listed names
/// and others.
fn what_stays_is_listed_once_while_the_rest_goes(home: &Home, many: usize) {
    let store = home.open();
    let root = store.root();
    let mut kept = vec![0_u8; many];
    let (mut cookie, mut next) = (0, 0);
    loop {
        let mut taken = 0;
        let end = store.read_directory(ROOT, root, cookie, &mut |entry| {
            if taken == 500 {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            let number = std::str::from_utf8(entry.name).ok().and_then(|name| name.strip_prefix("name-"));
            if let Some(number) = number {
                kept[number.parse::<usize>().unwrap()] += 1;
            }
            true
        });
        if end.unwrap().eof {
            break;
        }
        // A listing may go in either direction, so names are removed at both ends.
        for number in (next..next + 250).filter(|number| number * 4 < many) {
            let number = if number % 2 == 0 { number * 2 } else { (many - number) & !1 };
            std::fs::remove_file(home.path(&format!("name-{number}"))).unwrap();
        }
        next += 250;
    }
    let left = std::fs::read_dir(home.path("")).unwrap().count();
    assert!(left <= many * 3 / 4, "names were removed: {left} are left");
    for (number, times) in kept.iter().enumerate() {
        let expected = if number % 2 == 1 { 1..=1 } else { 0..=1 };
        assert!(expected.contains(times), "name-{number} came {times} times");
    }
}

pub fn changes_in_between_disturb_nothing(home: &Home) {
    const NAMES: usize = 500;
    for number in 0..NAMES {
        std::fs::write(home.path(&format!("kept-{number}")), b"").unwrap();
        std::fs::write(home.path(&format!("gone-{number}")), b"").unwrap();
    }
    let store = home.open();
    let root = store.root();
    let mut kept = Vec::new();
    let (mut cookie, mut page) = (0, 0);
    loop {
        let mut taken = 0;
        let end = store.read_directory(ROOT, root, cookie, &mut |entry| {
            if taken == 50 {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            if entry.name.starts_with(b"kept") {
                kept.push(entry.name.to_vec());
            }
            true
        });
        if end.unwrap().eof {
            break;
        }
        for number in page * 20..(page + 1) * 20 {
            let _ = store.remove(ROOT, root, format!("gone-{number}").as_bytes());
            std::fs::write(home.path(&format!("new-{number}")), b"").unwrap();
        }
        page += 1;
    }
    let once: BTreeSet<_> = kept.iter().collect();
    assert_eq!((kept.len(), once.len()), (NAMES, NAMES));
}

#[test]
fn a_hundred_thousand_names_are_listed_once_each() {
    as_root_and_not("listing::a_hundred_thousand_names_are_listed_once_each", || {
        let home = Home::new();
        all_are_listed_once(&home, MANY);
        what_stays_is_listed_once_while_the_rest_goes(&home, MANY);
    });
}

#[test]
fn names_that_are_created_and_removed_do_not_affect_others() {
    as_root_and_not("listing::names_that_are_created_and_removed_do_not_affect_others", || {
        changes_in_between_disturb_nothing(&Home::new());
        changes_in_between_disturb_nothing(&Home::in_place(std::env::temp_dir()));
    });
}

/// Whether the file system's own offsets cannot serve as cookies: those of overlayfs and ramfs
/// count positions, and so did those of tmpfs before Linux 6.6.
fn counts_places(home: &Home) -> bool {
    let kind = rustix::fs::statfs(home.path("")).unwrap().f_type & 0xffff_ffff;
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap().split(['.', '-']).map_while(|n| n.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    match kind {
        0x794c_7630 | 0x8584_58f6 => true,
        0x0102_1994 => version < (6, 6),
        _ => false,
    }
}

fn goes_on_after_a_restart(home: &Home) {
    for number in 0..100 {
        std::fs::write(home.path(&format!("{number}")), b"").unwrap();
    }
    let store = home.open();
    let whole = list(&store, store.root(), 1000).unwrap();
    let (_, cookie) = whole[40];
    drop(store);
    let store = home.open();
    let mut rest = Vec::new();
    let mut take = |entry: store::Entry<'_>| {
        rest.push((entry.name.to_vec(), entry.cookie));
        true
    };
    let went_on = store.read_directory(ROOT, store.root(), cookie, &mut take);
    if counts_places(home) {
        assert_eq!(went_on, Err(Status::BadCookie), "a cookie from before the restart");
    } else {
        assert!(went_on.unwrap().eof);
        assert_eq!(rest, whole[41..]);
    }
    let never_given = store.read_directory(ROOT, store.root(), u64::MAX, &mut |_| true);
    assert_eq!(never_given, Err(Status::BadCookie));
}

#[test]
fn a_listing_continues_after_a_restart_if_the_file_system_permits_it() {
    as_root_and_not("listing::a_listing_continues_after_a_restart_if_the_file_system_permits_it", || {
        goes_on_after_a_restart(&Home::new());
        goes_on_after_a_restart(&Home::in_place(std::env::temp_dir()));
    });
}
