//! The messages of a try: which end sends what, how long each is, and what follows from it.
//!
//! ```text
//! NFS READ        call ->                <- answer, block
//! NFS WRITE       call, block ->         <- answer
//! NVMe READ       command ->             <- C2HData with the block; its last PDU is the completion
//! NVMe WRITE      command, block ->      <- completion            (the data fit into the capsule)
//!                 command ->             <- R2T;  H2CData with the block ->  <- completion
//! ```
//!
//! NVMe/TCP Transport 1.0: a command capsule has a header of 8 bytes and the command of 64, a
//! C2HData, R2T or H2CData PDU 24 bytes before its data, and a response capsule 24 bytes. Our
//! target and host send a block in one PDU, without digests, and without flow control of the
//! submission queue, so that successful reads have no response capsule.

use super::{ANSWER_BYTES, CALL_BYTES, Direction};

/// A command capsule without data.
const COMMAND_BYTES: usize = 8 + 64;
/// The header of a PDU with data, an R2T, or a response capsule.
const PDU_BYTES: usize = 24;
/// No head is longer.
pub(super) const HEAD_BYTES_MAX: usize = ANSWER_BYTES;

/// The protocol whose traffic is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Traffic {
    /// RPC calls and answers.
    #[default]
    Nfs,
    /// PDUs of NVMe/TCP.
    NvmeTcp {
        /// The most data that go with their command, as the target announces it.
        in_capsule_bytes: usize,
    },
}

/// A message. Its first byte says which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Asks for a block.
    Read,
    /// Brings a block, or says that it can be asked for.
    Write,
    /// Brings the block that was asked for.
    Data,
    /// The block has arrived.
    Written,
    /// Asks for the block of a WRITE.
    Ready,
    /// Brings that block.
    WrittenData,
}

/// What an end does with a message that it has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It sends this one.
    Send(Message),
    /// A block is complete.
    Completed,
}

const ALL: [Message; 6] =
    [Message::Read, Message::Write, Message::Data, Message::Written, Message::Ready, Message::WrittenData];

static HEADS: [[u8; HEAD_BYTES_MAX]; ALL.len()] = {
    let mut heads = [[0; HEAD_BYTES_MAX]; ALL.len()];
    let mut at = 0;
    #[expect(clippy::indexing_slicing, reason = "the index is below the length")]
    while at < ALL.len() {
        heads[at] = [at as u8; HEAD_BYTES_MAX];
        at += 1;
    }
    heads
};

impl Message {
    /// The message that begins with this byte; one that no end sends is taken for a READ.
    pub(super) fn of(first: u8) -> Self {
        ALL.get(usize::from(first)).copied().unwrap_or(Self::Read)
    }

    /// The n-th call of a connection.
    pub(super) const fn call(direction: Direction, n: u64) -> Self {
        if direction.writes(n) { Self::Write } else { Self::Read }
    }

    /// What follows from it.
    pub(super) const fn next(self, traffic: Traffic, block_bytes: usize) -> Next {
        match self {
            Self::Read => Next::Send(Self::Data),
            Self::Write if self.has_block(traffic, block_bytes) => Next::Send(Self::Written),
            Self::Write => Next::Send(Self::Ready),
            Self::Ready => Next::Send(Self::WrittenData),
            Self::WrittenData => Next::Send(Self::Written),
            Self::Data | Self::Written => Next::Completed,
        }
    }

    /// Whether a block goes with it.
    pub(super) const fn has_block(self, traffic: Traffic, block_bytes: usize) -> bool {
        match (self, traffic) {
            (Self::Read | Self::Written | Self::Ready, _) => false,
            (Self::Data | Self::WrittenData, _) | (Self::Write, Traffic::Nfs) => true,
            (Self::Write, Traffic::NvmeTcp { in_capsule_bytes }) => block_bytes <= in_capsule_bytes,
        }
    }

    /// The length of its head.
    pub(super) const fn head_bytes(self, traffic: Traffic) -> usize {
        match (self, traffic) {
            (Self::Read | Self::Write, Traffic::Nfs) => CALL_BYTES,
            (_, Traffic::Nfs) => ANSWER_BYTES,
            (Self::Read | Self::Write, Traffic::NvmeTcp { .. }) => COMMAND_BYTES,
            (_, Traffic::NvmeTcp { .. }) => PDU_BYTES,
        }
    }

    /// Its head.
    pub(super) fn head(self, traffic: Traffic) -> &'static [u8] {
        let head = HEADS.get(self as usize).map(<[u8; HEAD_BYTES_MAX]>::as_slice).unwrap_or_default();
        head.get(..self.head_bytes(traffic)).unwrap_or_default()
    }

    /// Its whole length.
    pub(super) const fn bytes(self, traffic: Traffic, block_bytes: usize) -> usize {
        let block = if self.has_block(traffic, block_bytes) { block_bytes } else { 0 };
        self.head_bytes(traffic) + block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVME: Traffic = Traffic::NvmeTcp { in_capsule_bytes: 8192 };

    /// The bytes of an operation: to the server and to the client.
    fn exchanged(traffic: Traffic, direction: Direction, block_bytes: usize) -> (Vec<usize>, Vec<usize>) {
        let (mut sent, mut at_server) = ((Vec::new(), Vec::new()), true);
        let mut message = Message::call(direction, 0);
        loop {
            let list = if at_server { &mut sent.0 } else { &mut sent.1 };
            list.push(message.bytes(traffic, block_bytes));
            match message.next(traffic, block_bytes) {
                Next::Send(next) => (message, at_server) = (next, !at_server),
                Next::Completed => return sent,
            }
        }
    }

    #[test]
    fn the_messages_have_the_lengths_that_the_protocols_give_them() {
        let block = 1 << 20;
        assert_eq!(exchanged(Traffic::Nfs, Direction::Read, block), (vec![100], vec![128 + block]));
        assert_eq!(exchanged(Traffic::Nfs, Direction::Write, block), (vec![100 + block], vec![128]));
        assert_eq!(exchanged(NVME, Direction::Read, block), (vec![72], vec![24 + block]));
        assert_eq!(exchanged(NVME, Direction::Write, block), (vec![72, 24 + block], vec![24, 24]));
        assert_eq!(exchanged(NVME, Direction::Write, 8192), (vec![72 + 8192], vec![24]));
        assert_eq!(exchanged(NVME, Direction::Write, 8193).1, [24, 24]);
    }

    #[test]
    fn the_first_byte_says_which_message_it_is() {
        for message in ALL {
            for traffic in [Traffic::Nfs, NVME] {
                let head = message.head(traffic);
                assert_eq!((Message::of(head[0]), head.len()), (message, message.head_bytes(traffic)));
            }
        }
    }
}
