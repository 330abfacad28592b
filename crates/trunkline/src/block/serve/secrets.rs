//! By which secrets a host and the server prove to each other who they are.

use crate::block::secret::Written;
use initiator::secret_file;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use target::{Algorithms, Group, Hash, HostSecret, NoAlgorithm, Secret};

/// What is accepted if a host says nothing else, the preferred first. Of 3072 bits a group is as
/// strong as the secrets need, and takes a few milliseconds for each queue; larger ones take tens.
/// Without a group, secrets that are random are safe as well.
const GROUPS: [Group; 6] =
    [Group::Ffdhe3072, Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192, Group::Ffdhe2048, Group::Null];

/// What the file says of a host.
#[derive(Debug, Default)]
pub(super) struct Proof {
    pub(super) host: (Option<Written>, Option<PathBuf>),
    pub(super) controller: (Option<Written>, Option<PathBuf>),
    pub(super) hashes: Option<Vec<String>>,
    pub(super) dhgroups: Option<Vec<String>>,
}

impl Proof {
    /// The secrets, or none; what is wrong begins with its key.
    pub(super) fn secret(self) -> Result<Option<HostSecret>, String> {
        let host = of("secret", self.host)?;
        let controller = of("controller_secret", self.controller)?;
        let hashes = algorithms("hashes", self.hashes, &Hash::ALL, Hash::named, Hash::name)?;
        let groups = algorithms("dhgroups", self.dhgroups, &GROUPS, Group::named, Group::name)?;
        let needless = [
            ("controller_secret", controller.is_some()),
            ("hashes", hashes.is_some()),
            ("dhgroups", groups.is_some()),
        ];
        let Some(host) = host else {
            return match needless.into_iter().find(|(_, is_there)| *is_there) {
                Some((key, _)) => Err(format!("{key}: only with a secret of the host, which is missing")),
                None => Ok(None),
            };
        };
        if controller.as_ref() == Some(&host) {
            return Err(
                "controller_secret: the same as the host's: who knows one could pose as both".to_owned()
            );
        }
        let hashes = hashes.unwrap_or_else(|| Hash::ALL.to_vec());
        let groups = groups.unwrap_or_else(|| GROUPS.to_vec());
        let accepted = Algorithms::new(&hashes, &groups);
        let algorithms = accepted.map_err(|error: NoAlgorithm| format!("hashes, dhgroups: {error}"))?;
        Ok(Some(HostSecret { host, controller, algorithms: Arc::new(algorithms) }))
    }
}

/// A secret that is written in the file, or in a file of its own.
fn of(key: &str, written: (Option<Written>, Option<PathBuf>)) -> Result<Option<Secret>, String> {
    match written {
        (None, None) => Ok(None),
        (Some(written), None) => written.secret().map(Some).map_err(|error| format!("{key}: {error}")),
        (None, Some(file)) => {
            secret_file::read(&file).map(Some).map_err(|error| format!("{key}_file: {error}"))
        }
        (Some(_), Some(_)) => Err(format!("{key}: either {key} or {key}_file, not both")),
    }
}

fn algorithms<T>(
    key: &str,
    names: Option<Vec<String>>,
    all: &[T],
    named: impl Fn(&str) -> Option<T>,
    name: impl Fn(T) -> &'static str,
) -> Result<Option<Vec<T>>, String>
where
    T: Copy,
{
    let Some(names) = names else { return Ok(None) };
    let one = |text: &String| {
        named(text).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|one| name(*one)).collect();
            format!("{key}: {text:?} is unknown; known are {}", known.join(", "))
        })
    };
    names.iter().map(one).collect::<Result<_, _>>().map(Some)
}

/// What hosts with a secret add to the commands that are printed.
pub(in crate::block) fn advice<'a>(hosts: impl Iterator<Item = &'a str>, are_all: bool) -> String {
    let mut text = String::new();
    let hosts: Vec<&str> = hosts.collect();
    let option = "--dhchap-secret DHHC-1:...";
    // Writing to a string does not fail.
    match (hosts.is_empty(), are_all) {
        (true, _) => {}
        (false, true) => {
            let _ = writeln!(text, "each with {option}, the secret of the host");
        }
        (false, false) => {
            let _ = writeln!(text, "each with {option}, the secret of the host, on");
            hosts.iter().for_each(|host| text.push_str(&format!("  {host}\n")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
    const OTHER: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    /// What the lines of a host give.
    fn secret(lines: &str) -> Result<Option<HostSecret>, String> {
        let text = format!("[[host]]\nname = \"a\"\nnqn = \"nqn.2026-11.test:a\"\n{lines}");
        crate::block::serve::config::parse(&text).map(|settings| settings.secrets.into_values().next())
    }

    #[test]
    fn a_host_has_a_secret_and_perhaps_one_of_the_controller() {
        assert_eq!(secret(""), Ok(None));
        let alone = secret(&format!("secret = \"{ONE}\"\n")).unwrap().unwrap();
        assert_eq!((alone.host, alone.controller), (ONE.parse().unwrap(), None));
        assert_eq!(alone.algorithms.groups(), GROUPS);
        assert_eq!(alone.algorithms.hashes(), Hash::ALL);
        let both = format!(
            "secret = \"{ONE}\"\ncontroller_secret = \"{OTHER}\"\nhashes = [\"sha256\"]\n\
             dhgroups = [\"ffdhe8192\", \"null\"]\n"
        );
        let both = secret(&both).unwrap().unwrap();
        assert_eq!(both.controller, Some(OTHER.parse().unwrap()));
        assert_eq!(both.algorithms.groups(), [Group::Ffdhe8192, Group::Null]);
        assert_eq!(both.algorithms.hashes(), [Hash::Sha256]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key_and_shows_no_secret() {
        let wrong = ONE.replace("ia6z", "ia6y");
        for (lines, rule) in [
            (format!("secret = \"{wrong}\""), "host \"a\": secret: the CRC"),
            (format!("secret = \"{}\"", &ONE[9..]), "begins with \"DHHC-1:\""),
            (format!("secret = \"{}\"", &ONE[..40]), "ends with a colon"),
            ("secret = \"\"".to_owned(), "gen-dhchap-key"),
            (format!("controller_secret = \"{ONE}\""), "controller_secret: only with a secret"),
            ("hashes = [\"sha256\"]".to_owned(), "hashes: only with"),
            (format!("secret = \"{ONE}\"\ncontroller_secret = \"{ONE}\""), "could pose as both"),
            (format!("secret = \"{ONE}\"\nsecret_file = \"/x\""), "not both"),
            (format!("secret = \"{ONE}\"\nhashes = [\"md5\"]"), "known are sha512"),
            (format!("secret = \"{ONE}\"\ndhgroups = [\"x\"]"), "known are ffdhe3072"),
            (format!("secret = \"{ONE}\"\ndhgroups = []"), "at least one"),
            ("secret_file = \"/nonexistent/s\"".to_owned(), "secret_file: /nonexistent/s"),
            // The parser would quote the line.
            (format!("secrets = \"{ONE}\""), "line 4: unknown field"),
            (format!("secret = {ONE}"), "line 4"),
            (format!("secret = [\"{ONE}\"]"), "line 4"),
            (format!("secret = \"{}", &ONE[10..]), "line 4"),
            (format!("id = 7\nsecret = \"{ONE}\""), "id = 7"),
            (format!("hashes = \"{ONE}\""), "line 4"),
        ] {
            let error = secret(&lines).unwrap_err();
            assert!(error.contains(rule), "{lines}: {error}");
            assert!(!error.contains("Zzaw398rpY0"), "{error}");
        }
    }

    #[test]
    fn hosts_are_told_what_to_add() {
        assert_eq!(advice([].into_iter(), true), "");
        assert_eq!(advice(["a"].into_iter(), true).lines().count(), 1);
        assert!(advice(["a", "b"].into_iter(), false).ends_with("on\n  a\n  b\n"));
    }
}
