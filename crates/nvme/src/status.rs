//! The status of a command: the type and code of the outcome, whether a retry can help, and when.
//! NVMe Base, "Status Field Definition"; NVMe over Fabrics, "Fabrics Command Set" status values.

use crate::layout::Field;
use std::fmt;

/// `Status`: bits 15:1 of the last word of a completion, without the phase tag. NVMe Base, "Status
/// Field Definition"
///
/// The code consists of the status code type (SCT, bits 10:8) and the status code (SC, bits 7:0),
/// in the form in which hosts print it: 302h is SCT 3, SC 02h. Codes from 180h on depend on the
/// command: the names of Fabrics commands and of the NVM command set share numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

const CODE: u16 = 0x07ff;
const CRD_SHIFT: u32 = 11;
const MORE: u16 = 1 << 13;
const DNR: u16 = 1 << 14;

impl Status {
    /// A status with this code (SCT and SC), which allows a retry.
    #[must_use]
    pub const fn of(code: u16) -> Self {
        Self(code & CODE)
    }

    /// The status of these bits, as they are passed on between processes.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & (CODE | 3 << CRD_SHIFT | MORE | DNR))
    }

    /// All bits, for [`Status::from_bits`].
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The status code type and the status code.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0 & CODE
    }

    /// Whether the code is that of the other, with whatever flags.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.code() == other.code()
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.code() == 0
    }

    /// DNR (do not retry): the same command would fail again.
    #[must_use]
    pub const fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// The same status with DNR.
    #[must_use]
    pub const fn no_retry(self) -> Self {
        Self(self.0 | DNR)
    }

    /// CRD: which of the controller's three retry delays applies, 1 to 3; 0 for none.
    #[must_use]
    pub const fn retry_delay(self) -> u8 {
        (self.0 >> CRD_SHIFT & 3) as u8
    }

    /// The same status with a retry delay, 0 to 3. Only for hosts that have enabled it (feature
    /// 16h, ACRE).
    #[must_use]
    pub const fn with_retry_delay(self, delay: u8) -> Self {
        Self(self.0 & !(3 << CRD_SHIFT) | (delay as u16 & 3) << CRD_SHIFT)
    }

    /// Whether the error log has more about it.
    #[must_use]
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// The same status with the hint that the error log has more about it.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }

    /// Whether the path is at fault (SCT 3), so that another one may serve the command.
    #[must_use]
    pub const fn is_path_related(self) -> bool {
        self.code() >> 8 == 3
    }
}

/// The last word of a completion; the phase tag in bit 0 is not used over fabrics.
impl Field for Status {
    const BYTES: usize = 2;
    const ZERO: Self = Self(0);

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        Self(u16::load(bytes) >> 1)
    }

    #[inline]
    fn store(&self, bytes: &mut [u8]) {
        (self.0 << 1).store(bytes);
    }
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)+) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($code);)+

            /// Every status with a name here.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The first name of the code, if it has one here.
            #[must_use]
            #[allow(unreachable_patterns, reason = "codes of different command sets share numbers")]
            pub const fn name(self) -> Option<&'static str> {
                match self.code() {
                    $($code => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// The command completed.
    SUCCESS = 0x00;
    /// The opcode or command is not supported.
    INVALID_OPCODE = 0x01;
    /// A field of the command has a value that is not supported.
    INVALID_FIELD = 0x02;
    /// Another command with this identifier is outstanding.
    COMMAND_ID_CONFLICT = 0x03;
    /// Data or metadata could not be transferred.
    DATA_TRANSFER_ERROR = 0x04;
    /// Something inside the controller failed.
    INTERNAL_ERROR = 0x06;
    /// Aborted because a host asked for it.
    ABORT_REQUESTED = 0x07;
    /// Aborted because the submission queue was deleted.
    SUBMISSION_QUEUE_DELETED = 0x08;
    /// The other command of the fused pair failed.
    FAILED_FUSED = 0x09;
    /// The other command of the fused pair is missing.
    MISSING_FUSED = 0x0a;
    /// No such namespace, or this host does not have it.
    INVALID_NAMESPACE = 0x0b;
    /// The command does not fit into the sequence of commands.
    COMMAND_SEQUENCE_ERROR = 0x0c;
    /// The number of SGL descriptors is wrong.
    SGL_INVALID_COUNT = 0x0e;
    /// The SGL describes fewer or more bytes than the command moves.
    SGL_INVALID_LENGTH = 0x0f;
    /// The type of an SGL descriptor is not supported.
    SGL_INVALID_TYPE = 0x11;
    /// The command covers more than the controller executes atomically.
    ATOMIC_WRITE_UNIT_EXCEEDED = 0x14;
    /// An offset into the capsule is not valid.
    SGL_INVALID_OFFSET = 0x16;
    /// Host identifiers of 64 and 128 bits are mixed.
    HOST_ID_INCONSISTENT = 0x18;
    /// The keep-alive timer expired.
    KEEP_ALIVE_EXPIRED = 0x19;
    /// The value of the keep-alive timeout is not supported.
    KEEP_ALIVE_INVALID = 0x1a;
    /// Aborted by a reservation's Preempt and Abort.
    ABORTED_PREEMPTED = 0x1b;
    /// The namespace is write protected.
    NAMESPACE_WRITE_PROTECTED = 0x20;
    /// Interrupted for a while; retry.
    COMMAND_INTERRUPTED = 0x21;
    /// An error of the transport that a retry may not meet again, such as of a data digest.
    TRANSIENT_TRANSPORT_ERROR = 0x22;
    /// The controller is ready, media are not.
    MEDIA_NOT_READY = 0x24;
    /// The range leaves the namespace.
    LBA_OUT_OF_RANGE = 0x80;
    /// The capacity of the namespace is exceeded.
    CAPACITY_EXCEEDED = 0x81;
    /// The namespace is not ready.
    NAMESPACE_NOT_READY = 0x82;
    /// Another host's reservation forbids it.
    RESERVATION_CONFLICT = 0x83;
    /// The queue identifier is not valid.
    INVALID_QUEUE_ID = 0x101;
    /// The size of the queue is not supported.
    INVALID_QUEUE_SIZE = 0x102;
    /// More Abort commands than the controller takes.
    ABORT_LIMIT_EXCEEDED = 0x103;
    /// More Asynchronous Event Request commands than the controller takes.
    ASYNC_EVENT_LIMIT_EXCEEDED = 0x105;
    /// The log page is not supported.
    INVALID_LOG_PAGE = 0x109;
    /// The feature cannot be saved.
    FEATURE_NOT_SAVEABLE = 0x10d;
    /// The feature cannot be changed.
    FEATURE_NOT_CHANGEABLE = 0x10e;
    /// The feature is not one of namespaces.
    FEATURE_NOT_PER_NAMESPACE = 0x10f;
    /// The controller identifier is not valid.
    INVALID_CONTROLLER_ID = 0x11f;
    /// The identifier of an ANA group is not valid.
    INVALID_ANA_GROUP = 0x124;
    /// The I/O command set is not supported.
    INVALID_IO_COMMAND_SET = 0x12c;
    /// That controller is being reset already, as another command has asked (TP8028).
    CROSS_RESET_IN_PROGRESS = 0x13f;
    /// More Cross-Controller Resets than the controller takes (TP8028).
    CROSS_RESET_LIMIT_EXCEEDED = 0x141;
    /// Fabrics: the format of Connect's record is not supported.
    CONNECT_INCOMPATIBLE_FORMAT = 0x180;
    /// Fabrics: the controller is associated already.
    CONNECT_CONTROLLER_BUSY = 0x181;
    /// Fabrics: a parameter of Connect is invalid; the result says which.
    CONNECT_INVALID_PARAMETERS = 0x182;
    /// Fabrics: begin again at the discovery service.
    CONNECT_RESTART_DISCOVERY = 0x183;
    /// Fabrics: this host may not use this subsystem.
    CONNECT_INVALID_HOST = 0x184;
    /// Fabrics: Disconnect does not end queues of this type.
    DISCONNECT_INVALID_QUEUE_TYPE = 0x185;
    /// Fabrics: the discovery log changed while it was read.
    DISCOVER_RESTART = 0x190;
    /// Fabrics: authenticate first.
    AUTHENTICATION_REQUIRED = 0x191;
    /// NVM: attributes of the command contradict each other.
    CONFLICTING_ATTRIBUTES = 0x180;
    /// NVM: a write to a range that is read only.
    WRITE_TO_READ_ONLY_RANGE = 0x182;
    /// NVM: the command covers more than its size limit.
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x183;
    /// Data could not be written to the media.
    WRITE_FAULT = 0x280;
    /// Data could not be read from the media.
    UNRECOVERED_READ_ERROR = 0x281;
    /// Compare found a difference.
    COMPARE_FAILURE = 0x285;
    /// Access to the namespace is denied.
    ACCESS_DENIED = 0x286;
    /// A deallocated or unwritten block was read.
    DEALLOCATED_OR_UNWRITTEN = 0x287;
    /// The controller cannot reach the namespace for now.
    INTERNAL_PATH_ERROR = 0x300;
    /// ANA: the controller has lost the namespace for good.
    ANA_PERSISTENT_LOSS = 0x301;
    /// ANA: the controller cannot serve the namespace now.
    ANA_INACCESSIBLE = 0x302;
    /// ANA: the state is changing.
    ANA_TRANSITION = 0x303;
    /// The controller found an error of its path.
    CONTROLLER_PATH_ERROR = 0x360;
    /// The host found an error of its path.
    HOST_PATH_ERROR = 0x370;
    /// The host aborted the command.
    HOST_ABORTED = 0x371;
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The name, or the number where there is none, and the flags.
impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(formatter, "{name} ({:03X}h)", self.code())?,
            None => write!(formatter, "{:03X}h", self.code())?,
        }
        if self.retry_delay() != 0 {
            write!(formatter, ", retry delay {}", self.retry_delay())?;
        }
        formatter.write_str(if self.dnr() { ", do not retry" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_completion_has_the_code_above_the_phase_tag() {
        let mut bytes = [0; 2];
        Status::INVALID_NAMESPACE.no_retry().store(&mut bytes);
        assert_eq!(bytes, [0x16, 0x80], "0Bh in bits 8:1, DNR in bit 15");
        assert_eq!(Status::load(&[0x17, 0x80]), Status::INVALID_NAMESPACE.no_retry(), "whatever the phase");
        Status::ANA_INACCESSIBLE.with_retry_delay(1).store(&mut bytes);
        assert_eq!(bytes, [0x04, 0x16], "SCT 3 in bits 11:9, CRD 1 in bits 13:12");
    }

    #[test]
    fn flags_do_not_change_the_code() {
        for status in Status::ALL {
            let all = status.no_retry().with_retry_delay(3).with_more();
            assert!(all.is(*status) && all.dnr() && all.more() && all.retry_delay() == 3);
            assert_eq!(all.name(), status.name());
            assert!(!status.dnr() && !status.more() && status.retry_delay() == 0);
        }
        assert!(Status::SUCCESS.is_success() && !Status::INVALID_FIELD.is_success());
    }

    #[test]
    fn statuses_are_shown_as_hosts_show_them() {
        assert_eq!(Status::ANA_INACCESSIBLE.to_string(), "ANA_INACCESSIBLE (302h)");
        assert_eq!(Status::INVALID_FIELD.no_retry().to_string(), "INVALID_FIELD (002h), do not retry");
        assert_eq!(Status::of(0x7ff).with_retry_delay(2).to_string(), "7FFh, retry delay 2");
        // Of Identify alone, so its type is command specific.
        assert_eq!(Status::INVALID_IO_COMMAND_SET.to_string(), "INVALID_IO_COMMAND_SET (12Ch)");
        assert!(Status::ANA_TRANSITION.is_path_related() && !Status::WRITE_FAULT.is_path_related());
    }
}
