//! The coordinator's side: connects to the agents, has them start together, and collects what they
//! measured.

mod connect;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use record::PathCounters;

use super::link::{Link, LinkError};
use super::merge::{self, Coordinator, Measured};
use super::message::{Answer, Assignment, ClientSample, Machine, Place, Request, SharedFile};
use super::remote_files::RemoteFiles;
use super::spec::ClientSpec;
use super::told::ClientLoad;
use crate::files::PreparedFile;
use crate::jobs::Window;
use crate::machine::CpuMeter;
use crate::measure::Sample;
use crate::routes::MountPlan;
use crate::stop::Stop;
use crate::watch::Watch;
use crate::workload::PlannedWorkload;

/// The clocks are compared this many times before each repeat; the shortest round trip counts.
const CLOCK_ROUNDS: u32 = 4;
/// How long an agent may take to answer what needs no work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an agent may take to mount a route: longer than a mount tries.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(150);
/// How long an agent may take to end what runs.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(90);
/// The time between the last message before a start and the start, besides the round trips.
const START_LEAD: Duration = Duration::from_millis(20);
/// How often the connections are looked at while a load runs.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// A difference of the clocks of the day that a reader of logs should know.
const WALL_DIFFERENCE_MIN: Duration = Duration::from_secs(1);

/// A connected agent.
#[derive(Debug)]
struct Client {
    spec: ClientSpec,
    version: String,
    machine: Machine,
    /// The address at which the agent listens.
    address: Option<IpAddr>,
    /// `None` once the client is lost.
    link: Option<Link>,
    lost: String,
    /// When the agent's clock was zero, by this process's clock.
    zero: Instant,
    clock_error: Duration,
    /// How far the agent's time of day is ahead of this machine's, in microseconds.
    wall_ahead_us: i128,
}

/// All clients of an experiment.
#[derive(Debug)]
pub(crate) struct Fleet {
    clients: Vec<Client>,
    /// The machine of this process.
    here: Machine,
}

/// One repeat of a workload on a route.
pub(crate) struct Run<'a> {
    pub(crate) load: Load<'a>,
    /// The name of the route.
    pub(crate) route: &'a str,
    /// Who learns what the clients do.
    pub(crate) watch: &'a Watch,
    /// The clients, as indices. The workload's client `i` is the i-th of them.
    pub(crate) members: &'a [usize],
    pub(crate) workload: &'a PlannedWorkload,
    pub(crate) window: Window,
    /// The processor time of the embedded group so far, if there is one.
    pub(crate) server_cpu: &'a dyn Fn() -> Option<Duration>,
    pub(crate) stop: &'a Stop,
}

/// Where the load of a repeat is made.
#[derive(Clone, Copy)]
pub(crate) enum Load<'a> {
    /// On a route that each client mounts, with files that this process has made.
    Mount { route: &'a MountPlan, files: &'a [PreparedFile] },
    /// In a directory of each client, with files that it has made: those of the workload of this
    /// index.
    Directory { files: &'a RemoteFiles, workload: usize },
}

/// Who is waited for.
struct Wait<'a> {
    members: &'a [usize],
    stop: &'a Stop,
    /// Whether the work ends by itself rather than by time.
    ends: bool,
    /// Who learns what the members do, and on which route.
    watch: Option<(&'a Watch, &'a str)>,
}

/// What a repeat measured.
#[derive(Debug)]
pub(crate) struct Repeated {
    pub(crate) sample: Sample,
    pub(crate) paths: Vec<Vec<PathCounters>>,
    pub(crate) counters: Vec<BTreeMap<String, u64>>,
}

/// Why a repeat does not count.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The experiment is to stop.
    Stopped,
    /// Clients are gone: their indices. [`Fleet::lost`] says why.
    Lost(Vec<usize>),
    /// A client could not do what was asked: its index and why. It still answers.
    Failed(usize, String),
}

impl Fleet {
    /// The names of all clients.
    pub(crate) fn name(&self, client: usize) -> &str {
        self.clients.get(client).map_or("", |client| &client.spec.name)
    }

    /// Why a client is lost, if it is.
    pub(crate) fn lost(&self, client: usize) -> Option<&str> {
        let client = self.clients.get(client)?;
        client.link.is_none().then_some(client.lost.as_str())
    }

    /// The addresses at which agents listen. That of an agent at `ssh:HOST` is not known.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.clients.iter().filter_map(|client| client.address).collect()
    }

    /// The reason why these clients cannot use RDMA, if one cannot.
    pub(crate) fn no_rdma(&self, members: &[usize]) -> Option<String> {
        let clients = members.iter().filter_map(|member| self.clients.get(*member));
        let mut without = clients.filter_map(|client| Some((client, client.machine.no_rdma.as_ref()?)));
        without.next().map(|(client, why)| format!("client {}: {why}", client.spec.name))
    }

    /// What a reader of the record should know about the clients, by name.
    pub(crate) fn notes(&self) -> BTreeMap<String, String> {
        let names: Vec<&str> = self.clients.iter().map(|client| client.spec.name.as_str()).collect();
        let mut notes = BTreeMap::from([("clients".to_owned(), names.join(", "))]);
        let apart = self.clients.iter().filter_map(|client| {
            let seconds = client.wall_ahead_us as f64 / 1e6;
            let ahead = if seconds > 0.0 { "ahead" } else { "behind" };
            (seconds.abs() >= WALL_DIFFERENCE_MIN.as_secs_f64())
                .then(|| format!("{} is {:.1} s {ahead}", client.spec.name, seconds.abs()))
        });
        let apart: Vec<String> = apart.collect();
        if !apart.is_empty() {
            tracing::warn!(
                clocks = apart.join(", "),
                "clocks of the day differ; starts do not depend on them, but logs do: chronyc makestep"
            );
            notes.insert("clocks".to_owned(), apart.join(", "));
        }
        let here = env!("CARGO_PKG_VERSION");
        let others = self.clients.iter().filter(|client| client.version != here);
        let others: Vec<String> = others.map(|it| format!("{}: {}", it.spec.name, it.version)).collect();
        if !others.is_empty() {
            notes.insert("client_versions".to_owned(), others.join(", "));
        }
        notes
    }

    /// Runs a workload once: all clients mount the route; when all are ready, they start at the
    /// same time.
    pub(crate) fn run(&mut self, run: &Run<'_>) -> Result<Repeated, Failure> {
        let repeated = self.run_watched(run);
        run.watch.clients_rest();
        repeated
    }

    fn run_watched(&mut self, run: &Run<'_>) -> Result<Repeated, Failure> {
        let missing: Vec<usize> =
            run.members.iter().copied().filter(|member| self.lost(*member).is_some()).collect();
        if !missing.is_empty() {
            return Err(Failure::Lost(missing));
        }
        let prepare = |index: usize| Request::Prepare(Box::new(assignment(run, index)));
        self.ask(run.members, prepare)?;
        let mut ready = Collected::new(run.members);
        self.collect(&run.wait(), &mut ready, None, Instant::now() + PREPARE_TIMEOUT)?;
        for (member, answer) in run.members.iter().zip(&ready.answers) {
            if !matches!(answer, Some(Answer::Ready)) {
                return Err(self.lose(*member, unexpected(answer.as_ref())));
            }
        }
        for member in run.members {
            // The others wait for a start: they would not answer a stop.
            if self.attempt(*member, Client::compare_clocks).is_none() {
                return Err(Failure::Lost(vec![*member]));
            }
        }
        let (samples, coordinator) = self.start(run)?;
        Ok(self.merged(run, samples, coordinator))
    }

    /// Starts the load on all clients, and waits for its end.
    fn start(&mut self, run: &Run<'_>) -> Result<(Vec<ClientSample>, Coordinator), Failure> {
        let errors = run.members.iter().filter_map(|member| self.clients.get(*member));
        let slowest = errors.map(|client| client.clock_error).max().unwrap_or_default();
        let each = Duration::from_micros(200) * u32::try_from(run.members.len()).unwrap_or(u32::MAX);
        let at = Instant::now() + START_LEAD + 4 * slowest + each;
        let zeros: Vec<Instant> =
            run.members.iter().filter_map(|it| Some(self.clients.get(*it)?.zero)).collect();
        self.ask(run.members, |index| {
            let zero = zeros.get(index).copied().unwrap_or(at);
            let at_ns = at.saturating_duration_since(zero).as_nanos();
            Request::Start { at_ns: u64::try_from(at_ns).unwrap_or(u64::MAX) }
        })?;
        let mut done = Collected::new(run.members);
        let deadline = at + run.window.latest() + DRAIN_TIMEOUT;
        self.collect(&run.wait(), &mut done, Some(at + run.window.warm), deadline)?;
        let (busy, from, server) = (CpuMeter::start(), Instant::now(), (run.server_cpu)());
        let end = (!run.workload.ends()).then(|| at + run.window.end);
        self.collect(&run.wait(), &mut done, end, deadline)?;
        let window = from.elapsed();
        let server_cpu = server.zip((run.server_cpu)()).map(|(before, after)| after.saturating_sub(before));
        let coordinator = Coordinator { busy: busy.share(), server_cpu, window };
        self.collect(&run.wait(), &mut done, None, deadline)?;
        let mut samples = Vec::new();
        for (member, answer) in run.members.iter().zip(done.answers) {
            match answer {
                Some(Answer::Done(sample)) => match sample.fault() {
                    None => samples.push(*sample),
                    Some(fault) => {
                        let reason = format!("it sent results that cannot be: {fault}");
                        return Err(self.lose(*member, reason));
                    }
                },
                other => return Err(self.lose(*member, unexpected(other.as_ref()))),
            }
        }
        Ok((samples, coordinator))
    }

    fn merged(&self, run: &Run<'_>, samples: Vec<ClientSample>, coordinator: Coordinator) -> Repeated {
        let paths = samples.iter().map(|sample| sample.paths.clone()).collect();
        let counters = samples.iter().map(|sample| sample.counters.clone()).collect();
        let clients = run.members.iter().filter_map(|member| self.clients.get(*member));
        let measured: Vec<Measured> = clients
            .zip(samples)
            .map(|(client, sample)| Measured {
                name: client.spec.name.clone(),
                version: client.version.clone(),
                is_here: client.machine.boot == self.here.boot && !self.here.boot.is_empty(),
                boot: client.machine.boot.clone(),
                began: client.zero + Duration::from_nanos(sample.began_ns),
                clock_error: client.clock_error,
                sample,
            })
            .collect();
        let sample = merge::merge(&measured, coordinator, run.window, run.workload.ends());
        Repeated { sample, paths, counters }
    }

    /// Sends a request to each member, and returns their answers when all have come.
    pub(super) fn exchange(
        &mut self,
        members: &[usize],
        request: impl Fn(usize) -> Request,
        stop: &Stop,
        deadline: Instant,
    ) -> Result<Vec<Answer>, Failure> {
        self.ask(members, request)?;
        let mut collected = Collected::new(members);
        self.collect(&Wait { members, stop, ends: true, watch: None }, &mut collected, None, deadline)?;
        Ok(collected.answers.into_iter().flatten().collect())
    }

    /// Tells the machine of a client from those of others.
    pub(super) fn machine(&self, client: usize) -> String {
        match self.clients.get(client) {
            Some(client) if !client.machine.boot.is_empty() => client.machine.boot.clone(),
            _ => format!("client {client}"),
        }
    }

    /// Sends a request to each member; if one cannot be reached, ends what the others do.
    fn ask(&mut self, members: &[usize], request: impl Fn(usize) -> Request) -> Result<(), Failure> {
        for (index, member) in members.iter().enumerate() {
            let request = request(index);
            if self.attempt(*member, |client| client.send(&request)).is_none() {
                let asked = members.get(..index).unwrap_or_default().to_vec();
                return Err(self.halt(&asked, vec![*member]));
            }
        }
        Ok(())
    }

    /// Waits for the answers that are missing: for all, or until a point in time. An answer that is
    /// a failure, a lost client or a stop ends what the others do.
    fn collect(
        &mut self,
        wait: &Wait<'_>,
        collected: &mut Collected,
        until: Option<Instant>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        loop {
            let mut failed = None;
            for (member, answer) in wait.members.iter().zip(&mut collected.answers) {
                if answer.is_some() {
                    continue;
                }
                let Some(client) = self.clients.get_mut(*member) else { continue };
                match client.poll() {
                    Ok(Some(Answer::Told(load))) => client.told(&load, wait.watch),
                    Ok(Some(Answer::Failed(reason))) => {
                        *answer = Some(Answer::Stopped);
                        failed.get_or_insert((*member, reason));
                    }
                    // Nobody has been asked to stop yet, so its agent is being ended.
                    Ok(Some(Answer::Stopped)) => client.lose("it said that it stopped".to_owned()),
                    Ok(found) => *answer = found,
                    Err(error) => client.lose(error.to_string()),
                }
            }
            let pending = collected.pending(wait.members);
            let gone: Vec<usize> = pending.iter().copied().filter(|it| self.lost(*it).is_some()).collect();
            if let Some((member, reason)) = failed {
                self.halt(&pending, Vec::new());
                return Err(Failure::Failed(member, reason));
            }
            if !gone.is_empty() {
                return Err(self.halt(&pending, gone));
            }
            if wait.stop.is_requested() {
                self.halt(&pending, Vec::new());
                return Err(Failure::Stopped);
            }
            let now = Instant::now();
            if pending.is_empty() && until.is_none_or(|until| wait.ends || now >= until)
                || until.is_some_and(|until| now >= until)
            {
                return Ok(());
            }
            if now >= deadline {
                for member in &pending {
                    self.lose(*member, "it has not answered in time".to_owned());
                }
                return Err(Failure::Lost(pending));
            }
            let next = until.unwrap_or(deadline).saturating_duration_since(now);
            std::thread::sleep(next.min(POLL_INTERVAL));
        }
    }

    /// Ends what the members do, and waits until they have. Those that do not answer are lost too.
    fn halt(&mut self, members: &[usize], mut gone: Vec<usize>) -> Failure {
        let pending: Vec<usize> = members.iter().copied().filter(|it| self.lost(*it).is_none()).collect();
        let asked: Vec<usize> = pending
            .into_iter()
            .filter(|member| self.attempt(*member, |client| client.send(&Request::Stop)).is_some())
            .collect();
        let until = Instant::now() + DRAIN_TIMEOUT;
        for member in asked {
            if self.attempt(member, |client| client.receive(until)).is_none() {
                gone.push(member);
            }
        }
        gone.sort_unstable();
        gone.dedup();
        Failure::Lost(gone)
    }

    /// Does something with a client, which is lost if that fails.
    fn attempt<T>(
        &mut self,
        member: usize,
        what: impl FnOnce(&mut Client) -> Result<T, LinkError>,
    ) -> Option<T> {
        let client = self.clients.get_mut(member)?;
        match what(client) {
            Ok(done) => Some(done),
            Err(error) => {
                client.lose(error.to_string());
                None
            }
        }
    }

    fn lose(&mut self, member: usize, reason: String) -> Failure {
        if let Some(client) = self.clients.get_mut(member) {
            client.lose(reason);
        }
        Failure::Lost(vec![member])
    }
}

/// The answers of the members of a run, as far as they have come.
struct Collected {
    answers: Vec<Option<Answer>>,
}

impl Collected {
    fn new(members: &[usize]) -> Self {
        Self { answers: members.iter().map(|_| None).collect() }
    }

    fn pending(&self, members: &[usize]) -> Vec<usize> {
        let missing = members.iter().zip(&self.answers).filter(|(_, answer)| answer.is_none());
        missing.map(|(member, _)| *member).collect()
    }
}

impl Run<'_> {
    fn wait(&self) -> Wait<'_> {
        let watch = Some((self.watch, self.route));
        Wait { members: self.members, stop: self.stop, ends: self.workload.ends(), watch }
    }
}

fn assignment(run: &Run<'_>, client: usize) -> Assignment {
    let (workload, used) = run.workload.of_client(client);
    let place = match run.load {
        Load::Mount { route, files } => {
            let files = used.iter().filter_map(|file| files.get(*file)).map(SharedFile::from).collect();
            Place::Mount { route: route.clone(), files }
        }
        Load::Directory { files, workload } => {
            Place::Directory { set: files.set(), files: files.numbers(workload, client).to_vec() }
        }
    };
    let (warm, end) = (run.window.warm, run.window.end);
    Assignment { place, jobs: workload.jobs, warm, end }
}

fn unexpected(answer: Option<&Answer>) -> String {
    format!("it answered something else: {}", kind(answer))
}

fn kind(answer: Option<&Answer>) -> &'static str {
    match answer {
        None => "nothing",
        Some(Answer::Machine(_)) => "its machine",
        Some(Answer::Clock { .. }) => "its time",
        Some(Answer::Ready) => "that it is ready",
        Some(Answer::Directory(_)) => "its directory",
        Some(Answer::NotAllowed) => "that it may not",
        Some(Answer::Compared { .. }) => "a comparison of files",
        Some(Answer::Told(_)) => "what it does",
        Some(Answer::Done(_)) => "its results",
        Some(Answer::Stopped) => "that it stopped",
        Some(Answer::Failed(_)) => "that it failed",
    }
}

impl Client {
    fn link(&mut self) -> Result<&mut Link, LinkError> {
        self.link.as_mut().ok_or(LinkError::Closed)
    }

    fn send(&mut self, request: &Request) -> Result<(), LinkError> {
        self.link()?.send(request)
    }

    /// The next answer.
    fn receive(&mut self, until: Instant) -> Result<Answer, LinkError> {
        loop {
            match self.link()?.receive(until)? {
                // It is on its way when a load is stopped.
                Answer::Told(_) => {}
                answer => return Ok(answer),
            }
        }
    }

    fn poll(&mut self) -> Result<Option<Answer>, LinkError> {
        self.link()?.poll(Duration::ZERO)
    }

    /// Passes on what the client did.
    fn told(&mut self, load: &ClientLoad, watch: Option<(&Watch, &str)>) {
        match (load.fault(), watch) {
            (None, Some((watch, route))) => watch.told(route, &self.spec.name, load),
            (None, None) => self.lose("it told of a load that nobody has asked for".to_owned()),
            (Some(fault), _) => self.lose(format!("it told what cannot be: {fault}")),
        }
    }

    fn lose(&mut self, reason: String) {
        if self.link.take().is_some() {
            tracing::warn!(client = self.spec.name, reason, "a client is lost");
            self.lost = reason;
        }
    }

    /// Asks for the machine that the agent runs on.
    fn describe(&mut self) -> Result<(), LinkError> {
        self.send(&Request::Describe)?;
        match self.receive(Instant::now() + ANSWER_TIMEOUT)? {
            Answer::Machine(machine) => self.machine = machine,
            other => return Err(LinkError::Malformed(kind(Some(&other)).to_owned())),
        }
        Ok(())
    }

    /// Finds out when the agent's clock was zero.
    fn compare_clocks(&mut self) -> Result<(), LinkError> {
        let mut shortest = None;
        for _ in 0..CLOCK_ROUNDS {
            let asked = Instant::now();
            self.send(&Request::Clock)?;
            let answer = self.receive(asked + ANSWER_TIMEOUT)?;
            let round = asked.elapsed();
            let Answer::Clock { now_ns, wall_us } = answer else {
                return Err(LinkError::Malformed(kind(Some(&answer)).to_owned()));
            };
            if shortest.is_some_and(|shortest| round >= shortest) {
                continue;
            }
            shortest = Some(round);
            let middle = asked + round / 2;
            self.zero = middle.checked_sub(Duration::from_nanos(now_ns)).unwrap_or(middle);
            self.clock_error = round / 2;
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.wall_ahead_us = i128::from(wall_us) - i128::try_from(wall.as_micros()).unwrap_or(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::key::Key;
    use crate::clients::link::HANDSHAKE_TIMEOUT;
    use crate::clients::sample_bounds;

    fn client(name: &str, version: &str, wall_ahead_us: i128, no_rdma: Option<&str>) -> Client {
        Client {
            spec: name.parse().unwrap(),
            version: version.into(),
            machine: Machine { boot: "b".into(), no_rdma: no_rdma.map(str::to_owned) },
            address: None,
            link: None,
            lost: "the connection ended".into(),
            zero: Instant::now(),
            clock_error: Duration::ZERO,
            wall_ahead_us,
        }
    }

    #[test]
    fn clocks_apart_and_other_versions_are_noted() {
        let here = env!("CARGO_PKG_VERSION");
        let clients = vec![
            client("a", here, 37_200_000, None),
            client("b", "9.9.9", -2_000_000, None),
            client("c", here, 900_000, None),
        ];
        let notes = Fleet { clients, here: Machine::default() }.notes();
        assert_eq!(notes["clients"], "a, b, c");
        assert_eq!(notes["clocks"], "a is 37.2 s ahead, b is 2.0 s behind");
        assert_eq!(notes["client_versions"], "b: 9.9.9");
        let alike = Fleet { clients: vec![client("c", here, 900_000, None)], here: Machine::default() };
        assert_eq!(alike.notes().len(), 1, "nothing else is worth a note");
    }

    #[test]
    fn a_client_without_rdma_and_one_that_is_lost_are_named() {
        let clients = vec![client("a", "1", 0, None), client("b", "1", 0, Some("no RDMA device"))];
        let mut fleet = Fleet { clients, here: Machine::default() };
        assert_eq!(fleet.no_rdma(&[0, 1]).as_deref(), Some("client b: no RDMA device"));
        assert_eq!(fleet.no_rdma(&[0]), None);
        assert_eq!((fleet.lost(1), fleet.lost(7)), (Some("the connection ended"), None));
        assert!(matches!(run_on(&mut fleet), Err(Failure::Lost(gone)) if gone == [0, 1]));
    }
    fn run_on(fleet: &mut Fleet) -> Result<Repeated, Failure> {
        let members: Vec<usize> = (0..fleet.clients.len()).collect();
        let route = r#"{"target": "a:/b", "options": "", "group": null, "pace_bytes_per_s": null,
            "congestion": null}"#;
        fleet.run(&Run {
            load: Load::Mount { route: &serde_json::from_str(route).unwrap(), files: &[] },
            route: "tcp",
            watch: &Watch::default(),
            members: &members,
            workload: &PlannedWorkload::empty(),
            window: Window { warm: Duration::ZERO, end: Duration::ZERO },
            server_cpu: &|| None,
            stop: &Stop::default(),
        })
    }

    /// A client whose agent answers as told, and ends the connection where it has no answer.
    fn scripted(name: &str, answer: impl Fn(&Request) -> Option<Answer> + Send + 'static) -> Client {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let there = listener.accept().unwrap().0;
        std::thread::spawn(move || {
            let mut link = Link::tcp(there).unwrap();
            link.admit(&Key::of_pipe(), || Ok(())).unwrap();
            while let Ok(request) = link.receive(Instant::now() + Duration::from_secs(60)) {
                match (&request, answer(&request)) {
                    (Request::Stop, None) => {}
                    (_, Some(answer)) => link.send(&answer).unwrap(),
                    (_, None) => return,
                }
            }
        });
        let mut link = Link::tcp(socket).unwrap();
        link.greet(&Key::of_pipe(), HANDSHAKE_TIMEOUT).unwrap();
        Client { link: Some(link), ..client(name, "1", 0, None) }
    }

    /// The answers of an agent that has measured `sample`.
    fn good(request: &Request, sample: &ClientSample) -> Option<Answer> {
        match request {
            Request::Clock => Some(Answer::Clock { now_ns: 1, wall_us: 1 }),
            Request::Prepare(_) => Some(Answer::Ready),
            Request::Start { .. } => Some(Answer::Done(Box::new(sample.clone()))),
            _ => None,
        }
    }

    /// Two clients: the first does all right, the second answers some requests in another way.
    fn pair(
        other: impl Fn(&Request) -> Option<Option<Answer>> + Send + 'static,
        sample: ClientSample,
    ) -> Fleet {
        let first = scripted("a", |request| good(request, &sample_bounds::tests::sample()));
        let second = scripted("b", move |request| other(request).unwrap_or_else(|| good(request, &sample)));
        Fleet { clients: vec![first, second], here: Machine::default() }
    }

    #[test]
    fn a_client_that_is_lost_when_all_are_ready_takes_no_other_with_it() {
        let gone = |request: &Request| matches!(request, Request::Clock).then_some(None);
        let mut fleet = pair(gone, sample_bounds::tests::sample());
        assert!(matches!(run_on(&mut fleet), Err(Failure::Lost(gone)) if gone == [1]));
        assert_eq!((fleet.lost(0), fleet.lost(1).is_some()), (None, true));
    }

    #[test]
    fn a_client_that_stopped_instead_of_getting_ready_is_lost() {
        let stops =
            |request: &Request| matches!(request, Request::Prepare(_)).then_some(Some(Answer::Stopped));
        let mut fleet = pair(stops, sample_bounds::tests::sample());
        assert!(matches!(run_on(&mut fleet), Err(Failure::Lost(gone)) if gone == [1]));
        assert!(fleet.lost(1).unwrap().contains("that it stopped"), "{:?}", fleet.lost(1));
    }

    #[test]
    fn a_client_that_failed_is_named_and_stays() {
        let fails = |request: &Request| {
            matches!(request, Request::Prepare(_)).then(|| Some(Answer::Failed("no route".into())))
        };
        let mut fleet = pair(fails, sample_bounds::tests::sample());
        let failure = run_on(&mut fleet);
        assert!(matches!(&failure, Err(Failure::Failed(1, why)) if why == "no route"), "{failure:?}");
        assert_eq!((fleet.lost(0), fleet.lost(1)), (None, None));
    }

    #[test]
    fn a_directory_that_one_client_does_not_allow_is_refused_with_the_option() {
        let inspected = || {
            let text = r#"{"free_bytes": 5, "device": 1, "source": null, "access": "O_DIRECT on xfs"}"#;
            Answer::Directory(serde_json::from_str(text).unwrap())
        };
        let answering = move |allows: bool| {
            move |request: &Request| match (request, allows) {
                (Request::Inspect { .. }, true) => Some(inspected()),
                (Request::Inspect { .. }, false) => Some(Answer::NotAllowed),
                (Request::Make(_), true) => Some(Answer::Ready),
                (Request::Make(_), false) => Some(Answer::Failed("no space".into())),
                (Request::Remove { .. }, _) => Some(Answer::Ready),
                _ => None,
            }
        };
        let fleet = |second: bool| {
            let clients = vec![scripted("a", answering(true)), scripted("b", answering(second))];
            Fleet { clients, here: Machine::default() }
        };
        let mut directory = super::super::RemoteDirectory::new("/mnt/x".into(), true);
        let stop = Stop::default();
        let error = fleet(false).inspect("r", &mut directory, &[0, 1], &stop).unwrap_err();
        let crate::Error::Refused { sentence, advice, .. } = error else { panic!("{error}") };
        assert_eq!(sentence, "r: cannot measure /mnt/x on client b");
        assert!(advice.starts_with("trunkline agent --allow-dir /mnt/x "), "{advice}");
        let mut both = fleet(true);
        both.inspect("r", &mut directory, &[0, 1], &stop).unwrap();
        let files = RemoteFiles::plan("r", 0, &[0, 1], &[], &|_| true);
        let rooms = both.rooms(&directory, &files);
        assert_eq!((rooms.len(), rooms[1].free_bytes, rooms[1].route.as_str()), (2, Some(5), "r on b"));
        both.make(&directory.path, true, &files, &stop).unwrap();
        let mut other = fleet(false);
        let error = other.make(&directory.path, true, &files, &stop).unwrap_err();
        assert!(error.to_string().contains("cannot make files in /mnt/x on client b"), "{error}");
        assert_eq!((other.lost(0), other.lost(1)), (None, None), "all are asked to remove theirs");
        stop.request();
        assert!(matches!(both.compare(&files, 0, &stop), Ok(None)), "there is nothing to compare");
    }

    #[test]
    fn a_client_whose_results_cannot_be_is_lost() {
        let mut wrong = sample_bounds::tests::sample();
        wrong.done = Some((Duration::from_secs(5), Duration::from_secs(1)));
        let mut fleet = pair(|_| None, wrong);
        assert!(matches!(run_on(&mut fleet), Err(Failure::Lost(gone)) if gone == [1]));
        assert!(fleet.lost(1).unwrap().contains("results that cannot be"), "{:?}", fleet.lost(1));
        let mut fleet = pair(|_| None, sample_bounds::tests::sample());
        assert_eq!(run_on(&mut fleet).unwrap().sample.clients.len(), 2);
    }
}
