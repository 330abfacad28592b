//! What a failed command may be followed by. NVMe Base, "Status Field Definition"; "Command Retry
//! Delay".

use crate::Status;
use std::time::Duration;

/// Whether a command that was completed with a status may be sent again. The controller has said
/// that it is finished with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It succeeded.
    Done,
    /// It would fail again.
    Never,
    /// On another path, at once; here only if there is none.
    Elsewhere,
    /// Here, after this time.
    Here(Duration),
}

/// What to do after a completion with this status. `delays` are the controller's CRDT 1 to 3, in
/// units of 100 ms.
#[must_use]
pub fn retry(status: Status, delays: [u16; 3]) -> Retry {
    if status.is_success() {
        return Retry::Done;
    }
    // Of a path that is lost, DNR says that this path is: others may serve.
    if status.is_path_related() {
        return Retry::Elsewhere;
    }
    if status.dnr() {
        return Retry::Never;
    }
    if status.is(Status::TRANSIENT_TRANSPORT_ERROR) {
        return Retry::Elsewhere;
    }
    let delay = usize::from(status.retry_delay()).checked_sub(1).and_then(|at| delays.get(at));
    Retry::Here(Duration::from_millis(100 * u64::from(delay.copied().unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_has_its_answer() {
        let delays = [1, 20, 0];
        let here = |ms| Retry::Here(Duration::from_millis(ms));
        for (status, expected) in [
            (Status::SUCCESS, Retry::Done),
            (Status::INVALID_FIELD.no_retry(), Retry::Never),
            (Status::RESERVATION_CONFLICT.no_retry(), Retry::Never),
            (Status::ANA_INACCESSIBLE, Retry::Elsewhere),
            (Status::ANA_PERSISTENT_LOSS.no_retry(), Retry::Elsewhere),
            (Status::INTERNAL_PATH_ERROR, Retry::Elsewhere),
            (Status::TRANSIENT_TRANSPORT_ERROR, Retry::Elsewhere),
            (Status::COMMAND_INTERRUPTED, here(0)),
            (Status::COMMAND_INTERRUPTED.with_retry_delay(1), here(100)),
            (Status::COMMAND_INTERRUPTED.with_retry_delay(2), here(2000)),
            (Status::COMMAND_INTERRUPTED.with_retry_delay(3), here(0)),
        ] {
            assert_eq!(retry(status, delays), expected, "{status}");
        }
    }
}
