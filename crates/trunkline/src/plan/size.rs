//! `trunkline plan size`: the capacity of drives, and the arrays that meet a need.

use crate::error::Error;
use crate::output;
use ::plan::size::{self, Need, Request};
use ::plan::units::{Bytes, parse_capacity};
use ::plan::{Scheme, show};
use clap::{ArgGroup, Args};

/// The number of candidates shown without `--all`.
const SHOWN: usize = 9;

/// Compute the capacity of an array, or how many arrays a need takes.
///
/// With --drives: the capacity that remains of this many drives after configuration data, spares,
/// protection and optimization capacity. With --need-...: how many arrays of which layout meet the
/// need, best first, and why the others rank lower.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("need").multiple(true)))]
pub struct SizeArgs {
    /// Capacity of a drive in decimal TB: 1.92, 3.84, 7.68 or 15.36 in an EF600.
    #[arg(long, value_name = "TB", allow_negative_numbers = true, value_parser = tb)]
    drive_tb: Option<f64>,
    /// Capacity of a drive with its unit (7.68TB, 6.98TiB).
    #[arg(long, value_name = "SIZE", conflicts_with = "drive_tb", allow_hyphen_values = true)]
    drive: Option<String>,
    /// Number of drives that hold data: 12, 14, ... 24 in a pool (11 with a warning), 10 or 20 in
    /// RAID 6, pairs in RAID 1.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    drives: Option<i64>,
    /// Protection: ddp, raid6, raid1, or K+M (such as 8+2) for any other code with distributed
    /// spares.
    #[arg(long, value_name = "SCHEME")]
    scheme: Option<String>,
    /// Spare capacity of a pool, in drives [default: 2; 1 in a pool of 11; 0 with K+M].
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "need")]
    spares: Option<f64>,
    /// Number of hot spares beside RAID 6 or RAID 1.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        conflicts_with = "need"
    )]
    hot_spares: i64,
    /// GB of each drive that the array reserves [default: 5.5].
    #[arg(long, value_name = "GB", allow_negative_numbers = true, conflicts_with = "need")]
    config_gb: Option<f64>,
    /// Share reserved as optimization capacity [default: 28, 14, 10, 4 for 1.92, 3.84, 7.68, 15.36
    /// TB].
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    optimization_percent: Option<f64>,
    /// Share of the usable capacity that the file system's metadata take.
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    metadata_percent: Option<f64>,
    /// Required capacity, in TiB.
    #[arg(long, value_name = "TIB", allow_negative_numbers = true, group = "need", value_parser = tib)]
    need_tib: Option<f64>,
    /// Required read throughput, in GB/s.
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true, group = "need")]
    need_read_gbytes: Option<f64>,
    /// Required write throughput, in GB/s.
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true, group = "need")]
    need_write_gbytes: Option<f64>,
    /// Read throughput of one drive [default: 3.5, a PM1725b]; only with --need-....
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true, requires = "need")]
    drive_read_gbytes: Option<f64>,
    /// Write throughput of one drive [default: 2.0, a PM1725b]; only with --need-....
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true, requires = "need")]
    drive_write_gbytes: Option<f64>,
    /// Show every layout that meets the need.
    #[arg(long, requires = "need")]
    all: bool,
    /// Print JSON, not rounded.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline plan size --drive-tb 7.68 --drives 24 --scheme ddp\n  \
    trunkline plan size --drive-tb 15.36 --drives 20 --scheme raid6 --metadata-percent 5 --json\n  \
    trunkline plan size --drive 18TB --drives 60 --scheme 8+3 --spares 2 --optimization-percent 0\n  \
    trunkline plan size --need-tib 500 --need-read-gbytes 80 --need-write-gbytes 30\n\
    docs/MODEL.md lists the sources of the constants, and where the model is wrong.";

/// Parses a capacity in TB; the unit TB may follow, another may not.
pub(super) fn tb(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("TB").unwrap_or(text).trim();
    number
        .parse()
        .map_err(|_| "a number of decimal TB, as in 7.68; --drive 6.98TiB takes other units".to_owned())
}

/// Parses a capacity in TiB; the unit TiB may follow, another may not.
fn tib(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("TiB").unwrap_or(text).trim();
    number.parse().map_err(|_| "a number of binary TiB, as in 500; a PiB is 1024 of them".to_owned())
}

/// Computes the size of an array, or the number of arrays.
pub fn run(args: &SizeArgs) -> Result<(), Error> {
    let has_need = args.need_tib.or(args.need_read_gbytes).or(args.need_write_gbytes).is_some();
    let drive = match (&args.drive, args.drive_tb) {
        (Some(text), _) => Some(parse_capacity("--drive", text)?),
        (None, Some(tb)) => Some(size::drive("--drive-tb", tb)?),
        (None, None) => None,
    };
    let scheme: Option<Scheme> = args.scheme.as_deref().map(str::parse).transpose()?;
    if has_need { need(args, drive, scheme) } else { capacity(args, drive, scheme) }
}

fn capacity(args: &SizeArgs, drive: Option<Bytes>, scheme: Option<Scheme>) -> Result<(), Error> {
    let (Some(drive), Some(drives), Some(scheme)) = (drive, args.drives, scheme) else {
        let absent: Vec<_> = [
            ("--drive-tb", drive.is_none()),
            ("--drives", args.drives.is_none()),
            ("--scheme", scheme.is_none()),
        ]
        .into_iter()
        .filter_map(|(option, is_absent)| is_absent.then_some(option))
        .collect();
        return Err(Error::Usage {
            sentence: "cannot size an array from that".to_owned(),
            cause: format!(
                "without a need, a capacity takes --drive-tb, --drives and --scheme; not given: {}",
                absent.join(", ")
            ),
            advice: "trunkline plan size --drive-tb 7.68 --drives 24 --scheme ddp".to_owned(),
        });
    };
    let request = Request {
        spares: args.spares,
        hot_spares: args.hot_spares,
        config_gb: args.config_gb,
        optimization_percent: args.optimization_percent,
        metadata_percent: args.metadata_percent,
        ..Request::new(scheme, drive, drives)
    };
    let sizing = size::size(&request)?;
    let text = if args.json { show::json(&sizing) } else { show::sizing(&sizing, output::stdout_columns()) };
    output::print(&text)
}

fn need(args: &SizeArgs, drive: Option<Bytes>, scheme: Option<Scheme>) -> Result<(), Error> {
    let answer = size::arrays(&Need {
        tib: args.need_tib,
        read_gbytes_per_s: args.need_read_gbytes,
        write_gbytes_per_s: args.need_write_gbytes,
        scheme,
        drive_tb: drive.map(Bytes::tb),
        drives: args.drives,
        drive_read_gbytes_per_s: args.drive_read_gbytes,
        drive_write_gbytes_per_s: args.drive_write_gbytes,
        metadata_percent: args.metadata_percent,
        optimization_percent: args.optimization_percent,
    })?;
    let shown = if args.all { usize::MAX } else { SHOWN };
    let text = if args.json {
        show::json(&answer)
    } else {
        show::candidates(&answer, shown, output::stdout_columns())
    };
    output::print(&text)
}
