//! A client of the NBD server that knows the bytes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(60);

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub struct Client {
    stream: UnixStream,
    /// What the export can do: the flags of its transmission.
    pub flags: u16,
}

impl Client {
    /// A connection that has been greeted.
    pub fn connect(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        Self { stream, flags: 0 }
    }

    /// A connection that may send requests, and has structured replies.
    pub fn begin(path: &Path) -> Self {
        let mut client = Self::connect(path);
        client.send(&3_u32.to_be_bytes());
        client.send(&option(8, &[]));
        assert_eq!(client.answer(), (1, vec![]));
        client.send(&option(7, &[0; 6]));
        loop {
            match client.answer() {
                (1, _) => return client,
                (3, info) if info[..2] == [0, 0] => client.flags = u16::from_be_bytes([info[10], info[11]]),
                _ => {}
            }
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("room");
    }

    fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// The type and the data of an answer to an option.
    fn answer(&mut self) -> (u32, Vec<u8>) {
        let head = self.receive(20);
        (word(&head, 12), self.receive(word(&head, 16) as usize))
    }

    pub fn request(&mut self, flags: u16, kind: u16, cookie: u64, offset: u64, bytes: u32) {
        let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
        head.extend([flags, kind].map(u16::to_be_bytes).concat());
        head.extend([cookie, offset].map(u64::to_be_bytes).concat());
        head.extend(bytes.to_be_bytes());
        self.send(&head);
    }

    /// The cookie of the next reply, with its data, or its error.
    pub fn reply(&mut self) -> (u64, Result<Vec<u8>, u32>) {
        let head = self.receive(16);
        let cookie = u64::from_be_bytes(head[8..16].try_into().expect("eight bytes"));
        if word(&head, 0) == 0x6744_6698 {
            let error = word(&head, 4);
            return (cookie, if error == 0 { Ok(vec![]) } else { Err(error) });
        }
        assert_eq!(word(&head, 0), 0x668e_33ef);
        let length = self.receive(4);
        let body = self.receive(word(&length, 0) as usize);
        match word(&head, 4) {
            0x1_0001 => (cookie, Ok(body[8..].to_vec())),
            0x1_8001 => (cookie, Err(word(&body, 0))),
            other => panic!("a chunk of type {other:#x}"),
        }
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.request(1, 1, 5, offset, data.len() as u32);
        self.send(data);
        assert_eq!(self.reply(), (5, Ok(vec![])));
    }

    pub fn read(&mut self, offset: u64, bytes: u32) -> Vec<u8> {
        self.request(0, 0, 6, offset, bytes);
        let (cookie, data) = self.reply();
        assert_eq!(cookie, 6);
        data.expect("data")
    }

    pub fn has_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        // A reset is an end as well.
        self.stream.read_to_end(&mut rest).is_ok_and(|_| rest.is_empty()) || rest.is_empty()
    }
}
