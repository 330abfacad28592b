//! A second framing, in the manner of NVMe/TCP: a common header that is part of the record (type,
//! flags, length of the header, offset of the data, length of the whole) and a digest behind the
//! data. Nothing else of a stream may know record marks.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::unix::net::UnixStream;

use super::*;
use crate::poll::Poller;
use crate::stream::Limits;
use crate::{
    Error, Expect, Flushed, PayloadPlace, ReceiveBuffer, Scratch, Sink, Slices, SlicesMut, Source, Stream,
    Transport,
};

const HEADER_BYTES: usize = 8;
const DIGEST_BYTES: usize = 4;
const LIMITS: Limits = Limits { record_bytes_max: 1 << 20 };

#[derive(Debug)]
enum Toy {}

impl Framing for Toy {
    const TAIL_BYTES_MAX: usize = DIGEST_BYTES;
    const MAY_OVERTAKE: bool = false;
    type Assembler = std::convert::Infallible;

    fn parse(bytes: &[u8], record_bytes_max: usize) -> Result<Option<Frame<Self::Assembler>>, FramingError> {
        let Some([_, _, header, data, length @ ..]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*length) as usize;
        if usize::from(*header) < HEADER_BYTES || data < header || len < usize::from(*data) {
            return Err(FramingError::Malformed("a PDU that is shorter than its header".to_owned()));
        }
        if len > record_bytes_max {
            return Err(FramingError::TooLong { bytes: len as u64, max: record_bytes_max });
        }
        Ok(Some(Frame::Whole { skip: 0, len }))
    }

    fn begin(_heads: &mut Vec<u8>) {}

    fn seal(heads: &mut Vec<u8>, start: usize, payload_len: usize) -> Trailer {
        let digest = if payload_len > 0 { heads.split_off(heads.len() - DIGEST_BYTES) } else { Vec::new() };
        let header = (heads.len() - start) as u8;
        let len = (heads.len() - start + payload_len + digest.len()) as u32;
        heads[start + 2..start + 4].copy_from_slice(&[header, header]);
        heads[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
        Trailer::of(&digest)
    }
}

fn digest(data: &[u8]) -> [u8; DIGEST_BYTES] {
    data.iter().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte))).to_le_bytes()
}

fn data_of(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + len) as u8).collect()
}

/// Payload is named by its length.
struct Data;

impl Source<usize> for Data {
    fn slices<'a>(&'a self, len: &'a usize, out: &mut Slices<'a>) {
        static BYTES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let all = BYTES.get_or_init(|| LENGTHS.map(data_of).to_vec());
        let at = LENGTHS.iter().position(|known| known == len).unwrap();
        out.push(IoSlice::new(&all[at]));
    }
}

const LENGTHS: [usize; 5] = [0, 100, 100_001, 20_000, 7];

struct Buffer(Vec<u8>);

impl ReceiveBuffer for Buffer {
    fn unfilled<'a>(&'a mut self, from: usize, out: &mut SlicesMut<'a>) {
        out.push(IoSliceMut::new(&mut self.0[from..]));
    }
}

/// Takes PDUs apart, which must name their data's length in their header and have a right digest.
#[derive(Default)]
struct Pdus {
    in_place: bool,
    lengths: Vec<usize>,
    placed: usize,
}

impl Pdus {
    fn take(&mut self, head: &[u8], data: &[u8], tail: &[u8]) {
        assert_eq!((head[0], head.len()), (4, 12), "the common header is part of the record");
        assert_eq!(head[8..12], (data.len() as u32).to_le_bytes());
        assert_eq!(data, data_of(data.len()));
        assert_eq!(tail, if data.is_empty() { vec![] } else { digest(data).to_vec() });
        self.lengths.push(data.len());
    }
}

impl Sink for Pdus {
    type ReceiveBuffer = Buffer;

    fn choose_receive_buffer(&mut self, head: &[u8], record_len: usize) -> Option<PayloadPlace<Buffer>> {
        let at = usize::from(head[3]);
        let len = record_len - at - DIGEST_BYTES;
        self.in_place.then(|| PayloadPlace { at, len, receive_buffer: Buffer(vec![0; len]) })
    }

    fn record(&mut self, record: &[u8]) {
        let (head, rest) = record.split_at(usize::from(record[3]));
        let tail = if rest.is_empty() { 0 } else { DIGEST_BYTES };
        let (data, tail) = rest.split_at(rest.len() - tail);
        self.take(head, data, tail);
    }

    fn received(&mut self, head: &[u8], receive_buffer: Buffer, tail: &[u8]) {
        self.placed += 1;
        self.take(head, &receive_buffer.0, tail);
    }
}

type Pipe = Stream<usize, Buffer, Toy>;

fn push(stream: &mut Pipe, len: usize) {
    stream.push(len, len, Expect::default(), |head| {
        head.extend_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0]);
        head.extend_from_slice(&(len as u32).to_le_bytes());
        if len > 0 {
            head.extend_from_slice(&digest(&data_of(len)));
        }
    });
}

/// The bytes in which the PDUs leave.
fn sent() -> Vec<u8> {
    let (mut theirs, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut sender: Pipe = Stream::new(ours.into(), LIMITS);
    LENGTHS.iter().for_each(|len| push(&mut sender, *len));
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).map(|_| bytes).unwrap()
    });
    while sender.flush(&Data, usize::MAX).unwrap() != Flushed::All {
        std::thread::yield_now();
    }
    sender.end(false, &Poller::new().unwrap());
    reader.join().unwrap()
}

#[test]
fn another_framing_needs_nothing_of_a_stream_but_its_parameter() {
    let bytes = sent();
    for (in_place, cut) in [(false, 70_000), (true, 70_000), (false, 5000), (true, 5000), (true, 611)] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut stream: Pipe = Stream::new(theirs.into(), LIMITS);
        let (mut sink, mut scratch) = (Pdus { in_place, ..Pdus::default() }, Scratch::new());
        for piece in bytes.chunks(cut) {
            ours.write_all(piece).unwrap();
            stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
        }
        assert_eq!(sink.lengths, LENGTHS, "in order: no short PDU overtakes a long one");
        assert_eq!(sink.placed > 0, in_place);
        assert!(!stream.within_record());
    }
}

#[test]
fn a_header_that_another_framing_refuses_ends_the_stream() {
    for header in [[4, 0, 7, 12, 20, 0, 0, 0], [4, 0, 12, 12, 11, 0, 0, 0], [4, 0, 12, 12, 1, 0, 16, 0]] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut stream: Pipe = Stream::new(theirs.into(), LIMITS);
        let (mut sink, mut scratch) = (Pdus::default(), Scratch::new());
        ours.write_all(&header[..7]).unwrap();
        stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap();
        ours.write_all(&header[7..]).unwrap();
        let error = stream.receive(&mut scratch, &mut sink, usize::MAX).unwrap_err();
        assert!(matches!(error, Error::Record(_)), "{error}");
    }
}
