//! Predefined topologies: those of the public measurements.

use super::topology::Topology;
use crate::error::{Result, refuse};

/// The name and text of each preset.
pub const PRESETS: [(&str, &str); 5] = [
    ("ef600-ddp24", include_str!("../../data/topologies/ef600-ddp24.toml")),
    ("ef600-raid6-20", include_str!("../../data/topologies/ef600-raid6-20.toml")),
    ("powerscale-f200-25gbe", include_str!("../../data/topologies/powerscale-f200-25gbe.toml")),
    ("powerscale-f210-100gbe", include_str!("../../data/topologies/powerscale-f210-100gbe.toml")),
    ("sun-7410-ddr", include_str!("../../data/topologies/sun-7410-ddr.toml")),
];

/// The topology of this name.
///
/// # Errors
/// An unknown name.
pub fn preset(name: &str) -> Result<Topology> {
    if let Some((_, text)) = PRESETS.iter().find(|(preset, _)| *preset == name) {
        return Topology::from_toml(text);
    }
    let names: Vec<_> = PRESETS.iter().map(|(preset, _)| *preset).collect();
    let alike = |preset: &str| preset.chars().zip(name.chars()).take_while(|(a, b)| a == b).count();
    // If several names are equally similar, the first is taken.
    let nearest = names.iter().rev().max_by_key(|preset| alike(preset)).copied().unwrap_or("ef600-ddp24");
    refuse(
        format!("cannot find the preset {name}"),
        format!("there are {}", names.join(", ")),
        "docs/MODEL.md, presets",
        format!("--preset {nearest}"),
    )
}
