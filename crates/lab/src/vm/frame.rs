//! The protocol between the host and the agent in a guest, over one virtio-serial port.
//!
//! A frame has a length (4 bytes; of what follows), a kind (1), the command's number (4), and a
//! payload. Both ends are the same program, so there is no version. An invalid frame ends the
//! connection.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The maximum payload of a frame. A command line with its environment fits, and so does a piece of
/// output.
pub(super) const PAYLOAD_BYTES_MAX: usize = 4 << 20;

/// The maximum size of a piece of output, so that several commands can share the port.
pub(super) const PIECE_BYTES: usize = 32 << 10;

const HEAD_BYTES: usize = 5;

/// The meaning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// To the guest: start a command; the payload is a [`Start`].
    Start,
    /// To the guest: input for a command.
    Input,
    /// To the guest: the end of the input.
    EndOfInput,
    /// To the guest: a signal for the command and its children; the payload is its number.
    Signal,
    /// To the host: the agent is running.
    Ready,
    /// To the host: standard output.
    Out,
    /// To the host: standard error.
    Err,
    /// To the host: the command has ended, with the status as of `wait`.
    Ended,
    /// To the host: the command could not be started; the payload is the reason.
    Refused,
}

const KINDS: [Kind; 9] = [
    Kind::Start,
    Kind::Input,
    Kind::EndOfInput,
    Kind::Signal,
    Kind::Ready,
    Kind::Out,
    Kind::Err,
    Kind::Ended,
    Kind::Refused,
];

impl Kind {
    fn code(self) -> u8 {
        let position = KINDS.iter().position(|kind| *kind == self);
        position.and_then(|position| u8::try_from(position).ok()).unwrap_or(u8::MAX)
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) command: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn new(kind: Kind, command: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, command, payload: payload.into() }
    }

    /// Writes the whole frame.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(HEAD_BYTES + self.payload.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(4 + HEAD_BYTES + self.payload.len());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.push(self.kind.code());
        bytes.extend_from_slice(&self.command.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        to.write_all(&bytes)?;
        to.flush()
    }

    /// Reads a frame; `None` if the other end has closed the port between two frames.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        match from.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            outcome => outcome?,
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if !(HEAD_BYTES..=HEAD_BYTES + PAYLOAD_BYTES_MAX).contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
        }
        let (mut code, mut command) = ([0; 1], [0; 4]);
        from.read_exact(&mut code)?;
        from.read_exact(&mut command)?;
        let mut payload = vec![0; length - HEAD_BYTES];
        from.read_exact(&mut payload)?;
        let kind = KINDS.get(usize::from(code[0])).copied();
        let kind =
            kind.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a frame of no known kind"))?;
        Ok(Some(Self { kind, command: u32::from_be_bytes(command), payload }))
    }
}

/// A command to start in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Start {
    pub(super) directory: OsString,
    /// The rows and columns of the terminal for the command, if it needs one.
    pub(super) terminal: Option<(u16, u16)>,
    /// The program and its arguments.
    pub(super) words: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Start {
    /// The fields, each followed by a zero byte, which no field can contain.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (rows, columns) = self.terminal.unwrap_or((0, 0));
        let mut bytes = self.directory.as_bytes().to_vec();
        bytes.extend_from_slice(format!("\0{rows}\0{columns}\0{}\0", self.words.len()).as_bytes());
        for word in &self.words {
            bytes.extend_from_slice(word.as_bytes());
            bytes.push(0);
        }
        for (name, value) in &self.environment {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b'=');
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let owned = |field: &[u8]| OsString::from_vec(field.to_vec());
        let directory = owned(fields.next()?);
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u16>().ok();
        let (rows, columns, count) = (number()?, number()?, number()?);
        let words: Vec<_> = fields.by_ref().take(usize::from(count)).map(owned).collect();
        if words.len() != usize::from(count) || words.is_empty() {
            return None;
        }
        let pair = |field: &[u8]| {
            let at = field.iter().position(|byte| *byte == b'=')?;
            Some((owned(field.get(..at)?), owned(field.get(at + 1..)?)))
        };
        let environment = fields.map(pair).collect::<Option<_>>()?;
        let terminal = (rows != 0).then_some((rows, columns));
        Some(Self { directory, terminal, words, environment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let frames = KINDS.map(|kind| Frame::new(kind, 7, b"what it carries".to_vec()));
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).expect("a vector takes all");
        }
        let mut rest = bytes.as_slice();
        for frame in frames {
            assert_eq!(Frame::read(&mut rest).expect("whole"), Some(frame));
        }
        assert_eq!(Frame::read(&mut rest).expect("the end"), None);
    }

    #[test]
    fn frames_that_make_no_sense_are_refused_before_memory_is_taken() {
        assert!(Frame::read(&mut &[0xff; 20][..]).is_err(), "too long");
        assert!(Frame::read(&mut &[0, 0, 0, 4, 0, 0, 0, 0][..]).is_err(), "too short");
        assert!(Frame::read(&mut &[0, 0, 0, 5, 99, 0, 0, 0, 0][..]).is_err(), "an unknown kind");
        assert!(Frame::read(&mut &[0, 0, 0, 9, 0, 0, 0][..]).is_err(), "cut off");
    }

    #[test]
    fn commands_are_read_as_they_were_written() {
        let start = Start {
            directory: "/a directory".into(),
            terminal: Some((24, 80)),
            words: vec!["sh".into(), "-c".into(), "".into()],
            environment: vec![("A".into(), "x=y\nz".into()), ("B".into(), "".into())],
        };
        assert_eq!(Start::decode(&start.encode()), Some(start.clone()));
        let plain = Start { terminal: None, environment: Vec::new(), ..start };
        assert_eq!(Start::decode(&plain.encode()), Some(plain.clone()));
        let bytes = plain.encode();
        for cut in 0..bytes.len() {
            // A truncated message never causes a panic.
            let _ = Start::decode(bytes.get(..cut).expect("within"));
        }
    }
}
