//! COPY and CLONE. RFC 7862 s15.2, s15.13

use super::client::{Client, config_with_4, put, start_with};
use super::stores::{after_put, on_each, on_each_with, remove};
use crate::peer::pattern;
use fs::{FileHandle, Stability};
use nfs4::op::copy::{CloneArgs, NetLocation, Reply, Requirements};
use nfs4::op::{self, Args, kind};
use nfs4::{Array, Stateid, Status};
use server::StoreConfig;

const SAVE: Args<'static> = Args::SaveFh(());

/// A place in a file that is open.
type At = (FileHandle, Stateid, u64);

fn copy_args(source: (Stateid, u64), target: (Stateid, u64), count: u64) -> op::copy::Args<'static> {
    op::copy::Args {
        source: source.0,
        target: target.0,
        source_offset: source.1,
        target_offset: target.1,
        count,
        consecutive: true,
        synchronous: true,
        source_servers: Array::default(),
    }
}

impl Client {
    fn copy(&mut self, from: At, to: At, count: u64) -> Result<u64, Status> {
        let args = Args::Copy(copy_args((from.1, from.2), (to.1, to.2), count));
        let commit = Args::Commit(op::commit::Args { offset: 0, count: 0 });
        // As Linux does.
        let results = self.send(|out| {
            out.push(&put(from.0)).push(&SAVE).push(&put(to.0)).push(&args).push(&commit);
        });
        let mut reader = after_put(&results);
        reader.expect::<kind::SaveFh>().unwrap().unwrap();
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        match reader.expect::<kind::Copy>().unwrap() {
            Reply::Done(written, how) => {
                assert_eq!(how, Requirements { consecutive: true, synchronous: true });
                assert_eq!((written.callback_id, written.committed), (None, Stability::Unstable));
                let committed = reader.expect::<kind::Commit>().unwrap().unwrap();
                assert_eq!(committed.verifier, written.verifier);
                Ok(written.count)
            }
            other => Err(other.status()),
        }
    }

    fn clone_range(&mut self, from: At, to: At, count: u64) -> Status {
        let (source, target) = (from.1, to.1);
        let (source_offset, target_offset) = (from.2, to.2);
        let args = Args::Clone(CloneArgs { source, target, source_offset, target_offset, count });
        self.run(|out| _ = out.push(&put(from.0)).push(&SAVE).push(&put(to.0)).push(&args))
    }

    fn content(&mut self, file: FileHandle) -> Vec<u8> {
        self.read(file, Stateid::ANONYMOUS, 0, 1 << 20).unwrap().0
    }
}

// RFC 7862 s15.2.3
#[test]
fn a_copy_moves_a_range_within_an_export_and_to_another() {
    on_each(|address| {
        let mut client = Client::new(address, "copy");
        let (from, reading) = client.open_in("export", "source", 3);
        let data = pattern(300_001, 3);
        assert_eq!(client.write(from, reading, 0, &data), Ok(300_001));
        for export in ["export", "other"] {
            let (to, writing) = client.open_in(export, "target", 3);
            assert_eq!(client.copy((from, reading, 0), (to, writing, 0), 0), Ok(300_001), "to the end");
            assert!(client.content(to) == data, "{export}");
            assert_eq!(client.copy((from, reading, 100), (to, writing, 400_000), 50), Ok(50));
            assert_eq!(client.size(to), 400_050);
            let copied = client.read(to, writing, 400_000, 100).unwrap();
            assert_eq!(copied, (data[100..150].to_vec(), true));
            assert_eq!(client.copy((from, reading, 300_001), (to, writing, 0), 0), Ok(0), "nothing is left");
            assert_eq!(client.copy((from, reading, 0), (to, Stateid::ANONYMOUS, 7), 10), Ok(10));
            assert_eq!(client.copy((from, Stateid::ANONYMOUS, 0), (to, writing, 7), 10), Ok(10));
        }
        // Within one file, without an overlap.
        assert_eq!(client.copy((from, reading, 0), (from, reading, 300_001), 300_001), Ok(300_001));
        assert!(client.content(from) == [data.clone(), data].concat());
    });
}

/// More than a call copies is for the next call.
#[test]
fn a_long_copy_ends_early() {
    on_each(|address| {
        let mut client = Client::new(address, "long");
        for export in ["export", "other"] {
            let (from, reading) = client.open_in("export", "source", 3);
            assert_eq!(client.set_size(from, reading, 70 << 20), Status::OK);
            let (to, writing) = client.open_in(export, "target", 3);
            assert_eq!(client.copy((from, reading, 0), (to, writing, 0), 0), Ok(64 << 20));
            assert_eq!(client.copy((from, reading, 64 << 20), (to, writing, 64 << 20), 0), Ok(6 << 20));
            assert_eq!(client.size(to), 70 << 20);
            let root = client.walk(&[export]).unwrap();
            assert_eq!(client.on(root, &remove("target")), Status::OK);
            assert_eq!(client.close(to, writing), Status::OK);
        }
    });
}

/// Copies of one compound take no longer than one copy.
#[test]
fn many_copies_of_one_compound_are_bounded_together() {
    on_each(|address| {
        let mut client = Client::new(address, "many");
        let (from, reading) = client.open_in("export", "source", 3);
        assert_eq!(client.set_size(from, reading, 40 << 20), Status::OK);
        let (to, writing) = client.open_in("other", "target", 3);
        let copy = |at| Args::Copy(copy_args((reading, 0), (writing, at), 0));
        let results = client.send(|out| {
            out.push(&put(from)).push(&SAVE).push(&put(to));
            for number in 0..3 {
                out.push(&copy(number * (40 << 20)));
            }
        });
        let mut reader = after_put(&results);
        reader.expect::<kind::SaveFh>().unwrap().unwrap();
        reader.expect::<kind::PutFh>().unwrap().unwrap();
        let copied = [(); 3].map(|()| match reader.expect::<kind::Copy>().unwrap() {
            Reply::Done(written, _) => Ok(written.count),
            other => Err(other.status()),
        });
        assert_eq!(copied, [Ok(40 << 20), Ok(24 << 20), Err(Status::DELAY)]);
    });
}

#[test]
fn what_cannot_be_copied_is_refused() {
    on_each(|address| {
        let mut client = Client::new(address, "refused");
        let (from, reading) = client.open_in("export", "source", 3);
        assert_eq!(client.write(from, reading, 0, &[1; 1000]), Ok(1000));
        for export in ["export", "other"] {
            let (to, writing) = client.open_in(export, "target", 3);
            let mut refused = |from: At, to: At, count| client.copy(from, to, count).unwrap_err();
            assert_eq!(refused((from, reading, 1001), (to, writing, 0), 0), Status::INVAL);
            assert_eq!(refused((from, reading, 0), (to, writing, 0), 1001), Status::INVAL);
            assert_eq!(refused((from, reading, u64::MAX), (to, writing, 0), 1), Status::INVAL);
            assert_eq!(refused((from, reading, 1), (to, writing, 0), u64::MAX), Status::INVAL);
            assert_eq!(refused((from, reading, 0), (to, writing, u64::MAX), 10), Status::FBIG);
            let unknown = Stateid { seqid: 1, other: [9; 12] };
            assert_eq!(refused((from, unknown, 0), (to, writing, 0), 0), Status::BAD_STATEID);
            assert_eq!(refused((from, reading, 0), (to, unknown, 0), 0), Status::BAD_STATEID);
            // A state of the other file.
            assert_eq!(refused((from, writing, 0), (to, writing, 0), 0), Status::BAD_STATEID);
            let root = client.walk(&[export]).unwrap();
            let directory = (root, Stateid::ANONYMOUS, 0);
            assert_eq!(client.copy((from, reading, 0), directory, 0), Err(Status::ISDIR));
            assert_eq!(client.copy(directory, (to, writing, 0), 0), Err(Status::ISDIR));
            assert_eq!(client.clone_range(directory, (to, writing, 0), 0), Status::ISDIR);
            assert_eq!(client.size(to), 0, "nothing was written");
        }
        let same = |offset| (from, reading, offset);
        assert_eq!(client.copy(same(0), same(999), 1000), Err(Status::INVAL), "they overlap");
        let args = copy_args((reading, 0), (reading, 0), 0);
        assert_eq!(client.on(from, &Args::Copy(args)), Status::NOFILEHANDLE, "none is saved");
        let servers = [NetLocation::Name(b"elsewhere")];
        let args = op::copy::Args { source_servers: Array::from(&servers), ..args };
        let status =
            client.run(|to| _ = to.push(&put(from)).push(&SAVE).push(&put(from)).push(&Args::Copy(args)));
        assert_eq!(status, Status::NOTSUPP);
        let root =
            [Args::PutRootFh(()), SAVE, put(from), Args::Copy(copy_args((reading, 0), (reading, 0), 0))];
        assert_eq!(client.run(|to| root.iter().for_each(|args| _ = to.push(args))), Status::ISDIR);
    });
}

#[test]
fn a_copy_needs_the_rights_to_read_and_to_write() {
    on_each_with(
        |config| config.exports[1].read_only = true,
        |address| {
            let (mut root, mut user) = (Client::new(address, "root"), Client::of_user(address, "user", 1000));
            let (from, reading) = root.open_in("export", "source", 3);
            assert_eq!(root.write(from, reading, 0, &[1; 1000]), Ok(1000));
            let (to, writing) = root.open_in("export", "target", 3);
            let anonymous = |file| (file, Stateid::ANONYMOUS, 0);
            assert_eq!(user.copy(anonymous(from), anonymous(to), 0), Err(Status::ACCESS), "it may not write");
            root.set_mode(to, 0o666);
            assert_eq!(user.copy(anonymous(from), anonymous(to), 0), Ok(1000));
            root.set_mode(from, 0o600);
            assert_eq!(user.copy(anonymous(from), anonymous(to), 0), Err(Status::ACCESS), "it may not read");
            let only = root.open_in("export", "only read", 1);
            assert_eq!(root.copy((from, reading, 0), (only.0, only.1, 0), 0), Err(Status::OPENMODE));
            let other = root.walk(&["other"]).unwrap();
            assert_eq!(root.copy((from, reading, 0), anonymous(other), 0), Err(Status::ROFS));
            assert_eq!(root.clone_range((from, reading, 0), anonymous(other), 0), Status::ROFS);
            // Another open denies reading.
            assert_eq!(root.close(from, reading), Status::OK);
            let denying = root.open_handle(from, 1, 1).unwrap();
            let mut third = Client::new(address, "third");
            assert_eq!(third.copy(anonymous(from), anonymous(to), 0), Err(Status::LOCKED));
            assert_eq!(root.copy((from, denying, 0), (to, writing, 0), 0), Ok(1000));
        },
    );
}

// RFC 7862 s15.13.3
#[test]
fn a_clone_is_made_where_the_file_system_can() {
    on_each(|address| {
        let mut client = Client::new(address, "clone");
        let (from, reading) = client.open_in("export", "source", 3);
        let data = pattern(1 << 16, 3);
        assert_eq!(client.write(from, reading, 0, &data), Ok(1 << 16));
        let (to, writing) = client.open_in("export", "target", 3);
        let block = client.attributes(from, &[77]).unwrap().clone_blksize.unwrap();
        let cloned = client.clone_range((from, reading, 0), (to, writing, 0), 0);
        if block == 0 {
            assert_eq!(cloned, Status::NOTSUPP);
        } else {
            assert_eq!(cloned, Status::OK);
            assert!(client.content(to) == data);
            assert_eq!(client.clone_range((from, reading, 1), (to, writing, 0), block.into()), Status::INVAL);
        }
        let (away, elsewhere) = client.open_in("other", "target", 3);
        assert_eq!(client.clone_range((from, reading, 0), (away, elsewhere, 0), 0), Status::XDEV);
        let unknown = Stateid { seqid: 1, other: [9; 12] };
        assert_eq!(client.clone_range((from, unknown, 0), (to, writing, 0), 0), Status::BAD_STATEID);
    });
}

// RFC 7862 s13
#[test]
fn there_is_no_copy_under_way_to_ask_for() {
    on_each(|address| {
        let mut client = Client::new(address, "offload");
        let (file, copy) = client.open("file", 3, 0).unwrap();
        let status = Args::OffloadStatus(op::offload::StatusArgs { copy });
        let cancel = Args::OffloadCancel(op::offload::CancelArgs { copy });
        assert_eq!([client.on(file, &status), client.on(file, &cancel)], [Status::NOTSUPP; 2]);
    });
}

// RFC 7862 s15.2.3
#[test]
fn a_copy_within_a_file_that_two_exports_have_may_not_overlap() {
    let homes: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut config = config_with_4();
    let mut other = config.exports[0].clone();
    other.path = "/other".to_owned();
    other.fsid += 1;
    config.exports.push(other);
    for (export, state) in config.exports.iter_mut().zip(&homes[1..]) {
        export.store = StoreConfig::Dir {
            path: homes[0].path().to_owned(),
            state: Some(state.path().to_owned()),
            server_groups: false,
        };
    }
    let (_server, address) = start_with(config);
    let mut client = Client::new(address, "twice");
    let (one, first) = client.open_in("export", "file", 3);
    let data = pattern(3000, 3);
    assert_eq!(client.write(one, first, 0, &data), Ok(3000));
    let (other, second) = client.open_in("other", "file", 3);
    assert_ne!(one, other);
    for (from, to, count) in [(0, 1, 1000), (1, 0, 1000), (0, 999, 1000), (0, 0, 0)] {
        let copied = client.copy((one, first, from), (other, second, to), count);
        assert_eq!(copied, Err(Status::INVAL), "{from} {to} {count}");
    }
    assert!(client.content(one) == data);
    assert_eq!(client.copy((one, first, 0), (other, second, 1000), 1000), Ok(1000));
    let copied = client.content(other);
    assert!(copied == [&data[..1000], &data[..1000], &data[2000..]].concat());
    // Another file may be given the same ranges.
    let (third, writing) = client.open_in("other", "third", 3);
    assert_eq!(client.copy((one, first, 0), (third, writing, 0), 0), Ok(3000));
}
