//! Routes to block volumes over NVMe/TCP and NVMe/RDMA, by our host (the crate `initiator`).
//!
//! A volume has no files: each file of a workload is a range of its blocks ([`regions`]). A volume
//! of others is only read, unless the route says that it may be overwritten. The load is made by
//! one thread, which submits to the volume as any program does ([`load`]).

mod embedded;
mod load;
pub(crate) mod options;
mod regions;
mod route;

pub(crate) use self::embedded::EmbeddedVolume;
pub(crate) use self::options::VolumeOptions;
pub use self::options::VolumeTarget;
pub(crate) use self::regions::{Regions, VolumeFile};
pub use self::route::VolumeRoute;
