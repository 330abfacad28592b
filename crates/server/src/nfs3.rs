//! NFS version 3: passes calls to their handlers. RFC 1813 s3.3
//!
//! Each procedure is a file. Its `run` opens the handles, calls the store on behalf of the squashed
//! caller, and encodes the result: attributes and weak cache consistency data (RFC 1813 s2.6) on
//! success and on failure. An `Err` means that the credential is too weak, or that the store would
//! have to wait on a thread that may not; then nothing was done.

mod access;
mod attributes;
pub(crate) mod call;
mod commit;
mod create;
mod creation;
mod fsinfo;
mod fsstat;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod mknod;
mod pathconf;
mod read;
mod readdir;
mod readdirplus;
mod readlink;
mod recovery;
mod remove;
mod rename;
mod request;
mod rmdir;
mod setattr;
pub(crate) mod status;
mod symlink;
mod write;

use self::call::write;
use self::write as write_data;
use self::write::Data;
use crate::client::CallSubject;
use crate::group::Group;
use crate::program::{Answered, Call, PartialCall, PlacedWrite, Placement, Program};
use crate::replies::Payload;
use crate::reply_cache::is_ours;
use crate::request::{receive_buffer, request};
use crate::statistics::Names;
use drc::{HASHED_PAYLOAD_BYTES, XidClass, args_hash};
use nfs3::proc::{self, write::ArgsHead};
use nfs3::{Outcome, Procedure, Status, Verifier, WccData, Wire};
use rpc::portmap::Protocol;
use rpc::reply::{Accept, encode_success};
use smallvec::SmallVec;
use std::ops::RangeInclusive;
use xdr::{Reader, Writer};

/// The most bytes of one listing, whatever the client has room for: some thousand entries.
const DIRECTORY_BYTES_MAX: u32 = 256 << 10;
/// Cookies stay valid while names come and go, so there is nothing to verify.
const COOKIE_VERIFIER: Verifier = [0; 8];

const GARBAGE: Answered = Answered::Accept(Accept::GarbageArgs);

/// See the module's documentation.
pub(crate) struct Nfs3;

impl Program for Nfs3 {
    fn number(&self) -> u32 {
        nfs3::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nfs3::VERSION..=nfs3::VERSION
    }

    fn procedures(&self) -> Names {
        &Procedure::NAMES
    }

    fn protocols(&self) -> &'static [Protocol] {
        &[Protocol::Tcp, Protocol::Rdma]
    }

    fn is_served(&self, group: &Group) -> bool {
        group.versions.has_v3()
    }

    fn serves_files(&self) -> bool {
        true
    }

    fn xid_class(&self, procedure: u32) -> XidClass {
        Procedure::try_from(procedure).map_or(XidClass::Repeatable, Procedure::xid_class)
    }

    fn reply_payload_bytes_max(&self, procedure: u32, mut args: Reader<'_>) -> u32 {
        let asked = match Procedure::try_from(procedure) {
            Ok(Procedure::Read) => proc::read::Args::decode(&mut args).map(|args| args.count),
            Ok(Procedure::ReadDir) => proc::readdir::Args::decode(&mut args).map(|args| args.count),
            Ok(Procedure::ReadDirPlus) => {
                proc::readdirplus::Args::decode(&mut args).map(|args| args.maxcount)
            }
            _ => Ok(0),
        };
        asked.unwrap_or(0)
    }

    /// The data of a WRITE are received directly into memory of the file.
    fn choose_receive_buffer(&self, call: PartialCall<'_>) -> Option<Placement> {
        if call.procedure != Procedure::Write.number() {
            return None;
        }
        let mut reader = call.args;
        let args = ArgsHead::decode(&mut reader).ok()?;
        let args_bytes = call.args.remaining() - reader.remaining();
        if !call.fits(args_bytes, args.data_len) {
            return None;
        }
        let head = write_data::head(&args);
        let buffer = receive_buffer(call.client, &args.file, args.offset, args.data_len)?;
        Some(Placement { args_bytes, write: PlacedWrite { head, buffer } })
    }

    #[inline]
    fn serve(&self, call: Call<'_, '_>, placed: Option<PlacedWrite>) -> Answered {
        serve(call, placed)
    }
}

#[inline]
fn serve(call: Call<'_, '_>, placed: Option<PlacedWrite>) -> Answered {
    let answered = match Procedure::try_from(call.header.procedure) {
        Err(_) => Err(Answered::Accept(Accept::ProcUnavail)),
        Ok(Procedure::Null) => Ok(Answered::reply(false)),
        Ok(Procedure::GetAttr) => call.idempotent(getattr::run),
        Ok(Procedure::SetAttr) => call.non_idempotent(setattr::run, || Some(WccData::default())),
        Ok(Procedure::Lookup) => call.idempotent(lookup::run),
        Ok(Procedure::Access) => call.idempotent(access::run),
        Ok(Procedure::ReadLink) => serve_readlink(call),
        Ok(Procedure::Read) => serve_read(call),
        Ok(Procedure::Write) => serve_write(call, placed),
        Ok(Procedure::Create) => call.non_idempotent(create::run, || None),
        Ok(Procedure::MkDir) => call.non_idempotent(mkdir::run, || None),
        Ok(Procedure::SymLink) => call.non_idempotent(symlink::run, || None),
        Ok(Procedure::MkNod) => call.non_idempotent(mknod::run, || None),
        Ok(Procedure::Remove) => call.non_idempotent(remove::run, || None),
        Ok(Procedure::RmDir) => call.non_idempotent(rmdir::run, || None),
        Ok(Procedure::Rename) => call.non_idempotent(rename::run, || None),
        Ok(Procedure::Link) => call.non_idempotent(link::run, || None),
        Ok(Procedure::ReadDir) => serve_readdir(call),
        Ok(Procedure::ReadDirPlus) => serve_readdirplus(call),
        Ok(Procedure::FsStat) => call.idempotent(fsstat::run),
        Ok(Procedure::FsInfo) => call.idempotent(fsinfo::run),
        Ok(Procedure::PathConf) => call.idempotent(pathconf::run),
        Ok(Procedure::Commit) => call.idempotent(commit::run),
    };
    answered.unwrap_or_else(|refused| refused)
}

#[inline]
fn serve_read(mut call: Call<'_, '_>) -> Result<Answered, Answered> {
    let mut args = call.args::<proc::read::Args>()?;
    // A short read, which RFC 1813 s3.3.6 allows.
    args.count = args.count.min(call.payload_bytes_max);
    let mut payload = Payload::new();
    let request = request(call.client, call.mode)?.without_opens(call.group, call.times.now);
    let outcome = read::run(&request, &args, &mut payload)?;
    let error = write(call.out, call.header.xid, &outcome) != Status::OK;
    let payload_len = match &outcome {
        Outcome::Ok(head) => usize::try_from(head.count).unwrap_or(0),
        Outcome::Fail(..) => 0,
    };
    debug_assert_eq!(
        payload.iter().map(|segment| segment.len()).sum::<usize>(),
        payload_len,
        "a READ's length"
    );
    Ok(Answered::Reply { error, replayed: false, payload, payload_len })
}

#[inline]
fn serve_write(mut call: Call<'_, '_>, placed: Option<PlacedWrite>) -> Result<Answered, Answered> {
    let bytes = call.reader.rest();
    let (head, head_bytes, mut data) = match placed {
        // The record ends before the data, and its arguments were decoded for the receive buffer.
        Some(PlacedWrite { head, buffer }) => (head, bytes, Data::InPlace(Some(buffer))),
        None => {
            let args = ArgsHead::decode(&mut call.reader).map_err(|_| GARBAGE)?;
            let head_bytes = bytes.get(..bytes.len() - call.reader.remaining()).unwrap_or_default();
            let len = usize::try_from(args.data_len).map_err(|_| GARBAGE)?;
            let slice = call.reader.bytes(len).map_err(|_| GARBAGE)?;
            call.reader.bytes(xdr::padding(len)).map_err(|_| GARBAGE)?;
            call.reader.finish().map_err(|_| GARBAGE)?;
            (write_data::head(&args), head_bytes, Data::Slice(slice))
        }
    };
    call.client.subject.set(CallSubject { payload_bytes: head.count, ..CallSubject::default() });
    // Only calls of foreign clients are told apart by a hash; it is computed before `run` consumes
    // the data.
    let ours = call
        .client
        .identities
        .current()
        .is_some_and(|identity| is_ours(identity, call.header.xid, call.class));
    let hash = if ours { 0 } else { hash_of_write(head_bytes, &mut data) };
    let mut answered = call.exactly_once(
        || hash,
        |request, _, _| write_data::run(request, &head, &mut data),
        |request| write_data::replayed(request, &head),
        |success| success.count < head.count,
    );
    if let (Ok(Answered::WouldBlock(handover)), Data::InPlace(buffer)) = (&mut answered, data) {
        handover.placed = buffer.map(|buffer| Box::new(PlacedWrite { head, buffer }));
    }
    answered
}

/// Hashes the bytes before the data, and the beginning of the data.
fn hash_of_write(head_bytes: &[u8], data: &mut Data<'_>) -> u64 {
    let mut hashed: SmallVec<[u8; 512]> = SmallVec::from_slice(head_bytes);
    let mut take = |bytes: &[u8]| {
        let room = (head_bytes.len() + HASHED_PAYLOAD_BYTES).saturating_sub(hashed.len());
        hashed.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    };
    let len = match data {
        Data::Slice(slice) => {
            take(slice);
            slice.len()
        }
        Data::InPlace(Some(buffer)) => {
            let mut pieces = transport::SlicesMut::new();
            buffer.unfilled(0, &mut pieces);
            pieces.iter().for_each(|piece| take(piece));
            drop(pieces);
            buffer.len()
        }
        Data::InPlace(None) => 0,
    };
    args_hash(&hashed, head_bytes.len() + len + xdr::padding(len))
}

fn serve_readlink(mut call: Call<'_, '_>) -> Result<Answered, Answered> {
    let args = call.args::<proc::readlink::Args>()?;
    let outcome = readlink::run(&request(call.client, call.mode)?, &args, call.text)?;
    Ok(Answered::reply(write(call.out, call.header.xid, &outcome) != Status::OK))
}

fn serve_readdir(mut call: Call<'_, '_>) -> Result<Answered, Answered> {
    let mut args = call.args::<proc::readdir::Args>()?;
    args.count = args.count.min(call.payload_bytes_max);
    encode_success(&mut Writer::new(call.out), call.header.xid);
    let status = readdir::run(&request(call.client, call.mode)?, &args, call.out)?;
    Ok(Answered::reply(status != Status::OK))
}

fn serve_readdirplus(mut call: Call<'_, '_>) -> Result<Answered, Answered> {
    let mut args = call.args::<proc::readdirplus::Args>()?;
    args.maxcount = args.maxcount.min(call.payload_bytes_max);
    encode_success(&mut Writer::new(call.out), call.header.xid);
    let status = readdirplus::run(&request(call.client, call.mode)?, &args, call.out)?;
    Ok(Answered::reply(status != Status::OK))
}
