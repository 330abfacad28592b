//! The project's own rules for files, each a function from files to findings. A finding is a line that names
//! the place, what is wrong, and what to do.

mod markdown;
mod rust;

pub(crate) use rust::is_test_file;

use crate::error::Result;
use crate::workspace::{File, files};

/// Everything that breaks a rule.
pub(crate) fn findings() -> Result<Vec<String>> {
    let (sources, documents) = (files("rs")?, files("md")?);
    let mut findings: Vec<_> = sources.iter().flat_map(rust::findings).collect();
    findings.extend(rust::missing_forbids(&sources));
    findings.extend(lints(&files("toml")?));
    findings.extend(markdown::findings(&documents));
    Ok(findings)
}

/// Each crate of this workspace takes its lints, or none of them holds in it.
fn lints(manifests: &[File]) -> Vec<String> {
    let careless = manifests.iter().filter(|file| {
        let has = |heading| file.text.lines().any(|line| line == heading);
        let member = file.path.ends_with("Cargo.toml") && has("[package]") && !has("[workspace]");
        member && !file.text.contains("[lints]\nworkspace = true")
    });
    careless.map(|file| format!("{}: add `[lints]` with `workspace = true`", file.path)).collect()
}
