//! What the user database has answered, for how long it holds, and who waits for more.

use std::collections::HashMap;
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long an answer is kept.
pub(super) const KNOWN_FOR: Duration = Duration::from_secs(600);
/// How long it is kept that there is no such user or group, or that nobody could be asked.
pub(super) const UNKNOWN_FOR: Duration = Duration::from_secs(60);
/// The most answers that are kept, besides those that somebody waits for: more than most sites have
/// users. With the longest names they take about 5 MB.
pub(super) const ANSWERS_MAX: usize = 16 << 10;
/// The most questions that wait for the database. What is beyond is asked as answers come.
pub(super) const ASKED_MAX: usize = 4096;

/// A question for the user database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Question {
    UserNamed(Vec<u8>),
    GroupNamed(Vec<u8>),
    User(u32),
    Group(u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Number(u32),
    Name(Vec<u8>),
}

/// The database could not be asked, or does not answer in time. That says nothing about the
/// question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unanswered;

/// What the database says: `Ok(None)` if there is no such user or group.
pub(super) type Outcome = Result<Option<Answer>, Unanswered>;

/// What is known about a question.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last answer, and when it is to be asked for again.
    known: Option<(Outcome, Instant)>,
    /// The database has the question, or is about to get it.
    pub is_asked: bool,
    /// How many wait for the answer, which is kept for them.
    pub waiters: usize,
}

impl State {
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.known.as_ref().is_some_and(|(_, until)| now < *until)
    }

    /// The answer, unless it has to be waited for. A user that was there is taken to be there until
    /// the database says otherwise, so nobody waits for a database that is slow.
    pub(super) fn usable(&self, now: Instant) -> Option<&Outcome> {
        let (outcome, until) = self.known.as_ref()?;
        (matches!(outcome, Ok(Some(_))) || now < *until).then_some(outcome)
    }

    /// The last outcome, however old it is.
    pub(super) fn last(&self) -> Outcome {
        self.known.as_ref().map_or(Err(Unanswered), |(outcome, _)| outcome.clone())
    }

    pub(super) fn answered(&mut self, outcome: Outcome, now: Instant) {
        self.is_asked = false;
        let before = self.known.take().map(|(outcome, _)| outcome);
        self.known = Some(match outcome {
            Ok(Some(answer)) => (Ok(Some(answer)), now + KNOWN_FOR),
            Ok(None) => (Ok(None), now + UNKNOWN_FOR),
            Err(Unanswered) => {
                let kept = before.filter(|before| matches!(before, Ok(Some(_))));
                (kept.unwrap_or(Err(Unanswered)), now + UNKNOWN_FOR)
            }
        });
    }

    const fn is_in_use(&self) -> bool {
        self.is_asked || self.waiters > 0
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub states: HashMap<Question, State>,
    /// How many questions wait for the database.
    pub asked: usize,
    /// The database takes longer than anybody waits: nobody waits until it is faster again.
    pub hangs: bool,
    waiting: Vec<Waker>,
}

impl Answers {
    /// What is known about a question, after room was made for it.
    pub(super) fn state(&mut self, question: &Question) -> &mut State {
        if self.states.len() >= ANSWERS_MAX && !self.states.contains_key(question) {
            let now = Instant::now();
            self.states.retain(|_, state| state.is_in_use() || state.is_fresh(now));
        }
        if self.states.len() >= ANSWERS_MAX && !self.states.contains_key(question) {
            self.states.retain(|_, state| state.is_in_use());
        }
        self.states.entry(question.clone()).or_default()
    }

    /// The database has answered a question that it had.
    pub(super) fn answered(&mut self, question: &Question, outcome: Outcome) {
        self.asked = self.asked.saturating_sub(1);
        self.state(question).answered(outcome, Instant::now());
    }

    pub(super) fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|other| other.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// Those who are to look again.
    pub(super) fn take_waiting(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_ages() {
        let mut answers = Answers::default();
        let now = Instant::now();
        answers.state(&Question::Group(0)).is_asked = true;
        answers.state(&Question::Group(1)).waiters = 1;
        for number in 0..2 * ANSWERS_MAX as u32 {
            answers.state(&Question::User(number)).answered(Ok(None), now);
            assert!(answers.states.len() <= ANSWERS_MAX);
        }
        for group in 0..2 {
            assert!(answers.states.contains_key(&Question::Group(group)), "somebody waits for it");
        }
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
        let alice = Ok(Some(Answer::Number(1000)));
        state.answered(alice.clone(), now);
        let later = now + KNOWN_FOR;
        assert_eq!((state.is_fresh(later), state.usable(later)), (false, Some(&alice)), "and asked again");
        state.answered(Err(Unanswered), later);
        assert_eq!((state.is_fresh(later), state.usable(later)), (true, Some(&alice)));
        assert!(!state.is_fresh(later + UNKNOWN_FOR), "it is asked again soon");
        state.answered(Ok(None), later);
        assert_eq!(state.usable(later), Some(&Ok(None)), "now it is known that there is no such user");
        let mut never = State::default();
        never.answered(Err(Unanswered), now);
        assert_eq!((never.usable(now), never.last()), (Some(&Err(Unanswered)), Err(Unanswered)));
        assert_eq!(never.usable(now + UNKNOWN_FOR), None);
    }
}
