//! Tests directories whose names change while a program reads them.

use crate::fixture::{Mounted, mounted};
use crate::group::{Directories, name};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use testkit::free_port_on;

/// Enough names of 200 bytes that a listing takes several replies of the server.
const NAMES: usize = 3_000;
/// One of this many names is not changed.
const ONE_OF: usize = 10;

fn is_kept(name: &str) -> bool {
    name[..5].parse::<usize>().unwrap() % ONE_OF == 0
}

/// Renames most files as soon as their names are returned.
fn rename_all_that_is_told(directory: &Path) {
    for number in 0..NAMES {
        fs::write(directory.join(name(number)), b"").unwrap();
    }
    let mut told: BTreeMap<OsString, usize> = BTreeMap::new();
    for (count, entry) in fs::read_dir(directory).unwrap().enumerate() {
        assert!(count < NAMES, "a listing of {NAMES} names that has no end");
        let name = entry.unwrap().file_name();
        *told.entry(name.clone()).or_default() += 1;
        let name = name.into_string().unwrap();
        if !is_kept(&name) {
            fs::rename(directory.join(&name), directory.join(format!("{name}.bak"))).unwrap();
        }
    }
    let expected: BTreeMap<OsString, usize> = (0..NAMES).map(|number| (name(number).into(), 1)).collect();
    assert!(told == expected, "a name is missing, or was listed twice, or is new");
    let mut left: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort_unstable();
    let suffix = |name: &str| if is_kept(name) { "" } else { ".bak" };
    let expected = (0..NAMES).map(name).map(|name| OsString::from(format!("{name}{}", suffix(&name))));
    assert!(left.into_iter().eq(expected), "another listing returns the new names");
}

#[test]
fn a_listing_whose_names_are_changed_meanwhile_ends() {
    let (_server, mount) = mounted();
    rename_all_that_is_told(&mount.directory);
}

#[test]
fn a_listing_of_a_served_directory_whose_names_are_changed_meanwhile_ends() {
    let directories = Directories::new("renamed");
    directories.on_ramfs();
    let ip = IpAddr::from([127, 0, 0, 1]);
    let port = free_port_on(ip);
    let _server = directories.serve((ip, port).into());
    let mount = Mounted::start("127.0.0.1:/export", directories.at("mnt"), &format!("nolock,port={port}"));
    rename_all_that_is_told(&mount.directory);
}
