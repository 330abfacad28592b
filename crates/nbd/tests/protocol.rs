//! What clients say and what they are answered, byte by byte.

use nbd::{
    Command, Errno, Export, Features, HEADER_BYTES, Handshake, Header, Kind, Progress, Violation, reply,
};
use proptest::prelude::*;

fn export(name: &str) -> Export {
    Export {
        name: name.to_owned(),
        description: "a text".to_owned(),
        bytes: 1 << 20,
        block_min: 512,
        block_preferred: 4096,
        features: Features { read_only: false, trim: true, write_zeroes: true },
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn answer(number: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
    let head = [number, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    [magic.as_slice(), &head, data].concat()
}

fn go(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|one| one.to_be_bytes()));
    data
}

/// A handshake whose flags were exchanged.
fn begun(exports: &[Export], flags: u32) -> Handshake<'_> {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(exports, &mut out);
    assert_eq!(out, [b"NBDMAGICIHAVEOPT".as_slice(), &[0, 3]].concat());
    assert_eq!(handshake.handle(&flags.to_be_bytes(), &mut out), Ok(Progress::Took(4)));
    handshake
}

fn handle(handshake: &mut Handshake<'_>, message: &[u8]) -> (Result<Progress, Violation>, Vec<u8>) {
    let mut out = Vec::new();
    let progress = handshake.handle(message, &mut out);
    (progress, out)
}

#[test]
fn go_says_size_flags_and_block_sizes_and_begins() {
    let exports = [export("a"), export("b")];
    let mut handshake = begun(&exports, 3);
    let (progress, out) = handle(&mut handshake, &option(8, &[]));
    assert_eq!((progress, out), (Ok(Progress::Took(16)), answer(8, 1, &[])));
    let message = option(7, &go("b", &[3, 1]));
    let (progress, out) = handle(&mut handshake, &message);
    let took = message.len();
    assert_eq!(progress, Ok(Progress::Begins { took, export: 1, structured: true }));
    let info = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[1, 0xed]].concat();
    let sizes = [&[0, 3][..], &[0, 0, 2, 0], &[0, 0, 16, 0], &[2, 0, 0, 0]].concat();
    let name = answer(7, 3, b"\0\x01b");
    assert_eq!(out, [answer(7, 3, &info), name, answer(7, 3, &sizes), answer(7, 1, &[])].concat());
}

#[test]
fn info_does_not_begin_and_unknown_names_are_refused() {
    let exports = [export("a")];
    let mut handshake = begun(&exports, 3);
    let message = option(6, &go("", &[]));
    assert_eq!(handle(&mut handshake, &message).0, Ok(Progress::Took(message.len())));
    let message = option(7, &go("x", &[]));
    let (progress, out) = handle(&mut handshake, &message);
    assert_eq!(progress, Ok(Progress::Took(message.len())));
    assert_eq!(out[12..16], (1_u32 << 31 | 6).to_be_bytes());
}

#[test]
fn the_old_option_has_zeroes_unless_they_were_declined() {
    let exports = [export("a")];
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let (progress, out) = handle(&mut begun(&exports, flags), &option(1, b"a"));
        assert_eq!(progress, Ok(Progress::Begins { took: 17, export: 0, structured: false }));
        assert_eq!(out, [(1_u64 << 20).to_be_bytes().as_slice(), &[1, 0x6d], &vec![0; zeroes]].concat());
    }
    assert_eq!(handle(&mut begun(&exports, 3), &option(1, b"x")).0, Err(Violation::NoExport));
}

#[test]
fn lists_aborts_and_what_is_not_supported() {
    let exports = [export("a"), export("bc")];
    let mut handshake = begun(&exports, 3);
    let (_, out) = handle(&mut handshake, &option(3, &[]));
    let entries = [answer(3, 2, b"\0\0\0\x01a"), answer(3, 2, b"\0\0\0\x02bc"), answer(3, 1, &[])];
    assert_eq!(out, entries.concat());
    // STARTTLS, metadata contexts, extended headers, and one that nobody knows.
    for number in [5, 9, 10, 11, 99] {
        let (progress, out) = handle(&mut handshake, &option(number, &[]));
        assert_eq!(progress, Ok(Progress::Took(16)));
        assert_eq!(out[12..16], (1_u32 << 31 | 1).to_be_bytes());
    }
    let (progress, out) = handle(&mut handshake, &option(3, b"x"));
    assert_eq!((progress, &out[12..16]), (Ok(Progress::Took(17)), &(1_u32 << 31 | 3).to_be_bytes()[..]));
    assert_eq!(handle(&mut handshake, &option(2, &[])), (Ok(Progress::Aborted), answer(2, 1, &[])));
}

#[test]
fn malformed_options_are_refused_and_endless_ones_end_the_connection() {
    let exports = [export("a")];
    let mut handshake = begun(&exports, 3);
    for data in [&[][..], &[0, 0, 0, 9, b'a'], &[0xff; 8], b"\0\0\0\x01a\0\x01", b"\0\0\0\x01a\0\0\0"] {
        let (progress, out) = handle(&mut handshake, &option(7, data));
        assert_eq!(progress, Ok(Progress::Took(16 + data.len())));
        assert_eq!(out[12..16], (1_u32 << 31 | 3).to_be_bytes());
    }
    let (progress, out) = handle(&mut handshake, &option(7, &[0; 9000]));
    assert_eq!((progress, &out[12..16]), (Ok(Progress::Took(9016)), &(1_u32 << 31 | 9).to_be_bytes()[..]));
    let mut endless = option(7, &[]);
    endless[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(handle(&mut handshake, &endless).0, Err(Violation::OptionTooLong(u32::MAX)));
    assert!(matches!(handle(&mut handshake, &[0; 16]).0, Err(Violation::Magic(0))));
    let mut out = Vec::new();
    let mut fresh = Handshake::new(&exports, &mut out);
    assert_eq!(fresh.handle(&[0, 0, 0, 4], &mut out), Err(Violation::Flags(4)));
    for cut in 0..16 {
        let (progress, out) = handle(&mut handshake, &option(3, &[])[..cut]);
        assert_eq!((progress, out), (Ok(Progress::Needs(16)), vec![]));
    }
}

fn request(flags: u16, kind: u16, offset: u64, bytes: u32) -> Header {
    let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
    head.extend([flags, kind].map(u16::to_be_bytes).concat());
    head.extend([7, offset].map(u64::to_be_bytes).concat());
    head.extend(bytes.to_be_bytes());
    Header::decode(&head.try_into().expect("28 bytes")).expect("a request")
}

#[test]
fn requests_are_checked_against_the_export() {
    let export = export("a");
    let check = |flags, kind, offset, bytes| export.check(&request(flags, kind, offset, bytes), true);
    assert_eq!(check(0, 0, 512, 512), Ok(Command::Read));
    assert_eq!(check(4, 0, 0, 1 << 20), Ok(Command::Read), "DF");
    assert_eq!(check(1, 1, 0, 512), Ok(Command::Write { durable: true }));
    assert_eq!(check(0, 3, 0, 0), Ok(Command::Flush));
    let zeroes = |durable, may_deallocate| Ok(Command::WriteZeroes { durable, may_deallocate });
    assert_eq!(check(0, 6, 0, 512), zeroes(false, true));
    assert_eq!(check(3, 6, 0, 512), zeroes(true, false));
    assert_eq!(check(16, 6, 0, 512), Err(Errno::Invalid), "FAST_ZERO is not offered");
    assert_eq!(export.check(&request(4, 0, 0, 512), false), Err(Errno::Invalid), "DF is not offered");
    for (offset, bytes) in [(1, 512), (0, 511), (0, 0)] {
        assert_eq!(check(0, 0, offset, bytes), Err(Errno::Invalid));
    }
    assert_eq!(check(0, 0, 1 << 20, 512), Err(Errno::Invalid), "a read beyond the end");
    assert_eq!(check(0, 1, 1 << 20, 512), Err(Errno::NoSpace));
    assert_eq!(check(0, 1, u64::MAX - 511, 512), Err(Errno::NoSpace));
    for kind in [5, 7, 99] {
        assert_eq!(check(0, kind, 0, 512), Err(Errno::Invalid));
    }
    let features = Features { read_only: true, ..export.features };
    let read_only = Export { features, ..export.clone() };
    assert_eq!(read_only.check(&request(0, 1, 0, 512), true), Err(Errno::Permission));
    let large = Export { bytes: 1 << 40, ..export };
    assert_eq!(large.check(&request(0, 0, 0, 33 << 20), true), Err(Errno::Invalid));
    assert_eq!(large.check(&request(4, 0, 0, 33 << 20), true), Err(Errno::Overflow));
    assert_eq!(large.check(&request(0, 6, 0, 3 << 30), true), zeroes(false, true));
}

#[test]
fn a_trim_is_of_the_whole_blocks_in_its_range() {
    let export = export("a");
    let check = |flags, offset, bytes| export.check(&request(flags, 4, offset, bytes), true);
    let trim = |offset, bytes| Ok(Command::Trim { durable: false, offset, bytes });
    assert_eq!(check(0, 512, 1024), trim(512, 1024));
    assert_eq!(check(1, 0, 512), Ok(Command::Trim { durable: true, offset: 0, bytes: 512 }));
    assert_eq!(check(0, 511, 1026), trim(512, 1024));
    assert_eq!(check(0, 513, 1534), trim(1024, 512));
    assert_eq!(check(0, (1 << 20) - 700, 700), trim((1 << 20) - 512, 512), "up to the end");
    for (offset, bytes) in [(1, 511), (1, 1022), (700, 1), (513, 600)] {
        let Ok(Command::Trim { bytes: whole, .. }) = check(0, offset, bytes) else { panic!("{offset}") };
        assert_eq!(whole, 0, "{offset} {bytes}: no whole block");
    }
    assert_eq!(check(0, 512, 0), Err(Errno::Invalid));
    assert_eq!(check(0, (1 << 20) - 700, 701), Err(Errno::NoSpace));
    assert_eq!(check(0, u64::MAX, 1), Err(Errno::NoSpace));
    let large = Export { bytes: 1 << 40, ..export };
    assert_eq!(large.check(&request(0, 4, 1, u32::MAX), true), trim(512, u32::MAX - 511));
}

#[test]
fn bad_magic_and_endless_writes_end_the_connection() {
    assert_eq!(Header::decode(&[0; HEADER_BYTES]), Err(Violation::Magic(0)));
    let header = request(0, 1, 0, 64 << 20);
    assert_eq!((header.kind, header.payload_bytes()), (Kind::Write, 64 << 20));
    let mut head = [0; HEADER_BYTES];
    head[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    head[7] = 1;
    head[24..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(Header::decode(&head), Err(Violation::PayloadTooLong(u32::MAX)));
}

#[test]
fn replies_of_both_forms() {
    let made = |make: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        make(&mut out);
        out
    };
    let cookie = [0, 0, 0, 0, 0, 0, 0, 7];
    let simple = |error: u8| [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, error][..], &cookie].concat();
    assert_eq!(made(&|out| reply::success(7, out)), simple(0));
    assert_eq!(made(&|out| reply::data(7, 512, 512, false, out)), simple(0));
    assert_eq!(made(&|out| reply::failure(7, Errno::NoSpace, false, "x", out)), simple(28));
    let chunk = |kind: [u8; 2], bytes: u8| {
        [&[0x66, 0x8e, 0x33, 0xef, 0, 1][..], &kind, &cookie, &[0, 0, 0, bytes]].concat()
    };
    let data = [chunk([0, 1], 8 + 16).as_slice(), &[0, 0, 0, 0, 0, 0, 2, 0]].concat();
    assert_eq!(made(&|out| reply::data(7, 512, 16, true, out)), data);
    let error = [chunk([0x80, 1], 8).as_slice(), &[0, 0, 0, 5, 0, 2], b"no"].concat();
    assert_eq!(made(&|out| reply::failure(7, Errno::Io, true, "no", out)), error);
    let long = "\u{e4}".repeat(1000);
    assert!(made(&|out| reply::failure(7, Errno::Io, true, &long, out)).len() <= 20 + 6 + 1024);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(choice in any::<u8>(), bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        nbd::fuzzing::connection(&[[choice].as_slice(), &bytes].concat());
    }

    #[test]
    fn any_requests_after_a_handshake_are_survived(
        choice in any::<u8>(),
        structured in any::<bool>(),
        requests in proptest::collection::vec((any::<u16>(), 0_u16..9, any::<u64>(), any::<u32>()), 0..9),
    ) {
        let mut bytes = vec![choice, 0, 0, 0, 3];
        if structured {
            bytes.extend(option(8, &[]));
        }
        bytes.extend(option(7, &go("disk", &[])));
        for (flags, kind, offset, length) in requests {
            bytes.extend(0x2560_9513_u32.to_be_bytes());
            bytes.extend([flags & 31, kind].map(u16::to_be_bytes).concat());
            bytes.extend([7, offset & 0xffff_f000].map(u64::to_be_bytes).concat());
            bytes.extend((length & 0x3ff_f000).to_be_bytes());
        }
        nbd::fuzzing::connection(&bytes);
    }
}
