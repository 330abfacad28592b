//! Readers of what commands print.

mod ibv_devinfo;
mod isi;
mod json;
mod list_subsys;
mod mountstats;
mod multipath;
mod nvme_list;
mod rdma_link;
mod smdevices;

pub(crate) use ibv_devinfo::{RdmaPort, rdma_ports};
pub(crate) use isi::{
    Export, Interface, Pool, exports, interfaces, nfs_traffic, pools, protocol_operations, settings,
};
pub(crate) use list_subsys::{Subsystem, SubsystemPath, subsystems};
pub(crate) use mountstats::{NfsMount, mounted, nfs_mounts};
pub(crate) use multipath::{MultipathDevice, multipath_devices};
pub(crate) use nvme_list::{NvmeDevice, nvme_devices};
pub(crate) use rdma_link::{RdmaLink, rdma_links};
pub(crate) use smdevices::{Volume, volumes};
