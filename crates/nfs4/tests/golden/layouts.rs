//! Layouts and devices.

use crate::support::{args, reply};
use fs::Time;
use nfs4::op::layout::*;
use nfs4::{Args, Array, Bitmap, Range, Reply, Stateid, Status};

const STATEID: Stateid = Stateid { seqid: 3, other: *b"abcdefghijkl" };
/// The bytes of [`STATEID`].
const S: &str = "00000003 'abcdefghijkl'";
const RANGE: Range = Range { offset: 0, length: u64::MAX };
/// The bytes of [`RANGE`].
const R: &str = "0000000000000000 ffffffffffffffff";

// RFC 8881 s18.40
#[test]
fn getdeviceinfo() {
    let device = DeviceArgs {
        device: *b"device-id-01234.",
        layout_type: TYPE_FILES,
        count_max: 4096,
        notify: Bitmap::of(&[1, 2]),
    };
    args(
        Args::GetDeviceInfo(device),
        "'device-id-01234.' # gdia_device_id
         00000001 # gdia_layout_type: LAYOUT4_NFSV4_1_FILES
         00001000 # gdia_maxcount
         00000001 00000006 # gdia_notify_types",
    );
    let success = DeviceSuccess { layout_type: TYPE_FILES, address: b"body", notify: Bitmap::EMPTY };
    reply(
        Reply::GetDeviceInfo(DeviceReply::Device(success)),
        "00000000 # status
         00000001 # da_layout_type
         00000004 'body' # da_addr_body
         00000000 # gdir_notification",
    );
    reply(
        Reply::GetDeviceInfo(DeviceReply::TooSmall(300)),
        "00002715 # NFS4ERR_TOOSMALL, 10005
         0000012c # gdir_mincount",
    );
    reply(Reply::GetDeviceInfo(DeviceReply::Failed(Status::NOENT)), "00000002");
}

// RFC 8881 s18.43
#[test]
fn layoutget() {
    let get = GetArgs {
        signal: false,
        layout_type: TYPE_FILES,
        mode: IoMode::ReadWrite,
        range: RANGE,
        length_min: 4096,
        stateid: STATEID,
        count_max: 512,
    };
    args(
        Args::LayoutGet(get),
        &format!(
            "00000000 # loga_signal_layout_avail
             00000001 # loga_layout_type
             00000002 # loga_iomode: LAYOUTIOMODE4_RW
             {R} # loga_offset, loga_length
             0000000000001000 # loga_minlength
             {S} # loga_stateid
             00000200 # loga_maxcount"
        ),
    );
    let layouts = [Layout { range: RANGE, mode: IoMode::Read, layout_type: TYPE_FILES, body: b"layout" }];
    let success = GetSuccess { return_on_close: true, stateid: STATEID, layouts: Array::from(&layouts) };
    reply(
        Reply::LayoutGet(GetReply::Granted(success)),
        &format!(
            "00000000 # status
             00000001 # logr_return_on_close
             {S} # logr_stateid
             00000001 # logr_layout
             {R} # lo_offset, lo_length
             00000001 # lo_iomode: LAYOUTIOMODE4_READ
             00000001 # loc_type
             00000006 'layout' 0000 # loc_body"
        ),
    );
    reply(
        Reply::LayoutGet(GetReply::TryLater(true)),
        "0000274a # NFS4ERR_LAYOUTTRYLATER, 10058
         00000001 # logr_will_signal_layout_avail",
    );
    reply(
        Reply::LayoutGet(GetReply::Failed(Status::LAYOUTUNAVAILABLE)),
        "0000274b # NFS4ERR_LAYOUTUNAVAILABLE, 10059",
    );
}

// RFC 8881 s18.42
#[test]
fn layoutcommit() {
    let commit = CommitArgs {
        range: RANGE,
        reclaim: false,
        stateid: STATEID,
        last_write: Some(9),
        time_modify: Some(Time { seconds: 7, nanoseconds: 8 }),
        layout_type: TYPE_FILES,
        body: b"",
    };
    args(
        Args::LayoutCommit(commit),
        &format!(
            "{R} # loca_offset, loca_length
             00000000 # loca_reclaim
             {S} # loca_stateid
             00000001 0000000000000009 # loca_last_write_offset
             00000001 0000000000000007 00000008 # loca_time_modify
             00000001 00000000 # loca_layoutupdate"
        ),
    );
    reply(
        Reply::LayoutCommit(Ok(Some(4096))),
        "00000000 # status
         00000001 0000000000001000 # locr_newsize",
    );
    reply(Reply::LayoutCommit(Ok(None)), "00000000 00000000");
}

// RFC 8881 s18.44
#[test]
fn layoutreturn() {
    let returned = [
        (
            Returned::File { range: RANGE, stateid: STATEID, body: b"" },
            format!("00000001 {R} {S} 00000000 # LAYOUTRETURN4_FILE"),
        ),
        (Returned::FileSystem, "00000002 # LAYOUTRETURN4_FSID".to_owned()),
        (Returned::All, "00000003 # LAYOUTRETURN4_ALL".to_owned()),
    ];
    for (returned, text) in returned {
        let args_of = ReturnArgs { reclaim: false, layout_type: TYPE_FILES, mode: IoMode::Any, returned };
        args(
            Args::LayoutReturn(args_of),
            &format!("00000000 00000001 00000003 # lora_reclaim, lora_layout_type, lora_iomode\n{text}"),
        );
    }
    reply(Reply::LayoutReturn(Ok(Some(STATEID))), &format!("00000000 00000001 {S} # lorr_stateid"));
    reply(Reply::LayoutReturn(Ok(None)), "00000000 00000000");
    reply(Reply::LayoutReturn(Err(Status::BAD_STATEID)), "00002729 # 10025");
}
