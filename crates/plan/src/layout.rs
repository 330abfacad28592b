//! The placement of drives, groups and volumes on an EF600: slots evenly on the two PCIe buses,
//! volumes in pairs on the controllers A and B, and segments that the hosts' requests fill.
//!
//! After "Deploying NetApp EF600" (Lenovo Press, 2021), section NetApp EF600 Storage Configuration.
//! [`Layout::script`] produces the scripts of its figures 11 and 13.

mod script;
mod slots;
pub mod stripe;
mod volumes;

pub use slots::Order;
pub(crate) use slots::ranges;
pub use stripe::Stripe;

use crate::Scheme;
use crate::ef600::{TITLE, cite, ef600};
use crate::error::{Result, refuse};
use crate::size;
use crate::units::Bytes;
use serde::Serialize;

/// The maximum length of names, so that a volume's name fits into SANtricity's 30 characters.
const NAME_CHARS_MAX: usize = 20;

/// What to lay out. Absent values are chosen.
#[derive(Debug, Clone)]
pub struct Request {
    /// DDP or RAID 6.
    pub scheme: Scheme,
    /// The number of drives of the pool, or of all groups.
    pub drives: i64,
    /// The order in which slots are used.
    pub order: Order,
    /// The slots to use, instead of chosen ones.
    pub slots: Option<String>,
    /// The number of mirrored pairs in addition to RAID 6, for metadata.
    pub mirrors: u32,
    /// The total number of volumes, without those on mirrors.
    pub volumes: Option<i64>,
    /// The capacity of each volume.
    pub volume: Option<Bytes>,
    /// The capacity of a drive. Without it and without `volume`, volumes have no capacity yet.
    pub drive: Option<Bytes>,
    /// The share set aside as optimization capacity; if absent, the recommended share.
    pub optimization_percent: Option<f64>,
    /// The largest request of the hosts, in KiB.
    pub request_kib: Option<u32>,
    /// The size of a segment, the part of a stripe on one drive, in KiB.
    pub segment_kib: Option<u32>,
    /// The prefix of names.
    pub name: String,
}

impl Request {
    /// A request for this many drives with a scheme; everything else is chosen.
    #[must_use]
    pub fn new(scheme: Scheme, drives: i64) -> Self {
        Self {
            scheme,
            drives,
            order: Order::Centre,
            slots: None,
            mirrors: 0,
            volumes: None,
            volume: None,
            drive: None,
            optimization_percent: None,
            request_kib: None,
            segment_kib: None,
            name: "ef600".to_owned(),
        }
    }
}

/// The layout of an array.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Layout {
    /// DDP or RAID 6.
    pub scheme: Scheme,
    /// The pool, or the volume groups.
    pub groups: Vec<Group>,
    /// The slots without a drive of these groups.
    pub free_slots: Vec<u32>,
    /// The stripe, and whether writes of it are accelerated.
    pub stripe: Stripe,
    /// The reasons for the layout.
    pub notes: Vec<String>,
    /// What needs attention.
    pub warnings: Vec<String>,
    /// The source of the rules.
    pub source: String,
}

/// A pool or a volume group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// The name of the group.
    pub name: String,
    /// The protection scheme.
    pub scheme: Scheme,
    /// The slots of the group.
    pub slots: Vec<u32>,
    /// The number of drives on the bus of slots 0 to 11, and on that of slots 12 to 23.
    pub drives_by_bus: [u32; 2],
    /// The volumes of the group.
    pub volumes: Vec<Volume>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Volume {
    /// The name of the volume.
    pub name: String,
    /// The controller that serves the volume: A or B.
    pub owner: char,
    /// The capacity in GiB, which SMcli calls GB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gib: Option<u64>,
    /// The capacity in decimal TB, as hosts show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tb: Option<f64>,
}

/// Lays out an array.
///
/// # Errors
/// A broken rule, with the nearest balanced choice.
pub fn layout(request: &Request) -> Result<Layout> {
    check(request)?;
    let stripe = stripe::stripe(request.scheme, request.request_kib, request.segment_kib)?;
    let groups = slots::groups(request)?;
    let volumes = volumes::plan(request, &groups)?;
    let groups: Vec<_> =
        groups.into_iter().zip(volumes).map(|(group, volumes)| Group { volumes, ..group }).collect();
    let used: Vec<_> = groups.iter().flat_map(|group| group.slots.iter().copied()).collect();
    let free_slots = (0..ef600().slots).filter(|slot| !used.contains(slot)).collect();
    Ok(Layout {
        scheme: request.scheme,
        notes: notes(request, &groups, &stripe),
        warnings: warnings(request, &stripe),
        groups,
        free_slots,
        stripe,
        source: cite("section NetApp EF600 Storage Configuration"),
    })
}

impl Layout {
    /// The SMcli commands that create the layout, as in figures 11 and 13.
    ///
    /// # Errors
    /// If volumes have no capacity, or the guide shows no commands for a group.
    pub fn script(&self) -> Result<String> {
        script::script(self)
    }

    /// The last part of [`Layout::script`]: how existing volumes are checked and cached. For
    /// volumes that were created by other means.
    #[must_use]
    pub fn settings_script(&self) -> String {
        script::settings(self)
    }
}

fn check(request: &Request) -> Result<()> {
    if matches!(request.scheme, Scheme::Raid1 | Scheme::Coded { .. }) {
        return refuse(
            format!("cannot lay out {}", request.scheme.title()),
            "an EF600 holds data in a pool (ddp) or in RAID 6 groups; RAID 1 goes beside RAID 6, for metadata",
            cite("figures 10 and 12"),
            "--scheme ddp, or --scheme raid6 --mirrors 2",
        );
    }
    balanced(request)?;
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let name = &request.name;
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || !name.chars().all(valid) {
        let shorter: String = name.chars().filter(|c| valid(*c)).take(NAME_CHARS_MAX).collect();
        return refuse(
            format!("cannot begin names with {name:?}"),
            format!(
                "1 to {NAME_CHARS_MAX} letters, digits, - and _, as a volume's name has 30 characters at most"
            ),
            "SANtricity's rules for user labels",
            format!("--name {}", if shorter.is_empty() { "ef600" } else { &shorter }),
        );
    }
    Ok(())
}

/// A pool of 11 drives can be sized, but cannot be laid out evenly.
fn balanced(request: &Request) -> Result<()> {
    let pool = &ef600().pool;
    if request.scheme == Scheme::Ddp && request.drives == i64::from(pool.drives_min) {
        return refuse(
            format!("cannot lay out a pool of {} drives evenly", request.drives),
            "a pool has as many drives on the PCIe bus of slots 0 to 11 as on that of 12 to 23: an even number, 12 to 24",
            cite(
                "sections Configuring the EF600 Storage Volumes and Configuring Volumes on Dynamic Disk Pools",
            ),
            format!(
                "--drives {}        the smallest balanced pool; it holds as much as {}",
                pool.drives_min_layout, pool.drives_min
            ),
        );
    }
    size::check_drives(request.scheme, request.drives).map(|_| ())
}

fn notes(request: &Request, groups: &[Group], stripe: &Stripe) -> Vec<String> {
    let mut notes = vec![
        "slots: as many drives of each group on the PCIe bus of slots 0 to 11 as on that of 12 to 23".to_owned(),
        "volumes: pairs of equal size, one served by controller A and one by B, so that all PCIe paths work; \
         otherwise reads drop from about 44 to 38 GB/s"
            .to_owned(),
    ];
    if groups.iter().flat_map(|group| &group.volumes).any(|volume| volume.gib.is_some()) {
        notes.push(
            "capacity: SMcli's GB are GiB (a volume of \"4992GB\" has 10,468,982,784 sectors of 512 bytes, and hosts show \
             5.36 TB)"
                .to_owned(),
        );
    }
    if request.drive.is_none() && request.volume.is_none() {
        notes.push("capacity: --drive-tb fills the drives, --volume gives each volume its own".to_owned());
    }
    notes.push(stripe.why.clone());
    if request.scheme == Scheme::Ddp {
        notes.push("the pool sets its own segments; none is given".to_owned());
    }
    notes
}

fn warnings(request: &Request, stripe: &Stripe) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(warning) = &stripe.warning {
        warnings.push(warning.clone());
    }
    if request.volume.is_some() && request.drive.is_none() {
        warnings.push(
            "the drives' capacity is not given: the volumes fit on the largest drives, and may not on yours (--drive-tb)"
                .to_owned(),
        );
    }
    if request.drive.is_some() {
        warnings.push(format!(
            "SMcli sets no optimization capacity aside, and space that volumes leave free is not trimmed; System Manager sets \
             it when it makes the pool or group ({TITLE}, section EF600 Optimization Capacity)"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests;
