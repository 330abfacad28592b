//! Notifications to a service manager, as of sd_notify(3). Without `NOTIFY_SOCKET` in the
//! environment, there are none.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

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

/// Reports that the server is ready, and in a few words what it does.
pub fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}"));
}

/// Reports that the server ends.
pub fn stopping() {
    notify("STOPPING=1");
}
