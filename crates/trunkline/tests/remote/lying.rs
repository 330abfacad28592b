//! A server that lies: its trees contain themselves or have no end, its files end where they do
//! not.
use nfs3::proc::{fsinfo, getattr, lookup, read, readdirplus, remove};
use nfs3::{Fattr3, FileHandle, FileType, NfsTime, Outcome, PostOpAttr, Procedure, SpecData, Status, Wire};
use rpc::Xid;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xdr::{Reader, Writer};

/// The length of every file.
pub(crate) const FILE_BYTES: u64 = 100;

/// What the server lies about. Its root has a file `f` and a directory `sub` with a file `g`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// `sub` contains the root as `up`.
    ContainsParent,
    /// `sub` contains itself as `me`.
    ContainsItself,
    /// `sub` contains a new directory, and so does that one, without end.
    Endless,
    /// READ returns no bytes and no end of the file.
    ReadsNothing,
    /// READ returns half of the file and its end.
    EndsEarly,
    /// The root is a file.
    RootIsFile,
}

/// The server. It runs until the test program ends.
#[derive(Debug)]
pub(crate) struct LyingServer {
    port: u16,
    removed: Arc<AtomicU64>,
}

impl LyingServer {
    pub(crate) fn start(lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let removed = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&removed);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || serve(lie, stream.unwrap(), &counted));
            }
        });
        Self { port, removed }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1:{}/export{path}", self.port)
    }

    /// How many files and directories were removed.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::SeqCst)
    }
}

/// Answers the calls of one connection until it ends.
fn serve(lie: Lie, mut stream: TcpStream, removed: &AtomicU64) {
    stream.set_nodelay(true).unwrap();
    let mut mark = [0; 4];
    while stream.read_exact(&mut mark).is_ok() {
        let mut record = vec![0; rpc::record_marking::Mark::decode(mark).len as usize];
        if stream.read_exact(&mut record).is_err() {
            return;
        }
        let mut reader = Reader::new(&record);
        let head = rpc::call::decode(&mut reader).unwrap();
        let results = if head.program == nfs3::mount::PROGRAM {
            mount_answer(head.procedure)
        } else {
            answer(lie, Procedure::try_from(head.procedure).unwrap(), reader.rest(), removed)
        };
        let mut out = vec![0; 4];
        rpc::reply::encode_success(&mut Writer::new(&mut out), Xid(head.xid.0));
        out.extend_from_slice(&results);
        let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
        out[..4].copy_from_slice(&mark.encode());
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}

fn encoded<'a>(value: &impl Wire<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut Writer::new(&mut out));
    out
}

fn mount_answer(procedure: u32) -> Vec<u8> {
    use nfs3::mount::{Procedure, export, mnt};
    match Procedure::try_from(procedure).unwrap() {
        Procedure::Mnt => {
            let success = mnt::Success { root: handle("root"), flavors: [1].into_iter().collect() };
            encoded(&mnt::Reply::Ok(success))
        }
        Procedure::Export => {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out);
            let mut exports = export::ReplyWriter::new(&mut writer);
            exports.add(b"/export", []);
            exports.finish();
            out
        }
        _ => Vec::new(),
    }
}

fn handle(name: &str) -> FileHandle {
    FileHandle::new(name.as_bytes()).unwrap()
}

fn answer(lie: Lie, procedure: Procedure, args: &[u8], removed: &AtomicU64) -> Vec<u8> {
    let reader = &mut Reader::new(args);
    match procedure {
        Procedure::GetAttr => {
            let object = getattr::Args::decode(reader).unwrap().object;
            encoded(&getattr::Reply::Ok(getattr::Success { attributes: attributes(lie, &object) }))
        }
        Procedure::FsInfo => fsinfo_answer(),
        Procedure::Lookup => {
            let what = lookup::Args::decode(reader).unwrap().what;
            let found =
                entries(lie, &what.directory).into_iter().find(|(name, _)| name.as_bytes() == what.name);
            match found {
                Some((_, object)) => encoded(&lookup::Reply::Ok(lookup::Success {
                    object,
                    attributes: Some(attributes(lie, &object)),
                    directory: None,
                })),
                None => encoded(&lookup::Reply::Fail(Status::NOENT, None)),
            }
        }
        Procedure::Read => {
            let asked = read::Args::decode(reader).unwrap();
            let end = if lie == Lie::EndsEarly { FILE_BYTES / 2 } else { FILE_BYTES };
            let left = end.saturating_sub(asked.offset).min(u64::from(asked.count));
            let count = if lie == Lie::ReadsNothing { 0 } else { u32::try_from(left).unwrap() };
            let eof = lie != Lie::ReadsNothing && asked.offset + u64::from(count) >= end;
            let mut results = encoded(&read::Reply::Ok(read::ReplyHead { attributes: None, count, eof }));
            results.resize(results.len() + count.next_multiple_of(4) as usize, 0);
            results
        }
        Procedure::ReadDirPlus => {
            let asked = readdirplus::Args::decode(reader).unwrap();
            listing(lie, &asked.directory)
        }
        Procedure::Remove | Procedure::RmDir => {
            removed.fetch_add(1, Ordering::SeqCst);
            encoded(&remove::Reply::Ok(Default::default()))
        }
        Procedure::Null => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// What a directory contains.
fn entries(lie: Lie, directory: &FileHandle) -> Vec<(&'static str, FileHandle)> {
    let inner = match lie {
        Lie::ContainsParent => Some(("up", handle("root"))),
        Lie::ContainsItself => Some(("me", *directory)),
        Lie::Endless => {
            let text = std::str::from_utf8(directory.as_slice()).unwrap();
            let number: u32 = text.strip_prefix("sub").and_then(|number| number.parse().ok()).unwrap_or(0);
            Some(("deeper", handle(&format!("sub{}", number + 1))))
        }
        _ => None,
    };
    if directory.as_slice() == b"root" {
        vec![("f", handle("f")), ("sub", handle("sub0"))]
    } else {
        [("g", handle("g"))].into_iter().chain(inner).collect()
    }
}

fn listing(lie: Lie, directory: &FileHandle) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.u32(0);
    PostOpAttr::None.encode(&mut writer);
    writer.bytes(&[0; 8]);
    let entries = entries(lie, directory).into_iter().enumerate();
    let entries = entries.map(|(index, (name, object))| readdirplus::Entry {
        fileid: attributes(lie, &object).fileid,
        name: name.as_bytes(),
        cookie: index as u64 + 1,
        attributes: Some(attributes(lie, &object)),
        handle: Some(object),
    });
    nfs3::List::encode_items(entries, &mut writer);
    writer.bool(true);
    out
}

fn attributes(lie: Lie, object: &FileHandle) -> Fattr3 {
    let time = NfsTime { seconds: 1, nanoseconds: 0 };
    let is_file = object.as_slice().len() == 1 || lie == Lie::RootIsFile;
    Fattr3 {
        file_type: if is_file { FileType::Regular } else { FileType::Directory },
        mode: if is_file { 0o644 } else { 0o755 },
        nlink: 1,
        uid: 0,
        gid: 0,
        size: FILE_BYTES,
        used: 4096,
        rdev: SpecData { major: 0, minor: 0 },
        fsid: 7,
        // Directories share their number: only their handles tell them apart.
        fileid: if is_file { u64::from(object.as_slice()[0]) } else { 1 },
        atime: time,
        mtime: time,
        ctime: time,
    }
}

fn fsinfo_answer() -> Vec<u8> {
    encoded(&Outcome::<_, PostOpAttr>::Ok(fsinfo::Success {
        attributes: None,
        read_max: 1 << 20,
        read_preferred: 1 << 20,
        read_multiple: 4096,
        write_max: 1 << 20,
        write_preferred: 1 << 20,
        write_multiple: 4096,
        directory_preferred: 4096,
        file_bytes_max: u64::MAX,
        time_delta: NfsTime { seconds: 0, nanoseconds: 1 },
        properties: 0x1b,
    }))
}
