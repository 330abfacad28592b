//! The options that name a version of NFS.

use super::spec::Fault;
use super::{Draft, Version};

const NO_VERSION_4_0: &str = "NFS version 4.0 is not built; use vers=4.1 or vers=4.2";
const NO_VERSION_2: &str = "NFS version 2 was never built; use vers=3";

/// The last one given counts.
pub(super) fn set_version(draft: &mut Draft, given: &str, version: &str) -> Result<(), Fault> {
    draft.options.version = match version {
        "3" => Version::V3,
        "4" => Version::V4(None),
        "4.1" => Version::V4(Some(1)),
        "4.2" => Version::V4(Some(2)),
        "4.0" => return Err(Fault::Refused(NO_VERSION_4_0)),
        _ => return Err(Fault::Refused(NO_VERSION_2)),
    };
    draft.version_option = Some(given.to_owned());
    Ok(())
}

pub(super) fn set_minor(draft: &mut Draft, minor: u32) -> Result<(), Fault> {
    if minor == 0 {
        return Err(Fault::Refused(NO_VERSION_4_0));
    }
    draft.minor = Some(minor);
    Ok(())
}
