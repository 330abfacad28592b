//! Files that are removed while they are open. RFC 8881 s18.25.4

use super::client::{Client, call, config_with_4, create_session, encoded, exchange_id, lookup, put};
use super::latched::{Latch, Latched};
use super::stores::{on_each, on_each_with, remove};
use crate::peer::{Peer, credential, eventually};
use nfs4::Status;
use nfs4::compound::ReplyReader;
use nfs4::op::{self, Args, Fore, kind};
use server::Server;
use std::net::SocketAddr;
use std::time::Duration;

/// Whether a file is still there for somebody who has it not open.
fn is_there(client: &mut Client, file: fs::FileHandle) -> bool {
    match client.attributes(file, &[35]) {
        Ok(attributes) => {
            assert_eq!(attributes.numlinks, Some(0));
            true
        }
        Err(status) => {
            assert_eq!(status, Status::STALE);
            false
        }
    }
}

#[test]
fn a_file_lives_on_until_all_have_closed_it() {
    on_each(|address| {
        let (mut one, mut other) = (Client::new(address, "one"), Client::new(address, "other"));
        let mut third = Client::new(address, "third");
        let (file, first) = one.open("file", 3, 0).unwrap();
        assert_eq!(one.write(file, first, 0, b"before"), Ok(6));
        let second = other.open_handle(file, 1, 0).unwrap();
        let export = third.export();
        assert_eq!(third.on(export, &remove("file")), Status::OK);
        assert_eq!(third.walk(&["export", "file"]), Err(Status::NOENT));
        assert!(is_there(&mut third, file));
        assert_eq!(one.write(file, first, 6, b", after"), Ok(7));
        assert_eq!(other.read(file, second, 0, 100), Ok((b"before, after".to_vec(), true)));
        assert_eq!(one.set_size(file, first, 6), Status::OK);
        // A new file of the name is another one.
        let (fresh, opened) = third.open("file", 3, 0).unwrap();
        assert_ne!(fresh, file);
        assert_eq!(third.read(fresh, opened, 0, 100), Ok((Vec::new(), true)));
        // It can be opened by its handle while it lives.
        let again = one.open_handle(file, 1, 0).unwrap();
        assert_eq!(one.close(file, again), Status::OK);
        assert_eq!(other.read(file, second, 0, 100), Ok((b"before".to_vec(), true)));
        assert_eq!(other.close(file, second), Status::OK);
        assert!(!is_there(&mut third, file));
        assert_eq!(other.open_handle(file, 1, 0), Err(Status::STALE));
        assert_eq!(third.close(fresh, opened), Status::OK);
    });
}

/// A client that renames a file over one that it has open closes that one afterwards.
#[test]
fn a_file_that_was_replaced_can_be_used_and_closed() {
    on_each(|address| {
        let mut client = Client::new(address, "replace");
        let (old, open) = client.open("old", 3, 0).unwrap();
        assert_eq!(client.write(old, open, 0, b"old"), Ok(3));
        let (new, opened) = client.open("new", 3, 0).unwrap();
        let export = client.export();
        let rename = Args::Rename(op::link::RenameArgs { old: b"new", new: b"old" });
        let status = client.run(|to| {
            to.push(&put(export)).push(&Args::SaveFh(())).push(&put(export)).push(&rename);
        });
        assert_eq!(status, Status::OK);
        assert_eq!(client.read(old, open, 0, 10), Ok((b"old".to_vec(), true)));
        assert_eq!(client.close(old, open), Status::OK);
        assert!(!is_there(&mut client, old));
        assert_eq!(client.close(new, opened), Status::OK);
        assert_eq!(client.walk(&["export", "old"]), Ok(new));
    });
}

#[test]
fn an_open_that_is_refused_keeps_nothing() {
    on_each(|address| {
        let (mut one, mut other) = (Client::new(address, "one"), Client::new(address, "other"));
        let (file, open) = one.open("file", 3, 3).unwrap();
        assert_eq!(other.open_handle(file, 1, 0), Err(Status::SHARE_DENIED));
        let export = one.export();
        assert_eq!(one.on(export, &remove("file")), Status::OK);
        assert_eq!(other.open_handle(file, 1, 0), Err(Status::SHARE_DENIED));
        assert!(is_there(&mut other, file));
        assert_eq!(one.close(file, open), Status::OK);
        assert!(!is_there(&mut other, file));
        // An open in one compound with its close.
        let (file, open) = one.open("file", 3, 0).unwrap();
        assert_eq!(one.close(file, open), Status::OK);
        let status = one.run(|to| {
            to.push(&put(export)).push(&lookup("file")).push(&Args::SaveFh(())).push(&put(export));
            to.push(&remove("file")).push(&Args::RestoreFh(())).push(&Args::GetFh(()));
        });
        assert_eq!(status, Status::OK);
        assert_eq!(one.open_handle(file, 1, 0), Err(Status::STALE));
    });
}

/// A client that has restarted has closed nothing; its old state ends with its new id.
fn restart(address: SocketAddr, owner: &str) {
    let mut peer = Peer::with_credential(address, credential(1, owner.as_bytes(), 0, 0));
    let results = call(&mut peer, &encoded(2, |to| _ = to.push(&exchange_id(owner.as_bytes(), 2))));
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    let exchanged = reader.expect::<kind::ExchangeId>().unwrap().unwrap();
    let create = create_session(exchanged.client, exchanged.sequence, 8);
    let results = call(&mut peer, &encoded(2, |to| _ = to.push(&create)));
    let mut reader = ReplyReader::<Fore>::new(&results).unwrap();
    reader.expect::<kind::CreateSession>().unwrap().unwrap();
}

/// Nobody has to call for what is lost to be found.
#[test]
fn the_files_of_a_client_that_has_gone_are_released_without_any_call() {
    let latch = Latch::default();
    let server = Server::start_with(config_with_4(), |_| Some(Latched::new(&latch))).unwrap();
    let address = server.addresses()[0];
    let mut one = Client::new(address, "one");
    for name in ["a", "b", "c"] {
        one.open(name, 3, 0).unwrap();
    }
    let before = latch.done();
    restart(address, "one");
    drop(one);
    eventually("the files are released", || latch.done() == before + 3);
}

/// A store that does not answer keeps neither other calls waiting nor the end of the server.
#[test]
fn a_release_that_waits_for_its_store_holds_up_nobody() {
    let latch = Latch::default();
    let mut config = config_with_4();
    let mut other = config.exports[0].clone();
    other.path = "/other".to_owned();
    other.fsid += 1;
    config.exports.push(other);
    let own = |export: &server::ExportConfig| -> Option<Box<dyn store::Store>> {
        if export.path == "/export" { Some(Latched::new(&latch)) } else { None }
    };
    let server = Server::start_with(config, own).unwrap();
    let address = server.addresses()[0];
    let (mut one, mut other) = (Client::new(address, "one"), Client::new(address, "other"));
    for name in ["a", "b", "c"] {
        one.open(name, 3, 0).unwrap();
    }
    latch.close();
    let before = latch.done();
    restart(address, "one");
    eventually("a release waits", || latch.waiting() == 1);
    let (file, open) = other.open_in("other", "file", 3);
    assert_eq!(other.write(file, open, 0, b"data"), Ok(4));
    assert_eq!(other.close(file, open), Status::OK);
    drop(server);
    assert_eq!((latch.waiting(), latch.done()), (1, before));
    latch.open();
    eventually("the release ends", || latch.waiting() == 0);
    assert_eq!(latch.done(), before + 1, "the others are left");
}

#[test]
fn the_files_of_a_client_that_has_restarted_go() {
    on_each(|address| {
        let (mut one, mut other) = (Client::new(address, "one"), Client::new(address, "other"));
        let export = other.export();
        let mut files = Vec::new();
        for name in ["a", "b", "c"] {
            let (file, _) = one.open(name, 3, 0).unwrap();
            assert_eq!(other.on(export, &remove(name)), Status::OK);
            files.push(file);
        }
        let (kept, open) = other.open("kept", 3, 0).unwrap();
        assert_eq!(other.on(export, &remove("kept")), Status::OK);
        restart(address, "one");
        for file in files {
            eventually("the file goes", || !is_there(&mut other, file));
        }
        assert!(is_there(&mut other, kept));
        assert_eq!(other.close(kept, open), Status::OK);
        assert!(!is_there(&mut other, kept));
    });
}

/// A silent client loses its files once somebody needs what it denies.
#[test]
fn the_files_of_a_client_whose_lease_has_ended_go() {
    on_each_with(
        |config| config.lease = Duration::from_secs(5),
        |address| {
            let (mut silent, mut other) = (Client::new(address, "silent"), Client::new(address, "other"));
            let (denied, _) = silent.open("denied", 3, 3).unwrap();
            let (removed, _) = silent.open("removed", 3, 0).unwrap();
            let export = other.export();
            assert_eq!(other.on(export, &remove("removed")), Status::OK);
            assert!(is_there(&mut other, removed));
            let mut open = Err(Status::SHARE_DENIED);
            eventually("the lease ends", || {
                open = other.open_handle(denied, 1, 0);
                open.is_ok()
            });
            eventually("the file goes", || !is_there(&mut other, removed));
            assert_eq!(other.close(denied, open.unwrap()), Status::OK);
            assert_eq!(silent.run(|to| _ = to.push(&Args::PutRootFh(()))), Status::BADSESSION);
        },
    );
}
