//! Runbooks: the commands for every machine of a storage site, from one site file.
//!
//! A text comes in, files go out ([`Artifact`]: path, mode, text). The crate reads no file, no
//! clock and no environment, and never sees a secret: what needs one reads it when it runs. A site
//! file that breaks a rule is refused with its line, the rule and the source of the rule.
//!
//! Every step of a runbook can be verified and undone; the index (README.md) says how.
//! docs/RUNBOOKS.md describes the site file, docs/DEVIATIONS.md where the files differ from what
//! the vendors' guides print.

#![forbid(unsafe_code)]

mod check;
mod ef600;
mod error;
mod host_plan;
mod index;
mod init;
mod linux_host;
mod linux_server;
mod model;
mod nqn;
mod powerscale;
mod scale;
mod section;
mod site;

pub use error::{Error, Refusal, Result};
pub use host_plan::{HostPlan, PlannedCluster, PlannedPortal, PlannedVolumes, host_plans};
pub use init::System;

use section::Section;

/// A file of a runbook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// The path within the folder, with `/` between its parts.
    pub path: String,
    /// The permission bits: 0o755 for what is run, 0o644 for the rest.
    pub mode: u32,
    /// The content.
    pub text: String,
}

/// The first line of every index, by which a folder is recognized as a runbook.
pub const MARK: &str = "<!-- Made by trunkline plan runbook. -->";

/// The name of the index.
pub const INDEX: &str = "README.md";

/// Makes the files of a site.
///
/// # Errors
/// The text is not a site file, or breaks a rule: the first one in the order of the file.
pub fn runbook(text: &str) -> Result<Vec<Artifact>> {
    let site = site::parse(text)?;
    let model = check::check(&site, text)?;
    // In this order: what serves, then what uses it, then what uses that.
    let sections: Vec<Section> = [
        ef600::sections(&model),
        linux_server::sections(&model),
        powerscale::sections(&model),
        linux_host::sections(&model),
        scale::sections(&model),
    ]
    .concat();
    let index = index::index(&model, &sections);
    let files = sections.into_iter().flat_map(|section| section.files);
    Ok(std::iter::once(index).chain(files).collect())
}
