//! Chooses slots: from the centre outwards, or from both ends inwards, with the same number of
//! drives on both PCIe buses.

use super::{Group, Request};
use crate::Scheme;
use crate::ef600::{cite, ef600};
use crate::error::{Error, Result, refuse};
use std::str::FromStr;

/// The order in which slots are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From slots 11 and 12 outwards.
    Centre,
    /// From slots 0 and 23 inwards.
    Ends,
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "centre" | "center" => Ok(Self::Centre),
            "ends" => Ok(Self::Ends),
            _ => refuse(
                format!("cannot fill slots in the order {text}"),
                "drives go from the centre outwards, or from both ends inwards",
                cite("section Configuring the EF600 Storage Volumes"),
                "--order centre, or ends",
            ),
        }
    }
}

/// The groups with their slots, without volumes.
pub(super) fn groups(request: &Request) -> Result<Vec<Group>> {
    let array = ef600();
    let drives = u32::try_from(request.drives).unwrap_or_default();
    let each = if request.scheme == Scheme::Raid6 { array.raid6.group } else { drives };
    let data_groups = drives / each.max(1);
    let mut pairs = Pairs::new(request, drives)?;
    let mut groups = Vec::new();
    for number in 1..=data_groups {
        let letter = if request.scheme == Scheme::Ddp { 'p' } else { 'a' };
        let name = format!("{}{letter}{number:02}", request.name);
        groups.push(group(name, request.scheme, pairs.take(each / 2)));
    }
    if request.mirrors > 0 {
        mirrors_fit(request, drives)?;
        for number in 1..=request.mirrors {
            groups.push(group(format!("{}m{number:02}", request.name), Scheme::Raid1, pairs.take(1)));
        }
    }
    Ok(groups)
}

fn group(name: String, scheme: Scheme, mut slots: Vec<u32>) -> Group {
    slots.sort_unstable();
    let first = slots.iter().filter(|slot| **slot < ef600().slots_per_bus).count();
    let counted = |count: usize| u32::try_from(count).unwrap_or_default();
    Group {
        name,
        scheme,
        drives_by_bus: [counted(first), counted(slots.len() - first)],
        slots,
        volumes: Vec::new(),
    }
}

fn mirrors_fit(request: &Request, drives: u32) -> Result<()> {
    let slots = ef600().slots;
    let room = slots.saturating_sub(drives) / 2;
    if request.scheme == Scheme::Raid6 && request.mirrors <= room {
        return Ok(());
    }
    let most = if request.scheme == Scheme::Raid6 { room } else { 0 };
    refuse(
        format!("cannot put {} mirrored pairs beside {}", request.mirrors, request.scheme.title()),
        if most == 0 {
            "all drives go into one pool; mirrors use the slots that RAID 6 groups leave".to_owned()
        } else {
            format!("{drives} of {slots} slots are taken, which leaves {most} pairs")
        },
        cite("figure 12"),
        if most == 0 {
            "leave --mirrors out, or --scheme raid6".to_owned()
        } else {
            format!("--mirrors {most}")
        },
    )
}

/// The slots of the first and of the second bus, in the order in which they are used.
#[derive(Debug)]
struct Pairs {
    first: std::vec::IntoIter<u32>,
    second: std::vec::IntoIter<u32>,
}

impl Pairs {
    fn new(request: &Request, drives: u32) -> Result<Self> {
        let (all, half) = (ef600().slots, ef600().slots_per_bus);
        let (mut first, mut second): (Vec<u32>, Vec<u32>) = match &request.slots {
            None => ((0..half).collect(), (half..all).collect()),
            Some(text) => named(text, drives)?.into_iter().partition(|slot| *slot < half),
        };
        match request.order {
            Order::Centre => first.reverse(),
            Order::Ends => second.reverse(),
        }
        if request.slots.is_some() {
            // Mirrors use the slots that the named ones leave free.
            let free = |range: std::ops::Range<u32>, taken: &[u32]| -> Vec<u32> {
                range.filter(|slot| !taken.contains(slot)).collect()
            };
            let more = (free(0..half, &first), free(half..all, &second));
            first.extend(more.0.into_iter().rev());
            second.extend(more.1);
        }
        Ok(Self { first: first.into_iter(), second: second.into_iter() })
    }

    /// The next slots: this many of each bus.
    fn take(&mut self, of_each: u32) -> Vec<u32> {
        (0..of_each).flat_map(|_| [self.first.next(), self.second.next()]).flatten().collect()
    }
}

/// Parses slots such as `0-5,18-23` and checks that they are balanced.
fn named(text: &str, drives: u32) -> Result<Vec<u32>> {
    let (all, half) = (ef600().slots, ef600().slots_per_bus);
    let unreadable = || {
        refuse(
            format!("cannot read --slots {text}"),
            format!("slots are 0 to {}, as numbers and ranges", all - 1),
            cite("section Configuring the EF600 Storage Volumes"),
            "--slots 6-17",
        )
    };
    let mut slots = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        match (from.trim().parse::<u32>(), to.trim().parse::<u32>()) {
            (Ok(from), Ok(to)) if from <= to && to < all => slots.extend(from..=to),
            _ => return unreadable(),
        }
    }
    slots.sort_unstable();
    slots.dedup();
    let wanted = drives / 2;
    let counts = [
        slots.iter().filter(|slot| **slot < half).count(),
        slots.iter().filter(|slot| **slot >= half).count(),
    ];
    if counts.iter().all(|count| u32::try_from(*count) == Ok(wanted)) {
        return Ok(slots);
    }
    let nearest = nearest_balanced(&slots, wanted);
    refuse(
        format!("cannot put {drives} drives into slots {text} evenly"),
        format!(
            "{} of them are on the PCIe bus of slots 0 to {}, {} on that of {half} to {}, and each needs {wanted}",
            counts[0],
            half - 1,
            counts[1],
            all - 1
        ),
        cite("section Configuring the EF600 Storage Volumes"),
        format!("--slots {}", ranges(&nearest)),
    )
}

/// The named slots as far as they can be kept, with others added on each bus from the centre.
fn nearest_balanced(slots: &[u32], wanted: u32) -> Vec<u32> {
    let (all, half) = (ef600().slots, ef600().slots_per_bus);
    let wanted = usize::try_from(wanted).unwrap_or_default();
    let side = |order: Vec<u32>| -> Vec<u32> {
        let (kept, others): (Vec<u32>, Vec<u32>) = order.into_iter().partition(|slot| slots.contains(slot));
        kept.into_iter().chain(others).take(wanted).collect()
    };
    let mut nearest = side((0..half).rev().collect());
    nearest.extend(side((half..all).collect()));
    nearest.sort_unstable();
    nearest
}

/// Formats a sorted list as `0-5,18`.
pub(crate) fn ranges(slots: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for slot in slots {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *slot => *end = *slot,
            _ => runs.push((*slot, *slot)),
        }
    }
    let words: Vec<_> = runs
        .iter()
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") })
        .collect();
    words.join(",")
}
