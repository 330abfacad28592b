//! Listens on the addresses of processes of the group that have ended, so that clients that know
//! only such an address go on.
//!
//! Each process records where it listens ([`AddressDirectory`]), and looks a few times a second
//! whether the process that has an address lives. If it has ended, one of the others listens there,
//! and serves the connections as its own, on its first node. When the process is back, that one
//! closes the listener, and then the connections that were accepted there, once the calls that it
//! has received are answered: so clients go to the process that has the address.
//!
//! A stopped process lives: nobody listens in its place, and the connections wait for it.

use crate::clock;
use crate::config::{Config, ListenAddress};
use crate::error::Error;
use crate::group::Group;
use crate::runtime::{Datagrams, Mailboxes, Message, bind, bind_datagrams, bind_rdma};
use crate::shared_reply_cache::{AddressDirectory, AddressFile, SharedReplyCache};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a process looks which others have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Rounds in which an address could not be listened on before the log says so: a process that
/// ends may close its listener a little after it is known to have ended.
const FAILURES_BEFORE_LOG: u32 = 5;
/// How long a start waits for the process that listens in its place. A loaded machine needs a part
/// of a second.
const HANDOVER_WAIT: Duration = Duration::from_secs(10);
/// How long a start waits for an earlier process of the same address that is about to end.
const OWNER_WAIT: Duration = Duration::from_secs(1);
/// The time between two attempts of a start.
const START_RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// The node on which connections to others' addresses are counted.
const NODE: usize = 0;

/// The addresses of this process, before it listens on them.
#[derive(Debug)]
pub(crate) struct OwnAddresses {
    directory: AddressDirectory,
    /// With the name of the node.
    files: Vec<(AddressFile, String)>,
    /// Whether this process listens over RDMA: its loops are fit for that only then.
    over_rdma: bool,
    /// Whether it answers MOUNT over UDP too.
    datagrams: bool,
}

/// Calls `attempt` until it returns true, for this long.
fn wait_for(within: Duration, mut attempt: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let deadline = clock::now() + within;
    loop {
        if attempt()? {
            return Ok(true);
        }
        if clock::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(START_RETRY_INTERVAL);
    }
}

/// Listens on an address of this process. A process that had it before may still be ending.
pub(crate) fn bind_own<T>(is_in_group: bool, bind: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let deadline = clock::now() + OWNER_WAIT;
    loop {
        let outcome = bind();
        let may_pass = match &outcome {
            Err(Error::Listen { error, .. }) => error.kind() == io::ErrorKind::AddrInUse,
            // The connection manager does not always say why.
            Err(Error::ListenRdma { .. }) => true,
            _ => false,
        };
        if !may_pass || !is_in_group || clock::now() >= deadline {
            return outcome;
        }
        std::thread::sleep(START_RETRY_INTERVAL);
    }
}

impl OwnAddresses {
    /// Takes the addresses of this process from whoever listens there in its place. `None` without
    /// a group of processes. Addresses on sockets that were `passed` on are always listened on.
    pub fn claim(
        config: &Config,
        shared: Option<&SharedReplyCache>,
        passed: &[TcpListener],
    ) -> Result<Option<Self>, Error> {
        let Some(shared) = shared else { return Ok(None) };
        let fault = |error| Error::Group { directory: config.group.clone().unwrap_or_default(), error };
        let directory = shared.file().addresses().map_err(fault)?;
        let passed: Vec<_> = passed.iter().filter_map(|socket| socket.local_addr().ok()).collect();
        let mut files = Vec::new();
        for node in &config.nodes {
            let tcp = node.listen.iter().filter(|address| !passed.contains(address));
            let tcp = tcp.map(|address| ListenAddress::Tcp(*address));
            let all = tcp.chain(node.listen_rdma.iter().map(|address| ListenAddress::Rdma(*address)));
            // The system selects another port at the next start.
            for address in all.filter(|address| address.socket().port() != 0) {
                files.push((own(&directory, address)?, node.name.clone()));
            }
        }
        // Now that all are known to have their process, those that listen in its place close all
        // listeners in one round.
        for (file, _) in &files {
            take_over(file)?;
        }
        let over_rdma = config.nodes.iter().any(|node| !node.listen_rdma.is_empty());
        Ok(Some(Self { directory, files, over_rdma, datagrams: config.rpcbind.is_some() }))
    }
}

fn note_failed(error: io::Error) -> Error {
    Error::System { what: "the group's note of an address", error }
}

/// Says that this is the process that has an address.
fn own(directory: &AddressDirectory, address: ListenAddress) -> Result<AddressFile, Error> {
    let file = directory.create(address).map_err(note_failed)?;
    if !wait_for(OWNER_WAIT, || file.try_own()).map_err(note_failed)? {
        return Err(Error::Listen { address: address.socket(), error: io::ErrorKind::AddrInUse.into() });
    }
    Ok(file)
}

/// Waits until nobody else listens on an address of this process.
fn take_over(file: &AddressFile) -> Result<(), Error> {
    if wait_for(HANDOVER_WAIT, || file.try_listen()).map_err(note_failed)? {
        Ok(())
    } else {
        Err(Error::HeldByGroup { address: file.address })
    }
}

/// An address of another process.
#[derive(Debug)]
struct Place {
    file: AddressFile,
    state: PlaceState,
    failures: u32,
}

#[derive(Debug)]
enum PlaceState {
    /// Another process listens, or nobody.
    Elsewhere,
    /// This process listens.
    Here { _datagrams: Option<Datagrams> },
    /// This process has listened, and has connections from there.
    GivenBack,
}

/// See the module's documentation. Dropping this leaves all addresses to others.
#[derive(Debug)]
pub(crate) struct Takeover {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _own: Vec<AddressFile>,
}

impl Takeover {
    /// Records that this process listens, and watches the others.
    pub fn start(own: OwnAddresses, group: &Arc<Group>, mailboxes: &Arc<Mailboxes>) -> Result<Self, Error> {
        let OwnAddresses { directory, files, over_rdma, datagrams } = own;
        for (file, node) in &files {
            file.set_node(node).map_err(note_failed)?;
        }
        let own: Vec<AddressFile> = files.into_iter().map(|(file, _)| file).collect();
        let watcher = Watcher {
            directory,
            own: own.iter().map(|file| file.address).collect(),
            places: Vec::new(),
            over_rdma,
            datagrams,
            group: Arc::clone(group),
            mailboxes: Arc::clone(mailboxes),
        };
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("tl-takeover".into())
            .spawn(move || watcher.run(&stopped))
            .map_err(|error| Error::System { what: "a thread", error })?;
        Ok(Self { stop: Some(stop), thread: Some(thread), _own: own })
    }

    /// Takes no more addresses from now on.
    pub fn stop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the other processes of the group ended by a panic");
        }
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread that looks which processes have ended.
struct Watcher {
    directory: AddressDirectory,
    own: Vec<ListenAddress>,
    places: Vec<Place>,
    over_rdma: bool,
    datagrams: bool,
    group: Arc<Group>,
    mailboxes: Arc<Mailboxes>,
}

impl Watcher {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK_INTERVAL) {
            self.look();
        }
    }

    fn look(&mut self) {
        match self.directory.list() {
            Ok(listed) => listed.into_iter().for_each(|address| self.enter(address)),
            Err(error) => tracing::debug!(%error, "the addresses of the group cannot be listed"),
        }
        for mut place in std::mem::take(&mut self.places) {
            if self.directory.has(&place.file) {
                self.step(&mut place);
                self.places.push(place);
            } else if matches!(place.state, PlaceState::Here { .. }) {
                // An administrator has given the address up.
                self.unlisten(&mut place);
                self.mailboxes.send_all(|| Message::DrainAt(place.file.address));
            }
        }
    }

    /// Notes an address that is new here.
    fn enter(&mut self, address: ListenAddress) {
        let is_known = self.own.contains(&address)
            || self
                .places
                .iter()
                .any(|place| place.file.address == address && self.directory.has(&place.file));
        if !is_known
            && (address.tcp().is_some() || self.over_rdma)
            && let Ok(file) = self.directory.find(address)
        {
            self.places.push(Place { file, state: PlaceState::Elsewhere, failures: 0 });
        }
    }

    fn step(&self, place: &mut Place) {
        match (&place.state, place.file.has_owner()) {
            (PlaceState::Here { .. }, true) => self.unlisten(place),
            // Its clients are sent to the owner only once it is there.
            (PlaceState::GivenBack, true) if place.file.has_listener() => {
                self.mailboxes.send_all(|| Message::DrainAt(place.file.address));
                place.state = PlaceState::Elsewhere;
            }
            (PlaceState::Elsewhere | PlaceState::GivenBack, false) => self.try_listen(place),
            (PlaceState::Here { .. }, false) | (PlaceState::Elsewhere | PlaceState::GivenBack, true) => {}
        }
    }

    /// Listens on an address whose process has ended, unless another one does.
    fn try_listen(&self, place: &mut Place) {
        let address = place.file.address;
        let Some(node) = place.file.node() else { return };
        if !place.file.try_listen().unwrap_or(false) {
            return;
        }
        // It may have been started again meanwhile, and waits for the listener's lock then.
        let listening = (!place.file.has_owner()).then(|| self.listen(address));
        match listening {
            Some(Ok(datagrams)) => {
                tracing::warn!(
                    %address,
                    ?node,
                    "a process of the group has ended: this one listens on its address until it is back"
                );
                place.state = PlaceState::Here { _datagrams: datagrams };
                place.failures = 0;
            }
            Some(Err(error)) => {
                place.file.stop_listening();
                place.failures = place.failures.saturating_add(1);
                if place.failures == FAILURES_BEFORE_LOG {
                    tracing::warn!(
                        %address,
                        ?node,
                        "a process of the group has ended, and this one does not get its address; it tries again: {error}"
                    );
                }
            }
            None => place.file.stop_listening(),
        }
    }

    fn listen(&self, address: ListenAddress) -> Result<Option<Datagrams>, Error> {
        let bound = match address {
            ListenAddress::Tcp(address) => bind(NODE, address)?,
            ListenAddress::Rdma(address) => bind_rdma(NODE, address)?,
        };
        let datagrams = match address {
            ListenAddress::Tcp(address) if self.datagrams => self.answer_datagrams(address),
            ListenAddress::Tcp(_) | ListenAddress::Rdma(_) => None,
        };
        let (sender, receiver) = mpsc::channel();
        self.mailboxes.send(0, Message::Listen(vec![bound], sender));
        match receiver.recv() {
            Ok(Err(error)) => Err(Error::System { what: "waiting for connections", error }),
            Ok(Ok(())) | Err(mpsc::RecvError) => Ok(datagrams),
        }
    }

    /// Answers MOUNT over UDP too. Clients that use TCP do without it.
    fn answer_datagrams(&self, address: SocketAddr) -> Option<Datagrams> {
        let started = bind_datagrams(address).and_then(|socket| {
            let start =
                |socket| Datagrams::start(vec![socket], Arc::clone(&self.group), Arc::clone(&self.mailboxes));
            socket.map(start).transpose()
        });
        started.unwrap_or_else(|error| {
            tracing::warn!(%address, "MOUNT over UDP is not answered on an address of another process: {error}");
            None
        })
    }

    /// Closes the listener. The connections that were accepted there stay for now.
    fn unlisten(&self, place: &mut Place) {
        let address = place.file.address;
        let (sender, receiver) = mpsc::channel();
        self.mailboxes.send(0, Message::UnlistenAt(address, sender));
        // Nothing is sent: the loop drops the sender when it is done.
        let _ = receiver.recv();
        place.state = PlaceState::GivenBack;
        place.file.stop_listening();
        tracing::info!(%address, "no longer listening on an address of another process");
    }
}
