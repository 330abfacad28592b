//! Memory that is not an arena, or a damaged one.

use super::*;
use crate::layout::head;
use proptest::prelude::*;

#[test]
fn an_arena_is_opened_as_it_was_created() {
    let config = small_config();
    let memory = memory(&config);
    let host = SingleProcess;
    let (client, session) = join(&create(&memory, &config), &host, seconds(1), "a");
    let again = State::open(&memory).expect("the same arena");
    assert_eq!(again.config(), &config);
    assert_eq!(again.used(Kind::Client), 1);
    again.destroy_session(&host, seconds(2), session).expect("the session is known");
    again.destroy_client_id(&host, seconds(2), client).expect("the client is known");
}

#[test]
fn what_is_not_an_arena_is_refused_with_a_reason() {
    let config = small_config();
    let memory = memory(&config);
    assert_eq!(State::open(&memory).err(), Some(OpenError::NotCreated));
    let short = HeapWords::new(1000);
    let error = State::create(&short, &config, 7, 1).err();
    assert!(matches!(error, Some(OpenError::TooShort { found: 1000, .. })), "{error:?}");
    create(&memory, &config);
    for (word, value) in [
        (head::VERSION, 99),
        (head::WORD_COUNT, 5),
        (head::CONFIG, 5),
        (head::CONFIG + 4, 0),
        (head::CONFIG + 5, u64::MAX),
        (head::CONFIG + 6, 1 << 27),
        (head::MAGIC, 1),
    ] {
        let before = memory.load(word);
        memory.store(word, value);
        assert!(State::open(&memory).is_err(), "word {word} is {value}");
        memory.store(word, before);
    }
    State::open(&memory).expect("undamaged again");
    let nothing = Config { bounds: Bounds { opens: 0, ..Bounds::small() }, ..config };
    assert_eq!(State::<HeapWords>::word_count(&nothing), None);
}

#[test]
fn the_default_bounds_take_memory_only_as_they_are_used() {
    let words = State::<HeapWords>::word_count(&Config::default()).expect("usable");
    assert!((1 << 27..1 << 29).contains(&words), "{words} words");
    let memory = HeapWords::new(words);
    let state = create(&memory, &Config::default());
    join(&state, &SingleProcess, seconds(1), "a");
    assert_eq!(state.used(Kind::Chunk), 1);
}

/// Memory that is got before it is used, as far as there is any.
struct Bought<'m> {
    memory: &'m HeapWords,
    words: RefCell<HashSet<usize>>,
    end: Cell<usize>,
}

impl<'m> Bought<'m> {
    fn new(memory: &'m HeapWords) -> Self {
        Self { memory, words: RefCell::default(), end: Cell::new(usize::MAX) }
    }
}

impl Words for Bought<'_> {
    fn word_count(&self) -> usize {
        self.memory.word_count()
    }

    fn load(&self, at: usize) -> u64 {
        self.memory.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        assert!(self.words.borrow().contains(&at), "word {at} has no memory");
        self.memory.store(at, value);
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        assert!(self.words.borrow().contains(&at), "word {at} has no memory");
        self.memory.compare_exchange(at, from, to)
    }

    fn provide(&self, from: usize, words: usize) -> bool {
        let is_there = from + words <= self.end.get();
        if is_there {
            self.words.borrow_mut().extend(from..from + words);
        }
        is_there
    }
}

#[test]
fn words_get_memory_before_they_are_used_and_without_it_there_are_no_more_records() {
    let config = small_config();
    let memory = memory(&config);
    let bought = Bought::new(&memory);
    bought.end.set(1000);
    assert_eq!(State::create(&bought, &config, 7, 0x5eed).err(), Some(OpenError::NoMemory));
    assert_eq!(State::open(&bought).err(), Some(OpenError::NotCreated));
    bought.end.set(usize::MAX);
    let state = State::create(&bought, &config, 7, 0x5eed).expect("memory");
    state.begin_grace(&SingleProcess, seconds(0), &[]).expect("nothing to load");
    let mut one = Member::join(&state, &SingleProcess, seconds(1), "a");
    let open = one.open(&state, seconds(1), "f", READ, 0).expect("open");
    let locker = Locker::New { open, owner: b"x" };
    one.lock(&state, seconds(1), locker, (0, 10), false).expect("free");
    // From now on there is memory for nothing new.
    bought.end.set(0);
    assert_eq!(one.open(&state, seconds(1), "g", READ, 0), Err(Error::Full(Kind::File)));
    one.close(&state, seconds(1), open).expect("open");
    one.open(&state, seconds(1), "g", READ, 0).expect("what was freed is used again");
}

/// All operations of a request, in damaged memory.
fn operate(state: &State<&HeapWords>, ticket: &Ticket, (open, held, granted): (StateId, StateId, StateId)) {
    let (host, now) = (SingleProcess, seconds(2));
    let args = OpenArgs { owner: b"owner", file: b"f", access: 3, deny: 0, reclaim: false, created: false };
    let _ = state.open_file(&host, now, ticket, &args);
    let _ = state.open_file(&host, seconds(200), ticket, &OpenArgs { file: b"new", ..args });
    let _ = state.downgrade(&host, now, ticket, open, READ, WRITE);
    for locker in [Locker::Known(held), Locker::New { open, owner: b"z" }] {
        let args = LockArgs { locker, offset: 5, length: 100, exclusive: false, wait: true, reclaim: false };
        let _ = state.lock(&host, now, ticket, &args);
    }
    let _ = state.unlock(&host, now, ticket, StateId { seqid: 0, ..held }, (3, 2));
    let _ = state.return_delegation(&host, now, ticket, granted);
    let _ = state.close(&host, now, ticket, StateId { seqid: 0, ..open });
    let _ = state.free_state(&host, now, ticket, StateId { seqid: 0, ..held });
    let _ = state.end_operations(&host, ticket, 1, b"result");
    let _ = state.finish(&host, ticket, Some(b"reply"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is in the words, operations end with a result or an error.
    #[test]
    fn damaged_words_lead_to_errors_and_never_out_of_bounds(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..4u8), 1..40),
    ) {
        let config = small_config();
        let memory = memory(&config);
        let state = create(&memory, &config);
        let host = SingleProcess;
        let mut one = Member::join(&state, &host, seconds(1), "a");
        let mut two = Member::join(&state, &host, seconds(1), "b");
        let (client, session) = (one.client, one.session);
        state.bind_back(&host, seconds(1), session).expect("a session");
        let open = one.open(&state, seconds(1), "f", READ, WRITE).expect("open");
        let other = two.open(&state, seconds(1), "f", READ, 0).expect("open");
        let first = Locker::New { open, owner: b"x" };
        let held = one.lock(&state, seconds(1), first, (0, 10), false).expect("free");
        let second = Locker::New { open: other, owner: b"y" };
        two.lock(&state, seconds(1), second, (0, 10), false).expect("shared");
        let granted = one.act(&state, &host, seconds(1), |ticket| {
            state.delegate(&host, seconds(1), ticket, b"f").expect("no error").expect("nobody writes")
        });
        let nlm = NlmLock { host: b"h", owner: b"o", file: b"n", offset: 20, length: 9, exclusive: true };
        state.nlm_lock(&host, seconds(1), &nlm, NlmHow::default()).expect("free");
        let across = NlmLock { host: b"i", ..nlm };
        state.nlm_lock(&host, seconds(1), &across, NlmHow { wait: Some(1), ..NlmHow::default() }).expect("it waits");
        let records = head::WORDS + 2 * crate::layout::UNDO_ENTRIES;
        for (at, value, kind) in damage {
            let at = match kind {
                0 => head::CLIENT_COUNTER + at.index(head::CONFIG - head::CLIENT_COUNTER),
                1 => head::SLABS + at.index(36),
                2 => records + at.index(2000),
                _ => records + at.index(memory.word_count() - records),
            };
            // Small values are more often valid somewhere else.
            memory.store(at, if value % 3 == 0 { value } else { value % 300 });
        }
        let next = request(session, 0, one.sequence + 1);
        if let Ok(Sequence::Run(ticket)) = state.sequence(&host, seconds(2), &next) {
            operate(&state, &ticket, (open, held, granted));
        }
        let of = state.client(&host, seconds(2), client);
        if let Ok(of) = of {
            let _ = state.check_state_io(&host, seconds(2), of, held, b"f", READ);
            let _ = state.check_state_io(&host, seconds(2), of, StateId::ANONYMOUS, b"f", WRITE);
            let query = LockQuery { owner: b"z", file: b"f", offset: 0, length: 99, exclusive: true };
            let _ = state.test_lock(&host, seconds(200), of, &query);
        }
        let _ = state.nlm_unlock(&host, seconds(2), &nlm);
        let _ = state.nlm_lock(&host, seconds(2), &across, NlmHow::default());
        let _ = state.nlm_forget(&host, seconds(2), |name| name == b"h");
        let _ = state.begin_change(&host, seconds(2), None, b"f");
        for _ in 0..20 {
            let _ = state.poll_output(&host, seconds(200));
        }
        let _ = state.exchange_id(&host, seconds(2), exchange("a", 2));
        let _ = state.exchange_id(&host, seconds(2), exchange("c", 2));
        let _ = state.create_session(&host, seconds(2), &session_args(client, 2));
        let _ = state.destroy_session(&host, seconds(2), session);
        let _ = state.destroy_client_id(&host, seconds(2), client);
        let _ = state.tick(&host, seconds(2000));
    }
}
