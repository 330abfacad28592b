//! Tests defects of messages and the required outcome of each.
//!
//! Arguments that do not decode are answered with GARBAGE_ARGS (RFC 5531 s9). Arguments that decode
//! but are invalid are answered with a status of NFS, so they must decode. Results that do not
//! decode are the server's fault.

use nfs3::proc::{
    create, fsinfo, getattr, lookup, mknod, read, readdir, readdirplus, readlink, setattr, symlink, write,
};
use nfs3::{FileHandle, Outcome, Status, Wire, mount};
use xdr::{Error, Reader, Result};

/// Decodes one type to the end of the message.
type Decode = fn(&[u8]) -> Result<()>;

struct Defect {
    what: &'static str,
    decode: Decode,
    message: Vec<u8>,
    outcome: Result<()>,
}

macro_rules! whole {
    ($type:ty) => {
        |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            <$type as Wire>::decode(&mut reader)?;
            reader.finish()
        }
    };
}

/// Decodes what precedes the data, and leaves the data alone.
macro_rules! head {
    ($type:ty) => {
        |bytes: &[u8]| <$type as Wire>::decode(&mut Reader::new(bytes)).map(drop)
    };
}

/// Part of a message.
enum Part<'a> {
    Word(u32),
    Long(u64),
    Opaque(&'a [u8]),
    /// A length without its bytes.
    Length(u32),
    Zeros(usize),
    Raw(&'a [u8]),
}
use Part::{Length, Long, Opaque, Raw, Word, Zeros};

fn message(parts: &[Part<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = xdr::Writer::new(&mut out);
    for part in parts {
        match part {
            Word(word) | Length(word) => writer.u32(*word),
            Long(long) => writer.u64(*long),
            Opaque(bytes) => writer.opaque(bytes),
            Zeros(words) => (0..*words).for_each(|_| writer.u32(0)),
            Raw(bytes) => writer.bytes(bytes),
        }
    }
    out
}

const HANDLE: &[u8] = &[7; 20];
const LONG: &[u8] = &[b'n'; 5000];

fn bytes(len: usize) -> &'static [u8] {
    &LONG[..len]
}

fn defect(what: &'static str, decode: Decode, parts: &[Part<'_>], outcome: Result<()>) -> Defect {
    Defect { what, decode, message: message(parts), outcome }
}

fn too_long(len: u32, max: u32) -> Result<()> {
    Err(Error::TooLong { len, max })
}

fn short(needed: u64, remaining: usize) -> Result<()> {
    Err(Error::Short { needed, remaining })
}

fn bad(name: &'static str, value: u32) -> Result<()> {
    Err(Error::BadDiscriminant { name, value })
}

fn run(table: Vec<Defect>) {
    for Defect { what, decode, message, outcome } in table {
        assert_eq!(decode(&message), outcome, "{what}");
    }
}

#[test]
fn defects_of_handles_and_names() {
    // RFC 1813 s2.4, s2.5
    let (attr, name, link): (Decode, Decode, Decode) =
        (whole!(getattr::Args), whole!(lookup::Args<'_>), whole!(symlink::Args<'_>));
    let empty_set = || Zeros(6);
    run(vec![
        defect("no arguments", attr, &[], short(4, 0)),
        defect("half a word", attr, &[Raw(&[0, 0])], short(4, 2)),
        defect("an empty handle, which the server answers with BADHANDLE", attr, &[Opaque(&[])], Ok(())),
        defect("the longest handle", attr, &[Opaque(bytes(64))], Ok(())),
        defect("a handle above its bound", attr, &[Opaque(bytes(65))], too_long(65, 64)),
        defect("a handle of 4 GiB", attr, &[Length(u32::MAX)], too_long(u32::MAX, 64)),
        defect("a handle longer than the message", attr, &[Length(32), Raw(&[7; 20])], short(32, 20)),
        defect("a handle without its padding", attr, &[Length(5), Raw(&[7; 5])], short(8, 5)),
        defect("padding that is not zero", attr, &[Length(5), Raw(&[7; 8])], Ok(())),
        defect("bytes after the arguments", attr, &[Opaque(HANDLE), Word(0)], Err(Error::Trailing(4))),
        defect("an empty name, for the server to refuse", name, &[Opaque(HANDLE), Opaque(&[])], Ok(())),
        defect("a name above 255, for NAMETOOLONG", name, &[Opaque(HANDLE), Opaque(bytes(256))], Ok(())),
        defect("a name of any length, likewise", name, &[Opaque(HANDLE), Opaque(bytes(4097))], Ok(())),
        defect(
            "a name longer than the message",
            name,
            &[Opaque(HANDLE), Length(u32::MAX)],
            short(1 << 32, 0),
        ),
        defect(
            "a name with a slash, for the server to refuse",
            name,
            &[Opaque(HANDLE), Opaque(b"a/b")],
            Ok(()),
        ),
        defect("a name with a zero byte, likewise", name, &[Opaque(HANDLE), Opaque(b"a\0b")], Ok(())),
        defect("a name that is not UTF-8", name, &[Opaque(HANDLE), Opaque(&[0xff, 0xfe])], Ok(())),
        defect("a name that is missing", name, &[Opaque(HANDLE)], short(4, 0)),
        defect(
            "a target of any length, for NAMETOOLONG",
            link,
            &[Opaque(HANDLE), Opaque(b"name"), empty_set(), Opaque(bytes(4097))],
            Ok(()),
        ),
    ]);
}

#[test]
fn defects_of_unions_in_arguments() {
    // RFC 4506 s4.3, s4.4; RFC 1813 s2.6, s3.3.2, s3.3.8, s3.3.11
    let (set, how, what): (Decode, Decode, Decode) =
        (whole!(setattr::Args), whole!(create::Args<'_>), whole!(mknod::Args<'_>));
    let handle = || Opaque(HANDLE);
    let name = || Opaque(b"name");
    run(vec![
        defect("nothing to set and no guard", set, &[handle(), Zeros(7)], Ok(())),
        defect("a set_mode that is no boolean", set, &[handle(), Word(2), Zeros(9)], Err(Error::BadBool(2))),
        defect("a set_size without its size", set, &[handle(), Zeros(3), Word(1), Word(0)], short(8, 4)),
        defect("a time_how out of range", set, &[handle(), Zeros(4), Word(3), Zeros(4)], bad("time_how", 3)),
        defect("a time_how of -1", set, &[handle(), Zeros(5), Word(u32::MAX)], bad("time_how", u32::MAX)),
        defect(
            "a billion nanoseconds, for the server to refuse",
            set,
            &[handle(), Zeros(4), Word(2), Word(1), Word(1_000_000_000), Zeros(2)],
            Ok(()),
        ),
        defect("a guard that is no boolean", set, &[handle(), Zeros(6), Word(7)], Err(Error::BadBool(7))),
        defect("a guard without its time", set, &[handle(), Zeros(6), Word(1), Word(1)], short(4, 0)),
        defect(
            "a create mode out of range",
            how,
            &[handle(), name(), Word(3), Zeros(6)],
            bad("createmode3", 3),
        ),
        defect(
            "an exclusive create with half a verifier",
            how,
            &[handle(), name(), Word(2), Word(1)],
            short(8, 4),
        ),
        defect("a type of 0", what, &[handle(), name(), Word(0)], bad("FileType", 0)),
        defect("a type out of range", what, &[handle(), name(), Word(8)], bad("FileType", 8)),
        defect("a MKNOD of a directory, for BADTYPE", what, &[handle(), name(), Word(2)], Ok(())),
        defect("a device without its numbers", what, &[handle(), name(), Word(4), Zeros(6)], short(4, 0)),
    ]);
}

#[test]
fn defects_of_data() {
    // RFC 1813 s3.3.6, s3.3.7
    let (args, reply): (Decode, Decode) = (head!(write::Args), head!(read::Reply));
    let writing = |count, stable, len| [Opaque(HANDLE), Long(0), Word(count), Word(stable), Length(len)];
    let read = |count, eof, len| [Word(0), Word(0), Word(count), Word(eof), Length(len)];
    run(vec![
        defect("an empty WRITE", args, &writing(0, 0, 0), Ok(())),
        defect("a WRITE whose data are not here yet", args, &writing(1 << 20, 2, 1 << 20), Ok(())),
        defect("a WRITE of fewer bytes than it counts", args, &writing(8, 0, 4), short(8, 4)),
        defect("a WRITE of more bytes than it counts", args, &writing(4, 0, 8), too_long(8, 4)),
        defect("a stable_how out of range", args, &writing(4, 3, 4), bad("Stable", 3)),
        defect("a READ reply whose data are not here yet", reply, &read(1 << 20, 0, 1 << 20), Ok(())),
        defect("a READ reply of fewer bytes than it counts", reply, &read(8, 1, 4), short(8, 4)),
        defect("a READ reply of more bytes than it counts", reply, &read(4, 1, 8), too_long(8, 4)),
        defect("an eof that is no boolean", reply, &read(4, 2, 4), Err(Error::BadBool(2))),
    ]);
}

#[test]
fn defects_of_results() {
    let (attr, target, list): (Decode, Decode, Decode) =
        (whole!(getattr::Reply), whole!(readlink::Reply<'_>), whole!(readdir::Reply<'_>));
    let head = message(&[Word(0), Word(0), Zeros(2)]);
    let entry = |cookie| message(&[Word(1), Long(1), Opaque(b"name"), Long(cookie)]);
    run(vec![
        defect("no status", attr, &[], short(4, 0)),
        defect("a status that RFC 1813 does not have", attr, &[Word(12_345)], Ok(())),
        defect("attributes of no type", attr, &[Word(0), Word(9), Zeros(20)], bad("FileType", 9)),
        defect("attributes that end early", attr, &[Word(0), Word(1), Zeros(19)], short(80, 76)),
        defect(
            "a failure with attributes where none belong",
            attr,
            &[Word(5), Zeros(21)],
            Err(Error::Trailing(84)),
        ),
        defect(
            "a target above its bound",
            target,
            &[Word(0), Word(0), Opaque(bytes(4097))],
            too_long(4097, 4096),
        ),
        defect("an empty listing", list, &[Raw(&head), Zeros(2)], Ok(())),
        defect("a listing without an end", list, &[Raw(&head), Raw(&entry(1))], short(4, 0)),
        defect("a listing without its eof", list, &[Raw(&head), Zeros(1)], short(4, 0)),
        defect(
            "a listing whose mark of an entry is no boolean",
            list,
            &[Raw(&head), Raw(&entry(1)), Word(2)],
            Err(Error::BadBool(2)),
        ),
        defect(
            "an entry with a name above the bound",
            list,
            &[Raw(&head), Word(1), Long(1), Opaque(bytes(4097))],
            too_long(4097, 4096),
        ),
    ]);
}

#[test]
fn defects_of_mount() {
    // RFC 1813 s5.1.4, s5.2.1
    let (path, mounted, exports): (Decode, Decode, Decode) =
        (whole!(mount::mnt::Args<'_>), whole!(mount::mnt::Reply), whole!(mount::export::Reply<'_>));
    run(vec![
        defect("the longest path", path, &[Opaque(bytes(1024))], Ok(())),
        defect("a path of any length, for NAMETOOLONG", path, &[Opaque(bytes(1025))], Ok(())),
        defect("a refusal", mounted, &[Word(13)], Ok(())),
        defect("a handle above its bound", mounted, &[Word(0), Opaque(bytes(65)), Word(0)], too_long(65, 64)),
        defect(
            "as many flavors as decode",
            mounted,
            &[Word(0), Opaque(HANDLE), Length(32), Zeros(32)],
            Ok(()),
        ),
        defect("more flavors", mounted, &[Word(0), Opaque(HANDLE), Length(33), Zeros(33)], too_long(33, 32)),
        defect(
            "fewer flavors than counted",
            mounted,
            &[Word(0), Opaque(HANDLE), Length(3), Zeros(2)],
            short(4, 0),
        ),
        defect("no exports", exports, &[Word(0)], Ok(())),
        defect(
            "a group above its bound",
            exports,
            &[Word(1), Opaque(b"/export"), Word(1), Opaque(bytes(256))],
            too_long(256, 255),
        ),
        defect(
            "groups without an end",
            exports,
            &[Word(1), Opaque(b"/export"), Word(1), Opaque(b"a")],
            short(4, 0),
        ),
    ]);
}

#[test]
fn an_unknown_procedure_number_is_recognized() {
    // RFC 5531 s9: PROC_UNAVAIL.
    assert!(nfs3::Procedure::try_from(22).is_err());
    assert!(mount::Procedure::try_from(6).is_err());
}

#[test]
fn a_listing_without_room_for_an_entry_is_too_small() {
    // RFC 1813 s3.3.16 (NFS3ERR_TOOSMALL)
    let mut out = Vec::new();
    let mut writer = readdir::EntryWriter::new(&mut out, [0; 8], 128);
    assert!(!writer.add(&readdir::Entry { fileid: 1, name: b"a", cookie: 1 }));
    assert_eq!(writer.finish(false, None), Status::TOOSMALL);
    assert_eq!(readdir::Reply::decode(&mut Reader::new(&out)), Ok(Outcome::Fail(Status::TOOSMALL, None)));
}

#[test]
fn a_store_that_fails_midway_leaves_only_the_failure() {
    let mut out = b"before".to_vec();
    let mut writer = readdirplus::EntryWriter::new(&mut out, [0; 8], 4096, 4096);
    let handle = FileHandle::new(HANDLE);
    assert!(writer.add(&readdirplus::Entry { fileid: 1, name: b"a", cookie: 1, attributes: None, handle }));
    assert_eq!(writer.fail(Status::BAD_COOKIE, None), Status::BAD_COOKIE);
    assert_eq!(out, [&b"before"[..], &Status::BAD_COOKIE.0.to_be_bytes(), &[0; 4]].concat());
}

#[test]
fn a_dircount_below_one_name_still_gets_one_entry() {
    // RFC 1813 s3.3.17: dircount is a hint; a client that gets no entry cannot continue.
    let mut out = Vec::new();
    let mut writer = readdirplus::EntryWriter::new(&mut out, [0; 8], 0, 4096);
    let entry = |cookie| readdirplus::Entry { fileid: 1, name: b"a", cookie, attributes: None, handle: None };
    assert!(writer.add(&entry(1)));
    assert!(!writer.add(&entry(2)));
    assert_eq!(writer.finish(false, None), Status::OK);
}

#[test]
fn unknown_properties_survive() {
    // RFC 1813 s3.3.19
    let message = message(&[Word(0), Word(0), Zeros(7), Long(1), Zeros(2), Word(u32::MAX)]);
    let reply = fsinfo::Reply::decode(&mut Reader::new(&message)).unwrap();
    assert!(matches!(reply, Outcome::Ok(success) if success.properties == u32::MAX));
}
