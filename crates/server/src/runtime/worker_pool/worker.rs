//! A worker executes a call as a loop does, except that the call may wait.

use super::{Completion, Shared, Task, TaskEnd};
use crate::clock;
use crate::dispatch::{Dispatched, Executor};
use crate::identity::IdentityCache;
use crate::program::Mode;
use crate::replies::Replies;
use crate::reply_cache::Times;
use crate::runtime::connection_address::token_of;
use crate::runtime::mailbox::Message;
use rpc::portmap::Protocol;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::Duration;

/// Memory that the calls of a worker use one after the other.
#[derive(Default)]
struct Workspace {
    replies: Replies,
    text: Vec<u8>,
    identities: IdentityCache,
}

/// Executes calls until the pool ends.
pub(super) fn run(shared: &Shared) {
    let mut work = Workspace::default();
    let mut queues = shared.queues();
    queues.workers += 1;
    loop {
        if let Some(task) = queues.take() {
            drop(queues);
            let connection = task.client.id;
            execute(shared, task, &mut work);
            shared.heartbeat(clock::now());
            queues = shared.queues();
            queues.done(connection);
        } else if queues.ending {
            break;
        } else {
            queues = shared.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
    queues.workers -= 1;
    drop(queues);
    shared.changed.notify_all();
}

/// Executes one call and sends its reply to its loop.
fn execute(shared: &Shared, mut task: Task, work: &mut Workspace) {
    let slept = shared.heartbeat(clock::now());
    if slept > Duration::from_millis(shared.group.limits.stall_ms_max) {
        // The loops reset their connections when they notice the sleep; this thread was the first
        // to wake up.
        forget(shared, task);
        return;
    }
    // A bug that one client's bytes trigger must not take down the others: only the connection of
    // that client ends.
    let end = catch_unwind(AssertUnwindSafe(|| answer(shared, &mut task, work)));
    match end {
        Ok(Some(end)) => complete(shared, task, end),
        Ok(None) => shared.defer(task),
        Err(_) => {
            *work = Workspace::default();
            complete(shared, task, TaskEnd::Bug);
        }
    }
}

/// Returns `None` if the call runs elsewhere and must be tried again.
fn answer(shared: &Shared, task: &mut Task, work: &mut Workspace) -> Option<TaskEnd> {
    let mode = Mode::Worker { begun: task.begun };
    // The next call is often from the same caller.
    task.client.identities = std::mem::take(&mut work.identities);
    let placed = task.placed.take().map(|placed| *placed);
    let mut executor = Executor {
        group: &shared.group,
        waiters: &*shared.mailboxes,
        token: token_of(task.address, task.client.id),
        protocol: Protocol::Tcp,
        client: &mut task.client,
        replies: &mut work.replies,
        text: &mut work.text,
        times: Times { now: clock::now(), received: task.received },
        payload_bytes_max: task.payload_bytes_max,
    };
    let dispatched = executor.serve(&task.head, &task.record, placed, task.record_len, mode);
    work.identities = std::mem::take(&mut task.client.identities);
    let counted = match dispatched {
        Dispatched::Answered(end) => Some(end),
        Dispatched::Refused | Dispatched::Uncounted => None,
        Dispatched::Elsewhere => return Some(TaskEnd::Elsewhere),
        Dispatched::WouldBlock(handover) if handover.deferred => {
            (task.begun, task.placed) = (false, handover.placed);
            return None;
        }
        // The loop has decoded the same record as a call, and a worker's call never has to wait
        // elsewhere.
        Dispatched::Garbage(_) | Dispatched::WouldBlock(_) => return Some(TaskEnd::Bug),
    };
    let mut end = TaskEnd::Elsewhere;
    work.replies.drain(|head, payload, payload_len| {
        end = TaskEnd::Reply { head: head.into(), payload, payload_len, counted };
    });
    Some(end)
}

/// Has the reply cache forget a call that came too late, and does not execute the call.
pub(super) fn forget(shared: &Shared, mut task: Task) {
    if task.begun {
        let (mut replies, mut text) = (Replies::default(), Vec::new());
        let mut executor = Executor {
            group: &shared.group,
            waiters: &*shared.mailboxes,
            token: token_of(task.address, task.client.id),
            protocol: Protocol::Tcp,
            client: &mut task.client,
            replies: &mut replies,
            text: &mut text,
            times: Times { now: clock::now(), received: task.received },
            payload_bytes_max: task.payload_bytes_max,
        };
        let placed = task.placed.take().map(|placed| *placed);
        executor.serve(&task.head, &task.record, placed, task.record_len, Mode::Discard);
    }
    complete(shared, task, TaskEnd::TooLate);
}

fn complete(shared: &Shared, task: Task, end: TaskEnd) {
    let Task { address, client, received, permit, .. } = task;
    let completion = Completion { address, connection: client.id, node: client.node, received, permit, end };
    shared.mailboxes.send(address.on_loop, Message::Completion(completion));
}
