//! Tests a reloaded configuration: connected clients stay, and the new rules apply to them.

use crate::peer::{Peer, config};
use nfs3::{FileHandle, Status};
use server::{Config, Server, StoreConfig};
use std::net::SocketAddr;

/// A server and a client that has a file open.
fn started() -> (Server, Config, Peer, FileHandle) {
    let config = config();
    let server = Server::start(config.clone()).unwrap();
    let mut peer = Peer::new(server.addresses()[0]);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    (server, config, peer, file)
}

fn address(server: &Server) -> SocketAddr {
    server.addresses()[0]
}

#[test]
fn rules_change_under_a_client_that_stays_connected() {
    let (server, mut config, mut peer, file) = started();
    assert!(peer.write(file, 0, b"before").into_result().is_ok());

    config.exports[0].read_only = true;
    let told = server.reload(config.clone()).unwrap();
    assert_eq!((told.changed.len(), told.refused.len()), (1, 0), "{told:?}");
    assert_eq!(peer.write(file, 0, b"after").status(), Status::ROFS);
    assert_eq!(peer.read(file, 0, 100).unwrap().0, b"before", "the same files by the same handle");

    config.exports[0].allow = vec!["192.0.2.0/24".parse().unwrap()];
    server.reload(config.clone()).unwrap();
    assert_eq!(peer.read(file, 0, 100), Err(Status::ACCES), "the client is no longer admitted");

    config.exports[0].allow = vec!["127.0.0.0/8".parse().unwrap()];
    config.exports[0].read_only = false;
    server.reload(config).unwrap();
    assert!(peer.write(file, 0, &[7; 100_000]).into_result().is_ok(), "the client may write again");
    assert_eq!(server.statistics().nodes[0].accepted, 1, "all calls used one connection");
}

#[test]
fn an_export_is_added() {
    let (server, mut config, mut peer, file) = started();
    let mut added = config.exports[0].clone();
    (added.path, added.fsid) = ("/added".into(), 9);
    config.exports.push(added);
    let told = server.reload(config).unwrap();
    assert_eq!(told.changed, ["export /added is new"]);
    let root = peer.mnt(b"/added").unwrap();
    assert_eq!(peer.getattr(root).into_result().unwrap().attributes.fsid, 9);
    assert!(peer.getattr(file).into_result().is_ok());
}

#[test]
fn settings_that_cannot_change_at_run_time_are_refused_by_name() {
    let (server, config, mut peer, file) = started();
    let mut other = config.clone();
    other.exports[0].store = StoreConfig::Mem { bytes: 1 << 20, owner_uid: 0, owner_gid: 0 };
    other.exports[0].fsid = 12;
    other.nodes[0].listen = vec!["127.0.0.1:1".parse().unwrap()];
    other.loops = Some(7);
    other.limits.connections_max = 5;
    let told = server.reload(other).unwrap();
    assert_eq!(told.changed, [""; 0]);
    let refused = told.refused.join("\n");
    for what in ["its store", "its fsid 1", "where nodes listen", "`loops`", "[limits]"] {
        assert!(refused.contains(what), "{what}: {refused}");
    }
    assert_eq!(told.refused.len(), 5, "{refused}");
    assert!(peer.getattr(file).into_result().is_ok());
    let told = server.reload(config.clone()).unwrap();
    assert_eq!((told.changed.len(), told.refused.len()), (0, 0), "nothing differs from the start");

    let mut gone = config.clone();
    (gone.exports[0].path, gone.exports[0].fsid) = ("/renamed".into(), 3);
    let told = server.reload(gone).unwrap();
    assert!(told.refused[0].contains("/export stays"), "{told:?}");
    assert!(peer.getattr(file).into_result().is_ok());

    let mut clash = config.clone();
    clash.exports[0].path = "/clash".into();
    let told = server.reload(clash).unwrap();
    assert!(told.refused.iter().any(|why| why.contains("/clash is not added: its fsid 1")), "{told:?}");
}

#[test]
fn an_invalid_configuration_changes_nothing() {
    let (server, mut config, mut peer, file) = started();
    config.exports[0].path = "relative".into();
    config.exports[0].read_only = true;
    assert!(server.reload(config).is_err());
    assert!(peer.write(file, 0, b"still").into_result().is_ok());
    assert!(Peer::new(address(&server)).mnt(b"/export").is_ok());
}
