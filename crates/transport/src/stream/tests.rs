//! Tests streams over a socket pair: records of every length and cut, in place and assembled, and
//! what is refused.

use std::io::{IoSlice, IoSliceMut, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use rpc::record_marking::Mark;

use super::*;
use crate::{DIRECT_BYTES_MIN, PayloadPlace, Pipe, Slices, SlicesMut};

/// What a stream's records expect in reply does not matter.
const NOTHING: Expect = Expect { payload_max: 0, reply_max: 0 };
const LIMITS: Limits = Limits { record_bytes_max: 1 << 20 };

struct Memory {
    bytes: Vec<u8>,
    /// The pipe that the payload is received into as long as it fits.
    pipe: Option<Pipe>,
}

impl ReceiveBuffer for Memory {
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>) {
        // Two pieces, so that a boundary is within the payload.
        let middle = self.bytes.len() / 2;
        let (first, second) = self.bytes.split_at_mut(middle);
        out.extend([first, second].into_iter().scan(from, |skip, piece| {
            let now = (*skip).min(piece.len());
            *skip -= now;
            Some(IoSliceMut::new(&mut piece[now..]))
        }));
    }

    fn pipe(&mut self) -> Option<&mut Pipe> {
        self.pipe.as_mut()
    }

    fn leave_pipe(&mut self) -> std::io::Result<()> {
        if let Some(mut pipe) = self.pipe.take() {
            pipe.read(&mut self.bytes)?;
        }
        Ok(())
    }
}

/// Collects records. With `in_place`, long records are received in place from byte 100 on.
#[derive(Default)]
struct Collect {
    in_place: bool,
    by_pipe: bool,
    records: Vec<Vec<u8>>,
    /// How many payloads were still in a pipe when their record was complete.
    piped: usize,
    landed: usize,
    stop_after: Option<usize>,
}

impl Sink for Collect {
    type ReceiveBuffer = Memory;

    fn choose_receive_buffer(&mut self, _head: &[u8], record_len: usize) -> Option<PayloadPlace<Memory>> {
        let len = (record_len - 100) / 4 * 4 - 3;
        let pipe = self.by_pipe.then(|| Pipe::new().unwrap());
        let receive_buffer = Memory { bytes: vec![0; len], pipe };
        self.in_place.then(|| PayloadPlace { at: record_len - len - 3, len, receive_buffer })
    }

    fn record(&mut self, record: &[u8]) {
        self.records.push(record.to_vec());
    }

    fn received(&mut self, head: &[u8], mut receive_buffer: Memory, tail: &[u8]) {
        self.landed += 1;
        self.piped += usize::from(receive_buffer.pipe.is_some());
        receive_buffer.leave_pipe().unwrap();
        self.records.push([head, &receive_buffer.bytes, tail].concat());
    }

    fn wants_more(&self) -> bool {
        self.stop_after.is_none_or(|stop| self.records.len() < stop)
    }
}

type Receiver = Stream<(), Memory>;

struct Nothing;

impl Source<()> for Nothing {
    fn slices<'a>(&'a self, (): &'a (), _out: &mut Slices<'a>) {}
}

fn receiver() -> (UnixStream, Receiver) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, Stream::new(theirs.into(), LIMITS))
}

fn record_of(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn marked(record: &[u8]) -> Vec<u8> {
    [&Mark { last: true, len: record.len() as u32 }.encode()[..], record].concat()
}

#[test]
fn records_arrive_whole_however_the_stream_is_cut() {
    proptest!(ProptestConfig::with_cases(64), |(
        lens in proptest::collection::vec(prop_oneof![0_usize..300, 15_000_usize..17_000, 60_000_usize..70_000], 1..6),
        cuts in proptest::collection::vec(1_usize..40_000, 1..20),
        (in_place, by_pipe) in any::<(bool, bool)>(),
    )| {
        let (mut ours, mut stream) = receiver();
        let records: Vec<Vec<u8>> = lens.iter().enumerate().map(|(n, &len)| record_of(len, n as u8)).collect();
        let bytes: Vec<u8> = records.iter().flat_map(|record| marked(record)).collect();
        let mut sink = Collect { in_place, by_pipe, ..Collect::default() };
        let mut scratch = Scratch::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            ours.write_all(now).unwrap();
            stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&sink.records, &records);
        prop_assert!(!stream.within_record());
    });
}

#[test]
fn a_long_record_is_received_in_place_together_with_the_next_head() {
    let (mut ours, mut stream) = receiver();
    let long = record_of(DIRECT_BYTES_MIN * 2, 1);
    let writer = std::thread::spawn({
        let bytes = [marked(&long), marked(b"next")].concat();
        move || {
            ours.write_all(&bytes[..2000]).unwrap();
            ours.write_all(&bytes[2000..]).unwrap();
            ours
        }
    });
    let mut sink = Collect { in_place: true, ..Collect::default() };
    let mut scratch = Scratch::new();
    while sink.records.len() < 2 {
        stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    }
    drop(writer.join().unwrap());
    assert_eq!(sink.records, [long, b"next".to_vec()]);
}

#[test]
fn a_payload_goes_to_a_pipe_or_to_memory_if_it_has_too_many_pieces() {
    // More pieces than any pipe holds, and few enough for any pipe.
    for (piece, fits) in [(20, false), (4096, true)] {
        let (mut ours, mut stream) = receiver();
        let long = record_of(100_000, 1);
        let mut sink = Collect { in_place: true, by_pipe: true, ..Collect::default() };
        let mut scratch = Scratch::new();
        for piece in marked(&long).chunks(piece) {
            ours.write_all(piece).unwrap();
            stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
        }
        assert!(sink.records == [long], "pieces of {piece} bytes");
        assert_eq!((sink.landed, sink.piped > 0), (1, fits));
    }
}

#[test]
fn an_end_within_a_payload_in_a_pipe_is_an_error() {
    let (mut ours, mut stream) = receiver();
    ours.write_all(&marked(&record_of(100_000, 1))[..50_000]).unwrap();
    ours.shutdown(Shutdown::Write).unwrap();
    let mut sink = Collect { in_place: true, by_pipe: true, ..Collect::default() };
    let mut scratch = Scratch::new();
    let error = loop {
        if let Err(error) = stream.receive(&mut scratch, &mut sink, usize::MAX) {
            break error;
        }
    };
    assert!(matches!(error, Error::Truncated), "{error}");
}

#[test]
fn fragments_are_joined() {
    let (mut ours, mut stream) = receiver();
    for (last, part) in [(false, &b"one "[..]), (false, b""), (true, b"record")] {
        ours.write_all(&Mark { last, len: part.len() as u32 }.encode()).unwrap();
        ours.write_all(part).unwrap();
    }
    ours.write_all(&marked(b"another")).unwrap();
    let mut sink = Collect::default();
    stream.receive(&mut Scratch::new(), &mut sink, usize::MAX).unwrap();
    assert_eq!(sink.records, [b"one record".to_vec(), b"another".to_vec()]);
}

#[test]
fn a_record_above_the_bound_is_refused_when_its_number_is_known() {
    let (mut ours, mut stream) = receiver();
    ours.write_all(&Mark { last: true, len: (1 << 20) + 1 }.encode()).unwrap();
    stream.receive(&mut Scratch::new(), &mut Collect::default(), usize::MAX).unwrap();
    ours.write_all(&[0, 0, 0, 7]).unwrap();
    let error = stream.receive(&mut Scratch::new(), &mut Collect::default(), usize::MAX).unwrap_err();
    assert!(matches!(error, Error::Record(_)), "{error}");
    assert!(stream.held_bytes() < 64);
}

#[test]
fn an_announced_record_takes_no_memory_before_it_arrives() {
    let (mut ours, mut stream) = receiver();
    let start = marked(&record_of(1 << 20, 0));
    ours.write_all(&start[..2048]).unwrap();
    stream.receive(&mut Scratch::new(), &mut Collect::default(), usize::MAX).unwrap();
    assert!(stream.held_bytes() < 512 << 10, "{}", stream.held_bytes());
    assert!(stream.within_record());
}

#[test]
fn an_end_within_a_record_is_an_error_of_its_own() {
    for (bytes, within) in [(marked(b"whole"), false), (marked(b"cut")[..5].to_vec(), true)] {
        let (mut ours, mut stream) = receiver();
        ours.write_all(&bytes).unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        let mut scratch = Scratch::new();
        let mut sink = Collect::default();
        stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
        let error = stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap_err();
        assert_eq!(matches!(error, Error::Truncated), within, "{error}");
    }
}

#[test]
fn a_sink_that_stops_gets_the_rest_with_the_next_receive() {
    let (mut ours, mut stream) = receiver();
    ours.write_all(&[marked(b"first"), marked(b"second"), marked(b"third")].concat()).unwrap();
    let mut sink = Collect { stop_after: Some(1), ..Collect::default() };
    let mut scratch = Scratch::new();
    stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    assert_eq!(sink.records.len(), 1);
    sink.stop_after = None;
    stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    assert_eq!(sink.records, [b"first".to_vec(), b"second".to_vec(), b"third".to_vec()]);
}

#[test]
fn heads_and_payloads_are_sent_complete_with_marks_and_padding() {
    struct Store(Vec<u8>);
    impl Source<(usize, usize)> for Store {
        fn slices<'a>(&'a self, &(at, len): &'a (usize, usize), out: &mut Slices<'a>) {
            let middle = at + len / 2;
            out.push(IoSlice::new(&self.0[at..middle]));
            out.push(IoSlice::new(&self.0[middle..at + len]));
        }
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut sender: Stream<(usize, usize), Memory> = Stream::new(ours.into(), LIMITS);
    let mut receiver: Receiver = Stream::new(theirs.into(), LIMITS);
    let store = Store(record_of(1 << 20, 9));
    let mut expected = Vec::new();
    for n in 0..40_usize {
        let (at, len) = (n * 1000, (n * 7919) % 90_000);
        sender.push((at, len), len, NOTHING, |head| head.extend_from_slice(format!("head {n} ").as_bytes()));
        let mut record = format!("head {n} ").into_bytes();
        record.extend_from_slice(&store.0[at..at + len]);
        record.resize(record.len() + len.wrapping_neg() % 4, 0);
        expected.push(record);
    }
    let mut sink = Collect::default();
    let mut scratch = Scratch::new();
    while sender.flush(&store, usize::MAX).unwrap() != Flushed::All || sink.records.len() < 40 {
        receiver.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    }
    assert_eq!(sender.queued_bytes(), 0);
    // Short records may have overtaken long ones.
    sink.records.sort();
    expected.sort();
    assert!(sink.records == expected);
}

#[test]
fn a_short_record_overtakes_long_ones_that_have_not_begun() {
    struct Zeros;
    impl Source<usize> for Zeros {
        fn slices<'a>(&'a self, &len: &'a usize, out: &mut Slices<'a>) {
            static ZEROS: [u8; 100_000] = [0; 100_000];
            out.push(IoSlice::new(&ZEROS[..len]));
        }
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut sender: Stream<usize, Memory> = Stream::new(ours.into(), LIMITS);
    let mut receiver: Receiver = Stream::new(theirs.into(), LIMITS);
    let push = |sender: &mut Stream<usize, Memory>, name: &str, len: usize| {
        sender.push(len, len, NOTHING, |head| head.extend_from_slice(name.as_bytes()));
    };
    for n in 0..9 {
        push(&mut sender, &format!("long {n}"), 100_000);
    }
    // Some of the long records leave. The record that has begun is not interrupted.
    assert_ne!(sender.flush(&Zeros, usize::MAX).unwrap(), Flushed::All);
    push(&mut sender, "short", 0);
    push(&mut sender, "second", 0);
    let mut unsent = 0;
    sender.unsent(|_| unsent += 1);
    assert!(unsent > 1);
    let mut sink = Collect::default();
    let mut scratch = Scratch::new();
    while sender.flush(&Zeros, usize::MAX).unwrap() != Flushed::All || sink.records.len() < 11 {
        receiver.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    }
    let at = |name: &str| sink.records.iter().position(|record| record.starts_with(name.as_bytes())).unwrap();
    assert!(
        at("short") < at("long 8") && at("short") < at("second"),
        "short {} long 8 {}",
        at("short"),
        at("long 8")
    );
    assert!((0..8).all(|n| at(&format!("long {n}")) < at(&format!("long {}", n + 1))));
    assert!(
        sink.records.iter().all(|record| record.len() == 5 || record.len() == 6 || record.len() == 100_006)
    );
}

#[test]
fn aborting_returns_the_memory_of_a_payload_in_flight() {
    let (mut ours, mut stream) = receiver();
    ours.write_all(&marked(&record_of(100_000, 0))[..50_000]).unwrap();
    let mut sink = Collect { in_place: true, ..Collect::default() };
    let poller = Poller::new().unwrap();
    stream.receive(&mut Scratch::new(), &mut sink, usize::MAX).unwrap();
    assert!(stream.end(true, &poller).receive_buffer.is_some());
    let (_ours, stream) = receiver();
    assert!(stream.end(true, &poller).receive_buffer.is_none());
}

#[test]
fn an_injected_fault_cuts_before_or_after_the_record_is_sent() {
    use crate::{Fault, Faulty};
    for (fault, arrives) in [(Fault::BeforeSend(1), 0), (Fault::AfterSend(1), 1), (Fault::Silence(1), 0)] {
        let (one, mut other) = Receiver::pair(LIMITS).unwrap();
        let mut faulty = Faulty::new(one);
        faulty.set(fault);
        faulty.push((), 0, NOTHING, |head| head.extend_from_slice(b"call"));
        assert_eq!(faulty.flush(&Nothing, usize::MAX).is_err(), fault != Fault::Silence(1));
        let mut sink = Collect::default();
        other.receive(&mut Scratch::new(), &mut sink, usize::MAX).unwrap();
        assert_eq!(sink.records.len(), arrives);
    }
}

/// A source whose payloads have the length in the cell.
struct Announced(std::cell::Cell<usize>);

impl Source<()> for Announced {
    fn slices<'a>(&'a self, (): &'a (), out: &mut Slices<'a>) {
        static ZEROS: [u8; 100_000] = [0; 100_000];
        out.push(IoSlice::new(&ZEROS[..self.0.get()]));
    }
}

fn sender() -> (UnixStream, Stream<(), Memory>) {
    let (theirs, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (theirs, Stream::new(ours.into(), LIMITS))
}

#[test]
fn a_payload_that_changes_its_length_in_the_queue_ends_the_connection_before_it_is_sent() {
    for len in [0, 19_999, 20_001] {
        let (theirs, mut sender) = sender();
        sender.push((), 20_000, NOTHING, |head| head.extend_from_slice(b"head"));
        sender.push((), 0, NOTHING, |head| head.extend_from_slice(b"next"));
        assert!(sender.flush(&Announced(len.into()), usize::MAX).is_err(), "{len}");
        drop(sender);
        assert_eq!(std::io::Read::read(&mut &theirs, &mut [0]).unwrap(), 0, "no part of the record was sent");
    }
    // A record that shrinks after it has begun is an error too, not a panic.
    let (_theirs, mut sender) = sender();
    let announced = Announced(100_000.into());
    for _ in 0..20 {
        sender.push((), 100_000, NOTHING, |head| head.extend_from_slice(b"head"));
    }
    assert_ne!(sender.flush(&announced, usize::MAX).unwrap(), Flushed::All);
    announced.0.set(1);
    assert!(sender.flush(&announced, usize::MAX).is_err());
}

#[test]
fn one_flush_sends_a_bounded_amount_and_the_next_continues() {
    let (theirs, mut sender) = sender();
    theirs.set_nonblocking(true).unwrap();
    let mut receiver: Receiver = Stream::new(theirs.into(), LIMITS);
    let (mut sink, mut scratch) = (Collect::default(), Scratch::new());
    let announced = Announced(10_000.into());
    for _ in 0..5 {
        sender.push((), 10_000, NOTHING, |head| head.extend_from_slice(b"head"));
    }
    let mut queued = sender.queued_bytes();
    let mut flushes = 0;
    loop {
        let flushed = sender.flush(&announced, 12_000).unwrap();
        let sent = queued - sender.queued_bytes();
        queued = sender.queued_bytes();
        flushes += 1;
        if flushed == Flushed::All {
            break;
        }
        assert_eq!(flushed, Flushed::OutOfBudget);
        // A flush continues to the end of the piece in which the budget ends.
        assert!((12_000..22_000).contains(&sent), "{sent}");
        receiver.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    }
    receiver.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    assert_eq!((flushes, queued), (3, 0));
    assert_eq!(sink.records.iter().map(Vec::len).collect::<Vec<_>>(), [10_004; 5]);
    // A budget of 0 sends nothing, and an empty queue needs no budget.
    assert_eq!(sender.flush(&announced, 0).unwrap(), Flushed::All);
    sender.push((), 0, NOTHING, |head| head.extend_from_slice(b"head"));
    assert_eq!(sender.flush(&announced, 0).unwrap(), Flushed::OutOfBudget);
}

#[test]
fn short_records_behind_a_long_one_that_has_begun_are_pushed_at_a_constant_cost() {
    let (_theirs, mut sender) = sender();
    let announced = Announced(100_000.into());
    // The peer does not read, so the last long record stays half sent, and no later record can be
    // sent.
    for _ in 0..9 {
        sender.push((), 100_000, NOTHING, |head| head.extend_from_slice(b"long"));
        sender.flush(&announced, usize::MAX).unwrap();
    }
    // At a cost that grows with the queue this loop would take hours.
    for _ in 0..1_000_000 {
        sender.push((), 0, NOTHING, |head| head.extend_from_slice(b"short"));
    }
    assert!(sender.queued_records() >= 1_000_000);
}

#[test]
fn long_records_are_sent_among_any_number_of_short_ones() {
    let (theirs, mut sender) = sender();
    let announced = Announced(100_000.into());
    theirs.set_nonblocking(true).unwrap();
    let mut receiver: Receiver = Stream::new(theirs.into(), LIMITS);
    let (mut sink, mut scratch) = (Collect::default(), Scratch::new());
    for _ in 0..9 {
        sender.push((), 100_000, NOTHING, |head| head.extend_from_slice(b"long"));
    }
    let mut short = 0;
    while sink.records.iter().filter(|record| record.len() > 16).count() < 9 {
        for _ in 0..20 {
            sender.push((), 0, NOTHING, |head| head.extend_from_slice(b"short"));
            short += 1;
        }
        sender.flush(&announced, usize::MAX).unwrap();
        receiver.receive(&mut scratch, &mut sink, 50_000).unwrap();
        assert!(short < 10_000, "the long records starve");
    }
}

#[test]
fn a_connection_that_was_busy_holds_little_memory_once_it_is_idle() {
    let (mut ours, mut stream) = receiver();
    let mut sink = Collect { stop_after: Some(1), ..Collect::default() };
    let mut scratch = Scratch::new();
    let many: Vec<u8> = (0..400).flat_map(|_| marked(&record_of(200, 1))).collect();
    ours.write_all(&many).unwrap();
    stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    assert!(stream.held_bytes() > 48 << 10, "the other records wait in the stream");
    sink.stop_after = None;
    ours.write_all(&marked(&record_of(15_000, 1))[..14_000]).unwrap();
    stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
    assert_eq!(sink.records.len(), 400);
    assert!(stream.held_bytes() <= 32 << 10, "{}", stream.held_bytes());
}
