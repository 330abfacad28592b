//! The rules of reservations, each with hosts A, B and C, whose keys are 1, 2 and 3.

use super::*;

const A: HostId = HostId([0xa; 16]);
const B: HostId = HostId([0xb; 16]);
const C: HostId = HostId([0xc; 16]);
const STRANGER: HostId = HostId([0xd; 16]);

const TYPES: [ReservationType; 6] = [
    ReservationType::WRITE_EXCLUSIVE,
    ReservationType::EXCLUSIVE_ACCESS,
    ReservationType::WRITE_EXCLUSIVE_REGISTRANTS,
    ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS,
    ReservationType::WRITE_EXCLUSIVE_ALL,
    ReservationType::EXCLUSIVE_ACCESS_ALL,
];

fn register_arguments(action: RegisterAction) -> Register {
    Register { action, ignore_existing_key: false, persistence: Persistence::NO_CHANGE }
}

fn register(state: &mut Reservations, host: HostId, key: u64) -> Result<Change, Status> {
    state.register(host, &register_arguments(RegisterAction::REGISTER), &Keys { current: 0, other: key })
}

fn unregister(state: &mut Reservations, host: HostId, key: u64) -> Result<Change, Status> {
    state.register(host, &register_arguments(RegisterAction::UNREGISTER), &Keys { current: key, other: 0 })
}

fn acquire(
    state: &mut Reservations,
    host: HostId,
    action: AcquireAction,
    kind: ReservationType,
    (current, other): (u64, u64),
) -> Result<Change, Status> {
    state.acquire(host, &Acquire { action, ignore_existing_key: false, kind }, &Keys { current, other })
}

fn release(
    state: &mut Reservations,
    host: HostId,
    action: ReleaseAction,
    kind: ReservationType,
    current: u64,
) -> Result<Change, Status> {
    state.release(host, &Release { action, ignore_existing_key: false, kind }, Key { current })
}

/// A, B and C are registered, and A holds a reservation of this type.
fn held(kind: ReservationType) -> Reservations {
    let mut state = Reservations::default();
    for (host, key) in [(A, 1), (B, 2), (C, 3)] {
        register(&mut state, host, key).expect("registered");
    }
    acquire(&mut state, A, AcquireAction::ACQUIRE, kind, (1, 0)).expect("acquired");
    state
}

fn conflict() -> Result<Change, Status> {
    Err(Status::RESERVATION_CONFLICT.no_retry())
}

fn invalid() -> Result<Change, Status> {
    Err(Status::INVALID_FIELD.no_retry())
}

/// The table of NVMe Base, "Command Behavior in the Presence of a Reservation".
#[test]
fn who_may_read_and_write_under_each_type() {
    let none = Reservations::default();
    assert!(none.allows(STRANGER, true));
    // By type: whether registrants write and read, and whether strangers read. Strangers never
    // write.
    let table = [
        (false, true, true),
        (false, false, false),
        (true, true, true),
        (true, true, false),
        (true, true, true),
        (true, true, false),
    ];
    for (kind, (writes, reads, strangers)) in TYPES.into_iter().zip(table) {
        let state = held(kind);
        assert!(state.allows(A, true) && state.allows(A, false), "the holder, {kind:?}");
        assert_eq!((state.allows(B, true), state.allows(B, false)), (writes, reads), "{kind:?}");
        assert_eq!(
            (state.allows(STRANGER, true), state.allows(STRANGER, false)),
            (false, strangers),
            "{kind:?}"
        );
    }
}

#[test]
fn a_host_registers_one_key_and_the_same_one_again() {
    let mut state = Reservations::default();
    let change = register(&mut state, A, 1).expect("registered");
    assert_eq!(change, Change { changed: true, ..Change::default() });
    register(&mut state, A, 1).expect("again");
    assert_eq!(register(&mut state, A, 2), conflict());
    assert_eq!(register(&mut state, B, 0), invalid());
    assert_eq!(state.report(|_| vec![]).generation, 2, "each success counts");
}

#[test]
fn a_key_is_replaced_by_who_knows_it_or_ignores_it() {
    let mut state = Reservations::default();
    register(&mut state, A, 1).expect("registered");
    let replace = register_arguments(RegisterAction::REPLACE);
    let ignoring = Register { ignore_existing_key: true, ..replace };
    let keys = |current, other| Keys { current, other };
    assert_eq!(state.register(A, &replace, &keys(9, 2)), conflict());
    assert_eq!(state.register(A, &replace, &keys(1, 0)), invalid());
    state.register(A, &replace, &keys(1, 2)).expect("replaced");
    state.register(A, &ignoring, &keys(9, 3)).expect("replaced");
    assert_eq!(state.register(B, &replace, &keys(0, 2)), conflict(), "without a registration");
    state.register(B, &ignoring, &keys(0, 2)).expect("registered");
    assert_eq!(state.registrants, BTreeMap::from([(A, 3), (B, 2)]));
    assert_eq!(state.register(A, &register_arguments(RegisterAction(7)), &keys(3, 4)), invalid());
    let persistence = Register { persistence: Persistence(1), ..replace };
    assert_eq!(state.register(A, &persistence, &keys(3, 4)), invalid());
}

#[test]
fn persistence_is_as_the_last_command_that_said_something_said() {
    let mut state = Reservations::default();
    let with = |persistence| Register { persistence, ..register_arguments(RegisterAction::REGISTER) };
    let keys = Keys { current: 0, other: 1 };
    for (persistence, expected) in [
        (Persistence::NO_CHANGE, false),
        (Persistence::PERSISTENT, true),
        (Persistence::NO_CHANGE, true),
        (Persistence::VOLATILE, false),
    ] {
        state.register(A, &with(persistence), &keys).expect("registered");
        assert_eq!(state.is_persistent(), expected);
    }
}

#[test]
fn what_a_host_held_ends_with_its_registration_unless_all_hold_it() {
    for kind in TYPES {
        let mut state = held(kind);
        assert_eq!(unregister(&mut state, A, 9), conflict());
        let change = unregister(&mut state, A, 1).expect("unregistered");
        assert_eq!(state.kind() == kind, kind.is_for_all(), "{kind:?}");
        let told = matches!(kind.0, 3 | 4);
        let released = |host| (host, ReservationEvent::RESERVATION_RELEASED);
        assert_eq!(change.notices, if told { vec![released(B), released(C)] } else { vec![] });
        assert_eq!(change.narrowed, kind.is_for_all(), "only then A may do less");
    }
    let mut state = held(ReservationType::WRITE_EXCLUSIVE_ALL);
    for (host, key) in [(A, 1), (B, 2), (C, 3)] {
        assert_ne!(state.kind(), ReservationType::NONE);
        unregister(&mut state, host, key).expect("unregistered");
    }
    assert_eq!(state, Reservations { generation: state.generation, ..Reservations::default() });
}

#[test]
fn a_reservation_is_acquired_once_and_by_registrants() {
    let mut state = held(ReservationType::WRITE_EXCLUSIVE);
    let kind = ReservationType::WRITE_EXCLUSIVE;
    let again = acquire(&mut state, A, AcquireAction::ACQUIRE, kind, (1, 0)).expect("the same");
    assert!(!again.changed && !again.narrowed);
    let other = ReservationType::EXCLUSIVE_ACCESS;
    assert_eq!(acquire(&mut state, A, AcquireAction::ACQUIRE, other, (1, 0)), conflict());
    assert_eq!(acquire(&mut state, B, AcquireAction::ACQUIRE, kind, (2, 0)), conflict());
    assert_eq!(acquire(&mut state, B, AcquireAction::ACQUIRE, kind, (9, 0)), conflict());
    assert_eq!(acquire(&mut state, STRANGER, AcquireAction::ACQUIRE, kind, (0, 0)), conflict());
    for wrong in [ReservationType::NONE, ReservationType(7)] {
        assert_eq!(acquire(&mut state, A, AcquireAction::ACQUIRE, wrong, (1, 0)), invalid());
    }
    let ignoring = Acquire { action: AcquireAction::ACQUIRE, ignore_existing_key: true, kind };
    assert_eq!(state.acquire(A, &ignoring, &Keys { current: 1, other: 0 }), invalid());
    let mut all = held(ReservationType::WRITE_EXCLUSIVE_ALL);
    let kind = ReservationType::WRITE_EXCLUSIVE_ALL;
    acquire(&mut all, B, AcquireAction::ACQUIRE, kind, (2, 0)).expect("it holds it too");
}

#[test]
fn an_acquisition_is_a_fence_for_those_who_may_do_less() {
    let mut state = Reservations::default();
    register(&mut state, A, 1).expect("registered");
    let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS;
    let change = acquire(&mut state, A, AcquireAction::ACQUIRE, kind, (1, 0)).expect("acquired");
    assert!(change.narrowed, "strangers could write");
    let change = register(&mut state, B, 2).expect("registered");
    assert!(!change.narrowed, "B may do more");
    let change = unregister(&mut state, B, 2).expect("unregistered");
    assert!(change.narrowed, "and now less");
    let change = release(&mut state, A, ReleaseAction::RELEASE, kind, 1).expect("released");
    assert!(change.changed && !change.narrowed);
}

#[test]
fn the_holder_is_preempted_by_its_key() {
    for action in [AcquireAction::PREEMPT, AcquireAction::PREEMPT_AND_ABORT] {
        let mut state = held(ReservationType::EXCLUSIVE_ACCESS);
        let generation = state.generation;
        let kind = ReservationType::WRITE_EXCLUSIVE;
        let change = acquire(&mut state, B, action, kind, (2, 1)).expect("preempted");
        assert_eq!(state.held, Some(Held { kind, holder: B }));
        assert_eq!(state.registrants, BTreeMap::from([(B, 2), (C, 3)]));
        let notices =
            [(A, ReservationEvent::REGISTRATION_PREEMPTED), (C, ReservationEvent::RESERVATION_RELEASED)];
        assert_eq!(change.notices, notices);
        assert_eq!(change.aborts, action == AcquireAction::PREEMPT_AND_ABORT);
        assert!(change.narrowed && state.generation == generation + 1);
        assert!(!state.allows(A, true) && state.allows(A, false));
    }
}

#[test]
fn a_registrant_that_holds_nothing_is_preempted_by_its_key() {
    let mut state = held(ReservationType::WRITE_EXCLUSIVE_REGISTRANTS);
    let before = state.held;
    let kind = ReservationType::EXCLUSIVE_ACCESS;
    let change = acquire(&mut state, B, AcquireAction::PREEMPT, kind, (2, 3)).expect("preempted");
    assert_eq!((state.held, state.registrants.len()), (before, 2), "the reservation stays");
    assert_eq!(change.notices, [(C, ReservationEvent::REGISTRATION_PREEMPTED)]);
    assert!(change.narrowed);
    let nobody = acquire(&mut state, B, AcquireAction::PREEMPT, kind, (2, 9));
    assert_eq!(nobody, conflict());
    assert_eq!(acquire(&mut state, B, AcquireAction::PREEMPT, kind, (2, 0)), invalid());
}

#[test]
fn without_a_reservation_preemption_ends_registrations() {
    let mut state = Reservations::default();
    register(&mut state, A, 1).expect("registered");
    register(&mut state, B, 2).expect("registered");
    let kind = ReservationType::WRITE_EXCLUSIVE;
    acquire(&mut state, A, AcquireAction::PREEMPT, kind, (1, 2)).expect("preempted");
    assert_eq!((state.kind(), state.registrants.len()), (ReservationType::NONE, 1));
}

#[test]
fn a_holder_that_preempts_itself_changes_the_type_and_stays() {
    let mut state = held(ReservationType::WRITE_EXCLUSIVE);
    let kind = ReservationType::EXCLUSIVE_ACCESS;
    let change = acquire(&mut state, A, AcquireAction::PREEMPT, kind, (1, 1)).expect("changed");
    assert_eq!((state.held, state.registrants.len()), (Some(Held { kind, holder: A }), 3));
    assert!(change.narrowed, "others may not read any more");
}

#[test]
fn of_a_reservation_that_all_hold_zero_preempts_all_others() {
    let kind = ReservationType::WRITE_EXCLUSIVE;
    let mut state = held(ReservationType::EXCLUSIVE_ACCESS_ALL);
    let change = acquire(&mut state, B, AcquireAction::PREEMPT, kind, (2, 0)).expect("preempted");
    assert_eq!((state.held, state.registrants.len()), (Some(Held { kind, holder: B }), 1));
    assert_eq!(change.notices.len(), 2);
    let mut state = held(ReservationType::EXCLUSIVE_ACCESS_ALL);
    acquire(&mut state, B, AcquireAction::PREEMPT, kind, (2, 1)).expect("one of them");
    assert_eq!(state.kind(), ReservationType::EXCLUSIVE_ACCESS_ALL, "the others hold it still");
    assert!(state.allows(C, true) && !state.allows(A, false));
    assert_eq!(acquire(&mut state, B, AcquireAction::PREEMPT, kind, (2, 9)), conflict());
}

#[test]
fn a_release_needs_the_type_and_tells_registrants_where_they_gain_by_it() {
    for kind in TYPES {
        let mut state = held(kind);
        let wrong = TYPES.into_iter().find(|other| *other != kind).expect("another one");
        assert_eq!(release(&mut state, A, ReleaseAction::RELEASE, wrong, 1), invalid());
        assert_eq!(release(&mut state, A, ReleaseAction::RELEASE, kind, 9), conflict());
        if !kind.is_for_all() {
            let others = release(&mut state, B, ReleaseAction::RELEASE, kind, 2);
            assert_eq!(others, Ok(Change::default()), "not the holder, and no error");
        }
        let change = release(&mut state, A, ReleaseAction::RELEASE, kind, 1).expect("released");
        assert_eq!(change.notices.len(), if kind.favours_registrants() { 2 } else { 0 }, "{kind:?}");
        assert_eq!(state.registrants.len(), 3);
        let again = release(&mut state, A, ReleaseAction::RELEASE, kind, 1);
        assert_eq!(again, Ok(Change::default()));
    }
}

#[test]
fn clear_ends_everything() {
    let mut state = held(ReservationType::EXCLUSIVE_ACCESS);
    let kind = ReservationType::NONE;
    let change = release(&mut state, B, ReleaseAction::CLEAR, kind, 2).expect("any registrant may");
    let preempted = |host| (host, ReservationEvent::RESERVATION_PREEMPTED);
    assert_eq!(change.notices, [preempted(A), preempted(C)]);
    assert!(state.registrants.is_empty() && state.held.is_none() && !change.narrowed);
    assert_eq!(release(&mut state, B, ReleaseAction::CLEAR, kind, 2), conflict());
}

#[test]
fn a_report_has_each_controller_of_a_registrant_and_brings_the_state_back() {
    for kind in TYPES {
        let state = held(kind);
        let report = state.report(|host| if host == A { vec![4, 5] } else { vec![] });
        let cntlids: Vec<u16> = report.registrants.iter().map(|one| one.cntlid).collect();
        assert_eq!(cntlids, [4, 5, 0xffff, 0xffff]);
        let holds: Vec<u8> = report.registrants.iter().map(|one| one.holds).collect();
        assert_eq!(holds, if kind.is_for_all() { [1, 1, 1, 1] } else { [1, 1, 0, 0] });
        let read = Report::decode(&report.encode()).expect("a report");
        let restored = Reservations::restore(&read).expect("a state");
        assert_eq!(restored.registrants, state.registrants);
        for host in [A, B, C, STRANGER] {
            for writes in [false, true] {
                assert_eq!(restored.allows(host, writes), state.allows(host, writes), "{kind:?}");
            }
        }
    }
    let none = Reservations::default();
    assert_eq!(Reservations::restore(&none.report(|_| vec![])), Ok(none), "nothing saved is nothing held");
}

#[test]
fn a_report_that_cannot_be_is_no_state() {
    let good = held(ReservationType::WRITE_EXCLUSIVE).report(|_| vec![]);
    let with = |change: fn(&mut Report)| {
        let mut report = good.clone();
        change(&mut report);
        Reservations::restore(&report)
    };
    assert_eq!(with(|report| report.registrants[1].holds = 1), Err(RestoreError::Holders));
    assert_eq!(with(|report| report.registrants[0].holds = 0), Err(RestoreError::Holders));
    assert_eq!(with(|report| report.kind = ReservationType::NONE), Err(RestoreError::Holders));
    assert_eq!(with(|report| report.kind = ReservationType(9)), Err(RestoreError::Holders));
    assert_eq!(with(|report| report.registrants[0].key = 0), Err(RestoreError::Key(A)));
    assert_eq!(with(|report| report.registrants[1].host_id = A), Err(RestoreError::Key(A)));
}

#[test]
fn registrants_are_bounded() {
    let mut state = Reservations::default();
    let host = |at: usize| HostId((at as u128 + 1).to_be_bytes());
    for at in 0..REGISTRANTS_MAX {
        register(&mut state, host(at), 1).expect("room");
    }
    assert_eq!(register(&mut state, host(REGISTRANTS_MAX), 1), Err(Status::INTERNAL_ERROR));
    register(&mut state, host(0), 1).expect("it is registered");
}
