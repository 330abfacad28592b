//! The NetApp EF600: the values of its deployment guide, read once from the crate's data file.

use serde::Deserialize;
use std::sync::OnceLock;

/// The guide's title, for citations.
pub const TITLE: &str = "Deploying NetApp EF600, Lenovo Press 2021";

/// A reference to a part of the guide.
pub(crate) fn cite(place: &str) -> String {
    format!("{TITLE}, {place}")
}

/// The values of the array.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ef600 {
    /// Drive slots.
    pub slots: u32,
    /// Drive slots on each of the two PCIe buses.
    pub slots_per_bus: u32,
    /// GB of each drive that the array reserves.
    pub config_gb_per_drive: f64,
    /// The largest segment with which full-stripe writes are still accelerated.
    pub segment_kib_max_full_stripe: u32,
    /// The largest request of a Linux host, in KiB.
    pub request_kib_default: u32,
    /// The default number of volumes.
    pub volumes_default: u32,
    /// The drives that the array accepts.
    pub drive: Vec<Drive>,
    /// Dynamic disk pools.
    pub pool: Pool,
    /// RAID 6 groups.
    pub raid6: Raid6,
    /// The throughput of both controllers together.
    pub controller: ControllerSpeed,
    /// The throughput of one drive.
    pub drive_speed: DriveSpeed,
}

/// A drive size.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// The capacity in TB.
    pub tb: f64,
    /// The share recommended as optimization capacity.
    pub optimization_percent: f64,
}

/// Dynamic disk pools: declustered RAID 6.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The minimum number of drives of a pool.
    pub drives_min: u32,
    /// The minimum number of drives of a balanced pool.
    pub drives_min_layout: u32,
    /// The maximum number of drives.
    pub drives_max: u32,
    /// The preservation capacity of the smallest pool, in drives.
    pub preservation_at_min: u32,
    /// The preservation capacity of larger pools, in drives.
    pub preservation: u32,
    /// The number of data segments of a stripe.
    pub data: u32,
    /// The number of parity segments of a stripe.
    pub parity: u32,
}

/// Classical RAID 6 volume groups.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raid6 {
    /// The number of drives of a group.
    pub group: u32,
    /// The maximum number of groups.
    pub groups_max: u32,
    /// The number of data drives of a group.
    pub data: u32,
    /// The number of parity drives of a group.
    pub parity: u32,
}

/// The throughput of the controllers, in GB/s.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerSpeed {
    /// Reading, with all PCIe paths in use.
    pub read_gbytes_per_s: f64,
    /// Reading, if each volume group is served by only one controller.
    pub read_one_controller_gbytes_per_s: f64,
    /// Writing through a cache that is mirrored to the other controller.
    pub write_mirrored_gbytes_per_s: f64,
    /// Writing full stripes, which bypass that mirror.
    pub write_full_stripe_gbytes_per_s: f64,
}

/// The throughput of a drive, in GB/s.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveSpeed {
    /// Reading.
    pub read_gbytes_per_s: f64,
    /// Writing.
    pub write_gbytes_per_s: f64,
}

/// The values of the array.
#[must_use]
pub fn ef600() -> &'static Ef600 {
    static DATA: OnceLock<Ef600> = OnceLock::new();
    DATA.get_or_init(|| {
        toml::from_str(include_str!("../data/ef600.toml")).expect("a test reads the data file")
    })
}

impl Ef600 {
    /// The drive of this capacity, if the array accepts it.
    #[must_use]
    pub fn drive(&self, tb: f64) -> Option<Drive> {
        self.drive.iter().copied().find(|drive| (drive.tb - tb).abs() < 1e-9)
    }

    /// The drive whose capacity is closest.
    #[must_use]
    pub fn nearest_drive(&self, tb: f64) -> Drive {
        let nearest =
            self.drive.iter().copied().min_by(|a, b| (a.tb - tb).abs().total_cmp(&(b.tb - tb).abs()));
        nearest.unwrap_or(Drive { tb, optimization_percent: 0.0 })
    }

    /// The capacities of the array's drives, as text.
    #[must_use]
    pub fn describe_drives(&self) -> String {
        let sizes: Vec<_> = self.drive.iter().map(|drive| drive.tb.to_string()).collect();
        format!("{} TB", sizes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_file_is_whole() {
        let array = ef600();
        assert_eq!(array.drive.len(), 4);
        assert_eq!(array.slots, 2 * array.slots_per_bus);
        assert_eq!(array.nearest_drive(8.0).tb.to_string(), "7.68");
    }
}
