//! What a lab consists of, kept in a file so that other terminals can cut and restore its links.
//!
//! The identity of a lab is `PID-START-COUNT`: the process that owns it, when that process started
//! (a process id comes back, the pair does not), and a number for a process with several labs. It
//! stands in the names of the namespaces and of the lab's directory, so the owner of anything that
//! is left is known.

use super::link::Condition;
use super::{Error, Layout, Link, Rate, Spec, leftovers, system};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where labs keep what they are; gone after a reboot, as the namespaces are.
const PLACE: &str = "/run/trunkline-lab";

/// Every namespace of a lab begins so.
pub(super) const PREFIX: &str = "trunkline-";

/// The environment variable that tells programs in a lab which lab it is.
const LAB_VARIABLE: &str = "TRUNKLINE_LAB";

/// A lab, alive or left over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    id: String,
    layout: Layout,
    rate: Option<Rate>,
    delay_us: Option<u64>,
    links: Vec<Link>,
}

impl State {
    /// Writes down a new lab of this process, before any of it is built.
    pub(super) fn create(spec: &Spec) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let owner = leftovers::Owner::this_process()?;
        let namespace = |number: u8| match spec.layout {
            Layout::Together => "nodes".to_owned(),
            Layout::Apart => format!("node{number}"),
        };
        let state = Self {
            id: format!("{}-{}-{count}", owner.pid, owner.started),
            layout: spec.layout,
            rate: spec.rate,
            delay_us: spec.delay.map(|delay| u64::try_from(delay.as_micros()).unwrap_or(u64::MAX)),
            links: (1..=spec.nodes).map(|number| Link::numbered(number, namespace(number))).collect(),
        };
        let place = state.place();
        fs::create_dir_all(&place).map_err(Error::io(format!("create {}", place.display())))?;
        let json = serde_json::to_vec_pretty(&state).map_err(std::io::Error::from);
        json.and_then(|json| fs::write(place.join("state.json"), json))
            .map_err(Error::io(format!("write {}/state.json", place.display())))?;
        Ok(state)
    }

    /// The lab's name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The links, one for each node, in order.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The speed of each link in each direction; unshaped where absent.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// How long a packet takes each way, beyond what this machine needs.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        self.delay_us.map(Duration::from_micros)
    }

    /// The names of the lab's namespaces as `ip netns` knows them, the client's first.
    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        let mut names = vec![self.full_name("client")];
        match self.layout {
            Layout::Together => names.push(self.full_name("nodes")),
            Layout::Apart => names.extend(self.links.iter().map(|link| self.full_name(&link.node_namespace))),
        }
        names
    }

    /// What `ip netns` calls a namespace that this lab calls `client`, `nodes` or `node1`.
    #[must_use]
    pub fn full_name(&self, namespace: &str) -> String {
        format!("{PREFIX}{}-{namespace}", self.id)
    }

    /// How a link is, by name.
    ///
    /// # Errors
    /// No such link.
    pub fn condition(&self, link: &str) -> Result<Condition, Error> {
        let link = self.link(link)?;
        Ok(match fs::read_to_string(self.place().join(&link.name)).as_deref() {
            Ok("cut") => Condition::Cut,
            Ok("silent") => Condition::Silent,
            _ => Condition::Up,
        })
    }

    /// Pulls the cable of a link, by name.
    ///
    /// # Errors
    /// No such link, or the system's refusal.
    pub fn cut(&self, link: &str) -> Result<(), Error> {
        let link = self.link(link)?;
        link.cut(self)?;
        self.note(link, Condition::Cut)
    }

    /// Lets a link lose everything without a word, by name.
    ///
    /// # Errors
    /// No such link, or the system's refusal.
    pub fn drop_silently(&self, link: &str) -> Result<(), Error> {
        let link = self.link(link)?;
        link.drop_silently(self)?;
        self.note(link, Condition::Silent)
    }

    /// Heals a link, by name, whatever ailed it.
    ///
    /// # Errors
    /// No such link, or the system's refusal.
    pub fn restore(&self, link: &str) -> Result<(), Error> {
        let link = self.link(link)?;
        link.restore(self)?;
        self.note(link, Condition::Up)
    }

    /// The same command, run in one of the lab's namespaces: `client`, `nodes`, or `node1` and so
    /// on. Its arguments, directory and variables are kept; its redirections and `env_clear` are
    /// not.
    ///
    /// Besides, these variables tell it where it is: `TRUNKLINE_LAB` (the lab's name),
    /// `TRUNKLINE_LAB_NODES` and `TRUNKLINE_LAB_CLIENT` (addresses in the order of the links,
    /// joined by commas), and both again with `_V6`.
    ///
    /// # Errors
    /// No such namespace, or `ip` is missing.
    pub fn exec_in(&self, namespace: &str, command: &Command) -> Result<Command, Error> {
        let full = self.full_name(namespace);
        if !self.namespaces().contains(&full) {
            let known = self.namespaces().join(" ").replace(&self.full_name(""), "");
            return Err(Error::Misuse(format!("this lab has no namespace {namespace}; it has {known}")));
        }
        let mut inside = system::in_namespace(&full)?;
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in self.variables() {
            inside.env(name, value);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(place) = command.get_current_dir() {
            inside.current_dir(place);
        }
        Ok(inside)
    }

    /// Ends everything that runs in the lab and removes its namespaces, with them the links, and
    /// its file.
    pub(super) fn remove(&self) -> Result<(), Error> {
        let present = leftovers::namespaces()?;
        let mine: Vec<_> =
            self.namespaces().into_iter().filter(|namespace| present.contains(namespace)).collect();
        leftovers::remove_namespaces(&mine)?;
        forget(&self.id)
    }

    fn variables(&self) -> [(&'static str, String); 5] {
        fn joined<T: ToString>(addresses: impl Iterator<Item = T>) -> String {
            addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
        }
        let links = || self.links.iter();
        [
            (LAB_VARIABLE, self.id.clone()),
            ("TRUNKLINE_LAB_NODES", joined(links().map(|link| link.node))),
            ("TRUNKLINE_LAB_NODES_V6", joined(links().map(|link| link.node_v6))),
            ("TRUNKLINE_LAB_CLIENT", joined(links().map(|link| link.client))),
            ("TRUNKLINE_LAB_CLIENT_V6", joined(links().map(|link| link.client_v6))),
        ]
    }

    fn link(&self, name: &str) -> Result<&Link, Error> {
        self.links.iter().find(|link| link.name == name).ok_or_else(|| {
            let names: Vec<_> = self.links.iter().map(|link| link.name.as_str()).collect();
            Error::Misuse(format!("this lab has no link {name}; it has {}", names.join(" ")))
        })
    }

    fn note(&self, link: &Link, condition: Condition) -> Result<(), Error> {
        let file = self.place().join(&link.name);
        fs::write(&file, condition.name()).map_err(Error::io(format!("write {}", file.display())))
    }

    fn place(&self) -> PathBuf {
        Path::new(PLACE).join(&self.id)
    }
}

/// All labs whose owner lives, oldest first.
///
/// # Errors
/// A lab's file that cannot be read.
pub fn list() -> Result<Vec<State>, Error> {
    let mut labs = Vec::new();
    for id in ids()? {
        if !leftovers::Owner::of(&id).is_some_and(|owner| owner.lives()) {
            continue;
        }
        let file = Path::new(PLACE).join(&id).join("state.json");
        match fs::read(&file) {
            Ok(json) => {
                let state = serde_json::from_slice::<State>(&json).map_err(std::io::Error::from);
                labs.push(state.map_err(Error::io(format!("understand {}", file.display())))?);
            }
            // Just being made, or just removed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(format!("read {}", file.display()))(error)),
        }
    }
    labs.sort_by_key(|lab| leftovers::Owner::of(&lab.id).map(|owner| owner.started));
    Ok(labs)
}

/// The lab of this name; without a name the one we are in, or the only one there is.
///
/// # Errors
/// None, or several to choose from.
pub fn find(id: Option<&str>) -> Result<State, Error> {
    let inside = std::env::var(LAB_VARIABLE).ok();
    let wanted = id.or(inside.as_deref());
    let labs = list()?;
    let names = labs.iter().map(State::id).collect::<Vec<_>>().join(" ");
    let mut fitting = labs.into_iter().filter(|lab| wanted.is_none_or(|wanted| lab.id == wanted));
    match (fitting.next(), fitting.next(), wanted) {
        (Some(lab), None, _) => Ok(lab),
        (Some(_), Some(_), _) => {
            Err(Error::Misuse(format!("several labs are running, name one of: {names}")))
        }
        (None, _, Some(wanted)) => {
            Err(Error::Misuse(format!("no lab {wanted} is running; running: {names}")))
        }
        (None, _, None) => {
            Err(Error::Misuse("no lab is running; start one with: trunkline lab net -- COMMAND".to_owned()))
        }
    }
}

/// The labs that have a directory, whether their owner lives or not.
pub(super) fn ids() -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(PLACE) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("list {PLACE}"))(error)),
    };
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

/// Forgets a lab whose namespaces are gone.
pub(super) fn forget(id: &str) -> Result<(), Error> {
    let place = Path::new(PLACE).join(id);
    match fs::remove_dir_all(&place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("remove {}", place.display()))(error))
        }
        _ => Ok(()),
    }
}
