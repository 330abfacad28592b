//! The route of a mount: all its paths, and the state that its loops share.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memory::Buffers;
use paths::{NodeId, PathId};
use transport::{Address, socket};

use crate::buffer::Buffer;
use crate::connector::Connector;
use crate::node_health::NodeHealth;
use crate::options::Proto;
use crate::path_failures::PathFailures;
use crate::path_losses::PathLosses;

/// The reserved ports used for `resvport`; the range that Linux uses by default.
const RESERVED_PORTS: std::ops::RangeInclusive<u16> = 665..=1023;

/// The two ends of a path.
#[derive(Debug, Clone)]
pub(crate) struct PathEnd {
    pub node: NodeId,
    pub local: Option<Address>,
    pub proto: Proto,
    pub remote: SocketAddr,
    /// Limit of the send rate of one connection, in bytes per second.
    pub pace: Option<u64>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Route {
    pub server: String,
    /// The route has paths of both transports, so names of paths include the transport.
    pub mixed: bool,
    pub paths: Vec<PathEnd>,
    pub congestion: Option<String>,
    pub reserved_port: Option<bool>,
    /// How long a soft mount tries a call; a hard mount tries for ever.
    pub soft_timeout: Option<Duration>,
    pub validations: PathValidations,
    pub path_failures: PathFailures,
    pub path_losses: PathLosses,
    pub node_health: NodeHealth,
    pub loops_without_path: LoopsWithoutPath,
    /// Memory for payload that devices can be given.
    pub registrable: Arc<Buffers>,
    /// Makes the connections over RDMA.
    pub connector: Box<dyn Connector>,
}

/// Counts the loops of the mount that have had no path for their calls for long enough to log a
/// warning.
#[derive(Debug, Default)]
pub(crate) struct LoopsWithoutPath(AtomicUsize);

impl LoopsWithoutPath {
    /// Adds a loop. Returns whether it is the first.
    pub(crate) fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// Removes a loop. Returns whether it was the last.
    pub(crate) fn remove(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// The validation state of each path since the mount began.
#[derive(Debug, Default)]
pub(crate) struct PathValidations {
    state: Mutex<Vec<PathValidation>>,
    changed: Condvar,
}

/// Whether a path leads to the right file system.
#[derive(Debug, Clone, Default)]
pub(crate) enum PathValidation {
    #[default]
    Unknown,
    Good,
    Refused(String),
}

impl PathValidations {
    pub(crate) fn new(paths: usize) -> Self {
        Self { state: Mutex::new(vec![PathValidation::Unknown; paths]), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PathValidation>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, path: Option<PathId>, validation: PathValidation) {
        if let Some(path) = path
            && let Some(slot) = self.lock().get_mut(usize::from(path.0))
        {
            *slot = validation;
        }
        self.changed.notify_all();
    }

    /// Waits until each of these paths is validated or refused, or `timeout` has passed; while
    /// none is, waits up to `for_the_first`.
    pub(crate) fn wait(
        &self,
        used: &[PathId],
        timeout: Duration,
        for_the_first: Duration,
    ) -> Vec<PathValidation> {
        let begun = Instant::now();
        let mut state = self.lock();
        loop {
            let unknown =
                |path: &&PathId| matches!(state.get(usize::from(path.0)), Some(PathValidation::Unknown));
            let late = used.iter().filter(unknown).count();
            let timeout = if late == used.len() { for_the_first.max(timeout) } else { timeout };
            let left = timeout.saturating_sub(begun.elapsed());
            if late == 0 || left.is_zero() {
                return state.clone();
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Route {
    /// Whether a path is over RDMA.
    pub(crate) fn uses_rdma(&self) -> bool {
        self.paths.iter().any(|path| path.proto == Proto::Rdma)
    }

    /// Memory for a READ or a WRITE, of unspecified content, that a server can be given if a path
    /// is over RDMA.
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        self.registrable_buffer(len).unwrap_or_else(|| vec![0; len].into())
    }

    /// Such memory, if a path is over RDMA and the length is worth it.
    pub(crate) fn registrable_buffer(&self, len: usize) -> Option<Buffer> {
        self.uses_rdma().then(|| Buffer::registrable(&self.registrable, len))?
    }

    /// The name of a path for display: local to remote address.
    pub(crate) fn path_name(&self, path: PathId) -> String {
        let Some(end) = self.paths.get(usize::from(path.0)) else { return String::new() };
        let over = if self.mixed && end.proto == Proto::Rdma { "rdma:" } else { "" };
        match end.local {
            Some(local) => format!("{local} to {over}{}", end.remote),
            None => format!("{over}{}", end.remote),
        }
    }

    pub(crate) fn path_proved(&self, path: Option<PathId>) {
        self.validations.set(path, PathValidation::Good);
    }

    pub(crate) fn path_refused(&self, path: Option<PathId>, reason: &str) {
        if let Some(path) = path {
            tracing::error!(path = %self.path_name(path), %reason, "path refused");
        }
        self.validations.set(path, PathValidation::Refused(reason.to_owned()));
    }

    /// Starts to connect a path, with the mount's socket options.
    pub(crate) fn connect(&self, end: &PathEnd) -> std::io::Result<OwnedFd> {
        let any: IpAddr = if end.remote.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let local = end.local.unwrap_or_else(|| any.into());
        let from = |port| socket::connect_start(Some(local.with_port(port)), end.remote);
        let anywhere = || socket::connect_start(end.local.map(|local| local.with_port(0)), end.remote);
        let socket = match self.reserved_port {
            Some(true) => from_reserved_port(from)?,
            // Many servers require a reserved port; without the privilege for one, other ports may
            // still work.
            None if rustix::process::geteuid().is_root() => {
                from_reserved_port(from).or_else(|_| anywhere())?
            }
            None | Some(false) => anywhere()?,
        };
        if let Some(congestion) = &self.congestion {
            socket::set_congestion(socket.as_fd(), congestion)?;
        }
        if end.pace.is_some() {
            socket::set_pacing(socket.as_fd(), end.pace)?;
        }
        Ok(socket)
    }
}

/// Connects from the first free reserved port, starting at a random one.
pub(crate) fn from_reserved_port<T>(
    mut connect: impl FnMut(u16) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let (first, count) = (*RESERVED_PORTS.start(), RESERVED_PORTS.end() - RESERVED_PORTS.start() + 1);
    let start = u16::try_from(crate::random_u64() % u64::from(count)).unwrap_or(0);
    let mut last = std::io::ErrorKind::AddrInUse.into();
    for step in 0..count {
        match connect(first + (start + step) % count) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => last = error,
            ended => return ended,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reserved_port_is_tried_once_until_one_is_free_or_another_error_occurs() {
        use std::io::{Error, ErrorKind};
        let mut tried = Vec::new();
        let none_is_free = from_reserved_port::<u16>(|port| {
            tried.push(port);
            Err(ErrorKind::AddrInUse.into())
        });
        assert_eq!(none_is_free.unwrap_err().kind(), ErrorKind::AddrInUse);
        tried.sort_unstable();
        assert!(tried.into_iter().eq(RESERVED_PORTS));
        let free = |port| if port == 700 { Ok(port) } else { Err(Error::from(ErrorKind::AddrInUse)) };
        assert_eq!(from_reserved_port(free).unwrap(), 700);
        let mut tries = 0;
        let refused = from_reserved_port::<u16>(|_| {
            tries += 1;
            Err(ErrorKind::PermissionDenied.into())
        });
        assert_eq!((refused.unwrap_err().kind(), tries), (ErrorKind::PermissionDenied, 1));
    }

    #[test]
    fn the_first_path_is_waited_for_when_the_time_for_the_others_is_over() {
        let validations = PathValidations::new(2);
        let used = [PathId(0), PathId(1)];
        let wait = |first| validations.wait(&used, Duration::ZERO, first);
        assert!(matches!(wait(Duration::ZERO)[..], [PathValidation::Unknown, PathValidation::Unknown]));
        std::thread::scope(|scope| {
            scope.spawn(|| validations.set(Some(used[1]), PathValidation::Good));
            assert!(matches!(
                wait(Duration::from_secs(600))[..],
                [PathValidation::Unknown, PathValidation::Good]
            ));
        });
    }
}
