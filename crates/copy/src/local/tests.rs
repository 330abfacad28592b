//! A directory that is replaced by a symbolic link during the copy, and a file that is truncated
//! meanwhile.

use super::*;
use crate::{Destination, Options, Origin, Outcome, Progress};
use std::fs;
use std::os::unix::fs::symlink;
use testkit::TempDir;

/// A tree that contains a directory, and a directory elsewhere with a file of the same name.
fn planted() -> TempDir {
    let top = testkit::temp_dir("swapped");
    for (directory, content) in [("tree/below", "its own"), ("elsewhere", "secret")] {
        fs::create_dir_all(top.path().join(directory)).unwrap();
        fs::write(top.path().join(directory).join("file"), content).unwrap();
    }
    top
}

/// Replaces the directory in the tree by a link to the directory elsewhere.
fn swap(top: &Path) {
    fs::rename(top.join("tree/below"), top.join("moved")).unwrap();
    symlink(top.join("elsewhere"), top.join("tree/below")).unwrap();
}

fn only(directory: &dyn Directory) -> Entry {
    let mut entries = directory.list().unwrap();
    let entry = entries.next().unwrap().unwrap();
    assert!(entries.next().is_none());
    entry
}

const SHAPE: TransferOptions = TransferOptions { block_bytes: 4096, depth: 1, spread: false };

fn read(directory: &dyn Directory, entry: &Entry) -> Vec<u8> {
    let block = directory.open(entry, 0, SHAPE).unwrap().next_block().unwrap().unwrap();
    block.buffer[..block.len].to_vec()
}

#[test]
fn a_link_in_the_place_of_a_directory_that_was_listed_is_not_followed() {
    let top = planted();
    let tree = LocalDirectory::new(&top.path().join("tree"));
    let below = only(&tree);
    assert_eq!((below.name.as_slice(), below.attributes.kind), (&b"below"[..], FileKind::Directory));
    swap(top.path());
    let child = tree.child(&below);
    let file = Entry { name: b"file".to_vec(), ..below.clone() };
    assert!(child.list().is_err());
    assert!(child.find(b"file").is_err());
    assert!(child.identity().is_err());
    assert!(child.open(&file, 0, SHAPE).is_err());
    assert!(child.create(b"new", SHAPE).is_err());
    assert!(child.make_directory(b"new", 0o755).is_err());
    assert!(child.remove(b"file").is_err());
    assert!(child.set(None, NewAttributes { mode: Some(0o777), ..NewAttributes::default() }).is_err());
    assert!(top.path().join("elsewhere/file").exists() && !top.path().join("elsewhere/new").exists());
}

#[test]
fn a_directory_that_is_open_stays_itself_whatever_takes_its_place() {
    let top = planted();
    let tree = LocalDirectory::new(&top.path().join("tree"));
    let child = tree.child(&only(&tree));
    let file = only(&*child);
    swap(top.path());
    assert_eq!(read(&*child, &file), b"its own");
    assert_eq!(only(&*child).attributes.size, 7);
    child.make_directory(b"new", 0o755).unwrap();
    child.rename(b"file", b"renamed").unwrap();
    child.set(None, NewAttributes { mode: Some(0o711), ..NewAttributes::default() }).unwrap();
    assert!(top.path().join("moved/new").exists() && top.path().join("moved/renamed").exists());
    let mode = |name: &str| fs::metadata(top.path().join(name)).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode("moved")) & 0o777, 0o711);
    assert_eq!(fs::read_dir(top.path().join("elsewhere")).unwrap().count(), 1);
}

#[test]
fn a_further_name_is_given_to_the_file_that_was_copied_or_to_none() {
    let top = planted();
    let tree = LocalDirectory::new(&top.path().join("tree"));
    let child = tree.child(&only(&tree));
    let link_source = child.link_source(b"file").unwrap();
    tree.link(&link_source, b"second").unwrap();
    assert_eq!(fs::read(top.path().join("tree/second")).unwrap(), b"its own");
    swap(top.path());
    assert!(tree.link(&link_source, b"third").is_err());
    assert!(!top.path().join("tree/third").exists());
}

#[test]
fn what_the_user_named_may_be_a_link() {
    let top = planted();
    symlink(top.path().join("tree"), top.path().join("named")).unwrap();
    assert_eq!(only(&LocalDirectory::new(&top.path().join("named"))).name, b"below");
    for written in ["named/", "named/."] {
        let origin = Origin::local(&top.path().join(written), false).unwrap();
        assert_eq!(origin.kind(), FileKind::Directory);
        assert_eq!(only(&*origin.directory.child(&origin.entry)).name, b"below", "{written}");
    }
    let link = Origin::local(&top.path().join("named"), false).unwrap();
    assert_eq!(link.kind(), FileKind::Symlink);
    let followed = Origin::local(&top.path().join("named"), true).unwrap();
    assert_eq!(followed.name, b"named", "it is called as it was called");
    assert_eq!(only(&*followed.directory.child(&followed.entry)).name, b"below");
}

/// A dry run reports each object before the walk opens a directory; the test replaces the directory
/// at that moment.
#[test]
fn a_walk_ends_with_an_error_where_a_directory_has_become_a_link() {
    let top = planted();
    let origin = Origin::local(&top.path().join("tree"), false).unwrap();
    fs::create_dir(top.path().join("onto")).unwrap();
    let onto = Destination::local(&top.path().join("onto")).unwrap();
    let options = Options {
        recursive: true,
        mode: false,
        umask: 0o022,
        times: false,
        owner: false,
        links: false,
        verify: false,
        resume: false,
        sync: false,
        dry_run: true,
        files_at_once: 1,
        exclude: crate::Exclude::default(),
    };
    let (progress, mut report_cycles) = (Progress::default(), Vec::new());
    let outcome = crate::copy(&[origin], &onto, &options, &progress, false, &mut |line| {
        if line.ends_with("below") {
            swap(top.path());
        }
        report_cycles.push(line.to_owned());
    });
    assert!(!matches!(outcome, Ok(Outcome::Whole)), "{outcome:?}");
    assert!(report_cycles.iter().all(|line| !line.contains("file")), "{report_cycles:?}");
}

#[test]
fn a_file_that_is_cut_after_it_was_listed_is_not_filled_up_with_zeros() {
    let top = planted();
    let directory = LocalDirectory::new(&top.path().join("elsewhere"));
    let entry = only(&directory);
    assert_eq!(read(&directory, &entry), b"secret");
    fs::write(top.path().join("elsewhere/file"), "sec").unwrap();
    let cut = directory.open(&entry, 0, SHAPE).unwrap().next_block();
    assert!(matches!(cut, Err(Error::Changed)), "{cut:?}");
}
