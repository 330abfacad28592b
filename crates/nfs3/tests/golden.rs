//! Tests that messages of other programs decode to their meaning, and encode to the same bytes.
//!
//! The records are described in `golden/README.md`. The expected values are what the programs were
//! told to do, or were read from the bytes by hand; those of FSINFO were compared with the
//! dissection of tshark.

use nfs3::fuzzing::{Which, call_again, reply_again};
use nfs3::proc::{
    access, commit, create, fsinfo, fsstat, getattr, link, lookup, mkdir, mknod, pathconf, read, readdir,
    readdirplus, readlink, remove, rename, rmdir, setattr, symlink, write,
};
use nfs3::{
    FileHandle, FileType, NfsTime, Outcome, Procedure, Sattr3, SetTime, SpecData, Status, Wire, mount,
};
use std::path::PathBuf;
use xdr::Reader;

/// A call and its reply.
struct Golden {
    name: String,
    which: Which,
    args: Vec<u8>,
    results: Vec<u8>,
}

impl Golden {
    fn load(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
        let text = std::fs::read_to_string(&path).unwrap();
        let body: String = text.lines().filter(|line| !line.starts_with('#')).collect();
        let (call, reply) = body.strip_prefix("call").unwrap().split_once("reply").unwrap();
        let (call, reply) = (unhex(call), unhex(reply));
        let mut reader = Reader::new(&call);
        let header = rpc::call::decode(&mut reader).unwrap();
        let number = header.procedure;
        let which = match (header.program, header.version) {
            (nfs3::PROGRAM, nfs3::VERSION) => Which::Nfs(number.try_into().unwrap()),
            (mount::PROGRAM, mount::VERSION) => Which::Mount(number.try_into().unwrap()),
            other => panic!("{name}: program {other:?}"),
        };
        let args = reader.rest().to_vec();
        let mut reader = Reader::new(&reply);
        assert_eq!(rpc::reply::decode(&mut reader).unwrap().xid, header.xid, "{name}");
        Self { name: name.into(), which, args, results: reader.rest().to_vec() }
    }

    fn all() -> Vec<Self> {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let mut names: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".hex").map(str::to_owned))
            .collect();
        names.sort();
        names.iter().map(|name| Self::load(name)).collect()
    }
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Decodes the arguments of a golden call; what remains is the data of a WRITE.
macro_rules! args {
    ($golden:expr, $type:ty) => {
        <$type as Wire>::decode(&mut Reader::new(&$golden.args)).unwrap()
    };
}

/// Decodes a golden reply that succeeded.
macro_rules! success {
    ($golden:expr, $type:ty) => {
        <$type as Wire>::decode(&mut Reader::new(&$golden.results)).unwrap().into_result().unwrap()
    };
}

fn root() -> FileHandle {
    FileHandle::new(&unhex("430000011644a515a4c6ad9af36c016a820cdd010000000000000000")).unwrap()
}

/// nfs-ganesha 4.3 ends a partial listing with a superfluous word, so a client must not insist that
/// a reply ends with its results.
fn trailing_bytes(name: &str) -> usize {
    if name == "readdir_partial" { 4 } else { 0 }
}

const FSID: u64 = 0x6cf3_9aad_c6a4_15a5;

#[test]
fn every_golden_message_encodes_to_the_same_bytes() {
    let all = Golden::all();
    for golden in &all {
        let (name, which) = (&golden.name, golden.which);
        let mut written = Vec::new();
        let payload_len = call_again(which, &golden.args, &mut written).unwrap();
        let (message, _) = golden.args.split_at(golden.args.len() - payload_len);
        assert_eq!(written, message, "{name}");
        assert!(payload_len == 0 || which == Which::Nfs(Procedure::Write), "{name}: bytes left over");
        let mut written = Vec::new();
        let payload_len = reply_again(which, &golden.results, &mut written).unwrap();
        let (message, _) = golden.results.split_at(golden.results.len() - payload_len);
        assert_eq!(written, message, "{name}");
        let readable = which == Which::Nfs(Procedure::Read);
        assert!(payload_len == trailing_bytes(name) || readable, "{name}: bytes left over");
    }
    let missing: Vec<_> =
        Which::all().filter(|which| !all.iter().any(|golden| golden.which == *which)).collect();
    // No available client calls this procedure; it has neither arguments nor results.
    assert_eq!(missing, [Which::Mount(mount::Procedure::UmntAll)]);
}

#[test]
fn no_truncated_golden_message_decodes() {
    for golden in Golden::all() {
        let mut written = Vec::new();
        let left = call_again(golden.which, &golden.args, &mut written).unwrap();
        for cut in (0..golden.args.len() - left).step_by(4) {
            let outcome = call_again(golden.which, &golden.args[..cut], &mut written);
            assert!(matches!(outcome, Err(xdr::Error::Short { .. })), "{} at {cut}", golden.name);
        }
        let left = reply_again(golden.which, &golden.results, &mut written).unwrap();
        for cut in (0..golden.results.len() - left).step_by(4) {
            let outcome = reply_again(golden.which, &golden.results[..cut], &mut written);
            assert!(matches!(outcome, Err(xdr::Error::Short { .. })), "{} at {cut}", golden.name);
        }
    }
}

#[test]
fn attributes_mean_what_the_server_meant() {
    let golden = Golden::load("getattr");
    assert_eq!(args!(golden, getattr::Args), getattr::Args { object: root() });
    let attributes = success!(golden, getattr::Reply).attributes;
    assert_eq!((attributes.file_type, attributes.mode, attributes.nlink), (FileType::Directory, 0o777, 3));
    assert_eq!((attributes.size, attributes.used, attributes.fsid, attributes.fileid), (180, 0, FSID, 1));
    assert_eq!(attributes.atime, NfsTime { seconds: 1_795_237_549, nanoseconds: 400_092_448 });
    let golden = Golden::load("getattr_badhandle");
    assert_eq!(args!(golden, getattr::Args).object.as_slice(), [1; 16]);
    let reply = getattr::Reply::decode(&mut Reader::new(&golden.results)).unwrap();
    assert_eq!(reply, Outcome::Fail(Status::BADHANDLE, ()));
    let golden = Golden::load("access");
    assert_eq!(args!(golden, access::Args), access::Args { object: root(), access: access::ALL });
    assert_eq!(success!(golden, access::Reply).access, access::ALL & !access::EXECUTE);
}

#[test]
fn setting_attributes_means_what_the_client_meant() {
    let set = |name| args!(Golden::load(name), setattr::Args).new_attributes;
    assert_eq!(set("setattr_mode"), Sattr3 { mode: Some(0o600), ..Sattr3::default() });
    assert_eq!(set("setattr_size"), Sattr3 { size: Some(5), ..Sattr3::default() });
    let atime = SetTime::ClientTime(NfsTime { seconds: 1_000_000_000, nanoseconds: 1000 });
    let mtime = SetTime::ClientTime(NfsTime { seconds: 1_000_000_001, nanoseconds: 2000 });
    assert_eq!(set("setattr_times"), Sattr3 { atime, mtime, ..Sattr3::default() });
    let wcc = success!(Golden::load("setattr_size"), setattr::Reply);
    assert_eq!((wcc.before.unwrap().size, wcc.after.unwrap().size), (1000, 5));
}

#[test]
fn names_mean_what_the_peers_meant() {
    let golden = Golden::load("lookup");
    let what = args!(golden, lookup::Args<'_>).what;
    assert_eq!((what.directory, what.name), (root(), &b"copied"[..]));
    let found = success!(golden, lookup::Reply);
    assert_eq!((found.object.as_slice().len(), found.attributes.unwrap().size), (28, 1000));
    assert_eq!(found.directory.unwrap().fileid, 1);
    let golden = Golden::load("lookup_noent");
    let reply = lookup::Reply::decode(&mut Reader::new(&golden.results)).unwrap();
    let Outcome::Fail(Status::NOENT, Some(directory)) = reply else { panic!("{reply:?}") };
    assert_eq!(directory.size, 140);
    let golden = Golden::load("rename");
    let renaming = args!(golden, rename::Args<'_>);
    assert_eq!((renaming.from.name, renaming.to.name), (&b"hard"[..], &b"renamed"[..]));
    let done = success!(golden, rename::Reply);
    assert_eq!((done.from.before.unwrap().size, done.from.after.unwrap().size), (160, 140));
    assert_eq!((done.to.before.unwrap().size, done.to.after.unwrap().size), (40, 60));
    let golden = Golden::load("link");
    assert_eq!(args!(golden, link::Args<'_>).link.name, b"hard");
    assert_eq!(success!(golden, link::Reply).attributes.unwrap().nlink, 2);
    assert_eq!(args!(Golden::load("remove"), remove::Args<'_>).object.name, b"renamed");
    assert_eq!(args!(Golden::load("rmdir"), rmdir::Args<'_>).object.name, b"dir");
    let golden = Golden::load("rmdir_noent");
    let reply = rmdir::Reply::decode(&mut Reader::new(&golden.results)).unwrap();
    assert!(
        matches!(reply, Outcome::Fail(Status::NOENT, wcc) if wcc.before.is_some() && wcc.after.is_some())
    );
}

#[test]
fn new_objects_mean_what_the_peers_meant() {
    let set = |mode| Sattr3 { mode: Some(mode), ..Sattr3::default() };
    let golden = Golden::load("create");
    assert_eq!(args!(golden, create::Args<'_>).how, create::How::Guarded(set(0o660)));
    let created = success!(golden, create::Reply);
    assert_eq!(created.attributes.unwrap().file_type, FileType::Regular);
    assert_eq!(created.directory.before.unwrap().size, 40);
    assert_eq!(args!(Golden::load("mkdir"), mkdir::Args<'_>).attributes, set(0o755));
    let wcc = success!(Golden::load("mkdir"), mkdir::Reply).directory;
    assert!(wcc.before.is_none() && wcc.after.is_some(), "this server returns half of the wcc_data");
    let golden = Golden::load("mkdir_exist");
    assert_eq!(mkdir::Reply::decode(&mut Reader::new(&golden.results)).unwrap().status(), Status::EXIST);
    let golden = Golden::load("symlink");
    assert_eq!(args!(golden, symlink::Args<'_>).target, b"target/of/link");
    assert_eq!(success!(golden, symlink::Reply).attributes.unwrap().file_type, FileType::Symlink);
    assert_eq!(success!(Golden::load("readlink"), readlink::Reply<'_>).target, b"target/of/link");
    assert_eq!(args!(Golden::load("mknod_fifo"), mknod::Args<'_>).what, mknod::What::Fifo(set(0o644)));
    let golden = Golden::load("mknod_device");
    let device = SpecData { major: 1, minor: 3 };
    assert_eq!(args!(golden, mknod::Args<'_>).what, mknod::What::CharacterDevice(set(0o600), device));
    assert_eq!(success!(golden, mknod::Reply).attributes.unwrap().rdev, device);
}

#[test]
fn data_follow_their_heads() {
    let golden = Golden::load("read");
    let asked = args!(golden, read::Args);
    assert_eq!((asked.offset, asked.count), (4094, 16));
    let mut reader = Reader::new(&golden.results);
    let head = read::Reply::decode(&mut reader).unwrap().into_result().unwrap();
    assert_eq!((head.count, head.eof), (9, true));
    assert_eq!(reader.rest(), b"\0\0payload\0\0\0");
    let golden = Golden::load("write");
    let mut reader = Reader::new(&golden.args);
    let head = write::Args::decode(&mut reader).unwrap();
    assert_eq!((head.offset, head.count, head.stable), (4096, 7, write::Stable::Unstable));
    assert_eq!(reader.rest(), b"payload\0");
    let written = success!(golden, write::Reply);
    assert_eq!((written.count, written.committed), (7, write::Stable::Unstable));
    assert_eq!(written.file.after.unwrap().size, 4103);
    let golden = Golden::load("commit");
    assert_eq!((args!(golden, commit::Args).offset, args!(golden, commit::Args).count), (0, 0));
    assert_eq!(success!(golden, commit::Reply).verifier, written.verifier);
}

#[test]
fn listings_mean_what_the_server_meant() {
    let golden = Golden::load("readdir");
    assert_eq!(args!(golden, readdir::Args).count, 4096);
    let listing = success!(golden, readdir::Reply<'_>);
    let names: Vec<_> = listing.entries.iter().map(|entry| str::from_utf8(entry.name).unwrap()).collect();
    assert_eq!(names, [".", "..", "excl", "made", "chr", "fifo", "symlink", "dir", "copied"]);
    assert!(listing.eof);
    assert_eq!(listing.entries.iter().last().unwrap().cookie, 0x7fff_ffff);
    let golden = Golden::load("readdir_partial");
    let listing = success!(golden, readdir::Reply<'_>);
    assert_eq!((listing.entries.iter().count(), listing.eof), (1, false));
    let golden = Golden::load("readdirplus");
    let asked = args!(golden, readdirplus::Args);
    assert_eq!((asked.dircount, asked.maxcount), (8192, 8192));
    let listing = success!(golden, readdirplus::Reply<'_>);
    let entry = listing.entries.iter().last().unwrap();
    assert_eq!((entry.name, entry.attributes.unwrap().size), (&b"copied"[..], 1000));
    assert_eq!(entry.handle.unwrap(), success!(Golden::load("lookup"), lookup::Reply).object);
}

/// Tests that our writer, with the same entries and limits, makes the bytes of the peer.
#[test]
fn the_entry_writer_writes_as_the_peer_does() {
    let golden = Golden::load("readdir");
    let listing = success!(golden, readdir::Reply<'_>);
    let mut out = Vec::new();
    let mut writer =
        readdir::EntryWriter::new(&mut out, listing.verifier, args!(golden, readdir::Args).count);
    assert!(listing.entries.iter().all(|entry| writer.add(&entry)));
    assert_eq!(writer.finish(listing.eof, listing.attributes), Status::OK);
    assert_eq!(out, golden.results);
    let golden = Golden::load("readdirplus");
    let (asked, listing) = (args!(golden, readdirplus::Args), success!(golden, readdirplus::Reply<'_>));
    let mut out = Vec::new();
    let mut writer =
        readdirplus::EntryWriter::new(&mut out, listing.verifier, asked.dircount, asked.maxcount);
    assert!(listing.entries.iter().all(|entry| writer.add(&entry)));
    assert_eq!(writer.finish(listing.eof, listing.attributes), Status::OK);
    assert_eq!(out, golden.results);
}

#[test]
fn file_system_facts_mean_what_the_server_meant() {
    let stat = success!(Golden::load("fsstat"), fsstat::Reply);
    assert_eq!(
        (stat.total_bytes, stat.free_bytes, stat.available_bytes),
        (67_108_864, 67_104_768, 67_104_768)
    );
    assert_eq!((stat.total_files, stat.free_files, stat.available_files), (3_085_302, 3_085_295, 3_085_295));
    let info = success!(Golden::load("fsinfo"), fsinfo::Reply);
    assert_eq!((info.read_max, info.read_preferred, info.read_multiple), (67_108_864, 67_108_864, 512));
    assert_eq!(info.properties, fsinfo::LINK | fsinfo::SYMLINK | fsinfo::HOMOGENEOUS | fsinfo::CAN_SET_TIME);
    let conf = success!(Golden::load("pathconf"), pathconf::Reply);
    assert_eq!((conf.links_max, conf.name_bytes_max), (8, 1024));
    assert!(conf.no_truncation && conf.chown_restricted && !conf.case_insensitive && conf.case_preserving);
}

#[test]
fn mounts_mean_what_the_peers_meant() {
    let golden = Golden::load("mnt");
    assert_eq!(args!(golden, mount::mnt::Args<'_>).path, b"/srv/golden");
    let mounted = success!(golden, mount::mnt::Reply);
    assert_eq!((mounted.root, &mounted.flavors[..]), (root(), &[1][..]));
    let golden = Golden::load("export");
    let exports = mount::export::Reply::decode(&mut Reader::new(&golden.results)).unwrap();
    let export = exports.iter().next().unwrap();
    assert_eq!((exports.iter().count(), export.directory), (1, &b"/srv/golden"[..]));
    assert!(export.groups.iter().map(|group| group.name).eq([b"127.0.0.0/8"]));
    let golden = Golden::load("dump");
    assert!(mount::dump::Reply::decode(&mut Reader::new(&golden.results)).unwrap().is_empty());
    assert_eq!(args!(Golden::load("umnt"), mount::umnt::Args<'_>).path, b"/srv/golden");
}
