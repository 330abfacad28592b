//! Computes the usable capacity of drives.
//!
//! After "Deploying NetApp EF600" (Lenovo Press, 2021), section Capacity Sizing: the array reserves
//! a part of each drive, spare capacity is subtracted as whole drives, the code takes its share,
//! and optimization capacity is a share of the rest. The results match all 24 rows of its tables 1
//! and 2 to the printed digit.
//!
//! Left out, as in the guide: the small part of each stripe that the code itself reserves.

mod check;
mod need;

pub(crate) use check::drives as check_drives;
pub use need::{Answer, Candidate, Need, arrays};

use crate::Scheme;
use crate::ef600::{cite, ef600};
use crate::error::Result;
use crate::units::{self, Bytes, trim};
use serde::Serialize;

/// What to size. Absent values are those of the array.
#[derive(Debug, Clone)]
pub struct Request {
    /// The protection scheme.
    pub scheme: Scheme,
    /// The capacity of a drive.
    pub drive: Bytes,
    /// The number of drives that hold data, without hot spares.
    pub drives: i64,
    /// The spare capacity in a pool, in drives.
    pub spares: Option<f64>,
    /// The number of hot spares: drives that are idle until another fails.
    pub hot_spares: i64,
    /// GB of each drive that the array reserves.
    pub config_gb: Option<f64>,
    /// The share set aside as optimization capacity.
    pub optimization_percent: Option<f64>,
    /// The share of the usable capacity that the file system's metadata take.
    pub metadata_percent: Option<f64>,
}

impl Request {
    /// A request for this many drives of a capacity with a scheme; everything else is the array's
    /// default.
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

/// The computed capacity, in decimal TB and binary TiB, not rounded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizing {
    /// The protection scheme.
    pub scheme: Scheme,
    /// The capacity of a drive.
    pub drive_tb: f64,
    /// The number of drives that hold data.
    pub drives: u32,
    /// The number of hot spares.
    pub hot_spares: u32,
    /// The capacity of all data drives.
    pub gross_tb: f64,
    /// The same in TiB.
    pub gross_tib: f64,
    /// GB of each drive that the array reserves.
    pub config_gb_per_drive: f64,
    /// The spare capacity, in drives.
    pub spare_drives: f64,
    /// The share of a stripe that is data.
    pub scheme_percent: f64,
    /// The share set aside as optimization capacity.
    pub optimization_percent: f64,
    /// The capacity of volumes.
    pub usable_tb: f64,
    /// The same in TiB.
    pub usable_tib: f64,
    /// The share of the file system's metadata, if given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_percent: Option<f64>,
    /// The capacity left for files, if that share was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_tb: Option<f64>,
    /// The same in TiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_tib: Option<f64>,
    /// The steps of the computation.
    pub steps: Vec<Step>,
    /// What to know before buying.
    pub warnings: Vec<String>,
    /// The source of the rules.
    pub source: String,
}

/// One step of the computation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// The subject of the step.
    pub what: String,
    /// The computation.
    pub arithmetic: String,
    /// The remaining capacity.
    pub tb: f64,
    /// The same in TiB.
    pub tib: f64,
}

/// Sizes an array.
///
/// # Errors
/// A broken rule of the array, with its source and the nearest valid choice.
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

/// The usable TiB of a valid request.
fn usable_tib(request: &Request) -> Result<f64> {
    size(request).map(|sizing| sizing.files_tib.unwrap_or(sizing.usable_tib))
}

/// A drive by its capacity in TB, as given by an option.
///
/// # Errors
/// A capacity that no drive has.
pub fn drive(what: &str, tb: f64) -> Result<Bytes> {
    units::check_tb(what, tb)
}

#[cfg(test)]
mod tests;
