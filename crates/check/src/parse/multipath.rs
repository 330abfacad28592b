//! The output of `multipath -ll`, in both forms: of DM-Multipath, and of the kernel's own NVMe
//! multipath, which multipath-tools shows with `[nvme]` since RHEL 8.

/// A device and its paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MultipathDevice {
    /// `dm-3` or `nvme0n1`.
    pub name: String,
    /// The identity of the volume: `eui.…`, `uuid.…`.
    pub id: String,
    /// Whether the kernel's own NVMe multipath serves it.
    pub is_native: bool,
    pub paths: Vec<MultipathPath>,
}

/// One path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MultipathPath {
    pub name: String,
    /// The words after the device number: `active ready running`, `n/a optimized live`.
    pub state: String,
}

impl MultipathPath {
    /// Whether the path carries I/O or could; `None` if that is not known, as while a checker is at
    /// work.
    pub fn is_usable(&self) -> Option<bool> {
        let words: Vec<_> = self.state.split_whitespace().collect();
        match words.as_slice() {
            [.., "i/o", "pending", _] => None,
            [state, "ready" | "ghost", _] => Some(*state == "active"),
            // Without ANA a controller has no state of its own.
            [_, "optimized" | "non-optimized" | "n/a", state] => Some(*state == "live"),
            _ => Some(false),
        }
    }
}

/// All devices. Lines that belong to none are skipped.
pub(crate) fn multipath_devices(text: &str) -> Vec<MultipathDevice> {
    let mut devices = Vec::<MultipathDevice>::new();
    // Paths below a device that is not understood belong to no other.
    let mut is_known = false;
    for line in text.lines() {
        let begins = line.starts_with(|first: char| first.is_ascii_alphanumeric());
        if begins && !line.starts_with("size=") {
            let device = device(line);
            is_known = device.is_some();
            devices.extend(device);
        } else if is_known && let (Some(device), Some(path)) = (devices.last_mut(), path(line)) {
            device.paths.push(path);
        }
    }
    devices
}

/// `ID dm-3 NVME, …`, `ALIAS (ID) dm-3 NVME, …`, `ID [nvme]:nvme0n1 NVMe, …`, and the last with a
/// space before the name, as it is often copied.
fn device(line: &str) -> Option<MultipathDevice> {
    let line = line.replace("[nvme]: ", "[nvme]:");
    let words: Vec<_> = line.split_whitespace().collect();
    let (id, is_native, name) = match words.as_slice() {
        [id, name, ..] if name.starts_with("[nvme]:") => (*id, true, name.trim_start_matches("[nvme]:")),
        [_, id, name, ..] if id.starts_with('(') && name.starts_with("dm-") => (*id, false, *name),
        [id, name, ..] if name.starts_with("dm-") => (*id, false, *name),
        _ => return None,
    };
    let id = id.trim_matches(['(', ')']).to_owned();
    Some(MultipathDevice { name: name.to_owned(), id, is_native, paths: Vec::new() })
}

/// ``|  `- 4:0:4:0 nvme4n4 259:70 active ready running``
fn path(line: &str) -> Option<MultipathPath> {
    let line = line.trim_start_matches(['|', '`', '-', '+', '\\', '_', ' ']);
    let mut words = line.split_whitespace();
    let is_address =
        |word: &str| word.contains(':') && word.bytes().all(|byte| b":#0123456789".contains(&byte));
    words.next().filter(|word| is_address(word))?;
    let name = words.next()?;
    words.next().filter(|word| is_address(word))?;
    let state: Vec<_> = words.collect();
    Some(MultipathPath { name: name.to_owned(), state: state.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DM: &str = "eui.00000eb55bacd37fd039ea00003ef1fd dm-3 NVME, NetApp E-Series\n\
        size=2.4T features='1 queue_if_no_path' hwhandler='0' wp=rw\n\
        |-+- policy='service-time 0' prio=50 status=active\n\
        | |- 4:0:4:0 nvme4n4 259:70  active ready running\n\
        | `- 5:0:4:0 nvme5n4 259:86  active ready running\n\
        `-+- policy='service-time 0' prio=10 status=enabled\n\
        \x20 `- 0:0:4:0 nvme0n4 259:6   failed faulty running\n\
        mpatha (3600140512345) dm-0 LIO-ORG,disk\n\
        size=1.0G features='0' hwhandler='1 alua' wp=rw\n\
        `-+- policy='service-time 0' prio=50 status=active\n\
        \x20 `- 2:0:0:1 sdb 8:16 active ready running\n";
    const NATIVE: &str = "eui.00004edf5c0b4a01d039ea00003ef510 [nvme]:nvme0n1 NVMe,NetApp E-Series,98711200\n\
        size=10468982784 features='n/a' hwhandler='ANA' wp=rw\n\
        |-+- policy='n/a' prio=50 status=optimized\n\
        | `- 0:0:1 nvme0c0n1 0:0 n/a optimized live\n\
        `-+- policy='n/a' prio=10 status=non-optimized\n\
        \x20 `- 0:4:1 nvme0c4n1 0:0 n/a non-optimized connecting\n";

    #[test]
    fn the_form_of_device_mapper_is_read() {
        let devices = multipath_devices(DM);
        assert_eq!(devices.len(), 2);
        assert_eq!((&*devices[0].name, devices[0].is_native, devices[0].paths.len()), ("dm-3", false, 3));
        let usable: Vec<_> = devices[0].paths.iter().map(MultipathPath::is_usable).collect();
        assert_eq!(usable, [Some(true), Some(true), Some(false)]);
        assert_eq!((&*devices[1].id, &*devices[1].paths[0].name), ("3600140512345", "sdb"));
    }

    #[test]
    fn the_form_of_nvme_is_read() {
        let [device] = &multipath_devices(NATIVE)[..] else { panic!() };
        assert_eq!((&*device.name, device.is_native), ("nvme0n1", true));
        let usable: Vec<_> = device.paths.iter().map(MultipathPath::is_usable).collect();
        assert_eq!(usable, [Some(true), Some(false)]);
        let copied = NATIVE.replace("]:", "]: ");
        assert_eq!(multipath_devices(&copied), std::slice::from_ref(device));
    }

    #[test]
    fn paths_without_ana_are_live_and_pending_checks_tell_nothing() {
        let state = |state: &str| MultipathPath { name: String::new(), state: state.to_owned() }.is_usable();
        assert_eq!(state("n/a n/a live"), Some(true));
        assert_eq!(state("n/a optimized deleting"), Some(false));
        assert_eq!(state("n/a inaccessible live"), Some(false));
        assert_eq!(state("active i/o pending running"), None);
        assert_eq!(state("failed ready running"), Some(false));
    }

    #[test]
    fn paths_below_a_header_that_is_not_understood_belong_to_nobody() {
        let text = format!("{DM}uuid.7 [scsi]: sda VENDOR\n  `- 0:0:1 sdz 8:0 n/a optimized live\n");
        assert_eq!(multipath_devices(&text), multipath_devices(DM));
    }

    #[test]
    fn the_form_that_the_ef600_guide_prints_is_read_too() {
        let printed = DM
            .replace("|-+-", "|--")
            .replace("| |-", "|  |--")
            .replace("`-+-", "|--")
            .replace("  `-", "|  |--");
        assert_eq!(multipath_devices(&printed)[0].paths.len(), 3);
        assert!(multipath_devices("").is_empty());
        assert!(multipath_devices("Feb 01 12:00:00 | /etc/multipath.conf does not exist\n").is_empty());
    }
}
