//! End Controller: a vendor-specific admin command by which a host learns that an earlier
//! controller of its own is finished. docs/BLOCK.md, "Moving writes safely", has the format.
//!
//! A host that has lost the connections of a controller does not know whether writes that it sent
//! on them are still executed, and may not send them again before it does. Over another connection
//! to the same node it asks to end that controller. The command completes when nothing of the old
//! controller is executed any more, so that moving a write takes milliseconds instead of multiples
//! of the keep-alive timeout.
//!
//! A controller is named by its *instance*, which no other controller of the node has had since the
//! host was booted, also not one before a restart. An instance that is not there any more is
//! finished.

use crate::command::Sqe;
use crate::identify::Controller;

/// The opcode, in the range of vendor-specific admin commands, without data.
pub const END_CONTROLLER: u8 = 0xc0;

/// What Identify Controller says in its vendor-specific bytes if the command is there.
pub const END_CONTROLLER_SIGNATURE: [u8; 8] = *b"TRNKEND1";

const OLDER: u32 = 1 << 16;

/// A controller of a node, as Identify Controller names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Who may be asked to end it: nodes of one process have one number for that.
    pub node: u32,
    /// Which of its controllers, ever.
    pub number: u64,
}

impl Instance {
    /// The instance of a controller that knows the command.
    #[must_use]
    pub fn of(controller: &Controller) -> Option<Self> {
        let known = controller.end_signature == END_CONTROLLER_SIGNATURE;
        known.then_some(Self { node: controller.end_node, number: controller.end_instance })
    }
}

/// Which controllers end. Only those of the host that asks, by its NQN and its identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndController {
    /// This one.
    One(Instance),
    /// All on this node that were connected before the one that is asked.
    Older,
}

impl EndController {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        if sqe.cdw10 & OLDER != 0 {
            return Self::Older;
        }
        Self::One(Instance { node: sqe.cdw11, number: sqe.cdw12_13() })
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16) -> Sqe {
        let sqe = Sqe::new(END_CONTROLLER, cid, 0);
        match self {
            Self::Older => Sqe { cdw10: OLDER, ..sqe },
            Self::One(Instance { node, number }) => {
                Sqe { cdw11: *node, cdw12: *number as u32, cdw13: (*number >> 32) as u32, ..sqe }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    #[test]
    fn the_command_has_no_data_and_reads_as_it_was_written() {
        for asked in [
            EndController::Older,
            EndController::One(Instance { node: 3, number: 0x0102_0304_0506_0708 }),
            EndController::One(Instance { node: u32::MAX, number: 0 }),
        ] {
            let sqe = asked.command(9);
            assert_eq!((EndController::of(&sqe), sqe.direction()), (asked, Direction::None));
        }
        let bytes = EndController::One(Instance { node: 1, number: 0x0201 }).command(9).encode();
        assert_eq!((bytes[0], bytes[44], &bytes[48..50]), (0xc0, 1, &[1, 2][..]));
    }

    #[test]
    fn only_controllers_with_the_signature_have_an_instance() {
        assert_eq!(Instance::of(&Controller::default()), None);
        let controller =
            Controller { end_signature: END_CONTROLLER_SIGNATURE, end_instance: 7, ..Controller::default() };
        assert_eq!(Instance::of(&controller), Some(Instance { node: 0, number: 7 }));
    }
}
