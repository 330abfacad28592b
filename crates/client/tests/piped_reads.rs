//! Tests READs whose data stay in the kernel: what the pipe contains in the end, whatever happened
//! to the connections.

#[path = "support/fake.rs"]
mod fake;

use client::{Answer, Mount, Op, Pipe};
use fake::{Fake, Request, file, read_results, read_results_with, reply_record};

const LEN: usize = 256 << 10;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 % 251) as u8).collect()
}

/// Submits a READ and lets `answer` answer it. Returns the data, whether they are in the pipe, and
/// whether the file ends there.
fn read(mount: &Mount, answer: impl FnOnce()) -> (Vec<u8>, bool, bool) {
    let (file, pipe) = (file(mount), Pipe::new().unwrap());
    let pending = mount.submit(Op::ReadToPipe { file, offset: 0, len: LEN, pipe });
    answer();
    let done = pending.wait();
    match done.result.unwrap() {
        Answer::Piped { mut pipe, eof } => {
            let mut bytes = vec![0; pipe.len()];
            assert_eq!(pipe.read(&mut bytes), Ok(bytes.len()));
            (bytes, true, eof)
        }
        Answer::Read { count, eof } => (done.buffer[..count as usize].to_vec(), false, eof),
        other => panic!("{other:?}"),
    }
}

/// The next call, which must be the READ.
fn next_read(fake: &Fake) -> Request {
    let call = fake.next();
    let args = call.read();
    assert_eq!((args.offset, args.count as usize), (0, LEN));
    call
}

#[test]
fn the_bytes_are_in_the_pipe() {
    let fake = Fake::start(1);
    let (data, mount) = (bytes(LEN), fake.mount());
    for _ in 0..3 {
        let (read, piped, _) = read(&mount, || next_read(&fake).data_read(&data));
        assert!(read == data && piped);
    }
}

#[test]
fn a_short_read_uses_the_pipe_and_a_very_short_one_memory() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    for (len, by_pipe, ends) in
        [(LEN - 5, true, false), (LEN - 7, true, true), (100, false, true), (0, false, true)]
    {
        let data = bytes(len);
        let (read, piped, eof) = read(&mount, || next_read(&fake).reply(&read_results_with(&data, ends)));
        assert!(read == data && (piped, eof) == (by_pipe, ends), "{len} bytes");
    }
}

#[test]
fn bytes_in_the_pipe_count_as_bytes_read() {
    let fake = Fake::start(1);
    let (data, mount) = (bytes(LEN), fake.mount());
    for _ in 0..3 {
        read(&mount, || next_read(&fake).data_read(&data));
    }
    let paths = mount.statistics().paths;
    let read: u64 = paths.iter().map(|path| path.counters.read.bytes).sum();
    assert_eq!(read, 3 * LEN as u64);
}

#[test]
fn urgent_data_within_a_payload_do_not_stall_the_read() {
    let fake = Fake::start(1);
    let (data, mount) = (bytes(LEN), fake.mount());
    let (read, piped, _) = read(&mount, || {
        let call = next_read(&fake);
        let answer = reply_record(call.xid, &read_results(&data));
        let (first, rest) = answer.split_at(LEN / 2);
        call.raw(first);
        call.urgent();
        call.raw(rest);
    });
    assert!(read == data && !piped);
}

#[test]
fn data_of_a_reply_that_was_cut_off_are_not_in_the_pipe() {
    let fake = Fake::start(2);
    let (data, mount) = (bytes(LEN), fake.mount());
    let (read, piped, _) = read(&mount, || {
        let call = next_read(&fake);
        // Other bytes than the right data, so that the test would notice them.
        let answer = reply_record(call.xid, &read_results(&vec![0xff; LEN]));
        call.raw(&answer[..LEN / 2]);
        call.cut();
        next_read(&fake).data_read(&data);
    });
    assert!(read == data && piped);
}

#[test]
fn a_read_that_is_too_long_or_has_a_pipe_in_use_is_refused() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (file, pipe) = (file(&mount), Pipe::new().unwrap());
    let pending = mount.submit(Op::ReadToPipe { file, offset: 0, len: 1 << 30, pipe });
    assert!(matches!(pending.wait().result, Err(client::Error::Misuse(_))));
    let mut pipe = Pipe::new().unwrap();
    pipe.put(b"left").unwrap();
    let pending = mount.submit(Op::ReadToPipe { file, offset: 0, len: LEN, pipe });
    assert!(matches!(pending.wait().result, Err(client::Error::Misuse(_))));
}
