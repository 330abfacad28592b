//! Asks the user database, which may take long, and bounds how long anybody waits for it.
//!
//! One thread asks, because a question cannot be taken back. Another one gives it the questions and
//! watches the clock: when an answer takes longer than [`Bounds::one`], all who wait go on without
//! it, and nobody waits again until the database answers in time. Late answers are kept as any
//! others.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::answers::{ASKED_MAX, Answers, Outcome, Question, State, Unanswered};

/// How long anybody waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// For one answer.
    pub one: Duration,
    /// For all answers that one call needs, if each comes in time.
    pub all: Duration,
}

/// Directory services answer within milliseconds, or not at all.
pub(super) const BOUNDS: Bounds = Bounds { one: Duration::from_secs(2), all: Duration::from_secs(10) };

/// Answers a question; may take long.
pub(super) type Database = fn(&Question) -> Outcome;

type Shared = Arc<Mutex<Answers>>;

fn lock(answers: &Mutex<Answers>) -> MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Asking {
    database: Database,
    bounds: Bounds,
    answers: Shared,
    /// To the threads, which are started when there is something to ask; `None` if they cannot be
    /// started.
    questions: OnceLock<Option<Sender<Question>>>,
}

impl Asking {
    pub(super) fn new(database: Database, bounds: Bounds) -> Self {
        Self { database, bounds, answers: Shared::default(), questions: OnceLock::new() }
    }

    /// What is known about a question; `None` if it must be asked first.
    pub(super) fn known(&self, question: &Question) -> Option<Outcome> {
        let now = Instant::now();
        let mut answers = lock(&self.answers);
        let state = answers.states.get(question)?;
        let (outcome, is_fresh) = (state.usable(now)?.clone(), state.is_fresh(now));
        if !is_fresh {
            self.ask(&mut answers, question);
        }
        Some(outcome)
    }

    /// Has the database asked, unless it has the question or too many others already. Returns
    /// whether there is nothing left to ask.
    fn ask(&self, answers: &mut Answers, question: &Question) -> bool {
        let now = Instant::now();
        let is_done = |state: &State| state.is_asked || state.is_fresh(now);
        if answers.states.get(question).is_some_and(is_done) {
            return true;
        }
        if answers.asked >= ASKED_MAX {
            return false;
        }
        let thread = self.questions.get_or_init(|| start(self.database, self.bounds.one, &self.answers));
        let is_asked = thread.as_ref().is_some_and(|thread| thread.send(question.clone()).is_ok());
        let state = answers.state(question);
        if is_asked {
            state.is_asked = true;
            answers.asked += 1;
        } else {
            state.answered(Err(Unanswered), now);
        }
        true
    }

    /// Has questions answered, and waits for that within the bounds. What was not answered by then
    /// is missing.
    pub(super) async fn look_up(&self, questions: Vec<Question>) -> HashMap<Question, Outcome> {
        let left = questions.into();
        let until = Instant::now() + self.bounds.all;
        let mut wait = Wait { asking: self, left, asked: 0, found: HashMap::new(), until };
        std::future::poll_fn(|context| wait.poll(context)).await;
        std::mem::take(&mut wait.found)
    }
}

/// A wait for answers. They come in the order of the questions.
#[derive(Debug)]
struct Wait<'a> {
    asking: &'a Asking,
    /// The questions without an answer.
    left: VecDeque<Question>,
    /// The first so many of them were asked. Their answers are kept.
    asked: usize,
    found: HashMap<Question, Outcome>,
    until: Instant,
}

impl Wait<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut answers = lock(&self.asking.answers);
        loop {
            let before = (self.left.len(), self.asked);
            while self.asked > 0 && self.take_first(&mut answers) {}
            while let Some(next) = self.left.get(self.asked)
                && self.asking.ask(&mut answers, next)
            {
                answers.state(next).waiters += 1;
                self.asked += 1;
            }
            if before == (self.left.len(), self.asked) {
                break;
            }
        }
        if self.left.is_empty() {
            return Poll::Ready(());
        }
        if answers.hangs || Instant::now() >= self.until {
            // Those after one without an answer may have theirs.
            for _ in 0..self.asked {
                if !self.take_first(&mut answers) {
                    self.leave_first(&mut answers);
                }
            }
            return Poll::Ready(());
        }
        answers.wait(context.waker());
        Poll::Pending
    }

    /// Takes the answer to the first question, if it is there.
    fn take_first(&mut self, answers: &mut Answers) -> bool {
        let Some(first) = self.left.front() else { return false };
        let outcome = match answers.states.get(first) {
            Some(state) if state.is_asked => return false,
            state => state.map_or(Err(Unanswered), State::last),
        };
        if let Some(question) = self.leave_first(answers) {
            self.found.insert(question, outcome);
        }
        true
    }

    /// Waits for the first question no longer.
    fn leave_first(&mut self, answers: &mut Answers) -> Option<Question> {
        let question = self.left.pop_front()?;
        self.asked = self.asked.saturating_sub(1);
        if let Some(state) = answers.states.get_mut(&question) {
            state.waiters = state.waiters.saturating_sub(1);
        }
        Some(question)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let asking = self.asking;
        let mut answers = lock(&asking.answers);
        while self.asked > 0 {
            self.leave_first(&mut answers);
        }
    }
}

/// Starts the threads. They end with the mount, after the question that the database has then.
fn start(database: Database, patience: Duration, answers: &Shared) -> Option<Sender<Question>> {
    let (sender, questions) = channel();
    let (to_database, given) = channel::<Question>();
    let (outcome, outcomes) = channel();
    let answers = Arc::downgrade(answers);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let asks = move || {
        while let Ok(question) = given.recv() {
            if outcome.send(database(&question)).is_err() {
                return;
            }
        }
    };
    let serves = move || serve(patience, &questions, &(to_database, outcomes), &answers);
    let started = thread("trunkline-nss").spawn(asks).and_then(|_| thread("trunkline-names").spawn(serves));
    if let Err(error) = &started {
        tracing::error!(%error, "no thread can look up the names of owners: they are nobody");
    }
    started.ok().map(|_| sender)
}

fn serve(
    patience: Duration,
    questions: &Receiver<Question>,
    (to_database, outcomes): &(Sender<Question>, Receiver<Outcome>),
    answers: &Weak<Mutex<Answers>>,
) {
    let tell = |change: &dyn Fn(&mut Answers)| {
        let Some(answers) = answers.upgrade() else { return false };
        let mut all = lock(&answers);
        change(&mut all);
        let waiting = all.take_waiting();
        drop(all);
        waiting.into_iter().for_each(Waker::wake);
        true
    };
    while let Ok(question) = questions.recv() {
        // An ended thread is noticed by its outcome.
        let _ = to_database.send(question.clone());
        let (outcome, hangs) = match outcomes.recv_timeout(patience) {
            Ok(outcome) => (outcome, false),
            Err(RecvTimeoutError::Disconnected) => (Err(Unanswered), false),
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("the user database does not answer in time: owners that are asked are nobody");
                if !tell(&|all| all.hangs = true) {
                    return;
                }
                (outcomes.recv().unwrap_or(Err(Unanswered)), true)
            }
        };
        let is_there = tell(&|all| {
            all.hangs = hangs;
            all.answered(&question, outcome.clone());
        });
        if !is_there {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use super::super::answers::{ANSWERS_MAX, Answer};
    use super::*;
    use crate::slot::wait;

    const LONG: Duration = Duration::from_secs(600);
    const PATIENT: Bounds = Bounds { one: LONG, all: LONG };

    fn numbered(question: &Question) -> Outcome {
        match question {
            Question::User(number) => Ok(Some(Answer::Name(number.to_string().into_bytes()))),
            _ => Ok(None),
        }
    }

    fn is_pending(work: std::pin::Pin<&mut impl Future>) -> bool {
        work.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// More than are kept, and more than the database has at once.
    #[test]
    fn all_questions_are_answered_however_many_there_are() {
        let asking = Asking::new(numbered, PATIENT);
        let count = 2 * ANSWERS_MAX as u32;
        let found = wait(asking.look_up((0..count).map(Question::User).collect()));
        assert_eq!(found.len(), count as usize);
        assert!(found.iter().all(|(question, outcome)| *outcome == numbered(question)));
        let answers = lock(&asking.answers);
        assert_eq!((answers.asked, answers.states.values().map(|state| state.waiters).sum()), (0, 0_usize));
        assert!(answers.states.len() <= ANSWERS_MAX + ASKED_MAX, "{}", answers.states.len());
    }

    /// What the next answers wait for: each message is one answer.
    static GATE: Mutex<Option<Receiver<()>>> = Mutex::new(None);

    #[test]
    fn a_database_that_hangs_is_waited_for_once_and_its_late_answer_is_used() {
        let (open, gate) = channel();
        *GATE.lock().unwrap() = Some(gate);
        let database: Database = |question| {
            if [1, 2].map(Question::User).contains(question) {
                let _ = GATE.lock().unwrap().as_ref().unwrap().recv();
            }
            numbered(question)
        };
        let asking = Asking::new(database, Bounds { one: Duration::from_millis(20), all: LONG });
        let ask = |number| wait(asking.look_up(vec![Question::User(number)])).len();
        assert_eq!(ask(1), 0, "it is not waited for without bound");
        assert!(lock(&asking.answers).hangs);
        let mut second = pin!(asking.look_up(vec![Question::User(2)]));
        assert!(!is_pending(second.as_mut()), "nobody waits for it again");
        open.send(()).unwrap();
        let known = |number| asking.known(&Question::User(number));
        let late = testkit::Deadline::wait_until("the late answer", LONG, || known(1));
        assert_eq!(late, numbered(&Question::User(1)));
        assert!(lock(&asking.answers).hangs, "one late answer is no sign that the next is in time");
        open.send(()).unwrap();
        let other = testkit::Deadline::wait_until("the other answer", LONG, || known(2));
        assert_eq!(other, numbered(&Question::User(2)));
        let mut others = 3..;
        testkit::Deadline::wait_until("an answer in time", LONG, || {
            let found = ask(others.next().unwrap());
            (found == 1 && !lock(&asking.answers).hangs).then_some(())
        });
    }

    #[test]
    fn many_answers_that_each_come_in_time_are_not_waited_for_without_bound() {
        let asking = Asking::new(numbered, Bounds { one: LONG, all: Duration::ZERO });
        let questions = || (0..50).map(Question::User).collect();
        assert!(wait(asking.look_up(questions())).len() < 50);
        testkit::Deadline::wait_until("all answers", LONG, || {
            (wait(asking.look_up(questions())).len() == 50).then_some(())
        });
    }

    #[test]
    fn who_stops_waiting_leaves_nothing_that_is_kept_for_it() {
        static NEVER: Mutex<()> = Mutex::new(());
        let held = NEVER.lock().unwrap();
        let asking = Asking::new(
            |question| {
                drop(NEVER.lock());
                numbered(question)
            },
            PATIENT,
        );
        {
            let mut waits = pin!(asking.look_up(vec![Question::User(1), Question::User(2)]));
            assert!(is_pending(waits.as_mut()) && is_pending(waits.as_mut()));
            assert_eq!(lock(&asking.answers).states[&Question::User(2)].waiters, 1);
        }
        assert!(lock(&asking.answers).states.values().all(|state| state.waiters == 0));
        drop(held);
        let found = wait(asking.look_up(vec![Question::User(2)]));
        assert_eq!(found[&Question::User(2)], numbered(&Question::User(2)));
    }
}
