//! The host's end of a connection over RDMA.

use super::HostMemory;
use crate::host::{HostData, HostMisuse, Outstanding};
use crate::sgl::KEYED_LENGTH_END;
use crate::{Cqe, Sgl, Short, Sqe};

/// Where the data of a command are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPlace {
    /// There are none.
    None,
    /// This many bytes follow the command in its capsule.
    InCapsule(u32),
    /// In memory that the controller reads or writes.
    Memory(HostMemory),
}

/// A message that is no answer of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    /// Too short.
    #[error("a response of {} bytes instead of {}", .0.got, .0.needed)]
    Short(Short),
    /// No such command is outstanding.
    #[error("a response to command {0:#06x}, which is not outstanding")]
    NoCommand(u16),
}

/// The commands of a queue over RDMA. With each it keeps what the driver needs until its end.
#[derive(Debug)]
pub struct HostQueue<T> {
    commands: Outstanding<T>,
    capsule_data_bytes: u32,
}

impl<T> HostQueue<T> {
    /// A queue with this many entries, at most [`ENTRIES_MAX`](crate::host::ENTRIES_MAX).
    #[must_use]
    pub fn new(entries: u16) -> Self {
        Self { commands: Outstanding::new(entries), capsule_data_bytes: 0 }
    }

    /// The most data that go into a capsule: none on an admin queue and for Connect, else what
    /// IOCCSZ says.
    pub const fn set_capsule_data_bytes(&mut self, bytes: u32) {
        self.capsule_data_bytes = bytes;
    }

    /// Whether data go into the capsule.
    #[must_use]
    pub const fn is_in_capsule(&self, data: HostData) -> bool {
        matches!(data, HostData::ToController(bytes) if bytes <= self.capsule_data_bytes)
    }

    /// The command as it is sent, with its identifier and its SGL; data in the capsule follow it.
    ///
    /// # Errors
    /// [`HostMisuse`]; the command is not outstanding then.
    pub fn submit(&mut self, sqe: &Sqe, place: HostPlace, kept: T) -> Result<Sqe, HostMisuse> {
        let sgl = match place {
            HostPlace::None => Sgl::Keyed { address: 0, length: 0, key: 0, invalidate: false },
            HostPlace::InCapsule(bytes) if bytes > self.capsule_data_bytes => {
                return Err(HostMisuse::TooLong(bytes));
            }
            HostPlace::InCapsule(length) => Sgl::InCapsule { offset: 0, length },
            HostPlace::Memory(memory) if memory.bytes >= KEYED_LENGTH_END => {
                return Err(HostMisuse::TooLong(memory.bytes));
            }
            HostPlace::Memory(HostMemory { address, bytes: length, key, invalidate }) => {
                Sgl::Keyed { address, length, key, invalidate }
            }
        };
        let cid = self.commands.insert(kept).ok_or(HostMisuse::Full)?;
        Ok(Sqe { cid, sgl, ..*sqe })
    }

    /// A message of the controller: the end of a command, whose memory it does not use any more.
    ///
    /// # Errors
    /// [`BadResponse`]: the controller broke the protocol, and the connection ends.
    pub fn handle_response(&mut self, message: &[u8]) -> Result<(Cqe, T), BadResponse> {
        let cqe = Cqe::decode(message).map_err(BadResponse::Short)?;
        let kept = self.commands.remove(cqe.cid).ok_or(BadResponse::NoCommand(cqe.cid))?;
        Ok((cqe, kept))
    }

    /// What is kept for commands that were not completed.
    pub fn outstanding(&self) -> impl Iterator<Item = &T> {
        self.commands.iter()
    }

    /// The number of commands that were not completed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether all commands were completed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::Capsule;
    use super::*;
    use crate::tcp::Incoming;
    use crate::{IoOpcode, Status};

    fn write() -> Sqe {
        Sqe::new(IoOpcode::WRITE.0, 0, 1)
    }

    fn memory(bytes: u32) -> HostMemory {
        HostMemory { address: 0x7f00_0000_1000, bytes, key: 0x1234, invalidate: false }
    }

    fn response(cid: u16) -> [u8; Cqe::BYTES] {
        Cqe { result: 0, sqhd: 0, sqid: 1, cid, status: Status::SUCCESS }.encode()
    }

    #[test]
    fn the_target_finds_the_data_where_the_host_says_they_are() {
        let mut queue = HostQueue::new(4);
        queue.set_capsule_data_bytes(4096);
        let mut seen = |place, data: &[u8]| {
            let sqe = queue.submit(&write(), place, ()).expect("room");
            Capsule::decode(&[&sqe.encode()[..], data].concat()).expect("a capsule")
        };
        let inside = seen(HostPlace::InCapsule(4096), &[7; 4096]);
        assert_eq!((inside.data, inside.in_capsule), (Ok(Incoming::InCapsule(4096)), 64..4160));
        let outside = seen(HostPlace::Memory(memory(8192)), &[]);
        assert_eq!((outside.data, outside.memory), (Ok(Incoming::OnRequest(8192)), Some(memory(8192))));
        let none = seen(HostPlace::None, &[]);
        assert_eq!((none.data, none.memory), (Ok(Incoming::None), None));
        assert_eq!(queue.submit(&write(), HostPlace::None, ()), Err(HostMisuse::Full));
    }

    #[test]
    fn data_go_into_the_capsule_only_as_far_as_the_controller_takes_them_there() {
        let mut queue = HostQueue::new(4);
        assert!(!queue.is_in_capsule(HostData::ToController(1)));
        assert_eq!(queue.submit(&write(), HostPlace::InCapsule(1), ()), Err(HostMisuse::TooLong(1)));
        queue.set_capsule_data_bytes(4096);
        assert!(queue.is_in_capsule(HostData::ToController(4096)));
        assert!(!queue.is_in_capsule(HostData::ToController(4097)));
        assert!(!queue.is_in_capsule(HostData::FromController(1)));
        let too_long = HostPlace::Memory(memory(KEYED_LENGTH_END));
        assert_eq!(queue.submit(&write(), too_long, ()), Err(HostMisuse::TooLong(KEYED_LENGTH_END)));
        assert!(queue.is_empty());
    }

    #[test]
    fn an_answer_to_no_command_ends_the_connection() {
        let mut queue = HostQueue::new(4);
        let first = queue.submit(&write(), HostPlace::None, 'a').expect("room").cid;
        assert_eq!(queue.handle_response(&[0; 15]), Err(BadResponse::Short(Short { needed: 16, got: 15 })));
        assert_eq!(queue.handle_response(&response(first ^ 1)), Err(BadResponse::NoCommand(first ^ 1)));
        assert_eq!(
            queue.handle_response(&response(first)).map(|(cqe, kept)| (cqe.cid, kept)),
            Ok((first, 'a'))
        );
        // Its successor in the same place has another identifier.
        let second = queue.submit(&write(), HostPlace::None, 'b').expect("room").cid;
        assert_ne!(first, second);
        assert_eq!(queue.handle_response(&response(first)), Err(BadResponse::NoCommand(first)));
        assert_eq!((queue.len(), queue.outstanding().copied().collect::<String>().as_str()), (1, "b"));
    }
}
