//! The memory that clients make the server hold: one sum over the process, and one for each
//! address.
//!
//! Charged are records that are being received, calls that wait for a worker or are executed by
//! one, and replies that are not sent yet, whatever store their data come from. The first
//! [`FREE_BYTES`] of a connection are not charged, so that short calls cost nothing here and are
//! served even when no memory is left.
//!
//! Nothing is refused here: connections ask for room before they take more, and wait without it.
//! An address gets at most half of the budget, so that one host never takes the memory of all.

use crate::address::network_of;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What each connection may hold in addition to the budget: some hundred short replies.
pub(crate) const FREE_BYTES: usize = 16 << 10;
/// The smallest budget: half of it has room for the longest record and its reply.
pub(crate) const BUDGET_BYTES_MIN: usize = 8 << 20;
/// With this much room for each loop, turns need not check what their calls take: no turn takes
/// more.
const AMPLE_BYTES: usize = 16 << 20;
/// Addresses are cleaned up when there are twice as many as after the last time, and at least this
/// many.
const CLEAN_AT_MIN: usize = 64;

/// The memory that clients of one address hold.
#[derive(Debug)]
pub(crate) struct Account {
    held: AtomicUsize,
    /// The sum over all addresses.
    total: Arc<AtomicUsize>,
}

impl Account {
    pub fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// What one connection, or one call, is charged for. Dropping it gives the memory back.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    pub const fn none(account: Arc<Account>) -> Self {
        Self { account, bytes: 0 }
    }

    /// Another charge to the same address.
    pub fn beside(&self, bytes: usize) -> Self {
        let mut charge = Self::none(Arc::clone(&self.account));
        charge.set(bytes);
        charge
    }

    pub const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges this much instead.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        // The sums wrap around on the way, never in the end.
        let change = bytes.wrapping_sub(self.bytes);
        self.account.held.fetch_add(change, Ordering::Relaxed);
        self.account.total.fetch_add(change, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[derive(Debug, Default)]
struct Accounts {
    by_address: HashMap<IpAddr, Weak<Account>>,
    clean_at: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    bytes_max: usize,
    total: Arc<AtomicUsize>,
    accounts: Mutex<Accounts>,
}

impl ByteBudget {
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.max(BUDGET_BYTES_MIN);
        Self { bytes_max, total: Arc::default(), accounts: Mutex::default() }
    }

    /// The account of an address; it lasts as long as somebody is charged.
    pub fn account(&self, address: IpAddr) -> Arc<Account> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network_of(address);
        if let Some(account) = accounts.by_address.get(&address).and_then(Weak::upgrade) {
            return account;
        }
        if accounts.by_address.len() >= accounts.clean_at {
            accounts.by_address.retain(|_, account| account.strong_count() > 0);
            accounts.clean_at = (2 * accounts.by_address.len()).max(CLEAN_AT_MIN);
        }
        let account = Arc::new(Account { held: AtomicUsize::new(0), total: Arc::clone(&self.total) });
        accounts.by_address.insert(address, Arc::downgrade(&account));
        account
    }

    /// The bytes held by all addresses, and their bound.
    pub fn held(&self) -> (usize, usize) {
        (self.total.load(Ordering::Relaxed), self.bytes_max)
    }

    /// How much more an address may hold.
    pub fn room(&self, account: &Account) -> usize {
        let left = self.bytes_max.saturating_sub(self.total.load(Ordering::Relaxed));
        left.min((self.bytes_max / 2).saturating_sub(account.held_bytes()))
    }

    /// Whether an address may hold `bytes` more, after others got what they were promised.
    pub fn has_room(&self, account: &Account, bytes: usize, promised: usize) -> bool {
        let left = self.bytes_max.saturating_sub(self.total.load(Ordering::Relaxed));
        left >= bytes.saturating_add(promised) && !self.is_above_share(account, bytes)
    }

    /// Whether an address would hold more than its share with `bytes` more.
    pub fn is_above_share(&self, account: &Account, bytes: usize) -> bool {
        account.held_bytes().saturating_add(bytes) > self.bytes_max / 2
    }

    /// Whether a turn need not check what it takes, when there are this many loops. With very many
    /// loops a quarter of the budget is enough, or there would never be plenty.
    pub fn is_ample(&self, room: usize, loops: usize) -> bool {
        room >= AMPLE_BYTES.saturating_mul(loops).min(self.bytes_max / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn an_address_gets_half_and_all_together_get_the_budget() {
        let budget = ByteBudget::new(64 * MIB);
        let [one, two, three] = [1, 2, 3].map(|last| budget.account(address(last)));
        let mut charge = Charge::none(Arc::clone(&one));
        charge.set(30 * MIB);
        assert_eq!((budget.room(&one), budget.room(&two)), (2 * MIB, 32 * MIB));
        let other = Charge::none(Arc::clone(&two)).beside(32 * MIB);
        assert_eq!([&one, &two, &three].map(|account| budget.room(account)), [2 * MIB, 0, 2 * MIB]);
        charge.set(MIB);
        assert_eq!((budget.room(&one), budget.room(&three)), (31 * MIB, 31 * MIB));
        drop((charge, other));
        assert_eq!((budget.room(&two), budget.total.load(Ordering::Relaxed)), (32 * MIB, 0));
    }

    #[test]
    fn promises_to_others_count_in_the_sum_and_not_in_the_share_of_an_address() {
        let budget = ByteBudget::new(64 * MIB);
        let [one, two] = [1, 2].map(|last| budget.account(address(last)));
        assert!(budget.has_room(&one, MIB, 63 * MIB) && !budget.has_room(&one, MIB, 64 * MIB));
        let held = Charge::none(Arc::clone(&one)).beside(31 * MIB);
        assert!(budget.has_room(&one, MIB, 20 * MIB) && !budget.is_above_share(&one, MIB));
        assert!(!budget.has_room(&one, 2 * MIB, 0) && budget.is_above_share(&one, 2 * MIB));
        assert!(budget.has_room(&two, 32 * MIB, 0) && !budget.has_room(&two, 32 * MIB, 2 * MIB));
        drop(held);
    }

    #[test]
    fn with_any_number_of_loops_an_idle_server_has_plenty() {
        let budget = ByteBudget::new(1024 * MIB);
        let room = budget.room(&budget.account(address(1)));
        assert!([1, 16, 32, 64, 256].into_iter().all(|loops| budget.is_ample(room, loops)));
        assert!(
            !budget.is_ample(200 * MIB, 64) && budget.is_ample(16 * MIB, 1) && !budget.is_ample(15 * MIB, 1)
        );
    }

    #[test]
    fn an_address_has_one_account_and_those_of_the_past_are_forgotten() {
        let budget = ByteBudget::new(0);
        let kept = budget.account(address(1));
        assert!(Arc::ptr_eq(&kept, &budget.account("::ffff:10.0.0.1".parse().unwrap())));
        for number in 0..10_000_u32 {
            budget.account(IpAddr::from(number.to_be_bytes()));
        }
        let accounts = budget.accounts.lock().unwrap();
        assert!(accounts.by_address.len() <= 2 * CLEAN_AT_MIN, "{}", accounts.by_address.len());
        assert!(accounts.by_address.contains_key(&address(1)));
    }
}
