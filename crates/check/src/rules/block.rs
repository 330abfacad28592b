//! Block devices: whether a full stripe passes in one request.

use crate::{Evidence, Expected, Finding};

const NAME: &str = "sys-block.txt";
/// Devices without a stripe call the size of their blocks optimal.
const OPTIMAL_BYTES_MIN: u64 = 8192;

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    for (stars, max) in evidence.tree(NAME, "/sys/block/*/queue/max_sectors_kb") {
        let [device] = stars[..] else { continue };
        // An expected stripe is that of volumes of an array; local drives are not meant.
        let is_volume = device.starts_with("nvme") || device.starts_with("dm-");
        if device.starts_with("loop") || expected.stripe_bytes.is_some() && !is_volume {
            continue;
        }
        let value = |file: &str| {
            let path = format!("/sys/block/{device}/queue/{file}");
            evidence.value(NAME, &path)?.parse::<u64>().ok()
        };
        let optimal = value("optimal_io_size").filter(|bytes| *bytes >= OPTIMAL_BYTES_MIN);
        let Some((stripe, of)) = stripe(expected, optimal) else { continue };
        let (Ok(max), hardware) = (max.parse::<u64>(), value("max_hw_sectors_kb")) else { continue };
        let seen = format!("{device}: requests of at most {max} KiB; {of} is {} KiB", stripe >> 10);
        let path = format!("/sys/block/{device}/queue/max_sectors_kb");
        let finding = Finding::ok("block.request-size", path.clone(), seen);
        if max.saturating_mul(1 << 10) >= stripe {
            out.push(finding);
            continue;
        }
        let why = "writes of a full stripe are split, and the array reads back what is missing of each part";
        let mend = match hardware.filter(|hardware| hardware.saturating_mul(1 << 10) < stripe) {
            Some(hardware) => format!("the device takes {hardware} KiB at most: use a smaller stripe"),
            None => format!("echo {} > {path}    # lasting: a udev rule", stripe.div_ceil(1 << 10)),
        };
        out.push(finding.warn(why, mend));
    }
}

fn stripe(expected: &Expected, optimal: Option<u64>) -> Option<(u64, &'static str)> {
    let expected = expected.stripe_bytes.map(|bytes| (bytes, "the expected stripe"));
    expected.or(optimal.map(|bytes| (bytes, "its optimal size")))
}
