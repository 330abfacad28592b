//! Tests listings in small pages, with names created, renamed and removed after each page: such a
//! listing ends, and returns each unchanged name once.

use std::collections::{BTreeMap, BTreeSet};
use store::{Caller, CreateMode, Entry, NewObject, SetAttributes, Store};

const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, gids: &[] };
const NAMES: usize = 60;
const OLDEST: &str = "0";
const PAGE: usize = 3;
/// The most names that are created during a listing, including new names of renamed files.
const NEW_NAMES_MAX: usize = 200;

/// The order in which a store lists.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    /// From the newest name to the oldest: no name is returned twice, and no name that was created
    /// during the listing.
    NewestFirst,
    /// The order of the file system, which may return names created during the listing. No name is
    /// renamed over another, and the oldest name is not changed: tmpfs of some versions of Linux
    /// returns names twice in these two cases.
    OfKernel,
}

/// A reproducible sequence of small pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// A directory that is changed while it is listed.
struct Changing<'a> {
    store: &'a dyn Store,
    order: Order,
    draw: Draw,
    now: Vec<String>,
    untouched: BTreeSet<String>,
    made: usize,
}

impl Changing<'_> {
    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("new-{}", self.made)
    }

    fn create(&self, name: &str) {
        let new = NewObject::File(CreateMode::Unchecked(SetAttributes {
            mode: Some(0o644),
            ..SetAttributes::default()
        }));
        self.store.create(ROOT, self.store.root(), name.as_bytes(), new).1.unwrap();
    }

    fn rename(&mut self, from: &str, to: &str) {
        let root = self.store.root();
        self.store.rename(ROOT, (root, from.as_bytes()), (root, to.as_bytes())).2.unwrap();
        self.now.retain(|name| name != from && name != to);
        self.now.push(to.to_owned());
        self.touch(from);
        self.touch(to);
    }

    fn touch(&mut self, name: &str) {
        self.untouched.remove(name);
    }

    /// Whether the test may change a name.
    fn is_free(&self, name: &str) -> bool {
        self.order == Order::NewestFirst || name != OLDEST
    }

    fn any(&mut self) -> String {
        loop {
            let at = self.draw.below(self.now.len());
            if self.is_free(&self.now[at]) {
                return self.now[at].clone();
            }
        }
    }

    /// Creates, renames or removes a name.
    fn change(&mut self) {
        let name = self.any();
        match self.draw.below(if self.order == Order::NewestFirst { 5 } else { 4 }) {
            0 => {
                let new = self.new_name();
                self.create(&new);
                self.now.push(new);
            }
            1 if self.now.len() > NAMES / 2 => {
                self.store.remove(ROOT, self.store.root(), name.as_bytes()).1.unwrap();
                self.now.retain(|other| *other != name);
                self.touch(&name);
            }
            2 => {
                // Renamed away and back, so an old name is created again.
                let new = self.new_name();
                self.rename(&name, &new);
                self.rename(&new, &name);
            }
            4 => {
                // Renamed over another name, which it replaces.
                let other = self.any();
                if other != name {
                    self.rename(&name, &other);
                }
            }
            _ => {
                let new = self.new_name();
                self.rename(&name, &new);
            }
        }
    }
}

/// Fills the root of an empty store, and lists the root while names change. The seed determines the
/// changes.
pub fn has_an_end_and_tells_what_stays_once(store: &dyn Store, order: Order, seed: u64) {
    let now: Vec<String> = (0..NAMES).map(|number| format!("{number}")).collect();
    let untouched = now.iter().cloned().collect();
    let mut changing = Changing { store, order, draw: Draw(seed), now, untouched, made: 0 };
    changing.now.clone().iter().for_each(|name| changing.create(name));
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    let (mut cookie, mut pages) = (0, 0);
    loop {
        let mut page = Vec::new();
        let end = store.read_directory(ROOT, store.root(), cookie, &mut |entry: Entry<'_>| {
            if page.len() == PAGE {
                return false;
            }
            cookie = entry.cookie;
            page.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        });
        page.iter().for_each(|name| *told.entry(name.clone()).or_default() += 1);
        if end.unwrap().eof {
            break;
        }
        pages += 1;
        let new = if order == Order::OfKernel { NEW_NAMES_MAX } else { 0 };
        assert!(pages * PAGE <= NAMES + 2 + new, "seed {seed}: no end after {pages} pages");
        change_after(&mut changing, &page);
    }
    for dots in [".", ".."] {
        assert_eq!(told.get(dots), Some(&1), "seed {seed}: {dots}");
    }
    for name in &changing.untouched {
        assert_eq!(told.get(name), Some(&1), "seed {seed}: {name}, which was not changed");
    }
    if order == Order::NewestFirst {
        let twice = told.iter().find(|(_, times)| **times > 1);
        assert_eq!(twice, None, "seed {seed}");
    }
}

/// Renames the names of a page, as `mv` of all found files does, or makes other changes. Sometimes
/// another program begins its own listing.
fn change_after(changing: &mut Changing<'_>, page: &[String]) {
    if changing.made + 2 * PAGE > NEW_NAMES_MAX {
        return;
    }
    if changing.draw.below(3) == 0 {
        for name in page {
            if changing.now.contains(name) && changing.is_free(name) {
                let new = changing.new_name();
                changing.rename(name, &new);
            }
        }
    } else {
        (0..PAGE).for_each(|_| changing.change());
    }
    if changing.draw.below(4) == 0 {
        let mut left = PAGE;
        let mut take = |_: Entry<'_>| {
            left -= 1;
            left > 0
        };
        changing.store.read_directory(ROOT, changing.store.root(), 0, &mut take).unwrap();
    }
}
