//! `trunkline plan layout`: slots, groups, volumes and segments of an EF600, and the commands that
//! create them.

use super::size::tb;
use crate::error::Error;
use crate::output;
use ::plan::layout::{self, Request};
use ::plan::show;
use ::plan::size;
use ::plan::units::parse_capacity;
use clap::Args;

/// Lay out the drives, volumes and segments of an EF600, and print the SMcli commands for it.
///
/// Slots are distributed evenly over the two PCIe buses, volumes in pairs over controllers A and B.
/// Segments fit the hosts' largest request, so that full-stripe writes are accelerated where
/// possible.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LayoutArgs {
    /// Protection: ddp (one pool) or raid6 (groups of 8+2).
    #[arg(long, value_name = "SCHEME")]
    scheme: String,
    /// Number of drives: 12, 14, ... 24 in a pool, or 10 or 20 in RAID 6.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    drives: i64,
    /// Order of slots: from the centre outwards (centre) or from both ends inwards (ends).
    #[arg(long, value_name = "ORDER", default_value = "centre")]
    order: String,
    /// Use these slots instead (0-5,18-23).
    #[arg(long, value_name = "SLOTS")]
    slots: Option<String>,
    /// Number of mirrored pairs (RAID 1) for metadata, in slots that RAID 6 leaves free.
    #[arg(long, value_name = "N", default_value_t = 0)]
    mirrors: u32,
    /// Total number of volumes, in pairs on each group [default: 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    volumes: Option<i64>,
    /// Capacity of each volume with its unit (4096GiB, 5TB) [default: all that the drives hold].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    volume: Option<String>,
    /// Capacity of a drive in decimal TB, to compute which volumes fit.
    #[arg(long, value_name = "TB", allow_negative_numbers = true, value_parser = tb)]
    drive_tb: Option<f64>,
    /// Share reserved as optimization capacity [default: as recommended for the drive].
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, requires = "drive_tb")]
    optimization_percent: Option<f64>,
    /// Largest request of the hosts in KiB, max_sectors_kb [default: 1024].
    #[arg(long, value_name = "KIB")]
    request_kib: Option<u32>,
    /// Segment size in KiB [default: the largest that a request fills, at most 256].
    #[arg(long, value_name = "KIB")]
    segment_kib: Option<u32>,
    /// Prefix of the names of groups and volumes.
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
        // The warnings should be known before the commands are run.
        layout.warnings.iter().for_each(|warning| output::print_to_stderr(&format!("warning: {warning}\n")));
        layout.script()?
    } else if args.json {
        show::json(&layout)
    } else {
        show::layout(&layout, output::stdout_columns())
    };
    output::print(&text)
}
