//! An agent: makes load on a server, or in a directory that its owner allows, as a coordinator asks
//! for it.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::{FileRef, Mount};

use super::directories::{AllowedDirectories, Refusal, Sets};
use super::handshakes::Handshakes;
use super::key::Key;
use super::link::{Closer, Link, LinkError};
use super::message::{Answer, Assignment, ClientSample, Machine, Place, Request};
use super::told::{self, Teller};
use crate::directory::DirectoryRoute;
use crate::directory::files::LocalFile;
use crate::jobs::Window;
use crate::measure::{self, Sample};
use crate::stop::Stop;
use crate::watch::{RouteMount, Watch};
use crate::workload::PlannedWorkload;
use crate::{rdma, routes};

/// How often the agent looks whether the coordinator wants it to stop, or is gone.
const ATTEND_INTERVAL: Duration = Duration::from_millis(20);
/// How often the wait for connections looks for a stop.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(200);
/// The file that tells systems apart, and their starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What an agent reports while it runs.
pub type Report<'a> = &'a (dyn Fn(&str) + Sync);

/// Takes part in experiments: in all that a coordinator with the key asks for, one at a time, or
/// only in one. Returns after that one, or at a stop. `watch` learns of what is mounted and loaded.
///
/// # Errors
/// If connections cannot be accepted any more.
pub fn listen(
    listener: &TcpListener,
    key: &Key,
    allowed: &AllowedDirectories,
    once: bool,
    stop: &Stop,
    watch: &Watch,
    report: Report<'_>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    transport::descriptors::raise_limit();
    let (handshakes, taken) = (Handshakes::default(), AtomicBool::new(false));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        while !stop.is_requested() && !done.load(Ordering::SeqCst) {
            let (socket, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_for_connection(listener);
                    continue;
                }
                Err(error) if is_passing(&error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    if stop.wait_until(Instant::now() + ACCEPT_INTERVAL) {
                        break;
                    }
                    continue;
                }
                Err(error) => {
                    stop.request();
                    return Err(error);
                }
            };
            let Ok(Some(place)) = handshakes.enter(&socket, peer.ip()) else { continue };
            let (taken, done) = (&taken, &done);
            scope.spawn(move || {
                let link = socket.set_nonblocking(false).and_then(|()| Link::tcp(socket));
                let admitted = link.map_err(LinkError::from).and_then(|mut link| {
                    link.admit(key, || Session::take(taken)).map(|session| (link, session))
                });
                drop(place);
                match admitted {
                    Ok((mut link, session)) => {
                        report(&format!("an experiment of {peer} begins"));
                        let (ended, took_part) = serve(&mut link, allowed, stop, watch);
                        report(&format!("the experiment of {peer} has ended: {}", ended_how(&ended)));
                        drop(session);
                        // A coordinator that was refused by another agent leaves before it asks for
                        // anything, and comes back.
                        done.fetch_or(once && took_part, Ordering::SeqCst);
                    }
                    Err(error) => tracing::info!(%peer, %error, "not admitted"),
                }
            });
        }
        Ok(())
    })
}

/// Takes part in one experiment, whose coordinator is at the other end of standard input and
/// output: it has started this process by ssh.
///
/// # Errors
/// Why the coordinator cannot be talked to.
pub fn on_standard_streams(allowed: &AllowedDirectories, stop: &Stop, watch: &Watch) -> io::Result<()> {
    transport::descriptors::raise_limit();
    let mut link = Link::new(io::stdin(), Box::new(io::stdout()), Closer::Standard)?;
    let wrong = |error: LinkError| io::Error::other(error.to_string());
    link.admit(&Key::of_pipe(), || Ok(())).map_err(wrong)?;
    match serve(&mut link, allowed, stop, watch).0 {
        Ok(()) | Err(LinkError::Closed) => Ok(()),
        Err(error) => Err(wrong(error)),
    }
}

fn ended_how(ended: &Result<(), LinkError>) -> String {
    match ended {
        Ok(()) | Err(LinkError::Closed) => "the coordinator has closed the connection".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Whether accepting may succeed later: the connection is gone, or there were no descriptors or no
/// memory for it. Only a listener that is none never accepts again.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let never = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| !never.contains(&errno))
}

fn wait_for_connection(listener: &TcpListener) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let within = Timespec::try_from(ACCEPT_INTERVAL).ok();
    // If waiting fails, the next attempt to accept reports the error.
    let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], within.as_ref());
}

/// The one experiment in which the agent takes part.
struct Session<'a>(&'a AtomicBool);

impl<'a> Session<'a> {
    fn take(taken: &'a AtomicBool) -> Result<Self, String> {
        match taken.swap(true, Ordering::SeqCst) {
            true => Err("it takes part in another experiment now".to_owned()),
            false => Ok(Self(taken)),
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A load that is ready to start.
struct Prepared {
    place: PreparedPlace,
    workload: PlannedWorkload,
    window: Window,
}

/// Where it will be made.
enum PreparedPlace {
    /// On a mounted route.
    Mount { mount: Box<RouteMount>, files: Vec<(FileRef, u32)>, route: routes::MountPlan },
    /// In the directory of a set of files.
    Directory { set: u32, numbers: Vec<u32> },
}

/// Answers the coordinator's requests until it closes the connection, and removes what was made for
/// it. Returns how that ended, and whether the agent has taken part in the experiment: was asked to
/// get ready.
fn serve(
    link: &mut Link,
    allowed: &AllowedDirectories,
    stop: &Stop,
    watch: &Watch,
) -> (Result<(), LinkError>, bool) {
    let mut took_part = false;
    let mut sets = Sets::new(allowed, stop.remains(), watch);
    let ended = answer(link, &mut sets, stop, watch, &mut took_part);
    if let Err(error) = sets.remove_all() {
        tracing::error!(%error, "files of the experiment remain");
    }
    (ended, took_part)
}

fn answer(
    link: &mut Link,
    sets: &mut Sets<'_>,
    stop: &Stop,
    watch: &Watch,
    took_part: &mut bool,
) -> Result<(), LinkError> {
    let (clock, mut prepared) = (Instant::now(), None);
    loop {
        if stop.is_requested() {
            return Ok(());
        }
        let Some(request) = link.poll(ACCEPT_INTERVAL)? else { continue };
        let answer = match request {
            Request::Describe => Answer::Machine(machine()),
            Request::Clock => time(clock),
            Request::Prepare(assignment) => {
                *took_part = true;
                // The route that was mounted before must have no connections left.
                prepared = None;
                let work = |_: &Stop| prepare(&assignment, sets, watch).map(Some);
                match attended(link, stop, clock, None, work)? {
                    Outcome::Done(ready) => {
                        prepared = Some(ready);
                        tracing::info!("ready for a load");
                        Answer::Ready
                    }
                    Outcome::Answer(answer) => answer,
                }
            }
            Request::Start { at_ns } => match prepared.take() {
                None => Answer::Failed("nothing is prepared".to_owned()),
                Some(ready) => {
                    let at = clock + Duration::from_nanos(at_ns);
                    let work = |stop: &Stop| run(&ready, sets, at, clock, stop);
                    match attended(link, stop, clock, teller(&ready, sets), work)? {
                        Outcome::Done(sample) => Answer::Done(Box::new(sample)),
                        Outcome::Answer(answer) => answer,
                    }
                }
            },
            // What was to be stopped has just ended by itself.
            Request::Stop => continue,
            about_files => {
                *took_part |= matches!(about_files, Request::Make(_));
                match attended(link, stop, clock, None, |own: &Stop| with_files(sets, about_files, own))? {
                    Outcome::Done(answer) | Outcome::Answer(answer) => answer,
                }
            }
        };
        link.send(&answer)?;
    }
}

/// Does what a request asks for in a directory; `None` after a stop.
fn with_files(sets: &mut Sets<'_>, request: Request, stop: &Stop) -> Result<Option<Answer>, String> {
    let ready = |()| Answer::Ready;
    let done = match request {
        Request::Inspect { directory, direct } => sets.inspect(&directory, direct).map(Answer::Directory),
        Request::Make(files) => sets.make(&files, stop).map(ready),
        Request::Compare { set, files } => {
            sets.compare(set, &files, stop).map(|(bytes, wrong)| Answer::Compared { bytes, wrong })
        }
        Request::Remove { set } => sets.remove(set).map(ready),
        Request::Describe | Request::Clock | Request::Prepare(_) | Request::Start { .. } | Request::Stop => {
            Err(Refusal::Failed("it is about no files".to_owned()))
        }
    };
    match done {
        Ok(answer) => Ok(Some(answer)),
        Err(Refusal::NotAllowed) => Ok(Some(Answer::NotAllowed)),
        Err(Refusal::Failed(reason)) => Err(reason),
        Err(Refusal::Stopped) => Ok(None),
    }
}

enum Outcome<T> {
    Done(T),
    Answer(Answer),
}

/// What tells the coordinator of a load while it runs.
fn teller<'a>(ready: &'a Prepared, sets: &'a Sets<'_>) -> Option<Teller<'a>> {
    let place = match &ready.place {
        PreparedPlace::Mount { mount, .. } => told::Place::Mount(mount),
        PreparedPlace::Directory { set, .. } => told::Place::Directory(sets.files(*set, &[]).ok()?.0),
    };
    Some(Teller::new(place))
}

/// Does work, and attends to the coordinator meanwhile: answers it, and tells it of the load. The
/// work returns `None` after a stop.
fn attended<T: Send>(
    link: &mut Link,
    stop: &Stop,
    clock: Instant,
    mut teller: Option<Teller<'_>>,
    work: impl FnOnce(&Stop) -> Result<Option<T>, String> + Send,
) -> Result<Outcome<T>, LinkError> {
    let own = Stop::default();
    std::thread::scope(|scope| {
        let working = scope.spawn(|| work(&own));
        let mut gone = None;
        while !working.is_finished() {
            match link.poll(ATTEND_INTERVAL) {
                Ok(None) => {}
                Ok(Some(Request::Clock)) => {
                    gone = link.send(&time(clock)).err();
                }
                Ok(Some(Request::Stop)) => own.request(),
                Ok(Some(_)) => {
                    gone = Some(LinkError::Malformed("a request before the last was answered".to_owned()));
                }
                Err(error) => gone = Some(error),
            }
            if let Some(teller) = teller.as_mut().filter(|teller| gone.is_none() && teller.is_due()) {
                gone = link.send(&Answer::Told(Box::new(teller.tell()))).err();
            }
            if gone.is_some() || stop.is_requested() {
                own.request();
                break;
            }
        }
        let outcome = working.join().unwrap_or_else(|_| Err("the agent's thread has panicked".to_owned()));
        if let (None, Some(teller)) = (&gone, &mut teller) {
            gone = link.send(&Answer::Told(Box::new(teller.tell()))).err();
        }
        match gone {
            Some(error) => Err(error),
            None => Ok(match outcome {
                Ok(Some(done)) => Outcome::Done(done),
                Ok(None) => Outcome::Answer(Answer::Stopped),
                Err(reason) => Outcome::Answer(Answer::Failed(reason)),
            }),
        }
    })
}

fn time(clock: Instant) -> Answer {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Answer::Clock {
        now_ns: u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX),
        wall_us: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX),
    }
}

pub(super) fn machine() -> Machine {
    let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
    let no_rdma = match verbs::devices() {
        Ok(devices) if !devices.is_empty() => None,
        _ => Some("no RDMA device".to_owned()),
    };
    Machine { boot, no_rdma }
}

fn prepare(assignment: &Assignment, sets: &Sets<'_>, watch: &Watch) -> Result<Prepared, String> {
    if let Some(fault) = assignment.fault() {
        return Err(fault);
    }
    let chain = |error: client::Error| {
        let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    };
    let place = match &assignment.place {
        Place::Mount { route, files } => {
            let mount = Mount::with_settings(route.settings().map_err(chain)?).map_err(chain)?;
            let mount = RouteMount::new(mount, route.location(), watch);
            let files: Option<Vec<_>> = files.iter().map(|file| file.prepared()).collect();
            let files = measure::place(&mount, &files.ok_or("a file handle that is none")?);
            PreparedPlace::Mount { mount: Box::new(mount), files, route: route.clone() }
        }
        Place::Directory { set, files } => {
            sets.files(*set, files)?;
            PreparedPlace::Directory { set: *set, numbers: files.clone() }
        }
    };
    let workload = PlannedWorkload { jobs: assignment.jobs.clone(), ..PlannedWorkload::empty() };
    Ok(Prepared { place, workload, window: assignment.window() })
}

/// Runs the load from a point in time on.
fn run(
    ready: &Prepared,
    sets: &Sets<'_>,
    at: Instant,
    clock: Instant,
    stop: &Stop,
) -> Result<Option<ClientSample>, String> {
    if at > Instant::now() + FAR {
        return Ok(None);
    }
    let Prepared { place, workload, window, .. } = ready;
    match place {
        PreparedPlace::Mount { mount, files, route } => {
            if stop.wait_until(at) {
                return Ok(None);
            }
            tracing::info!("load starts");
            let sample = measure::run_until_stop(mount, &|| None, workload, files, *window, stop)?;
            Ok(sample.map(|sample| on_mount(mount, route, sample, clock)))
        }
        PreparedPlace::Directory { set, numbers } => {
            let (directory, files) = sets.files(*set, numbers)?;
            in_directory(directory, &files, workload, *window, at, clock, stop)
        }
    }
}

/// Runs the load in a directory, whose files are opened before.
fn in_directory(
    directory: &DirectoryRoute,
    files: &[LocalFile],
    workload: &PlannedWorkload,
    window: Window,
    at: Instant,
    clock: Instant,
    stop: &Stop,
) -> Result<Option<ClientSample>, String> {
    let wait = || {
        let stopped = stop.wait_until(at);
        if !stopped {
            tracing::info!("load starts");
        }
        !stopped
    };
    let sample = directory.run_when(&wait, workload, files, window, stop)?;
    Ok(sample.map(|sample| client_sample(sample, clock)))
}

/// What a client measured on a mount, with what the mount counted.
fn on_mount(mount: &Mount, route: &routes::MountPlan, sample: Sample, clock: Instant) -> ClientSample {
    let mut measured = client_sample(sample, clock);
    routes::add_counters(&mut measured.paths, mount, route.group.as_ref());
    if mount.statistics().rdma.work() > 0 {
        let none = transport::rdma::Counters::default();
        rdma::add_work(&mut measured.counters, &none, &mount.statistics().rdma);
    }
    measured
}

fn client_sample(sample: Sample, clock: Instant) -> ClientSample {
    let began = sample.began.saturating_duration_since(clock).as_nanos();
    let Sample { read, write, bytes_by_path, loops, longest_gap, stamps, client_cpu, window, busy, .. } =
        sample;
    ClientSample {
        began_ns: u64::try_from(began).unwrap_or(u64::MAX),
        read,
        write,
        bytes_by_path,
        loops,
        longest_gap: longest_gap.unwrap_or_default(),
        stamps,
        client_cpu,
        window,
        busy: busy.busy,
        stolen: busy.stolen,
        ports: sample.ports,
        paths: Vec::new(),
        counters: BTreeMap::new(),
        done: sample.done,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn an_agent_without_descriptors_waits_for_some() {
        for errno in
            [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::PERM, Errno::CONNABORTED]
        {
            assert!(is_passing(&errno.into()), "{errno}");
        }
        for errno in [Errno::BADF, Errno::NOTSOCK, Errno::INVAL] {
            assert!(!is_passing(&errno.into()), "{errno}");
        }
    }
}
