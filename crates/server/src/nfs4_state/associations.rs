//! The sessions with which a connection is associated: by their creation, by being bound to them,
//! or by their requests. RFC 8881 s2.10.3.1

use smallvec::SmallVec;
use state::SessionId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sessions that one connection may be associated with; of more, the first is forgotten until its
/// next request.
const SESSIONS_MAX: usize = 64;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Associations {
    /// The unguessable part of the session that was associated last: most connections have one.
    last: AtomicU64,
    all: Mutex<SmallVec<[SessionId; 1]>>,
}

impl Associations {
    fn all(&self) -> MutexGuard<'_, SmallVec<[SessionId; 1]>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Associates the connection with a session.
    #[inline]
    pub fn add(&self, session: SessionId) {
        let code = code_of(session);
        if self.last.load(Ordering::Relaxed) != code {
            self.add_other(session);
            self.last.store(code, Ordering::Relaxed);
        }
    }

    fn add_other(&self, session: SessionId) {
        let mut all = self.all();
        if !all.contains(&session) {
            if all.len() >= SESSIONS_MAX {
                all.remove(0);
            }
            all.push(session);
        }
    }

    /// Whether the connection is associated with a session.
    pub fn has(&self, session: SessionId) -> bool {
        self.all().contains(&session)
    }

    /// Forgets a session that has ended.
    pub fn remove(&self, session: SessionId) {
        let mut all = self.all();
        all.retain(|other| *other != session);
        self.last.store(0, Ordering::Relaxed);
    }
}

fn code_of(session: SessionId) -> u64 {
    session.0.last_chunk().map_or(0, |code| u64::from_ne_bytes(*code))
}
