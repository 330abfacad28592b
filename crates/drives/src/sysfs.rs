//! What the kernel shows of a block device: its cache, its limits, what it is made of, who uses it.
//!
//! Both roots are arguments, so that tests show devices that a machine does not have.

use crate::drive::Warning;
use rustix::fs::{Dev, major, minor};
use std::fs;
use std::path::{Path, PathBuf};

/// How many devices below a device are followed, one below the other.
const DEPTH_MAX: usize = 8;

/// What is known of a block device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// It may lose what was written and not flushed. Assumed where the kernel does not say.
    pub write_back: bool,
    pub discards: bool,
    pub physical_block_bytes: Option<u32>,
    pub optimal_bytes: Option<u32>,
    pub warnings: Vec<Warning>,
}

/// The directory of a device. A file system that spans devices has none.
fn directory(sys: &Path, device: Dev) -> PathBuf {
    sys.join(format!("dev/block/{}:{}", major(device), minor(device)))
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The directory of the whole device: a partition has no queue of its own.
fn whole(directory: &Path) -> PathBuf {
    let real = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    match real.parent() {
        Some(parent) if real.join("partition").exists() => parent.to_owned(),
        _ => real,
    }
}

/// Reads what the kernel shows.
pub(crate) fn facts(sys: &Path, device: Dev) -> Facts {
    let directory = whole(&directory(sys, device));
    let queue = |name: &str| text(&directory.join("queue").join(name));
    let number = |name: &str| queue(name).and_then(|text| text.parse::<u64>().ok()).filter(|n| *n > 0);
    let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
    let mut warnings = Vec::new();
    find_write_holes(&directory, DEPTH_MAX, &mut warnings);
    Facts {
        write_back: queue("write_cache").is_none_or(|cache| cache != "write through"),
        discards: number("discard_max_bytes").is_some(),
        physical_block_bytes: small("physical_block_size"),
        optimal_bytes: small("optimal_io_size"),
        warnings,
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
    found.sort();
    found
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Adds a warning for each array with parity, at or below a device, that does not log its writes.
fn find_write_holes(directory: &Path, depth: usize, warnings: &mut Vec<Warning>) {
    let level = text(&directory.join("md/level")).unwrap_or_default();
    if matches!(level.as_str(), "raid4" | "raid5" | "raid6") {
        let policy = text(&directory.join("md/consistency_policy")).unwrap_or_default();
        let warning = Warning::WriteHole { device: name(directory), level };
        if !matches!(policy.as_str(), "journal" | "ppl") && !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    if depth > 0 {
        for below in children(&directory.join("slaves")) {
            find_write_holes(&whole(&below), depth - 1, warnings);
        }
    }
}

/// Who uses a device or one of its partitions, as far as the kernel shows it.
pub(crate) fn users(sys: &Path, proc: &Path, device: Dev) -> Vec<String> {
    let directory = directory(sys, device);
    let real = fs::canonicalize(&directory).unwrap_or(directory);
    let partitions = children(&real).into_iter().filter(|child| child.join("partition").exists());
    let devices: Vec<PathBuf> = std::iter::once(real.clone()).chain(partitions).collect();
    let mounts = text(&proc.join("self/mountinfo")).unwrap_or_default();
    let swaps = text(&proc.join("swaps")).unwrap_or_default();
    let mut users = Vec::new();
    for device in &devices {
        let (number, name) = (text(&device.join("dev")).unwrap_or_default(), name(device));
        for mount in mounts.lines() {
            let mut fields = mount.split(' ').skip(2);
            if fields.next() == Some(number.as_str()) {
                users.push(format!("{name} is mounted at {}", fields.nth(1).unwrap_or_default()));
            }
        }
        for holder in children(&device.join("holders")) {
            users.push(format!("{name} is part of {}", self::name(&holder)));
        }
        let is_swap = |line: &str| line.split(' ').next() == Some(&format!("/dev/{name}"));
        users.extend(swaps.lines().any(is_swap).then(|| format!("{name} is swap space")));
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;
    use std::os::unix::fs::symlink;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(root: &Path, to: &str, at: &str) {
        let at = root.join(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(root.join(to), at).unwrap();
    }

    /// A disk with a mounted partition, and two arrays of which one is under a logical volume.
    fn fixture() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "devices/sda/queue/write_cache", "write through\n");
        write(root, "devices/sda/queue/discard_max_bytes", "0\n");
        write(root, "devices/sda/queue/physical_block_size", "4096\n");
        write(root, "devices/sda/dev", "8:0\n");
        write(root, "devices/sda/sda1/partition", "1\n");
        write(root, "devices/sda/sda1/dev", "8:1\n");
        for (array, policy) in [("md0", "resync"), ("md1", "ppl")] {
            write(root, &format!("devices/{array}/queue/write_cache"), "write back\n");
            write(root, &format!("devices/{array}/queue/discard_max_bytes"), "1024\n");
            write(root, &format!("devices/{array}/md/level"), "raid6\n");
            write(root, &format!("devices/{array}/md/consistency_policy"), &format!("{policy}\n"));
            link(root, &format!("devices/{array}"), &format!("devices/dm-0/slaves/{array}"));
            link(root, "devices/dm-0", &format!("devices/{array}/holders/dm-0"));
        }
        write(root, "devices/dm-0/queue/optimal_io_size", "524288\n");
        for (number, device) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("9:1", "md1"), ("253:0", "dm-0")] {
            link(root, &format!("devices/{device}"), &format!("dev/block/{number}"));
        }
        write(root, "proc/self/mountinfo", "25 1 8:1 / /srv/data rw,relatime shared:1 - ext4 /dev/sda1 rw\n");
        write(root, "proc/swaps", "Filename Type Size Used Priority\n/dev/sda partition 1 0 -2\n");
        dir
    }

    #[test]
    fn a_partition_has_the_cache_and_the_limits_of_its_device() {
        let fixture = fixture();
        for device in [makedev(8, 0), makedev(8, 1)] {
            let facts = facts(fixture.path(), device);
            assert!(!facts.write_back && !facts.discards);
            assert_eq!((facts.physical_block_bytes, facts.optimal_bytes), (Some(4096), None));
            assert_eq!(facts.warnings, []);
        }
    }

    #[test]
    fn an_unknown_device_is_expected_to_have_a_volatile_cache() {
        let facts = facts(fixture().path(), makedev(0, 77));
        assert!(facts.write_back && !facts.discards && facts.warnings.is_empty());
    }

    #[test]
    fn arrays_with_a_write_hole_are_found_below_other_devices() {
        let fixture = fixture();
        let facts = |device| facts(fixture.path(), device);
        assert_eq!(facts(makedev(9, 1)).warnings, [], "it logs its parity");
        let hole = Warning::WriteHole { device: "md0".to_owned(), level: "raid6".to_owned() };
        let volume = facts(makedev(253, 0));
        assert_eq!((volume.warnings, volume.optimal_bytes), (vec![hole], Some(524_288)));
    }

    #[test]
    fn the_users_of_a_device_and_of_its_partitions_are_named() {
        let fixture = fixture();
        let users = |device| users(fixture.path(), &fixture.path().join("proc"), device);
        assert_eq!(users(makedev(8, 0)), ["sda is swap space", "sda1 is mounted at /srv/data"]);
        assert_eq!(users(makedev(9, 1)), ["md1 is part of dm-0"]);
        assert_eq!(users(makedev(7, 7)), [""; 0]);
    }
}
