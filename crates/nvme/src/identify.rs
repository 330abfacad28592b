//! Identify: what a controller, a namespace or a command set is. NVMe Base, "Identify Command"; NVM
//! Command Set, "Identify Command".
//!
//! Each structure is 4096 bytes. Fields that neither a target nor a host here uses are not
//! declared: they are written as zero and ignored.

mod command_set;
mod controller;
mod list;
mod namespace;

pub use command_set::{
    CommandSet, CommandSets, IndependentNamespace, NSTAT_READY, NvmController, NvmNamespace,
};
pub use controller::{
    AnaCapabilities, AsyncEvents, CntrlType, Controller, ControllerAttributes, FUSES_COMPARE_AND_WRITE,
    LogPageAttributes, MultiPath, OptionalCommands, SglSupport, VWC_PRESENT,
};
pub use list::{Descriptors, DescriptorsError, NSID_LIST_MAX, NamespaceIds, NamespaceList};
pub use namespace::{LbaFormat, Namespace, NamespaceFeatures, RESCAP_ALL, Shared};

use crate::command::{AdminOpcode, Sqe};
use crate::layout::numbers;
use crate::sgl::Sgl;

/// The length of every structure of Identify in bytes.
pub const IDENTIFY_BYTES: usize = 4096;

numbers! {
    /// Which structure is asked for (CNS). "Identify – CNS Values"
    pub struct Cns(u8) {
        /// A namespace.
        NAMESPACE = 0x00,
        /// The controller.
        CONTROLLER = 0x01,
        /// The NSIDs of the active namespaces above the given one.
        ACTIVE_NAMESPACES = 0x02,
        /// The names of a namespace.
        NAMESPACE_DESCRIPTORS = 0x03,
        /// A namespace, as its command set has it.
        COMMAND_SET_NAMESPACE = 0x05,
        /// The controller, as the command set has it.
        COMMAND_SET_CONTROLLER = 0x06,
        /// The NSIDs of the active namespaces of a command set.
        COMMAND_SET_ACTIVE_NAMESPACES = 0x07,
        /// A namespace, whatever its command set.
        INDEPENDENT_NAMESPACE = 0x08,
        /// The command sets that the controller supports.
        COMMAND_SETS = 0x1c,
    }
}

/// The arguments of Identify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identify {
    /// The structure.
    pub cns: Cns,
    /// CNTID: a controller, for the structures that need one.
    pub cntid: u16,
    /// CSI: the command set, for the structures that need one.
    pub command_set: CommandSet,
    /// The namespace, for the structures that need one.
    pub nsid: u32,
}

impl Identify {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self {
            cns: Cns(sqe.cdw10 as u8),
            cntid: (sqe.cdw10 >> 16) as u16,
            command_set: CommandSet((sqe.cdw11 >> 24) as u8),
            nsid: sqe.nsid,
        }
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16, sgl: Sgl) -> Sqe {
        Sqe {
            sgl,
            cdw10: u32::from(self.cns.0) | u32::from(self.cntid) << 16,
            cdw11: u32::from(self.command_set.0) << 24,
            ..Sqe::new(AdminOpcode::IDENTIFY.0, cid, self.nsid)
        }
    }
}

#[cfg(test)]
mod tests;
