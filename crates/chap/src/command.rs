//! The commands that carry messages: Authentication Send and Authentication Receive. NVMe Base,
//! "Authentication Send Command and Response", "Authentication Receive Command and Response".

use nvme::command::{FUSE_MASK, PSDT_MASK, PSDT_SGL};
use nvme::fabrics::{Authentication, FabricsType, SECP_NVME};
use nvme::{Sgl, Sqe, Status};

/// The protocol-specific bytes (SPSP0, SPSP1) of DH-HMAC-CHAP: its messages, over fabrics.
pub const SPSP: [u8; 2] = [0x01, 0x01];

/// The command that sends a message of this length.
#[must_use]
pub fn send(cid: u16, sgl: Sgl, length: u32) -> Sqe {
    header(length).command(FabricsType::AUTHENTICATION_SEND, cid, sgl)
}

/// The command that asks for a message in this room.
#[must_use]
pub fn receive(cid: u16, sgl: Sgl, room: u32) -> Sqe {
    header(room).command(FabricsType::AUTHENTICATION_RECEIVE, cid, sgl)
}

/// The length of the message, or the room, of a command of either type, at most `max` bytes.
///
/// # Errors
/// The status that refuses the command: another protocol, no length, one above `max`, or another
/// than that of the data.
pub fn check(sqe: &Sqe, max: usize) -> Result<usize, Status> {
    let Authentication { secp, spsp, length } = Authentication::of(sqe);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let is_single = sqe.flags & FUSE_MASK == 0 && sqe.flags & PSDT_MASK == PSDT_SGL;
    if secp != SECP_NVME || spsp != SPSP || length == 0 || !is_single {
        return Err(Status::INVALID_FIELD.no_retry());
    }
    let described = sqe.sgl.length().ok_or(Status::SGL_INVALID_TYPE.no_retry())?;
    if usize::try_from(described) != Ok(length) {
        return Err(Status::SGL_INVALID_LENGTH.no_retry());
    }
    if length > max {
        return Err(Status::INVALID_FIELD.no_retry());
    }
    Ok(length)
}

const fn header(length: u32) -> Authentication {
    Authentication { secp: SECP_NVME, spsp: SPSP, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_have_their_type_protocol_and_length() {
        let sqe = send(7, Sgl::InCapsule { offset: 0, length: 72 }, 72);
        assert_eq!(sqe.encode()[..8], [0x7f, 0x40, 7, 0, 0x05, 0, 0, 0]);
        assert_eq!(sqe.encode()[40..48], [0, 0x01, 0x01, 0xe9, 72, 0, 0, 0]);
        let sqe = receive(8, Sgl::Transport { length: 4096 }, 4096);
        assert_eq!(sqe.encode()[..8], [0x7f, 0x40, 8, 0, 0x06, 0, 0, 0]);
        assert_eq!(sqe.encode()[40..48], [0, 0x01, 0x01, 0xe9, 0, 0x10, 0, 0]);
        assert_eq!(check(&sqe, 4096), Ok(4096));
    }

    #[test]
    fn another_protocol_no_length_and_too_great_a_length_are_refused() {
        let good = send(1, Sgl::Transport { length: 100 }, 100);
        let with =
            |cdw10: u32, length: u32| Sqe { cdw10, cdw11: length, sgl: Sgl::Transport { length }, ..good };
        let refused = Err(Status::INVALID_FIELD.no_retry());
        for (sqe, result) in [
            (good, Ok(100)),
            (with(0xe901_0100, 100), Ok(100)),
            (with(0xe901_0101, 100), Ok(100)),
            (with(0xe801_0100, 100), refused),
            (with(0xe902_0100, 100), refused),
            (with(0xe901_0200, 100), refused),
            (with(0xe901_0100, 0), refused),
            (with(0xe901_0100, 101), refused),
            (with(0xe901_0100, u32::MAX), refused),
            (Sqe { flags: 0x41, ..good }, refused),
            (Sqe { flags: 0x00, ..good }, refused),
            (Sqe { cdw11: 99, ..good }, Err(Status::SGL_INVALID_LENGTH.no_retry())),
            (Sqe { sgl: Sgl::Other([0xff; 16]), ..good }, Err(Status::SGL_INVALID_TYPE.no_retry())),
        ] {
            assert_eq!(check(&sqe, 100), result, "{:08x} {}", sqe.cdw10, sqe.cdw11);
        }
    }
}
