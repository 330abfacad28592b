//! Tests MOUNT: handles of exports, and lists for clients that may see them.

use crate::peer::{Peer, config, decoded, encoded, start};
use nfs3::mount::{Procedure, dump, export, mnt, umnt};
use nfs3::{DirOpArgs, Sattr3, Status, proc};
use server::Server;

#[test]
fn paths_that_are_not_exported_are_not_found() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    assert_eq!(peer.mnt(b"/none"), Err(Status::NOENT));
    assert_eq!(peer.mnt(b"/exporter"), Err(Status::NOENT));
    assert_eq!(peer.mnt(b""), Err(Status::NOENT));
    assert_eq!(peer.mnt(b"/export/"), peer.mnt(b"/export"));
    assert_eq!(peer.mnt(b"/export/none"), Err(Status::NOENT));
    assert_eq!(peer.mnt(b"/export/.."), Err(Status::NOENT));
}

#[test]
fn a_directory_below_an_export_can_be_mounted() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let location = DirOpArgs { directory: root, name: b"sub" };
    let results =
        peer.nfs(nfs3::Procedure::MkDir, &proc::mkdir::Args { location, attributes: Sattr3::default() });
    let made = decoded::<proc::mkdir::Reply>(&results).into_result().unwrap();
    assert_eq!(peer.mnt(b"/export/sub"), Ok(made.object.unwrap()));
    peer.create(root, b"file");
    assert_eq!(peer.mnt(b"/export/file"), Err(Status::NOTDIR));
}

#[test]
fn the_list_of_mounts_follows_the_calls_of_clients() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let listed = |peer: &mut Peer| {
        let results = peer.mount(Procedure::Dump, &[]);
        decoded::<dump::Reply<'_>>(&results).iter().count()
    };
    assert_eq!(listed(&mut peer), 0);
    peer.mnt(b"/export").unwrap();
    let results = peer.mount(Procedure::Dump, &[]);
    let entry = decoded::<dump::Reply<'_>>(&results).iter().next().unwrap();
    assert_eq!((entry.host, entry.directory), (&b"127.0.0.1"[..], &b"/export"[..]));
    let args: umnt::Args<'_> = mnt::Args { path: b"/export" };
    assert!(peer.mount(Procedure::Umnt, &encoded(&args)).is_empty());
    assert_eq!(listed(&mut peer), 0);
    peer.mnt(b"/export").unwrap();
    assert!(peer.mount(Procedure::UmntAll, &[]).is_empty());
    assert_eq!(listed(&mut peer), 0);
}

#[test]
fn exports_are_listed_with_their_networks_to_admitted_clients() {
    let mut config = config();
    let mut other = config.exports[0].clone();
    other.path = "/other".into();
    other.fsid = 2;
    other.allow = vec!["192.0.2.0/24".parse().unwrap()];
    config.exports.push(other);
    let server = Server::start(config).unwrap();
    let mut peer = Peer::new(server.addresses()[0]);
    let results = peer.mount(Procedure::Export, &[]);
    let entries: Vec<_> = decoded::<export::Reply<'_>>(&results).iter().collect();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].directory, b"/export");
    assert!(entries[0].groups.iter().any(|group| group.name == b"127.0.0.0/8"));
    assert_eq!(peer.mnt(b"/other"), Err(Status::ACCES));
}
