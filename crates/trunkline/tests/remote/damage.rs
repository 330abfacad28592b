//! A proxy that changes one byte on the way to the server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// The proxy changes the last byte of this mark wherever the mark passes.
pub(crate) const MARK: &[u8; 32] = b"this is the place of the damage!";

/// Forwards connections until the test program ends; returns the port.
pub(crate) fn flipping_proxy(to: SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
            let (answers_from, answers_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || forward(client, server, true));
            std::thread::spawn(move || forward(answers_from, answers_to, false));
        }
    });
    port
}

/// Nothing is held back, or a call that ends with the first byte of the mark would wait for more:
/// the mark is recognized across reads, and its last byte is the one that changes.
fn forward(mut from: TcpStream, mut to: TcpStream, flips: bool) {
    let before = MARK.len() - 1;
    let mut buffer = vec![0; before + (1 << 16)];
    while let Ok(got) = from.read(&mut buffer[before..]) {
        if got == 0 {
            break;
        }
        let passed = &mut buffer[..before + got];
        if flips && let Some(at) = passed.windows(MARK.len()).position(|window| window == MARK) {
            passed[at + before] ^= 1;
        }
        if to.write_all(&passed[before..]).is_err() {
            break;
        }
        buffer.copy_within(got..before + got, 0);
    }
    let _ = to.shutdown(Shutdown::Both);
}
