//! CB_COMPOUND: CB_SEQUENCE, and what a client answers that has delegations for reading, but
//! neither layouts nor delegations for writing or of directories. RFC 8881 s19.2, s20

use nfs4::cb::{Args, Back, Operation, Reply, recall, sequence};
use nfs4::compound::{ReplyWriter, RequestReader};
use nfs4::{Bitmap, Status};

use super::{BYTES_MAX, Host, OPERATIONS_MAX};

/// The kinds of state that CB_RECALL_ANY may name: delegations, and layouts of each type. RFC 8881
/// s20.6.3, RFC 8435 s6
const KINDS_KNOWN: [u32; 13] = [0, 1, 2, 3, 4, 8, 9, 12, 13, 14, 15, 16, 17];

/// Runs a compound in a record of so many bytes. Returns `CB_COMPOUND4res`.
///
/// # Errors
/// The message does not decode: GARBAGE_ARGS.
pub(super) fn run(args: &[u8], record_bytes: usize, host: &Host<'_>) -> xdr::Result<Vec<u8>> {
    let mut requests = RequestReader::<Back>::new(args)?;
    let (mut out, tag) = (Vec::new(), requests.tag);
    let mut writer = ReplyWriter::<Back>::new(&mut out, tag);
    if requests.minor != host.minor {
        writer.finish_with(Status::MINOR_VERS_MISMATCH);
        return Ok(out);
    }
    match requests.next_operation() {
        None => {}
        Some(Err(refused)) => _ = writer.refuse(refused),
        Some(Ok(first)) => match first.args {
            Args::Sequence(asked) => {
                let total = requests.operations;
                let outcome = check(&asked, host, (record_bytes, total)).and_then(|()| {
                    let slot = (asked.slot, asked.sequence, asked.highest_slot);
                    let rest = args.get(args.len() - requests.remaining()..).unwrap_or_default();
                    host.slots.run(slot, rest, |highest| in_slot(&asked, highest, requests, host))
                });
                match outcome {
                    Ok(results) => return Ok(results),
                    Err(status) => _ = writer.push(&Reply::Sequence(Err(status))),
                }
            }
            // No call-back of these minor versions is outside of a session.
            other => _ = writer.fail(other.operation(), Status::OP_NOT_IN_SESSION),
        },
    }
    writer.finish();
    Ok(out)
}

/// What of a call can be refused before its slot is looked at. RFC 8881 s20.9.3
fn check(
    asked: &sequence::Args<'_>,
    host: &Host<'_>,
    (record_bytes, operations): (usize, u32),
) -> Result<(), Status> {
    if asked.session != host.session {
        return Err(Status::BADSESSION);
    }
    if record_bytes > BYTES_MAX as usize {
        return Err(Status::REQ_TOO_BIG);
    }
    if operations > OPERATIONS_MAX {
        return Err(Status::TOO_MANY_OPS);
    }
    Ok(())
}

/// Runs the operations after CB_SEQUENCE.
fn in_slot(
    asked: &sequence::Args<'_>,
    highest_slot: u32,
    mut requests: RequestReader<'_, Back>,
    host: &Host<'_>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::<Back>::new(&mut out, requests.tag);
    writer.push(&Reply::Sequence(Ok(sequence::Success {
        session: asked.session,
        sequence: asked.sequence,
        slot: asked.slot,
        highest_slot,
        target_highest_slot: highest_slot,
    })));
    while let Some(next) = requests.next_operation() {
        let status = match next {
            Ok(request) => perform(&request.args, host, &mut writer),
            Err(refused) => writer.refuse(refused),
        };
        if status != Status::OK {
            break;
        }
    }
    writer.finish();
    out
}

/// Does what one operation asks, and adds its result.
fn perform(args: &Args<'_>, host: &Host<'_>, writer: &mut ReplyWriter<'_, Back>) -> Status {
    let reply = match args {
        Args::Recall(args) => Reply::Recall(host.call_backs.delegations().recall(args.delegation, args.file)),
        Args::RecallAny(args) => Reply::RecallAny(any_recalled(args, host)),
        // Nothing was refused to this client for which it would ask again. RFC 8881 s20.7
        Args::RecallableObjAvail(_) => Reply::RecallableObjAvail(Ok(())),
        Args::RecallSlot(args) => {
            host.slots.recall(args.target_highest_slot);
            Reply::RecallSlot(Ok(()))
        }
        Args::NotifyLock(args) => {
            host.call_backs.lock_available(args.file);
            Reply::NotifyLock(Ok(()))
        }
        refused => return writer.fail(refused.operation(), refusal(refused.operation())),
    };
    writer.push(&reply)
}

/// What is answered to an operation about state that this client never has.
const fn refusal(operation: Operation) -> Status {
    match operation {
        // No file is delegated for writing. RFC 8881 s20.1.3
        Operation::GetAttr => Status::BADHANDLE,
        // RFC 8881 s20.3.3
        Operation::LayoutRecall => Status::NOMATCHING_LAYOUT,
        // None is wanted but those that an OPEN asks for. RFC 8881 s20.5.3
        Operation::PushDeleg => Status::REJECT_DELEG,
        // RFC 8881 s20.9.3
        Operation::Sequence => Status::SEQUENCE_POS,
        _ => Status::NOTSUPP,
    }
}

/// CB_RECALL_ANY, which names kinds of state. RFC 8881 s20.6.3
fn any_recalled(args: &recall::AnyArgs, host: &Host<'_>) -> Result<(), Status> {
    let recall::AnyArgs { keep, kinds } = *args;
    if kinds.has_beyond() || !kinds.is_within(Bitmap::of(&KINDS_KNOWN)) {
        return Err(Status::INVAL);
    }
    if kinds.contains(recall::any::READ_DELEGATIONS) {
        host.call_backs.delegations().keep(keep);
    }
    Ok(())
}
