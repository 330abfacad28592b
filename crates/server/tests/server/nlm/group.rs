//! A group of servers: their locks are in one table, and who waits at one of them is called back
//! when the lock is released at another.

use super::host::{Host, Services, bytes};
use crate::nfs4::stores::restartable;
use nlm::{Procedure, Status};
use server::{Config, NfsVersions, Server};
use std::net::SocketAddr;
use std::path::Path;

fn start(home: &Path, services: &Services) -> (Server, SocketAddr) {
    let group = Some(home.join("group"));
    let (clients_rpcbind, versions) = (services.port, NfsVersions::V3);
    let server = Server::start(Config { group, clients_rpcbind, versions, ..restartable(home) }).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

#[test]
fn locks_are_one_table_in_all_servers_of_a_group_and_outlive_each_of_them() {
    let home = tempfile::tempdir().unwrap();
    let services = Services::start(false);
    let ((first, here), (_second, there)) = (start(home.path(), &services), start(home.path(), &services));
    let (mut one, mut other) = (Host::new(here, "one"), Host::new(there, "other"));
    let file = one.file("file");
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(other.lock(&file, 2, bytes(0, 10)), Status::DENIED);
    assert_eq!(other.wait(&file, 2, bytes(0, 10)), Status::BLOCKED);
    // The server that has called so far ends; the other goes on with what is to be done.
    drop(first);
    assert_eq!(other.test(&file, 3, bytes(0, 0)), Err((1, 0, 10)));
    let mut one = Host::new(there, "one");
    assert_eq!(one.unlock(&file, 1, bytes(0, 10)), Status::GRANTED);
    let called = services.next();
    assert_eq!((called.program, called.procedure), (nlm::PROGRAM, Procedure::Granted.number()));
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::DENIED);
}
