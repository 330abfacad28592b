//! Exports below other exports. RFC 8881 s7.4 to s7.7

use super::client::{Client, after_sequence, config_with_4, put};
use fs::FileHandle;
use nfs4::op::{self, Args, kind};
use nfs4::{Attributes, Bitmap, Fattr, OwnerId, StateOwner, Status};
use server::{Config, Server, StoreConfig};
use std::net::SocketAddr;
use store::{Caller, MemStore, NewObject, SetAttributes, Store};

/// An upper export that has the directories "full" and "way", and exports below it: on a name that
/// it has, within a directory that it has, on a name that it does not have, and behind one.
fn config() -> Config {
    let mut config = config_with_4();
    let export = config.exports.remove(0);
    let paths = ["/up", "/up/full", "/up/way/inside", "/up/new", "/up/gap/below", "/up/gap/beside"];
    for (fsid, path) in (1..).zip(paths) {
        config.exports.push(server::ExportConfig { path: path.to_owned(), fsid, ..export.clone() });
    }
    config
}

fn start() -> (Server, SocketAddr) {
    let server = Server::start_with(config(), |export| {
        let root = Caller { uid: 0, gid: 0, gids: &[] };
        let store = MemStore::new(1 << 20, 0, 0);
        if export.path == "/up" {
            for name in [&b"full"[..], b"way", b"plain"] {
                let new = NewObject::Directory(SetAttributes::default());
                store.create(root, store.root(), name, new).1.unwrap();
            }
        }
        Some(Box::new(store))
    });
    let server = server.unwrap();
    let address = server.addresses()[0];
    (server, address)
}

/// The names of a directory with their file systems, sorted, read with pages of `dircount` bytes.
fn listed(client: &mut Client, directory: FileHandle, dircount: u32) -> Vec<(String, u64)> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let wanted = Bitmap::of(&[8, 11]);
        let args = op::readdir::Args { cookie, verifier: [0; 8], dircount, maxcount: 4096, wanted };
        let results = client.send(|to| _ = to.push(&put(directory)).push(&Args::ReadDir(args)));
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        let page = reader.expect::<kind::ReadDir>().unwrap().unwrap();
        for entry in page.entries.iter() {
            let fsid = entry.attributes.parse().unwrap().fsid.unwrap();
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), fsid.major));
            cookie = entry.cookie;
        }
        if page.eof {
            names.sort();
            return names;
        }
        assert!(names.len() < 100, "the listing has no end");
    }
}

fn above(client: &mut Client, handle: FileHandle) -> FileHandle {
    let results = client.send(|to| _ = to.push(&put(handle)).push(&Args::LookupP(())).push(&Args::GetFh(())));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    reader.expect::<kind::LookupP>().unwrap().unwrap();
    reader.expect::<kind::GetFh>().unwrap().unwrap().handle
}

#[test]
fn a_listing_has_the_exports_below_each_once() {
    let (_server, address) = start();
    let mut client = Client::new(address, "list");
    let up = client.walk(&["up"]).unwrap();
    let expected = [("full", 2), ("gap", 0), ("new", 4), ("plain", 1), ("way", 1)];
    let expected = expected.map(|(name, fsid)| (name.to_owned(), fsid));
    assert_eq!(listed(&mut client, up, 0), expected);
    assert_eq!(listed(&mut client, up, 1), expected, "one by one");
    let way = client.walk(&["up", "way"]).unwrap();
    assert_eq!(listed(&mut client, way, 0), [("inside".to_owned(), 3)]);
    let gap = client.walk(&["up", "gap"]).unwrap();
    assert_eq!(listed(&mut client, gap, 1), [("below".to_owned(), 5), ("beside".to_owned(), 6)]);
    let plain = client.walk(&["up", "plain"]).unwrap();
    assert_eq!(listed(&mut client, plain, 0), []);
}

#[test]
fn exports_below_are_entered_and_left_by_their_names() {
    let (_server, address) = start();
    let mut client = Client::new(address, "walk");
    let up = client.walk(&["up"]).unwrap();
    let way = client.walk(&["up", "way"]).unwrap();
    let gap = client.walk(&["up", "gap"]).unwrap();
    for (path, parent) in [
        (&["up", "full"][..], up),
        (&["up", "new"], up),
        (&["up", "way", "inside"], way),
        (&["up", "gap", "below"], gap),
    ] {
        let handle = client.walk(path).unwrap();
        assert_eq!(above(&mut client, handle), parent, "{path:?}");
    }
    assert_eq!(above(&mut client, gap), up);
    assert_eq!(above(&mut client, way), up);
    assert_eq!(client.walk(&["up", "plain", "inside"]), Err(Status::NOENT));
    assert_eq!(client.walk(&["up", "inside"]), Err(Status::NOENT));
}

/// The path of a directory is not asked of the store, which may have forgotten it.
#[test]
fn an_export_below_a_directory_is_found_after_a_restart() {
    let (exported, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(exported.path().join("a/b")).unwrap();
    let mut config = config_with_4();
    let export = config.exports.remove(0);
    config.exports.push(server::ExportConfig { path: "/up/a/b/c".to_owned(), fsid: 2, ..export.clone() });
    let store = StoreConfig::Dir {
        path: exported.path().to_owned(),
        state: Some(state.path().to_owned()),
        server_groups: false,
    };
    config.exports.push(server::ExportConfig { path: "/up".to_owned(), fsid: 1, store, ..export });
    let start = || {
        let server = Server::start(config.clone()).unwrap();
        let address = server.addresses()[0];
        (server, address)
    };
    let (server, address) = start();
    let directory = Client::new(address, "before").walk(&["up", "a", "b"]).unwrap();
    drop(server);
    let (_server, address) = start();
    let mut client = Client::new(address, "after");
    let look = Args::Lookup(op::lookup::Args { name: b"c" });
    assert_eq!(client.run(|to| _ = to.push(&put(directory)).push(&look)), Status::OK);
    assert_eq!(listed(&mut client, directory, 0), [("c".to_owned(), 2)]);
}

// RFC 8881 s18.4, s18.9, s18.16, s18.25, s18.26
#[test]
fn a_name_that_leads_to_an_export_is_neither_taken_nor_removed_nor_renamed() {
    let (_server, address) = start();
    let mut client = Client::new(address, "change");
    let up = client.walk(&["up"]).unwrap();
    let mode = Attributes { mode: Some(0o755), ..Attributes::default() };
    let make = |what, name: &'static str| {
        Args::Create(op::create::Args { what, name: name.as_bytes(), attributes: Fattr::all(&mode) })
    };
    let file = make(op::create::What::Fifo, "file");
    assert_eq!(client.run(|to| _ = to.push(&put(up)).push(&file)), Status::OK);
    let file = client.walk(&["up", "file"]).unwrap();
    let owner = StateOwner { client: client.id, owner: OwnerId::new(b"opener").unwrap() };
    for name in ["full", "new", "gap"] {
        let directory = make(op::create::What::Directory, name);
        assert_eq!(client.run(|to| _ = to.push(&put(up)).push(&directory)), Status::EXIST, "{name}");
        let remove = Args::Remove(op::link::RemoveArgs { name: name.as_bytes() });
        assert_eq!(client.run(|to| _ = to.push(&put(up)).push(&remove)), Status::ACCESS, "{name}");
        for (old, new) in [(name, "other"), ("plain", name)] {
            let rename = Args::Rename(op::link::RenameArgs { old: old.as_bytes(), new: new.as_bytes() });
            let status = client.run(|to| _ = to.push(&put(up)).push(&Args::SaveFh(())).push(&rename));
            assert_eq!(status, Status::ACCESS, "{old} to {new}");
        }
        let link = Args::Link(op::link::LinkArgs { name: name.as_bytes() });
        let link = [put(file), Args::SaveFh(()), put(up), link];
        assert_eq!(client.run(|to| link.iter().for_each(|args| _ = to.push(args))), Status::EXIST, "{name}");
        use op::open::How;
        let hows = [
            (How::NoCreate, Status::ISDIR),
            (How::Unchecked(Fattr::all(&mode)), Status::ISDIR),
            (How::Guarded(Fattr::all(&mode)), Status::EXIST),
            (How::ExclusiveWith([1; 8], Fattr::all(&mode)), Status::EXIST),
        ];
        for (how, expected) in hows {
            let claim = op::open::Claim::Name(name.as_bytes());
            let open = Args::Open(op::open::Args { seqid: 0, access: 3, deny: 0, owner, how, claim });
            assert_eq!(client.run(|to| _ = to.push(&put(up)).push(&open)), expected, "{name} {how:?}");
        }
    }
    let remove = Args::Remove(op::link::RemoveArgs { name: b"plain" });
    assert_eq!(client.run(|to| _ = to.push(&put(up)).push(&remove)), Status::OK, "others are as ever");
}
