//! The description of a lab, kept in a file so that other terminals can cut and restore its links.
//!
//! The identity of a lab is `PID-START-COUNT`: the process that owns the lab, the start time of
//! that process (a process id can be reused, the pair cannot), and a number for a process with
//! several labs. The names of the namespaces and of the lab's directory contain the identity, so
//! the owner of leftovers is known.

use super::link::Condition;
use super::{Error, Layout, Link, Rate, Spec, leftovers, system};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The directory of labs' descriptions. A reboot removes it, as it removes the namespaces.
const STATES_DIRECTORY: &str = "/run/trunkline-lab";

/// The prefix of the names of all namespaces of labs.
pub(super) const PREFIX: &str = "trunkline-";

/// An environment variable with the name of the lab, for programs in a lab.
const LAB_VARIABLE: &str = "TRUNKLINE_LAB";

/// A lab; its owner may no longer be alive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    id: String,
    layout: Layout,
    rate: Option<Rate>,
    delay_us: Option<u64>,
    links: Vec<Link>,
}

impl State {
    /// Writes the description of a new lab of this process, before any part of it is created.
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
        let directory = state.directory();
        fs::create_dir_all(&directory).map_err(Error::io(format!("create {}", directory.display())))?;
        let json = serde_json::to_vec_pretty(&state).map_err(std::io::Error::from);
        json.and_then(|json| fs::write(directory.join("state.json"), json))
            .map_err(Error::io(format!("write {}/state.json", directory.display())))?;
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

    /// Whether nodes share a namespace.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The rate of each link in each direction; unlimited if absent.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// The additional delay of a packet in each direction.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        self.delay_us.map(Duration::from_micros)
    }

    /// The names of the lab's namespaces in `ip netns`, the client's first.
    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        let mut names = vec![self.full_name("client")];
        match self.layout {
            Layout::Together => names.push(self.full_name("nodes")),
            Layout::Apart => names.extend(self.links.iter().map(|link| self.full_name(&link.node_namespace))),
        }
        names
    }

    /// The name in `ip netns` of the lab's namespace `client`, `nodes` or `node1`.
    #[must_use]
    pub fn full_name(&self, namespace: &str) -> String {
        format!("{PREFIX}{}-{namespace}", self.id)
    }

    /// The state of the link with this name.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn condition(&self, link: &str) -> Result<Condition, Error> {
        let link = self.link(link)?;
        Ok(match fs::read_to_string(self.directory().join(&link.name)).as_deref() {
            Ok("cut") => Condition::Cut,
            Ok("silent") => Condition::Silent,
            _ => Condition::Up,
        })
    }

    /// Cuts the link with this name.
    ///
    /// # Errors
    /// If there is no such link, or the system refuses.
    pub fn cut(&self, link: &str) -> Result<(), Error> {
        let link = self.link(link)?;
        link.cut(self)?;
        self.record_condition(link, Condition::Cut)
    }

    /// Makes the link with this name silent.
    ///
    /// # Errors
    /// If there is no such link, or the system refuses.
    pub fn drop_silently(&self, link: &str) -> Result<(), Error> {
        let link = self.link(link)?;
        link.drop_silently(self)?;
        self.record_condition(link, Condition::Silent)
    }

    /// Restores the link with this name from either state.
    ///
    /// # Errors
    /// If there is no such link, or the system refuses.
    pub fn restore(&self, link: &str) -> Result<(), Error> {
        let link = self.link(link)?;
        link.restore(self)?;
        self.record_condition(link, Condition::Up)
    }

    /// The same command, to be run in one of the lab's namespaces: `client`, `nodes`, or `node1`
    /// and so on. Its arguments, directory and variables are kept; its redirections and `env_clear`
    /// are not.
    ///
    /// These variables describe the lab to the command: `TRUNKLINE_LAB` (the lab's name),
    /// `TRUNKLINE_LAB_NODES` and `TRUNKLINE_LAB_CLIENT` (addresses in the order of the links,
    /// joined by commas), and the last two also with `_V6`.
    ///
    /// # Errors
    /// If there is no such namespace, or `ip` is missing.
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
        if let Some(directory) = command.get_current_dir() {
            inside.current_dir(directory);
        }
        Ok(inside)
    }

    /// Ends all processes in the lab, and removes its namespaces, with them the links, and its
    /// description.
    pub(super) fn remove(&self) -> Result<(), Error> {
        let present = leftovers::namespaces()?;
        let mine: Vec<_> =
            self.namespaces().into_iter().filter(|namespace| present.contains(namespace)).collect();
        leftovers::remove_namespaces(&mine)?;
        remove_description(&self.id)
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

    fn record_condition(&self, link: &Link, condition: Condition) -> Result<(), Error> {
        let file = self.directory().join(&link.name);
        fs::write(&file, condition.name()).map_err(Error::io(format!("write {}", file.display())))
    }

    fn directory(&self) -> PathBuf {
        Path::new(STATES_DIRECTORY).join(&self.id)
    }
}

/// All labs whose owner is alive, oldest first.
///
/// # Errors
/// If the description of a lab cannot be read.
pub fn list() -> Result<Vec<State>, Error> {
    let mut labs = Vec::new();
    for id in ids()? {
        if !leftovers::Owner::of(&id).is_some_and(|owner| owner.is_alive()) {
            continue;
        }
        let file = Path::new(STATES_DIRECTORY).join(&id).join("state.json");
        match fs::read(&file) {
            Ok(json) => {
                let state = serde_json::from_slice::<State>(&json).map_err(std::io::Error::from);
                labs.push(state.map_err(Error::io(format!("understand {}", file.display())))?);
            }
            // The lab is just being created or removed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(format!("read {}", file.display()))(error)),
        }
    }
    labs.sort_by_key(|lab| leftovers::Owner::of(&lab.id).map(|owner| owner.started));
    Ok(labs)
}

/// The lab with this name; without a name, the lab that this process is in, or the only one.
///
/// # Errors
/// If there is no lab, or there are several to choose from.
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

/// All labs that have a directory, whether or not their owner is alive.
pub(super) fn ids() -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(STATES_DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("list {STATES_DIRECTORY}"))(error)),
    };
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

/// Removes the directory of a lab whose namespaces are gone.
pub(super) fn remove_description(id: &str) -> Result<(), Error> {
    let directory = Path::new(STATES_DIRECTORY).join(id);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("remove {}", directory.display()))(error))
        }
        _ => Ok(()),
    }
}
