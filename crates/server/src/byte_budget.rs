//! The memory that clients make the server hold: one sum over the process, and one for each
//! address.
//!
//! Charged are records that are being received, calls that wait for a worker or are executed by
//! one, and replies that are not sent yet, whatever store their data come from. The first
//! [`FREE_BYTES`] of a connection are not charged, so that short calls cost nothing here and are
//! served even when no memory is left.
//!
//! Nothing is refused here: connections ask for room before they take more, and wait without it.
//! An address may hold no more than what is left for all others: half of the budget if it is alone,
//! a third if two do that, and so on. So neither one host nor several take the memory of all, and
//! who holds little finds room.

use crate::address::network_of;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What each connection may hold in addition to the budget: some hundred short replies.
pub(crate) const FREE_BYTES: usize = 16 << 10;
/// The smallest budget: half of it has room for the longest record and its reply.
pub(crate) const BUDGET_BYTES_MIN: usize = 8 << 20;
/// What an address that holds nothing may take at least, as far as it is left: the longest record
/// and its reply.
const FIRST_BYTES: usize = BUDGET_BYTES_MIN / 2;
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
        self.room_beside(account, 0)
    }

    /// How much more an address may hold, after others got what they were promised.
    fn room_beside(&self, account: &Account, promised: usize) -> usize {
        let left = self.bytes_max.saturating_sub(self.total.load(Ordering::Relaxed) + promised);
        let held = account.held_bytes();
        // Without this, a long record would have to wait until most of the memory is free.
        let first = if held == 0 { left.min(FIRST_BYTES) } else { 0 };
        // With that much more, the address holds as much as is left.
        first.max(left.saturating_sub(held) / 2)
    }

    /// Whether an address may hold `bytes` more, after others got what they were promised.
    pub fn has_room(&self, account: &Account, bytes: usize, promised: usize) -> bool {
        bytes <= self.room_beside(account, promised)
    }

    /// Called when an address has no room for `bytes`: whether others hold too little to be to
    /// blame, because memory is left for that or the address would hold more than half of it.
    pub fn lacks_share(&self, account: &Account, bytes: usize, promised: usize) -> bool {
        let left = self.bytes_max.saturating_sub(self.total.load(Ordering::Relaxed));
        left >= bytes.saturating_add(promised)
            || account.held_bytes().saturating_add(bytes) > self.bytes_max / 2
    }

    /// Whether a turn need not check what it takes, when there are this many loops. With very many
    /// loops a quarter of the budget is enough, or there would never be plenty; but no less than
    /// what a turn may take.
    pub fn is_ample(&self, room: usize, loops: usize) -> bool {
        room >= AMPLE_BYTES.saturating_mul(loops).min(self.bytes_max / 4).max(AMPLE_BYTES)
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
    fn an_address_gets_half_and_several_leave_something_for_others() {
        let budget = ByteBudget::new(64 * MIB);
        let accounts = [1, 2, 3, 4].map(|last| budget.account(address(last)));
        let [one, two, three, four] = &accounts;
        let mut charge = Charge::none(Arc::clone(one));
        charge.set(30 * MIB);
        assert_eq!((budget.room(one), budget.room(two)), (2 * MIB, 17 * MIB));
        let all = [two, three].map(|account| {
            let bytes = budget.room(account);
            Charge::none(Arc::clone(account)).beside(bytes)
        });
        // 17 MiB were left, of which the third address got half, and the fourth gets half.
        assert_eq!(all.each_ref().map(Charge::bytes), [17 * MIB, 17 * MIB / 2]);
        assert_eq!(accounts.each_ref().map(|account| budget.room(account)), [0, 0, 0, 17 * MIB / 4]);
        assert!(budget.has_room(four, FIRST_BYTES, 4 * MIB) && !budget.has_room(three, 1, 0));
        assert!(budget.lacks_share(three, MIB, 0), "others leave enough");
        let rest = Charge::none(Arc::clone(two)).beside(17 * MIB / 2);
        assert!(!budget.lacks_share(four, MIB, 0) && budget.lacks_share(one, 3 * MIB, 0));
        drop(rest);
        drop(all);
        charge.set(MIB);
        assert_eq!((budget.room(one), budget.room(three)), (31 * MIB, 63 * MIB / 2));
        drop(charge);
        assert_eq!((budget.room(two), budget.total.load(Ordering::Relaxed)), (32 * MIB, 0));
    }

    #[test]
    fn an_address_that_holds_nothing_gets_room_for_the_longest_record_as_far_as_it_is_left() {
        let budget = ByteBudget::new(BUDGET_BYTES_MIN);
        let [one, two] = [1, 2].map(|last| budget.account(address(last)));
        let _held = Charge::none(Arc::clone(&one)).beside(BUDGET_BYTES_MIN / 2);
        assert_eq!((budget.room(&one), budget.room(&two)), (0, FIRST_BYTES));
        let _other = Charge::none(Arc::clone(&one)).beside(MIB);
        assert_eq!(budget.room(&two), FIRST_BYTES - MIB);
    }

    #[test]
    fn promises_to_others_count() {
        let budget = ByteBudget::new(64 * MIB);
        let [one, two] = [1, 2].map(|last| budget.account(address(last)));
        assert!(budget.has_room(&one, MIB, 63 * MIB) && !budget.has_room(&one, MIB, 64 * MIB));
        let held = Charge::none(Arc::clone(&one)).beside(31 * MIB);
        assert!(budget.has_room(&one, MIB, 0));
        assert!(!budget.has_room(&one, 2 * MIB, 0) && budget.lacks_share(&one, 2 * MIB, 0));
        assert!(budget.has_room(&two, 16 * MIB, MIB) && !budget.has_room(&two, 16 * MIB, 2 * MIB));
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
    fn of_a_small_budget_no_turn_takes_more_than_there_is_room_for() {
        for bytes_max in [BUDGET_BYTES_MIN, 32 * MIB] {
            let budget = ByteBudget::new(bytes_max);
            let room = budget.room(&budget.account(address(1)));
            assert!(room < AMPLE_BYTES || budget.is_ample(room, 1));
            assert!(!budget.is_ample(AMPLE_BYTES - 1, 1), "{bytes_max}");
        }
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
