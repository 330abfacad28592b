//! NFS version 4.1 and 4.2: compounds of operations, in sessions. RFC 8881, RFC 7862
//!
//! `compound` runs a compound: it finds the session and the slot, runs the operations in order, and
//! has the slot keep the reply. One file for each family of operations decodes nothing and encodes
//! nothing: arguments come as types of the crate `nfs4`, and results go out as such. Who has what
//! open or locked is in the group's state (`nfs4_state`), files are in the stores.
//!
//! A compound runs in one piece. If it may have to wait for a store, a worker runs all of it: its
//! loop hands it over before the slot is taken, so that a loop never leaves one half done.
//! `docs/decisions/0015-nfs4-server.md` has the reasons.

mod attributes;
mod compound;
mod copy;
mod delegation;
mod handles;
mod holes;
mod io;
mod layout;
mod listing;
mod locations;
mod lock;
mod names;
mod open;
mod pseudo;
mod secinfo;
mod session;
mod stateid;
mod status;
mod xattr;

use crate::client::Client;
use crate::group::Group;
use crate::program::{
    Answered, Call, Handover, Mode, PartialCall, PlacedWrite, Placement, Program, WriteHead,
};
use crate::request::receive_buffer;
use crate::statistics::Names;
use nfs4::compound::{RequestReader, WritePlace, find_write};
use nfs4::op::{Args, Fore, Operation};
use rpc::portmap::Protocol;
use rpc::reply::Accept;
use std::ops::RangeInclusive;
use store::XATTR_VALUE_BYTES_MAX;
use xdr::Reader;

/// The most bytes of one listing, whatever the client has room for: some thousand entries.
const DIRECTORY_BYTES_MAX: u32 = 256 << 10;

/// Words of a compound that is searched for numbers of operations before it is parsed.
const SCANNED_WORDS: usize = 128;

/// See the module's documentation.
pub(crate) struct Nfs4;

impl Program for Nfs4 {
    fn number(&self) -> u32 {
        nfs4::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nfs4::VERSION..=nfs4::VERSION
    }

    fn procedures(&self) -> Names {
        &["NFS4 NULL", "NFS4 COMPOUND"]
    }

    fn protocols(&self) -> &'static [Protocol] {
        &[Protocol::Tcp, Protocol::Rdma]
    }

    fn is_served(&self, group: &Group) -> bool {
        group.versions.has_v4() && group.nfs4.is_some()
    }

    fn serves_files(&self) -> bool {
        true
    }

    fn reply_payload_bytes_max(&self, procedure: u32, args: Reader<'_>) -> u32 {
        if procedure == nfs4::PROCEDURE_COMPOUND { payload_of(args.rest()) } else { 0 }
    }

    /// The data of a WRITE at the end of a compound are received directly into memory of the file,
    /// if the operation before names it. Not those with padding, which a retry is compared with.
    fn choose_receive_buffer(&self, call: PartialCall<'_>) -> Option<Placement> {
        if call.procedure != nfs4::PROCEDURE_COMPOUND {
            return None;
        }
        let WritePlace { at, write, file, .. } = find_write(call.args.rest())?;
        if !call.fits(at, write.count) || xdr::padding(write.count as usize) > 0 {
            return None;
        }
        let (offset, count, stability) = (write.offset, write.count, write.stable);
        let head = WriteHead { file: file?, offset, count, stability };
        let buffer = receive_buffer(call.client, &head.file, offset, count)?;
        Some(Placement { args_bytes: at, write: PlacedWrite { head, buffer } })
    }

    fn serve(&self, call: Call<'_, '_>, placed: Option<PlacedWrite>) -> Answered {
        if call.header.procedure == nfs4::PROCEDURE_NULL {
            return Answered::reply(false);
        }
        let Some(shared) = &call.group.nfs4 else { return Answered::Accept(Accept::ProgUnavail) };
        match call.mode {
            // A compound takes its slot only where it runs, so nothing knows of it yet.
            Mode::Discard => Answered::Elsewhere,
            Mode::Loop(_) if may_block(call.client) || takes_long(call.reader.rest()) => {
                Answered::WouldBlock(Handover { placed: placed.map(Box::new), ..Handover::default() })
            }
            Mode::Loop(_) | Mode::Worker { .. } => {
                compound::run(call, shared, placed).unwrap_or_else(|refused| refused)
            }
        }
    }
}

/// Whether a store that the client may use may have to wait.
fn may_block(client: &Client) -> bool {
    client.exports.iter().any(|(index, export)| export.may_block && client.admitted.contains(index))
}

/// Whether a compound has operations whose time grows with what they ask for, on every store.
fn takes_long(message: &[u8]) -> bool {
    const LONG: [Operation; 5] = [
        Operation::Allocate,
        Operation::Deallocate,
        Operation::Copy,
        Operation::Clone,
        // Looks at each page up to what it finds.
        Operation::Seek,
    ];
    // Numbers of operations are at multiples of four bytes, so of most compounds this is known
    // without a parse. That of a long one does not count beside its data.
    let words = message.as_chunks::<4>().0;
    let is_named = |word: &[u8; 4]| LONG.iter().any(|long| long.number().to_be_bytes() == *word);
    if words.len() <= SCANNED_WORDS && !words.iter().any(is_named) {
        return false;
    }
    let Ok(mut requests) = RequestReader::<Fore>::new(message) else { return false };
    std::iter::from_fn(|| requests.next_operation())
        .any(|next| next.is_ok_and(|request| LONG.contains(&request.args.operation())))
}

/// How much the operations of a compound ask for together.
fn payload_of(message: &[u8]) -> u32 {
    let Ok(mut requests) = RequestReader::<Fore>::new(message) else { return 0 };
    let mut all = 0_u32;
    while let Some(Ok(request)) = requests.next_operation() {
        let asked = match request.args {
            Args::Read(read) => read.count,
            Args::ReadPlus(read) => read.count,
            Args::GetXattr(_) => XATTR_VALUE_BYTES_MAX as u32,
            Args::ListXattrs(list) => list.count_max.min(xattr::LIST_BYTES_MAX),
            Args::ReadDir(list) => list.maxcount.min(DIRECTORY_BYTES_MAX),
            _ => 0,
        };
        all = all.saturating_add(asked);
    }
    all
}
