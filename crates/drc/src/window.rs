//! The windows of Trunkline's own clients, and the bounded set of windows that a server keeps.
//!
//! A server asks [`Windows`] once per connection, after the export has admitted the caller, and
//! keeps the [`Arc`]. All connections of a client, on all nodes of the group, share its one window.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::class::{Counter, XidClass};
use super::done_window::{DoneWindow, STATUS_MAX};
use super::reply_window::ReplyWindow;
use super::{Begin, Outcome, Refusal, ReplyTo, Stored, Token};
use rpc::Xid;

/// Clients whose windows a server keeps. A client that only reads costs less than a KiB; a client
/// that has filled its rings costs about 400 KiB, so all of them cost at most 400 MiB.
pub const CLIENT_WINDOWS_MAX: usize = 1_024;

/// Clients of one address whose windows a server keeps: more mounts than a host has, and a quarter
/// of all, so that no single address can crowd out the others.
pub const ADDRESS_WINDOWS_MAX: usize = 256;
/// How long a window without a connection is kept after its last call: a client that was cut off
/// for less than this finds its calls remembered, whatever other clients do. The table of foreign
/// clients keeps its entries as long.
pub const WINDOW_IDLE_MIN: Duration = super::TABLE_AGE_MAX;

/// The calls of one Trunkline client. Shared by all its connections; every method takes `&self`.
#[derive(Debug)]
pub struct ClientWindow {
    id: u64,
    /// The address of the connection for which the window was created.
    address: IpAddr,
    done: DoneWindow,
    replies: Mutex<ReplyWindow>,
    /// When the last call was received, in whole seconds, so that the word is written once a second
    /// and not per call.
    used_s: AtomicU64,
}

impl ClientWindow {
    /// Creates an empty window for the client `id` at `address`.
    #[must_use]
    pub fn new(id: u64, address: IpAddr, now: Duration) -> Self {
        Self {
            id,
            address,
            done: DoneWindow::default(),
            replies: Mutex::default(),
            used_s: AtomicU64::new(now.as_secs()),
        }
    }

    /// The id of the client.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Asks before a call is executed, after its arguments were validated and its xid was found to
    /// have the class that its procedure needs. A [`XidClass::Repeatable`] call always runs.
    pub fn begin(&self, xid: Xid, token: Token, now: Duration) -> Begin {
        let now_s = now.as_secs();
        if self.used_s.load(Ordering::Relaxed) != now_s {
            self.used_s.store(now_s, Ordering::Relaxed);
        }
        match XidClass::of(xid) {
            Some(XidClass::Repeatable) => Begin::Run,
            Some(XidClass::DoneBit) => self.done.begin(Counter::of(xid), token),
            Some(XidClass::WholeReply) => self.replies().begin(Counter::of(xid), token),
            None => Begin::Refused(Refusal::UnknownClass),
        }
    }

    /// Ends a call for which [`begin`](Self::begin) returned `Run`. Returns where its reply goes.
    ///
    /// # Panics
    /// In debug builds, if a [`XidClass::DoneBit`] call ends in [`Outcome::Reply`], for which there
    /// is no room.
    pub fn finish(&self, xid: Xid, outcome: Outcome<'_>, _now: Duration) -> ReplyTo {
        let counter = Counter::of(xid);
        match XidClass::of(xid) {
            Some(XidClass::Repeatable) | None => ReplyTo::ORIGINAL,
            Some(XidClass::DoneBit) => match outcome {
                Outcome::Done => self.done.finish(counter, 0),
                // 0 is success; a failure with status 0 is a caller's bug and stays a failure.
                Outcome::Failed(status) => self.done.finish(counter, status.clamp(1, STATUS_MAX)),
                Outcome::Reply(_) => {
                    debug_assert!(false, "a call of {xid} keeps its status, not its reply");
                    self.done.finish(counter, STATUS_MAX)
                }
                Outcome::Dropped => self.done.release(counter),
            },
            Some(XidClass::WholeReply) => self.replies().finish(counter, Stored::of(outcome)),
        }
    }

    fn used_s(&self) -> u64 {
        self.used_s.load(Ordering::Relaxed)
    }

    fn replies(&self) -> MutexGuard<'_, ReplyWindow> {
        // A panic elsewhere leaves the window consistent: its methods do not panic halfway.
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored {
    /// The stored form of an outcome; `None` for a call that was dropped.
    pub(super) fn of(outcome: Outcome<'_>) -> Option<Self> {
        match outcome {
            Outcome::Done => Some(Self::Done),
            Outcome::Failed(status) => Some(Self::Failed(status)),
            Outcome::Reply(bytes) => Some(Self::Reply(bytes.into())),
            Outcome::Dropped => None,
        }
    }
}

/// The windows of all of Trunkline's clients.
#[derive(Debug)]
pub struct Windows {
    clients: HashMap<u64, Arc<ClientWindow>>,
    clients_max: usize,
}

impl Windows {
    /// Creates a set for at most `clients_max` clients, normally [`CLIENT_WINDOWS_MAX`].
    #[must_use]
    pub fn new(clients_max: usize) -> Self {
        Self { clients: HashMap::new(), clients_max }
    }

    /// The window of the client `id`, which comes from `address`, made if need be. At the bound the
    /// least recently used one is dropped, but none that is held outside (by a connection or by a
    /// running call) and none used within [`WINDOW_IDLE_MIN`]. An address at its own bound
    /// ([`ADDRESS_WINDOWS_MAX`]), or one that has the most where all are in use, loses the least
    /// recently used of its own that is not held, however lately that was: who makes many clients
    /// costs itself their memory, not others.
    ///
    /// `None`: nothing may be dropped. The client is turned away until something may, with
    /// SYSTEM_ERR or by closing its connection. Serving it from the [`Table`](super::Table)
    /// meanwhile would be wrong: a call that ran there would run again when its copy comes after
    /// the client got a window.
    pub fn window(&mut self, id: u64, address: IpAddr, now: Duration) -> Option<Arc<ClientWindow>> {
        if let Some(window) = self.clients.get(&id) {
            return Some(Arc::clone(window));
        }
        let own = self.count_of_address(address);
        if own >= ADDRESS_WINDOWS_MAX.min(self.clients_max) {
            let oldest = self.least_recently_used(|window| window.address == address)?;
            self.clients.remove(&oldest);
        } else if self.clients.len() >= self.clients_max {
            let is_idle = |window: &ClientWindow| {
                now.as_secs().saturating_sub(window.used_s()) > WINDOW_IDLE_MIN.as_secs()
            };
            let idle = self.least_recently_used(is_idle).or_else(|| self.of_largest_holder(address, own));
            self.clients.remove(&idle?);
        }
        let window = Arc::new(ClientWindow::new(id, address, now));
        self.clients.insert(id, Arc::clone(&window));
        Some(window)
    }

    fn count_of_address(&self, address: IpAddr) -> usize {
        self.clients.values().filter(|window| window.address == address).count()
    }

    /// The least recently used window of the address that has the most, unless `address` would then
    /// have the most: in that case its own windows must make room.
    fn of_largest_holder(&self, address: IpAddr, own: usize) -> Option<u64> {
        let mut by_address: HashMap<IpAddr, usize> = HashMap::new();
        for window in self.clients.values() {
            *by_address.entry(window.address).or_default() += 1;
        }
        let (greediest, most) = by_address.into_iter().max_by_key(|(address, count)| (*count, *address))?;
        let greediest = if most > own + 1 { greediest } else { address };
        self.least_recently_used(|window| window.address == greediest)
    }

    /// The number of known clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether no client is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The least recently used window that is not referenced elsewhere and may be dropped.
    fn least_recently_used(&self, may_go: impl Fn(&ClientWindow) -> bool) -> Option<u64> {
        self.clients
            .values()
            // No other reference can be created meanwhile: that goes through `self`.
            .filter(|window| Arc::strong_count(window) == 1)
            .filter(|window| may_go(window))
            .min_by_key(|window| window.used_s())
            .map(|window| window.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);
    const TOKEN: Token = Token(1);

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn each_class_of_xid_is_kept_in_its_own_way() {
        let window = ClientWindow::new(7, address(1), START);
        let ends = [
            (0x4000_0001, Outcome::Done, Begin::Replay(Stored::Done)),
            (0x4000_0002, Outcome::Failed(5), Begin::Replay(Stored::Failed(5))),
            (0x4000_0003, Outcome::Dropped, Begin::Run),
            (0x8000_0001, Outcome::Reply(b"made"), Begin::Replay(Stored::Reply(b"made"[..].into()))),
            (0x8000_0002, Outcome::Dropped, Begin::Run),
            (0x0000_0001, Outcome::Done, Begin::Run),
        ];
        for (xid, outcome, then) in ends {
            assert_eq!(window.begin(Xid(xid), TOKEN, START), Begin::Run);
            assert_eq!(window.finish(Xid(xid), outcome, START), ReplyTo::ORIGINAL);
            assert_eq!(window.begin(Xid(xid), TOKEN, START), then);
        }
        assert_eq!(window.begin(Xid(u32::MAX), TOKEN, START), Begin::Refused(Refusal::UnknownClass));
    }

    #[test]
    fn all_connections_of_a_client_share_its_window() {
        let mut windows = Windows::new(4);
        let first = windows.window(7, address(7), START).unwrap();
        assert!(Arc::ptr_eq(&first, &windows.window(7, address(7), START).unwrap()));
        assert!(!Arc::ptr_eq(&first, &windows.window(8, address(8), START).unwrap()));
        assert_eq!(windows.len(), 2);
    }

    #[test]
    fn the_least_recently_used_window_goes_but_none_that_is_held_or_was_used_lately() {
        let mut windows = Windows::new(3);
        let second = Duration::from_secs(1);
        let held = windows.window(1, address(1), START).unwrap();
        let used = windows.window(2, address(2), START).unwrap();
        drop(windows.window(3, address(3), START + second).unwrap());
        // Used long after it was looked up, as by a connection that lasts for days.
        used.begin(Xid(0), TOKEN, START + 100 * second);
        drop(used);
        assert!(
            windows.window(4, address(4), START + WINDOW_IDLE_MIN).is_none(),
            "all are held or used lately"
        );
        assert!(windows.window(4, address(4), START + WINDOW_IDLE_MIN + 3 * second).is_some());
        assert!(!windows.clients.contains_key(&3), "the least recently used");
        assert!(windows.clients.contains_key(&1) && windows.clients.contains_key(&2));
        assert!(
            windows.window(5, address(5), START + WINDOW_IDLE_MIN + 3 * second).is_none(),
            "4 is new, 2 too young"
        );
        drop(held);
        assert!(windows.window(5, address(5), START + WINDOW_IDLE_MIN + 3 * second).is_some());
        assert_eq!(windows.len(), 3);
    }

    #[test]
    fn an_address_with_many_clients_costs_itself_and_no_other() {
        let mut windows = Windows::new(CLIENT_WINDOWS_MAX);
        let most = ADDRESS_WINDOWS_MAX as u64;
        let held = windows.window(0, address(1), START).unwrap();
        for id in 1..3 * most {
            assert!(windows.window(id, address(1), START + Duration::from_secs(id)).is_some());
            assert!(windows.len() <= ADDRESS_WINDOWS_MAX);
        }
        assert!(windows.clients.contains_key(&held.id()), "the oldest, but held");
        assert!(!windows.clients.contains_key(&1) && windows.clients.contains_key(&(3 * most - 1)));
        let all: Vec<_> = (0..most).map(|id| windows.window(1000 + id, address(2), START)).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(windows.window(5000, address(2), START).is_none(), "all of its own are held");
        assert!(windows.window(5000, address(3), START).is_some());
    }

    #[test]
    fn where_all_windows_are_in_use_the_address_with_the_most_makes_room() {
        let mut windows = Windows::new(10);
        for id in 0..8 {
            windows.window(id, address(1), START + Duration::from_secs(id)).unwrap();
        }
        for id in 10..12 {
            windows.window(id, address(2), START).unwrap();
        }
        let now = START + Duration::from_secs(9);
        assert!(windows.window(20, address(3), now).is_some());
        assert!(!windows.clients.contains_key(&0), "the oldest of the address with the most");
        assert!(windows.clients.contains_key(&10) && windows.clients.contains_key(&11));
        assert!(windows.window(30, address(1), now).is_some());
        assert!(!windows.clients.contains_key(&1), "its own makes room");
        assert!(windows.clients.contains_key(&20) && windows.len() == 10);
    }
}
