//! Owners of files as names, such as "alice@example.org", which some servers send in place of
//! numbers. RFC 8881 s5.9
//!
//! The user database of this host says which number a name of the mount's domain has. Asking it
//! may take seconds where it is a directory service, so a thread of its own asks, and those who
//! need an answer wait for it as for a call: what was received is decoded with what is known, and
//! once more if something was missing ([`Names`]). A name that this host does not know is nobody,
//! as is one of another domain.
//!
//! Answers are kept for ten minutes, as nfsidmap(8) keeps them. What is kept is bounded.

mod database;
mod domain;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use ::nfs4::Owner;
use fs::SetAttributes;

pub(crate) use domain::of_this_host;

/// How long an answer is kept.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// How long it is kept that there is no such user or group, or that nobody could be asked.
const UNKNOWN_FOR: Duration = Duration::from_secs(60);
/// The most answers that are kept.
const ANSWERS_MAX: usize = 4096;
/// The longest name that is looked up, in bytes; Linux allows 32 in most places.
const NAME_BYTES_MAX: usize = 256;
/// How often results are decoded again because names in them were not known.
pub(crate) const DECODES_MAX: usize = 2;

/// A question for the user database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Question {
    UserNamed(Vec<u8>),
    GroupNamed(Vec<u8>),
    User(u32),
    Group(u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Number(u32),
    Name(Vec<u8>),
}

/// The database could not be asked. That says nothing about the question.
#[derive(Debug)]
struct Unanswered;

/// Answers a question; may take long.
type Database = fn(&Question) -> Result<Option<Answer>, Unanswered>;

/// What is known about a question.
#[derive(Debug, Default)]
struct State {
    /// The last answer, and when it is to be asked for again.
    known: Option<(Option<Answer>, Instant)>,
    /// The thread has the question.
    is_asked: bool,
}

impl State {
    fn is_fresh(&self, now: Instant) -> bool {
        self.known.as_ref().is_some_and(|(_, until)| now < *until)
    }

    /// The answer, unless it has to be waited for. A user that was there is taken to be there until
    /// the database says otherwise, so nobody waits for a database that is slow.
    fn usable(&self, now: Instant) -> Option<&Option<Answer>> {
        let (answer, until) = self.known.as_ref()?;
        (answer.is_some() || now < *until).then_some(answer)
    }

    fn answered(&mut self, answer: Result<Option<Answer>, Unanswered>, now: Instant) {
        self.is_asked = false;
        let before = self.known.take().and_then(|(answer, _)| answer);
        self.known = Some(match answer {
            Ok(Some(answer)) => (Some(answer), now + KNOWN_FOR),
            Ok(None) => (None, now + UNKNOWN_FOR),
            Err(Unanswered) => (before, now + UNKNOWN_FOR),
        });
    }
}

#[derive(Debug, Default)]
struct Answers {
    states: HashMap<Question, State>,
    waiting: Vec<Waker>,
}

impl Answers {
    /// What is known about a question, after room was made for it.
    fn state(&mut self, question: &Question) -> &mut State {
        if self.states.len() >= ANSWERS_MAX && !self.states.contains_key(question) {
            let now = Instant::now();
            self.states.retain(|_, state| state.is_asked || state.is_fresh(now));
        }
        if self.states.len() >= ANSWERS_MAX && !self.states.contains_key(question) {
            self.states.retain(|_, state| state.is_asked);
        }
        self.states.entry(question.clone()).or_default()
    }
}

type Shared = Arc<Mutex<Answers>>;

fn lock(answers: &Shared) -> MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The owners of a mount; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Owners {
    domain: Vec<u8>,
    database: Database,
    answers: Shared,
    /// To the thread that asks, which is started when there is something to ask; `None` if it
    /// cannot be started.
    thread: OnceLock<Option<Sender<Question>>>,
    /// The server has refused numbers, and taken names.
    sends_names: AtomicBool,
}

/// Names to be set in place of numbers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SetOwners {
    pub user: Option<Vec<u8>>,
    pub group: Option<Vec<u8>>,
}

impl Owners {
    pub(crate) fn new(domain: String) -> Self {
        Self::with(domain, database::look_up)
    }

    fn with(domain: String, database: Database) -> Self {
        let (answers, thread) = (Shared::default(), OnceLock::new());
        Self { domain: domain.into_bytes(), database, answers, thread, sends_names: AtomicBool::new(false) }
    }

    /// The part of an owner before the domain, if the domain is that of the mount.
    fn local_name<'a>(&self, owner: &'a [u8]) -> Option<&'a [u8]> {
        let at = owner.iter().rposition(|byte| *byte == b'@')?;
        let (name, domain) = (owner.get(..at)?, owner.get(at + 1..)?);
        let is_ours = !domain.is_empty() && domain.eq_ignore_ascii_case(&self.domain);
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && !name.iter().any(|byte| byte.is_ascii_control() || *byte == b':');
        (is_ours && is_name).then_some(name)
    }

    /// What is known about a question: `Ok` with the answer, or `Err` with the question if it must
    /// be asked first.
    fn known(&self, question: Question) -> Result<Option<Answer>, Question> {
        let now = Instant::now();
        let mut answers = lock(&self.answers);
        let Some(state) = answers.states.get_mut(&question) else { return Err(question) };
        let Some(answer) = state.usable(now).cloned() else { return Err(question) };
        let is_old = !state.is_fresh(now);
        drop(answers);
        if is_old {
            self.ask(&question);
        }
        Ok(answer)
    }

    /// Has questions answered, and waits for that.
    pub(crate) async fn look_up(&self, missing: Missing) {
        let Missing(questions) = missing;
        for question in &questions {
            self.ask(question);
        }
        std::future::poll_fn(|context| {
            let mut answers = lock(&self.answers);
            let now = Instant::now();
            let waits = |state: &State| state.is_asked && state.usable(now).is_none();
            if !questions.iter().any(|asked| answers.states.get(asked).is_some_and(waits)) {
                return Poll::Ready(());
            }
            answers.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn ask(&self, question: &Question) {
        let thread = self.thread.get_or_init(|| start(self.database, &self.answers));
        let now = Instant::now();
        let mut answers = lock(&self.answers);
        let state = answers.state(question);
        if state.is_asked || state.is_fresh(now) {
            return;
        }
        state.is_asked = thread.as_ref().is_some_and(|thread| thread.send(question.clone()).is_ok());
        if !state.is_asked {
            state.answered(Err(Unanswered), now);
        }
    }

    /// Whether owners are set as names.
    pub(crate) fn sends_names(&self) -> bool {
        self.sends_names.load(Ordering::Relaxed)
    }

    /// The server has taken names where it refused numbers.
    pub(crate) fn names_were_taken(&self) {
        if !self.sends_names.swap(true, Ordering::Relaxed) {
            tracing::info!("the server refuses numbers of owners, and is sent names");
        }
    }

    /// The names of the owners that are to be set; a number without a name stays a number.
    pub(crate) async fn names_of(&self, new: &SetAttributes) -> SetOwners {
        let (user, group) = (new.uid.map(Question::User), new.gid.map(Question::Group));
        let questions = [&user, &group].into_iter().flatten().cloned();
        let unknown = questions.filter_map(|question| self.known(question).err());
        self.look_up(Missing(unknown.collect())).await;
        let named = |question: Option<Question>| match self.known(question?) {
            Ok(Some(Answer::Name(name))) => Some([&name[..], b"@", &self.domain].concat()),
            _ => None,
        };
        SetOwners { user: named(user), group: named(group) }
    }
}

/// Starts the thread that asks the database. It ends with the mount.
fn start(database: Database, answers: &Shared) -> Option<Sender<Question>> {
    let (sender, questions) = channel();
    let answers = Arc::clone(answers);
    let name = "trunkline-names".to_owned();
    let started = std::thread::Builder::new().name(name).spawn(move || serve(database, &questions, &answers));
    if let Err(error) = &started {
        tracing::error!(%error, "no thread can look up the names of owners: they are nobody");
    }
    started.ok().map(|_| sender)
}

fn serve(database: Database, questions: &Receiver<Question>, answers: &Shared) {
    while let Ok(question) = questions.recv() {
        let answer = database(&question);
        let mut all = lock(answers);
        all.state(&question).answered(answer, Instant::now());
        let waiting = std::mem::take(&mut all.waiting);
        drop(all);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// What has to be looked up before results can be decoded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing(Vec<Question>);

impl Missing {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The numbers of owners while results are decoded, and what of it is not known yet.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    owners: Option<&'a Owners>,
    missing: RefCell<Missing>,
}

impl<'a> Names<'a> {
    /// Owners are numbers; any other is nobody.
    pub(crate) fn none() -> Self {
        Self { owners: None, missing: RefCell::default() }
    }

    pub(crate) fn of(owners: &'a Owners) -> Self {
        Self { owners: Some(owners), missing: RefCell::default() }
    }

    pub(crate) fn user(&self, owner: Owner<'_>) -> Option<u32> {
        self.number(owner, Question::UserNamed)
    }

    pub(crate) fn group(&self, owner: Owner<'_>) -> Option<u32> {
        self.number(owner, Question::GroupNamed)
    }

    fn number(&self, owner: Owner<'_>, question: fn(Vec<u8>) -> Question) -> Option<u32> {
        let domain = self.owners.map(|owners| &*owners.domain).unwrap_or_default();
        if let Some(number) = owner.id(domain) {
            return Some(number);
        }
        let (Some(owners), Owner::Name(name)) = (self.owners, owner) else { return None };
        match owners.known(question(owners.local_name(name)?.to_vec())) {
            Ok(Some(Answer::Number(number))) => Some(number),
            Ok(_) => None,
            Err(unknown) => {
                let Missing(missing) = &mut *self.missing.borrow_mut();
                // One page of a directory has few owners.
                if missing.len() < ANSWERS_MAX && !missing.contains(&unknown) {
                    missing.push(unknown);
                }
                None
            }
        }
    }

    pub(crate) fn into_missing(self) -> Missing {
        self.missing.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::wait;

    fn database(question: &Question) -> Result<Option<Answer>, Unanswered> {
        Ok(match question {
            Question::UserNamed(name) if name == b"alice" => Some(Answer::Number(1000)),
            Question::GroupNamed(name) if name == b"staff" => Some(Answer::Number(50)),
            Question::User(1000) => Some(Answer::Name(b"alice".to_vec())),
            _ => None,
        })
    }

    fn owners(database: Database) -> Owners {
        Owners::with("Example.org".to_owned(), database)
    }

    /// The number of a user, asked for as often as results are decoded.
    fn user(owners: &Owners, name: &[u8]) -> Option<u32> {
        let names = Names::of(owners);
        let number = names.user(Owner::Name(name));
        let missing = names.into_missing();
        if missing.is_empty() {
            return number;
        }
        wait(owners.look_up(missing));
        Names::of(owners).user(Owner::Name(name))
    }

    // RFC 8881 s5.9
    #[test]
    fn names_of_the_domain_have_the_numbers_of_this_host_and_others_are_nobody() {
        let owners = owners(database);
        assert_eq!(user(&owners, b"alice@example.org"), Some(1000));
        assert_eq!(user(&owners, b"1001@EXAMPLE.ORG"), Some(1001));
        for nobody in [
            &b"bob@example.org"[..],
            b"alice@example.com",
            b"alice",
            b"alice@",
            b"@example.org",
            b"al:ice@example.org",
            b"alice@example.org@example.com",
            b"\xff@example.org",
        ] {
            assert_eq!(user(&owners, nobody), None, "{}", nobody.escape_ascii());
        }
        let names = Names::of(&owners);
        assert_eq!(names.user(Owner::Id(7)), Some(7));
        assert_eq!(names.group(Owner::Name(b"staff@example.org")), None, "not a user's name");
        wait(owners.look_up(names.into_missing()));
        assert_eq!(Names::of(&owners).group(Owner::Name(b"staff@example.org")), Some(50));
        assert_eq!(Names::none().user(Owner::Name(b"alice@example.org")), None);
    }

    #[test]
    fn what_was_asked_once_is_known_and_nobody_waits_for_what_is_not_asked() {
        let owners = owners(database);
        assert_eq!(user(&owners, b"alice@example.org"), Some(1000));
        assert!(owners.known(Question::UserNamed(b"alice".to_vec())).is_ok());
        assert_eq!(user(&owners, b"bob@example.org"), None);
        assert_eq!(owners.known(Question::UserNamed(b"bob".to_vec())), Ok(None));
        wait(owners.look_up(Missing::default()));
    }

    #[test]
    fn numbers_become_names_where_this_host_has_them() {
        let owners = owners(database);
        let new = SetAttributes { uid: Some(1000), gid: Some(50), ..SetAttributes::default() };
        let named = SetOwners { user: Some(b"alice@Example.org".to_vec()), group: None };
        assert_eq!(wait(owners.names_of(&new)), named);
        assert_eq!(wait(owners.names_of(&SetAttributes::mode(0o600))), SetOwners::default());
        assert!(!owners.sends_names());
        owners.names_were_taken();
        assert!(owners.sends_names());
    }

    /// What takes long is waited for elsewhere: whoever polls goes on.
    #[test]
    fn a_database_that_does_not_answer_holds_up_no_poll() {
        static ANSWERS: Mutex<Option<Receiver<()>>> = Mutex::new(None);
        let (answer, answers) = channel();
        *ANSWERS.lock().unwrap() = Some(answers);
        let owners = owners(|_| {
            let answers = ANSWERS.lock().unwrap().take();
            Ok(answers.and_then(|answers| answers.recv().ok()).map(|()| Answer::Number(5)))
        });
        let question = || Missing(vec![Question::UserNamed(b"slow".to_vec())]);
        let mut waits = std::pin::pin!(owners.look_up(question()));
        let mut context = std::task::Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        answer.send(()).unwrap();
        wait(owners.look_up(question()));
        assert!(waits.as_mut().poll(&mut context).is_ready());
        assert_eq!(user(&owners, b"slow@example.org"), Some(5));
    }

    #[test]
    fn what_is_kept_is_bounded_and_ages() {
        let mut answers = Answers::default();
        let now = Instant::now();
        answers.state(&Question::Group(0)).is_asked = true;
        for number in 0..2 * ANSWERS_MAX as u32 {
            answers.state(&Question::User(number)).answered(Ok(None), now);
            assert!(answers.states.len() <= ANSWERS_MAX);
        }
        assert!(answers.states.contains_key(&Question::Group(0)), "somebody waits for it");
        let mut state = State::default();
        assert_eq!(state.usable(now), None);
        state.answered(Ok(None), now);
        assert!(state.is_fresh(now) && state.usable(now + UNKNOWN_FOR).is_none());
        state.answered(Ok(Some(Answer::Number(1))), now);
        assert!(state.is_fresh(now + UNKNOWN_FOR) && !state.is_fresh(now + KNOWN_FOR));
    }

    /// Otherwise files would belong to nobody while a directory service restarts.
    #[test]
    fn who_was_there_stays_while_the_database_does_not_answer() {
        let (mut state, now) = (State::default(), Instant::now());
        let alice = Some(Answer::Number(1000));
        state.answered(Ok(alice.clone()), now);
        let later = now + KNOWN_FOR;
        assert_eq!((state.is_fresh(later), state.usable(later)), (false, Some(&alice)), "and asked again");
        state.answered(Err(Unanswered), later);
        assert_eq!((state.is_fresh(later), state.usable(later)), (true, Some(&alice)));
        assert!(!state.is_fresh(later + UNKNOWN_FOR), "it is asked again soon");
        state.answered(Ok(None), later);
        assert_eq!(state.usable(later), Some(&None), "now it is known that there is no such user");
        let mut never = State::default();
        never.answered(Err(Unanswered), now);
        assert_eq!(never.usable(now), Some(&None));
    }
}
