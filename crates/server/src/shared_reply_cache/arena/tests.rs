//! Members of a group that share the words of an arena, and files that have none, or another.

use super::super::layout::{STATE_AT, WORD};
use super::super::{ExportIdentity, GroupError, SharedReplyCache};
use super::*;
use state::Host;

/// Not a whole number of blocks.
const WORDS: usize = 3 * BLOCK_WORDS + 100;

struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn join(&self, arena_words: Option<usize>) -> Result<Arc<GroupFile>, GroupError> {
        let export = ExportIdentity { fsid: 1, fingerprint: 5, path: "/e".to_owned(), verifier: 9 };
        SharedReplyCache::join(&self.0.path().join("group"), &[export], arena_words).map(|cache| cache.file())
    }

    fn member(&self) -> Arc<GroupFile> {
        self.join(Some(WORDS)).unwrap()
    }

    fn file(&self) -> std::fs::File {
        std::fs::File::options().write(true).open(self.0.path().join("group/replies")).unwrap()
    }
}

#[test]
fn words_are_shared_once_they_have_memory_and_are_zero_before() {
    let fixture = Fixture::new();
    let (first, second) = (ArenaWords::new(fixture.member()), ArenaWords::new(fixture.member()));
    assert_eq!((first.word_count(), second.word_count()), (WORDS, WORDS));
    for at in [0, BLOCK_WORDS - 1, BLOCK_WORDS, WORDS - 1] {
        first.store(at, 7);
        assert_eq!(
            (first.load(at), first.compare_exchange(at, 0, 7)),
            (0, Err(0)),
            "word {at} has no memory"
        );
    }
    // Two blocks, of which one is needed for its first word alone.
    assert!(first.provide(5, BLOCK_WORDS - 4));
    assert!(second.provide(WORDS - 1, 1), "the last block is shorter than the others");
    for at in [0, BLOCK_WORDS - 1, BLOCK_WORDS, WORDS - 1] {
        first.store(at, 7);
        assert_eq!(second.load(at), 7, "word {at}");
        assert_eq!(second.compare_exchange(at, 6, 8), Err(7));
        assert_eq!(second.compare_exchange(at, 7, 8), Ok(()));
        assert_eq!(first.load(at), 8);
    }
    first.store(2 * BLOCK_WORDS, 7);
    assert_eq!(first.load(2 * BLOCK_WORDS), 0, "nobody has asked for this block");
    for beyond in [WORDS, WORDS + BLOCK_WORDS, usize::MAX] {
        first.store(beyond, 7);
        assert_eq!((first.load(beyond), first.compare_exchange(beyond, 0, 7)), (0, Err(0)));
    }
    assert!(!first.provide(WORDS + BLOCK_WORDS, 1) && !first.provide(usize::MAX, 2));
    assert!(first.provide(WORDS, 0), "nothing needs no memory");
}

#[test]
fn the_state_lives_as_long_as_any_member_and_not_longer() {
    let fixture = Fixture::new();
    let first = fixture.member();
    let words = ArenaWords::new(Arc::clone(&first));
    assert!(words.provide(0, WORDS));
    words.store(WORDS - 1, 7);
    first.server_word(ServerWord::Closes, 0).unwrap().store(3, Ordering::SeqCst);
    let second = fixture.member();
    drop((words, first));
    let again = fixture.member();
    assert_eq!(ArenaWords::new(Arc::clone(&again)).load(WORDS - 1), 7);
    drop((second, again));
    let alone = fixture.member();
    let words = ArenaWords::new(Arc::clone(&alone));
    assert_eq!(alone.server_word(ServerWord::Closes, 0).unwrap().load(Ordering::SeqCst), 0);
    assert!(words.provide(0, WORDS));
    assert_eq!(words.load(WORDS - 1), 0, "its memory is new");
}

#[test]
fn a_member_with_the_state_and_one_without_refuse_each_other() {
    let fixture = Fixture::new();
    for (theirs, ours) in [(None, Some(WORDS)), (Some(WORDS), None)] {
        let member = fixture.join(theirs).unwrap();
        let error = fixture.join(ours).err().unwrap();
        assert!(matches!(error, GroupError::Versions { .. }), "{error}");
        assert!(error.advice().contains("versions"));
        drop(member);
        let member = fixture.join(ours).expect("nobody uses the other");
        assert_eq!(member.arena_words(), ours.unwrap_or(0));
        assert_eq!(member.server_word(ServerWord::Closes, 0).is_some(), ours.is_some());
    }
}

#[test]
fn a_file_of_another_length_is_refused_unless_its_state_was_being_emptied() {
    let fixture = Fixture::new();
    let member = fixture.member();
    assert!(matches!(fixture.join(Some(WORDS + 8)), Err(GroupError::Versions { .. })));
    drop(member);
    assert_eq!(fixture.join(Some(WORDS + 8)).expect("nobody uses the other").arena_words(), WORDS + 8);
    drop(fixture.member());
    fixture.file().set_len((STATE_AT * WORD) as u64).unwrap();
    let member = fixture.member();
    assert_eq!(ArenaWords::new(Arc::clone(&member)).word_count(), WORDS);
    drop(member);
    fixture.file().set_len((STATE_AT * WORD) as u64 - 8).unwrap();
    assert!(matches!(fixture.join(Some(WORDS)), Err(GroupError::Damaged { .. })));
}

#[test]
fn a_process_is_known_by_its_number_while_it_lives() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.member(), fixture.member());
    let (first, second) = (GroupHost::new(first).unwrap(), GroupHost::new(second).unwrap());
    let was = first.me();
    assert!(was != second.me() && second.is_alive(was) && second.is_alive(second.me()));
    drop(first);
    assert!(!second.is_alive(was));
    let again = GroupHost::new(fixture.member()).unwrap();
    assert!(again.me() != was && second.is_alive(again.me()));
    assert!(!second.is_alive(was), "a successor does not bring it back to life");
}
