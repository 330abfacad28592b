//! Cross-Controller Reset: a host that has lost a controller has it reset by another one of the
//! subsystem, and knows then that nothing of it is executed any more. NVMe Base 2.3,
//! "Cross-Controller Reset command" (TP8028).
//!
//! The outcome comes with the completion if the reset is over by then (IRS). Otherwise an event
//! follows, and the log page 1Eh has it. Our controllers complete the command when it is over.

use crate::command::{AdminOpcode, Sqe};
use crate::identify::Controller;

/// The result of a command whose reset is over: Immediate Reset Successful.
pub const RESET_IS_OVER: u64 = 1;

/// The bytes of the log page without entries: how many there are, and six reserved ones.
pub const LOG_HEADER_BYTES: usize = 8;

/// The controller that is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Impacted {
    /// ICID: its identifier.
    pub cntlid: u16,
    /// CIU: of an identifier that is given again, which of its controllers. Not 0.
    pub uniquifier: u8,
    /// CIRN: a number that tells it from others with the same two.
    pub random: u64,
}

impl Impacted {
    /// The name of a controller whose subsystem knows the command.
    #[must_use]
    pub fn of(controller: &Controller) -> Option<Self> {
        let named = Self {
            cntlid: controller.cntlid,
            uniquifier: controller.instance,
            random: u64::from_le_bytes(controller.instance_random),
        };
        (controller.cross_reset_limit > 0 && named.uniquifier > 0).then_some(named)
    }

    /// Reads the fields of a command.
    #[must_use]
    pub const fn of_command(sqe: &Sqe) -> Self {
        let [low, high, uniquifier, _] = sqe.cdw10.to_le_bytes();
        Self { cntlid: u16::from_le_bytes([low, high]), uniquifier, random: sqe.cdw12_13() }
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16) -> Sqe {
        let sqe = Sqe::new(AdminOpcode::CROSS_CONTROLLER_RESET.0, cid, 0);
        let [low, high] = self.cntlid.to_le_bytes();
        Sqe {
            cdw10: u32::from_le_bytes([low, high, self.uniquifier, 0]),
            cdw12: self.random as u32,
            cdw13: (self.random >> 32) as u32,
            ..sqe
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    const IMPACTED: Impacted = Impacted { cntlid: 0x8001, uniquifier: 7, random: 0x0102_0304_0506_0708 };

    #[test]
    fn the_command_has_its_fields_where_the_standard_has_them() {
        let sqe = IMPACTED.command(9);
        assert_eq!((Impacted::of_command(&sqe), sqe.direction()), (IMPACTED, Direction::None));
        let bytes = sqe.encode();
        // Dword 10: ICID in bits 15:0, CIU in 23:16. Dwords 12 and 13: CIRN.
        assert_eq!((bytes[0], &bytes[40..44]), (0x38, &[0x01, 0x80, 7, 0][..]));
        assert_eq!(bytes[48..56], [8, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn only_controllers_that_say_so_are_reset() {
        let controller = Controller {
            cntlid: IMPACTED.cntlid,
            instance: IMPACTED.uniquifier,
            instance_random: IMPACTED.random.to_le_bytes(),
            cross_reset_limit: 4,
            ..Controller::default()
        };
        assert_eq!(Impacted::of(&controller), Some(IMPACTED));
        assert_eq!(Impacted::of(&Controller { cross_reset_limit: 0, ..controller }), None);
        assert_eq!(Impacted::of(&Controller { instance: 0, ..controller }), None);
    }
}
