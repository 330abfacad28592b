//! The directories above the exports. RFC 8881 s7.3

use super::client::{Client, after_sequence, config_with_4, put, start_with};
use crate::peer::{Peer, decoded};
use fs::FileHandle;
use nfs3::{DirOpArgs, Procedure, Sattr3, proc};
use nfs4::op::{self, Args, kind};
use nfs4::{Attributes, Bitmap, Fattr, FileType, Fsid, Status};
use server::Config;

/// Two exports in a directory, one below that has no directory of its own, and one that is not for
/// this client.
fn config() -> Config {
    let mut config = config_with_4();
    let export = config.exports.remove(0);
    for (fsid, path) in (1..).zip(["/srv/one", "/srv/two", "/srv/one/nested", "/secret/place"]) {
        config.exports.push(server::ExportConfig { path: path.to_owned(), fsid, ..export.clone() });
    }
    config.exports[3].allow.clear();
    config
}

fn attributes(client: &mut Client, handle: FileHandle) -> (Fsid, u64, u64, FileType) {
    let wanted = Bitmap::of(&[1, 8, 20, 55]);
    let get = Args::GetAttr(op::getattr::Args { wanted });
    let results = client.send(|to| _ = to.push(&put(handle)).push(&get));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    let got = reader.expect::<kind::GetAttr>().unwrap().unwrap().attributes.parse().unwrap();
    (got.fsid.unwrap(), got.fileid.unwrap(), got.mounted_on_fileid.unwrap(), got.file_type.unwrap())
}

fn names(client: &mut Client, handle: FileHandle) -> Vec<String> {
    let wanted = Bitmap::of(&[8, 11, 20]);
    let args = op::readdir::Args { cookie: 0, verifier: [0; 8], dircount: 0, maxcount: 8192, wanted };
    let results = client.send(|to| _ = to.push(&put(handle)).push(&Args::ReadDir(args)));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    let page = reader.expect::<kind::ReadDir>().unwrap().unwrap();
    assert!(page.eof);
    page.entries.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()).collect()
}

#[test]
fn a_client_sees_the_way_to_its_exports_and_nothing_else() {
    let (_server, address) = start_with(config());
    let mut client = Client::new(address, "root");
    let root = client.walk(&[]).unwrap();
    assert_eq!(names(&mut client, root), ["srv"]);
    assert_eq!(client.walk(&["secret"]), Err(Status::NOENT));
    let srv = client.walk(&["srv"]).unwrap();
    assert_eq!(names(&mut client, srv), ["one", "two"]);
    let (fsid, fileid, mounted_on, kind) = attributes(&mut client, srv);
    assert_eq!((mounted_on, kind), (fileid, FileType::Directory));
    let one = client.walk(&["srv", "one"]).unwrap();
    let (of_export, its, on, _) = attributes(&mut client, one);
    assert!(of_export != fsid && its != on && fileid != on, "a mount point");
    // The same handles for everybody, and after a restart.
    assert_eq!(Client::new(address, "another").walk(&["srv"]), Ok(srv));
    let (_server, restarted) = start_with(config());
    assert_eq!(Client::new(restarted, "root").walk(&["srv"]), Ok(srv));
}

#[test]
fn exports_are_left_upwards_and_one_may_be_below_another() {
    let (_server, address) = start_with(config());
    let mut client = Client::new(address, "up");
    let nested = client.walk(&["srv", "one", "nested"]).unwrap();
    assert_eq!(attributes(&mut client, nested).0, Fsid { major: 3, minor: 0 });
    let above = |client: &mut Client, handle| -> Result<FileHandle, Status> {
        let up = [put(handle), Args::LookupP(()), Args::GetFh(())];
        let results = client.send(|to| up.iter().for_each(|args| _ = to.push(args)));
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        reader.expect::<kind::LookupP>().unwrap()?;
        Ok(reader.expect::<kind::GetFh>().unwrap().unwrap().handle)
    };
    let (one, srv, root) =
        (client.walk(&["srv", "one"]).unwrap(), client.walk(&["srv"]).unwrap(), client.walk(&[]).unwrap());
    assert_eq!(above(&mut client, nested), Ok(one));
    assert_eq!(above(&mut client, one), Ok(srv));
    assert_eq!(above(&mut client, srv), Ok(root));
    assert_eq!(above(&mut client, root), Err(Status::NOENT));
}

#[test]
fn nothing_above_the_exports_is_changed() {
    let (_server, address) = start_with(config());
    let mut client = Client::new(address, "change");
    let srv = client.walk(&["srv"]).unwrap();
    let mode = Attributes { mode: Some(0o755), ..Attributes::default() };
    let what = op::create::What::Directory;
    let create = op::create::Args { what, name: b"new", attributes: Fattr::all(&mode) };
    assert_eq!(client.run(|to| _ = to.push(&put(srv)).push(&Args::Create(create))), Status::ROFS);
    let remove = Args::Remove(op::link::RemoveArgs { name: b"one" });
    assert_eq!(client.run(|to| _ = to.push(&put(srv)).push(&remove)), Status::ROFS);
    let rights = Args::Access(op::access::Args { access: fs::Rights(0x1ff) });
    let results = client.send(|to| _ = to.push(&put(srv)).push(&rights));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    let found = reader.expect::<kind::Access>().unwrap().unwrap();
    // To look into it, and to read and list the extended attributes that it has not.
    assert_eq!((found.supported, found.access), (fs::Rights(0x1ff), fs::Rights(0x143)));
    let root = FileHandle::new(b"\x02topsomething").unwrap();
    assert_eq!(client.run(|to| _ = to.push(&put(root))), Status::BADHANDLE);
    let unknown = FileHandle::new(b"\x02top\0\0\0\0\0\0\0\x07").unwrap();
    assert_eq!(client.run(|to| _ = to.push(&put(unknown))), Status::STALE);
}

/// The way out of an export leads through another one, where the caller may not go everywhere.
#[test]
fn a_caller_leaves_an_export_only_by_directories_that_it_may_search() {
    let mut config = config();
    config.exports[2].path = "/srv/one/deep/er/nested".to_owned();
    let (_server, address) = start_with(config);
    let (mut root, mut user) = (Client::new(address, "root"), Client::of_user(address, "user", 1000));
    // By version 3: for version 4 the directories on the way are there already.
    let mut third = Peer::new(address);
    let mut make = |directory, name: &[u8], mode| {
        let attributes = Sattr3 { mode: Some(mode), ..Sattr3::default() };
        let args = proc::mkdir::Args { location: DirOpArgs { directory, name }, attributes };
        let results = third.nfs(Procedure::MkDir, &args);
        let made = decoded::<proc::mkdir::Reply>(&results).into_result().unwrap();
        made.object.unwrap()
    };
    let one = Peer::new(address).mnt(b"/srv/one").unwrap();
    let deep = make(one, b"deep", 0o700);
    make(deep, b"er", 0o755);
    let nested = root.walk(&["srv", "one", "deep", "er", "nested"]).unwrap();
    let above = root.walk(&["srv", "one", "deep", "er"]).unwrap();
    assert_eq!(user.walk(&["srv", "one", "deep", "er"]), Err(Status::ACCESS));
    let up = |client: &mut Client| -> Result<FileHandle, Status> {
        let up = [put(nested), Args::LookupP(()), Args::GetFh(())];
        let results = client.send(|to| up.iter().for_each(|args| _ = to.push(args)));
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        reader.expect::<kind::LookupP>().unwrap()?;
        Ok(reader.expect::<kind::GetFh>().unwrap().unwrap().handle)
    };
    assert_eq!(up(&mut root), Ok(above));
    assert_eq!(up(&mut user), Err(Status::ACCESS));
    let search = Attributes { mode: Some(0o711), ..Attributes::default() };
    let stateid = nfs4::Stateid::ANONYMOUS;
    let args = Args::SetAttr(op::getattr::SetArgs { stateid, attributes: Fattr::all(&search) });
    let deep = root.walk(&["srv", "one", "deep"]).unwrap();
    assert_eq!(root.run(|to| _ = to.push(&put(deep)).push(&args)), Status::OK);
    assert_eq!(up(&mut user), Ok(above));
}
