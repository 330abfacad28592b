//! The types shared by several operations. RFC 8881 s3

pub mod attributes;
mod bitmap;
mod file;
mod owner;
mod state;
mod status;

pub use attributes::{AttributeError, Attributes, Fattr, RawFattr};
pub use bitmap::Bitmap;
pub use file::{
    Ace, ChangeAttrType, ChangeInfo, FileType, Fsid, ImplementationId, Location, Locations, ModeMasked,
    ModeUmask, NetAddr, OpenArguments, Pathname, Range, SecurityLabel, SetTime, Threshold,
};
pub use owner::Owner;
pub use state::{
    ClientId, ClientOwner, OWNER_BYTES_MAX, OwnerId, ServerOwner, SessionId, StateOwner, Stateid,
};
pub use status::Status;
