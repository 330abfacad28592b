//! What hosts are told: that a request which waited has its lock (GRANTED), what became of a
//! message (`_RES`), and that this server has restarted (SM_NOTIFY).
//!
//! Hosts may be down, and each call takes seconds then. So a few threads make the calls, one at a
//! time for each host, and what waits for them is bounded. They are started with the first call.
//!
//! A lock is locked for its host before the host is told, so nobody else gets it meanwhile. If the
//! host does not want it, or cannot be reached, the lock is freed. A host that was told, and whose
//! answer was lost each time, believes then that it has the lock: nothing else is possible without
//! waiting for it for ever.

use super::remote::{DATAGRAM_FIRST, Program, Remote, STREAM_FIRST};
use super::{NlmHost, decode_owner};
use crate::clock;
use crate::nfs4_state::{StateHost, StateWords};
use nlm::{Lock, NetObj, Procedure, Status, Text, Wire, nsm};
use rpc::portmap::Protocol;
use state::{NlmLock, State};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use xdr::{Reader, Writer};

/// Calls that wait. A grant that does not fit is left to the client, which asks again.
const WAITING_MAX: usize = 4096;
/// Threads: as many hosts that are down may be called before others wait for them.
const THREADS_MAX: usize = 8;
/// The pauses after attempts of GRANTED that had no answer.
const GRANTED_PAUSES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(4)];
/// The pause after a first SM_NOTIFY without an answer: a host that starts at the same time needs a
/// moment. There is no third attempt: who is down now sends its own notice when it is up.
const NOTIFY_PAUSES: [Duration; 1] = [Duration::from_secs(15)];
/// How often the end looks whether the threads have ended.
const JOIN_POLL: Duration = Duration::from_millis(5);

/// A lock that a host has been waiting for, and has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub host: NlmHost,
    /// The handle by which the host knows the file.
    pub handle: Vec<u8>,
    /// The file, as the state knows it.
    pub file: Vec<u8>,
    /// `svid` and `oh`
    pub owner: Vec<u8>,
    pub offset: u64,
    /// `u64::MAX` to the end of the file.
    pub length: u64,
    pub exclusive: bool,
}

#[derive(Debug)]
enum Work {
    Granted(Box<Grant>),
    /// The results of a message, encoded.
    Outcome(Procedure, Vec<u8>),
    /// The arguments of SM_NOTIFY, encoded.
    Notify(Vec<u8>),
}

#[derive(Debug)]
struct Job {
    host: NlmHost,
    work: Work,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// The hosts that are being called.
    called: Vec<IpAddr>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    is_over: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    state: Arc<State<StateWords>>,
    host: Arc<StateHost>,
    /// The port of the hosts' rpcbind.
    rpcbind: u16,
}

/// See the module's documentation.
pub(crate) struct CallBacks(Arc<Shared>);

impl CallBacks {
    pub fn new(state: Arc<State<StateWords>>, host: Arc<StateHost>, rpcbind: u16) -> Self {
        Self(Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), state, host, rpcbind }))
    }

    /// Tells a host that it has a lock, which is locked for it already. If there is no room for
    /// that, the lock is freed.
    pub fn granted(&self, grant: Grant) {
        let grant = Box::new(grant);
        if let Err(Work::Granted(grant)) = self.push(grant.host.clone(), Work::Granted(grant)) {
            tracing::debug!(host = %grant.host, "a lock is left to be asked for again");
            self.0.free(&grant);
        }
    }

    /// Answers a message. One that does not fit is lost, as a datagram may be.
    pub fn outcome(&self, host: NlmHost, procedure: Procedure, results: Vec<u8>) {
        if self.push(host, Work::Outcome(procedure, results)).is_err() {
            tracing::debug!("the answer to a message of NLM is lost");
        }
    }

    /// Tells hosts that this server, which calls itself `name`, has restarted.
    pub fn notify(&self, hosts: Vec<NlmHost>, name: &[u8], state: i32) {
        let mut args = Vec::new();
        let name = Text(name.get(..nlm::NAME_BYTES_MAX as usize).unwrap_or(name));
        nsm::notify::Args { name, state }.encode(&mut Writer::new(&mut args));
        for host in hosts.into_iter().filter(|host| !host.is_ours()) {
            if self.push(host, Work::Notify(args.clone())).is_err() {
                tracing::warn!(
                    "not all hosts that had locks by NLM are told of the restart: there are too many"
                );
                return;
            }
        }
    }

    fn push(&self, host: NlmHost, work: Work) -> Result<(), Work> {
        let mut queue = self.0.queue();
        if host.is_ours() || queue.is_over || queue.waiting.len() >= WAITING_MAX {
            return Err(work);
        }
        if queue.idle == 0 && queue.threads.len() < THREADS_MAX {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("tl-nlm-call".to_owned());
            match thread.spawn(move || shared.run()) {
                Ok(thread) => queue.threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, "hosts that lock by NLM are called by fewer threads");
                    if queue.threads.is_empty() {
                        return Err(work);
                    }
                }
            }
        }
        queue.waiting.push_back(Job { host, work });
        drop(queue);
        self.0.changed.notify_one();
        Ok(())
    }

    /// Ends the threads. One that waits for a host beyond `deadline` is left behind.
    pub fn end(&self, deadline: Duration) {
        let threads = {
            let mut queue = self.0.queue();
            queue.is_over = true;
            queue.waiting.clear();
            std::mem::take(&mut queue.threads)
        };
        self.0.changed.notify_all();
        for thread in threads {
            while !thread.is_finished() && clock::now() < deadline {
                std::thread::sleep(JOIN_POLL);
            }
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("a thread that calls hosts of NLM ended by a panic");
            }
        }
    }
}

impl Drop for CallBacks {
    fn drop(&mut self) {
        self.end(clock::now());
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // What is in the queue is complete.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            let client = job.host.client;
            self.carry_out(job);
            let mut queue = self.queue();
            queue.called.retain(|called| *called != client);
            drop(queue);
            // Another thread may have passed over a job for this host.
            self.changed.notify_one();
        }
    }

    /// Waits for a job for a host that is not being called; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if queue.is_over {
                return None;
            }
            let at = queue.waiting.iter().position(|job| !queue.called.contains(&job.host.client));
            if let Some(job) = at.and_then(|at| queue.waiting.remove(at)) {
                queue.called.push(job.host.client);
                return Some(job);
            }
            queue.idle += 1;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle = queue.idle.saturating_sub(1);
        }
    }

    /// Waits between two attempts. Returns whether the server goes on.
    fn pause(&self, pause: Duration) -> bool {
        let queue = self.queue();
        let wait = self.changed.wait_timeout_while(queue, pause, |queue| !queue.is_over);
        !wait.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Calls until there is an answer, a number of times.
    fn call<T>(&self, pauses: &[Duration], mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut result = attempt();
        for pause in pauses {
            if result.is_ok() || !self.pause(*pause) {
                break;
            }
            result = attempt();
        }
        result
    }

    fn carry_out(&self, Job { host, work }: Job) {
        let remote = Remote { host: host.client, from: host.server, rpcbind: self.rpcbind };
        let by_nlm = |procedure: Procedure, args: &[u8]| {
            let program = Program { number: nlm::PROGRAM, version: nlm::VERSION };
            remote.call(program, procedure.number(), args, STREAM_FIRST)
        };
        match work {
            Work::Granted(grant) => {
                let args = encode_grant(&grant);
                let answer = self.call(&GRANTED_PAUSES, || {
                    by_nlm(Procedure::Granted, &args).and_then(|results| status_of(&results))
                });
                self.told(&grant, answer);
            }
            Work::Outcome(procedure, results) => {
                if let Err(error) = by_nlm(procedure, &results) {
                    tracing::debug!(%host, %error, "the answer to a message of NLM is lost");
                }
            }
            Work::Notify(args) => {
                let program = Program { number: nsm::PROGRAM, version: nsm::VERSION };
                let notify = nsm::Procedure::Notify.number();
                let call = |protocols: [Protocol; 2]| remote.call(program, notify, &args, protocols);
                match self.call(&NOTIFY_PAUSES, || call(DATAGRAM_FIRST)) {
                    Ok(_) => {
                        tracing::info!(%host, "told that this server has restarted: it may reclaim its locks")
                    }
                    Err(error) => tracing::warn!(
                        %host,
                        "cannot tell a host that this server has restarted; its locks are lost: {error}"
                    ),
                }
            }
        }
    }

    /// What becomes of a lock after the host was told of it.
    fn told(&self, grant: &Grant, answer: io::Result<Status>) {
        let host = &grant.host;
        match answer {
            Ok(Status::GRANTED) => return,
            Ok(status) => tracing::debug!(%host, %status, "a lock is not wanted any more"),
            Err(error) => {
                tracing::warn!(%host, "a lock is freed again, because its host cannot be told of it: {error}");
            }
        }
        self.free(grant);
    }

    fn free(&self, grant: &Grant) {
        let name = grant.host.encode();
        let lock = NlmLock {
            host: &name,
            owner: &grant.owner,
            file: &grant.file,
            offset: grant.offset,
            length: grant.length,
            exclusive: grant.exclusive,
        };
        if let Err(error) = self.state.nlm_unlock(&*self.host, clock::now(), &lock) {
            tracing::warn!(host = %grant.host, %error, "a lock that nobody wants stays");
        }
    }
}

fn encode_grant(grant: &Grant) -> Vec<u8> {
    let (svid, owner) = decode_owner(&grant.owner);
    let lock = Lock {
        caller: Text(&grant.host.name),
        file: NetObj(&grant.handle),
        owner: NetObj(owner),
        svid,
        offset: grant.offset,
        length: if grant.length == u64::MAX { 0 } else { grant.length },
    };
    let mut args = Vec::new();
    // The reply is that of the same call, so nothing is told apart by the cookie.
    let args_of = nlm::proc::granted::Args { cookie: NetObj(b"lock"), exclusive: grant.exclusive, lock };
    args_of.encode(&mut Writer::new(&mut args));
    args
}

fn status_of(results: &[u8]) -> io::Result<Status> {
    let reply = nlm::proc::Reply::decode(&mut Reader::new(results));
    reply
        .map(|reply| reply.status)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
