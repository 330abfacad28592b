//! A layout as text: the slots as seen from the front, then groups and volumes.

use super::table::{Table, wrap};
use crate::ef600::ef600;
use crate::layout::Layout;
use std::fmt::Write;

/// A layout.
#[must_use]
pub fn layout(layout: &Layout, columns: usize) -> String {
    let mut text = front(layout);
    let mut table = Table::new(&["<group", "<drives", "bus 0-11", "bus 12-23", "<slots"]);
    for group in &layout.groups {
        table.row(vec![
            group.name.clone(),
            format!("{} in {}", group.slots.len(), group.scheme),
            group.drives_by_bus[0].to_string(),
            group.drives_by_bus[1].to_string(),
            crate::layout::ranges(&group.slots),
        ]);
    }
    text.push_str(&table.render());
    text.push('\n');
    let mut table = Table::new(&["<volume", "<controller", "SMcli capacity", "TB"]);
    for volume in layout.groups.iter().flat_map(|group| &group.volumes) {
        table.row(vec![
            volume.name.clone(),
            volume.owner.to_string(),
            volume.gib.map_or_else(|| "-".to_owned(), |gib| format!("{gib}GB (GiB)")),
            volume.tb.map_or_else(|| "-".to_owned(), |tb| format!("{tb:.2}")),
        ]);
    }
    text.push_str(&table.render());
    text.push('\n');
    if let (Some(segment), Some(stripe)) = (layout.stripe.segment_kib, layout.stripe.stripe_kib) {
        let _ = writeln!(text, "segment {segment} KiB, stripe {stripe} KiB");
    }
    for warning in &layout.warnings {
        text.push_str(&wrap("warning: ", warning, columns));
    }
    for note in &layout.notes {
        text.push_str(&wrap("note: ", note, columns));
    }
    text.push_str(&wrap("source: ", &layout.source, columns));
    text
}

/// The 24 slots, with a digit or letter for each group.
fn front(layout: &Layout) -> String {
    let array = ef600();
    let letter = |slot: u32| {
        let place = layout.groups.iter().position(|group| group.slots.contains(&slot));
        place.and_then(|place| char::from_digit(u32::try_from(place).ok()? + 1, 36)).unwrap_or('.')
    };
    let (mut numbers, mut letters) = (String::from("  slot "), String::from("  group"));
    for slot in 0..array.slots {
        if slot == array.slots_per_bus {
            numbers.push_str(" |");
            letters.push_str(" |");
        }
        let _ = write!(numbers, " {slot:>2}");
        let _ = write!(letters, " {:>2}", letter(slot));
    }
    format!("{numbers}\n{letters}\n\n")
}
