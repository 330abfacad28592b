//! The types shared by several procedures. RFC 1813 s2.5, s2.6

mod attributes;
mod created;
mod directory;
mod handle;
mod set_attributes;
mod status;
mod wcc;

pub use attributes::{Fattr3, FileType, NfsTime, PostOpAttr, SpecData};
pub use created::Created;
pub use directory::DirOpArgs;
pub(crate) use directory::opaque_bytes;
pub use handle::FileHandle;
pub use set_attributes::{Sattr3, SetTime};
pub use status::Status;
pub use wcc::{WccAttr, WccData};

/// `cookieverf3`, `createverf3` and `writeverf3`: eight bytes that are opaque to everyone but their
/// creator. RFC 1813 s2.5
pub type Verifier = [u8; 8];
