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
    assert!((1 << 27..1 << 28).contains(&words), "{words} words");
    let memory = HeapWords::new(words);
    let state = create(&memory, &Config::default());
    join(&state, &SingleProcess, seconds(1), "a");
    assert_eq!(state.used(Kind::Chunk), 1);
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
        let (client, session) = join(&state, &host, seconds(1), "a");
        let _ = join(&state, &host, seconds(1), "b");
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
        let _ = state.sequence(&host, seconds(2), &request(session, 0, 1));
        let _ = state.exchange_id(&host, seconds(2), exchange("a", 2));
        let _ = state.exchange_id(&host, seconds(2), exchange("c", 2));
        let _ = state.create_session(&host, seconds(2), &session_args(client, 2));
        let _ = state.destroy_session(&host, seconds(2), session);
        let _ = state.destroy_client_id(&host, seconds(2), client);
        let _ = state.tick(&host, seconds(2000));
    }
}
