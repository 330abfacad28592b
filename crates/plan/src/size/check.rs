//! The rules of the array: how many drives of which size each scheme accepts, and what the array
//! reserves of them.

use super::Request;
use crate::Scheme;
use crate::ef600::{cite, ef600};
use crate::error::{Result, refuse};
use crate::units::{check_percent, trim};

/// A larger number of drives is a typing error.
const DRIVES_MAX: u32 = 100_000;

/// A request with all defaults filled in.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) drives: u32,
    pub(super) hot_spares: u32,
    pub(super) spares: f64,
    pub(super) config_gb: f64,
    pub(super) optimization_percent: f64,
    pub(super) metadata_percent: Option<f64>,
}

pub(super) fn check(request: &Request) -> Result<Facts> {
    let drives = drives(request.scheme, request.drives)?;
    let hot_spares = hot_spares(request, drives)?;
    let optimization_percent = optimization(request)?;
    let config_gb = config(request)?;
    let spares = spares(request, drives)?;
    let metadata_percent =
        request.metadata_percent.map(|percent| check_percent("--metadata-percent", percent)).transpose()?;
    Ok(Facts { drives, hot_spares, spares, config_gb, optimization_percent, metadata_percent })
}

/// Checks the number of drives of a scheme.
pub(crate) fn drives(scheme: Scheme, drives: i64) -> Result<u32> {
    let array = ef600();
    let (pool, raid6) = (&array.pool, &array.raid6);
    let asked = format!("cannot put {drives} drives under {}", scheme.title());
    let count = u32::try_from(drives).unwrap_or(if drives < 0 { 0 } else { u32::MAX });
    let (valid, rule, place, nearest) = match scheme {
        Scheme::Ddp => (
            count == pool.drives_min
                || ((pool.drives_min..=pool.drives_max).contains(&count) && count.is_multiple_of(2)),
            format!(
                "a pool has an even number of drives, {} to {}, so that as many lie on one PCIe bus as on the other; {} \
                 are the least that the array takes at all",
                pool.drives_min_layout, pool.drives_max, pool.drives_min
            ),
            "sections Configuring Volumes on Dynamic Disk Pools and Preservation Capacity for DDP",
            nearest_pool(count),
        ),
        Scheme::Raid6 => {
            let (one, most) = (raid6.group, raid6.group * raid6.groups_max);
            (
                count == one || count == most,
                format!(
                    "RAID 6 groups have {} data and {} parity drives, so {one} or {most} in all",
                    raid6.data, raid6.parity
                ),
                "section Configuring the EF600 Storage Volumes",
                if count > most {
                    format!(
                        "--drives {most}        the other slots take mirrored pairs (plan layout --mirrors) or hot spares"
                    )
                } else {
                    format!("--drives {}", if count < one + one / 2 { one } else { most })
                },
            )
        }
        Scheme::Raid1 => {
            let nearest = (count.saturating_add(1) / 2 * 2).clamp(2, array.slots);
            (
                count.is_multiple_of(2) && (2..=array.slots).contains(&count),
                format!("mirrors come in pairs, and the array has {} slots", array.slots),
                "sections NetApp EF600 Overview and RAID Overhead",
                format!("--drives {nearest}"),
            )
        }
        Scheme::Coded { data, parity } => (
            (data + parity..=DRIVES_MAX).contains(&count),
            format!(
                "each of the {} segments of a stripe lies on a drive of its own, and at most {DRIVES_MAX} are planned",
                data + parity
            ),
            "",
            format!("--drives {}", count.clamp(data + parity, DRIVES_MAX)),
        ),
    };
    if valid {
        return Ok(count);
    }
    let origin = if place.is_empty() { scheme.origin() } else { cite(place) };
    refuse(asked, rule, origin, nearest)
}

/// The pool sizes nearest to a number of drives.
fn nearest_pool(count: u32) -> String {
    let pool = &ef600().pool;
    if count < pool.drives_min_layout {
        format!("--drives {}        the smallest balanced pool", pool.drives_min_layout)
    } else if count > pool.drives_max {
        format!("--drives {}        the largest pool; for more, several arrays: --need-tib", pool.drives_max)
    } else {
        format!("--drives {} or {}", count - 1, count + 1)
    }
}

fn hot_spares(request: &Request, drives: u32) -> Result<u32> {
    let slots = ef600().slots;
    let count = u32::try_from(request.hot_spares).ok();
    let asked = format!(
        "cannot add {} hot spares to {drives} drives under {}",
        request.hot_spares,
        request.scheme.title()
    );
    match (request.scheme, count) {
        (_, Some(0)) => Ok(0),
        (Scheme::Ddp | Scheme::Coded { .. }, _) => refuse(
            asked,
            "the spare capacity of a pool is spread over its drives, and no drive is idle",
            cite("section Preservation Capacity for DDP"),
            "--spares N        for so many drives' worth of it",
        ),
        (_, Some(count)) if count <= slots.saturating_sub(drives) => Ok(count),
        _ => {
            let room = slots.saturating_sub(drives);
            refuse(
                asked,
                format!("the array has {slots} slots, so 0 to {room} are left for hot spares"),
                cite("section NetApp EF600 Overview"),
                if room == 0 { "leave --hot-spares out".to_owned() } else { format!("--hot-spares {room}") },
            )
        }
    }
}

fn optimization(request: &Request) -> Result<f64> {
    let (array, tb) = (ef600(), request.drive.tb());
    let known = array.drive(tb);
    let nearest = array.nearest_drive(tb);
    let is_general = matches!(request.scheme, Scheme::Coded { .. });
    match (request.optimization_percent, known) {
        (Some(percent), _) if known.is_some() || is_general => {
            check_percent("--optimization-percent", percent)
        }
        (None, Some(drive)) => Ok(drive.optimization_percent),
        _ if is_general => refuse(
            format!("cannot size drives of {} TB", trim(tb)),
            format!("an optimization capacity is only recommended for drives of {}", array.describe_drives()),
            cite("figure 36"),
            format!(
                "--drive-tb {}, or --optimization-percent P with what that drive needs (0 for none)",
                nearest.tb
            ),
        ),
        _ => refuse(
            format!("cannot size drives of {} TB", trim(tb)),
            format!("the EF600 takes NVMe drives of {}", array.describe_drives()),
            cite("section NetApp EF600 Overview"),
            format!("--drive-tb {}, or --scheme 8+2 --optimization-percent P for another array", nearest.tb),
        ),
    }
}

fn config(request: &Request) -> Result<f64> {
    let usual = ef600().config_gb_per_drive;
    let gb = request.config_gb.unwrap_or(usual);
    if gb.is_finite() && gb >= 0.0 && gb * 1e9 < request.drive.get() {
        return Ok(gb);
    }
    refuse(
        format!("cannot keep {} GB of each drive of {} TB", trim(gb), trim(request.drive.tb())),
        "configuration data take part of each drive: 0 GB to less than the drive",
        cite("section Per-Disk Configuration Data"),
        format!("--config-gb {usual}"),
    )
}

fn spares(request: &Request, drives: u32) -> Result<f64> {
    let pool = &ef600().pool;
    let (data, parity) = request.scheme.segments();
    let usual = match request.scheme {
        Scheme::Ddp if drives == pool.drives_min => pool.preservation_at_min,
        Scheme::Ddp => pool.preservation,
        _ => 0,
    };
    let Some(asked) = request.spares else { return Ok(f64::from(usual)) };
    if matches!(request.scheme, Scheme::Raid6 | Scheme::Raid1) {
        return refuse(
            format!("cannot spread spare capacity over {}", request.scheme.title()),
            "a volume group has no spare capacity inside; its spares are drives of their own",
            cite("section Hot Spare Capacity"),
            "--hot-spares N",
        );
    }
    let room = f64::from(drives.saturating_sub(data + parity));
    if asked.is_finite() && (0.0..=room).contains(&asked) {
        return Ok(asked);
    }
    refuse(
        format!("cannot spare {} of {drives} drives", trim(asked)),
        format!(
            "stripes of {} segments need as many drives beside the spare capacity, so 0 to {}",
            data + parity,
            trim(room)
        ),
        cite("section Preservation Capacity for DDP"),
        format!("--spares {}", trim(f64::from(usual).min(room))),
    )
}
