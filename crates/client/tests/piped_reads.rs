//! READs whose bytes stay in the kernel: what the pipe has in the end, whatever became of the
//! connections meanwhile.

#[path = "support/fake.rs"]
mod fake;

use client::{Answer, Mount, Op, Pipe};
use fake::{Fake, Request, file, read_results, read_results_with, reply_record};

const LEN: usize = 256 << 10;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 % 251) as u8).collect()
}

/// Makes a READ, lets `answer` answer it, and gives what came, whether it came by the pipe, and
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

/// The next call, which is the READ.
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
fn fewer_bytes_come_by_the_pipe_and_a_few_without_it() {
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
fn what_comes_by_the_pipe_counts_as_what_was_read() {
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
fn urgent_data_within_a_payload_hold_nothing_up() {
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
fn what_came_of_an_answer_that_was_cut_off_is_not_in_the_pipe() {
    let fake = Fake::start(2);
    let (data, mount) = (bytes(LEN), fake.mount());
    let (read, piped, _) = read(&mount, || {
        let call = next_read(&fake);
        // Other bytes than the right ones, so that they would be seen.
        let answer = reply_record(call.xid, &read_results(&vec![0xff; LEN]));
        call.raw(&answer[..LEN / 2]);
        call.cut();
        next_read(&fake).data_read(&data);
    });
    assert!(read == data && piped);
}

#[test]
fn a_read_that_no_call_may_have_is_refused() {
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
