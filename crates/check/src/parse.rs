//! Readers of what commands print.

mod ibv_devinfo;
mod isi;
mod mountstats;
mod multipath;
mod smdevices;

pub(crate) use ibv_devinfo::{RdmaPort, rdma_ports};
pub(crate) use isi::{Interface, interfaces, protocol_operations, settings};
pub(crate) use mountstats::{NfsMount, nfs_mounts};
pub(crate) use multipath::{MultipathDevice, multipath_devices};
pub(crate) use smdevices::volumes;
