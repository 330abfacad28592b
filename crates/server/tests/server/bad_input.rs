//! Tests invalid input on the wire: each kind gets its reply, and affects only its sender.

use crate::peer::{Peer, config, encoded, eventually, start};
use nfs3::{FileHandle, Procedure, proc};
use rpc::auth::AuthStat;
use rpc::reply::{Accept, Body, Reject};
use server::Server;

#[test]
fn calls_for_absent_programs_versions_and_procedures_get_their_errors() {
    // RFC 5531 s9
    let (server, address) = start();
    let mut peer = Peer::new(address);
    let mismatch = |high| Accept::ProgMismatch { low: 3, high };
    for (program, version, procedure, expected) in [
        (100_000, 2, 0, Accept::ProgUnavail),
        (100_003, 2, 0, mismatch(4)),
        (100_003, 5, 1, mismatch(4)),
        (100_005, 1, 1, mismatch(3)),
        (100_003, 3, 22, Accept::ProcUnavail),
        (100_003, 3, u32::MAX, Accept::ProcUnavail),
        (100_003, 4, 2, Accept::ProcUnavail),
        (100_005, 3, 6, Accept::ProcUnavail),
    ] {
        let (body, rest) = peer.call_any(program, version, procedure, &[]);
        assert_eq!(body, Body::Accepted(expected), "{program} {version} {procedure}");
        assert!(rest.is_empty());
    }
    assert_eq!(server.statistics().nodes[0].refused_calls, 8);
}

#[test]
fn another_version_of_rpc_is_refused() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let mut record = peer.record(5, nfs3::PROGRAM, 3, 0, &[]);
    record[15] = 3;
    peer.send(&record);
    let reply = peer.receive();
    let reply = rpc::reply::decode(&mut xdr::Reader::new(&reply)).unwrap();
    assert_eq!(reply.body, Body::Rejected(Reject::RpcMismatch { low: 2, high: 2 }));
}

#[test]
fn bad_credentials_are_refused() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let object = peer.mnt(b"/export").unwrap();
    let args = encoded(&proc::getattr::Args { object });
    for (credential, expected) in [
        (vec![0, 0, 0, 1, 0, 0, 0, 4, 1, 2, 3, 4], AuthStat::BADCRED),
        (vec![0, 0, 0, 6, 0, 0, 0, 0], AuthStat::REJECTEDCRED),
        ([&[0, 0, 0, 1, 0, 0, 1, 0x94][..], &[0; 404]].concat(), AuthStat::BADCRED),
    ] {
        peer.credential = credential;
        let (body, _) = peer.call_any(nfs3::PROGRAM, 3, 1, &args);
        assert_eq!(body, Body::Rejected(Reject::Auth(expected)));
    }
}

#[test]
fn invalid_arguments_are_garbage_for_every_procedure() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let object = peer.mnt(b"/export").unwrap();
    for procedure in Procedure::ALL.into_iter().skip(1) {
        for args in [&[][..], &[0xff; 7], &[0, 0, 0, 65, 1, 2, 3], &[0xff; 200]] {
            let (body, _) = peer.call_any(nfs3::PROGRAM, 3, procedure.number(), args);
            assert_eq!(body, Body::Accepted(Accept::GarbageArgs), "{procedure:?} {args:?}");
        }
    }
    let mut trailing = encoded(&proc::getattr::Args { object });
    trailing.extend([0; 4]);
    let (body, _) = peer.call_any(nfs3::PROGRAM, 3, 1, &trailing);
    assert_eq!(body, Body::Accepted(Accept::GarbageArgs), "bytes after the arguments");
}

#[test]
fn a_write_whose_lengths_disagree_is_garbage_short_and_long() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    for sent in [100_usize, 20_000] {
        let stable = proc::write::Stable::Unstable;
        let head = |count, data_len| proc::write::Args { file, offset: 0, count, stable, data_len };
        let len = u32::try_from(sent).unwrap();
        for len in [len + 4, len - 4] {
            let mut args = encoded(&head(len, len));
            args.resize(args.len() + sent, 7);
            let (body, _) = peer.call_any(nfs3::PROGRAM, 3, 7, &args);
            assert_eq!(body, Body::Accepted(Accept::GarbageArgs), "{sent} bytes called {len}");
        }
        // The data have the length that is announced, but another field before them is wrong.
        let sound = encoded(&head(len, len));
        let (count_at, stable_at) = (sound.len() - 12, sound.len() - 8);
        for (at, word, what) in [
            (count_at, len - 1, "another count"),
            (stable_at, 3, "no stable_how"),
            (0, 65, "too long a handle"),
        ] {
            let mut args = sound.clone();
            args[at..at + 4].copy_from_slice(&word.to_be_bytes());
            args.resize(args.len() + sent, 7);
            let (body, _) = peer.call_any(nfs3::PROGRAM, 3, 7, &args);
            assert_eq!(body, Body::Accepted(Accept::GarbageArgs), "{sent} bytes with {what}");
        }
    }
    assert_eq!(peer.getattr(file).into_result().unwrap().attributes.size, 0);
}

#[test]
fn bytes_that_are_no_call_end_their_connection_and_no_other() {
    let (_server, address) = start();
    let mut failure_reporter = Peer::new(address);
    let short = [0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0].to_vec();
    let a_reply = [&[0x80, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 1][..], &[0; 16]].concat();
    let oversized = vec![0xff; 4096];
    let too_long_in_sum = [&[0, 0x20, 0, 0][..], &vec![0; 2 << 20], &[0x80, 0x10, 0, 0]].concat();
    let endless_fragments = [0, 0, 0, 0].repeat(5000);
    let tiny_fragments = [0, 0, 0, 1, 7].repeat(5000);
    let web = b"GET / HTTP/1.1\r\nHost: storage\r\n\r\n".to_vec();
    for (name, bytes) in [
        ("a header that ends early", short),
        ("a reply", a_reply),
        ("a record above the bound", oversized),
        ("fragments above the bound together", too_long_in_sum),
        ("empty fragments without end", endless_fragments),
        ("tiny fragments without end", tiny_fragments),
        ("another protocol", web),
        ("an empty record", vec![0x80, 0, 0, 0]),
    ] {
        let mut peer = Peer::new(address);
        // The server may close before all bytes are sent.
        let _ = std::io::Write::write_all(&mut peer.stream, &bytes);
        assert!(peer.is_closed(), "{name}");
        assert!(failure_reporter.mnt(b"/export").is_ok(), "{name}");
    }
}

#[test]
fn a_call_in_fragments_is_a_call() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let record = peer.record(9, nfs3::PROGRAM, 3, 0, &[]);
    let mut stream = Vec::new();
    let pieces: Vec<_> = record[4..].chunks(10).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let mark = rpc::record_marking::Mark {
            last: index + 1 == pieces.len(),
            len: u32::try_from(piece.len()).unwrap(),
        };
        stream.extend(mark.encode());
        stream.extend_from_slice(piece);
    }
    peer.send(&stream);
    assert_eq!(peer.receive()[..4], 9_u32.to_be_bytes());
}

#[test]
fn a_truncated_call_is_not_executed() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    for sent in [100_usize, 60_000] {
        let mut dying = Peer::new(address);
        let args = crate::peer::write_args(file, 0, &vec![7; 100_000]);
        let record = dying.record(1, nfs3::PROGRAM, 3, 7, &args);
        dying.send(&record[..sent]);
        dying.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(dying.is_closed());
    }
    assert_eq!(peer.getattr(file).into_result().unwrap().attributes.size, 0);
}

#[test]
fn a_connection_that_falls_silent_within_a_record_is_closed() {
    let mut config = config();
    config.limits.partial_record_ms_max = 100;
    let server = Server::start(config).unwrap();
    let mut peer = Peer::new(server.addresses()[0]);
    peer.send(&[0x80, 0, 1, 0, 0, 0]);
    assert!(peer.is_closed());
    let mut idle = Peer::new(server.addresses()[0]);
    let handle = FileHandle::new(&[0; 32]).unwrap();
    // Silence between records is permitted.
    assert!(peer.is_closed());
    idle.getattr(handle);
}

#[test]
fn a_connection_whose_record_trickles_in_is_closed() {
    let mut config = config();
    config.limits.partial_record_ms_max = 1000;
    let server = Server::start(config).unwrap();
    let mut peer = Peer::new(server.addresses()[0]);
    peer.stream.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    peer.send(&[0x80, 0x10, 0, 0]);
    // A byte now and then, so that the connection is never silent for long.
    eventually("the server to close it", || {
        let sent = std::io::Write::write_all(&mut peer.stream, &[0]);
        sent.is_err() || matches!(std::io::Read::read(&mut peer.stream, &mut [0; 1]), Ok(0))
    });
}

#[test]
fn a_call_before_garbage_is_answered_though_more_is_unread() {
    let (_server, address) = start();
    for _ in 0..20 {
        let mut peer = Peer::new(address);
        let null = peer.record(7, nfs3::PROGRAM, 3, 0, &[]);
        let garbage = [0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0].to_vec();
        let bytes = [null, garbage, vec![1; 1 << 20]].concat();
        // The server may close before all bytes are sent.
        let _ = std::io::Write::write_all(&mut peer.stream, &bytes);
        assert_eq!(peer.receive()[..4], 7_u32.to_be_bytes());
        let end = std::io::Read::read(&mut peer.stream, &mut [0; 1]);
        assert_eq!(end.expect("a close, and no reset"), 0);
    }
}

/// A small pseudo-random generator: the same seed gives the same sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

#[test]
fn calls_with_flipped_bits_cause_no_panic() {
    let (server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    let listing =
        proc::readdirplus::Args { directory: root, cookie: 0, verifier: [0; 8], dircount: 9, maxcount: 4096 };
    let new_attributes = nfs3::Sattr3 { size: Some(5), ..nfs3::Sattr3::default() };
    let location = nfs3::DirOpArgs { directory: root, name: b"g" };
    let how = proc::create::How::Guarded(new_attributes);
    let calls = [
        (2, encoded(&proc::setattr::Args { object: file, new_attributes, guard: None })),
        (3, encoded(&proc::lookup::Args { what: location })),
        (6, encoded(&proc::read::Args { file, offset: 0, count: 4096 })),
        (7, crate::peer::write_args(file, 0, &[7; 100])),
        (7, crate::peer::write_args(file, 0, &[7; 17_000])),
        (8, encoded(&proc::create::Args { location, how })),
        (14, encoded(&proc::rename::Args { from: location, to: location })),
        (17, encoded(&listing)),
        (21, encoded(&proc::commit::Args { file, offset: 0, count: 0 })),
    ];
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for round in 0..3000_u32 {
        let (procedure, args) = &calls[random.below(calls.len())];
        let mut record = peer.record(round, nfs3::PROGRAM, 3, *procedure, args);
        // The mark is unchanged, and after the head of the arguments any byte is valid.
        let flippable = record.len().min(200) - 4;
        for _ in 0..=random.below(3) {
            record[4 + random.below(flippable)] ^= 1 << random.below(8);
        }
        peer.send(&record);
        if peer.try_receive().is_err() {
            let (stream, next) = (Peer::new(address).stream, peer.next_xid);
            (peer.stream, peer.next_xid) = (stream, next);
        }
    }
    assert!(peer.lookup(root, b".").into_result().is_ok());
    assert!(server.statistics().loops.iter().all(|one| one.bugs == 0));
}
