//! `trunkline df`: the space of file systems of a server.

use crate::error::Error;
use crate::human::blocks;
use crate::human::human;
use crate::output;
use crate::remote::{LOCATION_HELP, Location, MountArgs};
use clap::{ArgAction, Args};
use fs::Space;
use serde_json::json;
use std::process::ExitCode;

/// Show the space of file systems of an NFS server.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    long_about = format!("Show the space of file systems of an NFS server.\n\n{LOCATION_HELP}"),
    after_help = EXAMPLES
)]
pub struct DfArgs {
    /// Anything in each file system: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    #[command(flatten)]
    mount: MountArgs,
    /// Show sizes in powers of 1024 with their unit, such as 1.5G, instead of blocks of 1 KiB.
    #[arg(short, long)]
    human_readable: bool,
    /// Show inodes instead of space.
    #[arg(short, long)]
    inodes: bool,
    /// A JSON object for each place, on a line of its own, with bytes and inodes.
    #[arg(long, conflicts_with_all = ["human_readable", "inodes"])]
    json: bool,
    /// Print help (-h is --human-readable).
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline df -h nas:/data\n  \
    trunkline df -i nas:/data nfs://10.0.0.1/home\n  \
    trunkline df --json nas:/data | jq .available_bytes";

/// Shows each place.
pub fn run(args: &DfArgs) -> Result<ExitCode, Error> {
    let mut code = ExitCode::SUCCESS;
    let unit = if args.human_readable { "Size" } else { "1K-blocks" };
    let head = if args.inodes {
        ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%", "Place"]
    } else if args.human_readable {
        ["Filesystem", unit, "Used", "Avail", "Use%", "Place"]
    } else {
        ["Filesystem", unit, "Used", "Available", "Use%", "Place"]
    };
    let mut rows = vec![head.map(str::to_owned)];
    for target in &args.places {
        match query(args, target) {
            Ok((location, space)) if args.json => output::print(&json_line(&location, &space))?,
            Ok((location, space)) => rows.push(row(args, &location, &space)),
            Err(error) => {
                error.report_to_user();
                code = ExitCode::FAILURE;
            }
        }
    }
    if rows.len() > 1 {
        output::print(&lay_out(&rows))?;
    }
    Ok(code)
}

fn query(args: &DfArgs, target: &str) -> Result<(Location, Space), Error> {
    let location = Location::open(target, &args.mount.joined())?;
    let cannot = location.cannot("examine");
    let (handle, _) = location.mount.resolve(&location.path).map_err(&cannot)?;
    let space = location.mount.space_at(handle).map_err(&cannot)?;
    Ok((location, space))
}

/// Of what users may fill, how much is used, in percent and rounded up as df(1) does.
fn percent(used: u64, available: u64) -> String {
    let (used, available) = (u128::from(used), u128::from(available));
    match used + available {
        0 => "-".to_owned(),
        all => format!("{}%", (used * 100).div_ceil(all)),
    }
}

fn row(args: &DfArgs, location: &Location, space: &Space) -> [String; 6] {
    let count = |number: u64| if args.human_readable { human(number) } else { number.to_string() };
    let size = |bytes| blocks(bytes, args.human_readable);
    // A server that lies may have more free than there is.
    let used = |total: u64, free| total.saturating_sub(free);
    let [all, used, available, share] = if args.inodes {
        let used = used(space.total_files, space.free_files);
        let free = space.available_files;
        [count(space.total_files), count(used), count(free), percent(used, free)]
    } else {
        let used = used(space.total_bytes, space.free_bytes);
        let free = space.available_bytes;
        [size(space.total_bytes), size(used), size(free), percent(used, free)]
    };
    [location.mount.name(), all, used, available, share, location.name.clone()]
}

/// The first and the last column to the left, numbers to the right.
fn lay_out(rows: &[[String; 6]]) -> String {
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for [system, all, used, available, share, location] in rows {
        let [w0, w1, w2, w3, w4, _] = widths;
        text.push_str(&format!(
            "{system:<w0$} {all:>w1$} {used:>w2$} {available:>w3$} {share:>w4$} {location}\n"
        ));
    }
    text
}

fn json_line(location: &Location, space: &Space) -> String {
    let value = json!({
        "place": location.name,
        "export": location.mount.name(),
        "total_bytes": space.total_bytes,
        "used_bytes": space.total_bytes.saturating_sub(space.free_bytes),
        "free_bytes": space.free_bytes,
        "available_bytes": space.available_bytes,
        "total_files": space.total_files,
        "used_files": space.total_files.saturating_sub(space.free_files),
        "free_files": space.free_files,
        "available_files": space.available_files,
    });
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_nothing_has_none() {
        assert_eq!(percent(1, 999), "1%");
        assert_eq!(percent(50, 50), "50%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(u64::MAX, u64::MAX), "50%");
    }
}
