//! The range lock against a list that is searched from the start.

use super::*;
use proptest::prelude::*;

type Lock = RangeLock<u32>;

fn outputs(lock: &mut Lock) -> Vec<Output<u32>> {
    std::iter::from_fn(|| lock.poll_output()).collect()
}

fn admitted(lock: &mut Lock) -> Vec<u32> {
    let token = |output| match output {
        Output::Admitted { token, .. } => token,
        other => panic!("{other:?}"),
    };
    outputs(lock).into_iter().map(token).collect()
}

#[test]
fn a_retry_waits_for_its_original_and_newer_writes_wait_for_the_retry() {
    let mut lock = Lock::default();
    let (a, b) = (lock.open_owner().unwrap(), lock.open_owner().unwrap());
    let original = lock.acquire(a, 0..8, Access::Write, 1).unwrap();
    assert!(matches!(original, Acquired::Admitted(_)));
    let retry = lock.acquire(b, 0..8, Access::Write, 2).unwrap();
    let newer = lock.acquire(b, 4..5, Access::Write, 3).unwrap();
    assert!(matches!((retry, newer), (Acquired::Waits(_), Acquired::Waits(_))));
    assert!(lock.release(original.ticket()));
    assert_eq!(admitted(&mut lock), [2]);
    assert!(lock.release(retry.ticket()));
    assert_eq!(admitted(&mut lock), [3]);
}

#[test]
fn reads_share_and_none_overtakes_a_write_that_waits() {
    let mut lock = Lock::default();
    let owner = lock.open_owner().unwrap();
    let first = lock.acquire(owner, 0..4, Access::Read, 1).unwrap();
    let second = lock.acquire(owner, 2..6, Access::Read, 2).unwrap();
    assert!(matches!((first, second), (Acquired::Admitted(_), Acquired::Admitted(_))));
    let write = lock.acquire(owner, 3..4, Access::Write, 3).unwrap();
    let later = lock.acquire(owner, 3..9, Access::Read, 4).unwrap();
    let elsewhere = lock.acquire(owner, 9..10, Access::Write, 5).unwrap();
    assert!(matches!(later, Acquired::Waits(_)));
    assert!(matches!(elsewhere, Acquired::Admitted(_)), "ranges that only touch do not conflict");
    assert!(lock.release(first.ticket()));
    assert_eq!(outputs(&mut lock), []);
    assert!(lock.release(second.ticket()));
    assert_eq!(admitted(&mut lock), [3]);
    assert!(lock.release(write.ticket()));
    assert_eq!(admitted(&mut lock), [4]);
}

#[test]
fn draining_cancels_what_waits_and_ends_with_what_was_admitted() {
    let mut lock = Lock::default();
    let (a, b) = (lock.open_owner().unwrap(), lock.open_owner().unwrap());
    let held = lock.acquire(a, 0..8, Access::Write, 1).unwrap();
    let flush = lock.acquire(a, 0..0, Access::Write, 2).unwrap();
    assert!(matches!(flush, Acquired::Admitted(_)), "an empty range conflicts with nothing");
    let others = lock.acquire(b, 0..4, Access::Write, 3).unwrap();
    for token in [4, 5] {
        assert!(matches!(lock.acquire(a, 2..8, Access::Write, token), Ok(Acquired::Waits(_))));
    }
    let behind = lock.acquire(b, 6..8, Access::Read, 6).unwrap();
    assert!(lock.drain(a));
    assert_eq!(outputs(&mut lock), [4, 5].map(|token| Output::Cancelled { token }));
    assert_eq!(lock.acquire(a, 20..21, Access::Read, 7), Err(Refusal::Drained));
    assert!(!lock.drain(a), "it is being drained");
    assert!(lock.release(held.ticket()));
    assert_eq!(admitted(&mut lock), [3, 6]);
    assert!(lock.release(flush.ticket()));
    assert_eq!(outputs(&mut lock), [Output::Drained(a)]);
    assert_eq!(lock.acquire(a, 20..21, Access::Read, 7), Err(Refusal::Drained));
    assert!(!lock.drain(a));
    assert!(lock.release(others.ticket()) && lock.release(behind.ticket()));
    assert!(lock.drain(b));
    assert_eq!(outputs(&mut lock), [Output::Drained(b)], "an owner without commands is drained at once");
}

#[test]
fn an_owner_of_which_everything_waits_is_drained_at_once() {
    let mut lock = Lock::default();
    let (a, b) = (lock.open_owner().unwrap(), lock.open_owner().unwrap());
    let held = lock.acquire(a, 0..1, Access::Write, 1).unwrap();
    lock.acquire(b, 0..1, Access::Write, 2).unwrap();
    assert!(lock.drain(b));
    assert_eq!(outputs(&mut lock), [Output::Cancelled { token: 2 }, Output::Drained(b)]);
    assert!(lock.release(held.ticket()));
    assert_eq!(outputs(&mut lock), []);
}

#[test]
fn a_ticket_is_good_once() {
    let mut lock = Lock::default();
    let owner = lock.open_owner().unwrap();
    let held = lock.acquire(owner, 0..1, Access::Write, 1).unwrap().ticket();
    let waits = lock.acquire(owner, 0..1, Access::Write, 2).unwrap().ticket();
    assert!(!lock.release(waits), "it was not admitted");
    assert!(!lock.cancel(held), "it was admitted");
    assert!(lock.release(held) && !lock.release(held));
    assert!(!lock.cancel(waits) && lock.release(waits));
    let again = lock.acquire(owner, 0..1, Access::Write, 3).unwrap().ticket();
    assert!(!lock.release(held) && !lock.release(waits), "their places are used again");
    assert!(lock.release(again));
    assert!(lock.is_empty());
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn bounds_are_refused_and_change_nothing() {
    let mut lock = Lock::default();
    let owners: Vec<_> = (0..OWNERS_MAX).map(|_| lock.open_owner().unwrap()).collect();
    assert_eq!(lock.open_owner(), Err(Refusal::Full));
    assert_eq!(lock.acquire(owners[0], 2..1, Access::Read, 0), Err(Refusal::Reversed));
    let mut tickets = Vec::new();
    for owner in &owners[..ENTRIES_MAX / OWNER_ENTRIES_MAX] {
        for at in 0..OWNER_ENTRIES_MAX as u64 {
            tickets.push(lock.acquire(*owner, at..at + 1, Access::Read, 0).unwrap().ticket());
        }
        assert_eq!(lock.acquire(*owner, 0..1, Access::Read, 0), Err(Refusal::Full));
    }
    assert_eq!(lock.len(), ENTRIES_MAX);
    let last = owners[OWNERS_MAX - 1];
    assert_eq!(lock.acquire(last, 0..1, Access::Read, 0), Err(Refusal::Full));
    assert_eq!(lock.of_owner(last), Some(0));
    assert!(tickets.into_iter().all(|ticket| lock.release(ticket)));
    assert!(lock.is_empty() && lock.acquire(last, 0..1, Access::Write, 0).is_ok());
}

/// What a test does next; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    Acquire { owner: usize, start: u64, length: u64, write: bool },
    Release(usize),
    Cancel(usize),
    Drain(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![8 => 0..9_u64, 1 => 0..70_u64, 1 => Just(u64::MAX / 2)];
    let acquire = (0..4_usize, 0..64_u64, length, any::<bool>())
        .prop_map(|(owner, start, length, write)| Step::Acquire { owner, start, length, write });
    let step = prop_oneof![
        6 => acquire,
        5 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0..4_usize).prop_map(Step::Drain),
    ];
    prop::collection::vec(step, 1..200)
}

struct Known {
    ticket: Ticket,
    owner: Owner,
    range: Range<u64>,
    write: bool,
    token: u32,
    admitted: bool,
}

/// The commands in the order of their arrival, and nothing else.
#[derive(Default)]
struct Oracle(Vec<Known>);

impl Oracle {
    fn is_blocked(&self, at: usize) -> bool {
        let one = &self.0[at];
        self.0[..at].iter().any(|other| {
            let overlap = other.range.start.max(one.range.start) < other.range.end.min(one.range.end);
            overlap && (other.write || one.write)
        })
    }

    /// Admits what nothing blocks any more, in order.
    fn admit(&mut self) -> Vec<Output<u32>> {
        let mut out = Vec::new();
        for at in 0..self.0.len() {
            if !self.0[at].admitted && !self.is_blocked(at) {
                self.0[at].admitted = true;
                out.push(Output::Admitted { ticket: self.0[at].ticket, token: self.0[at].token });
            }
        }
        out
    }

    fn choose(&self, number: usize, admitted: bool) -> Option<usize> {
        let chosen: Vec<_> = (0..self.0.len()).filter(|at| self.0[*at].admitted == admitted).collect();
        chosen.get(number % chosen.len().max(1)).copied()
    }

    fn has(&self, owner: Owner) -> bool {
        self.0.iter().any(|known| known.owner == owner)
    }
}

/// The same outputs, whichever of the admitted and cancelled ones comes first; those of a kind keep
/// their order.
fn by_kind(outputs: Vec<Output<u32>>) -> [Vec<Output<u32>>; 3] {
    let of = |kind: fn(&Output<u32>) -> bool| outputs.iter().copied().filter(kind).collect();
    [
        of(|output| matches!(output, Output::Admitted { .. })),
        of(|output| matches!(output, Output::Cancelled { .. })),
        of(|output| matches!(output, Output::Drained(_))),
    ]
}

proptest! {
    #[test]
    fn it_does_what_a_list_in_the_order_of_arrival_says(steps in steps()) {
        let (mut lock, mut oracle) = (Lock::default(), Oracle::default());
        let mut owners: Vec<_> = (0..4).map(|_| lock.open_owner().unwrap()).collect();
        let mut draining = Vec::new();
        for (token, step) in (0..).zip(steps) {
            let mut expected = Vec::new();
            match step {
                Step::Acquire { owner, start, length, write } => {
                    let (owner, range) = (owners[owner], start..start + length);
                    let access = if write { Access::Write } else { Access::Read };
                    let acquired = lock.acquire(owner, range.clone(), access, token).unwrap();
                    let ticket = acquired.ticket();
                    oracle.0.push(Known { ticket, owner, range, write, token, admitted: false });
                    let blocked = oracle.is_blocked(oracle.0.len() - 1);
                    oracle.0.last_mut().unwrap().admitted = !blocked;
                    prop_assert_eq!(matches!(acquired, Acquired::Waits(_)), blocked);
                }
                Step::Release(number) => {
                    let Some(at) = oracle.choose(number, true) else { continue };
                    let gone = oracle.0.remove(at);
                    prop_assert!(lock.release(gone.ticket));
                }
                Step::Cancel(number) => {
                    let Some(at) = oracle.choose(number, false) else { continue };
                    let gone = oracle.0.remove(at);
                    prop_assert!(lock.cancel(gone.ticket));
                }
                Step::Drain(number) => {
                    let owner = std::mem::replace(&mut owners[number], lock.open_owner().unwrap());
                    prop_assert!(lock.drain(owner));
                    draining.push(owner);
                    let cancelled = |known: &mut Known| known.owner == owner && !known.admitted;
                    let out = oracle.0.extract_if(.., cancelled);
                    expected.extend(out.map(|known| Output::Cancelled { token: known.token }));
                }
            }
            expected.extend(oracle.admit());
            let ended = draining.extract_if(.., |owner| !oracle.has(*owner));
            expected.extend(ended.map(Output::Drained));
            prop_assert_eq!(by_kind(outputs(&mut lock)), by_kind(expected));
            prop_assert_eq!(lock.len(), oracle.0.len());
        }
        // Nothing starves: what is left ends in the order of its admissions.
        while let Some(at) = oracle.choose(0, true) {
            prop_assert!(lock.release(oracle.0.remove(at).ticket));
            oracle.admit();
            outputs(&mut lock);
        }
        prop_assert!(oracle.0.is_empty() && lock.is_empty());
    }
}
