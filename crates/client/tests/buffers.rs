//! Tests that each READ is answered into its own buffer, whatever other replies arrive with its
//! reply.

#[path = "support/fake.rs"]
mod fake;

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};

use client::{Answer, Buffer, Done, FileRef, Io, Op, Task};
use fake::{Fake, TIMEOUT, file, read_results, reply_record};

const READS: u64 = 12;

/// Submits the first READs at once, and another READ with the buffer of each READ that has ended.
struct Reads {
    file: FileRef,
    len: usize,
    in_flight: u64,
    submitted: u64,
    /// The addresses of the buffers of the READs in flight, by token.
    places: HashMap<u64, usize>,
    ended: Sender<(u64, Vec<u8>)>,
}

impl Reads {
    fn submit(&mut self, io: &mut Io<'_>, buffer: Buffer) {
        let offset = self.submitted * self.len as u64;
        self.places.insert(self.submitted, buffer.as_ptr().addr());
        io.submit(Op::Read { file: self.file, offset, buffer }, self.submitted);
        self.submitted += 1;
        self.in_flight += 1;
    }
}

impl Task for Reads {
    fn start(&mut self, io: &mut Io<'_>) {
        (0..READS).for_each(|_| self.submit(io, vec![0; self.len].into()));
    }

    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done) {
        self.in_flight -= 1;
        assert!(matches!(done.result, Ok(Answer::Read { .. })), "{:?}", done.result);
        assert_eq!(self.places.remove(&token), Some(done.buffer.as_ptr().addr()), "READ {token}");
        self.ended.send((token, done.buffer.to_vec())).unwrap();
        if self.submitted < 2 * READS {
            self.submit(io, done.buffer);
        }
    }

    fn ended(&self) -> bool {
        self.in_flight == 0
    }
}

/// Answers `READS` calls at once.
fn answer_together(fake: &Fake) {
    let calls: Vec<_> = (0..READS).map(|_| fake.next()).collect();
    let answers = calls.iter().map(|call| {
        let read = call.read();
        let number = u8::try_from(read.offset / u64::from(read.count)).unwrap();
        reply_record(call.xid, &read_results(&vec![number; read.count as usize]))
    });
    calls[0].raw(&answers.collect::<Vec<_>>().concat());
}

#[test]
fn replies_that_arrive_together_each_go_into_the_buffer_of_their_read() {
    for len in [16 << 10, 64 << 10, 1 << 20] {
        let fake = Fake::start(1);
        let mount = fake.mount();
        let (ended, all_ended) = channel();
        let places = HashMap::new();
        let reads = Reads { file: file(&mount), len, in_flight: 0, submitted: 0, places, ended };
        mount.spawn(0, Box::new(reads));
        for round in 0..2 {
            answer_together(&fake);
            for number in READS * round..READS * (round + 1) {
                let (token, buffer) = all_ended.recv_timeout(TIMEOUT).unwrap();
                assert_eq!(token, number);
                assert!(buffer == vec![u8::try_from(number).unwrap(); len], "READ {number} of {len} bytes");
            }
        }
    }
}
