//! Operations on handles, names, attributes and data.

use crate::support::{args, reply};
use fs::{Device, FileHandle, Rights, Stability};
use nfs4::op::*;
use nfs4::types::attributes::number;
use nfs4::{Args, Attributes, Bitmap, ChangeInfo, Fattr, Reply, Stateid, Status};

const STATEID: Stateid = Stateid { seqid: 3, other: *b"abcdefghijkl" };
const CHANGE: ChangeInfo = ChangeInfo { atomic: true, before: 0x10, after: 0x11 };

fn handle() -> FileHandle {
    FileHandle::new(b"fh-01").unwrap()
}

fn mode() -> Attributes<'static> {
    Attributes { mode: Some(0o750), ..Attributes::default() }
}

// RFC 8881 s18.1
#[test]
fn access() {
    args(Args::Access(access::Args { access: Rights(0x1f) }), "0000001f # access");
    reply(
        Reply::Access(Ok(access::Success { supported: Rights(0x1f), access: Rights(0x03) })),
        "00000000 # status
         0000001f # supported
         00000003 # access: READ, LOOKUP",
    );
    reply(Reply::Access(Err(Status::STALE)), "00000046 # NFS4ERR_STALE, 70");
}

// RFC 8881 s18.3
#[test]
fn commit() {
    args(
        Args::Commit(commit::Args { offset: 0x1_0000_0002, count: 4096 }),
        "0000000100000002 # offset
         00001000 # count",
    );
    reply(
        Reply::Commit(Ok(commit::Success { verifier: *b"verifier" })),
        "00000000 # status
         'verifier' # writeverf",
    );
}

// RFC 8881 s18.4
#[test]
fn create() {
    let values = mode();
    let made = |what| create::Args { what, name: b"dir", attributes: Fattr::all(&values) };
    let tail = "00000003 'dir' 00 # objname
                00000002 00000000 00000002 # attrmask: bit 33
                00000004 000001e8 # attr_vals: mode 0750";
    args(Args::Create(made(create::What::Directory)), &format!("00000002 # NF4DIR\n{tail}"));
    args(
        Args::Create(made(create::What::Symlink(b"../a"))),
        &format!("00000005 00000004 '../a' # NF4LNK, linkdata\n{tail}"),
    );
    let device = Device { major: 8, minor: 1 };
    args(
        Args::Create(made(create::What::BlockDevice(device))),
        &format!("00000003 00000008 00000001 # NF4BLK, specdata1, specdata2\n{tail}"),
    );
    args(
        Args::Create(made(create::What::CharacterDevice(device))),
        &format!("00000004 00000008 00000001 # NF4CHR\n{tail}"),
    );
    args(Args::Create(made(create::What::Socket)), &format!("00000006 # NF4SOCK\n{tail}"));
    args(Args::Create(made(create::What::Fifo)), &format!("00000007 # NF4FIFO\n{tail}"));
    args(Args::Create(made(create::What::Other(1))), &format!("00000001 # NF4REG\n{tail}"));
    reply(
        Reply::Create(Ok(create::Success { directory: CHANGE, set: Bitmap::of(&[number::MODE]) })),
        "00000000 # status
         00000001 0000000000000010 0000000000000011 # cinfo: atomic, before, after
         00000002 00000000 00000002 # attrset",
    );
}

// RFC 8881 s18.7
#[test]
fn getattr() {
    args(
        Args::GetAttr(getattr::Args { wanted: Bitmap::of(&[number::TYPE, number::SIZE]) }),
        "00000001 00000012 # attr_request: one word, bits 1 and 4",
    );
    let values = mode();
    reply(
        Reply::GetAttr(Ok(getattr::Success { attributes: Fattr::all(&values) })),
        "00000000 # status
         00000002 00000000 00000002 # attrmask: bit 33
         00000004 000001e8 # attr_vals",
    );
}

// RFC 8881 s18.30
#[test]
fn setattr() {
    let values = Attributes { size: Some(7), ..Attributes::default() };
    args(
        Args::SetAttr(getattr::SetArgs { stateid: STATEID, attributes: Fattr::all(&values) }),
        "00000003 'abcdefghijkl' # stateid: seqid, other
         00000001 00000010 # attrmask: bit 4
         00000008 0000000000000007 # attr_vals",
    );
    reply(
        Reply::SetAttr(getattr::SetReply { status: Status::OK, set: Bitmap::of(&[number::SIZE]) }),
        "00000000 # status
         00000001 00000010 # attrsset",
    );
    reply(
        Reply::SetAttr(getattr::SetReply::failed(Status::ATTRNOTSUPP)),
        "00002730 # NFS4ERR_ATTRNOTSUPP, 10032
         00000000 # attrsset",
    );
}

// RFC 8881 s18.8, s18.19 to s18.21, s18.27, s18.28
#[test]
fn handles() {
    args(Args::PutFh(handles::PutArgs { handle: handle() }), "00000005 'fh-01' 000000 # object");
    reply(Reply::PutFh(Ok(())), "00000000 # status");
    args(Args::PutPubFh(()), "");
    reply(Reply::PutPubFh(Ok(())), "00000000");
    args(Args::PutRootFh(()), "");
    reply(Reply::PutRootFh(Ok(())), "00000000");
    args(Args::GetFh(()), "");
    reply(
        Reply::GetFh(Ok(handles::GetSuccess { handle: handle() })),
        "00000000 # status
         00000005 'fh-01' 000000 # object",
    );
    args(Args::SaveFh(()), "");
    reply(Reply::SaveFh(Err(Status::NOFILEHANDLE)), "00002724 # NFS4ERR_NOFILEHANDLE, 10020");
    args(Args::RestoreFh(()), "");
    reply(Reply::RestoreFh(Ok(())), "00000000");
}

// RFC 8881 s18.9, s18.25, s18.26
#[test]
fn names() {
    args(Args::Link(link::LinkArgs { name: b"new" }), "00000003 'new' 00 # newname");
    let change = "00000001 0000000000000010 0000000000000011 # cinfo";
    reply(Reply::Link(Ok(CHANGE)), &format!("00000000\n{change}"));
    args(Args::Remove(link::RemoveArgs { name: b"gone" }), "00000004 'gone' # target");
    reply(Reply::Remove(Ok(CHANGE)), &format!("00000000\n{change}"));
    args(
        Args::Rename(link::RenameArgs { old: b"a", new: b"bc" }),
        "00000001 'a' 000000 # oldname
         00000002 'bc' 0000 # newname",
    );
    let target = ChangeInfo { atomic: false, before: 1, after: 2 };
    reply(
        Reply::Rename(Ok(link::RenameSuccess { source: CHANGE, target })),
        &format!(
            "00000000 # status
             {change} of the source
             00000000 0000000000000001 0000000000000002 # target_cinfo"
        ),
    );
    reply(Reply::Rename(Err(Status::XDEV)), "00000012 # NFS4ERR_XDEV, 18");
}

// RFC 8881 s18.13, s18.14
#[test]
fn lookup() {
    args(Args::Lookup(lookup::Args { name: b"file" }), "00000004 'file' # objname");
    reply(Reply::Lookup(Err(Status::NOENT)), "00000002 # NFS4ERR_NOENT");
    args(Args::LookupP(()), "");
    reply(Reply::LookupP(Ok(())), "00000000");
}

// RFC 8881 s18.22
#[test]
fn read() {
    args(
        Args::Read(read::Args { stateid: STATEID, offset: 8, count: 1 << 20 }),
        "00000003 'abcdefghijkl' # stateid
         0000000000000008 # offset
         00100000 # count",
    );
    reply(
        Reply::Read(Ok(read::ReplyHead { eof: true, count: 6 })),
        "00000000 # status
         00000001 # eof
         00000006 # length of data, which follow",
    );
    reply(Reply::Read(Err(Status::OPENMODE)), "00002736 # NFS4ERR_OPENMODE, 10038");
}

// RFC 8881 s18.32
#[test]
fn write() {
    let head = write::ArgsHead { stateid: STATEID, offset: 9, stable: Stability::FileSync, count: 3 };
    args(
        Args::Write(head),
        "00000003 'abcdefghijkl' # stateid
         0000000000000009 # offset
         00000002 # stable: FILE_SYNC4
         00000003 # length of data, which follow",
    );
    reply(
        Reply::Write(Ok(write::Success { count: 3, committed: Stability::DataSync, verifier: *b"verifier" })),
        "00000000 # status
         00000003 # count
         00000001 # committed: DATA_SYNC4
         'verifier' # writeverf",
    );
}

// RFC 8881 s18.23
#[test]
fn readdir() {
    args(
        Args::ReadDir(readdir::Args {
            cookie: 5,
            verifier: *b"verifier",
            dircount: 512,
            maxcount: 4096,
            wanted: Bitmap::of(&[number::RDATTR_ERROR, number::FILEID]),
        }),
        "0000000000000005 # cookie
         'verifier' # cookieverf
         00000200 # dircount
         00001000 # maxcount
         00000001 00100800 # attr_request: bits 11 and 20",
    );
    let text = "00000000 # status
         'verifier' # cookieverf
         00000001 # an entry
         0000000000000003 # cookie
         00000001 'a' 000000 # name
         00000001 00100000 00000008 0000000000000007 # attrs: fileid
         00000001 # an entry
         0000000000000004 # cookie
         00000002 'bc' 0000 # name
         00000000 00000000 # attrs: none
         00000000 # no further entry
         00000001 # eof";
    let message = crate::support::bytes(text);
    let decoded = nfs4::Wire::decode(&mut xdr::Reader::new(&message)).unwrap();
    let success: readdir::Success<'_> = readdir::Reply::unwrap(decoded);
    let entries: Vec<_> = success.entries.iter().collect();
    assert_eq!((entries[0].cookie, entries[0].name), (3, b"a".as_slice()));
    assert_eq!(entries[0].attributes.parse().unwrap().fileid, Some(7));
    assert_eq!((entries[1].cookie, entries[1].name), (4, b"bc".as_slice()));
    assert_eq!((entries.len(), success.eof, success.verifier), (2, true, *b"verifier"));
    reply(Reply::ReadDir(Ok(success)), text);
    reply(Reply::ReadDir(Err(Status::BAD_COOKIE)), "00002713 # NFS4ERR_BAD_COOKIE, 10003");
}

// RFC 8881 s18.24
#[test]
fn readlink() {
    args(Args::ReadLink(()), "");
    reply(
        Reply::ReadLink(Ok(readlink::Success { text: b"../target" })),
        "00000000 # status
         00000009 '../target' 000000 # link",
    );
}

// RFC 8881 s18.29, s18.45
#[test]
fn secinfo() {
    args(Args::SecInfo(secinfo::Args { name: b"dir" }), "00000003 'dir' 00 # name");
    args(Args::SecInfoNoName(secinfo::NoNameArgs { style: secinfo::Style::Parent }), "00000001");
    let gss = secinfo::Flavor::Gss {
        mechanism: &[0x2a, 0x86, 0x48],
        qop: 0,
        service: create_session::GssService::Privacy,
    };
    let flavors = [secinfo::Flavor::Plain(1), gss, secinfo::Flavor::Plain(0)];
    let text = "00000000 # status
         00000003 # flavors
         00000001 # AUTH_SYS
         00000006 # RPCSEC_GSS
         00000003 2a8648 00 # oid
         00000000 # qop
         00000003 # RPC_GSS_SVC_PRIVACY
         00000000 # AUTH_NONE";
    reply(Reply::SecInfo(Ok((&flavors).into())), text);
    reply(Reply::SecInfoNoName(Ok((&flavors).into())), text);
}

// RFC 8881 s18.31, s18.15
#[test]
fn verify() {
    let values = mode();
    let text = "00000002 00000000 00000002 # attrmask
                00000004 000001e8 # attr_vals";
    args(Args::Verify(verify::Args { attributes: Fattr::all(&values) }), text);
    args(Args::NVerify(verify::NotArgs { attributes: Fattr::all(&values) }), text);
    reply(Reply::Verify(Err(Status::NOT_SAME)), "0000272b # NFS4ERR_NOT_SAME, 10027");
    reply(Reply::NVerify(Err(Status::SAME)), "00002719 # NFS4ERR_SAME, 10009");
}
