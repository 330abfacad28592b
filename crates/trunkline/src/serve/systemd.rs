//! The interface to a service manager: notifications as of sd_notify(3), and listening sockets.
//!
//! Without `NOTIFY_SOCKET` in the environment, there are no notifications.

use server::Server;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The server, shared by several threads; `None` once it drains.
pub type Shared = Arc<Mutex<Option<Server>>>;

/// The sockets on which a service manager listens for this server. sd_listen_fds(3)
pub fn sockets() -> Vec<TcpListener> {
    let mut passed = listenfd::ListenFd::from_env();
    // A socket that is not a TCP socket is ignored. The server then listens itself, or reports why
    // it cannot.
    (0..passed.len()).filter_map(|index| passed.take_tcp_listener(index).ok().flatten()).collect()
}

/// Notifies the service manager, if there is one. A failed notification must not stop the server.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_bytes().split_first() {
        Some((b'@', rest)) => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
        Ok(())
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager cannot be told \"{}\"", state.escape_debug());
    }
}

/// Reports that the configuration is read again; [`ready`] reports the end.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
}

/// Reports that the server is ready.
pub fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}"));
}

/// Reports that all loops answer, at the interval that the service manager requests.
/// sd_watchdog_enabled(3)
pub fn watch(server: &Shared) {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let Some(us) = number("WATCHDOG_USEC").filter(|us| ours && *us > 0) else { return };
    let server = Arc::downgrade(server);
    let beat = move || {
        while let Some(server) = Weak::upgrade(&server) {
            // Each loop answers this request. A loop that hangs blocks it, so the notification is
            // missed.
            match &*server.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(server) => drop(server.statistics()),
                None => return,
            }
            notify("WATCHDOG=1");
            drop(server);
            std::thread::sleep(Duration::from_micros(us / 2));
        }
    };
    let thread = std::thread::Builder::new().name("tl-watchdog".into());
    if let Err(error) = thread.spawn(beat) {
        tracing::warn!(%error, "no thread for the watchdog: the service manager will miss it");
    }
}
