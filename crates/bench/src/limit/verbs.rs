//! The limit of RDMA: how much the device itself carries in the shape of NFS traffic, driven by a
//! small loop over the verbs.
//!
//! Blocks are moved as a server moves them: a READ is an RDMA WRITE into the client's memory, a
//! WRITE an RDMA READ from it. No messages are sent. Both ends of all connections are on this
//! machine, as in the embedded group.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use verbs::{
    Access, Capacity, Completion, Domain, Event, EventChannel, EventKind, Identifier, Queue, Region, Terms,
    Work,
};

use super::Shape;
use crate::machine;

/// The longest time for connecting, and for a block, on an emulated processor.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The memory of one end of a connection. A larger window is reduced to fewer blocks in flight.
const WINDOW_BYTES_MAX: usize = 64 << 20;
/// The measured time contains at least this many times the blocks in flight. Blocks in flight share
/// the device and finish at nearly the same time, so a shorter measurement would depend on whether
/// it includes one such moment more or less.
const ROUNDS: u64 = 4;
/// The measurement may end with fewer blocks after this long, if any moved.
const EXTENSION: Duration = Duration::from_secs(10);
/// How long a wait lasts before the time is checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How completions are awaited, and by how many threads. A software device does its work in the
/// thread that asks for it, so one thread gets one processor's worth of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By polling, which uses a whole processor.
    Polling,
    /// By notifications of the device, as the server's loops do.
    Notifications,
    /// By polling, with a thread for each processor.
    PollingPerCpu,
    /// By notifications, with a thread for each processor.
    NotificationsPerCpu,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] =
        [Self::Polling, Self::Notifications, Self::PollingPerCpu, Self::NotificationsPerCpu];

    /// The name in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Polling => "raw verbs, one thread that asks for completions",
            Self::Notifications => "raw verbs, one thread that waits for notices",
            Self::PollingPerCpu => "raw verbs, a thread per CPU that asks for completions",
            Self::NotificationsPerCpu => "raw verbs, a thread per CPU that waits for notices",
        }
    }

    /// Whether the mode differs from the others for this many connections: a thread for each
    /// processor may be a single thread.
    #[must_use]
    pub fn is_distinct(self, connections: usize) -> bool {
        matches!(self, Self::Polling | Self::Notifications) || self.threads(connections) > 1
    }

    const fn waits_for_notifications(self) -> bool {
        matches!(self, Self::Notifications | Self::NotificationsPerCpu)
    }

    /// The number of threads for this many connections.
    fn threads(self, connections: usize) -> usize {
        match self {
            Self::Polling | Self::Notifications => 1,
            Self::PollingPerCpu | Self::NotificationsPerCpu => machine::cpus().min(connections).max(1),
        }
    }
}

/// The result of one try.
#[derive(Debug, Clone)]
pub struct Try {
    /// How completions were awaited.
    pub mode: Mode,
    /// Blocks per second.
    pub iops: f64,
    /// Bytes of blocks per second, in 1e9.
    pub gbytes_per_s: f64,
    /// Whether the hypervisor took away more than a tenth of the processors' time meanwhile.
    pub starved: bool,
}

/// Why the limit of RDMA cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call to the libraries failed.
    #[error(transparent)]
    Verbs(#[from] verbs::Error),
    /// The ends could not be connected.
    #[error("cannot connect {address} to itself over RDMA: {what}")]
    Connect {
        /// The address.
        address: IpAddr,
        /// What happened instead.
        what: String,
    },
    /// A work request failed.
    #[error("a block did not move over RDMA: {0}")]
    Work(String),
    /// No block moved in time.
    #[error("no block moved over RDMA in {} s", TIMEOUT.as_secs())]
    Stalled,
    /// The wait for completions failed.
    #[error("cannot wait for completions")]
    Wait(#[from] rustix::io::Errno),
}

/// Moves blocks for this time, and for longer if only few were completed.
///
/// # Errors
/// [`Error`].
pub fn measure_once(shape: &Shape, mode: Mode, time: Duration) -> Result<Try, Error> {
    let addresses = shape.remotes.iter().cycle().take(shape.connections);
    let mut pairs = addresses.map(|address| Pair::connect(*address, shape)).collect::<Result<Vec<_>, _>>()?;
    for pair in &mut pairs {
        pair.fill_window()?;
    }
    let share = pairs.len().div_ceil(mode.threads(pairs.len())).max(1);
    let sync = ThreadSync { threads: pairs.len().div_ceil(share), ..ThreadSync::default() };
    let busy = machine::CpuMeter::start();
    let iops = std::thread::scope(|scope| {
        let sync = &sync;
        let work = |pairs| scope.spawn(|| drive(pairs, mode, time, sync));
        let workers: Vec<_> = pairs.chunks_mut(share).map(work).collect();
        let rates = workers.into_iter().map(|worker| worker.join().unwrap_or(Err(Error::Stalled)));
        rates.sum::<Result<f64, _>>()
    })?;
    Ok(Try {
        mode,
        iops,
        gbytes_per_s: iops * shape.block_bytes as f64 / 1e9,
        // The work of a software device counts as the system's, so it cannot be told from that of
        // other programs.
        starved: busy.share().stolen > machine::OTHERS_MAX,
    })
}

/// Synchronizes the threads of a try: all must be warm before any measures, and all must have moved
/// enough before any ends. Until then each thread continues, so that none has the device to itself
/// during another's measured time.
#[derive(Debug, Default)]
struct ThreadSync {
    threads: usize,
    warm: AtomicUsize,
    satisfied: AtomicUsize,
}

impl ThreadSync {
    /// Whether all threads have reached this point; `counted` is whether this thread was counted.
    fn all(&self, so_far: &AtomicUsize, counted: &mut bool) -> bool {
        if !std::mem::replace(counted, true) {
            so_far.fetch_add(1, Ordering::Relaxed);
        }
        so_far.load(Ordering::Relaxed) >= self.threads
    }
}

/// A thread's part in a try. When it is dropped, also after a failure, the other threads no longer
/// wait for this one.
struct Participant<'a>(&'a ThreadSync);

impl Drop for Participant<'_> {
    fn drop(&mut self) {
        self.0.warm.fetch_add(self.0.threads, Ordering::Relaxed);
        self.0.satisfied.fetch_add(self.0.threads, Ordering::Relaxed);
    }
}

/// The work of one thread; returns its blocks per second.
fn drive(pairs: &mut [Pair], mode: Mode, time: Duration, sync: &ThreadSync) -> Result<f64, Error> {
    let _participant = Participant(sync);
    let in_flight = pairs.iter().map(|pair| pair.depth as u64).sum();
    let (mut warm, mut satisfied) = (false, false);
    run(pairs, mode, time / 4, in_flight, || sync.all(&sync.warm, &mut warm))?;
    let enough = ROUNDS * in_flight;
    let (moved, took) = run(pairs, mode, time, enough, || sync.all(&sync.satisfied, &mut satisfied))?;
    Ok(moved as f64 / took)
}

/// Keeps all windows full for this time, until `enough` blocks were moved, and then until
/// `may_end`. Returns the number of blocks and the seconds taken.
fn run(
    pairs: &mut [Pair],
    mode: Mode,
    time: Duration,
    enough: u64,
    mut may_end: impl FnMut() -> bool,
) -> Result<(u64, f64), Error> {
    let (began, mut moved) = (Instant::now(), 0);
    loop {
        let mut progress = 0;
        for pair in &mut *pairs {
            progress += pair.handle_completions()?;
        }
        moved += progress;
        let elapsed = began.elapsed();
        let satisfied = elapsed >= time && (moved >= enough || moved > 0 && elapsed >= time + EXTENSION);
        if satisfied && may_end() {
            return Ok((moved, elapsed.as_secs_f64()));
        }
        if elapsed > time + TIMEOUT {
            return Err(Error::Stalled);
        }
        if progress == 0 && mode.waits_for_notifications() {
            for pair in &mut *pairs {
                pair.queue.arm()?;
                progress += pair.handle_completions()?;
            }
            moved += progress;
            if progress == 0 {
                wait(pairs)?;
            }
        }
    }
}

/// Waits for a notification of any queue.
fn wait(pairs: &[Pair]) -> Result<(), Error> {
    let mut queues: Vec<PollFd<'_>> =
        pairs.iter().map(|pair| PollFd::new(&*pair.queue, PollFlags::IN)).collect();
    let interval = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
    match poll(&mut queues, Some(&interval)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    for pair in pairs {
        pair.queue.take_notices()?;
    }
    Ok(())
}

/// Both ends of a connection; the server's end does all the work. Fields are dropped in this order:
/// the ends, which own the queue pairs, before the memory that a queue pair may still write to.
#[derive(Debug)]
struct Pair {
    server: Identifier,
    _client: Identifier,
    queue: Arc<Queue>,
    /// The memory of the server's end.
    memory: Region,
    /// The memory of the client's end: for READs to write into, and for WRITEs to read from.
    receive_buffer: Region,
    source: Region,
    block_bytes: usize,
    depth: usize,
    /// The number of blocks begun, which gives the position of the next one in the windows.
    begun: u64,
    direction: super::Direction,
    done: Vec<Completion>,
}

impl Pair {
    fn connect(address: IpAddr, shape: &Shape) -> Result<Self, Error> {
        let block_bytes = shape.block_bytes;
        let depth = shape.depth.min(WINDOW_BYTES_MAX / block_bytes.max(1)).max(1);
        let capacity = Capacity { work: u32::try_from(depth).unwrap_or(u32::MAX), receives: 1, slices: 1 };
        let channel = EventChannel::new()?;
        let listener = Identifier::new(&channel)?;
        listener.listen(SocketAddr::new(address, 0), 1)?;
        let to = listener.local_address().unwrap_or(SocketAddr::new(address, 0));
        let mut client = Identifier::new(&channel)?;
        client.resolve(None, to, TIMEOUT)?;
        expect(&channel, address, EventKind::AddressResolved)?;
        client.resolve_route(TIMEOUT)?;
        expect(&channel, address, EventKind::RouteResolved)?;
        let client_domain = Domain::on(&client)?;
        let idle = Queue::on(&client, 1)?;
        client.create_queue_pair(
            &client_domain,
            &idle,
            &idle,
            Capacity { work: 1, receives: 1, slices: 1 },
        )?;
        client.connect(&Terms { private_data: &[], reads_served: u8::MAX, reads_made: 0 })?;
        let request = expect(&channel, address, EventKind::ConnectRequest)?;
        let allowed = request.reads_allowed;
        let no_end = || Error::Connect { address, what: "a request without an end".into() };
        let mut server = request.incoming.ok_or_else(no_end)?;
        let domain = Domain::on(&server)?;
        let queue = Queue::on(&server, capacity.work + 1)?;
        server.create_queue_pair(&domain, &queue, &queue, capacity)?;
        server.accept(&Terms { private_data: &[], reads_served: 0, reads_made: allowed })?;
        // Each end gets its event.
        expect(&channel, address, EventKind::Established)?;
        expect(&channel, address, EventKind::Established)?;
        let bytes = block_bytes * depth;
        let pair = Self {
            server,
            _client: client,
            queue,
            memory: Region::new(&domain, bytes, Access::Local)?,
            receive_buffer: Region::new(&client_domain, bytes, Access::RemoteWrite)?,
            source: Region::new(&client_domain, bytes, Access::RemoteRead)?,
            block_bytes,
            depth,
            begun: 0,
            direction: shape.direction,
            done: Vec::new(),
        };
        Ok(pair)
    }

    /// Fills the window with blocks in flight.
    fn fill_window(&mut self) -> Result<(), Error> {
        (0..self.depth).try_for_each(|_| self.begin_block())
    }

    fn begin_block(&mut self) -> Result<(), Error> {
        let offset = usize::try_from(self.begun % self.depth as u64).unwrap_or(0) * self.block_bytes;
        let slice = self.memory.slice(offset, u32::try_from(self.block_bytes).unwrap_or(u32::MAX))?;
        let at = |region: &Region| (region.address() + offset as u64, region.remote_key());
        let work = if self.direction.writes(self.begun) {
            let (address, key) = at(&self.source);
            Work::Read { address, key }
        } else {
            let (address, key) = at(&self.receive_buffer);
            Work::Write { address, key }
        };
        self.server.post(self.begun, work, &[slice], true, false)?;
        self.begun += 1;
        Ok(())
    }

    /// Takes completions, and begins as many blocks again. It polls only once: a device that
    /// completes work as fast as it is polled must not starve the other connections.
    fn handle_completions(&mut self) -> Result<u64, Error> {
        self.done.clear();
        let count = self.queue.poll(&mut self.done)?;
        if let Some(failure) = self.done.iter_mut().find_map(|done| done.failure.take()) {
            return Err(Error::Work(failure));
        }
        for _ in 0..count {
            self.begin_block()?;
        }
        Ok(count as u64)
    }
}

/// Waits for an event, which must be of this kind.
fn expect(channel: &Arc<EventChannel>, address: IpAddr, kind: EventKind) -> Result<Event, Error> {
    let began = Instant::now();
    let interval = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
    loop {
        match channel.poll()? {
            Some(event) if event.kind == kind => return Ok(event),
            Some(event) => {
                let what = format!("{:?} instead of {kind:?} (status {})", event.kind, event.status);
                return Err(Error::Connect { address, what });
            }
            None if began.elapsed() > TIMEOUT => {
                return Err(Error::Connect { address, what: format!("no {kind:?} came") });
            }
            None => match poll(&mut [PollFd::new(&**channel, PollFlags::IN)], Some(&interval)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            },
        }
    }
}
