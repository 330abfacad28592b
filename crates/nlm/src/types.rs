//! The parts that several messages have. RFC 1813 s6.1

mod lock;
mod net_object;
mod status;

pub use lock::{Holder, Lock};
pub use net_object::{NetObj, Text};
pub use status::Status;
