//! Operations of version 4.2, and extended attributes.

use crate::support::{args, reply};
use fs::Stability;
use nfs4::op::*;
use nfs4::{Args, Array, Bitmap, ChangeInfo, NetAddr, Range, Reply, Stateid, Status};

const STATEID: Stateid = Stateid { seqid: 3, other: *b"abcdefghijkl" };
/// The bytes of [`STATEID`].
const S: &str = "00000003 'abcdefghijkl'";
const RANGE: Range = Range { offset: 16, length: 32 };
/// The bytes of [`RANGE`].
const R: &str = "0000000000000010 0000000000000020";

// RFC 7862 s15.1, s15.4, s15.5
#[test]
fn allocate_deallocate_and_advise() {
    let range = allocate::Args { stateid: STATEID, range: RANGE };
    args(Args::Allocate(range), &format!("{S} {R} # aa_stateid, aa_offset, aa_length"));
    reply(Reply::Allocate(Err(Status::NOSPC)), "0000001c # NFS4ERR_NOSPC, 28");
    args(Args::Deallocate(range), &format!("{S} {R} # da_stateid, da_offset, da_length"));
    reply(Reply::Deallocate(Ok(())), "00000000");
    let advise = io_advise::Args { stateid: STATEID, range: RANGE, hints: Bitmap::of(&[1, 8]) };
    args(Args::IoAdvise(advise), &format!("{S} {R} 00000001 00000102 # iaa_hints: SEQUENTIAL, READ"));
    let success = io_advise::Success { hints: Bitmap::of(&[1]) };
    reply(Reply::IoAdvise(Ok(success)), "00000000 00000001 00000002 # ior_hints");
}

// RFC 7862 s15.2
#[test]
fn copy() {
    let servers = [
        copy::NetLocation::Name(b"host"),
        copy::NetLocation::Url(b"nfs:"),
        copy::NetLocation::Address(NetAddr { netid: b"tcp", address: b"10.0.0.1.8.1" }),
    ];
    let copied = copy::Args {
        source: STATEID,
        target: Stateid::ANONYMOUS,
        source_offset: 1,
        target_offset: 2,
        count: 3,
        consecutive: true,
        synchronous: false,
        source_servers: Array::from(&servers),
    };
    args(
        Args::Copy(copied),
        &format!(
            "{S} # ca_src_stateid
             00*16 # ca_dst_stateid
             0000000000000001 # ca_src_offset
             0000000000000002 # ca_dst_offset
             0000000000000003 # ca_count
             00000001 # ca_consecutive
             00000000 # ca_synchronous
             00000003 # ca_source_server
             00000001 00000004 'host' # NL4_NAME
             00000002 00000004 'nfs:' # NL4_URL
             00000003 00000003 'tcp' 00 0000000c '10.0.0.1.8.1' # NL4_NETADDR"
        ),
    );
    let response = copy::WriteResponse {
        callback_id: Some(STATEID),
        count: 0x1_0000_0000,
        committed: Stability::Unstable,
        verifier: *b"verifier",
    };
    let requirements = copy::Requirements { consecutive: true, synchronous: false };
    reply(
        Reply::Copy(copy::Reply::Done(response, requirements)),
        &format!(
            "00000000 # status
             00000001 {S} # wr_callback_id
             0000000100000000 # wr_count
             00000000 # wr_committed: UNSTABLE4
             'verifier' # wr_writeverf
             00000001 00000000 # cr_requirements"
        ),
    );
    reply(
        Reply::Copy(copy::Reply::CannotMeet(requirements)),
        "0000276e # NFS4ERR_OFFLOAD_NO_REQS, 10094
         00000001 00000000 # cr_requirements",
    );
    reply(Reply::Copy(copy::Reply::Failed(Status::XDEV)), "00000012");
}

// RFC 7862 s15.13
#[test]
fn clone() {
    let cloned =
        copy::CloneArgs { source: STATEID, target: STATEID, source_offset: 1, target_offset: 2, count: 0 };
    args(
        Args::Clone(cloned),
        &format!(
            "{S} {S} # cl_src_stateid, cl_dst_stateid
             0000000000000001 0000000000000002 # cl_src_offset, cl_dst_offset
             0000000000000000 # cl_count"
        ),
    );
    reply(Reply::Clone(Err(Status::INVAL)), "00000016 # NFS4ERR_INVAL, 22");
}

// RFC 7862 s15.8, s15.9
#[test]
fn offload() {
    args(Args::OffloadCancel(offload::CancelArgs { copy: STATEID }), S);
    reply(Reply::OffloadCancel(Ok(())), "00000000");
    args(Args::OffloadStatus(offload::StatusArgs { copy: STATEID }), S);
    let ended = offload::StatusSuccess { count: 5, complete: Some(Status::NOSPC) };
    reply(
        Reply::OffloadStatus(Ok(ended)),
        "00000000 # status
         0000000000000005 # osr_count
         00000001 0000001c # osr_complete: NFS4ERR_NOSPC",
    );
    let running = offload::StatusSuccess { count: 5, complete: None };
    reply(Reply::OffloadStatus(Ok(running)), "00000000 0000000000000005 00000000");
}

// RFC 7862 s15.10
#[test]
fn read_plus() {
    args(
        Args::ReadPlus(read_plus::Args { stateid: STATEID, offset: 1, count: 2 }),
        &format!("{S} 0000000000000001 00000002 # rpa_stateid, rpa_offset, rpa_count"),
    );
    let segments =
        [read_plus::Segment::Hole(RANGE), read_plus::Segment::Data { offset: 48, bytes: b"bytes" }];
    reply(
        Reply::ReadPlus(Ok(read_plus::Success { eof: true, segments: Array::from(&segments) })),
        &format!(
            "00000000 # status
             00000001 # rpr_eof
             00000002 # rpr_contents
             00000001 {R} # NFS4_CONTENT_HOLE, di_offset, di_length
             00000000 0000000000000030 00000005 'bytes' 000000 # NFS4_CONTENT_DATA, d_offset, d_data"
        ),
    );
}

// RFC 7862 s15.11
#[test]
fn seek() {
    for (what, number) in [(seek::What::Data, 0), (seek::What::Hole, 1)] {
        args(
            Args::Seek(seek::Args { stateid: STATEID, offset: 9, what }),
            &format!("{S} 0000000000000009 0000000{number} # sa_stateid, sa_offset, sa_what"),
        );
    }
    reply(
        Reply::Seek(Ok(seek::Success { eof: false, offset: 4096 })),
        "00000000 00000000 0000000000001000 # status, sr_eof, sr_offset",
    );
    reply(Reply::Seek(Err(Status::NXIO)), "00000006 # NFS4ERR_NXIO");
}

// RFC 8276 s8.4
#[test]
fn extended_attributes() {
    let change = ChangeInfo { atomic: false, before: 1, after: 2 };
    let changed = "00000000 00000000 0000000000000001 0000000000000002 # status, change_info4";
    args(Args::GetXattr(xattr::GetArgs { name: b"key" }), "00000003 'key' 00 # gxa_name");
    reply(Reply::GetXattr(Ok(b"value")), "00000000 00000005 'value' 000000 # gxr_value");
    reply(Reply::GetXattr(Err(Status::NOXATTR)), "0000276f # NFS4ERR_NOXATTR, 10095");
    for (option, number) in
        [(xattr::SetOption::Either, 0), (xattr::SetOption::Create, 1), (xattr::SetOption::Replace, 2)]
    {
        args(
            Args::SetXattr(xattr::SetArgs { option, name: b"key", value: b"v" }),
            &format!("0000000{number} 00000003 'key' 00 00000001 'v' 000000 # option, key, value"),
        );
    }
    reply(Reply::SetXattr(Ok(change)), changed);
    reply(Reply::SetXattr(Err(Status::XATTR2BIG)), "00002770 # NFS4ERR_XATTR2BIG, 10096");
    args(
        Args::ListXattrs(xattr::ListArgs { cookie: 4, count_max: 512 }),
        "0000000000000004 00000200 # lxa_cookie, lxa_maxcount",
    );
    let names: [&[u8]; 2] = [b"a", b"bc"];
    reply(
        Reply::ListXattrs(Ok(xattr::ListSuccess { cookie: 6, names: Array::from(&names), eof: true })),
        "00000000 # status
         0000000000000006 # lxr_cookie
         00000002 00000001 'a' 000000 00000002 'bc' 0000 # lxr_names
         00000001 # lxr_eof",
    );
    args(Args::RemoveXattr(xattr::RemoveArgs { name: b"key" }), "00000003 'key' 00 # rxa_name");
    reply(Reply::RemoveXattr(Ok(change)), changed);
}
