//! LAYOUTGET, GETDEVICEINFO, LAYOUTCOMMIT, LAYOUTRETURN: layouts of the type of files, of one
//! stripe, whose only data server is this server with all its addresses. RFC 8881 s12, s13, s18.40,
//! s18.42 to s18.44
//!
//! They are there for the addresses: a client that is told of a data server connects to all of them
//! (`multipath_list4`, RFC 8881 s13.5), and finds that they are those of the server and session
//! that it has (s2.10.5). From then on everything takes all paths. A layout allows nothing that a
//! stateid of an open does not allow without it, so nothing is kept of layouts, and none is
//! recalled.

use super::compound::{Compound, Outcome, Place, Replies};
use super::status::of_state;
use crate::nfs4_state::file_name;
use nfs4::op::Reply;
use nfs4::op::layout::files::{COMMIT_THROUGH_METADATA_SERVER, Device, Layout as FileLayout, encode_body};
use nfs4::op::layout::{
    CommitArgs, DeviceArgs, DeviceId, DeviceReply, DeviceSuccess, GetArgs, GetReply, GetSuccess, IoMode,
    Layout, ReturnArgs, Returned, TYPE_FILES,
};
use nfs4::{Array, Bitmap, NetAddr, Range, Stateid, Status, Threshold};
use rpc::portmap::{Protocol, universal};
use state::StateId;
use std::iter;

/// The stripe unit. Clients do not send requests across its borders.
const STRIPE_BYTES: u32 = 1 << 30;
/// The begin of our device ids.
const DEVICE_TAG: [u8; 8] = *b"trunklin";
/// A layout besides its body, and a device besides its address: numbers and lengths.
const LAYOUT_HEAD_BYTES: usize = 36;
const DEVICE_HEAD_BYTES: usize = 8;
/// All of a file.
const WHOLE: Range = Range { offset: 0, length: u64::MAX };

/// For smaller files a client asks for none: one request for each would cost more than it brings.
const FILE_BYTES_MIN: [u8; 8] = (64_u64 << 10).to_be_bytes();
const SIZES: [[u8; 8]; 2] = [FILE_BYTES_MIN; 2];

/// From which size of a file a layout is worth it.
pub(super) static THRESHOLDS: [Threshold<'static>; 1] = [Threshold {
    layout_type: TYPE_FILES,
    hints: Bitmap::of(&[Threshold::READ_SIZE, Threshold::WRITE_SIZE]),
    values: SIZES.as_flattened(),
}];

/// Whether clients are told of layouts: only if they gain addresses by them.
pub(super) fn are_offered(compound: &Compound<'_>) -> bool {
    compound.group.layouts
        && compound.group.addresses.has_others(compound.request.client.local, compound.protocol)
}

/// The device of a connection: all addresses with the same transport, family and port.
fn device_of(compound: &Compound<'_>) -> DeviceId {
    let local = compound.request.client.local;
    let transport = u16::from(compound.protocol == Protocol::Rdma);
    let family = u16::from(local.ip().to_canonical().is_ipv6());
    let mut id = [0; 16];
    let parts = DEVICE_TAG.into_iter().chain(transport.to_be_bytes());
    let parts = parts.chain(family.to_be_bytes()).chain(local.port().to_be_bytes());
    id.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
    id
}

/// The name of the current file in the state of the clients.
fn name(compound: &Compound<'_>) -> Outcome<Vec<u8>> {
    let Place::Object(export, object) = compound.place()? else { return Err(Status::LAYOUTUNAVAILABLE) };
    compound.target(export, object)?;
    Ok(file_name(export, object).to_vec())
}

/// LAYOUTGET: the whole file, whatever part the client asks for.
pub(super) fn get(compound: &mut Compound<'_>, args: &GetArgs, out: &mut Replies<'_>) -> Status {
    let layout = FileLayout {
        device: device_of(compound),
        util: STRIPE_BYTES | COMMIT_THROUGH_METADATA_SERVER,
        first_stripe: 0,
        pattern_offset: 0,
        handles: Array::default(),
    };
    let mut body = Vec::new();
    encode_body(&layout, &mut body);
    let layouts = [Layout { range: WHOLE, mode: args.mode, layout_type: TYPE_FILES, body: &body }];
    let granted = match granted(compound, args) {
        Ok(_) if LAYOUT_HEAD_BYTES + body.len() > args.count_max as usize => Err(Status::TOOSMALL),
        granted => granted,
    };
    out.push(&Reply::LayoutGet(match granted {
        Ok(id) => {
            let stateid = compound.put_stateid(id);
            GetReply::Granted(GetSuccess { return_on_close: false, stateid, layouts: Array::from(&layouts) })
        }
        Err(status) => GetReply::Failed(status),
    }))
}

/// The stateid of the layout that a client gets. RFC 8881 s12.5.3, s18.43.3
fn granted(compound: &Compound<'_>, args: &GetArgs) -> Outcome<StateId> {
    let needed = match args.mode {
        IoMode::Read => state::READ,
        // Whoever has the file open for writing may read it as well.
        IoMode::ReadWrite => state::WRITE,
        IoMode::Any => return Err(Status::BADIOMODE),
    };
    if args.layout_type != TYPE_FILES {
        return Err(Status::UNKNOWN_LAYOUTTYPE);
    }
    let Range { offset, length } = args.range;
    let ends = length == u64::MAX || offset.checked_add(length).is_some();
    if length == 0 || length < args.length_min || !ends {
        return Err(Status::INVAL);
    }
    if !are_offered(compound) {
        return Err(Status::LAYOUTUNAVAILABLE);
    }
    let (name, client, shared) = (name(compound)?, compound.client()?, compound.shared);
    let other = shared.state.layout_id(client, &name);
    let asked = compound.stateid(args.stateid)?;
    if asked.other == other {
        return Ok(StateId { seqid: following(asked.seqid), other });
    }
    if asked.is_special() {
        return Err(Status::BAD_STATEID);
    }
    let checked = shared.state.check_state_io(shared.host(), compound.now, client, asked, &name, needed);
    checked.map_err(|error| of_state(&error))?;
    Ok(StateId { seqid: 1, other })
}

/// The version after this one: 0 stands for the newest. RFC 8881 s8.2.2
const fn following(seqid: u32) -> u32 {
    if seqid == u32::MAX { 1 } else { seqid + 1 }
}

/// Checks that a stateid is that of the client's layout of the current file.
fn check(compound: &Compound<'_>, layout_type: u32, asked: Stateid) -> Outcome<()> {
    if layout_type != TYPE_FILES {
        return Err(Status::UNKNOWN_LAYOUTTYPE);
    }
    let other = compound.shared.state.layout_id(compound.client()?, &name(compound)?);
    if compound.stateid(asked)?.other == other { Ok(()) } else { Err(Status::BAD_STATEID) }
}

/// LAYOUTCOMMIT: what was written by a layout came here, so nothing changes.
pub(super) fn commit(compound: &Compound<'_>, args: &CommitArgs<'_>) -> Outcome<Option<u64>> {
    if args.reclaim {
        // Data in a layout of before a restart are here, or were never written.
        return Err(Status::NO_GRACE);
    }
    check(compound, args.layout_type, args.stateid)?;
    Ok(None)
}

/// LAYOUTRETURN.
pub(super) fn give_back(compound: &Compound<'_>, args: &ReturnArgs<'_>) -> Outcome<Option<Stateid>> {
    match args.returned {
        Returned::File { stateid, .. } => check(compound, args.layout_type, stateid)?,
        Returned::FileSystem => drop(compound.place()?),
        Returned::All => {}
    }
    Ok(None)
}

/// GETDEVICEINFO.
pub(super) fn device(compound: &Compound<'_>, args: &DeviceArgs, out: &mut Replies<'_>) -> Status {
    let body = match described(compound, args) {
        Ok(body) => body,
        Err(status) => return out.push(&Reply::GetDeviceInfo(DeviceReply::Failed(status))),
    };
    let needed = DEVICE_HEAD_BYTES + body.len();
    let is_small = args.count_max != 0 && needed > args.count_max as usize;
    out.push(&Reply::GetDeviceInfo(if is_small {
        DeviceReply::TooSmall(u32::try_from(needed).unwrap_or(u32::MAX))
    } else {
        // Nobody is told of changes: a client that knows fewer addresses uses those.
        let address = if args.count_max == 0 { &[][..] } else { &body };
        DeviceReply::Device(DeviceSuccess { layout_type: TYPE_FILES, address, notify: Bitmap::default() })
    }))
}

/// The addresses of a device, the one that the client has connected to first.
fn described(compound: &Compound<'_>, args: &DeviceArgs) -> Outcome<Vec<u8>> {
    if args.layout_type != TYPE_FILES {
        return Err(Status::UNKNOWN_LAYOUTTYPE);
    }
    if args.device != device_of(compound) {
        return Err(Status::NOENT);
    }
    let local = compound.request.client.local;
    let here = local.ip().to_canonical();
    let others = compound.group.addresses.besides(local, compound.protocol);
    let texts: Vec<_> = iter::once(here).chain(others).map(|ip| universal(ip, local.port())).collect();
    let netid = compound.protocol.netid(here.is_ipv4()).as_bytes();
    let addresses: Vec<_> =
        texts.iter().map(|address| NetAddr { netid, address: address.as_bytes() }).collect();
    let servers = [Array::from(&*addresses)];
    let mut body = Vec::new();
    encode_body(&Device { stripe_indices: Array::from(&[0]), servers: Array::from(&servers) }, &mut body);
    Ok(body)
}
