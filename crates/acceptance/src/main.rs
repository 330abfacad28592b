//! The program of the acceptance benchmark, which `cargo xtask bench` runs. docs/MEASURING.md
//! explains its table.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use acceptance::{Options, Peer, Scale};
use clap::Parser;

/// Measure our server and client beside the limit and other servers, and write a record.
#[derive(Debug, Parser)]
struct Args {
    /// The path of the program `trunkline`.
    #[arg(long)]
    program: PathBuf,
    /// Measure only the table, within three minutes.
    #[arg(long)]
    quick: bool,
    /// Another server and the shell command that starts it.
    #[arg(long, value_name = "NAME=COMMAND")]
    peer: Vec<Peer>,
    /// The path of the load through libnfs.
    #[arg(long)]
    libnfs: Option<PathBuf>,
    /// Measure only this row; may be given several times.
    #[arg(long)]
    row: Vec<String>,
    /// End after this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// The file for the record; the table is written beside it.
    #[arg(long, required_unless_present = "into")]
    record: Option<PathBuf>,
    /// Without --record, the directory for the record, in a file named after the time.
    #[arg(long)]
    into: Option<PathBuf>,
    /// The command line to store in the record.
    #[arg(long, default_value = "cargo xtask bench")]
    command: String,
    /// A note to store in the record.
    #[arg(long)]
    note: Vec<String>,
}

fn run(args: Args) -> Result<(), String> {
    let mut scale = if args.quick { Scale::quick() } else { Scale::full() };
    if let Some(minutes) = args.minutes {
        scale.budget = Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())?;
    }
    // The servers run in directories of their own, so the path must be absolute.
    let program = std::path::absolute(&args.program).map_err(|error| error.to_string())?;
    let options = Options {
        program,
        peers: args.peer,
        libnfs: args.libnfs,
        rows: args.row,
        scale,
        command: args.command,
        notes: args.note,
    };
    let shows = std::io::stderr().is_terminal();
    let measured = acceptance::run(&options, |step| {
        if shows {
            eprint!("\r\x1b[K{step}");
        }
    });
    if shows {
        eprint!("\r\x1b[K");
    }
    let measured = measured?;
    let minute = measured.made_at.get(..16).unwrap_or_default().replace(':', "");
    let named = || args.into.unwrap_or_default().join(format!("{minute}-figures.json"));
    let record = args.record.unwrap_or_else(named);
    let unwritten = |error: std::io::Error| format!("cannot write {}: {error}", record.display());
    if let Some(directory) = record.parent() {
        std::fs::create_dir_all(directory).map_err(unwritten)?;
    }
    let table = acceptance::render(&measured);
    std::fs::write(&record, measured.write()).map_err(unwritten)?;
    std::fs::write(record.with_extension("txt"), &table).map_err(unwritten)?;
    print!("{table}");
    println!("record {}", record.display());
    Ok(())
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
