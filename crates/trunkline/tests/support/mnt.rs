//! Calls of MOUNT encoded by hand, to test what a server answers without our client.

use std::io::{Read, Write};
use std::net::TcpStream;

/// Mounts a path and returns the status of MOUNT. RFC 1813 s5.2.1
pub fn mnt(stream: &mut TcpStream, path: &str) -> u32 {
    let results = results(stream, 100_005, 1, path.as_bytes());
    u32::from_be_bytes(results[..4].try_into().expect("a status"))
}

/// The results of a call of version 3 of a program whose only argument is opaque. RFC 5531 s9
pub fn results(stream: &mut TcpStream, program: u32, procedure: u32, argument: &[u8]) -> Vec<u8> {
    let mut call: Vec<u8> =
        [7, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    call.extend(u32::try_from(argument.len()).expect("short").to_be_bytes());
    call.extend(argument);
    call.resize(call.len().next_multiple_of(4), 0);
    let mark = 0x8000_0000 | u32::try_from(call.len()).expect("short");
    stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).expect("the server receives");
    let mut word = [0; 4];
    stream.read_exact(&mut word).expect("the server answers");
    let mut reply = vec![0; (u32::from_be_bytes(word) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).expect("the server sends the whole reply");
    reply.split_off(24)
}
