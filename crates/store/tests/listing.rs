//! Tests directories that change while they are listed, in each store that needs no privileges.
//! `privileged.rs` tests stores that number the names themselves.

#[path = "dir/changing.rs"]
mod changing;
#[path = "dir/fixture.rs"]
mod fixture;

use changing::{Order, has_an_end_and_tells_what_stays_once};
use fixture::{Home, ROOT};
use store::{CreateMode, MemStore, NewObject, SetAttributes, Store};

const SEEDS: u64 = 60;

#[test]
fn a_listing_of_memory_ends_and_returns_each_unchanged_name_once() {
    for seed in 0..SEEDS {
        let store = MemStore::new(16 << 20, 0, 0);
        has_an_end_and_tells_what_stays_once(&store, Order::NewestFirst, seed);
    }
}

#[test]
fn a_listing_of_a_served_directory_returns_each_unchanged_name_once() {
    for seed in 0..SEEDS {
        for home in [Home::new(), Home::in_place(std::env::temp_dir())] {
            has_an_end_and_tells_what_stays_once(&home.open(), Order::OfKernel, seed);
        }
    }
}

#[test]
fn a_listing_of_memory_omits_names_created_after_it_began() {
    let store = MemStore::new(16 << 20, 0, 0);
    let create = |name: String| {
        let new = NewObject::File(CreateMode::Unchecked(SetAttributes::default()));
        store.create(ROOT, store.root(), name.as_bytes(), new).1.unwrap();
    };
    (0..3).for_each(|number| create(format!("old-{number}")));
    let mut told = Vec::new();
    // The first page has both dots and one name.
    let mut cookie = 0;
    loop {
        let mut room = 3;
        let end = store.read_directory(ROOT, store.root(), cookie, &mut |entry| {
            if room == 0 {
                return false;
            }
            room -= 1;
            cookie = entry.cookie;
            told.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        });
        if end.unwrap().eof {
            break;
        }
        create(format!("new-{cookie}"));
    }
    assert_eq!(told, [".", "..", "old-2", "old-1", "old-0"]);
}
