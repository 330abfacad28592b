//! Hosts and groups of hosts: which of them see a volume.
//!
//! A file names hosts by their NQNs or by names of its own. Nobody sees a volume unless it is said.

use super::secrets::Proof;
use crate::block::secret::Written;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use target::{Access, HostId, HostSecret, Nqn};

/// A host as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Host {
    name: String,
    nqn: String,
    id: Option<String>,
    secret: Option<Written>,
    secret_file: Option<PathBuf>,
    controller_secret: Option<Written>,
    controller_secret_file: Option<PathBuf>,
    hashes: Option<Vec<String>>,
    dhgroups: Option<Vec<String>>,
}

impl Host {
    /// Whether the file itself has a secret.
    pub(super) const fn has_secret(&self) -> bool {
        self.secret.is_some() || self.controller_secret.is_some()
    }

    fn take_proof(&mut self) -> Proof {
        Proof {
            host: (self.secret.take(), self.secret_file.take()),
            controller: (self.controller_secret.take(), self.controller_secret_file.take()),
            hashes: self.hashes.take(),
            dhgroups: self.dhgroups.take(),
        }
    }
}

/// A group of hosts as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    name: String,
    hosts: Vec<String>,
}

/// The names that lists of hosts may have.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    named: BTreeMap<String, BTreeSet<Nqn>>,
    /// The host identifiers that the file has.
    pub(super) ids: BTreeMap<Nqn, HostId>,
    /// How those hosts prove who they are that must.
    pub(super) secrets: BTreeMap<Nqn, HostSecret>,
}

impl Hosts {
    /// Reads hosts and groups; what is wrong begins with its key.
    pub(super) fn of(hosts: Vec<Host>, groups: Vec<Group>) -> Result<Self, String> {
        let mut this = Self::default();
        let mut known: BTreeMap<Nqn, String> = BTreeMap::new();
        for mut host in hosts {
            let proof = host.take_proof();
            let Host { name, nqn, id, .. } = host;
            let at = |cause: String| format!("host {name:?}: {cause}");
            let nqn = Nqn::new(&nqn).map_err(|error| at(format!("nqn: {error}")))?;
            if let Some(other) = known.insert(nqn.clone(), name.clone()) {
                return Err(at(format!("nqn: host {other:?} has the same; a host has one entry")));
            }
            if let Some(id) = id {
                let id = host_id(&id).ok_or_else(|| at(format!("id: {id:?} is no UUID, or is zero")))?;
                if let Some((other, _)) = this.ids.iter().find(|(_, other)| **other == id) {
                    let other = known.get(other).map_or("", String::as_str);
                    return Err(at(format!(
                        "id: host {other:?} has the same, and reservations belong to it: each host needs \
                         its own; write a new one (uuidgen) to /etc/nvme/hostid of one of them"
                    )));
                }
                this.ids.insert(nqn.clone(), id);
            }
            if let Some(secret) = proof.secret().map_err(at)? {
                this.secrets.insert(nqn.clone(), secret);
            }
            this.name("host", &name, [nqn].into())?;
        }
        for Group { name, hosts } in groups {
            let of_group = |cause| format!("group {name:?}: {cause}");
            let members = match this.access("hosts", &hosts).map_err(of_group)? {
                Access::Only(hosts) if !hosts.is_empty() => hosts,
                Access::Only(_) => return Err(of_group("hosts: there is none".to_owned())),
                Access::Any | Access::AnyBut(_) => {
                    return Err(of_group("hosts: \"any\" is no host".to_owned()));
                }
            };
            this.name("group", &name, members)?;
        }
        Ok(this)
    }

    fn name(&mut self, kind: &str, name: &str, hosts: BTreeSet<Nqn>) -> Result<(), String> {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        if name.is_empty() || !name.chars().all(is_plain) || name == "any" || name.starts_with("nqn.") {
            return Err(format!(
                "{kind} {name:?}: name: letters, digits, \"-\", \"_\" and \".\" are allowed, but neither \
                 \"any\" nor what begins with \"nqn.\""
            ));
        }
        if self.named.insert(name.to_owned(), hosts).is_some() {
            return Err(format!("{kind} {name:?}: name: another host or group has it"));
        }
        Ok(())
    }

    /// The hosts that have an entry, that a group has, or that one of these lists names: also if
    /// no volume is for them, and beside `any`.
    pub(super) fn all<'a>(&self, lists: impl Iterator<Item = &'a String>) -> BTreeSet<Nqn> {
        let of_lists = lists.filter_map(|text| Nqn::new(text).ok());
        self.named.values().flatten().cloned().chain(of_lists).collect()
    }

    /// The hosts of a list of NQNs, names of hosts and groups, and `any`.
    pub(super) fn access(&self, key: &str, list: &[String]) -> Result<Access, String> {
        let mut hosts = BTreeSet::new();
        for text in list {
            if text == "any" {
                return Ok(Access::Any);
            }
            if let Some(named) = self.named.get(text) {
                hosts.extend(named.iter().cloned());
                continue;
            }
            let nqn = Nqn::new(text).map_err(|error| {
                if text.starts_with("nqn.") {
                    format!("{key}: {text:?}: {error}")
                } else {
                    format!("{key}: {text:?} is neither an NQN nor the name of a [[host]] or [[group]]")
                }
            })?;
            hosts.insert(nqn);
        }
        Ok(Access::Only(hosts))
    }
}

/// A host identifier: a UUID that is not zero.
pub fn host_id(text: &str) -> Option<HostId> {
    super::state::of_words(text).map(HostId).filter(|id| *id != HostId::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        host: Vec<Host>,
        #[serde(default)]
        group: Vec<Group>,
    }

    const TWO: &str = "[[host]]\nname = \"a\"\nnqn = \"nqn.2026-11.test:a\"\n\
        id = \"01234567-89ab-4def-8123-456789abcdef\"\n\
        [[host]]\nname = \"b\"\nnqn = \"nqn.2026-11.test:b\"\n";

    fn hosts(text: &str) -> Result<Hosts, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        Hosts::of(file.host, file.group)
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn only(names: &[&str]) -> Access {
        Access::Only(
            names.iter().map(|name| Nqn::new(&format!("nqn.2026-11.test:{name}")).unwrap()).collect(),
        )
    }

    #[test]
    fn a_list_has_nqns_and_names_of_hosts_and_groups() {
        let text =
            format!("{TWO}[[group]]\nname = \"all\"\nhosts = [\"a\", \"b\", \"nqn.2026-11.test:c\"]\n");
        let hosts = hosts(&text).unwrap();
        for (names, expected) in [
            (&["a"][..], only(&["a"])),
            (&["all"], only(&["a", "b", "c"])),
            (&["b", "nqn.2026-11.test:d"], only(&["b", "d"])),
            (&[], only(&[])),
            (&["b", "any"], Access::Any),
        ] {
            assert_eq!(hosts.access("hosts", &list(names)), Ok(expected), "{names:?}");
        }
        assert_eq!(hosts.ids.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_rule() {
        let of_host = |text: &str| format!("{TWO}[[host]]\nname = \"c\"\n{text}");
        let of_group = |text: &str| format!("{TWO}[[group]]\nname = \"g\"\n{text}");
        for (text, rule) in [
            (of_host("nqn = \"iqn.2026-11.test:c\""), "begin with \"nqn.\""),
            (of_host("nqn = \"nqn.2026-13.test:c\""), "year and month"),
            (of_host("nqn = \"nqn.2026-11.test:a\""), "host \"a\" has the same"),
            (of_host("nqn = \"nqn.2026-11.test:c\"\nid = \"7\""), "no UUID"),
            (
                of_host("nqn = \"nqn.2026-11.test:c\"\nid = \"00000000-0000-0000-0000-000000000000\""),
                "or is zero",
            ),
            (
                of_host("nqn = \"nqn.2026-11.test:c\"\nid = \"01234567-89AB-4DEF-8123-456789ABCDEF\""),
                "/etc/nvme/hostid",
            ),
            (format!("{TWO}[[host]]\nname = \"a\"\nnqn = \"nqn.2026-11.test:c\""), "another host or group"),
            (format!("{TWO}[[host]]\nname = \"any\"\nnqn = \"nqn.2026-11.test:c\""), "name:"),
            (of_group("hosts = []"), "there is none"),
            (of_group("hosts = [\"any\"]"), "no host"),
            (of_group("hosts = [\"d\"]"), "neither an NQN nor the name"),
            (of_group("hosts = [\"nqn.d\"]"), "year and month"),
            (format!("{TWO}[[group]]\nname = \"a\"\nhosts = [\"b\"]"), "another host or group"),
            (of_group("members = []"), "members"),
        ] {
            let error = hosts(&text).unwrap_err();
            assert!(error.contains(rule), "{text}: {error}");
        }
    }
}
