//! Volumes: pairs on the controllers A and B, of equal size in whole GiB, and together no larger
//! than the drives.

use super::{Group, Request, Volume};
use crate::Scheme;
use crate::ef600::{cite, ef600};
use crate::error::{Result, refuse};
use crate::size;
use crate::units::{Bytes, GIB, trim};

/// The maximum number of volumes, which is the number of LUNs of a mapping.
const VOLUMES_MAX: u32 = 256;

/// The volumes of each group.
pub(super) fn plan(request: &Request, groups: &[Group]) -> Result<Vec<Vec<Volume>>> {
    let is_data = |group: &&Group| group.scheme == request.scheme;
    let data_groups = u32::try_from(groups.iter().filter(is_data).count()).unwrap_or(1).max(1);
    let count = count(request, data_groups)?;
    let gib = capacity(request, data_groups, count / data_groups)?;
    let mirror_gib = mirror_capacity(request)?;
    let of_group = |group: &Group| {
        let (volumes, gib) = if is_data(&group) { (count / data_groups, gib) } else { (2, mirror_gib) };
        (1..=volumes).map(|number| volume(&group.name, number, gib)).collect()
    };
    Ok(groups.iter().map(of_group).collect())
}

fn volume(group: &str, number: u32, gib: Option<u64>) -> Volume {
    Volume {
        name: format!("{group}v{number}"),
        owner: if number % 2 == 1 { 'A' } else { 'B' },
        gib,
        // A whole number of GiB within this range is exact.
        tb: gib.map(|gib| gib as f64 * GIB / 1e12),
    }
}

/// The number of volumes, in pairs on each group.
fn count(request: &Request, groups: u32) -> Result<u32> {
    let usual = ef600().volumes_default;
    let Some(asked) = request.volumes else { return Ok(usual.max(2 * groups)) };
    let step = 2 * groups;
    let count = u32::try_from(asked).unwrap_or_default();
    if count > 0 && count <= VOLUMES_MAX && count.is_multiple_of(step) {
        return Ok(count);
    }
    let nearest = (count.saturating_add(step - 1) / step * step).clamp(step, VOLUMES_MAX);
    refuse(
        format!("cannot spread {asked} volumes over {groups} group{}", if groups == 1 { "" } else { "s" }),
        format!(
            "each group has pairs of equal volumes, one for controller A and one for B: a multiple of {step}"
        ),
        cite("section Configuring the EF600 Storage Volumes"),
        format!("--volumes {nearest}"),
    )
}

/// The GiB of each volume, if known, after a check that all volumes fit.
fn capacity(request: &Request, groups: u32, of_group: u32) -> Result<Option<u64>> {
    if let Some(volume) = request.volume.filter(|volume| whole_gib(*volume) == 0) {
        return refuse(
            format!("cannot make volumes of {} GB", trim(volume.get() / 1e9)),
            "volumes are planned in whole GiB, which is what SMcli's GB are",
            cite("figures 13, 25 and 27"),
            "--volume 1GiB",
        );
    }
    // Without a given drive, volumes must at least fit on the largest drives.
    let largest = || ef600().drive.iter().map(|drive| drive.tb).fold(0.0, f64::max);
    let drive = match (request.drive, request.volume) {
        (Some(drive), _) => drive,
        (None, Some(_)) => Bytes::from_tb(largest()),
        (None, None) => return Ok(None),
    };
    let sized = size::Request {
        optimization_percent: request.optimization_percent,
        ..size::Request::new(request.scheme, drive, request.drives)
    };
    let usable = Bytes::from_tb(size::size(&sized)?.usable_tb).times(1.0 / f64::from(groups));
    let most = whole_gib(usable.times(1.0 / f64::from(of_group)));
    if most == 0 {
        return refuse(
            format!("cannot fit {of_group} volumes into a group"),
            format!("the group has {:.1} GiB usable, and a volume has 1 GiB at least", usable.gib()),
            cite("section Capacity Sizing"),
            "fewer --volumes, or a smaller --optimization-percent",
        );
    }
    let Some(volume) = request.volume else { return Ok(Some(most)) };
    let asked = whole_gib(volume);
    if asked <= most {
        return Ok(Some(asked));
    }
    refuse(
        format!("cannot fit {of_group} volumes of {asked} GiB ({:.2} TB) into a group", volume.tb()),
        format!(
            "the group has {} TB usable ({:.1} GiB) with drives of {} TB, after configuration data, spares, protection and optimization capacity; \
             SMcli's GB are GiB: decimal GB taken for them over-commit by 7 %",
            trim((usable.tb() * 1000.0).round() / 1000.0),
            usable.gib(),
            trim(drive.tb())
        ),
        cite("sections Capacity Sizing and Creating NSDs, figures 13, 25 and 27"),
        format!("--volume {most}GiB"),
    )
}

fn mirror_capacity(request: &Request) -> Result<Option<u64>> {
    let Some(drive) = request.drive.filter(|_| request.mirrors > 0) else { return Ok(None) };
    let sized = size::Request {
        optimization_percent: request.optimization_percent,
        ..size::Request::new(Scheme::Raid1, drive, 2)
    };
    Ok(Some(whole_gib(Bytes::from_tb(size::size(&sized)?.usable_tb).times(0.5))))
}

/// The number of whole GiB that fit.
fn whole_gib(bytes: Bytes) -> u64 {
    // The value is not negative and far below 2^53.
    bytes.gib().floor() as u64
}
