//! `trunkline plan layout`: slots, groups, volumes and segments of an EF600, and the commands that
//! make them.

use super::size::tb;
use crate::error::Error;
use crate::output;
use ::plan::layout::{self, Request};
use ::plan::show;
use ::plan::size;
use ::plan::units::parse_capacity;
use clap::Args;

/// Where the drives and volumes of an EF600 go, which segments, and the SMcli commands for it.
///
/// Slots are even over the two PCIe buses, volumes come in pairs over controllers A and B, and
/// segments fit what hosts send at once, so that writes of full stripes are accelerated where they
/// can be.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LayoutArgs {
    /// ddp (one pool) or raid6 (groups of 8+2).
    #[arg(long, value_name = "SCHEME")]
    scheme: String,
    /// Drives: a pool of 12, 14, ... 24, or 10 or 20 in RAID 6.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    drives: i64,
    /// Fill slots from the centre outwards (centre) or from both ends inwards (ends).
    #[arg(long, value_name = "ORDER", default_value = "centre")]
    order: String,
    /// Use these slots (0-5,18-23) instead.
    #[arg(long, value_name = "SLOTS")]
    slots: Option<String>,
    /// Mirrored pairs (RAID 1) in slots that RAID 6 leaves, for metadata.
    #[arg(long, value_name = "N", default_value_t = 0)]
    mirrors: u32,
    /// Volumes in all, in pairs on each group [default: 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    volumes: Option<i64>,
    /// Capacity of each volume with its unit (4096GiB, 5TB) [default: all that the drives hold].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    volume: Option<String>,
    /// Capacity of a drive in decimal TB, to see what volumes fit.
    #[arg(long, value_name = "TB", allow_negative_numbers = true, value_parser = tb)]
    drive_tb: Option<f64>,
    /// Share set aside for the drives' own upkeep [default: as recommended for that drive].
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, requires = "drive_tb")]
    optimization_percent: Option<f64>,
    /// The hosts' largest request in KiB: max_sectors_kb [default: 1024].
    #[arg(long, value_name = "KIB")]
    request_kib: Option<u32>,
    /// KiB of a stripe on one drive [default: the largest that the request fills, 256 at most].
    #[arg(long, value_name = "KIB")]
    segment_kib: Option<u32>,
    /// What the names of groups and volumes begin with.
    #[arg(long, value_name = "NAME", default_value = "ef600")]
    name: String,
    /// Print the SMcli command file instead.
    #[arg(long, conflicts_with = "json")]
    script: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline plan layout --scheme ddp --drives 24 --drive-tb 7.68\n  \
    trunkline plan layout --scheme raid6 --drives 20 --mirrors 2 --request-kib 1024\n  \
    trunkline plan layout --scheme raid6 --drives 20 --volume 4992GiB --name de0704 --script > raid6.smcli";

/// Lays out an array.
pub fn run(args: &LayoutArgs) -> Result<(), Error> {
    let request = Request {
        order: args.order.parse()?,
        slots: args.slots.clone(),
        mirrors: args.mirrors,
        volumes: args.volumes,
        volume: args.volume.as_deref().map(|text| parse_capacity("--volume", text)).transpose()?,
        drive: args.drive_tb.map(|tb| size::drive("--drive-tb", tb)).transpose()?,
        optimization_percent: args.optimization_percent,
        request_kib: args.request_kib,
        segment_kib: args.segment_kib,
        name: args.name.clone(),
        ..Request::new(args.scheme.parse()?, args.drives)
    };
    let layout = layout::layout(&request)?;
    let text = if args.script {
        // What is wrong with a layout is worth knowing before its commands are run.
        layout.warnings.iter().for_each(|warning| output::tell(&format!("warning: {warning}\n")));
        layout.script()?
    } else if args.json {
        show::json(&layout)
    } else {
        show::layout(&layout, output::stdout_columns())
    };
    output::print(&text)
}
