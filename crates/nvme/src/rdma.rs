//! What the ends of a queue exchange over RDMA: while they connect, as private data of the
//! connection manager, and then the capsules. NVMe RDMA Transport 1.0, "RDMA_CM_REQUEST Private
//! Data Format" and its counterparts.

mod capsule;
mod host;

pub use capsule::{Capsule, HostMemory};
pub use host::{BadResponse, HostPlace, HostQueue};

use crate::layout::{layout, numbers};

/// The format of private data (RECFMT).
pub const RECFMT: u16 = 0;

layout! {
    /// The host's request.
    pub struct Request[32] {
        /// RECFMT.
        recfmt: u16 = 0,
        /// The queue.
        qid: u16 = 2,
        /// HRQSIZE: the receives of the host's queue pair.
        receive_queue: u16 = 4,
        /// HSQSIZE: its sends, minus one.
        send_queue: u16 = 6,
        /// The controller, for I/O queues of a host that says so; else 0.
        cntlid: u16 = 8,
    }
}

layout! {
    /// The controller accepts.
    pub struct Accept[32] {
        /// RECFMT.
        recfmt: u16 = 0,
        /// CRQSIZE: the receives of the controller's queue pair.
        receive_queue: u16 = 2,
    }
}

numbers! {
    /// Why a request is refused.
    pub struct RejectStatus(u16) {
        /// Private data of a wrong length.
        INVALID_LENGTH = 1,
        /// RECFMT.
        INVALID_RECFMT = 2,
        /// QID.
        INVALID_QID = 3,
        /// HSQSIZE.
        INVALID_SEND_QUEUE = 4,
        /// HRQSIZE.
        INVALID_RECEIVE_QUEUE = 5,
        /// No resources.
        NO_RESOURCES = 6,
        /// The initiator depth.
        INVALID_IRD = 7,
        /// The responder resources.
        INVALID_ORD = 8,
        /// CNTLID.
        INVALID_CNTLID = 9,
    }
}

layout! {
    /// The controller refuses.
    pub struct Reject[4] {
        /// RECFMT.
        recfmt: u16 = 0,
        /// Why.
        status: RejectStatus = 2,
    }
}

impl Request {
    /// Reads and checks private data for queues of at most `entries_max` entries. Connection
    /// managers pad private data. The host's receives are its own concern: it may have more.
    ///
    /// # Errors
    /// What to refuse the request with.
    pub fn check(private_data: &[u8], entries_max: u32) -> Result<Self, RejectStatus> {
        let request = Self::decode(private_data).map_err(|_| RejectStatus::INVALID_LENGTH)?;
        if request.recfmt != RECFMT {
            return Err(RejectStatus::INVALID_RECFMT);
        }
        if request.receive_queue == 0 {
            return Err(RejectStatus::INVALID_RECEIVE_QUEUE);
        }
        // HSQSIZE counts from zero, HRQSIZE from one.
        if u32::from(request.send_queue) + 1 > entries_max {
            return Err(RejectStatus::INVALID_SEND_QUEUE);
        }
        Ok(request)
    }

    /// Whether it asks for an admin queue.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        self.qid == 0
    }

    /// The commands that the host may send before it has a response: the receives of the
    /// controller's queue pair.
    #[must_use]
    pub fn commands(&self) -> u32 {
        u32::from(self.send_queue) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Request = Request { recfmt: 0, qid: 1, receive_queue: 128, send_queue: 127, cntlid: 0x0203 };

    #[test]
    fn private_data_have_32_bytes() {
        let bytes = GOOD.encode();
        assert_eq!(bytes[..10], [0, 0, 1, 0, 128, 0, 127, 0, 3, 2]);
        assert_eq!(bytes[10..], [0; 22]);
        let padded = [bytes.as_slice(), &[0; 24]].concat();
        assert_eq!(Request::check(&padded, 128), Ok(GOOD));
        assert_eq!(Accept { recfmt: 0, receive_queue: 128 }.encode()[..4], [0, 0, 128, 0]);
        let reject = Reject { recfmt: 0, status: RejectStatus::NO_RESOURCES };
        assert_eq!(reject.encode(), [0, 0, 6, 0]);
    }

    #[test]
    fn a_host_may_have_more_receives_than_a_queue_has_entries() {
        let request = Request { receive_queue: 256, qid: 0, ..GOOD };
        assert_eq!(Request::check(&request.encode(), 128), Ok(request));
        assert!(request.is_admin() && !GOOD.is_admin());
        assert_eq!(request.commands(), 128);
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_the_field() {
        for (request, status) in [
            (Request { recfmt: 1, ..GOOD }, RejectStatus::INVALID_RECFMT),
            (Request { receive_queue: 0, ..GOOD }, RejectStatus::INVALID_RECEIVE_QUEUE),
            (Request { send_queue: 128, ..GOOD }, RejectStatus::INVALID_SEND_QUEUE),
            (Request { send_queue: 0xffff, ..GOOD }, RejectStatus::INVALID_SEND_QUEUE),
        ] {
            assert_eq!(Request::check(&request.encode(), 128), Err(status));
        }
        assert_eq!(Request::check(&[0; 31], 128), Err(RejectStatus::INVALID_LENGTH));
    }
}
