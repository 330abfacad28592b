//! Directories of other machines, as the coordinator sees them: whether they may be measured, and
//! the files that the agents make, compare and remove there.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::fleet::{Failure, Fleet};
use super::message::{Answer, FileToMake, Files, Inspected, Request};
use crate::error::{Error, Result};
use crate::file_sets::Compared;
use crate::room::{FileSystem, Room};
use crate::stop::Stop;
use crate::workload::PlannedWorkload;

/// How long an agent may take for what needs no reading and writing.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an agent may take to make, compare or remove files. A connection that is gone is
/// noticed earlier.
const FILES_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// The longest text of an agent about a directory.
const TEXT_BYTES_MAX: usize = 1024;

/// A directory of this name on each client of a route.
#[derive(Debug)]
pub struct RemoteDirectory {
    pub(crate) path: PathBuf,
    /// Whether it is accessed past the page cache.
    pub(crate) direct: bool,
    /// What each client of the route has said about it.
    inspected: Vec<Inspected>,
}

impl RemoteDirectory {
    pub(crate) const fn new(path: PathBuf, direct: bool) -> Self {
        Self { path, direct, inspected: Vec::new() }
    }

    /// How it is accessed, for the record. Where the clients differ, each is told.
    pub(crate) fn describe(&self, names: &[&str]) -> String {
        let all = || self.inspected.iter().map(|one| one.access.as_str());
        match all().next() {
            None => "not inspected".to_owned(),
            Some(first) if all().all(|other| other == first) => format!("{first}, on each client"),
            Some(_) => {
                let each = all().zip(names).map(|(access, name)| format!("{name}: {access}"));
                each.collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// What a reader must know about the results of a workload.
    pub(crate) fn note(&self, workload: &PlannedWorkload) -> Option<String> {
        let what = match (workload.has(record::Direction::Read), workload.has(record::Direction::Write)) {
            (true, false) => "buffered reads may measure the page caches of the clients",
            (false, _) => {
                "buffered writes count when they are in the page caches of the clients, before they are stable"
            }
            (true, true) => {
                "buffered reads may measure the page caches of the clients; buffered writes count when they are there, \
                 before they are stable"
            }
        };
        (!self.direct).then(|| format!("{what}; O_DIRECT measures what is below them"))
    }
}

/// The files of a route in the directories of its clients.
#[derive(Debug)]
pub(crate) struct RemoteFiles {
    route: String,
    set: u32,
    /// The clients of the route, as indices into those of the fleet.
    members: Vec<usize>,
    /// The files of each.
    of_clients: Vec<ClientFiles>,
}

/// The files of one client.
#[derive(Debug, Default)]
struct ClientFiles {
    files: Vec<FileToMake>,
    /// The numbers of the files of each workload, in the order of its jobs.
    by_workload: Vec<Vec<u32>>,
}

impl RemoteFiles {
    /// The files of these workloads on the clients of a route. Nothing is made yet.
    pub(crate) fn plan(
        route: &str,
        set: usize,
        members: &[usize],
        workloads: &[PlannedWorkload],
        wanted: &dyn Fn(usize) -> bool,
    ) -> Self {
        let of_client = |client: usize| {
            let mut own = ClientFiles::default();
            for (index, workload) in workloads.iter().enumerate() {
                let numbers = match wanted(index) {
                    true => own.add(&workload.on_clients(members.len()).of_client(client).0),
                    false => Vec::new(),
                };
                own.by_workload.push(numbers);
            }
            own
        };
        Self {
            route: route.to_owned(),
            set: u32::try_from(set).unwrap_or(u32::MAX),
            members: members.to_vec(),
            of_clients: (0..members.len()).map(of_client).collect(),
        }
    }

    pub(crate) const fn set(&self) -> u32 {
        self.set
    }

    /// The numbers of the files of a workload on a client of the route.
    pub(crate) fn numbers(&self, workload: usize, client: usize) -> &[u32] {
        let of_client = self.of_clients.get(client).and_then(|own| own.by_workload.get(workload));
        of_client.map(Vec::as_slice).unwrap_or_default()
    }

    /// The bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.of_clients.iter().map(ClientFiles::bytes).fold(0, u64::saturating_add)
    }
}

impl ClientFiles {
    /// Adds the files of a workload; those of the same name are the same.
    fn add(&mut self, workload: &PlannedWorkload) -> Vec<u32> {
        let mut number = |name: &str, bytes: u64| {
            let known = self.files.iter().position(|file| file.name == name);
            let number = known.unwrap_or_else(|| {
                self.files.push(FileToMake { name: name.to_owned(), bytes });
                self.files.len() - 1
            });
            u32::try_from(number).unwrap_or(u32::MAX)
        };
        workload.files.iter().map(|file| number(&file.name, file.bytes)).collect()
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }
}

impl Fleet {
    /// Asks all clients of a route for its directory. Refuses one that a client does not have or
    /// does not let be measured.
    pub(crate) fn inspect(
        &mut self,
        route: &str,
        directory: &mut RemoteDirectory,
        members: &[usize],
        stop: &Stop,
    ) -> Result<()> {
        let (path, direct) = (directory.path.clone(), directory.direct);
        let request = |_| Request::Inspect { directory: path.clone(), direct };
        let doing = format!("{route}: cannot measure {}", path.display());
        let until = Instant::now() + INSPECT_TIMEOUT;
        let answers = self.exchange(members, request, stop, until);
        let answers = answers.map_err(|failure| self.refused(&doing, failure))?;
        let mut inspected = Vec::new();
        for (member, answer) in members.iter().zip(answers) {
            let name = self.name(*member).to_owned();
            match answer {
                Answer::Directory(found) if found.is_sound() => inspected.push(found),
                Answer::NotAllowed => {
                    return Err(Error::refused(
                        format!("{doing} on client {name}"),
                        "its agent's owner has not allowed this directory: an agent opens none by itself",
                        format!("trunkline agent --allow-dir {}        on that host", path.display()),
                    ));
                }
                other => return Err(self.unexpected(*member, &doing, &other)),
            }
        }
        directory.inspected = inspected;
        Ok(())
    }

    /// The room that the files of a route need on each of its clients.
    pub(crate) fn rooms(&self, directory: &RemoteDirectory, files: &RemoteFiles) -> Vec<Room> {
        let each = files.members.iter().zip(&files.of_clients).zip(&directory.inspected);
        let room = |((member, own), found): ((&usize, &ClientFiles), &Inspected)| Room {
            route: format!("{} on {}", files.route, self.name(*member)),
            needed_bytes: own.bytes(),
            free_bytes: found.free_bytes,
            file_system: Some(FileSystem::Mounted {
                machine: self.machine(*member),
                device: found.device,
                source: found.source.clone(),
            }),
        };
        each.map(room).collect()
    }

    /// Has all clients make their files. After an error, none has any.
    pub(crate) fn make(
        &mut self,
        directory: &Path,
        direct: bool,
        files: &RemoteFiles,
        stop: &Stop,
    ) -> Result<()> {
        let request = |client: usize| {
            let own = files.of_clients.get(client).map(|own| own.files.clone()).unwrap_or_default();
            let directory = directory.to_owned();
            Request::Make(Box::new(Files { set: files.set, directory, direct, files: own }))
        };
        let doing = format!("{}: cannot make files in {}", files.route, directory.display());
        let made = self.exchange(&files.members, request, stop, Instant::now() + FILES_TIMEOUT);
        let made = made.map_err(|failure| self.refused(&doing, failure)).and_then(|answers| {
            let mut answers = files.members.iter().zip(answers);
            match answers.find(|(_, answer)| !matches!(answer, Answer::Ready)) {
                None => Ok(()),
                Some((member, other)) => Err(self.unexpected(*member, &doing, &other)),
            }
        });
        made.inspect_err(|_| {
            if let Err(cause) = self.remove(files) {
                tracing::warn!(%cause, "files of the experiment remain");
            }
        })
    }

    /// Has the clients compare the files of a workload. Those of lost clients are left out.
    pub(crate) fn compare(
        &mut self,
        files: &RemoteFiles,
        workload: usize,
        stop: &Stop,
    ) -> Result<Option<Compared>> {
        let has_files = |(client, member): &(usize, &usize)| {
            self.lost(**member).is_none() && !files.numbers(workload, *client).is_empty()
        };
        let asked: Vec<(usize, usize)> = files
            .members
            .iter()
            .enumerate()
            .filter(has_files)
            .map(|(client, member)| (client, *member))
            .collect();
        let members: Vec<usize> = asked.iter().map(|(_, member)| *member).collect();
        if members.is_empty() {
            return Ok(None);
        }
        let request = |index: usize| {
            let client = asked.get(index).map_or(0, |(client, _)| *client);
            Request::Compare { set: files.set, files: files.numbers(workload, client).to_vec() }
        };
        let doing = format!("{}: cannot compare the files", files.route);
        let answers = match self.exchange(&members, request, stop, Instant::now() + FILES_TIMEOUT) {
            Ok(answers) => answers,
            // What needs that client is not measured any more, which the record says.
            Err(Failure::Lost(_)) => return Ok(None),
            Err(failure) => return Err(self.refused(&doing, failure)),
        };
        let (mut sum, mut first_wrong) = (0_u64, None);
        for (member, answer) in members.iter().zip(answers) {
            match answer {
                Answer::Compared { bytes, wrong } => {
                    sum = sum.saturating_add(bytes);
                    let wrong =
                        wrong.map(|wrong| format!("client {}: {}", self.name(*member), short(&wrong)));
                    first_wrong = first_wrong.or(wrong);
                }
                other => return Err(self.unexpected(*member, &doing, &other)),
            }
        }
        Ok(Some((sum, first_wrong)))
    }

    /// Has the clients remove their files. A client that is lost removes them by itself. A stop
    /// does not end it.
    pub(crate) fn remove(&mut self, files: &RemoteFiles) -> Result<()> {
        let members: Vec<usize> =
            files.members.iter().copied().filter(|member| self.lost(*member).is_none()).collect();
        let doing = format!("{}: cannot remove the files", files.route);
        let mut outcome = Ok(());
        for member in members {
            // One by one: the others remove theirs whatever one of them says.
            let request = |_| Request::Remove { set: files.set };
            let removed = self.exchange(&[member], request, &Stop::default(), Instant::now() + FILES_TIMEOUT);
            if let Err(failure @ Failure::Failed(..)) = removed {
                outcome = outcome.and(Err(self.refused(&doing, failure)));
            }
        }
        outcome
    }

    /// A failure of a client as an error.
    fn refused(&self, doing: &str, failure: Failure) -> Error {
        match failure {
            Failure::Stopped => Error::Stopped,
            Failure::Failed(member, reason) => Error::refused(
                format!("{doing} on client {}", self.name(member)),
                short(&reason),
                "ls -ld and df there; the same directory on each client, or a route of its own for each group of clients",
            ),
            Failure::Lost(gone) => {
                let first = gone.first().copied().unwrap_or_default();
                let cause = self.lost(first).unwrap_or_default().to_owned();
                let sentence = format!("{doing}: client {} is lost", self.name(first));
                Error::refused(sentence, short(&cause), "the agent's messages on that host")
            }
        }
    }

    /// An answer to something else.
    fn unexpected(&mut self, member: usize, doing: &str, answer: &Answer) -> Error {
        if matches!(answer, Answer::Stopped) {
            return Error::Stopped;
        }
        let sentence = format!("{doing} on client {}", self.name(member));
        Error::refused(sentence, "it answered something else", "the agent's messages on that host")
    }
}

impl Inspected {
    /// Whether an agent can have seen this.
    fn is_sound(&self) -> bool {
        self.access.len() <= TEXT_BYTES_MAX
            && self.source.as_ref().is_none_or(|it| it.len() <= TEXT_BYTES_MAX)
    }
}

/// The beginning of a text of an agent.
fn short(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).take(TEXT_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Steps, WorkloadSpec};
    use crate::workload;

    fn spec(name: &str, steps: Option<Steps>) -> WorkloadSpec {
        let name = name.to_owned();
        WorkloadSpec {
            name,
            block: 4096,
            depth: 1,
            readers: 1,
            writers: 1,
            file: 8192,
            steps,
            ..<_>::default()
        }
    }

    #[test]
    fn each_client_has_the_files_of_its_own_jobs_and_steps_share_them() {
        let steps = Steps { clients: vec![1, 2], depth: Vec::new() };
        let mut workloads = workload::planned(&spec("mix", Some(steps)), 3);
        workloads.extend(workload::planned(&spec("other", None), 3));
        let files = RemoteFiles::plan("r", 7, &[4, 5, 6], &workloads, &|index| index < 3);
        let names = |client: usize| -> Vec<&str> {
            files.of_clients[client].files.iter().map(|file| file.name.as_str()).collect()
        };
        assert_eq!(names(0), ["mix.client0.0", "mix.client0.1", "other.client0.0", "other.client0.1"]);
        assert_eq!(names(2), ["other.client2.0", "other.client2.1"], "no step needs it");
        assert_eq!(
            (files.numbers(0, 0), files.numbers(1, 0), files.numbers(2, 0)),
            (&[0, 1][..], &[0, 1][..], &[2, 3][..])
        );
        assert_eq!((files.numbers(0, 1), files.numbers(1, 1)), (&[][..], &[0, 1][..]));
        assert_eq!((files.numbers(9, 0).len(), files.numbers(0, 9).len(), files.set()), (0, 0, 7));
        assert_eq!(files.bytes(), (4 + 4 + 2) * 8192);
        let none = RemoteFiles::plan("r", 0, &[1], &workloads, &|_| false);
        assert_eq!(none.bytes(), 0);
    }

    #[test]
    fn the_access_of_clients_that_differ_is_told_for_each() {
        let seen =
            |access: &str| Inspected { free_bytes: None, device: 1, source: None, access: access.into() };
        let mut directory = RemoteDirectory::new("/mnt".into(), true);
        directory.inspected = vec![seen("O_DIRECT on nfs"), seen("O_DIRECT on nfs")];
        assert_eq!(directory.describe(&["a", "b"]), "O_DIRECT on nfs, on each client");
        directory.inspected[1] = seen("O_DIRECT on xfs");
        assert_eq!(directory.describe(&["a", "b"]), "a: O_DIRECT on nfs; b: O_DIRECT on xfs");
        assert!(!seen(&"x".repeat(2000)).is_sound() && seen("x").is_sound());
        let [mix] = workload::planned(&spec("mix", None), 2).try_into().unwrap();
        assert_eq!(directory.note(&mix), None);
        directory.direct = false;
        assert!(directory.note(&mix).unwrap().contains("page caches of the clients"));
        assert_eq!(short("a\nb\u{1b}[31m"), "ab[31m");
    }
}
