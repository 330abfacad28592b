//! From drives to usable capacity.
//!
//! After "Deploying NetApp EF600" (Lenovo Press, 2021), section Capacity Sizing: each drive gives
//! up what the array keeps on it, spares are taken off as whole drives' worth, the code takes its
//! share, and optimization capacity is a share of what is left. All 24 rows of its tables 1 and 2
//! come out to the printed digit.
//!
//! Left out, as there: the little that the code itself keeps of each stripe.

mod check;
mod need;

pub(crate) use check::drives as check_drives;
pub use need::{Answer, Candidate, Need, arrays};

use crate::Scheme;
use crate::ef600::{cite, ef600};
use crate::error::Result;
use crate::units::{self, Bytes, trim};
use serde::Serialize;

/// What is to be sized. What is absent comes from the array.
#[derive(Debug, Clone)]
pub struct Request {
    /// How the data are protected.
    pub scheme: Scheme,
    /// One drive.
    pub drive: Bytes,
    /// Drives that hold data, without hot spares.
    pub drives: i64,
    /// Drives' worth of spare capacity within a pool.
    pub spares: Option<f64>,
    /// Drives beside those that hold data, idle until one fails.
    pub hot_spares: i64,
    /// GB of each drive that the array keeps for itself.
    pub config_gb: Option<f64>,
    /// Share set aside for the drives' own upkeep.
    pub optimization_percent: Option<f64>,
    /// Share of the usable capacity that the file system's metadata take.
    pub metadata_percent: Option<f64>,
}

impl Request {
    /// So many drives of a capacity under a scheme, everything else as the array has it.
    #[must_use]
    pub const fn new(scheme: Scheme, drive: Bytes, drives: i64) -> Self {
        Self {
            scheme,
            drive,
            drives,
            spares: None,
            hot_spares: 0,
            config_gb: None,
            optimization_percent: None,
            metadata_percent: None,
        }
    }
}

/// What comes out. Decimal TB and binary TiB, not rounded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizing {
    /// How the data are protected.
    pub scheme: Scheme,
    /// One drive.
    pub drive_tb: f64,
    /// Drives that hold data.
    pub drives: u32,
    /// Drives beside them.
    pub hot_spares: u32,
    /// All data drives together.
    pub gross_tb: f64,
    /// The same in TiB.
    pub gross_tib: f64,
    /// What the array keeps of each drive.
    pub config_gb_per_drive: f64,
    /// Drives' worth of spare capacity.
    pub spare_drives: f64,
    /// The share of a stripe that is data.
    pub scheme_percent: f64,
    /// Share set aside for the drives' own upkeep.
    pub optimization_percent: f64,
    /// What volumes can use.
    pub usable_tb: f64,
    /// The same in TiB.
    pub usable_tib: f64,
    /// Share that the file system's metadata take, where it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_percent: Option<f64>,
    /// What is left for files, where that share was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_tb: Option<f64>,
    /// The same in TiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_tib: Option<f64>,
    /// How it was reckoned.
    pub steps: Vec<Step>,
    /// What to know before buying.
    pub warnings: Vec<String>,
    /// Where the rules come from.
    pub source: String,
}

/// One line of the reckoning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// What it is.
    pub what: String,
    /// What is done.
    pub arithmetic: String,
    /// What is left then.
    pub tb: f64,
    /// The same in TiB.
    pub tib: f64,
}

/// Sizes an array.
///
/// # Errors
/// What breaks a rule of the array, with the rule, its source and the nearest choice.
pub fn size(request: &Request) -> Result<Sizing> {
    let facts = check::check(request)?;
    let (data, parity) = request.scheme.segments();
    let segments = f64::from(data + parity);
    let drives = f64::from(facts.drives);
    let mut steps = Steps::default();
    let gross = request.drive.times(drives);
    steps.add("gross", format!("{} x {} TB", facts.drives, trim(request.drive.tb())), gross);
    let each = Bytes::new(request.drive.get() - facts.config_gb * 1e9);
    let kept = format!("- {} x {} GB", facts.drives, trim(facts.config_gb));
    steps.add("configuration data", kept, each.times(drives));
    let spread = each.times(drives - facts.spares);
    if facts.spares > 0.0 {
        steps.add(
            "spare capacity",
            if facts.spares == 1.0 {
                "- 1 drive's worth".to_owned()
            } else {
                format!("- {} drives' worth", trim(facts.spares))
            },
            spread,
        );
    }
    let coded = spread.times(f64::from(data)).times(1.0 / segments);
    steps.add("protection", format!("x {data}/{}", data + parity), coded);
    let usable = coded.times((100.0 - facts.optimization_percent) / 100.0);
    let aside = format!("- {} %", trim(facts.optimization_percent));
    steps.add("optimization capacity", aside, usable);
    let files = facts.metadata_percent.map(|percent| usable.times((100.0 - percent) / 100.0));
    if let (Some(percent), Some(files)) = (facts.metadata_percent, files) {
        steps.add("file system metadata", format!("- {} %", trim(percent)), files);
    }
    Ok(Sizing {
        scheme: request.scheme,
        drive_tb: request.drive.tb(),
        drives: facts.drives,
        hot_spares: facts.hot_spares,
        gross_tb: gross.tb(),
        gross_tib: gross.tib(),
        config_gb_per_drive: facts.config_gb,
        spare_drives: facts.spares,
        scheme_percent: request.scheme.efficiency() * 100.0,
        optimization_percent: facts.optimization_percent,
        usable_tb: usable.tb(),
        usable_tib: usable.tib(),
        metadata_percent: facts.metadata_percent,
        files_tb: files.map(Bytes::tb),
        files_tib: files.map(Bytes::tib),
        steps: steps.0,
        warnings: warnings(request, &facts),
        source: cite("section Capacity Sizing"),
    })
}

#[derive(Debug, Default)]
struct Steps(Vec<Step>);

impl Steps {
    fn add(&mut self, what: &str, arithmetic: String, left: Bytes) {
        self.0.push(Step { what: what.to_owned(), arithmetic, tb: left.tb(), tib: left.tib() });
    }
}

fn warnings(request: &Request, facts: &check::Facts) -> Vec<String> {
    let mut warnings = Vec::new();
    let array = ef600();
    if request.scheme == Scheme::Ddp && facts.drives == array.pool.drives_min {
        let same = match request.spares {
            None => format!("{} drives give the same capacity", array.pool.drives_min_layout),
            Some(_) => format!("the smallest balanced pool has {}", array.pool.drives_min_layout),
        };
        warnings.push(format!(
            "a pool of {}: the EF600 guide names both {} and {} as the least; its drives cannot lie evenly on the two PCIe \
             buses, so `plan layout` refuses it; {same}",
            array.pool.drives_min, array.pool.drives_min, array.pool.drives_min_layout
        ));
    }
    if request.scheme == Scheme::Raid1 && facts.hot_spares == 0 {
        warnings.push(
            "RAID 1 without a hot spare: a second failure before the drive is replaced loses data, unless the file \
             system replicates"
                .to_owned(),
        );
    }
    if request.scheme == Scheme::Raid6 && facts.hot_spares > 0 {
        warnings.push(
            "RAID 6 with hot spares: the EF600 guide keeps cold spares on site instead, which saves copying back"
                .to_owned(),
        );
    }
    let usual = array.drive(request.drive.tb()).map(|drive| drive.optimization_percent);
    if usual.is_some_and(|usual| facts.optimization_percent < usual) {
        warnings.push(format!(
            "less optimization capacity than the recommended {} %: sustained writes get slower and the drives wear \
             sooner",
            trim(usual.unwrap_or_default())
        ));
    }
    if facts.metadata_percent.is_none() {
        warnings.push(
            "usable capacity is what volumes hold; a file system's metadata come off it (--metadata-percent)"
                .to_owned(),
        );
    }
    warnings
}

/// Usable TiB of a request that is known to be valid.
fn usable_tib(request: &Request) -> Result<f64> {
    size(request).map(|sizing| sizing.files_tib.unwrap_or(sizing.usable_tib))
}

/// A drive by its capacity in TB, as an option gives it.
///
/// # Errors
/// A capacity that no drive has.
pub fn drive(what: &str, tb: f64) -> Result<Bytes> {
    units::check_tb(what, tb)
}

#[cfg(test)]
mod tests;
