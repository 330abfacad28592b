//! MOUNT's own call, spelled out: what a server answers to a host, without a client of ours between.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Mounts a path and gives MOUNT's status. RFC 5531 s9, RFC 1813 s5.2.1
pub fn mnt(stream: &mut TcpStream, path: &str) -> u32 {
    let mut call: Vec<u8> =
        [7, 0, 2, 100_005, 3, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    call.extend(u32::try_from(path.len()).expect("short").to_be_bytes());
    call.extend(path.as_bytes());
    call.resize(call.len().next_multiple_of(4), 0);
    let mark = 0x8000_0000 | u32::try_from(call.len()).expect("short");
    stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).expect("it receives");
    let mut word = [0; 4];
    stream.read_exact(&mut word).expect("it answers");
    let mut reply = vec![0; (u32::from_be_bytes(word) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).expect("it answers whole");
    u32::from_be_bytes(reply[24..28].try_into().expect("a status"))
}
