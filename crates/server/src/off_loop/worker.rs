//! What a worker does with a call: the same as a loop, but that it may wait.

use super::{Job, Landed, LandedEnd, Shared};
use crate::clock;
use crate::event_loop::Message;
use crate::identity::IdentityCache;
use crate::replays::Times;
use crate::replies::Replies;
use crate::service::{Executor, Mode, Taken};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::Duration;

/// Memory that a worker's calls use one after the other.
#[derive(Default)]
struct Workspace {
    replies: Replies,
    text: Vec<u8>,
    identities: IdentityCache,
}

/// Executes calls until the pool ends.
pub(super) fn run(shared: &Shared) {
    let mut work = Workspace::default();
    let mut lines = shared.lines();
    lines.workers += 1;
    loop {
        if let Some(job) = lines.take() {
            drop(lines);
            let connection = job.client.id;
            execute(shared, job, &mut work);
            shared.beat(clock::now());
            lines = shared.lines();
            lines.done(connection);
        } else if lines.ending {
            break;
        } else {
            lines = shared.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
    }
    lines.workers -= 1;
    drop(lines);
    shared.changed.notify_all();
}

/// Executes one call and sends its reply to its loop.
fn execute(shared: &Shared, mut job: Job, work: &mut Workspace) {
    let slept = shared.beat(clock::now());
    if slept > Duration::from_millis(shared.group.limits.stall_ms_max) {
        // The loops reset their connections when they notice; this thread was the first to wake up.
        forget(shared, job);
        return;
    }
    // A bug that one client's bytes bring out must not take down the others: its connection ends, no more.
    let end = catch_unwind(AssertUnwindSafe(|| answer(shared, &mut job, work)));
    match end {
        Ok(Some(end)) => land(shared, job, end),
        Ok(None) => shared.put_off(job),
        Err(_) => {
            *work = Workspace::default();
            land(shared, job, LandedEnd::Bug);
        }
    }
}

/// `None`: it runs elsewhere and must ask again.
fn answer(shared: &Shared, job: &mut Job, work: &mut Workspace) -> Option<LandedEnd> {
    let mode = Mode::Worker { begun: job.begun };
    // The next call is often the same caller's.
    job.client.identities = std::mem::take(&mut work.identities);
    let landing = job.landing.take();
    let mut executor = Executor {
        group: &shared.group,
        peers: &shared.peers,
        place: job.place,
        client: &mut job.client,
        replies: &mut work.replies,
        text: &mut work.text,
        times: Times { now: clock::now(), came: job.received },
    };
    let taken = executor.take(&job.record, landing.map(|landing| *landing), job.record_len, mode);
    work.identities = std::mem::take(&mut job.client.identities);
    let counted = match taken {
        Taken::Answered(end) => Some(end),
        Taken::Refused | Taken::PortMap => None,
        Taken::Elsewhere => return Some(LandedEnd::Elsewhere),
        Taken::MustWait(handover) if handover.later => {
            (job.begun, job.landing) = (false, handover.landing);
            return None;
        }
        // Its loop has read the same record as a call, and here nothing must wait elsewhere.
        Taken::Garbage(_) | Taken::MustWait(_) => return Some(LandedEnd::Bug),
    };
    let mut end = LandedEnd::Elsewhere;
    work.replies.drain(|head, payload, payload_len| {
        end = LandedEnd::Reply { head: head.into(), payload, payload_len, counted };
    });
    Some(end)
}

/// Has the reply cache forget a call that came too late, and does not execute it.
pub(super) fn forget(shared: &Shared, mut job: Job) {
    if job.begun {
        let (mut replies, mut text) = (Replies::default(), Vec::new());
        let mut executor = Executor {
            group: &shared.group,
            peers: &shared.peers,
            place: job.place,
            client: &mut job.client,
            replies: &mut replies,
            text: &mut text,
            times: Times { now: clock::now(), came: job.received },
        };
        let landing = job.landing.take();
        executor.take(&job.record, landing.map(|landing| *landing), job.record_len, Mode::Discard);
    }
    land(shared, job, LandedEnd::TooLate);
}

fn land(shared: &Shared, job: Job, end: LandedEnd) {
    let Job { place, client, received, ticket, .. } = job;
    let landed = Landed { place, connection: client.id, node: client.node, received, ticket, end };
    shared.peers.send(place.on_loop, Message::Landed(landed));
}
