//! The user database of this host, as its name service switch has it: files, LDAP, and so on.

use nix::unistd::{Gid, Group, Uid, User};

use super::answers::{Answer, Outcome, Question, Unanswered};

/// Asks the database, which may take seconds.
pub(super) fn look_up(question: &Question) -> Outcome {
    let text = |name| str::from_utf8(name).unwrap_or_default();
    let answer = match question {
        Question::UserNamed(name) => {
            User::from_name(text(name)).map(|found| found.map(|user| number(user.uid.as_raw())))
        }
        Question::GroupNamed(name) => {
            Group::from_name(text(name)).map(|found| found.map(|group| number(group.gid.as_raw())))
        }
        Question::User(uid) => {
            User::from_uid(Uid::from_raw(*uid)).map(|found| found.map(|user| name(user.name)))
        }
        Question::Group(gid) => {
            Group::from_gid(Gid::from_raw(*gid)).map(|found| found.map(|group| name(group.name)))
        }
    };
    answer.map_err(|error| {
        tracing::warn!(%error, "the user database does not answer");
        Unanswered
    })
}

const fn number(id: u32) -> Answer {
    Answer::Number(id)
}

fn name(name: String) -> Answer {
    Answer::Name(name.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_by_number() {
        assert_eq!(look_up(&Question::UserNamed(b"root".to_vec())).unwrap(), Some(Answer::Number(0)));
        assert_eq!(look_up(&Question::GroupNamed(b"root".to_vec())).unwrap(), Some(Answer::Number(0)));
        assert_eq!(look_up(&Question::User(0)).unwrap(), Some(Answer::Name(b"root".to_vec())));
        assert_eq!(look_up(&Question::Group(0)).unwrap(), Some(Answer::Name(b"root".to_vec())));
    }

    #[test]
    fn what_no_host_has_is_unknown() {
        for question in [
            Question::UserNamed(b"no such user here".to_vec()),
            Question::GroupNamed(b"no such group here".to_vec()),
            Question::UserNamed(b"\xff".to_vec()),
            Question::UserNamed(b"a\0b".to_vec()),
            Question::User(3_999_999_999),
            Question::Group(3_999_999_999),
        ] {
            assert_eq!(look_up(&question).unwrap(), None, "{question:?}");
        }
    }
}
