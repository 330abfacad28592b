//! Tests that a warm READ, WRITE or GETATTR makes no heap allocation, and one wake-up at depth 1.
//!
//! Counts cover the whole process, so this file has one test, whose own side sends bytes made
//! beforehand and receives into existing memory.

use drc::machine_name;
use nfs3::{Procedure, Wire, proc};
use rpc::Xid;
use rpc::auth::AuthSys;
use server::{Config, Server};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use xdr::{Reader, Writer};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything to the system's allocator; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROUNDS: u32 = 100;
/// The largest number of counts, of which two in a row must be zero.
const HALVES_MAX: u32 = 20;
const DEPTH: u32 = 32;

struct Peer {
    stream: TcpStream,
    credential: Vec<u8>,
    reply: Vec<u8>,
}

impl Peer {
    fn record(&self, xid: u32, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 4];
        rpc::call::encode(&mut Writer::new(&mut out), Xid(xid), program, 3, procedure, &self.credential);
        out.extend_from_slice(args);
        let mark = rpc::record_marking::Mark { last: true, len: out.len() as u32 - 4 };
        out[..4].copy_from_slice(&mark.encode());
        out
    }

    /// Receives a reply into existing memory, and returns its results.
    fn receive(&mut self) -> &[u8] {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let len = rpc::record_marking::Mark::decode(mark).len as usize;
        self.stream.read_exact(&mut self.reply[..len]).unwrap();
        &self.reply[rpc::reply::SUCCESS_BYTES..len]
    }

    fn exchange(&mut self, record: &[u8]) -> &[u8] {
        self.stream.write_all(record).unwrap();
        self.receive()
    }
}

fn encoded<'a>(args: &impl Wire<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    args.encode(&mut Writer::new(&mut out));
    out
}

#[test]
fn warm_calls_make_no_heap_allocation() {
    testkit::stay_on_one_cpu();
    let mut config = Config::quick(64 << 20, "/export", &["127.0.0.1:0".parse().unwrap()]);
    config.loops = Some(1);
    config.limits.stall_ms_max = 60_000;
    config.exports[0].root_squash = false;
    let server = Server::start(config).unwrap();
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut credential = Vec::new();
    let sys =
        AuthSys { stamp: 7, machine: &machine_name(7), uid: 0, gid: 0, gids: [0].into_iter().collect() };
    sys.encode_opaque(&mut Writer::new(&mut credential));
    let mut peer = Peer { stream, credential, reply: vec![0; 64 << 10] };

    let mnt = peer.record(1, nfs3::mount::PROGRAM, 1, &encoded(&nfs3::mount::mnt::Args { path: b"/export" }));
    let mounted = nfs3::mount::mnt::Reply::decode(&mut Reader::new(peer.exchange(&mnt))).unwrap();
    let directory = mounted.into_result().unwrap().root;
    let how = proc::create::How::Guarded(nfs3::Sattr3 { size: Some(1 << 20), ..nfs3::Sattr3::default() });
    let create = proc::create::Args { location: nfs3::DirOpArgs { directory, name: b"f" }, how };
    let create = peer.record(0x8000_0001, nfs3::PROGRAM, 8, &encoded(&create));
    let created = proc::create::Reply::decode(&mut Reader::new(peer.exchange(&create))).unwrap();
    let file = created.into_result().unwrap().object.unwrap();

    let stable = proc::write::Stable::Unstable;
    let args = |procedure| match procedure {
        Procedure::GetAttr => encoded(&proc::getattr::Args { object: file }),
        Procedure::Read => encoded(&proc::read::Args { file, offset: 4096, count: 4096 }),
        _ => {
            let head = proc::write::Args { file, offset: 4096, count: 4096, stable, data_len: 4096 };
            [encoded(&head), vec![7; 4096]].concat()
        }
    };
    // WRITEs come first, so that there are data to read. Each round has new xids, or the calls
    // would be replays.
    let mut xid = 0x4000_0000;
    for procedure in [Procedure::Write, Procedure::Read, Procedure::GetAttr] {
        let args = args(procedure);
        for depth in [1, DEPTH] {
            // Buffers grow to what the largest turn needs, so the first counts may include
            // allocations. Once a count is zero, the next must be zero too. An allocation of each
            // operation appears in every count.
            let mut takes_nothing = 0;
            let mut allocations = 0;
            for _half in 0..HALVES_MAX {
                let batches: Vec<Vec<u8>> = (0..ROUNDS)
                    .map(|_| {
                        let mut batch = Vec::new();
                        for _ in 0..depth {
                            xid += 1;
                            let class = if procedure == Procedure::Write { 0 } else { 0x4000_0000 };
                            batch.extend(peer.record(xid - class, nfs3::PROGRAM, procedure.number(), &args));
                        }
                        batch
                    })
                    .collect();
                let wakeups_before = server.statistics().loops[0].wakeups;
                let (before, began) = (ALLOCATIONS.load(Ordering::Relaxed), Instant::now());
                for batch in &batches {
                    peer.stream.write_all(batch).unwrap();
                    for _ in 0..depth {
                        assert_eq!(peer.receive()[..4], [0; 4], "{procedure:?}");
                    }
                }
                allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
                let wakeups = server.statistics().loops[0].wakeups - wakeups_before;
                // At most one wake-up for each call, far fewer when calls arrive together; the
                // wake-up of the question itself; and ticks, of which a slow machine counts more.
                let ticks = u64::try_from(began.elapsed().as_millis() / 250).unwrap() + 1;
                let bound = u64::from(ROUNDS * depth.div_ceil(2)) + 2 + ticks;
                assert!(
                    wakeups <= bound,
                    "{procedure:?} at depth {depth}: {wakeups} wake-ups, bound {bound}"
                );
                takes_nothing = if allocations == 0 { takes_nothing + 1 } else { 0 };
                if takes_nothing == 2 {
                    break;
                }
            }
            assert_eq!(takes_nothing, 2, "{procedure:?} at depth {depth}: {allocations} to the end");
        }
    }
}
