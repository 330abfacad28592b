//! Commands and completions: the 64 bytes of a submission queue entry (SQE) and the 16 bytes of a
//! completion queue entry (CQE). NVMe Base, "Submission Queue Entry", "Completion Queue Entry".

use crate::Status;
use crate::layout::{layout, numbers};
use crate::sgl::Sgl;

numbers! {
    /// The opcode of a command on the admin queue. NVMe Base, "Opcodes for Admin Commands"
    pub struct AdminOpcode(u8) {
        /// Reads a log page.
        GET_LOG_PAGE = 0x02,
        /// Reads what the controller or a namespace is.
        IDENTIFY = 0x06,
        /// Aborts a command.
        ABORT = 0x08,
        /// Changes a feature.
        SET_FEATURES = 0x09,
        /// Reads a feature.
        GET_FEATURES = 0x0a,
        /// Waits for an event.
        ASYNC_EVENT_REQUEST = 0x0c,
        /// Says that the host is there.
        KEEP_ALIVE = 0x18,
        /// Ends another controller of the subsystem (TP8028).
        CROSS_CONTROLLER_RESET = 0x38,
        /// A command of Fabrics; its type is in the place of the NSID.
        FABRICS = 0x7f,
    }
}

numbers! {
    /// The opcode of a command of the NVM command set. NVM Command Set, "Opcodes for NVM Commands"
    pub struct IoOpcode(u8) {
        /// Makes earlier writes durable.
        FLUSH = 0x00,
        /// Writes blocks.
        WRITE = 0x01,
        /// Reads blocks.
        READ = 0x02,
        /// Compares blocks with data.
        COMPARE = 0x05,
        /// Writes zeroes.
        WRITE_ZEROES = 0x08,
        /// Says how ranges will be used, or that they are not needed any more.
        DATASET_MANAGEMENT = 0x09,
        /// Reads blocks without moving their data.
        VERIFY = 0x0c,
        /// Registers a key for reservations.
        RESERVATION_REGISTER = 0x0d,
        /// Reads reservations.
        RESERVATION_REPORT = 0x0e,
        /// Acquires or preempts a reservation.
        RESERVATION_ACQUIRE = 0x11,
        /// Releases or clears a reservation.
        RESERVATION_RELEASE = 0x15,
        /// A command of Fabrics.
        FABRICS = 0x7f,
    }
}

/// In which direction a command moves data: the two lowest bits of its opcode, or of the type of a
/// command of Fabrics. NVMe Base, "Opcodes for Admin Commands" (data transfer)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// From the host to the controller.
    ToController,
    /// From the controller to the host.
    ToHost,
    /// In both directions, which nothing here supports.
    Both,
}

impl Direction {
    /// The direction of an opcode or type.
    #[must_use]
    pub const fn of(opcode: u8) -> Self {
        match opcode & 3 {
            0 => Self::None,
            1 => Self::ToController,
            2 => Self::ToHost,
            _ => Self::Both,
        }
    }
}

/// The NSID that means all namespaces.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// FUSE, bits 1:0 of the flags: the command is half of a fused pair.
pub const FUSE_MASK: u8 = 0x03;

/// FUSE: the first command of a fused pair.
pub const FUSE_FIRST: u8 = 0x01;

/// FUSE: the second command of a fused pair.
pub const FUSE_SECOND: u8 = 0x02;

/// PSDT, bits 7:6 of the flags: data are described by an SGL, the only form over fabrics.
pub const PSDT_SGL: u8 = 0x40;

/// The mask of PSDT in the flags.
pub const PSDT_MASK: u8 = 0xc0;

layout! {
    /// A submission queue entry: a command. NVMe Base, "Common Command Format"
    pub struct Sqe[64] {
        /// The opcode; its meaning depends on the queue.
        opcode: u8 = 0,
        /// FUSE and PSDT.
        flags: u8 = 1,
        /// The identifier of the command (CID), unique among those outstanding on its queue.
        cid: u16 = 2,
        /// The namespace. Commands of Fabrics have their type in the lowest byte.
        nsid: u32 = 4,
        /// Dwords 2 and 3.
        cdw2: [u32; 2] = 8,
        /// The metadata pointer, unused here.
        mptr: u64 = 16,
        /// Where the data are.
        sgl: Sgl = 24,
        /// Dword 10.
        cdw10: u32 = 40,
        /// Dword 11.
        cdw11: u32 = 44,
        /// Dword 12.
        cdw12: u32 = 48,
        /// Dword 13.
        cdw13: u32 = 52,
        /// Dword 14.
        cdw14: u32 = 56,
        /// Dword 15.
        cdw15: u32 = 60,
    }
}

impl Sqe {
    /// An empty command for this namespace.
    #[must_use]
    pub fn new(opcode: u8, cid: u16, nsid: u32) -> Self {
        Self { opcode, flags: PSDT_SGL, cid, nsid, ..Self::default() }
    }

    /// The direction in which the command moves data.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        // Of Fabrics, the type says it. NVMe over Fabrics, "Fabrics Command Types"
        if self.opcode == AdminOpcode::FABRICS.0 {
            return Direction::of(self.nsid as u8);
        }
        Direction::of(self.opcode)
    }

    /// The 64 bits of dwords 10 and 11.
    #[must_use]
    pub const fn cdw10_11(&self) -> u64 {
        self.cdw10 as u64 | (self.cdw11 as u64) << 32
    }

    /// The 64 bits of dwords 12 and 13.
    #[must_use]
    pub const fn cdw12_13(&self) -> u64 {
        self.cdw12 as u64 | (self.cdw13 as u64) << 32
    }
}

/// The queue head that says that the queue has no flow control. NVMe over Fabrics, "Submission
/// Queue Flow Control"
pub const SQHD_NO_FLOW_CONTROL: u16 = 0xffff;

layout! {
    /// A completion queue entry: the outcome of a command. NVMe Base, "Common Completion Queue
    /// Entry Layout"
    pub struct Cqe[16] {
        /// What the command returns besides data: dwords 0 and 1.
        result: u64 = 0,
        /// How far the controller has taken commands from the queue (SQHD).
        sqhd: u16 = 8,
        /// The queue; reserved over fabrics.
        sqid: u16 = 10,
        /// The command.
        cid: u16 = 12,
        /// Its outcome.
        status: Status = 14,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_all_fields() {
        let sqe = Sqe {
            opcode: IoOpcode::READ.0,
            flags: PSDT_SGL,
            cid: 0x0102,
            nsid: 3,
            cdw2: [4, 5],
            mptr: 6,
            sgl: Sgl::Transport { length: 4096 },
            cdw10: 10,
            cdw11: 11,
            cdw12: 12,
            cdw13: 13,
            cdw14: 14,
            cdw15: 15,
        };
        let bytes = sqe.encode();
        assert_eq!(bytes[..8], [0x02, 0x40, 0x02, 0x01, 3, 0, 0, 0]);
        assert_eq!([bytes[8], bytes[12], bytes[16], bytes[33], bytes[39]], [4, 5, 6, 0x10, 0x5a]);
        assert_eq!([40, 44, 48, 52, 56, 60].map(|at| bytes[at]), [10, 11, 12, 13, 14, 15]);
        assert_eq!(Sqe::decode(&bytes), Ok(sqe));
        assert_eq!((sqe.cdw10_11(), sqe.cdw12_13()), (11 << 32 | 10, 13 << 32 | 12));
    }

    #[test]
    fn the_direction_is_in_the_opcode_and_for_fabrics_in_the_type() {
        let direction = |opcode, nsid| Sqe::new(opcode, 0, nsid).direction();
        assert_eq!(direction(IoOpcode::WRITE.0, 1), Direction::ToController);
        assert_eq!(direction(IoOpcode::READ.0, 1), Direction::ToHost);
        assert_eq!(direction(IoOpcode::FLUSH.0, 1), Direction::None);
        assert_eq!(direction(AdminOpcode::FABRICS.0, 0x01), Direction::ToController);
        assert_eq!(direction(AdminOpcode::FABRICS.0, 0x04), Direction::None);
        assert_eq!(direction(AdminOpcode::FABRICS.0, 0x06), Direction::ToHost);
        assert_eq!(direction(0x83, 1), Direction::Both);
    }

    #[test]
    fn a_completion_of_all_fields() {
        let status = Status::LBA_OUT_OF_RANGE.no_retry();
        let cqe = Cqe { result: 0x1_0000_0002, sqhd: 3, sqid: 0, cid: 0x0102, status };
        assert_eq!(cqe.encode(), [2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0x02, 0x01, 0x00, 0x81]);
        assert_eq!(Cqe::decode(&cqe.encode()), Ok(cqe));
    }
}
