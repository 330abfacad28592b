//! Gives up the privileges that a server does not need.
//!
//! A server that root starts keeps the capabilities with which it acts for its callers, and drops
//! all others. No program that it could be made to start gains any.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// What a server needs, if it has it.
const NEEDED: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    // Handles of files are opened without their names.
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    // The identities of callers.
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_BIND_SERVICE)
    // Memory that RDMA devices use, and the limit of open files.
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE);

/// Drops what is not needed, of this thread and the threads that it starts later. With
/// `congestion`, a congestion control that only an administrator may choose stays allowed.
pub(super) fn drop_unneeded(congestion: bool) -> Result<(), Errno> {
    let needed = if congestion { NEEDED | CapabilitySet::NET_ADMIN } else { NEEDED };
    set_no_new_privs(true)?;
    let sets = capabilities(None)?;
    for capability in CapabilitySet::all().difference(needed).iter() {
        // Without CAP_SETPCAP the set stays as it is, and means nothing without new privileges.
        if sets.effective.contains(CapabilitySet::SETPCAP)
            && capability_is_in_bounding_set(capability).unwrap_or(false)
        {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    let permitted = sets.permitted & needed;
    set_capabilities(
        None,
        CapabilitySets {
            effective: sets.effective & permitted,
            permitted,
            inheritable: CapabilitySet::empty(),
        },
    )
}
