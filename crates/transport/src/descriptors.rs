//! Descriptors of this process: a connection has one or two, and the usual limit is 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process to its maximum. If that fails, code that needs more descriptors
/// reports the error.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // The system refuses only a limit above the maximum.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
