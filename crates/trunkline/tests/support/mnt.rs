//! MOUNT's own call, spelled out: what a server answers to a host, without a client of ours
//! between.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Mounts a path and gives MOUNT's status. RFC 1813 s5.2.1
pub fn mnt(stream: &mut TcpStream, path: &str) -> u32 {
    let results = results(stream, 100_005, 1, path.as_bytes());
    u32::from_be_bytes(results[..4].try_into().expect("a status"))
}

/// The results of a call of a program's version 3 whose only argument is opaque. RFC 5531 s9
pub fn results(stream: &mut TcpStream, program: u32, procedure: u32, argument: &[u8]) -> Vec<u8> {
    let mut call: Vec<u8> =
        [7, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    call.extend(u32::try_from(argument.len()).expect("short").to_be_bytes());
    call.extend(argument);
    call.resize(call.len().next_multiple_of(4), 0);
    let mark = 0x8000_0000 | u32::try_from(call.len()).expect("short");
    stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).expect("it receives");
    let mut word = [0; 4];
    stream.read_exact(&mut word).expect("it answers");
    let mut reply = vec![0; (u32::from_be_bytes(word) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).expect("it answers whole");
    reply.split_off(24)
}
