//! Owners of files as names, such as "alice@example.org", which some servers send in place of
//! numbers. RFC 8881 s5.9
//!
//! The user database of this host says which number a name of the mount's domain has. Asking it may
//! take seconds where it is a directory service, so threads of their own ask, and those who need an
//! answer wait for it as for a call, but not long ([`asking`]): what was received is decoded with
//! what is known, and once more if something was missing ([`Names`]). A name that this host does
//! not know is nobody, as is one of another domain, and one that is not answered in time.
//!
//! Once a server has sent the name of a user or group of this host, it is sent names too: it may
//! have other numbers for them, so that a number would give a file to somebody else.
//!
//! Answers are kept for ten minutes, as nfsidmap(8) keeps them. What is kept is bounded.

mod answers;
mod asking;
mod database;
mod domain;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use ::nfs4::Owner;
use fs::SetAttributes;

pub(crate) use answers::Unanswered;
use answers::{Answer, Outcome, Question};
use asking::{Asking, BOUNDS, Database};
pub(crate) use domain::of_this_host;

/// The longest name that is looked up, in bytes; Linux allows 32 in most places.
const NAME_BYTES_MAX: usize = 256;

/// The owners of a mount; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Owners {
    domain: Vec<u8>,
    asking: Asking,
    /// The server takes names: it has sent one that this host has, or refused numbers and taken
    /// one.
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
        let (asking, sends_names) = (Asking::new(database, BOUNDS), AtomicBool::new(false));
        Self { domain: domain.into_bytes(), asking, sends_names }
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

    /// Whether owners are set as names.
    pub(crate) fn sends_names(&self) -> bool {
        self.sends_names.load(Ordering::Relaxed)
    }

    /// The server has sent the name of somebody whom this host knows, or has taken names where it
    /// refused numbers.
    pub(crate) fn names_are_used(&self) {
        if !self.sends_names() && !self.sends_names.swap(true, Ordering::Relaxed) {
            tracing::info!("the server has names of owners, and is sent names");
        }
    }

    /// The names of the owners that are to be set; a number without a name stays a number.
    ///
    /// # Errors
    /// If the database does not say whether a number has a name.
    pub(crate) async fn names_of(&self, new: &SetAttributes) -> Result<SetOwners, Unanswered> {
        Ok(SetOwners {
            user: self.name_of(new.uid.map(Question::User)).await?,
            group: self.name_of(new.gid.map(Question::Group)).await?,
        })
    }

    async fn name_of(&self, number: Option<Question>) -> Result<Option<Vec<u8>>, Unanswered> {
        let Some(question) = number else { return Ok(None) };
        let outcome = match self.asking.known(&question) {
            Some(outcome) => outcome,
            None => {
                let found = self.asking.look_up(vec![question]).await;
                found.into_values().next().unwrap_or(Err(Unanswered))
            }
        };
        Ok(match outcome? {
            Some(Answer::Name(name)) => Some([&name[..], b"@", &self.domain].concat()),
            _ => None,
        })
    }
}

/// The numbers of owners while results are decoded, and what of it is not known yet. There are no
/// more of them than the results have.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    owners: Option<&'a Owners>,
    /// What the owners of the results are; `None` has to be looked up. It does not matter what
    /// becomes of the answers elsewhere until the results are decoded again.
    asked: RefCell<HashMap<Question, Option<Outcome>>>,
}

impl<'a> Names<'a> {
    /// Owners are numbers; any other is nobody.
    pub(crate) fn none() -> Self {
        Self { owners: None, asked: RefCell::default() }
    }

    pub(crate) fn of(owners: &'a Owners) -> Self {
        Self { owners: Some(owners), asked: RefCell::default() }
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
        let question = question(owners.local_name(name)?.to_vec());
        let mut asked = self.asked.borrow_mut();
        let outcome = asked.entry(question).or_insert_with_key(|question| owners.asking.known(question));
        let Some(Ok(Some(Answer::Number(number)))) = outcome else { return None };
        owners.names_are_used();
        Some(*number)
    }

    /// Whether something has to be looked up before the results can be decoded.
    pub(crate) fn lacks_any(&self) -> bool {
        self.asked.borrow().values().any(Option::is_none)
    }

    /// Looks up what is missing. The same results lack nothing then; what was not answered in time
    /// is nobody.
    pub(crate) async fn looked_up(self) -> Self {
        let Some(owners) = self.owners else { return self };
        let mut asked = self.asked.into_inner();
        let missing = asked.iter().filter(|(_, outcome)| outcome.is_none());
        let questions = missing.map(|(question, _)| question.clone()).collect();
        let mut found = owners.asking.look_up(questions).await;
        for (question, outcome) in asked.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            *outcome = Some(found.remove(question).unwrap_or(Err(Unanswered)));
        }
        Self { owners: Some(owners), asked: RefCell::new(asked) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::wait;

    fn database(question: &Question) -> Outcome {
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

    /// What results are when they are decoded as often as needed.
    fn decoded<T>(owners: &Owners, decode: impl Fn(&Names<'_>) -> T) -> T {
        let names = Names::of(owners);
        let first = decode(&names);
        if !names.lacks_any() {
            return first;
        }
        let names = wait(names.looked_up());
        let second = decode(&names);
        assert!(!names.lacks_any());
        second
    }

    fn user(owners: &Owners, name: &[u8]) -> Option<u32> {
        decoded(owners, |names| names.user(Owner::Name(name)))
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
        let staff = decoded(&owners, |names| names.group(Owner::Name(b"staff@example.org")));
        assert_eq!(staff, Some(50));
        assert_eq!(Names::none().user(Owner::Name(b"alice@example.org")), None);
    }

    #[test]
    fn what_was_asked_once_is_known() {
        let owners = owners(database);
        assert_eq!(user(&owners, b"alice@example.org"), Some(1000));
        assert_eq!(user(&owners, b"bob@example.org"), None);
        let names = Names::of(&owners);
        assert_eq!(names.user(Owner::Name(b"alice@example.org")), Some(1000));
        assert_eq!(names.user(Owner::Name(b"bob@example.org")), None);
        assert!(!names.lacks_any());
    }

    /// A page with more owners than are kept, all of whom are known here.
    #[test]
    fn all_owners_of_a_long_page_are_found() {
        let count = answers::ANSWERS_MAX as u32 + 1000;
        let owners = owners(|question| {
            let Question::UserNamed(name) = question else { return Ok(None) };
            let number = str::from_utf8(name).unwrap().trim_start_matches('u').parse();
            Ok(Some(Answer::Number(number.unwrap())))
        });
        let all = |names: &Names<'_>| -> Vec<Option<u32>> {
            let name = |number: u32| format!("u{number}@example.org");
            (0..count).map(|number| names.user(Owner::Name(name(number).as_bytes()))).collect()
        };
        for _ in 0..2 {
            let found = decoded(&owners, all);
            assert!((0..count).zip(found).all(|(number, found)| found == Some(number)));
        }
    }

    #[test]
    fn numbers_become_names_where_this_host_has_them() {
        let owners = owners(database);
        let new = SetAttributes { uid: Some(1000), gid: Some(50), ..SetAttributes::default() };
        let named = SetOwners { user: Some(b"alice@Example.org".to_vec()), group: None };
        assert_eq!(wait(owners.names_of(&new)), Ok(named));
        assert_eq!(wait(owners.names_of(&SetAttributes::mode(0o600))), Ok(SetOwners::default()));
        let silent = self::owners(|_| Err(Unanswered));
        assert_eq!(wait(silent.names_of(&new)), Err(Unanswered), "it may have a name");
    }

    #[test]
    fn names_are_sent_once_the_server_has_sent_one_that_this_host_has() {
        let owners = owners(database);
        for other in [&b"bob@example.org"[..], b"alice@example.com", b"1001@example.org", b"1002"] {
            user(&owners, other);
            assert!(!owners.sends_names(), "{}", other.escape_ascii());
        }
        user(&owners, b"alice@example.org");
        assert!(owners.sends_names());
    }
}
