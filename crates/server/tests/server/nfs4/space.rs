//! Holes, allocation and READ_PLUS. RFC 7862 s15.1, s15.4, s15.10, s15.11

use super::client::{Client, put};
use super::stores::{after_put, on_each, on_each_with};
use crate::peer::pattern;
use fs::FileHandle;
use nfs4::op::{self, Args, allocate, kind, read_plus, seek};
use nfs4::{Bitmap, Range, Stateid, Status};

const KIB: u64 = 1 << 10;
const BLOCK: u64 = 64 * KIB;

fn allocate(stateid: Stateid, offset: u64, length: u64) -> Args<'static> {
    Args::Allocate(allocate::Args { stateid, range: Range { offset, length } })
}

fn deallocate(stateid: Stateid, offset: u64, length: u64) -> Args<'static> {
    Args::Deallocate(allocate::Args { stateid, range: Range { offset, length } })
}

impl Client {
    fn seek(
        &mut self,
        file: FileHandle,
        stateid: Stateid,
        offset: u64,
        what: seek::What,
    ) -> Result<(u64, bool), Status> {
        let args = Args::Seek(seek::Args { stateid, offset, what });
        let results = self.send(|to| _ = to.push(&put(file)).push(&args));
        let found = after_put(&results).expect::<kind::Seek>().unwrap()?;
        Ok((found.offset, found.eof))
    }
}

use seek::What::{Data, Hole};

// RFC 7862 s15.11.3
#[test]
fn holes_are_found_made_and_filled() {
    on_each(|address| {
        let mut client = Client::new(address, "holes");
        let (file, open) = client.open("sparse", 3, 0).unwrap();
        assert_eq!(client.seek(file, open, 0, Data), Err(Status::NXIO), "an empty file");
        let data = pattern(BLOCK as usize, 3);
        for offset in [0, 4 * BLOCK] {
            assert_eq!(client.write(file, open, offset, &data), Ok(BLOCK as u32));
        }
        assert_eq!(client.seek(file, open, 0, Data), Ok((0, false)));
        assert_eq!(client.seek(file, open, 0, Hole), Ok((BLOCK, false)));
        assert_eq!(client.seek(file, open, BLOCK, Data), Ok((4 * BLOCK, false)));
        assert_eq!(client.seek(file, open, 4 * BLOCK, Hole), Ok((5 * BLOCK, true)));
        assert_eq!(client.seek(file, open, 5 * BLOCK, Data), Err(Status::NXIO));

        assert_eq!(client.on(file, &deallocate(open, 0, BLOCK)), Status::OK);
        assert_eq!(client.seek(file, open, 0, Data), Ok((4 * BLOCK, false)));
        assert_eq!(client.read(file, open, 0, BLOCK as u32), Ok((vec![0; BLOCK as usize], false)));
        assert_eq!(client.on(file, &deallocate(open, 4 * BLOCK, 100 * BLOCK)), Status::OK);
        assert_eq!(client.seek(file, open, 0, Data), Ok((5 * BLOCK, true)), "nothing is left");
        assert_eq!(client.size(file), 5 * BLOCK, "the size stays");
        assert_eq!(client.on(file, &allocate(open, 8 * BLOCK, BLOCK)), Status::OK);
        assert_eq!(client.size(file), 9 * BLOCK, "the size grows");
        assert_eq!(client.read(file, open, 8 * BLOCK, 10), Ok((vec![0; 10], false)));
    });
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    on_each(|address| {
        let mut client = Client::new(address, "ranges");
        let (file, open) = client.open("file", 3, 0).unwrap();
        assert_eq!(client.on(file, &allocate(open, 0, 0)), Status::INVAL);
        assert_eq!(client.on(file, &deallocate(open, 0, 0)), Status::INVAL);
        assert_eq!(client.on(file, &allocate(open, u64::MAX - 1, 1)), Status::FBIG);
        assert_eq!(client.on(file, &allocate(open, 1, u64::MAX)), Status::FBIG);
        assert_eq!(client.on(file, &deallocate(open, 1, u64::MAX)), Status::INVAL);
        assert_eq!(client.seek(file, open, u64::MAX, Data), Err(Status::NXIO));
        assert_eq!(client.size(file), 0);
        // More than there is.
        let much = allocate(open, 0, 1 << 50);
        assert!(matches!(client.on(file, &much), Status::NOSPC | Status::FBIG));
        assert_eq!(client.size(file), 0);
        let export = client.export();
        for args in [allocate(Stateid::ANONYMOUS, 0, 1), deallocate(Stateid::ANONYMOUS, 0, 1)] {
            assert_eq!(client.on(export, &args), Status::ISDIR);
            assert_eq!(client.run(|to| _ = to.push(&Args::PutRootFh(())).push(&args)), Status::ISDIR);
            assert_eq!(client.run(|to| _ = to.push(&args)), Status::NOFILEHANDLE);
        }
        assert_eq!(client.seek(export, Stateid::ANONYMOUS, 0, Hole), Err(Status::ISDIR));
    });
}

#[test]
fn space_is_checked_as_reads_and_writes_are() {
    on_each(|address| {
        let (mut one, mut other) = (Client::new(address, "one"), Client::of_user(address, "other", 1000));
        let (file, open) = one.open("file", 3, 0).unwrap();
        assert_eq!(one.write(file, open, 0, &[7; 4096]), Ok(4096));
        let reading = other.open_handle(file, 1, 0).unwrap();
        assert_eq!(other.on(file, &allocate(reading, 0, 1)), Status::OPENMODE);
        assert_eq!(other.on(file, &deallocate(reading, 0, 1)), Status::OPENMODE);
        assert_eq!(other.on(file, &allocate(Stateid::ANONYMOUS, 0, 1)), Status::ACCESS);
        assert_eq!(other.on(file, &deallocate(Stateid::ANONYMOUS, 0, 1)), Status::ACCESS);
        assert_eq!(other.seek(file, reading, 0, Data), Ok((0, false)));
        one.set_mode(file, 0o600);
        assert_eq!(other.seek(file, Stateid::ANONYMOUS, 0, Data), Err(Status::ACCESS));
        let unknown = Stateid { seqid: 1, other: [9; 12] };
        assert_eq!(one.on(file, &allocate(unknown, 0, 1)), Status::BAD_STATEID);
        assert_eq!(one.seek(file, unknown, 0, Data), Err(Status::BAD_STATEID));
        // Another open denies reading and writing.
        assert_eq!(other.close(file, reading), Status::OK);
        let (_, denying) = one.open("file", 3, 3).unwrap();
        let mut root = Client::new(address, "root");
        assert_eq!(root.on(file, &allocate(Stateid::ANONYMOUS, 0, 1)), Status::LOCKED);
        assert_eq!(root.on(file, &deallocate(Stateid::ANONYMOUS, 0, 1)), Status::LOCKED);
        assert_eq!(root.seek(file, Stateid::ANONYMOUS, 0, Data), Err(Status::LOCKED));
        assert_eq!(one.on(file, &allocate(denying, 0, 1)), Status::OK);
        assert_eq!(one.read(file, denying, 0, 4096), Ok((vec![7; 4096], true)), "as it was");
    });
}

#[test]
fn an_export_for_reading_gives_no_space() {
    on_each_with(
        |config| config.exports[0].read_only = true,
        |address| {
            let mut client = Client::new(address, "reader");
            let export = client.export();
            assert_eq!(client.on(export, &allocate(Stateid::ANONYMOUS, 0, 1)), Status::ROFS);
            assert_eq!(client.on(export, &deallocate(Stateid::ANONYMOUS, 0, 1)), Status::ROFS);
        },
    );
}

// RFC 7862 s15.5.3
#[test]
fn no_advice_is_heeded() {
    on_each(|address| {
        let mut client = Client::new(address, "advice");
        let (file, stateid) = client.open("file", 1, 0).unwrap();
        let range = Range { offset: 0, length: 0 };
        let advise =
            |stateid| Args::IoAdvise(op::io_advise::Args { stateid, range, hints: Bitmap::of(&[1, 4]) });
        let results = client.send(|to| _ = to.push(&put(file)).push(&advise(stateid)));
        let advised = after_put(&results).expect::<kind::IoAdvise>().unwrap().unwrap();
        assert_eq!(advised.hints, Bitmap::EMPTY);
        let unknown = Stateid { seqid: 1, other: [9; 12] };
        assert_eq!(client.on(file, &advise(unknown)), Status::BAD_STATEID);
        let export = client.export();
        assert_eq!(client.on(export, &advise(Stateid::ANONYMOUS)), Status::ISDIR);
    });
}

// RFC 7862 s15.10.3
#[test]
fn read_plus_returns_what_read_returns() {
    on_each(|address| {
        let mut client = Client::new(address, "plus");
        let (file, open) = client.open("file", 3, 0).unwrap();
        let data = pattern(100_001, 5);
        assert_eq!(client.write(file, open, 0, &data), Ok(100_001));
        let plus = |stateid, offset, count| Args::ReadPlus(read_plus::Args { stateid, offset, count });
        let mut read = |args: &Args<'_>, follows: bool| -> Result<(Vec<u8>, u64, bool), Status> {
            let results = client.send(|to| {
                to.push(&put(file)).push(args);
                if follows {
                    to.push(&Args::GetFh(()));
                }
            });
            let mut reader = after_put(&results);
            let read = reader.expect::<kind::ReadPlus>().unwrap()?;
            let segments: Vec<_> = read.segments.iter().collect();
            if follows {
                reader.expect::<kind::GetFh>().unwrap().unwrap();
            }
            reader.finish().unwrap();
            match segments[..] {
                [read_plus::Segment::Data { offset, bytes }] => Ok((bytes.to_vec(), offset, read.eof)),
                _ => panic!("{segments:?}"),
            }
        };
        for follows in [false, true] {
            let all = read(&plus(open, 0, 1 << 20), follows);
            assert_eq!(all, Ok((data.clone(), 0, true)));
            let some = read(&plus(open, 5, 70_003), follows);
            assert_eq!(some, Ok((data[5..70_008].to_vec(), 5, false)));
            assert_eq!(read(&plus(open, 200_000, 10), follows), Ok((Vec::new(), 200_000, true)));
            assert_eq!(read(&plus(Stateid::ANONYMOUS, 0, 0), follows), Ok((Vec::new(), 0, false)));
            let unknown = Stateid { seqid: 1, other: [9; 12] };
            assert_eq!(read(&plus(unknown, 0, 10), follows), Err(Status::BAD_STATEID));
        }
        let export = client.export();
        assert_eq!(client.on(export, &plus(Stateid::ANONYMOUS, 0, 10)), Status::ISDIR);
    });
}
