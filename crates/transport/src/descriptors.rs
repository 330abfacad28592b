//! Descriptors of this process: a connection has one or two, and the usual bound on them is 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many as it may. Where that changes nothing, what needs more says so.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // The system refuses only a bound above the highest.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
