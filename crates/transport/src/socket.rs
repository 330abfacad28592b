//! Sockets with this project's options: no delay, with deadlines, and the options that are
//! measured; non-blocking except for [`connect_within`].
#![allow(unsafe_code)]

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Creates a listening TCP socket.
///
/// # Errors
/// If the address is in use or not local.
pub fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // An IPv6 listener is separate; IPv4 has its own --listen.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The address that a socket is bound to.
///
/// # Errors
/// If the socket is not bound.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    SockRef::from(&fd).local_addr()?.as_socket().ok_or_else(|| io::Error::other("not an internet address"))
}

/// The address of the peer.
///
/// # Errors
/// If the socket is not connected.
pub fn peer_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    SockRef::from(&fd).peer_addr()?.as_socket().ok_or_else(|| io::Error::other("not an internet address"))
}

/// Accepts a waiting connection; `None` if there is none.
///
/// # Errors
/// If the system has no descriptor left.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
    // The address is returned by the same call: a connection that was reset in the meantime no
    // longer has one, and a peer that resets connections must not make the server believe that the
    // system is out of descriptors.
    let (socket, peer) = match rustix::net::acceptfrom_with(listener, flags) {
        Ok(accepted) => accepted,
        Err(errno) if is_of_one_connection(errno) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let Some(Ok(peer)) = peer.map(SocketAddr::try_from) else { return Ok(None) };
    // A connection without this option is slower, or ends at its first receive.
    let _ = set_no_delay(socket.as_fd());
    Ok(Some((socket, peer)))
}

/// Whether accepting failed because of one connection, or of none: accept(2) passes on network
/// errors of the new connection, and says to treat them like having nothing to accept.
const fn is_of_one_connection(errno: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(
        errno,
        Errno::AGAIN
            | Errno::INTR
            | Errno::CONNABORTED
            | Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
    )
}

/// Starts to connect. The socket becomes writable when the attempt has ended; [`connect_result`]
/// returns the outcome. A local port of 0 means any free port.
///
/// # Errors
/// `AddrInUse` if a chosen local port is in use, or already has a connection to the remote (the
/// system reports the same if no local address can reach the remote); others if the local address
/// is not local or there is no route.
pub fn connect_start(local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<OwnedFd> {
    let socket = outgoing(local, remote)?;
    socket.set_nonblocking(true)?;
    match of_port(local, socket.connect(&SockAddr::from(remote))) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Connects and waits for at most this long; the returned stream is blocking.
///
/// # Errors
/// As [`connect_start`] and [`connect_result`], and on a timeout.
pub fn connect_within(
    local: Option<SocketAddr>,
    remote: SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = outgoing(local, remote)?;
    of_port(local, socket.connect_timeout(&SockAddr::from(remote), timeout))?;
    Ok(socket.into())
}

fn outgoing(local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(local) = local {
        // A port that other connections of this host use, or used until a minute ago, is free for
        // every other remote: reserved ports are few.
        socket.set_reuse_address(local.port() != 0)?;
        socket.bind(&SockAddr::from(local))?;
    }
    Ok(socket)
}

/// Connecting a bound socket fails with EADDRNOTAVAIL if its port already has a connection to the
/// remote.
fn of_port(local: Option<SocketAddr>, connected: io::Result<()>) -> io::Result<()> {
    let chosen = local.is_some_and(|local| local.port() != 0);
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable if chosen => io::Error::new(io::ErrorKind::AddrInUse, error),
        _ => error,
    })
}

/// The outcome of a connection attempt.
///
/// # Errors
/// Why the attempt failed.
pub fn connect_result(fd: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&fd).take_error()?.map_or(Ok(()), Err)
}

/// Creates two connected stream sockets within this process.
///
/// # Errors
/// If the system has no descriptor left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    Ok((one.into(), other.into()))
}

/// Sends small segments at once.
///
/// # Errors
/// When the system refuses.
pub fn set_no_delay(fd: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&fd).set_tcp_nodelay(true)
}

/// Makes the next close a reset, which also drops data that the system has not delivered.
///
/// # Errors
/// If the system refuses.
pub fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&fd).set_linger(Some(Duration::ZERO))
}

/// The option for the longest time between two retransmissions, in milliseconds. Linux 6.15 and
/// later, include/uapi/linux/tcp.h
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// The smallest value that the option accepts.
const RETRANSMITS_WITHIN_MS: u32 = 1000;

/// Detects a dead peer without traffic: sends probes after `idle`, and gives up on unacknowledged
/// data after `give_up`. If the system supports it, lost data are retransmitted at least every
/// second: otherwise TCP doubles that interval each time, and stays silent after a network outage
/// for as long as the outage lasted.
///
/// # Errors
/// If the system refuses.
pub fn set_deadlines(fd: BorrowedFd<'_>, idle: Duration, give_up: Duration) -> io::Result<()> {
    let socket = SockRef::from(&fd);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(idle))?;
    socket.set_tcp_user_timeout(Some(give_up))?;
    match set_option(fd, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, &RETRANSMITS_WITHIN_MS) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        outcome => outcome,
    }
}

/// Sets an option that takes an integer as wide as `T`.
fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the system reads as many bytes as the given length, which is the size of the value.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Chooses the congestion control by name.
///
/// # Errors
/// When the system does not offer it.
pub fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    SockRef::from(&fd).set_tcp_congestion(name.as_bytes())
}

/// The congestion controls that anyone may choose here, the system's default first.
#[must_use]
pub fn congestion_controls() -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let default = read("tcp_congestion_control").trim().to_owned();
    let mut all: Vec<String> =
        read("tcp_allowed_congestion_control").split_whitespace().map(str::to_owned).collect();
    all.sort_by_key(|name| *name != default);
    all
}

/// Congestion controls preferred on loopback, where one that paces costs a fifth
/// (docs/decisions/0002-event-loop.md).
const LOOPBACK_CONGESTION: [&str; 2] = ["cubic", "reno"];

/// The congestion control for connections over loopback that name none.
#[must_use]
pub fn loopback_congestion() -> Option<String> {
    let offered = congestion_controls();
    let preferred =
        LOOPBACK_CONGESTION.into_iter().find(|name| offered.iter().any(|control| control == name));
    preferred.map(str::to_owned)
}

/// Unsent bytes that the system keeps for a paced connection. Data accepted by the system can no
/// longer be overtaken, and at a low rate a full buffer would be a long wait; more than two of the
/// largest segments keeps the link busy.
const PACED_UNSENT_BYTES: u32 = 160 << 10;

/// Limits the send rate of this socket, in bytes per second; `None` removes the limit. Limits the
/// sender only.
///
/// # Errors
/// If the system refuses.
pub fn set_pacing(fd: BorrowedFd<'_>, bytes_per_second: Option<u64>) -> io::Result<()> {
    let unsent = if bytes_per_second.is_some() { PACED_UNSENT_BYTES } else { u32::MAX };
    SockRef::from(&fd).set_tcp_notsent_lowat(unsent)?;
    // An unsigned long, which is 64 bits wide here.
    let rate = bytes_per_second.unwrap_or(u64::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate)
}

/// Bytes that were sent and not acknowledged by the peer's system.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the system writes one integer, which is there. Of a TCP socket this is SIOCOUTQ.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(usize::try_from(bytes).unwrap_or(0)),
    }
}

/// The system's information about a connection's progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Whether both ends may still send.
    pub is_established: bool,
    /// Whether the peer has closed its side, without resetting the connection.
    pub is_closed_by_peer: bool,
    /// Bytes that the peer has acknowledged.
    pub acknowledged_bytes: u64,
    /// Bytes received from the peer.
    pub received_bytes: u64,
    /// Segments retransmitted over the connection's life.
    pub retransmitted_segments: u32,
    /// Time since data last arrived from the peer, or since the connection was made.
    pub since_data: Duration,
    /// Smoothed round-trip time.
    pub rtt: Duration,
}

/// Queries the system for a connection's progress.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut raw = [0_u8; 192];
    let mut len = raw.len() as libc::socklen_t;
    // SAFETY: the system writes at most `len` bytes, which is the size of `raw`.
    let outcome = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // Offsets within the kernel's struct tcp_info, which only ever grows at its end.
    let u32_at =
        |at: usize| raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let u64_at =
        |at: usize| raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    // The first byte is the state: TCP_ESTABLISHED and TCP_CLOSE_WAIT, include/net/tcp_states.h
    let state = raw.first().copied().unwrap_or(0);
    Ok(TcpInfo {
        is_established: state == 1,
        is_closed_by_peer: state == 8,
        acknowledged_bytes: u64_at(120),
        received_bytes: u64_at(128),
        retransmitted_segments: u32_at(100),
        since_data: Duration::from_millis(u64::from(u32_at(52))),
        rtt: Duration::from_micros(u64::from(u32_at(68))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// The longest time between two retransmissions; `None` if the system does not report it.
    fn retransmits_within_ms(fd: BorrowedFd<'_>) -> Option<u32> {
        let (mut ms, mut len) = (0_u32, size_of::<u32>() as libc::socklen_t);
        // SAFETY: the system writes at most `len` bytes, which is the size of `ms`.
        let outcome = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::IPPROTO_TCP,
                TCP_RTO_MAX_MS,
                (&raw mut ms).cast(),
                &raw mut len,
            )
        };
        (outcome == 0).then_some(ms)
    }

    #[test]
    fn deadlines_bound_the_time_between_retransmissions_where_the_system_can() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let known = retransmits_within_ms(stream.as_fd());
        set_deadlines(stream.as_fd(), Duration::from_secs(10), Duration::from_secs(20)).unwrap();
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(20)));
        assert!(socket.keepalive().unwrap());
        // Linux before 6.15 does not know the option; the others are set nevertheless.
        assert_eq!(retransmits_within_ms(stream.as_fd()), known.map(|_| RETRANSMITS_WITHIN_MS));
    }

    #[test]
    fn tcp_info_counts_what_the_peer_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.write_all(&[7; 1000]).unwrap();
        theirs.read_exact(&mut [0; 1000]).unwrap();
        theirs.write_all(&[8; 500]).unwrap();
        ours.read_exact(&mut [0; 500]).unwrap();
        let info = tcp_info(ours.as_fd()).unwrap();
        // The SYN counts as one byte.
        assert!((1000..=1001).contains(&info.acknowledged_bytes), "{info:?}");
        assert_eq!(info.received_bytes, 500);
        let since_data = || tcp_info(ours.as_fd()).unwrap().since_data;
        let later = std::time::Instant::now() + Duration::from_secs(120);
        while since_data() < Duration::from_millis(20) {
            assert!(std::time::Instant::now() < later, "the time since the last data grows");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_system_reports_what_the_peer_acknowledged_and_whether_it_closed_or_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for is_reset in [false, true] {
            let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut theirs, _) = listener.accept().unwrap();
            assert!(tcp_info(ours.as_fd()).unwrap().is_established);
            ours.write_all(&[7; 100]).unwrap();
            theirs.read_exact(&mut [0; 100]).unwrap();
            theirs.write_all(&[8]).unwrap();
            ours.read_exact(&mut [0]).unwrap();
            assert_eq!(unacknowledged_bytes(ours.as_fd()).unwrap(), 0, "the reply acknowledges");
            if is_reset {
                reset_on_close(theirs.as_fd()).unwrap();
            }
            drop(theirs);
            let end = ours.read(&mut [0]);
            assert_eq!(end.is_err(), is_reset);
            let info = tcp_info(ours.as_fd()).unwrap();
            assert_eq!((info.is_established, info.is_closed_by_peer), (false, !is_reset));
        }
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let first = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = local_address(first.as_fd()).unwrap();
        assert_eq!(listen(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn connections_reset_before_they_are_accepted_are_no_error_of_the_listener() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = local_address(listener.as_fd()).unwrap();
        let poller = crate::poll::Poller::new().unwrap();
        poller.add(&listener, 0, crate::poll::Interest::READ).unwrap();
        for _ in 0..3 {
            let dying = TcpStream::connect(address).unwrap();
            reset_on_close(dying.as_fd()).unwrap();
        }
        let living = TcpStream::connect(address).unwrap();
        let mut accepted = Vec::new();
        while !accepted.contains(&living.local_addr().unwrap()) {
            poller.wait(&mut crate::poll::Events::new(), Some(Duration::from_secs(120))).unwrap();
            accepted.extend(accept(listener.as_fd()).unwrap().map(|(_, peer)| peer));
        }
    }

    #[test]
    fn a_refused_connection_is_reported_as_refused() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = match connect_start(None, gone) {
            Ok(socket) => socket,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                return;
            }
        };
        let poller = crate::poll::Poller::new().unwrap();
        poller.add(&socket, 0, crate::poll::Interest::WRITE).unwrap();
        poller.wait(&mut crate::poll::Events::new(), Some(Duration::from_secs(120))).unwrap();
        assert_eq!(connect_result(socket.as_fd()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_local_port_serves_several_remotes_with_one_connection_each() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [one, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let timeout = Duration::from_secs(120);
        // A port chosen by the system may be taken by another program before it is used again.
        let (first, local) = (0..100)
            .find_map(|_| {
                let local = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
                Some((connect_within(Some(local), one, timeout).ok()?, local))
            })
            .unwrap();
        let second = connect_within(Some(local), other, timeout).unwrap();
        assert_eq!((first.local_addr().unwrap(), second.local_addr().unwrap()), (local, local));
        let again = connect_within(Some(local), one, timeout);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let again = connect_start(Some(local), one);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // The TIME-WAIT state of a closed connection, which lasts for a minute, does not block the
        // port for another remote.
        drop(second);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        connect_within(Some(local), listener.local_addr().unwrap(), timeout).unwrap();
        // The port of a listener is in use.
        let error = connect_within(Some(other), one, timeout).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let foreign = connect_within(Some("192.0.2.1:0".parse().unwrap()), one, timeout);
        assert_eq!(foreign.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn pacing_and_congestion_control_can_be_set() {
        let socket = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        set_pacing(socket.as_fd(), Some(1 << 20)).unwrap();
        set_pacing(socket.as_fd(), None).unwrap();
        let offered = congestion_controls();
        set_congestion(socket.as_fd(), offered.first().unwrap()).unwrap();
        assert!(set_congestion(socket.as_fd(), "no-such-control").is_err());
    }
}
