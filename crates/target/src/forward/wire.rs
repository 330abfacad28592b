//! What the processes of a pair say where commands are forwarded: heads of 64 bytes, little-endian,
//! each followed by as many bytes of payload as it says.
//!
//! Both are of one program, so there is one version, and what is not written exactly as this
//! version writes it is refused.

use crate::config::TRANSFER_BYTES;
use nvme::controller::Node;
use nvme::{HostId, Status};

pub(crate) const HEAD_BYTES: usize = 64;
/// Changes with every change of what is said here.
pub(crate) const VERSION: u32 = 2;
const MAGIC: u64 = u64::from_le_bytes(*b"TRNKFWRD");
/// The longest name of a host.
const HOST_BYTES_MAX: u32 = 223;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const HOST: u8 = 3;
const HOST_GONE: u8 = 4;
const COMMAND: u8 = 5;
const CANCEL: u8 = 6;
const ANSWER: u8 = 7;
const ASK: u8 = 8;
const FRESH: u8 = 9;

/// What is to be done with blocks or reservations of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write {
        durable: bool,
    },
    Compare,
    /// The payload is what is expected, and then what is written, of the same length.
    CompareAndWrite {
        durable: bool,
    },
    Flush,
    WriteZeroes {
        deallocate: bool,
        durable: bool,
    },
    /// The payload are ranges as those of Dataset Management.
    Deallocate,
    /// A command of reservations, by what differs in its submission queue entry.
    Reserve {
        opcode: u8,
        arguments: u64,
    },
}

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command {
    /// Which one, of those that are not answered.
    pub(crate) id: u16,
    /// Of which host, as said before.
    pub(crate) host: u32,
    pub(crate) nsid: u32,
    /// Under which the volume is known to be the receiver's.
    pub(crate) epoch: u64,
    /// When the host was known to be connected.
    pub(crate) stamp: u64,
    pub(crate) operation: Operation,
    pub(crate) start: u64,
    pub(crate) blocks: u32,
    /// Payload that follows.
    pub(crate) bytes: u32,
    /// Payload of the answer, if it succeeds.
    pub(crate) answer_bytes: u32,
}

impl Command {
    /// What it costs of the receiver's window.
    pub(crate) const fn cost(&self) -> usize {
        self.bytes as usize + self.answer_bytes as usize
    }

    /// Whether its lengths are within what any command has.
    const fn is_bounded(&self) -> bool {
        let most = match self.operation {
            Operation::CompareAndWrite { .. } => 2 * TRANSFER_BYTES,
            _ => TRANSFER_BYTES,
        };
        self.bytes <= most && self.answer_bytes <= TRANSFER_BYTES
    }
}

/// A head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// The first of who forwards: its node, where the instances of its controllers begin, and which
    /// of its loops this is.
    Hello { node: Node, instance: u64, outlet: u32 },
    /// The first of who executes: its node, where the instances of its controllers begin, and what
    /// it takes at a time. Nothing that the same loop has sent on an earlier connection is executed
    /// any more.
    Welcome { node: Node, instance: u64, commands: u32, window: u32 },
    /// Commands may be of this host; its name follows.
    Host { host: u32, host_id: HostId, bytes: u32 },
    /// No more commands are of this host.
    HostGone { host: u32 },
    /// A command, with its payload.
    Command(Command),
    /// This command is not to be begun any more. It is answered all the same.
    Cancel { id: u16 },
    /// This command has waited: is its host still connected?
    Ask { id: u16 },
    /// The answer to that: it was at this time. Otherwise the answer is to cancel it.
    Fresh { id: u16, stamp: u64 },
    /// The end of a command, with payload. Of a pair, the status of the first half as well.
    Answer { id: u16, status: Status, first: Status, bytes: u32 },
}

struct Words([u8; HEAD_BYTES]);

impl Words {
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(place) = self.0.get_mut(at..at + N) {
            place.copy_from_slice(&bytes);
        }
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk);
        bytes.copied().unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.get(at))
    }
}

/// Places of a head: its kind, an identifier, two words of 32 bits, and the payload that follows.
/// The rest is as the kind has it.
const KIND: usize = 0;
const ID: usize = 2;
const FIRST: usize = 4;
const SECOND: usize = 8;
const BYTES: usize = 12;
const REST: usize = 16;

/// Places of a command.
const OPCODE: usize = 1;
const EPOCH: usize = REST;
const STAMP: usize = REST + 8;
const START: usize = REST + 16;
const BLOCKS: usize = REST + 24;
const ANSWER_BYTES: usize = REST + 28;
const FLAGS: usize = REST + 32;
const ARGUMENTS: usize = REST + 40;

const DURABLE: u8 = 1;
const DEALLOCATE: u8 = 2;

impl Operation {
    fn put(self, words: &mut Words) {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let (code, flags) = match self {
            Self::Read => (1, 0),
            Self::Write { durable } => (2, flag(durable, DURABLE)),
            Self::Compare => (3, 0),
            Self::CompareAndWrite { durable } => (4, flag(durable, DURABLE)),
            Self::Flush => (5, 0),
            Self::WriteZeroes { deallocate, durable } => {
                (6, flag(durable, DURABLE) | flag(deallocate, DEALLOCATE))
            }
            Self::Deallocate => (7, 0),
            Self::Reserve { opcode, arguments } => {
                words.put(FLAGS + 1, [opcode]);
                words.put(ARGUMENTS, arguments.to_le_bytes());
                (8, 0)
            }
        };
        words.put(OPCODE, [code]);
        words.put(FLAGS, [flags]);
    }

    fn get(words: &Words) -> Option<Self> {
        let [code] = words.get(OPCODE);
        let [flags, opcode] = words.get(FLAGS);
        let durable = flags & DURABLE != 0;
        Some(match code {
            1 => Self::Read,
            2 => Self::Write { durable },
            3 => Self::Compare,
            4 => Self::CompareAndWrite { durable },
            5 => Self::Flush,
            6 => Self::WriteZeroes { deallocate: flags & DEALLOCATE != 0, durable },
            7 => Self::Deallocate,
            8 => Self::Reserve { opcode, arguments: words.u64(ARGUMENTS) },
            _ => return None,
        })
    }
}

impl Message {
    /// The bytes of payload that follow it.
    pub(crate) const fn payload_bytes(&self) -> u32 {
        match self {
            Self::Host { bytes, .. } | Self::Answer { bytes, .. } => *bytes,
            Self::Command(command) => command.bytes,
            _ => 0,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut words = Words([0; HEAD_BYTES]);
        let (kind, id, first, second) = match *self {
            Self::Hello { node, instance, outlet } => {
                words.put(REST, MAGIC.to_le_bytes());
                words.put(REST + 8, instance.to_le_bytes());
                words.put(REST + 16, outlet.to_le_bytes());
                (HELLO, 0, VERSION, node.0)
            }
            Self::Welcome { node, instance, commands, window } => {
                words.put(REST, MAGIC.to_le_bytes());
                words.put(REST + 8, instance.to_le_bytes());
                words.put(REST + 16, commands.to_le_bytes());
                words.put(REST + 20, window.to_le_bytes());
                (WELCOME, 0, VERSION, node.0)
            }
            Self::Host { host, host_id, .. } => {
                words.put(REST, host_id.0);
                (HOST, 0, host, 0)
            }
            Self::HostGone { host } => (HOST_GONE, 0, host, 0),
            Self::Command(command) => {
                command.operation.put(&mut words);
                words.put(EPOCH, command.epoch.to_le_bytes());
                words.put(STAMP, command.stamp.to_le_bytes());
                words.put(START, command.start.to_le_bytes());
                words.put(BLOCKS, command.blocks.to_le_bytes());
                words.put(ANSWER_BYTES, command.answer_bytes.to_le_bytes());
                (COMMAND, command.id, command.host, command.nsid)
            }
            Self::Cancel { id } => (CANCEL, id, 0, 0),
            Self::Ask { id } => (ASK, id, 0, 0),
            Self::Fresh { id, stamp } => {
                words.put(STAMP, stamp.to_le_bytes());
                (FRESH, id, 0, 0)
            }
            Self::Answer { id, status, first, .. } => {
                (ANSWER, id, u32::from(status.bits()), u32::from(first.bits()))
            }
        };
        words.put(KIND, [kind]);
        words.put(ID, id.to_le_bytes());
        words.put(FIRST, first.to_le_bytes());
        words.put(SECOND, second.to_le_bytes());
        words.put(BYTES, self.payload_bytes().to_le_bytes());
        words.0
    }

    /// Reads a head; `None` if it is not one of this version, or says more than there may be.
    pub(crate) fn decode(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let words = Words(*head);
        let ([kind], id) = (words.get(KIND), words.u16(ID));
        let (first, second, bytes) = (words.u32(FIRST), words.u32(SECOND), words.u32(BYTES));
        let status = |bits: u32| u16::try_from(bits).ok().map(Status::from_bits);
        let message = match kind {
            HELLO => Self::Hello {
                node: Node(second),
                instance: words.u64(REST + 8),
                outlet: words.u32(REST + 16),
            },
            WELCOME => Self::Welcome {
                node: Node(second),
                instance: words.u64(REST + 8),
                commands: words.u32(REST + 16),
                window: words.u32(REST + 20),
            },
            HOST if bytes <= HOST_BYTES_MAX => {
                Self::Host { host: first, host_id: HostId(words.get(REST)), bytes }
            }
            HOST_GONE => Self::HostGone { host: first },
            COMMAND => {
                let command = Command {
                    id,
                    host: first,
                    nsid: second,
                    epoch: words.u64(EPOCH),
                    stamp: words.u64(STAMP),
                    operation: Operation::get(&words)?,
                    start: words.u64(START),
                    blocks: words.u32(BLOCKS),
                    bytes,
                    answer_bytes: words.u32(ANSWER_BYTES),
                };
                Self::Command(Some(command).filter(Command::is_bounded)?)
            }
            CANCEL => Self::Cancel { id },
            ASK => Self::Ask { id },
            FRESH => Self::Fresh { id, stamp: words.u64(STAMP) },
            ANSWER if bytes <= TRANSFER_BYTES => {
                Self::Answer { id, status: status(first)?, first: status(second)?, bytes }
            }
            _ => return None,
        };
        // So the version and the magic number are right as well, and what is unused is zero.
        (message.encode() == *head).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(operation: Operation) -> Message {
        let (bytes, answer_bytes) = match operation {
            Operation::Read => (0, TRANSFER_BYTES),
            Operation::CompareAndWrite { .. } => (2 * TRANSFER_BYTES, 0),
            _ => (4096, 0),
        };
        let (epoch, stamp, start) = (u64::MAX - 1, 0x0102_0304_0506_0708, 1 << 40);
        Message::Command(Command {
            id: 255,
            host: 7,
            nsid: 9,
            epoch,
            stamp,
            operation,
            start,
            blocks: 3,
            bytes,
            answer_bytes,
        })
    }

    fn messages() -> Vec<Message> {
        let operations = [
            Operation::Read,
            Operation::Write { durable: true },
            Operation::Write { durable: false },
            Operation::Compare,
            Operation::CompareAndWrite { durable: true },
            Operation::Flush,
            Operation::WriteZeroes { deallocate: true, durable: false },
            Operation::WriteZeroes { deallocate: false, durable: true },
            Operation::Deallocate,
            Operation::Reserve { opcode: 0x0d, arguments: 0x0102_0304_0506_0708 },
        ];
        let mut all: Vec<Message> = operations.into_iter().map(command).collect();
        all.extend([
            Message::Hello { node: Node::B, instance: u64::MAX, outlet: 3 },
            Message::Welcome { node: Node::A, instance: 1 << 60, commands: 256, window: 1 << 23 },
            Message::Host { host: u32::MAX, host_id: HostId([8; 16]), bytes: 223 },
            Message::HostGone { host: 3 },
            Message::Cancel { id: 4 },
            Message::Ask { id: 4 },
            Message::Fresh { id: 4, stamp: u64::MAX },
            Message::Answer {
                id: 5,
                status: Status::ANA_TRANSITION.with_retry_delay(1),
                first: Status::COMPARE_FAILURE.no_retry(),
                bytes: TRANSFER_BYTES,
            },
        ]);
        all
    }

    #[test]
    fn what_is_written_is_read() {
        for message in messages() {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn another_version_and_what_is_too_long_is_none() {
        let mut other = Message::Hello { node: Node::A, instance: 1, outlet: 0 }.encode();
        other[FIRST] += 1;
        assert_eq!(Message::decode(&other), None);
        let mut other = Message::Welcome { node: Node::A, instance: 1, commands: 1, window: 1 }.encode();
        other[REST] ^= 1;
        assert_eq!(Message::decode(&other), None);
        for (message, most) in [
            (command(Operation::Write { durable: false }), TRANSFER_BYTES),
            (command(Operation::CompareAndWrite { durable: false }), 2 * TRANSFER_BYTES),
            (Message::Host { host: 1, host_id: HostId([1; 16]), bytes: 1 }, HOST_BYTES_MAX),
            (
                Message::Answer { id: 1, status: Status::SUCCESS, first: Status::SUCCESS, bytes: 1 },
                TRANSFER_BYTES,
            ),
        ] {
            let mut head = message.encode();
            head[BYTES..BYTES + 4].copy_from_slice(&most.to_le_bytes());
            assert!(Message::decode(&head).is_some(), "{message:?}");
            head[BYTES..BYTES + 4].copy_from_slice(&(most + 1).to_le_bytes());
            assert_eq!(Message::decode(&head), None, "{message:?}");
        }
        let mut head = command(Operation::Read).encode();
        head[ANSWER_BYTES..ANSWER_BYTES + 4].copy_from_slice(&(TRANSFER_BYTES + 1).to_le_bytes());
        assert_eq!(Message::decode(&head), None);
    }

    /// Whatever comes, what is read is what would be written, and bounded.
    #[test]
    fn hostile_bytes_are_none_or_mean_exactly_what_they_say() {
        let mut random = fastrand::Rng::with_seed(22);
        let messages = messages();
        let mut read = 0;
        for round in 0..200_000 {
            let mut head = [0; HEAD_BYTES];
            if round % 2 == 0 {
                random.fill(&mut head);
                head[KIND] %= 11;
            } else {
                head = messages[random.usize(..messages.len())].encode();
                for _ in 0..random.usize(1..4) {
                    head[random.usize(..HEAD_BYTES)] ^= 1 << random.u32(..8);
                }
            }
            if let Some(message) = Message::decode(&head) {
                read += 1;
                assert_eq!(message.encode(), head);
                assert!(message.payload_bytes() <= 2 * TRANSFER_BYTES);
            }
        }
        assert!(read > 1000, "{read}");
    }
}
