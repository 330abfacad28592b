//! A server that refuses certain calls: a proxy in front of one of our servers that knows records,
//! and replaces the replies to calls of one procedure.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server};
use crate::semantics::{flags, pattern};
use nfs3::{Procedure, Status};
use rustix::fs::OFlags;
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use testkit::Deadline;
use testkit::records::{call_target, read_record, word};

/// Makes a reply from the server's reply, which is a record with its mark.
type Replace = Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

/// A held record, and the server's end of its connection.
type Held = (Arc<Mutex<TcpStream>>, Vec<u8>);

#[derive(Default)]
struct State {
    refused: Option<(Procedure, Replace)>,
    /// The procedure whose calls the server never sees, and the status with which they are
    /// answered.
    kept: Option<(Procedure, Status)>,
    /// The procedure whose calls are held, and the held calls.
    held: Option<(Procedure, Vec<Held>)>,
    /// The number of calls whose replies were replaced.
    count: u32,
    /// All connections, so that they can be ended.
    streams: Vec<TcpStream>,
    ended: bool,
}

/// See the module's documentation.
pub struct Refusals {
    state: Arc<Mutex<State>>,
    pub port: u16,
}

impl Refusals {
    /// Starts a proxy in front of the server's first node, on its own port.
    pub fn start(server: &Server) -> Self {
        Self::before(server.port)
    }

    /// Starts a proxy in front of a server at this port of 127.0.0.1.
    pub fn before(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let refusals = Self { state: Arc::default(), port: listener.local_addr().unwrap().port() };
        let state = Arc::clone(&refusals.state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
                let mut locked = lock(&state);
                if locked.ended {
                    return;
                }
                locked.streams.extend([&client, &server].map(|stream| stream.try_clone().unwrap()));
                forward(client, server, &state);
            }
        });
        refusals
    }

    /// From now on calls of this procedure get this status, although the server executes them.
    pub fn refuse(&self, procedure: Procedure, status: Status) {
        // No attributes: the two words of an absent wcc_data also suit a READ, whose reply has one
        // such word, because nothing reads beyond that.
        self.replace(procedure, move |record| answer(word(&record, 0), &[status.0, 0, 0]));
    }

    /// From now on replies to calls of this procedure are replaced.
    pub fn replace(&self, procedure: Procedure, with: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) {
        let (with, mut state): (Replace, _) = (Arc::new(with), lock(&self.state));
        (state.refused, state.count) = (Some((procedure, with)), 0);
    }

    /// From now on calls of this procedure get this status, and the server does not see them.
    pub fn keep(&self, procedure: Procedure, status: Status) {
        lock(&self.state).kept = Some((procedure, status));
    }

    /// From now on calls of this procedure do not reach the server; other calls pass them.
    pub fn hold(&self, procedure: Procedure) {
        lock(&self.state).held = Some((procedure, Vec::new()));
    }

    /// The number of held calls.
    pub fn held(&self) -> usize {
        lock(&self.state).held.as_ref().map_or(0, |(_, calls)| calls.len())
    }

    /// Sends the held calls to the server, and holds no more calls.
    pub fn release(&self) {
        let held = lock(&self.state).held.take();
        for (server, record) in held.into_iter().flat_map(|(_, calls)| calls) {
            server.lock().unwrap().write_all(&record).unwrap();
        }
    }

    /// The number of calls whose replies were replaced so far.
    pub fn refused(&self) -> u32 {
        lock(&self.state).count
    }

    /// From now on all calls get the server's reply; returns how many were replaced.
    pub fn stop_refusing(&self) -> u32 {
        let mut state = lock(&self.state);
        (state.refused, state.kept) = (None, None);
        std::mem::take(&mut state.count)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forwards both directions of a connection until it ends.
fn forward(client: TcpStream, server: TcpStream, state: &Arc<Mutex<State>>) {
    let (mut from_client, to_client) = (client.try_clone().unwrap(), Arc::new(Mutex::new(client)));
    let (mut from_server, to_server) = (server.try_clone().unwrap(), Arc::new(Mutex::new(server)));
    let kept_for = Arc::clone(&to_client);
    let noted: Arc<Mutex<Vec<(u32, Replace)>>> = Arc::default();
    let (of_calls, state) = (Arc::clone(&noted), Arc::clone(state));
    std::thread::spawn(move || {
        while let Some(record) = read_record(&mut from_client) {
            let mut state = lock(&state);
            let is_of = |procedure: Procedure| {
                call_target(&record) == (nfs3::PROGRAM, nfs3::VERSION, procedure.number())
            };
            if let Some((procedure, calls)) = &mut state.held
                && is_of(*procedure)
            {
                calls.push((Arc::clone(&to_server), record));
                continue;
            }
            if let Some((_, status)) = state.kept.filter(|(procedure, _)| is_of(*procedure)) {
                state.count += 1;
                drop(state);
                let answer = answer(word(&record, 0), &[status.0, 0, 0]);
                if kept_for.lock().unwrap().write_all(&answer).is_err() {
                    break;
                }
                continue;
            }
            if let Some((procedure, with)) = state.refused.clone()
                && is_of(procedure)
            {
                state.count += 1;
                of_calls.lock().unwrap().push((word(&record, 0), with));
            }
            drop(state);
            if to_server.lock().unwrap().write_all(&record).is_err() {
                break;
            }
        }
        let _ = to_server.lock().unwrap().shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        while let Some(mut record) = read_record(&mut from_server) {
            let xid = word(&record, 0);
            let mut noted = noted.lock().unwrap();
            if let Some(at) = noted.iter().position(|(other, _)| *other == xid) {
                record = noted.swap_remove(at).1(record);
            }
            drop(noted);
            if to_client.lock().unwrap().write_all(&record).is_err() {
                break;
            }
        }
        let _ = to_client.lock().unwrap().shutdown(Shutdown::Both);
    });
}

/// xid, REPLY, MSG_ACCEPTED, AUTH_NONE without a body, SUCCESS (RFC 5531 s9), and the results.
pub fn answer(xid: u32, results: &[u32]) -> Vec<u8> {
    record_of(&[&[xid, 1, 0, 0, 0, 0], results].concat())
}

fn record_of(words: &[u32]) -> Vec<u8> {
    let mark = (1 << 31) | (4 * words.len() as u32);
    [mark].iter().chain(words).flat_map(|word| word.to_be_bytes()).collect()
}

impl Drop for Refusals {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.ended = true;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        // Ends the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// A proxy in front of the server, and a mount that uses the proxy.
pub fn mounted_behind(server: &Server) -> (Refusals, Mounted) {
    let refusals = Refusals::start(server);
    let options = format!("vers=3,port={},nconnect=1,nolock", refusals.port);
    let mount = Mounted::start("127.0.0.1:/export", server.mount_point("mnt"), &options);
    (refusals, mount)
}

#[test]
fn a_program_sees_the_error_of_the_server() {
    let server = Server::start(1);
    let (refusals, mount) = mounted_behind(&server);
    let file = flags(OFlags::empty()).open(mount.path("f")).unwrap();
    let direct = flags(OFlags::DIRECT).open(mount.path("f")).unwrap();
    let mut data = pattern(8192, 1);
    for (status, errno) in [
        (Status::DQUOT, 122),
        (Status::FBIG, 27),
        (Status::NOSPC, 28),
        (Status::IO, 5),
        (Status::ROFS, 30),
        (Status::ACCES, 13),
        (Status::STALE, 116),
        (Status::BADHANDLE, 116),
        (Status::BADTYPE, 95),
        (Status::SERVERFAULT, 5),
        (Status(4711), 5),
    ] {
        refusals.refuse(Procedure::Write, status);
        let told = direct.write_all_at(&data, 0).unwrap_err();
        assert_eq!(told.raw_os_error(), Some(errno), "{status} for a direct write");
        // Data that write(2) has accepted fail later, and fsync reports the error to each handle.
        file.write_all_at(&data, 0).unwrap();
        for handle in [&file, &direct] {
            assert_eq!(handle.sync_all().unwrap_err().raw_os_error(), Some(errno), "{status} at fsync");
        }
        assert!(refusals.stop_refusing() >= 2, "{status}");
        file.write_all_at(&data, 0).unwrap();
        file.sync_all().unwrap();
        refusals.refuse(Procedure::Read, status);
        let told = direct.read_exact_at(&mut data, 0).unwrap_err();
        assert_eq!(told.raw_os_error(), Some(errno), "{status} for a read");
        assert!(refusals.stop_refusing() >= 1, "{status}");
        direct.read_exact_at(&mut data, 0).unwrap();
        assert!(data == pattern(8192, 1), "{status}");
    }
    // RFC 5531 s9: MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK.
    refusals.replace(Procedure::Read, |record| record_of(&[word(&record, 0), 1, 1, 1, 5]));
    assert_eq!(direct.read_exact_at(&mut data, 0).unwrap_err().raw_os_error(), Some(13));
    assert!(refusals.stop_refusing() >= 1);
    direct.read_exact_at(&mut data, 0).unwrap();
    // A server that asks the client to try later is asked again, and the program sees no error.
    refusals.refuse(Procedure::Read, Status::JUKEBOX);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| direct.read_exact_at(&mut data, 0).map(|()| data));
        Deadline::wait_until("a READ that is answered with JUKEBOX", MOUNT_TIMEOUT, || {
            (refusals.refused() > 0).then_some(())
        });
        assert!(refusals.stop_refusing() >= 1);
        assert!(reading.join().unwrap().unwrap() == pattern(8192, 1));
    });
    // With `soft` the retries end.
    let options = format!("vers=3,port={},nconnect=1,soft,timeo=2,retrans=1", refusals.port);
    let soft = Mounted::start("127.0.0.1:/export", server.mount_point("soft"), &options);
    let direct = flags(OFlags::DIRECT).open(soft.path("f")).unwrap();
    refusals.refuse(Procedure::Read, Status::JUKEBOX);
    let mut data = pattern(8192, 2);
    assert_eq!(direct.read_exact_at(&mut data, 0).unwrap_err().raw_os_error(), Some(110));
    assert!(refusals.stop_refusing() >= 1);
    direct.read_exact_at(&mut data, 0).unwrap();
}

#[test]
fn lost_data_are_not_read_from_the_cache_either() {
    let server = Server::start(1);
    let (refusals, mount) = mounted_behind(&server);
    let kept = pattern(8192, 1);
    std::fs::write(mount.path("f"), &kept).unwrap();
    let file = flags(OFlags::empty()).open(mount.path("f")).unwrap();
    let mut seen = vec![0; kept.len()];
    file.read_exact_at(&mut seen, 0).unwrap();
    refusals.keep(Procedure::Write, Status::IO);
    file.write_all_at(&pattern(8192, 2), 0).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    assert!(refusals.stop_refusing() >= 1);
    drop(file);
    assert!(std::fs::read(mount.path("f")).unwrap() == kept, "the file has the data of the server");
}

#[test]
fn an_append_follows_the_data_on_the_server_and_not_a_lost_append() {
    let server = Server::start(1);
    let (refusals, mount) = mounted_behind(&server);
    for (name, wished) in [("buffered", OFlags::empty()), ("sync", OFlags::SYNC), ("direct", OFlags::DIRECT)]
    {
        std::fs::write(mount.path(name), b"old").unwrap();
        let mut log = flags(wished | OFlags::APPEND).open(mount.path(name)).unwrap();
        refusals.keep(Procedure::Write, Status::NOSPC);
        let written = log.write_all(b", lost").and_then(|()| log.sync_all());
        assert_eq!(written.unwrap_err().raw_os_error(), Some(28), "{name}");
        assert!(refusals.stop_refusing() >= 1, "{name}");
        log.write_all(b", new").unwrap();
        log.sync_all().unwrap();
        drop(log);
        assert_eq!(std::fs::read(mount.path(name)).unwrap(), b"old, new", "{name}");
    }
}

/// What `ls -l` reads: names with their attributes, and then the attributes of each name.
fn listed_sizes(mount: &Mounted) -> Vec<(String, u64)> {
    let all = std::fs::read_dir(&mount.directory).unwrap().map(Result::unwrap);
    let mut all: Vec<_> = all
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_file_with_lost_data_has_the_size_that_the_server_knows() {
    let server = Server::start(1);
    let (refusals, mount) = mounted_behind(&server);
    let all = [("acces", Status::ACCES, 13), ("nospc", Status::NOSPC, 28)];
    for (name, status, errno) in all {
        for how in [OFlags::empty(), OFlags::SYNC, OFlags::SYNC | OFlags::APPEND] {
            std::fs::write(mount.path(name), b"old").unwrap();
            let mut file = flags(how).open(mount.path(name)).unwrap();
            refusals.keep(Procedure::Write, status);
            let told = file.write_all(&pattern(10_000, 1)).and_then(|()| file.sync_all()).unwrap_err();
            assert_eq!(told.raw_os_error(), Some(errno));
            assert!(refusals.stop_refusing() >= 1);
            // Twice, because the kernel caches what a listing returns.
            for look in ["first", "second"] {
                let size = listed_sizes(&mount).iter().find(|(of, _)| of == name).unwrap().1;
                assert_eq!(size, 3, "{name} {how:?}: the {look} listing, while the file is open");
            }
            assert_eq!(std::fs::metadata(mount.path(name)).unwrap().len(), 3, "{name} {how:?}");
            assert_eq!(file.metadata().unwrap().len(), 3, "{name} {how:?}");
            // Data that are written now count, though the server does not have them yet.
            file.write_at(b"longer", 3).unwrap();
            let size = std::fs::metadata(mount.path(name)).unwrap().len();
            assert_eq!(size, 9, "{name} {how:?}");
        }
    }
}
