//! What opens of version 4 deny to clients of version 3, which have none. RFC 8881 s9.7

use super::client::Client;
use super::stores::on_each;
use crate::peer::{Peer, decoded};
use nfs3::{DirOpArgs, Procedure, Sattr3, Status, proc};

fn set_size(peer: &mut Peer, object: nfs3::FileHandle, size: u64) -> Status {
    let new_attributes = Sattr3 { size: Some(size), ..Sattr3::default() };
    let args = proc::setattr::Args { object, new_attributes, guard: None };
    let results = peer.nfs(Procedure::SetAttr, &args);
    decoded::<proc::setattr::Reply>(&results).status()
}

fn set_mode(peer: &mut Peer, object: nfs3::FileHandle) -> Status {
    let new_attributes = Sattr3 { mode: Some(0o640), ..Sattr3::default() };
    let args = proc::setattr::Args { object, new_attributes, guard: None };
    let results = peer.nfs(Procedure::SetAttr, &args);
    decoded::<proc::setattr::Reply>(&results).status()
}

/// Opens for writing as version 3 does, with an empty file afterwards.
fn create(peer: &mut Peer, directory: nfs3::FileHandle, name: &[u8], size: Option<u64>) -> Status {
    let how = proc::create::How::Unchecked(Sattr3 { size, ..Sattr3::default() });
    let args = proc::create::Args { location: DirOpArgs { directory, name }, how };
    let results = peer.nfs(Procedure::Create, &args);
    decoded::<proc::create::Reply>(&results).status()
}

#[test]
fn version_3_keeps_to_what_is_denied() {
    on_each(|address| {
        let (mut four, mut three) = (Client::new(address, "four"), Peer::new(address));
        let root = three.mnt(b"/export").unwrap();
        let file = three.create(root, b"file").object.unwrap();
        assert!(three.write(file, 0, b"before").into_result().is_ok());
        let denied = Status::ACCES;

        let (handle, open) = four.open("file", 1, 2).unwrap();
        let write = |three: &mut Peer| three.write(file, 0, b"later!").status();
        assert_eq!(write(&mut three), denied, "writing is denied");
        assert_eq!(set_size(&mut three, file, 0), denied);
        assert_eq!(create(&mut three, root, b"file", Some(0)), denied);
        assert_eq!(create(&mut three, root, b"file", None), Status::OK, "it is only opened");
        assert_eq!(create(&mut three, root, b"new", Some(0)), Status::OK);
        assert_eq!(set_mode(&mut three, file), Status::OK);
        assert_eq!(three.read(file, 0, 100), Ok((b"before".to_vec(), true)));
        let large = vec![7; 1 << 20];
        assert_eq!(three.write(file, 0, &large).status(), denied, "received in place");
        assert_eq!(four.close(handle, open), Status4::OK);

        let (handle, open) = four.open("file", 3, 1).unwrap();
        assert_eq!(three.read(file, 0, 100), Err(denied), "reading is denied");
        assert_eq!(write(&mut three), Status::OK);
        assert_eq!(four.close(handle, open), Status4::OK);
        assert_eq!(three.read(file, 0, 100), Ok((b"later!".to_vec(), true)));
        assert_eq!(create(&mut three, root, b"file", Some(0)), Status::OK);
        assert_eq!(three.read(file, 0, 100), Ok((Vec::new(), true)));
    });
}

use nfs4::Status as Status4;
