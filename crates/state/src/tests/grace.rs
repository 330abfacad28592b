//! The grace period, recovery records, and RECLAIM_COMPLETE.

use super::*;

const NOW: Duration = Duration::from_secs(1000);
const HOST: SingleProcess = SingleProcess;

fn record(client: u64, owner: &str) -> RecoveryRecord {
    RecoveryRecord { client: ClientId(client), owner: owner.into(), principal: PRINCIPAL, is_nlm: false }
}

/// A host that locks by NLM.
fn host_record(client: u64, name: &str) -> RecoveryRecord {
    RecoveryRecord { principal: 0, is_nlm: true, ..record(client, name) }
}

fn host_of(name: &[u8], reclaim: bool) -> NlmMonitor<'_> {
    NlmMonitor { name, peer: None, reclaim, is_leased: false }
}

const RECLAIM: NlmHow = NlmHow { wait: None, reclaim: true, monitored: false };

fn reclaim(file: &str) -> OpenArgs<'_> {
    OpenArgs { owner: b"o", file: file.as_bytes(), access: READ, deny: 0, reclaim: true, created: false }
}

fn outputs(state: &State<&HeapWords>) -> Vec<Output> {
    std::iter::from_fn(|| state.poll_output(&HOST, NOW).expect("not damaged")).collect()
}

/// An arena that has just begun to serve, in a grace period for these clients.
fn with_records(records: &[RecoveryRecord], test: impl FnOnce(&State<&HeapWords>)) {
    let config = small_config();
    let memory = memory(&config);
    let state = State::create(&memory, &config, 7, 0x5eed).expect("a new arena");
    state.begin_grace(&HOST, NOW + seconds(90), records).expect("room");
    test(&state);
    consistency::check(&state);
}

struct Returning(Member);

impl Returning {
    fn new(state: &State<&HeapWords>, owner: &str) -> Self {
        let (client, session) = join(state, &HOST, NOW, owner);
        Self(Member { client, session, sequence: 0 })
    }

    fn open(&mut self, state: &State<&HeapWords>, args: &OpenArgs<'_>) -> Result<StateId, Error> {
        self.0.act(state, &HOST, NOW, |ticket| state.open_file(&HOST, NOW, ticket, args))
    }

    fn complete(&mut self, state: &State<&HeapWords>) -> Result<(), Error> {
        self.0.act(state, &HOST, NOW, |ticket| state.reclaim_complete(&HOST, NOW, ticket))
    }
}

/// What is asked before a file is created for an OPEN is what the OPEN is told.
#[test]
fn whether_a_client_may_open_is_known_before() {
    with_records(&[record(1, "a")], |state| {
        let mut a = Returning::new(state, "a");
        let may = |state: &State<&HeapWords>, a: &mut Returning, reclaim| {
            a.0.act(state, &HOST, NOW, |ticket| state.may_open(NOW, ticket.client(), reclaim))
        };
        assert_eq!(may(state, &mut a, true), Ok(()));
        assert_eq!(may(state, &mut a, false), Err(Error::Grace));
        a.complete(state).expect("once");
        assert_eq!(may(state, &mut a, true), Err(Error::NoGrace));
        assert_eq!(may(state, &mut a, false), Err(Error::NotRecorded));
        state.persisted(&HOST, NOW, a.0.client).expect("written");
        assert_eq!(may(state, &mut a, false), Ok(()));
    });
}

/// RFC 8881 s8.4.2.1, s18.51
#[test]
fn only_known_clients_reclaim_and_the_period_ends_when_all_are_done() {
    with_records(&[record(1, "a"), record(2, "b"), record(3, "b")], |state| {
        assert!(state.is_in_grace(NOW));
        let (mut a, mut b) = (Returning::new(state, "a"), Returning::new(state, "b"));
        let mut stranger = Returning::new(state, "stranger");
        assert_eq!(stranger.open(state, &reclaim("f")), Err(Error::ReclaimBad));
        let new = OpenArgs { reclaim: false, ..reclaim("f") };
        assert_eq!(stranger.open(state, &new), Err(Error::Grace));
        let open = a.open(state, &reclaim("f")).expect("it had it");
        assert_eq!(a.open(state, &new), Err(Error::Grace));
        let locker = Locker::New { open, owner: b"x" };
        let lock =
            |reclaim| LockArgs { locker, offset: 0, length: 1, exclusive: false, wait: false, reclaim };
        let locked = a.0.act(state, &HOST, NOW, |ticket| state.lock(&HOST, NOW, ticket, &lock(false)));
        assert_eq!(locked, Err(Error::Grace));
        a.0.act(state, &HOST, NOW, |ticket| state.lock(&HOST, NOW, ticket, &lock(true))).expect("its own");
        let nlm = NlmLock { host: b"h", owner: b"o", file: b"g", offset: 0, length: 1, exclusive: true };
        assert_eq!(state.nlm_lock(&HOST, NOW, &nlm, NlmHow::default()), Err(Error::Grace));
        assert_eq!(state.nlm_lock(&HOST, NOW, &nlm, RECLAIM), Err(Error::ReclaimBad), "a stranger");
        a.complete(state).expect("once");
        assert_eq!(a.complete(state), Err(Error::CompleteAlready));
        assert_eq!(a.open(state, &reclaim("g")), Err(Error::NoGrace), "it said that it was done");
        stranger.complete(state).expect("nothing to reclaim");
        assert!(state.is_in_grace(NOW), "one is missing");
        b.complete(state).expect("once");
        assert!(!state.is_in_grace(NOW));
        assert!(outputs(state).contains(&Output::GraceEnded));
        assert_eq!(state.nlm_lock(&HOST, NOW, &nlm, RECLAIM), Err(Error::NoGrace));
        for client in [a.0.client, b.0.client] {
            state.persisted(&HOST, NOW, client).expect("written");
        }
        assert_eq!(b.open(state, &reclaim("f")), Err(Error::NoGrace));
        b.open(state, &new).expect("normal service");
        state.tick(&HOST, NOW).expect("freed");
        assert_eq!(state.used(Kind::Recovery), 0);
    });
}

#[test]
fn the_period_ends_with_its_time_and_latecomers_cannot_reclaim() {
    with_records(&[record(1, "a")], |state| {
        let late = NOW + seconds(90);
        assert!(!state.is_in_grace(late));
        assert_eq!(outputs(state), []);
        state.tick(&HOST, late).expect("a tick");
        assert_eq!(outputs(state), [Output::GraceEnded]);
        state.tick(&HOST, late).expect("a tick");
        assert_eq!(state.used(Kind::Recovery), 0);
        let mut a = Returning::new(state, "a");
        assert_eq!(a.open(state, &reclaim("f")), Err(Error::NoGrace));
        a.complete(state).expect("it begins anew");
    });
}

/// A client that has begun to reclaim is not cut off, but not even one that reclaims without end
/// keeps the others out for more than another lease.
#[test]
fn the_period_goes_on_while_clients_reclaim_for_a_lease_at_most() {
    with_records(&[record(1, "a"), record(2, "gone")], |state| {
        let lease = small_config().lease;
        let mut a = Returning::new(state, "a");
        let mut reclaim_at = |now: Duration| {
            a.0.act(state, &HOST, now, |ticket| state.open_file(&HOST, now, ticket, &reclaim("f")))
        };
        reclaim_at(NOW).expect("it had it");
        assert!(!state.is_in_grace(NOW + seconds(90)), "long before its end");
        let mut now = NOW + seconds(89);
        while now < NOW + seconds(89) + lease {
            reclaim_at(now).expect("it goes on");
            now += seconds(1);
        }
        assert!(state.is_in_grace(now));
        let end = NOW + seconds(90) + lease;
        assert!(!state.is_in_grace(end));
        assert_eq!(reclaim_at(end), Err(Error::NoGrace));
    });
}

/// Whoever has looked at the clock before does not begin a period again that is over for others.
#[test]
fn what_is_new_ends_a_period_whose_time_is_over() {
    with_records(&[record(1, "a"), record(2, "gone")], |state| {
        let mut a = Returning::new(state, "a");
        let end = NOW + seconds(90);
        let nlm = NlmLock { host: b"h", owner: b"o", file: b"g", offset: 0, length: 1, exclusive: true };
        assert_eq!(state.nlm_lock(&HOST, end, &nlm, NlmHow::default()), Ok(NlmLocked::Granted));
        let early = end - Duration::from_millis(1);
        let late =
            a.0.act(state, &HOST, early, |ticket| state.open_file(&HOST, early, ticket, &reclaim("f")));
        assert_eq!(late, Err(Error::NoGrace));
        assert!(!state.is_in_grace(early));
    });
}

#[test]
fn hosts_of_nlm_reclaim_until_the_time_is_over_because_they_never_say_that_they_are_done() {
    // A client of version 4 whose owner string is the host's name is another one.
    with_records(&[record(1, "a"), host_record(2, "h"), record(3, "h")], |state| {
        let nlm = NlmLock { host: b"h", owner: b"o", file: b"g", offset: 0, length: 1, exclusive: true };
        let other = NlmLock { host: b"a", ..nlm };
        assert_eq!(state.nlm_lock(&HOST, NOW, &other, RECLAIM), Err(Error::ReclaimBad));
        assert_eq!(
            state.nlm_monitor(&HOST, NOW, host_of(b"a", true)),
            Err(Error::ReclaimBad),
            "not recorded"
        );
        assert_eq!(state.nlm_monitor(&HOST, NOW, host_of(b"h", false)), Err(Error::Grace));
        assert_eq!(state.nlm_monitor(&HOST, NOW, host_of(b"h", true)), Ok(false));
        assert_eq!(state.nlm_lock(&HOST, NOW, &nlm, NlmHow::default()), Err(Error::Grace));
        assert_eq!(state.nlm_lock(&HOST, NOW, &nlm, RECLAIM), Ok(NlmLocked::Granted));
        for name in ["a", "h"] {
            Returning::new(state, name).complete(state).expect("once");
        }
        assert!(state.is_in_grace(NOW), "the host may have more to reclaim");
        let late = NOW + seconds(90);
        assert!(!state.is_in_grace(late));
        let more = NlmLock { offset: 5, ..nlm };
        assert_eq!(state.nlm_lock(&HOST, late, &more, RECLAIM), Err(Error::NoGrace));
        assert_eq!(state.nlm_lock(&HOST, late, &more, NlmHow::default()), Ok(NlmLocked::Granted));
    });
}

#[test]
fn without_records_there_is_no_period() {
    with_records(&[], |state| {
        assert!(!state.is_in_grace(NOW));
        assert!(state.is_loaded());
    });
}

#[test]
fn another_principal_does_not_reclaim() {
    let theirs = RecoveryRecord { principal: 99, ..record(1, "a") };
    with_records(&[theirs], |state| {
        let mut a = Returning::new(state, "a");
        assert_eq!(a.open(state, &reclaim("f")), Err(Error::ReclaimBad));
    });
}

#[test]
fn a_client_opens_only_after_its_record_is_written() {
    with_state(|state| {
        let mut a = Returning::new(state, "a");
        let new = OpenArgs { reclaim: false, ..reclaim("f") };
        assert_eq!(a.open(state, &new), Err(Error::Grace), "it has not said that it is done");
        a.complete(state).expect("once");
        assert_eq!(a.open(state, &new), Err(Error::NotRecorded));
        let persist = Output::Persist(record(a.0.client.0, "a"));
        assert_eq!(outputs(state), [persist]);
        assert_eq!(outputs(state), [], "asked once");
        state.persisted(&HOST, NOW, a.0.client).expect("written");
        let open = a.open(state, &new).expect("recorded");
        a.0.close(state, NOW, open).expect("open");
        state.destroy_session(&HOST, NOW, a.0.session).expect("a session");
        state.destroy_client_id(&HOST, NOW, a.0.client).expect("nothing left");
        state.tick(&HOST, NOW).expect("freed");
        assert_eq!(outputs(state), [Output::Forget(a.0.client)]);
        assert_eq!(state.used(Kind::Client), 0);
    });
}

#[test]
fn a_record_whose_writer_ended_is_written_by_another_process() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let (first, second) = (machine.host(1), machine.host(2));
    let mut a = Returning::new(&state, "a");
    a.complete(&state).expect("once");
    let asked = state.poll_output(&first, NOW).expect("not damaged");
    assert!(matches!(asked, Some(Output::Persist(_))), "{asked:?}");
    state.tick(&second, NOW).expect("a tick");
    assert_eq!(state.poll_output(&second, NOW), Ok(None), "the first is at it");
    machine.kill(1);
    state.tick(&second, NOW).expect("a tick");
    assert_eq!(state.poll_output(&second, NOW), Ok(asked));
    consistency::check(&state);
}

#[test]
fn nobody_is_served_before_the_records_are_loaded_wherever_their_loader_ends() {
    let config = small_config();
    let records = [record(1, "a"), record(2, "a client with a name of more than one block of bytes")];
    let until = NOW + seconds(90);
    for step in 0.. {
        let memory = memory(&config);
        let (process, machine) = (Process::new(&memory), Machine::default());
        let end = process.killed_before(step, || {
            let state = State::create(&process, &config, 7, 0x5eed).expect("a new arena");
            state.begin_grace(&machine.host(1), until, &records).expect("room");
        });
        machine.kill(1);
        let (state, survivor) = (State::open(&memory), machine.host(2));
        let Ok(state) = state else {
            assert_eq!(state.err(), Some(OpenError::NotCreated), "at {step}");
            continue;
        };
        if !state.is_loaded() {
            assert!(state.is_in_grace(until + seconds(1)), "at {step}");
            assert_eq!(state.exchange_id(&survivor, NOW, exchange("b", 1)), Err(Error::Busy), "at {step}");
            let nlm = NlmLock { host: b"h", owner: b"o", file: b"g", offset: 0, length: 1, exclusive: true };
            assert_eq!(state.nlm_lock(&survivor, NOW, &nlm, RECLAIM), Err(Error::Busy), "at {step}");
        }
        state.begin_grace(&survivor, until, &records).expect("room");
        assert_eq!(state.used(Kind::Recovery), 2, "at {step}");
        for owner in records.each_ref().map(|record| std::str::from_utf8(&record.owner).expect("text")) {
            assert!(state.is_in_grace(NOW), "at {step}");
            let mut returning = Returning::new(&state, owner);
            returning.open(&state, &reclaim("f")).expect("it had it");
            returning.complete(&state).expect("once");
        }
        assert!(!state.is_in_grace(NOW), "at {step}: all have reclaimed");
        state.begin_grace(&survivor, until, &records).expect("nothing to do");
        assert!(!state.is_in_grace(NOW), "at {step}: not once more");
        consistency::check(&state);
        if end.is_some() {
            assert!(step > 60, "only {step} steps");
            return;
        }
    }
}
