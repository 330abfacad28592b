//! A server of a directory that starts again: hosts are told, reclaim what they had, and nobody
//! else gets it before. XNFS s11, RFC 1813 s6.3.2

use super::host::{Host, Services, bytes, decoded};
use crate::nfs4::stores::restartable;
use crate::peer::eventually;
use nlm::{Status, nsm};
use server::{Config, Server};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// A server of version 3 alone.
fn start(home: &Path, services: &Services) -> (Server, SocketAddr) {
    let config = Config {
        clients_rpcbind: services.port,
        versions: server::NfsVersions::V3,
        lease: server::config::LEASE_MIN,
        ..restartable(home)
    };
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

/// Asks until the grace period is over.
fn lock_patiently(host: &mut Host, file: &[u8], svid: i32) -> Status {
    let mut status = Status::DENIED_GRACE_PERIOD;
    eventually("the grace period to end", || {
        std::thread::sleep(Duration::from_millis(20));
        status = host.lock(file, svid, bytes(0, 10));
        status != Status::DENIED_GRACE_PERIOD
    });
    status
}

#[test]
fn locks_are_reclaimed_and_nobody_gets_them_before() {
    let home = tempfile::tempdir().unwrap();
    let services = Services::start(false);
    let (server, address) = start(home.path(), &services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    assert_eq!(host.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    let unmonitored = host.file("another");
    assert_eq!(Host::new(address, "unmonitored").nm_lock(&unmonitored, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(host.reclaim(&file, 1, bytes(20, 10)), Status::DENIED, "there is no grace period");
    drop(server);

    let (_server, address) = start(home.path(), &services);
    let called = services.next();
    assert_eq!((called.program, called.procedure), (nsm::PROGRAM, nsm::Procedure::Notify.number()));
    let notice: nsm::notify::Args<'_> = decoded(&called.args);
    assert_eq!(notice.state % 2, 1, "the server is up");
    assert_eq!(notice.name.0, rustix::system::uname().nodename().to_bytes());
    let (mut host, mut other) = (Host::new(address, "host"), Host::new(address, "other"));
    assert_eq!(other.lock(&file, 1, bytes(50, 1)), Status::DENIED_GRACE_PERIOD);
    assert_eq!(other.reclaim(&file, 1, bytes(50, 1)), Status::DENIED, "it had nothing");
    let unmonitored = Host::new(address, "unmonitored").reclaim(&unmonitored, 1, bytes(0, 10));
    assert_eq!(unmonitored, Status::DENIED, "nobody knows of it");
    assert_eq!(host.reclaim(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(lock_patiently(&mut other, &file, 1), Status::DENIED, "it is the host's");
    assert_eq!(host.unlock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(other.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert!(services.calls.try_recv().is_err(), "nobody else is told");
}

#[test]
fn a_host_that_does_not_come_back_loses_its_locks_with_the_grace_period() {
    let home = tempfile::tempdir().unwrap();
    let services = Services::start(false);
    let (server, address) = start(home.path(), &services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    assert_eq!(host.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    drop(server);
    // A server that ends within the grace period leaves it to the next one.
    drop(start(home.path(), &services));
    let (server, address) = start(home.path(), &services);
    let mut other = Host::new(address, "other");
    assert_eq!(other.lock(&file, 1, bytes(0, 10)), Status::DENIED_GRACE_PERIOD);
    assert_eq!(lock_patiently(&mut other, &file, 1), Status::GRANTED);
    assert_eq!(Host::new(address, "host").reclaim(&file, 1, bytes(20, 10)), Status::DENIED);
    drop(server);
    while services.calls.try_recv().is_ok() {}
    // The host that did not come back is not known any more; the other is.
    let (_server, address) = start(home.path(), &services);
    services.next();
    assert_eq!(Host::new(address, "host").reclaim(&file, 1, bytes(20, 10)), Status::DENIED);
    assert_eq!(Host::new(address, "other").reclaim(&file, 1, bytes(0, 10)), Status::GRANTED);
}
