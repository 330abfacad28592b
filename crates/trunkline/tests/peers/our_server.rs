//! Tests our server with libnfs: a single node, and a group of four nodes that serve the same tree.

use crate::fixtures::{Group, assert_same, pattern};
use crate::libnfs::{Export, Load, cat, copy, list};
use ::fs::SetAttributes;
use client::{Mount, Settings};
use std::collections::BTreeSet;
use std::fs;
use testkit::temp_dir;

const LARGE_BYTES: usize = 64 << 20;
const SMALL_FILES: usize = 200;

/// The export through one of the nodes of the group.
fn through(group: &Group, node: usize) -> Export {
    Export::ours(group.node(node), group.port)
}

fn mount(group: &Group) -> Mount {
    let settings = Settings {
        remotes: group.addresses.iter().copied().map(Into::into).collect(),
        nconnect: 4,
        ..Settings::new(group.node(0), group.port, crate::fixtures::EXPORT)
    };
    Mount::with_settings(settings).unwrap()
}

fn make_directory(mount: &Mount, parent: &[u8], name: &[u8]) {
    let (parent, _) = mount.resolve(parent).unwrap();
    let attributes = SetAttributes::mode(0o755);
    mount.make_directory(parent, name, attributes).unwrap();
}

/// The names at the ends of the lines that nfs-ls prints.
fn names(listing: &str) -> BTreeSet<String> {
    listing.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

fn a_large_file_goes_up_and_down(group: &Group) {
    let place = temp_dir("large");
    let (up, down) = (place.path().join("up"), place.path().join("down"));
    let data = pattern(LARGE_BYTES, 1);
    fs::write(&up, &data).unwrap();
    copy(up.to_str().unwrap(), &through(group, 0).url("/large"));
    copy(&through(group, 1).url("/large"), down.to_str().unwrap());
    assert_same("nfs-cp", &fs::read(&down).unwrap(), &data);
    assert_same("nfs-cat", &cat(&through(group, 2), "/large"), &data);
    let mut ours = vec![0; data.len() + 1];
    let read = mount(group).open(b"/large").unwrap().read_all_at(&mut ours, 0).unwrap();
    assert_same("our client", &ours[..read], &data);
}

fn a_tree_of_small_files_goes_up_and_down(group: &Group) {
    let mount = mount(group);
    make_directory(&mount, b"/", b"tree");
    for directory in ["one", "two", "three"] {
        make_directory(&mount, b"/tree", directory.as_bytes());
    }
    make_directory(&mount, b"/tree/one", b"deep");
    let place = temp_dir("small");
    let (up, down) = (place.path().join("up"), place.path().join("down"));
    let mut wanted = BTreeSet::from(["one", "two", "three", "deep"].map(str::to_owned));
    for number in 0..SMALL_FILES {
        let directory = ["one", "two", "three", "one/deep"][number % 4];
        // Empty files, odd lengths, and some files of several blocks.
        let data = pattern(number * number * 7 % 100_003, number as u64);
        let (name, path) = (format!("file-{number}"), format!("/tree/{directory}/file-{number}"));
        fs::write(&up, &data).unwrap();
        copy(up.to_str().unwrap(), &through(group, number).url(&path));
        copy(&through(group, number + 1).url(&path), down.to_str().unwrap());
        assert_same(&path, &fs::read(&down).unwrap(), &data);
        fs::remove_file(&down).unwrap();
        wanted.insert(name);
    }
    for node in 0..group.addresses.len() {
        let listing = list(&through(group, node), "/tree");
        let found: BTreeSet<String> =
            names(&listing).iter().map(|path| path.rsplit('/').next().unwrap().to_owned()).collect();
        assert_eq!(found, wanted, "nfs-ls through node {node} printed:\n{listing}");
    }
}

#[test]
fn libnfs_copies_a_large_file_to_and_from_a_single_node() {
    a_large_file_goes_up_and_down(&Group::start(1));
}

#[test]
fn libnfs_copies_files_and_trees_to_and_from_a_directory() {
    let group = Group::start_on_disk(2);
    a_large_file_goes_up_and_down(&group);
    a_tree_of_small_files_goes_up_and_down(&group);
}

#[test]
fn libnfs_copies_a_large_file_through_one_node_and_back_through_others() {
    a_large_file_goes_up_and_down(&Group::start(4));
}

#[test]
fn libnfs_copies_and_lists_a_tree_on_a_single_node() {
    a_tree_of_small_files_goes_up_and_down(&Group::start(1));
}

#[test]
fn libnfs_copies_and_lists_a_tree_that_every_node_of_a_group_shows() {
    a_tree_of_small_files_goes_up_and_down(&Group::start(4));
}

/// The content that the load program leaves in a file.
fn stamped(file: u64, bytes: u64) -> Vec<u8> {
    let noise: Vec<u8> = (0..4096_u32).map(|at| (at * 167 + (at >> 8) * 13) as u8).collect();
    let page = |number: u64| [&file.to_le_bytes()[..], &number.to_le_bytes()[..], &noise[16..]].concat();
    (0..bytes / 4096).flat_map(page).collect()
}

fn load<'a>(mode: &'a str, block: u32) -> Load<'a> {
    let depth = if block > 65_536 { 16 } else { 32 };
    Load { mode, block, depth, connections: 2, seconds: "0.5", file_mib: 64 }
}

/// Runs every mode with verification, and compares the result with what our client reads.
fn an_asynchronous_load_finds_its_data_unharmed(block: u32) {
    let group = Group::start(1);
    let export = through(&group, 0);
    load("fill", block).run(&export);
    for mode in ["read", "randread", "write", "randwrite"] {
        let line = load(mode, block).run(&export);
        assert!(line.number("operations") > 0.0 && line.number("iops") > 0.0, "{line:?}");
        let read = if mode.ends_with("read") { line.number("operations") } else { 0.0 };
        assert_eq!(line.number("pages_checked"), read * f64::from(block / 4096), "{line:?}");
    }
    let line = load("check", block).run(&export);
    assert_eq!(line.number("pages_checked"), f64::from(2 * (64 << 20) / 4096), "{line:?}");
    let mount = mount(&group);
    for file in 0..2 {
        let name = format!("/load.{file}");
        let mut found = vec![0; 64 << 20];
        mount.open(name.as_bytes()).unwrap().read_all_at(&mut found, 0).unwrap();
        assert_same(&name, &found, &stamped(file, 64 << 20));
    }
}

#[test]
fn an_asynchronous_libnfs_load_of_1_mib_blocks_reads_back_its_data() {
    an_asynchronous_load_finds_its_data_unharmed(1 << 20);
}

#[test]
fn an_asynchronous_libnfs_load_of_4_kib_blocks_reads_back_its_data() {
    an_asynchronous_load_finds_its_data_unharmed(4096);
}

#[test]
fn the_load_program_accepts_what_our_client_wrote_and_finds_a_damaged_byte() {
    let group = Group::start(1);
    let file = mount(&group).create_file(b"/load.0", 0o644).unwrap();
    file.write_all_at(&stamped(0, 8 << 20), 0).unwrap();
    let check = Load { mode: "check", block: 65_536, depth: 8, connections: 1, seconds: "1", file_mib: 8 };
    check.run(&through(&group, 0));
    file.write_all_at(b"!", (5 << 20) + 100).unwrap();
    let complaint = check.run_to_a_failure(&through(&group, 0));
    assert!(complaint.contains("wrong byte at 5242980"), "{complaint}");
}
