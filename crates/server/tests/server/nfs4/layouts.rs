//! Layouts of one stripe, which tell clients of all addresses. RFC 8881 s12, s13

use super::client::{Client, after_sequence, call, config_with_4, encoded, exchange_id, put, start_with};
use crate::peer::{Peer, credential};
use fs::FileHandle;
use nfs4::compound::ReplyReader;
use nfs4::op::exchange_id::flag;
use nfs4::op::layout::files::{self, decode_body};
use nfs4::op::layout::{
    CommitArgs, DeviceArgs, DeviceId, DeviceReply, GetArgs, GetReply, IoMode, ReturnArgs, Returned,
    TYPE_FILES,
};
use nfs4::op::open::access;
use nfs4::op::{self, Args, Fore, kind};
use nfs4::types::attributes::number;
use nfs4::{Bitmap, Range, Stateid, Status, Threshold};
use server::{Config, Server};
use std::net::{IpAddr, SocketAddr};
use testkit::free_port;

const WHOLE: Range = Range { offset: 0, length: u64::MAX };

fn config_at(hosts: u8) -> Config {
    let (mut config, port) = (config_with_4(), free_port());
    config.nodes[0].listen = (1..=hosts).map(|host| (IpAddr::from([127, 0, 0, host]), port).into()).collect();
    config
}

/// A server with so many addresses.
fn start(hosts: u8) -> (Server, SocketAddr) {
    start_with(config_at(hosts))
}

fn get(stateid: Stateid) -> GetArgs {
    let signal = false;
    let (layout_type, mode, range, length_min, count_max) = (TYPE_FILES, IoMode::Read, WHOLE, 0, 4096);
    GetArgs { signal, layout_type, mode, range, length_min, stateid, count_max }
}

/// LAYOUTGET: the stateid of the layout and its device.
fn layout(client: &mut Client, file: FileHandle, args: GetArgs) -> Result<(Stateid, DeviceId), Status> {
    let results = client.send(|to| _ = to.push(&put(file)).push(&Args::LayoutGet(args)));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    match reader.expect::<kind::LayoutGet>().unwrap() {
        GetReply::Granted(granted) => {
            let [layout] = granted.layouts.iter().collect::<Vec<_>>()[..] else { panic!("{granted:?}") };
            assert_eq!((layout.range, layout.mode, layout.layout_type), (WHOLE, args.mode, TYPE_FILES));
            let body: files::Layout<'_> = decode_body(layout.body).unwrap();
            assert!(body.util & files::STRIPE_UNIT_MASK >= 1 << 20 && body.handles.iter().next().is_none());
            assert_ne!(body.util & files::COMMIT_THROUGH_METADATA_SERVER, 0);
            Ok((granted.stateid, body.device))
        }
        refused => Err(refused.status()),
    }
}

/// GETDEVICEINFO: the network id and the addresses, or the failure.
fn device(client: &mut Client, args: DeviceArgs) -> Result<Vec<(String, String)>, (Status, u32)> {
    let results = client.send(|to| _ = to.push(&Args::GetDeviceInfo(args)));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match after_sequence(&results).expect::<kind::GetDeviceInfo>().unwrap() {
        DeviceReply::Device(success) if args.count_max == 0 => {
            assert_eq!(success.address, [0; 0]);
            Ok(Vec::new())
        }
        DeviceReply::Device(success) => {
            let body: files::Device<'_> = decode_body(success.address).unwrap();
            assert_eq!(body.stripe_indices.iter().collect::<Vec<_>>(), [0]);
            let [server] = body.servers.iter().collect::<Vec<_>>()[..] else { panic!("{body:?}") };
            Ok(server.iter().map(|at| (text(at.netid), text(at.address))).collect())
        }
        DeviceReply::TooSmall(needed) => Err((Status::TOOSMALL, needed)),
        DeviceReply::Failed(status) => Err((status, 0)),
    }
}

fn returned(client: &mut Client, file: FileHandle, stateid: Stateid) -> Status {
    let (returned, mode) = (Returned::File { range: WHOLE, stateid, body: &[] }, IoMode::Any);
    let args = ReturnArgs { reclaim: false, layout_type: TYPE_FILES, mode, returned };
    client.run(|to| _ = to.push(&put(file)).push(&Args::LayoutReturn(args)))
}

fn layout_types(client: &mut Client, handle: FileHandle) -> Vec<u32> {
    let wanted = Bitmap::of(&[number::FS_LAYOUT_TYPES]);
    let results =
        client.send(|to| _ = to.push(&put(handle)).push(&Args::GetAttr(op::getattr::Args { wanted })));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    let got = reader.expect::<kind::GetAttr>().unwrap().unwrap().attributes.parse().unwrap();
    got.fs_layout_types.unwrap().iter().collect()
}

fn roles(address: SocketAddr) -> u32 {
    let mut peer = Peer::with_credential(address, credential(1, b"roles", 0, 0));
    let results = call(&mut peer, &encoded(2, |to| _ = to.push(&exchange_id(b"roles", 1))));
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    reader.expect::<kind::ExchangeId>().unwrap().unwrap().flags & flag::MASK_PNFS
}

#[test]
fn a_client_with_a_layout_learns_all_addresses() {
    let (_server, address) = start(3);
    assert_eq!(roles(address), flag::USE_PNFS_MDS | flag::USE_PNFS_DS);
    let mut client = Client::new(address, "layouts");
    let (export, root) = (client.export(), client.walk(&[]).unwrap());
    assert_eq!(layout_types(&mut client, export), [TYPE_FILES]);
    assert_eq!(layout_types(&mut client, root), [0; 0], "nothing above the exports is a file");
    let (file, open) = client.open("f", access::BOTH, 0).unwrap();
    let (first, id) = layout(&mut client, file, get(open)).unwrap();
    assert_eq!(first.seqid, 1);
    let more = GetArgs { mode: IoMode::ReadWrite, ..get(first) };
    assert_eq!(layout(&mut client, file, more), Ok((Stateid { seqid: 2, ..first }, id)));
    let ask = DeviceArgs { device: id, layout_type: TYPE_FILES, count_max: 4096, notify: Bitmap::default() };
    let [high, low] = address.port().to_be_bytes();
    let expected = (1..=3).map(|host| ("tcp".to_owned(), format!("127.0.0.{host}.{high}.{low}")));
    let expected: Vec<_> = expected.collect();
    assert_eq!(device(&mut client, ask), Ok(expected.clone()));
    let (status, needed) = device(&mut client, DeviceArgs { count_max: 20, ..ask }).unwrap_err();
    assert_eq!(status, Status::TOOSMALL);
    assert_eq!(device(&mut client, DeviceArgs { count_max: needed - 1, ..ask }), Err((status, needed)));
    assert_eq!(device(&mut client, DeviceArgs { count_max: needed, ..ask }), Ok(expected));
    assert_eq!(device(&mut client, DeviceArgs { count_max: 0, ..ask }), Ok(Vec::new()));
    let (range, layout_type) = (Range { offset: 0, length: 1 }, TYPE_FILES);
    let (last_write, time_modify) = (Some(0), None);
    let args =
        CommitArgs { range, reclaim: false, stateid: first, last_write, time_modify, layout_type, body: &[] };
    assert_eq!(client.run(|to| _ = to.push(&put(file)).push(&Args::LayoutCommit(args))), Status::OK);
    let args = CommitArgs { reclaim: true, ..args };
    assert_eq!(client.run(|to| _ = to.push(&put(file)).push(&Args::LayoutCommit(args))), Status::NO_GRACE);
    assert_eq!(returned(&mut client, file, first), Status::OK);
    for returned in [Returned::FileSystem, Returned::All] {
        let args = ReturnArgs { reclaim: false, layout_type: TYPE_FILES, mode: IoMode::Any, returned };
        assert_eq!(client.run(|to| _ = to.push(&put(file)).push(&Args::LayoutReturn(args))), Status::OK);
    }
}

#[test]
fn a_layout_needs_an_open_of_its_file_and_allows_nothing_by_itself() {
    let (_server, address) = start(2);
    let mut client = Client::new(address, "layouts");
    let export = client.export();
    let (file, open) = client.open("f", access::READ, 0).unwrap();
    let (other, other_open) = client.open("g", access::BOTH, 0).unwrap();
    let (own, id) = layout(&mut client, file, get(open)).unwrap();
    let mut stranger = Client::new(address, "stranger");
    for (args, expected) in [
        (get(Stateid::ANONYMOUS), Status::BAD_STATEID),
        (get(other_open), Status::BAD_STATEID),
        (GetArgs { mode: IoMode::ReadWrite, ..get(open) }, Status::OPENMODE),
        (GetArgs { mode: IoMode::Any, ..get(open) }, Status::BADIOMODE),
        (GetArgs { layout_type: 4, ..get(open) }, Status::UNKNOWN_LAYOUTTYPE),
        (GetArgs { range: Range { offset: 5, length: 0 }, ..get(open) }, Status::INVAL),
        (GetArgs { range: Range { offset: 5, length: u64::MAX - 1 }, ..get(open) }, Status::INVAL),
        (GetArgs { range: Range { offset: 0, length: 5 }, length_min: 6, ..get(open) }, Status::INVAL),
        (GetArgs { count_max: 50, ..get(open) }, Status::TOOSMALL),
    ] {
        assert_eq!(layout(&mut client, file, args), Err(expected), "{args:?}");
    }
    assert_eq!(layout(&mut client, other, get(own)), Err(Status::BAD_STATEID));
    assert_eq!(layout(&mut stranger, file, get(own)), Err(Status::BAD_STATEID));
    assert_eq!(layout(&mut client, export, get(open)), Err(Status::BAD_STATEID));
    let read = Args::Read(op::read::Args { stateid: own, offset: 0, count: 1 });
    assert_eq!(client.run(|to| _ = to.push(&put(file)).push(&read)), Status::BAD_STATEID);
    assert_eq!(returned(&mut client, other, own), Status::BAD_STATEID);
    assert_eq!(returned(&mut client, file, open), Status::BAD_STATEID);
    let ask = DeviceArgs { device: id, layout_type: TYPE_FILES, count_max: 4096, notify: Bitmap::default() };
    let unknown = DeviceArgs { device: [7; 16], ..ask };
    assert_eq!(device(&mut client, unknown), Err((Status::NOENT, 0)));
    let of_other_type = DeviceArgs { layout_type: 4, ..ask };
    assert_eq!(device(&mut client, of_other_type), Err((Status::UNKNOWN_LAYOUTTYPE, 0)));
}

/// Smaller files than the threshold are not worth a request for each.
#[test]
fn clients_are_told_from_which_size_a_layout_is_worth_it() {
    let (_server, address) = start(2);
    let mut client = Client::new(address, "layouts");
    let export = client.export();
    let wanted = Bitmap::of(&[number::MDSTHRESHOLD]);
    let ask = Args::GetAttr(op::getattr::Args { wanted });
    let results = client.send(|to| _ = to.push(&put(export)).push(&ask));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    let got = reader.expect::<kind::GetAttr>().unwrap().unwrap().attributes.parse().unwrap();
    let [threshold] = got.mdsthreshold.unwrap().iter().collect::<Vec<_>>()[..] else { panic!("{got:?}") };
    let size = (64_u64 << 10).to_be_bytes();
    let sizes = Bitmap::of(&[Threshold::READ_SIZE, Threshold::WRITE_SIZE]);
    assert_eq!(
        threshold,
        Threshold { layout_type: TYPE_FILES, hints: sizes, values: &[size, size].concat() }
    );
}

#[test]
fn a_server_with_one_address_has_no_layouts() {
    let (_server, address) = start(1);
    has_no_layouts(address);
}

#[test]
fn layouts_can_be_switched_off() {
    let config = Config { layouts: false, ..config_at(2) };
    let (_server, address) = start_with(config);
    has_no_layouts(address);
}

fn has_no_layouts(address: SocketAddr) {
    assert_eq!(roles(address), flag::USE_NON_PNFS);
    let mut client = Client::new(address, "layouts");
    let export = client.export();
    assert_eq!(layout_types(&mut client, export), [0; 0]);
    let (file, open) = client.open("f", access::BOTH, 0).unwrap();
    assert_eq!(layout(&mut client, file, get(open)), Err(Status::LAYOUTUNAVAILABLE));
}
