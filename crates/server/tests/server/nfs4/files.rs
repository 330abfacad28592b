//! Names, attributes and data. RFC 8881 s18

use super::client::{Client, after_sequence, config_with_4, lookup, put, start, start_with};
use super::latched::Latched;
use crate::peer::pattern;
use nfs4::compound::ReplyReader;
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{Attributes, Bitmap, ChangeInfo, Fattr, FileType, OwnerId, StateOwner, Stateid, Status};
use server::StoreConfig;

fn remove(name: &str) -> Args<'_> {
    Args::Remove(op::link::RemoveArgs { name: name.as_bytes() })
}

fn get(wanted: &[u32]) -> Args<'static> {
    Args::GetAttr(op::getattr::Args { wanted: Bitmap::of(wanted) })
}

/// The results after SEQUENCE and PUTFH.
fn after_put(results: &[u8]) -> ReplyReader<'_, Fore> {
    let mut reader = after_sequence(results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    reader
}

/// What a client does with files, on whatever store.
fn work(client: &mut Client) {
    let export = client.export();
    let (file, open) = client.open("file", 3, 0).unwrap();
    let data = pattern(100_001, 7);
    assert_eq!(client.write(file, open, 3, &data), Ok(100_001));
    assert_eq!(client.read(file, open, 0, 3), Ok((vec![0; 3], false)));
    assert_eq!(client.read(file, open, 3, 1 << 20), Ok((data.clone(), true)));
    assert_eq!(client.read(file, Stateid::ANONYMOUS, 100_003, 10), Ok((data[100_000..].to_vec(), true)));
    // A READ that something follows has its data in the message.
    let read = Args::Read(op::read::Args { stateid: open, offset: 3, count: 5 });
    let results = client.send(|to| _ = to.push(&put(file)).push(&read).push(&get(&[4])));
    let mut reader = after_put(&results);
    let head = reader.expect::<kind::Read>().unwrap().unwrap();
    assert_eq!(reader.data(&head).unwrap(), nfs4::compound::Payload::Here(&data[..5]));
    let size = reader.expect::<kind::GetAttr>().unwrap().unwrap().attributes.parse().unwrap().size;
    assert_eq!(size, Some(100_004));
    reader.finish().unwrap();

    let commit = Args::Commit(op::commit::Args { offset: 0, count: 0 });
    let shorter = Attributes { size: Some(10), mode: Some(0o600), ..Attributes::default() };
    let set = |stateid| {
        move |to: &mut nfs4::compound::RequestWriter<'_, Fore>| {
            let attributes = Fattr::all(&shorter);
            to.push(&put(file)).push(&Args::SetAttr(op::getattr::SetArgs { stateid, attributes }));
        }
    };
    assert_eq!(client.run(|to| _ = to.push(&put(file)).push(&commit)), Status::OK);
    assert_eq!(client.run(set(open)), Status::OK);
    assert_eq!(client.run(set(Stateid { seqid: 1, other: [9; 12] })), Status::BAD_STATEID);
    let results = client.send(|to| _ = to.push(&put(file)).push(&get(&[1, 4, 33, 35, 36])));
    let got = after_put(&results).expect::<kind::GetAttr>().unwrap().unwrap().attributes.parse().unwrap();
    assert_eq!(got.file_type, Some(FileType::Regular));
    assert_eq!((got.size, got.mode, got.numlinks), (Some(10), Some(0o600), Some(1)));

    changes(client, file, open);
    names(client, export);
    assert_eq!(client.close(file, open), Status::OK);
    assert_eq!(client.read(file, open, 0, 1), Err(Status::BAD_STATEID));
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&remove("linked"))), Status::OK);
    assert_eq!(client.walk(&["export", "linked"]), Err(Status::NOENT));
}

/// The change attribute after each of many writes in a row, within a tick of the clock.
fn changes(client: &mut Client, file: fs::FileHandle, open: Stateid) {
    let mut seen = std::collections::HashSet::new();
    for number in 0..50 {
        assert_eq!(client.write(file, open, 0, &[number; 10]), Ok(10));
        let results = client.send(|to| _ = to.push(&put(file)).push(&get(&[3])));
        let got = after_put(&results).expect::<kind::GetAttr>().unwrap().unwrap().attributes.parse().unwrap();
        assert!(seen.insert(got.change.unwrap()), "{number}");
    }
}

/// Directories, links, renames and listings. The export has one file, "file", which is "linked" at
/// the end.
fn names(client: &mut Client, export: fs::FileHandle) {
    let mode = Attributes { mode: Some(0o755), ..Attributes::default() };
    let make = |what, name: &'static str| {
        let attributes = Fattr::all(&mode);
        Args::Create(op::create::Args { what, name: name.as_bytes(), attributes })
    };
    let directory = make(op::create::What::Directory, "directory");
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&directory)), Status::OK);
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&directory)), Status::EXIST);
    let link = make(op::create::What::Symlink(b"to/somewhere"), "symlink");
    let results = client.send(|to| _ = to.push(&put(export)).push(&link).push(&Args::ReadLink(())));
    let mut reader = after_put(&results);
    reader.expect::<kind::Create>().unwrap().unwrap();
    assert_eq!(reader.expect::<kind::ReadLink>().unwrap().unwrap().text, b"to/somewhere");
    assert_eq!(client.walk(&["export", "symlink", "x"]), Err(Status::SYMLINK));
    assert_eq!(client.walk(&["export", "file", "x"]), Err(Status::NOTDIR));

    let hard = Args::Link(op::link::LinkArgs { name: b"linked" });
    let file = client.walk(&["export", "file"]).unwrap();
    let save = Args::SaveFh(());
    assert_eq!(
        client.run(|to| _ = to.push(&put(file)).push(&save).push(&put(export)).push(&hard)),
        Status::OK
    );
    let below = client.walk(&["export", "directory"]).unwrap();
    let rename = Args::Rename(op::link::RenameArgs { old: b"file", new: b"moved" });
    assert_eq!(
        client.run(|to| _ = to.push(&put(export)).push(&save).push(&put(below)).push(&rename)),
        Status::OK
    );
    assert_eq!(client.walk(&["export", "directory", "moved"]), Ok(file));
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&remove("directory"))), Status::NOTEMPTY);
    let up = [put(below), Args::LookupP(()), Args::GetFh(())];
    let results = client.send(|to| up.iter().for_each(|args| _ = to.push(args)));
    let mut reader = after_put(&results);
    reader.expect::<kind::LookupP>().unwrap().unwrap();
    assert_eq!(reader.expect::<kind::GetFh>().unwrap().unwrap().handle, export);

    assert_eq!(listed(client, export, 4096), ["directory", "linked", "symlink"]);
    assert_eq!(listed(client, export, 120), ["directory", "linked", "symlink"], "page by page");
    assert_eq!(client.run(|to| _ = to.push(&put(below)).push(&remove("moved"))), Status::OK);
    for name in ["directory", "symlink"] {
        assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&remove(name))), Status::OK);
    }
}

/// The names in a directory, sorted, read with answers of at most `maxcount` bytes.
fn listed(client: &mut Client, directory: fs::FileHandle, maxcount: u32) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let wanted = Bitmap::of(&[11, 20]);
        let args = op::readdir::Args { cookie, verifier: [0; 8], dircount: 0, maxcount, wanted };
        let results = client.send(|to| _ = to.push(&put(directory)).push(&Args::ReadDir(args)));
        let page = after_put(&results).expect::<kind::ReadDir>().unwrap().unwrap();
        for entry in page.entries.iter() {
            assert!(entry.cookie > 2, "0, 1 and 2 are kept by the standard");
            assert!(entry.attributes.parse().unwrap().fileid.is_some_and(|fileid| fileid != 0));
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            cookie = entry.cookie;
        }
        if page.eof {
            names.sort();
            return names;
        }
    }
}

fn start_odd() -> (server::Server, std::net::SocketAddr) {
    let server = server::Server::start_with(config_with_4(), |_| Some(Latched::odd())).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

// RFC 8881 s18.23.3
#[test]
fn the_reserved_cookies_of_a_file_system_are_sent_as_others() {
    let (_server, address) = start_odd();
    let mut client = Client::new(address, "cookies");
    for name in ["a", "b", "c", "d"] {
        let (file, open) = client.open(name, 3, 0).unwrap();
        assert_eq!(client.close(file, open), Status::OK);
    }
    let export = client.export();
    assert_eq!(listed(&mut client, export, 4096), ["a", "b", "c", "d"]);
    assert_eq!(listed(&mut client, export, 80), ["a", "b", "c", "d"], "one by one");
}

// RFC 8881 s18.16.3
#[test]
fn an_open_whose_truncation_fails_leaves_what_was_open() {
    let (_server, address) = start_odd();
    let (mut client, mut other) = (Client::new(address, "one"), Client::new(address, "other"));
    let (file, open) = client.open("file", 1, 0).unwrap();
    let export = client.export();
    let empty = Attributes { size: Some(0), ..Attributes::default() };
    let how = op::open::How::Unchecked(Fattr::all(&empty));
    let owner = StateOwner { client: client.id, owner: OwnerId::new(b"opener").unwrap() };
    let claim = op::open::Claim::Name(b"file");
    let more = Args::Open(op::open::Args { seqid: 0, access: 3, deny: 1, owner, how, claim });
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&more)), Status::IO);
    assert!(other.open("file", 1, 2).is_ok(), "nobody denies reading, and nobody writes");
    assert_eq!(client.read(file, open, 0, 1), Ok((Vec::new(), true)));
    assert_eq!(client.write(file, open, 0, b"x"), Err(Status::OPENMODE));
    assert_eq!(client.close(file, open), Status::OK);
}

#[test]
fn files_in_memory_are_written_read_and_renamed() {
    let (_server, address) = start();
    work(&mut Client::new(address, "memory"));
    let mut older = Client::new(address, "older");
    older.minor = 1;
    work(&mut older);
}

/// The compounds run in workers.
#[test]
fn files_of_a_directory_are_written_read_and_renamed() {
    let (exported, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut config = config_with_4();
    config.exports[0].store = StoreConfig::Dir {
        path: exported.path().to_owned(),
        state: Some(state.path().to_owned()),
        server_groups: false,
    };
    let (_server, address) = start_with(config);
    work(&mut Client::new(address, "directory"));
    assert_eq!(std::fs::read_dir(exported.path()).unwrap().count(), 0);
}

fn open_args<'a>(client: &Client, name: &'a str, how: op::open::How<'a>) -> Args<'a> {
    let owner = StateOwner { client: client.id, owner: OwnerId::new(b"opener").unwrap() };
    let claim = op::open::Claim::Name(name.as_bytes());
    Args::Open(op::open::Args { seqid: 0, access: 3, deny: 0, owner, how, claim })
}

// RFC 8881 s18.16.3
#[test]
fn a_file_is_created_once_in_each_of_the_ways() {
    let (_server, address) = start();
    let mut client = Client::new(address, "create");
    let export = client.export();
    let mode = Attributes { mode: Some(0o640), ..Attributes::default() };
    let mut open = |name: &str, how: op::open::How<'_>| -> Result<(u32, ChangeInfo, u64), Status> {
        let args = open_args(&client, name, how);
        let results = client.send(|to| _ = to.push(&put(export)).push(&args).push(&get(&[3, 4, 33])));
        let mut reader = after_put(&results);
        let opened = reader.expect::<kind::Open>().unwrap()?;
        let got = reader.expect::<kind::GetAttr>().unwrap().unwrap().attributes.parse().unwrap();
        Ok((got.mode.unwrap(), opened.directory, got.size.unwrap()))
    };
    use op::open::How;
    let given = || Fattr::all(&mode);
    assert_eq!(open("a", How::NoCreate), Err(Status::NOENT));
    let (found, directory, _) = open("a", How::Guarded(given())).unwrap();
    assert_eq!(found, 0o640);
    assert!(directory.atomic && directory.before != directory.after);
    assert_eq!(open("a", How::Guarded(given())), Err(Status::EXIST));
    let (_, directory, _) = open("a", How::Unchecked(given())).unwrap();
    assert_eq!(directory.before, directory.after, "it was there");
    assert_eq!(open("b", How::ExclusiveWith([1; 8], given())).map(|opened| opened.0), Ok(0o640));
    assert_eq!(open("b", How::ExclusiveWith([1; 8], given())).map(|opened| opened.0), Ok(0o640));
    assert_eq!(open("b", How::ExclusiveWith([2; 8], given())), Err(Status::EXIST));
    let size = Attributes { size: Some(3), ..Attributes::default() };
    assert_eq!(open("c", How::ExclusiveWith([2; 8], Fattr::all(&size))), Err(Status::INVAL));
    let names =
        [("", Status::INVAL), (".", Status::BADNAME), ("..", Status::BADNAME), ("x/y", Status::BADCHAR)];
    for (name, status) in names {
        assert_eq!(open(name, How::Guarded(given())), Err(status), "{name}");
    }
    let unknown = Attributes { hidden: Some(true), ..Attributes::default() };
    assert_eq!(open("d", How::Guarded(Fattr::all(&unknown))), Err(Status::ATTRNOTSUPP));
    let named = Attributes { owner: Some(nfs4::Owner::Name(b"root@here")), ..Attributes::default() };
    assert_eq!(open("d", How::Guarded(Fattr::all(&named))), Err(Status::BADOWNER));
}

/// A verifier is no right to a file: on a directory everybody can see it in the file's times.
#[test]
fn an_exclusive_open_of_anothers_file_needs_rights_to_it() {
    let (_server, address) = start();
    let mut root = Client::new(address, "root");
    let export = root.export();
    let open_to_all = Attributes { mode: Some(0o777), ..Attributes::default() };
    let set = Args::SetAttr(op::getattr::SetArgs {
        stateid: Stateid::ANONYMOUS,
        attributes: Fattr::all(&open_to_all),
    });
    assert_eq!(root.run(|to| _ = to.push(&put(export)).push(&set)), Status::OK);
    let private = Attributes { mode: Some(0o600), ..Attributes::default() };
    let open = |client: &mut Client, how: op::open::How<'_>| {
        let args = open_args(client, "lock", how);
        client.run(|to| _ = to.push(&put(export)).push(&args))
    };
    use op::open::How;
    let made = || How::ExclusiveWith([1; 8], Fattr::all(&private));
    assert_eq!(open(&mut root, made()), Status::OK);
    let mut other = Client::of_user(address, "other", 1000);
    assert_eq!(open(&mut other, How::Exclusive([1; 8])), Status::ACCESS);
    assert_eq!(open(&mut root, made()), Status::OK, "a retry of its maker");
}

// RFC 8881 s18.31, s18.15
#[test]
fn verify_and_nverify_compare() {
    let (_server, address) = start();
    let mut client = Client::new(address, "verify");
    let (file, open) = client.open("file", 3, 0).unwrap();
    assert_eq!(client.write(file, open, 0, &[1; 5]), Ok(5));
    let mut run = |values: Attributes<'_>, same: bool| {
        let attributes = Fattr::all(&values);
        let args = if same {
            Args::Verify(op::verify::Args { attributes })
        } else {
            Args::NVerify(op::verify::NotArgs { attributes })
        };
        client.run(|to| _ = to.push(&put(file)).push(&args))
    };
    let size = |size| Attributes { size: Some(size), ..Attributes::default() };
    assert_eq!([run(size(5), true), run(size(6), true)], [Status::OK, Status::NOT_SAME]);
    assert_eq!([run(size(5), false), run(size(6), false)], [Status::SAME, Status::OK]);
    let refused = Attributes { rdattr_error: Some(Status::OK), ..Attributes::default() };
    assert_eq!(run(refused, true), Status::INVAL);
}

// RFC 8881 s16.2.3.1.2
#[test]
fn the_current_stateid_is_that_of_the_operation_before() {
    let (_server, address) = start();
    let mut client = Client::new(address, "current");
    let export = client.export();
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    let args = open_args(&client, "file", op::open::How::Unchecked(Fattr::all(&mode)));
    let stateid = Stateid::CURRENT;
    let write = op::write::ArgsHead { stateid, offset: 0, stable: fs::Stability::FileSync, count: 3 };
    let close = Args::Close(op::close::Args { seqid: 0, open: stateid });
    let results = client.send_with(b"abc", |to| {
        to.push(&put(export)).push(&args).push(&Args::Write(write)).push(&close).push(&close);
    });
    let mut reader = after_put(&results);
    reader.expect::<kind::Open>().unwrap().unwrap();
    assert_eq!(reader.expect::<kind::Write>().unwrap().unwrap().count, 3);
    assert_eq!(reader.expect::<kind::Close>().unwrap(), Ok(Stateid::INVALID));
    assert_eq!(reader.expect::<kind::Close>().unwrap(), Err(Status::BAD_STATEID));
    let read = Args::Read(op::read::Args { stateid, offset: 0, count: 3 });
    let status = client.run(|to| _ = to.push(&put(export)).push(&lookup("file")).push(&read));
    assert_eq!(status, Status::OK, "anonymous");
}

// RFC 8881 s14.4
#[test]
fn names_are_any_bytes_and_the_server_says_so() {
    const NAME: &[u8] = &[0xff, 0xc0, b'x'];
    let (_server, address) = start();
    let mut client = Client::new(address, "bytes");
    let export = client.export();
    let mode = Attributes { mode: Some(0o755), ..Attributes::default() };
    let what = op::create::What::Directory;
    let create = Args::Create(op::create::Args { what, name: NAME, attributes: Fattr::all(&mode) });
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&create)), Status::OK);
    let look = Args::Lookup(op::lookup::Args { name: NAME });
    assert_eq!(client.run(|to| _ = to.push(&put(export)).push(&look)), Status::OK);
    let results = client.send(|to| _ = to.push(&put(export)).push(&get(&[76])));
    let got = after_put(&results).expect::<kind::GetAttr>().unwrap().unwrap();
    assert_eq!(got.attributes.parse().unwrap().fs_charset_cap, Some(1));
}
