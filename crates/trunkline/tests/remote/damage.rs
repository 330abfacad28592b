//! A proxy that changes one byte on the way to the server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// The proxy changes the first byte of this mark wherever the mark passes.
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

/// The mark may span two reads, so a possible beginning of the mark is checked again with the data
/// that follow.
fn forward(mut from: TcpStream, mut to: TcpStream, flips: bool) {
    let mut buffer = vec![0; 1 << 16];
    let mut kept = 0_usize;
    while let Ok(got) = from.read(&mut buffer[kept..]) {
        if got == 0 {
            break;
        }
        let len = kept + got;
        let data = &mut buffer[..len];
        if flips && let Some(at) = data.windows(MARK.len()).position(|window| window == MARK) {
            data[at] ^= 1;
        }
        // Only bytes that match the beginning of the mark are held back.
        kept =
            (1..MARK.len().min(len)).rev().find(|tail| flips && data.ends_with(&MARK[..*tail])).unwrap_or(0);
        if to.write_all(&data[..len - kept]).is_err() {
            break;
        }
        buffer.copy_within(len - kept..len, 0);
    }
    let _ = to.shutdown(Shutdown::Both);
}
