//! The acceptance benchmark, as `cargo xtask bench` runs it: docs/MEASURING.md says how to read its
//! table.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use acceptance::{Options, Peer, Scale};
use clap::Parser;

/// Measures our server and client beside the limit of the wire and beside others, and writes a
/// record.
#[derive(Debug, Parser)]
struct Args {
    /// The program `trunkline`.
    #[arg(long)]
    program: PathBuf,
    /// The table alone, within three minutes.
    #[arg(long)]
    quick: bool,
    /// Another server.
    #[arg(long, value_name = "NAME=COMMAND")]
    peer: Vec<Peer>,
    /// The load through libnfs.
    #[arg(long)]
    libnfs: Option<PathBuf>,
    /// Only this row.
    #[arg(long)]
    row: Vec<String>,
    /// End after so many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Where the record goes; the table goes beside it.
    #[arg(long, required_unless_present = "into")]
    record: Option<PathBuf>,
    /// The directory where it goes otherwise, in a file named for its time.
    #[arg(long)]
    into: Option<PathBuf>,
    /// What was typed.
    #[arg(long, default_value = "cargo xtask bench")]
    command: String,
    /// Something to be noted in the record.
    #[arg(long)]
    note: Vec<String>,
}

fn run(args: Args) -> Result<(), String> {
    let mut scale = if args.quick { Scale::quick() } else { Scale::full() };
    if let Some(minutes) = args.minutes {
        scale.budget = Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())?;
    }
    // Servers are started in directories of their own.
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
