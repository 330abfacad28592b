//! The locks of NFS version 3 in the state: which hosts are monitored, who gets a lock that others
//! have released, and what ends with a host.

use super::{Nfs4State, RECORD_POLL, Recovered, StateHost, StateWords, WRITE_WAIT};
use crate::clock;
use crate::export::Exports;
use crate::nlm_hosts::{CallBacks, Grant, NlmHost};
use state::{Available, Error, Kind, NlmHow, NlmLock, NlmLocked, NlmMonitor, State};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use store::ObjectId;

/// The state number of a status monitor, by the epoch of the state: odd while it is up. XNFS s11
pub(super) fn nsm_state(epoch: u32) -> i32 {
    (epoch.wrapping_mul(2) & 0x7fff_fffe | 1).cast_signed()
}

/// Gives locks that have become free to the hosts that wait for them.
#[derive(Clone)]
pub(super) struct Grants(Arc<Shared>);

struct Shared {
    exports: RwLock<Arc<Exports>>,
    state: Arc<State<StateWords>>,
    host: Arc<StateHost>,
    call_backs: Arc<CallBacks>,
}

impl Grants {
    pub fn new(
        exports: &Arc<Exports>,
        state: &Arc<State<StateWords>>,
        host: &Arc<StateHost>,
        call_backs: &Arc<CallBacks>,
    ) -> Self {
        Self(Arc::new(Shared {
            exports: RwLock::new(Arc::clone(exports)),
            state: Arc::clone(state),
            host: Arc::clone(host),
            call_backs: Arc::clone(call_backs),
        }))
    }

    fn set_exports(&self, exports: Arc<Exports>) {
        *self.0.exports.write().unwrap_or_else(PoisonError::into_inner) = exports;
    }

    /// The handle of a file by its name in the state: see `file_name`.
    fn handle_of(&self, name: &[u8]) -> Option<Vec<u8>> {
        let (fsid, rest) = name.split_first_chunk::<4>()?;
        let (fileid, object) = rest.split_first_chunk::<8>()?;
        let object = ObjectId::named(u64::from_be_bytes(*fileid), object)?;
        let exports = self.0.exports.read().unwrap_or_else(PoisonError::into_inner);
        let fsid = u32::from_be_bytes(*fsid);
        let (_, export) = exports.iter().find(|(_, export)| export.config.fsid == fsid)?;
        Some(export.handle(object).as_slice().to_vec())
    }

    /// Locks for a host that waits, and has it called back. Others ask again by themselves.
    pub fn grant(&self, available: Available, now: Duration) {
        let Some(name) = &available.nlm_host else { return };
        let (Some(host), Some(handle)) = (NlmHost::decode(name), self.handle_of(&available.file)) else {
            return;
        };
        let Available { owner, file, offset, length, exclusive, .. } = &available;
        let lock =
            NlmLock { host: name, owner, file, offset: *offset, length: *length, exclusive: *exclusive };
        match self.0.state.nlm_lock(&*self.0.host, now, &lock, NlmHow::default()) {
            Ok(NlmLocked::Granted) => self.0.call_backs.granted(Grant {
                host,
                handle,
                file: available.file,
                owner: available.owner,
                offset: available.offset,
                length: available.length,
                exclusive: available.exclusive,
            }),
            // Somebody was faster, or there is no room now: the host asks again.
            Ok(NlmLocked::Waits) => {}
            Err(error) => tracing::debug!(%host, %error, "a lock is left to be asked for again"),
        }
    }
}

impl Nfs4State {
    /// Other exports are served from now on.
    pub fn set_exports(&self, exports: Arc<Exports>) {
        self.grants.set_exports(exports);
    }

    /// Has a host monitored. Returns whether it is; if not, and this thread `may_wait`, its record
    /// could not be written.
    pub fn nlm_monitor(&self, now: Duration, args: NlmMonitor<'_>, may_wait: bool) -> Result<bool, Error> {
        let monitor = |now| self.state.nlm_monitor(self.host(), now, args);
        if monitor(now)? {
            return Ok(true);
        }
        self.settle(now);
        let deadline = clock::now() + if may_wait { WRITE_WAIT } else { Duration::ZERO };
        while !monitor(clock::now())? {
            if clock::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(RECORD_POLL);
        }
        Ok(true)
    }

    /// A host at this address that calls itself `name` has ended what it had.
    pub fn nlm_forget(&self, now: Duration, client: IpAddr, name: &[u8], why: &str) {
        let is_meant =
            |encoded: &[u8]| NlmHost::decode(encoded).is_some_and(|host| host.is_called(client, name));
        match self.state.nlm_forget(self.host(), now, is_meant) {
            Ok(0) => {}
            Ok(_) => tracing::info!(
                %client,
                name = %name.get(..80).unwrap_or(name).escape_ascii(),
                "a host {why}: its locks are freed"
            ),
            Err(error) => tracing::warn!(%client, %error, "the locks of a host that {why} stay"),
        }
        self.settle(now);
    }

    /// Tells who waits that locks may have been released, without waiting for the next tick.
    #[inline]
    pub fn settle_waiting(&self, now: Duration) {
        if self.state.used(Kind::Waiter) > 0 {
            self.settle(now);
        }
    }

    /// After a restart: tells the hosts that had locks.
    pub(super) fn tell_hosts(&self, recovered: Option<&Recovered>) {
        let clients = recovered.map_or(&[][..], |recovered| &recovered.clients);
        let hosts = clients.iter().filter(|client| client.is_nlm);
        let hosts: Vec<_> = hosts.filter_map(|client| NlmHost::decode(&client.owner)).collect();
        if !hosts.is_empty() {
            let system = rustix::system::uname();
            self.host_calls.notify(hosts, system.nodename().to_bytes(), self.nsm_state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_numbers_are_odd_and_grow_with_the_epochs() {
        assert_eq!([0, 1, 2, 0x3fff_ffff].map(nsm_state), [1, 3, 5, 0x7fff_ffff]);
        assert_eq!(nsm_state(u32::MAX), 0x7fff_ffff);
    }
}
