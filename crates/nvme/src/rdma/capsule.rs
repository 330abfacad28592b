//! Command capsules: where the data of a command are. NVMe RDMA Transport 1.0, "Capsules and Data
//! Transfers".

use crate::command::{Direction, Sqe};
use crate::sgl::Sgl;
use crate::tcp::Incoming;
use crate::{Short, Status};
use std::ops::Range;

/// Memory of the host that a command names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMemory {
    /// The address as the host's device counts.
    pub address: u64,
    /// The length in bytes, at least one.
    pub bytes: u32,
    /// The key.
    pub key: u32,
    /// The response is to invalidate the key. Linux takes a response that invalidates another one
    /// for a broken controller, and a response that invalidates none as it is.
    pub invalidate: bool,
}

/// A command capsule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capsule {
    /// The command.
    pub sqe: Sqe,
    /// How its data move, or the status to answer it with because its SGL does not suit it.
    pub data: Result<Incoming, Status>,
    /// Where its data are in the capsule; empty if they are not.
    pub in_capsule: Range<usize>,
    /// The host's memory for its data.
    pub memory: Option<HostMemory>,
}

impl Capsule {
    /// Reads a message of the host.
    ///
    /// # Errors
    /// [`Short`]: it is no capsule, and the connection ends.
    pub fn decode(message: &[u8]) -> Result<Self, Short> {
        let sqe = Sqe::decode(message)?;
        let memory = memory_of(&sqe.sgl);
        let data_bytes = message.len() - Sqe::BYTES;
        let (data, in_capsule) = match suit(&sqe, data_bytes) {
            Ok((data, range)) => (Ok(data), Sqe::BYTES + range.start..Sqe::BYTES + range.end),
            Err(status) => (Err(status.no_retry()), 0..0),
        };
        Ok(Self { sqe, data, in_capsule, memory })
    }
}

fn memory_of(sgl: &Sgl) -> Option<HostMemory> {
    match *sgl {
        Sgl::Keyed { address, length, key, invalidate } if length > 0 => {
            Some(HostMemory { address, bytes: length, key, invalidate })
        }
        _ => None,
    }
}

/// Whether the SGL of a command suits its direction and the data of its capsule, and where the
/// data are there. ICDOFF is 0, so that offsets count from the end of the SQE.
fn suit(sqe: &Sqe, data_bytes: usize) -> Result<(Incoming, Range<usize>), Status> {
    match (sqe.direction(), sqe.sgl) {
        // A descriptor of no bytes is no data, whatever its type.
        (_, sgl) if sgl.length() == Some(0) => Ok((Incoming::None, 0..0)),
        (Direction::ToController, Sgl::InCapsule { offset, length }) => {
            let start = usize::try_from(offset).ok().filter(|start| *start <= data_bytes);
            let start = start.ok_or(Status::SGL_INVALID_OFFSET)?;
            let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= data_bytes - start);
            let bytes = bytes.ok_or(Status::SGL_INVALID_LENGTH)?;
            Ok((Incoming::InCapsule(length), start..start + bytes))
        }
        // An address that wraps would break the connection, not only the command.
        (_, Sgl::Keyed { address, length, .. }) if address.checked_add(length.into()).is_none() => {
            Err(Status::INVALID_FIELD)
        }
        (Direction::ToController, Sgl::Keyed { length, .. }) => Ok((Incoming::OnRequest(length), 0..0)),
        (Direction::ToHost, Sgl::Keyed { length, .. }) => Ok((Incoming::ToHost(length), 0..0)),
        (_, Sgl::Transport { .. } | Sgl::Other(_)) => Err(Status::SGL_INVALID_TYPE),
        _ => Err(Status::INVALID_FIELD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoOpcode;

    fn capsule(opcode: IoOpcode, sgl: Sgl, data: usize) -> Capsule {
        let sqe = Sqe { sgl, ..Sqe::new(opcode.0, 7, 1) };
        let message = [&sqe.encode()[..], &vec![9; data]].concat();
        let capsule = Capsule::decode(&message).expect("long enough");
        assert_eq!(capsule.sqe, sqe);
        capsule
    }

    fn keyed(address: u64, length: u32, invalidate: bool) -> Sgl {
        Sgl::Keyed { address, length, key: 0x55, invalidate }
    }

    #[test]
    fn keyed_memory_is_read_or_written_as_the_command_moves_data() {
        let write = capsule(IoOpcode::WRITE, keyed(0x1000, 8192, true), 0);
        assert_eq!(write.data, Ok(Incoming::OnRequest(8192)));
        let memory = HostMemory { address: 0x1000, bytes: 8192, key: 0x55, invalidate: true };
        assert_eq!(write.memory, Some(memory));
        let read = capsule(IoOpcode::READ, keyed(0x1000, 4096, false), 0);
        assert_eq!(read.data, Ok(Incoming::ToHost(4096)));
        assert_eq!(read.memory, Some(HostMemory { bytes: 4096, invalidate: false, ..memory }));
        assert!(read.in_capsule.is_empty());
    }

    #[test]
    fn data_in_a_capsule_are_where_the_descriptor_says() {
        let sgl = |offset, length| Sgl::InCapsule { offset, length };
        let write = capsule(IoOpcode::WRITE, sgl(0, 4096), 4096);
        assert_eq!((write.data, write.in_capsule), (Ok(Incoming::InCapsule(4096)), 64..4160));
        let write = capsule(IoOpcode::DATASET_MANAGEMENT, sgl(16, 32), 64);
        assert_eq!((write.data, write.in_capsule), (Ok(Incoming::InCapsule(32)), 80..112));
        assert_eq!(write.memory, None);
    }

    #[test]
    fn a_descriptor_of_no_bytes_is_no_data_and_no_memory() {
        for sgl in [Sgl::NONE, keyed(0, 0, true), Sgl::InCapsule { offset: 0, length: 0 }] {
            for opcode in [IoOpcode::FLUSH, IoOpcode::READ, IoOpcode::WRITE] {
                let none = capsule(opcode, sgl, 0);
                assert_eq!((none.data, none.memory), (Ok(Incoming::None), None));
            }
        }
    }

    #[test]
    fn what_does_not_suit_is_refused_for_good_and_names_no_bytes_of_the_capsule() {
        use IoOpcode as Op;
        let inside = |offset, length| Sgl::InCapsule { offset, length };
        for (opcode, sgl, data, status) in [
            (Op::WRITE, inside(0, 4097), 4096, Status::SGL_INVALID_LENGTH),
            (Op::WRITE, inside(1, 4096), 4096, Status::SGL_INVALID_LENGTH),
            (Op::WRITE, inside(4097, 1), 4096, Status::SGL_INVALID_OFFSET),
            (Op::WRITE, inside(u64::MAX, u32::MAX), 4096, Status::SGL_INVALID_OFFSET),
            (Op::READ, inside(0, 4096), 4096, Status::INVALID_FIELD),
            (Op::FLUSH, inside(0, 16), 16, Status::INVALID_FIELD),
            (Op::FLUSH, keyed(0, 16, false), 0, Status::INVALID_FIELD),
            (Op::WRITE, keyed(u64::MAX, 2, true), 0, Status::INVALID_FIELD),
            (Op::READ, Sgl::Transport { length: 512 }, 0, Status::SGL_INVALID_TYPE),
            (Op::WRITE, Sgl::Other([0x20; 16]), 0, Status::SGL_INVALID_TYPE),
        ] {
            let refused = capsule(opcode, sgl, data);
            assert_eq!(refused.data, Err(status.no_retry()), "{sgl:?}");
            assert!(refused.in_capsule.is_empty());
        }
    }

    #[test]
    fn less_than_a_command_is_no_capsule() {
        assert_eq!(Capsule::decode(&[0; 63]), Err(Short { needed: 64, got: 63 }));
        assert!(Capsule::decode(&[]).is_err());
    }
}
