//! Looks whether the process of the other node was started with the same configuration, whenever it
//! has come or this one has read its file again, and says so in the log if it was not.
//!
//! A thread asks both processes, as `trunkline block check` does. Its questions have to be answered
//! by the thread that serves, here and there, so that must not ask itself.

use crate::block::difference::Difference;
use crate::block::document::Which;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// How long it takes until both processes answer after the start, and have both read a file that
/// was changed.
const INTERVAL: Duration = Duration::from_secs(1);
/// A partner that has not answered by then has ended, or cannot be asked.
const ATTEMPTS: usize = 10;

/// Asks for a look at the partner, which does not wait.
#[derive(Debug, Clone)]
pub struct Looks(SyncSender<()>);

impl Looks {
    /// Starts the thread, which ends with the last of these.
    pub fn start() -> std::io::Result<Self> {
        let (sender, asked) = sync_channel(1);
        std::thread::Builder::new().name("tl-partner".to_owned()).spawn(move || look_whenever(&asked))?;
        Ok(Self(sender))
    }

    /// Looks soon.
    pub fn ask(&self) {
        // One that is about to begin is as good.
        let _ = self.0.try_send(());
    }
}

fn look_whenever(asked: &Receiver<()>) {
    while asked.recv().is_ok() {
        for Difference { seen, .. } in look() {
            tracing::warn!(
                difference = seen,
                "the nodes of the pair are not configured alike: `trunkline block check` says what mends it"
            );
        }
    }
}

/// How the nodes differ, if they still do after a while.
fn look() -> Vec<Difference> {
    let mut before = None;
    for _ in 0..ATTEMPTS {
        std::thread::sleep(INTERVAL);
        let Ok(server) = Which::of(std::process::id()).server() else { continue };
        if server.lone().is_some() {
            continue;
        }
        let now = server.differences;
        if now.is_empty() || before.as_ref() == Some(&now) {
            return now;
        }
        before = Some(now);
    }
    before.unwrap_or_default()
}
