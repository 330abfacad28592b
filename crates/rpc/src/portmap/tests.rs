//! Each procedure of each version, and arbitrary arguments.

use super::*;
use crate::Xid;
use crate::reply::SUCCESS_BYTES;
use proptest::prelude::*;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fn entries() -> Vec<Entry> {
    let entry = |program, protocol, address: &str| Entry {
        program,
        version: 3,
        protocol,
        address: address.parse().unwrap(),
    };
    vec![
        entry(NFS, Protocol::Tcp, "10.0.0.1:2049"),
        entry(NFS, Protocol::Tcp, "10.0.0.2:2050"),
        entry(NFS, Protocol::Tcp, "[::]:2049"),
        entry(MOUNT, Protocol::Tcp, "0.0.0.0:20048"),
        entry(MOUNT, Protocol::Udp, "0.0.0.0:20048"),
        entry(MOUNT, Protocol::Udp, "[::]:20048"),
        entry(NFS, Protocol::Rdma, "10.0.0.1:20049"),
        entry(NFS, Protocol::Rdma, "[fd00::7]:20050"),
    ]
}

fn whole_reply(version: u32, procedure: u32, args: &[u8], local: &str) -> Vec<u8> {
    let (mut call, mut out) = (Vec::new(), Vec::new());
    let mut credential = Vec::new();
    crate::auth::AuthSys { stamp: 0, machine: b"host", uid: 0, gid: 0, gids: Default::default() }
        .encode_opaque(&mut Writer::new(&mut credential));
    crate::call::encode(&mut Writer::new(&mut call), Xid(9), PROGRAM, version, procedure, &credential);
    call.extend_from_slice(args);
    let mut reader = Reader::new(&call);
    let header = crate::call::decode(&mut reader).unwrap();
    let via = Via { protocol: Protocol::Tcp, local: local.parse().unwrap() };
    answer(&header, reader, via, &entries(), &mut out);
    out
}

fn results(version: u32, procedure: u32, args: &[u8], local: &str) -> Vec<u8> {
    let reply = whole_reply(version, procedure, args, local);
    assert_eq!(reply[20..24], [0; 4], "accepted");
    reply[SUCCESS_BYTES..].to_vec()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn binding(program: u32, version: u32, netid: &str) -> Vec<u8> {
    let mut out = words(&[program, version]);
    let mut writer = Writer::new(&mut out);
    [netid, "", ""].iter().for_each(|text| writer.opaque(text.as_bytes()));
    out
}

fn text(results: &[u8]) -> String {
    let mut reader = Reader::new(results);
    let text = reader.opaque(100).unwrap();
    reader.finish().unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

// RFC 1833 s3.2
#[test]
fn version_2_tells_the_port_at_the_address_that_the_caller_reached() {
    let port = |program, version, protocol, local: &str| {
        let results = results(2, GET, &words(&[program, version, protocol, 0]), local);
        u32::from_be_bytes(results.try_into().unwrap())
    };
    assert_eq!(port(NFS, 3, TCP, "10.0.0.1"), 2049);
    assert_eq!(port(NFS, 3, TCP, "10.0.0.2"), 2050);
    assert_eq!(port(NFS, 3, UDP, "10.0.0.1"), 0);
    assert_eq!(port(MOUNT, 3, UDP, "10.0.0.2"), 20_048);
    assert_eq!(port(MOUNT, 1, UDP, "10.0.0.2"), 20_048, "the program itself says which versions it has");
    assert_eq!(port(100_021, 4, TCP, "10.0.0.1"), 0);
    assert_eq!(port(MOUNT, 3, UDP, "fd00::7"), 20_048, "who came over IPv6 is told of IPv6");
    assert_eq!(port(MOUNT, 3, TCP, "fd00::7"), 0, "which MOUNT does not listen on by TCP");
}

// RFC 1833 s3.2
#[test]
fn version_2_lists_what_it_can_say_of_ipv4() {
    let list = results(2, DUMP, &[], "10.0.0.1");
    let expected = [
        [1, NFS, 3, TCP, 2049],
        [1, NFS, 3, TCP, 2050],
        [1, MOUNT, 3, TCP, 20_048],
        [1, MOUNT, 3, UDP, 20_048],
    ];
    assert_eq!(list, words(&[&expected.concat()[..], &[0]].concat()));
}

// RFC 1833 s2.2.1, RFC 5665 s5.2.3
#[test]
fn versions_3_and_4_tell_universal_addresses() {
    for version in [3, 4] {
        let address = |program, of: u32, netid: &str, local: &str| {
            text(&results(version, GET, &binding(program, of, netid), local))
        };
        assert_eq!(address(NFS, 3, "tcp", "10.0.0.2"), "10.0.0.2.8.2");
        assert_eq!(address(NFS, 3, "tcp6", "fd00::7"), "fd00::7.8.1");
        assert_eq!(address(MOUNT, 3, "udp", "10.0.0.2"), "10.0.0.2.78.80");
        assert_eq!(address(MOUNT, 3, "", "10.0.0.2"), "10.0.0.2.78.80", "by the transport that it came by");
        assert_eq!(address(MOUNT, 1, "udp", "10.0.0.2"), "10.0.0.2.78.80");
        assert_eq!(address(MOUNT, 3, "udp6", "fd00::7"), "fd00::7.78.80");
        assert_eq!(address(NFS, 3, "rdma", "10.0.0.2"), "10.0.0.1.78.81");
        assert_eq!(address(NFS, 3, "rdma6", "10.0.0.2"), "fd00::7.78.82");
        assert_eq!(address(MOUNT, 3, "rdma", "10.0.0.2"), "", "MOUNT is asked over TCP or UDP");
        for unknown in ["udp9", "RDMA", "tcp66", "local"] {
            assert_eq!(address(NFS, 3, unknown, "10.0.0.2"), "");
        }
    }
    assert_eq!(text(&results(4, GETVERSADDR, &binding(NFS, 3, "tcp"), "10.0.0.1")), "10.0.0.1.8.1");
    assert_eq!(text(&results(4, GETVERSADDR, &binding(NFS, 4, "tcp"), "10.0.0.1")), "");
}

/// The entries of DUMP: program, version, netid and address.
fn dumped(version: u32, local: &str) -> Vec<(u32, u32, String, String)> {
    let list = results(version, DUMP, &[], local);
    let (mut reader, mut out) = (Reader::new(&list), Vec::new());
    while reader.bool().unwrap() {
        let (program, of) = (reader.u32().unwrap(), reader.u32().unwrap());
        let [netid, address, owner] = [(); 3].map(|()| reader.opaque(100).unwrap().to_vec());
        assert_eq!(owner, OWNER);
        let [netid, address] = [netid, address].map(|bytes| String::from_utf8(bytes).unwrap());
        out.push((program, of, netid, address));
    }
    reader.finish().unwrap();
    out
}

// RFC 1833 s2.2.1, RFC 5665 s5.2.3
#[test]
fn versions_3_and_4_list_every_transport_with_its_universal_address() {
    for version in [3, 4] {
        let expected = [
            (NFS, "tcp", "10.0.0.1.8.1"),
            (NFS, "tcp", "10.0.0.2.8.2"),
            (NFS, "tcp6", "fd00::9.8.1"),
            (MOUNT, "tcp", "0.0.0.0.78.80"),
            (MOUNT, "udp", "0.0.0.0.78.80"),
            (MOUNT, "udp6", "fd00::9.78.80"),
            (NFS, "rdma", "10.0.0.1.78.81"),
            (NFS, "rdma6", "fd00::7.78.82"),
        ];
        let expected = expected.map(|(program, netid, at)| (program, 3, netid.to_owned(), at.to_owned()));
        assert_eq!(dumped(version, "fd00::9"), expected);
    }
}

#[test]
fn an_address_list_has_each_transport_of_a_program() {
    let list = results(4, GETADDRLIST, &binding(MOUNT, 3, ""), "10.0.0.1");
    let mut reader = Reader::new(&list);
    let v4 = "10.0.0.1.78.80";
    for (at, netid, semantics, family, protocol) in [
        (v4, "tcp", 3, "inet", "tcp"),
        (v4, "udp", 1, "inet", "udp"),
        ("::.78.80", "udp6", 1, "inet6", "udp"),
    ] {
        assert!(reader.bool().unwrap());
        assert_eq!(reader.opaque(100).unwrap(), at.as_bytes());
        assert_eq!(reader.opaque(100).unwrap(), netid.as_bytes());
        assert_eq!(reader.u32().unwrap(), semantics);
        assert_eq!(reader.opaque(100).unwrap(), family.as_bytes());
        assert_eq!(reader.opaque(100).unwrap(), protocol.as_bytes());
    }
    assert!(!reader.bool().unwrap());
    reader.finish().unwrap();
    // RDMA has the semantics of a stream with an orderly end too.
    let list = results(4, GETADDRLIST, &binding(NFS, 3, ""), "10.0.0.1");
    let rdma =
        [&[0, 0, 0, 5][..], b"rdma6\0\0\0", &words(&[3, 5]), b"inet6\0\0\0", &words(&[4]), b"rdma"].concat();
    assert!(list.windows(rdma.len()).any(|window| window == rdma));
}

#[test]
fn nobody_may_register_and_nothing_is_passed_on() {
    let mut mapping = Vec::new();
    assert!(encode_mapping(&mut Writer::new(&mut mapping), &entries()[0]));
    for procedure in [SET, UNSET] {
        assert_eq!(results(2, procedure, &mapping, "127.0.0.1"), words(&[0]));
        for version in [3, 4] {
            assert_eq!(results(version, procedure, &binding(NFS, 3, "tcp"), "127.0.0.1"), words(&[0]));
        }
    }
    for (version, procedure) in [(2, 5), (3, 5), (4, 5), (4, 10), (3, GETVERSADDR), (2, 77)] {
        let reply = whole_reply(version, procedure, &[], "127.0.0.1");
        assert_eq!(reply[20..24], [0, 0, 0, 3], "PROC_UNAVAIL for {version}.{procedure}");
    }
}

#[test]
fn what_a_program_registers_is_what_it_is_asked_by() {
    let mut bytes = Vec::new();
    encode_binding(&mut Writer::new(&mut bytes), &entries()[7]);
    let mut reader = Reader::new(&bytes);
    assert_eq!((reader.u32(), reader.u32()), (Ok(NFS), Ok(3)));
    for expected in ["rdma6", "fd00::7.78.82", ""] {
        assert_eq!(reader.opaque(100).unwrap(), expected.as_bytes());
    }
    reader.finish().unwrap();
    // Version 2 can express neither IPv6 nor RDMA.
    for (index, has) in [true, true, false, true, true, false, false, false].into_iter().enumerate() {
        let mut bytes = Vec::new();
        assert_eq!(encode_mapping(&mut Writer::new(&mut bytes), &entries()[index]), has);
        assert_eq!(bytes.len(), if has { 16 } else { 0 });
    }
}

#[test]
fn cut_short_or_too_long_arguments_are_garbage() {
    let whole = binding(NFS, 3, "tcp6");
    let mut longer = words(&[NFS, 3, 257]);
    longer.extend([b'x'; 260]);
    longer.extend(words(&[0, 0]));
    for args in [&whole[..whole.len() - 1], &whole[..9], &[], &longer, &[&whole[..], &[0; 4]].concat()] {
        for (version, procedure) in [(3, GET), (4, GET), (4, GETVERSADDR), (4, GETADDRLIST), (4, SET)] {
            let reply = whole_reply(version, procedure, args, "10.0.0.1");
            assert_eq!(reply[20..], words(&[4]), "GARBAGE_ARGS for {version}.{procedure} {args:?}");
        }
    }
}

#[test]
fn other_versions_are_told_those_there_are() {
    for version in [0, 1, 5] {
        let reply = whole_reply(version, NULL, &[], "127.0.0.1");
        assert_eq!(reply[20..], words(&[2, 2, 4]));
    }
    for version in 2..=4 {
        assert_eq!(results(version, NULL, &[], "127.0.0.1"), []);
    }
}

proptest! {
    #[test]
    fn whatever_arguments_come_are_answered_within_bounds(
        version in 2_u32..5,
        procedure in 0_u32..14,
        args in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let reply = whole_reply(version, procedure, &args, "10.0.0.1");
        prop_assert_eq!(&reply[..4], &9_u32.to_be_bytes());
        prop_assert!(reply.len().is_multiple_of(4) && reply.len() < 1024);
    }
}
