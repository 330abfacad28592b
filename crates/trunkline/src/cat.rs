//! `trunkline cat`: writes files of a server to standard output, read over all paths at once.

use crate::error::Error;
use crate::output;
use crate::remote::{LOCATION_HELP, Location, MountArgs};
use clap::Args;
use fs::{FileKind, Status};
use std::process::ExitCode;

/// READs in flight: with a round trip of a millisecond they carry 32 GB/s.
const DEPTH: usize = 32;

/// Write files of an NFS server to standard output.
#[derive(Debug, Args)]
#[command(long_about = format!("Write files of an NFS server to standard output.\n\n{LOCATION_HELP}"), after_help = EXAMPLES)]
pub struct CatArgs {
    /// The files: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    #[command(flatten)]
    mount: MountArgs,
    /// Begin at this byte of each file, counted from 0.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// Write at most this many bytes of each file.
    #[arg(long, value_name = "BYTES")]
    length: Option<u64>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline cat nas:/data/notes.txt\n  \
    trunkline cat 'nfs://10.0.0.1/data/disk.img?nconnect=8' | sha256sum\n  \
    trunkline cat --offset 1048576 --length 4096 nas:/data/disk.img | xxd";

/// Writes each file to standard output.
pub fn run(args: &CatArgs) -> Result<ExitCode, Error> {
    for location in &args.places {
        let location = Location::open(location, &args.mount.joined())?;
        let cannot = location.cannot("read");
        let (file, attributes) = location.mount.resolve(&location.path).map_err(&cannot)?;
        match attributes.kind {
            FileKind::Regular => {}
            FileKind::Directory => {
                return Err(cannot(client::Error::Status { operation: "OPEN", status: Status::IsDirectory }));
            }
            other => {
                let what = crate::attributes::type_name(other);
                return Err(cannot(client::Error::Misuse(format!("it is a {what}, not a file"))));
            }
        }
        let end = args.length.map_or(u64::MAX, |length| args.offset.saturating_add(length));
        let shape = (usize::MAX, DEPTH);
        let mut blocks = location.mount.blocks(file, args.offset..end, attributes.size, shape);
        while let Some(block) = blocks.next_block().map_err(&cannot)? {
            output::print_bytes(block.data())?;
            blocks.give_back(block.buffer);
        }
    }
    Ok(ExitCode::SUCCESS)
}
