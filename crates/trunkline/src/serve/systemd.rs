//! What a service manager gives `trunkline serve`, and asks of it: listening sockets and a
//! watchdog.

use crate::service_manager::notify;
use server::Server;
use std::net::TcpListener;
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
