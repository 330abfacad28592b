//! Tests files and directories, and the replies about them on the wire.

use crate::peer::{Peer, decoded, encoded, eventually, pattern, start, write_args};
use nfs3::proc::{self, create::How};
use nfs3::{DirOpArgs, FileType, Outcome, Procedure, Sattr3, Status, WccData};
use rpc::reply::{Accept, Body};

#[test]
fn data_of_every_size_are_read_back_as_written() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    // Lengths below and above the one from which data are received in place, and odd ones for their
    // padding.
    for (index, len) in [1, 3, 4096, 16_383, 16_384, 65_537, 1_048_575, 1 << 20].into_iter().enumerate() {
        let file = peer.create(root, format!("file{index}").as_bytes()).object.unwrap();
        let data = pattern(len, index as u8);
        let written = peer.write(file, 5, &data).into_result().unwrap();
        assert_eq!(written.count as usize, len);
        let after = written.file.after.unwrap();
        assert_eq!(after.size, len as u64 + 5);
        assert_eq!(written.file.before.unwrap().size, 0);
        let (head, eof) = peer.read(file, 0, 5).unwrap();
        assert_eq!((head, eof), (vec![0; 5], false));
        let (read, eof) = peer.read(file, 5, 1 << 20).unwrap();
        assert!(read == data, "{len} bytes");
        assert!(eof);
    }
}

// RFC 1813 s3.3.7 and s3.3.19 (wtmax)
#[test]
fn a_write_above_the_largest_size_is_answered_short() {
    const LARGEST: usize = 1 << 20;
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    for (name, len) in [("a", LARGEST + 1), ("b", LARGEST + (64 << 10)), ("c", 2 << 20)] {
        let file = peer.create(root, name.as_bytes()).object.unwrap();
        let data = pattern(len, 3);
        let written = peer.write(file, 7, &data).into_result().unwrap();
        assert_eq!((written.count as usize, len > LARGEST), (LARGEST, true), "{name}");
        assert_eq!(written.file.after.unwrap().size, LARGEST as u64 + 7);
        let (read, eof) = peer.read(file, 7, 1 << 20).unwrap();
        assert!(eof && read == data[..LARGEST], "{name}");
    }
}

// RFC 1813 s2.6 (NFS3ERR_NAMETOOLONG), s5.1.5 (MNT3ERR_NAMETOOLONG)
#[test]
fn names_and_targets_of_any_length_are_too_long_and_no_garbage() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"file").object.unwrap();
    for len in [256, 4096, 4097, 60_000] {
        let name = vec![b'n'; len];
        let long = DirOpArgs { directory: root, name: &name };
        let short = DirOpArgs { directory: root, name: b"short" };
        let sattr = Sattr3::default();
        let calls = [
            (Procedure::Lookup, encoded(&proc::lookup::Args { what: long })),
            (Procedure::Create, encoded(&proc::create::Args { location: long, how: How::Unchecked(sattr) })),
            (Procedure::MkDir, encoded(&proc::mkdir::Args { location: long, attributes: sattr })),
            (
                Procedure::SymLink,
                encoded(&proc::symlink::Args { location: long, attributes: sattr, target: b"t" }),
            ),
            (Procedure::Remove, encoded(&proc::remove::Args { object: long })),
            (Procedure::RmDir, encoded(&proc::rmdir::Args { object: long })),
            (Procedure::Rename, encoded(&proc::rename::Args { from: long, to: short })),
            (
                Procedure::Rename,
                encoded(&proc::rename::Args { from: DirOpArgs { directory: root, name: b"file" }, to: long }),
            ),
            (Procedure::Link, encoded(&proc::link::Args { file, link: long })),
        ];
        for (procedure, args) in calls {
            let (body, results) = peer.call_any(nfs3::PROGRAM, 3, procedure as u32, &args);
            assert_eq!(body, Body::Accepted(Accept::Success), "{procedure:?} {len}");
            assert_eq!(results[..4], (Status::NAMETOOLONG.0).to_be_bytes(), "{procedure:?} {len}");
        }
    }
    for len in [4096, 60_000] {
        let target = vec![b't'; len];
        let location = DirOpArgs { directory: root, name: b"link" };
        let args = encoded(&proc::symlink::Args { location, attributes: Sattr3::default(), target: &target });
        let (body, results) = peer.call_any(nfs3::PROGRAM, 3, Procedure::SymLink as u32, &args);
        assert_eq!(body, Body::Accepted(Accept::Success), "{len}");
        assert_eq!(results[..4], (Status::NAMETOOLONG.0).to_be_bytes(), "{len}");
    }
    let path = [b"/export/".as_slice(), &[b'p'; 2000]].concat();
    assert_eq!(peer.mnt(&path), Err(Status::NAMETOOLONG));
}

#[test]
fn calls_sent_together_are_all_answered_in_one_connection() {
    let (server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    let data = pattern(100_000, 7);
    let mut stream = Vec::new();
    for xid in 1000..1040 {
        let args = write_args(file, u64::from(xid - 1000) * 100_000, &data);
        stream.extend(peer.record(xid, nfs3::PROGRAM, 3, 7, &args));
        stream.extend(peer.record(xid + 1000, nfs3::PROGRAM, 3, 0, &[]));
    }
    let mut sender = peer.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &stream).unwrap());
    let mut xids: Vec<u32> =
        (0..80).map(|_| u32::from_be_bytes(*peer.receive().first_chunk().unwrap())).collect();
    sending.join().unwrap();
    xids.sort_unstable();
    assert_eq!(xids, (1000..1040).chain(2000..2040).collect::<Vec<_>>());
    assert_eq!(peer.getattr(file).into_result().unwrap().attributes.size, 4_000_000);
    let statistics = server.statistics();
    let procedures = &statistics.nodes[0].procedures;
    assert_eq!(procedures.of("WRITE").unwrap().count, 40);
    assert_eq!(procedures.of("WRITE").unwrap().latency_ns.len(), 40);
    assert_eq!(procedures.of("NULL").unwrap().count, 40);
    // One that is handed from loop to loop is not counted for a moment.
    eventually("it is counted", || server.statistics().nodes[0].connections.len() == 1);
    assert!(procedures.of("WRITE").unwrap().received_bytes > 4_000_000);
}

#[test]
fn weak_cache_consistency_data_show_the_directory_before_and_after() {
    // RFC 1813 s2.6 (wcc_data)
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let first = peer.create(root, b"one");
    let before = first.directory.after.unwrap();
    let second = peer.create(root, b"two").directory;
    assert_eq!(second.before.unwrap().ctime, before.ctime);
    assert_eq!(second.before.unwrap().size, before.size);
    assert_eq!(second.after.unwrap(), peer.getattr(root).into_result().unwrap().attributes);
    // A failure carries these attributes too.
    let args = proc::remove::Args { object: DirOpArgs { directory: root, name: b"none" } };
    let results = peer.nfs(Procedure::Remove, &args);
    let Outcome::Fail(status, wcc): proc::remove::Reply = decoded(&results) else {
        panic!("removed nothing")
    };
    assert_eq!(status, Status::NOENT);
    assert_eq!(wcc.before.unwrap().ctime, wcc.after.unwrap().ctime);
}

#[test]
fn names_are_created_renamed_linked_and_looked_up() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let attributes = Sattr3 { mode: Some(0o755), ..Sattr3::default() };
    let args = proc::mkdir::Args { location: DirOpArgs { directory: root, name: b"dir" }, attributes };
    let results = peer.nfs(Procedure::MkDir, &args);
    let directory = decoded::<proc::mkdir::Reply>(&results).into_result().unwrap().object.unwrap();
    let file = peer.create(root, b"\xff\xfe").object.unwrap();

    let from = DirOpArgs { directory: root, name: b"\xff\xfe" };
    let to = DirOpArgs { directory, name: b"moved" };
    let results = peer.nfs(Procedure::Rename, &proc::rename::Args { from, to });
    let renamed = decoded::<proc::rename::Reply>(&results).into_result().unwrap();
    assert!(renamed.from.before.is_some() && renamed.to.after.is_some());
    assert_eq!(peer.lookup(directory, b"moved").into_result().unwrap().object, file);
    assert_eq!(peer.lookup(root, b"\xff\xfe").status(), Status::NOENT);
    assert_eq!(peer.lookup(directory, b"..").into_result().unwrap().object, root);

    let link = DirOpArgs { directory: root, name: b"hard" };
    let results = peer.nfs(Procedure::Link, &proc::link::Args { file, link });
    assert_eq!(decoded::<proc::link::Reply>(&results).into_result().unwrap().attributes.unwrap().nlink, 2);

    let args = proc::rmdir::Args { object: DirOpArgs { directory: root, name: b"dir" } };
    let results = peer.nfs(Procedure::RmDir, &args);
    assert_eq!(decoded::<proc::rmdir::Reply>(&results).status(), Status::NOTEMPTY);

    let location = DirOpArgs { directory: root, name: b"soft" };
    let args = proc::symlink::Args { location, attributes: Sattr3::default(), target: b"../\xf0where" };
    let results = peer.nfs(Procedure::SymLink, &args);
    let symlink = decoded::<proc::symlink::Reply>(&results).into_result().unwrap().object.unwrap();
    let results = peer.nfs(Procedure::ReadLink, &proc::readlink::Args { symlink });
    let read = decoded::<proc::readlink::Reply<'_>>(&results).into_result().unwrap();
    assert_eq!(read.target, b"../\xf0where");

    let location = DirOpArgs { directory: root, name: b"pipe" };
    let what = proc::mknod::What::Fifo(Sattr3::default());
    let results = peer.nfs(Procedure::MkNod, &proc::mknod::Args { location, what });
    let made = decoded::<proc::mknod::Reply>(&results).into_result().unwrap();
    assert_eq!(made.attributes.unwrap().file_type, FileType::Fifo);
}

#[test]
fn a_directory_is_listed_page_by_page_without_gaps() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    for index in 0..200 {
        peer.create(root, format!("name{index:03}").as_bytes());
    }
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let args = proc::readdir::Args { directory: root, cookie, verifier: [0; 8], count: 1024 };
        let results = peer.nfs(Procedure::ReadDir, &args);
        assert!(results.len() <= 1024 + 4);
        let listed = decoded::<proc::readdir::Reply<'_>>(&results).into_result().unwrap();
        for entry in listed.entries {
            names.push(entry.name.to_vec());
            cookie = entry.cookie;
        }
        if listed.eof {
            break;
        }
    }
    names.sort();
    assert_eq!(names.len(), 202);
    assert_eq!(names[0], b".");
    assert_eq!(names[201], b"name199");

    let args = proc::readdirplus::Args {
        directory: root,
        cookie: 0,
        verifier: [0; 8],
        dircount: 4096,
        maxcount: 65_536,
    };
    let results = peer.nfs(Procedure::ReadDirPlus, &args);
    let listed = decoded::<proc::readdirplus::Reply<'_>>(&results).into_result().unwrap();
    let entry = listed.entries.iter().find(|entry| entry.name == b"name199").unwrap();
    assert_eq!(entry.attributes.unwrap().fileid, entry.fileid);
    assert_eq!(peer.lookup(root, b"name199").into_result().unwrap().object, entry.handle.unwrap());
    // A reply that has no room for any entry is too small. RFC 1813 s3.3.16
    let args = proc::readdir::Args { directory: root, cookie: 0, verifier: [0; 8], count: 16 };
    let results = peer.nfs(Procedure::ReadDir, &args);
    assert_eq!(decoded::<proc::readdir::Reply<'_>>(&results).status(), Status::TOOSMALL);
}

#[test]
fn exclusive_create_and_guarded_setattr_keep_their_guarantees() {
    // RFC 1813 s3.3.8, s3.3.2
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let mut exclusive = |verifier: [u8; 8]| {
        let location = DirOpArgs { directory: root, name: b"only" };
        let results =
            peer.nfs(Procedure::Create, &proc::create::Args { location, how: How::Exclusive(verifier) });
        decoded::<proc::create::Reply>(&results)
    };
    let made = exclusive([1; 8]).into_result().unwrap().object.unwrap();
    assert_eq!(exclusive([1; 8]).into_result().unwrap().object, Some(made));
    assert_eq!(exclusive([2; 8]).status(), Status::EXIST);

    let ctime = peer.getattr(made).into_result().unwrap().attributes.ctime;
    let new_attributes = Sattr3 { size: Some(100), mode: Some(0o100_600), ..Sattr3::default() };
    let wrong = nfs3::NfsTime { seconds: 1, nanoseconds: 1 };
    let mut setattr = |guard| {
        let results =
            peer.nfs(Procedure::SetAttr, &proc::setattr::Args { object: made, new_attributes, guard });
        decoded::<proc::setattr::Reply>(&results)
    };
    assert_eq!(setattr(Some(wrong)).status(), Status::NOT_SYNC);
    let set: WccData = setattr(Some(ctime)).into_result().unwrap();
    assert_eq!(set.before.unwrap().ctime, ctime);
    assert_eq!((set.after.unwrap().size, set.after.unwrap().mode), (100, 0o600));
}

#[test]
fn limits_and_space_are_reported_as_configured() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let results = peer.nfs(Procedure::FsInfo, &proc::fsinfo::Args { root });
    let info = decoded::<proc::fsinfo::Reply>(&results).into_result().unwrap();
    assert_eq!((info.read_max, info.write_max, info.directory_preferred), (1 << 20, 1 << 20, 64 << 10));
    assert_eq!(info.properties, 0x1b);
    assert_eq!(info.file_bytes_max, i64::MAX as u64, "what the store says, not what the protocol can");
    let results = peer.nfs(Procedure::FsStat, &proc::fsstat::Args { root });
    let stat = decoded::<proc::fsstat::Reply>(&results).into_result().unwrap();
    assert_eq!(stat.total_bytes, 64 << 20);
    assert_eq!(stat.total_files - stat.free_files, 1, "the root alone");
    let results = peer.nfs(Procedure::PathConf, &proc::pathconf::Args { object: root });
    let conf = decoded::<proc::pathconf::Reply>(&results).into_result().unwrap();
    assert_eq!(conf.name_bytes_max, 255);
    let access = proc::access::Args { object: root, access: 0x3f };
    let results = peer.nfs(Procedure::Access, &access);
    let access = decoded::<proc::access::Reply>(&results).into_result().unwrap();
    assert_eq!(access.access & 0x1f, 0x1f);
    let file = peer.create(root, b"f").object.unwrap();
    let written = peer.write(file, 0, b"data").into_result().unwrap();
    let results = peer.nfs(Procedure::Commit, &proc::commit::Args { file, offset: 0, count: 0 });
    let committed = decoded::<proc::commit::Reply>(&results).into_result().unwrap();
    assert_eq!(committed.verifier, written.verifier);
}

#[test]
fn a_full_store_reports_no_space_and_still_serves_reads() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    let data = pattern(1 << 20, 1);
    let full = (0..80).find_map(|mib| match peer.write(file, mib << 20, &data) {
        Outcome::Ok(_) => None,
        Outcome::Fail(status, _) => Some(status),
    });
    assert_eq!(full, Some(Status::NOSPC));
    assert!(peer.read(file, 0, 1 << 20).unwrap().0 == data);
}
