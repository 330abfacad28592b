//! Access to exports: admitted clients, their identities, and their handles.

use crate::peer::{Peer, config, credential, decoded, encoded};
use nfs3::mount::{Procedure as Mount, export};
use nfs3::{FileHandle, Outcome, Procedure, Status, proc};
use rpc::auth::AuthStat;
use rpc::reply::{Accept, Body, Reject};
use server::{Config, Server};
use std::net::SocketAddr;

fn serve(change: impl FnOnce(&mut Config)) -> (Server, SocketAddr) {
    let mut config = config();
    change(&mut config);
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

#[test]
fn a_client_that_is_not_admitted_learns_nothing() {
    let (_server, address) = serve(|config| config.exports[0].allow = vec!["192.0.2.0/24".parse().unwrap()]);
    let mut peer = Peer::new(address);
    assert_eq!(peer.mnt(b"/export"), Err(Status::ACCES));
    assert_eq!(peer.mnt(b"/none"), Err(Status::ACCES), "the same error for a path that does not exist");
    let results = peer.mount(Mount::Export, &[]);
    assert!(decoded::<export::Reply<'_>>(&results).is_empty());
    let handle = FileHandle::new(&[1; 32]).unwrap();
    assert_eq!(peer.getattr(handle).status(), Status::ACCES);
}

#[test]
fn a_secure_export_requires_a_privileged_port() {
    let (_server, address) = serve(|config| config.exports[0].secure = true);
    // This test's own port is above 1,023.
    assert_eq!(Peer::new(address).mnt(b"/export"), Err(Status::ACCES));
}

#[test]
fn forged_truncated_and_foreign_handles_are_refused() {
    let (_server, address) = serve(|config| {
        let mut other = config.exports[0].clone();
        (other.path, other.fsid) = ("/other".into(), 2);
        config.exports.push(other);
    });
    let mut peer = Peer::new(address);
    let (root, other) = (peer.mnt(b"/export").unwrap(), peer.mnt(b"/other").unwrap());
    let mut status = |bytes: &[u8]| peer.getattr(FileHandle::new(bytes).unwrap()).status();
    assert_eq!(status(root.as_slice()), Status::OK);
    assert_eq!(status(&root.as_slice()[..31]), Status::BADHANDLE);
    assert_eq!(status(&[]), Status::BADHANDLE);
    assert_eq!(status(&[0xff; 64]), Status::BADHANDLE);
    let mut forged = root.as_slice().to_vec();
    forged[15] ^= 1;
    assert_eq!(status(&forged), Status::BADHANDLE);
    let mut moved = root.as_slice().to_vec();
    moved[..8].copy_from_slice(&other.as_slice()[..8]);
    assert_eq!(status(&moved), Status::BADHANDLE);
    let mut gone = root.as_slice().to_vec();
    gone[4..8].copy_from_slice(&77_u32.to_be_bytes());
    assert_eq!(status(&gone), Status::STALE, "a handle of an export that does not exist");
}

#[test]
fn a_rename_between_two_exports_is_refused() {
    let (_server, address) = serve(|config| {
        let mut other = config.exports[0].clone();
        (other.path, other.fsid) = ("/other".into(), 2);
        config.exports.push(other);
    });
    let mut peer = Peer::new(address);
    let (root, other) = (peer.mnt(b"/export").unwrap(), peer.mnt(b"/other").unwrap());
    peer.create(root, b"f");
    let from = nfs3::DirOpArgs { directory: root, name: b"f" };
    let to = nfs3::DirOpArgs { directory: other, name: b"f" };
    let results = peer.nfs(Procedure::Rename, &proc::rename::Args { from, to });
    assert_eq!(decoded::<proc::rename::Reply>(&results).status(), Status::XDEV);
}

#[test]
fn a_read_only_export_refuses_changes_and_can_be_searched() {
    let (_server, address) = serve(|config| config.exports[0].read_only = true);
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let how = proc::create::How::Guarded(nfs3::Sattr3::default());
    let location = nfs3::DirOpArgs { directory: root, name: b"f" };
    let results = peer.nfs(Procedure::Create, &proc::create::Args { location, how });
    assert_eq!(decoded::<proc::create::Reply>(&results).status(), Status::ROFS);
    assert_eq!(peer.write(root, 0, &[7; 20_000]).status(), Status::ROFS);
    let results = peer.nfs(Procedure::Access, &proc::access::Args { object: root, access: 0x3f });
    let access = decoded::<proc::access::Reply>(&results).into_result().unwrap().access;
    assert_eq!(access & (proc::access::MODIFY | proc::access::EXTEND | proc::access::DELETE), 0);
    assert_ne!(access & proc::access::LOOKUP, 0);
}

#[test]
fn root_is_squashed_to_the_owner_of_a_quick_export() {
    let (_server, address) = serve(|config| {
        config.exports[0].root_squash = true;
        (config.exports[0].anonuid, config.exports[0].anongid) = (1234, 123);
        config.exports[0].store =
            server::StoreConfig::Mem { bytes: 1 << 20, owner_uid: 1234, owner_gid: 123 };
    });
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let made = peer.create(root, b"f").attributes.unwrap();
    assert_eq!((made.uid, made.gid), (1234, 123));
    // A user may not write into a directory of another user.
    let mut other = Peer::with_credential(address, credential(1, b"test", 1000, 100));
    let how = proc::create::How::Guarded(nfs3::Sattr3::default());
    let location = nfs3::DirOpArgs { directory: root, name: b"g" };
    let results = other.nfs(Procedure::Create, &proc::create::Args { location, how });
    assert_eq!(decoded::<proc::create::Reply>(&results).status(), Status::ACCES);
}

#[test]
fn auth_none_may_mount_and_may_use_files_only_when_all_are_squashed() {
    let none = vec![0; 8];
    let (_server, address) = serve(|_| {});
    let mut peer = Peer::with_credential(address, none.clone());
    let object = peer.mnt(b"/export").unwrap();
    let args = encoded(&proc::getattr::Args { object });
    let (body, _) = peer.call_any(nfs3::PROGRAM, 3, 1, &args);
    assert_eq!(body, Body::Rejected(Reject::Auth(AuthStat::TOOWEAK)));
    let (body, _) = peer.call_any(nfs3::PROGRAM, 3, 0, &[]);
    assert_eq!(body, Body::Accepted(Accept::Success), "NULL is always answered");

    let (_server, address) = serve(|config| config.exports[0].all_squash = true);
    let mut peer = Peer::with_credential(address, none);
    let object = peer.mnt(b"/export").unwrap();
    assert!(matches!(peer.getattr(object), Outcome::Ok(_)));
}

/// The owner, as the server reports it, of a file that this user creates.
fn owner_of_what_is_made(address: SocketAddr, uid: u32, gid: u32) -> (u32, u32) {
    let mut peer = Peer::with_credential(address, credential(1, b"host", uid, gid));
    let root = peer.mnt(b"/export").unwrap();
    let name = format!("{uid}-{gid}");
    let made = peer.create(root, name.as_bytes()).attributes.unwrap();
    (made.uid, made.gid)
}

/// Sets the owner of the root directory to user 7.
fn open_to_all(config: &mut Config) {
    config.exports[0].store = server::StoreConfig::Mem { bytes: 1 << 20, owner_uid: 7, owner_gid: 7 };
}

#[test]
fn root_squash_maps_only_root_to_the_anonymous_user_of_the_export() {
    let (_server, address) = serve(|config| {
        open_to_all(config);
        let export = &mut config.exports[0];
        (export.root_squash, export.anonuid, export.anongid) = (true, 7, 8);
    });
    assert_eq!(owner_of_what_is_made(address, 0, 0), (7, 8));
    assert_eq!(owner_of_what_is_made(address, 7, 12), (7, 12), "other users are not squashed");
}

#[test]
fn all_squash_maps_every_user_to_the_anonymous_user_of_the_export() {
    let (_server, address) = serve(|config| {
        open_to_all(config);
        let export = &mut config.exports[0];
        (export.all_squash, export.anonuid, export.anongid) = (true, 7, 8);
    });
    for (uid, gid) in [(0, 0), (7, 12), (1000, 1000)] {
        assert_eq!(owner_of_what_is_made(address, uid, gid), (7, 8));
    }
}

#[test]
fn without_squashing_root_is_root() {
    let (_server, address) = serve(|config| config.exports[0].root_squash = false);
    assert_eq!(owner_of_what_is_made(address, 0, 0), (0, 0));
}

#[test]
fn the_fsid_of_the_configuration_identifies_the_file_system() {
    let (_server, address) = serve(|config| config.exports[0].fsid = 4711);
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    assert_eq!(peer.getattr(root).into_result().unwrap().attributes.fsid, 4711);
}
