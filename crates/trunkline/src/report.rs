//! `trunkline report`: shows records as a table, HTML, Markdown or comma-separated values.

use crate::error::Error;
use crate::output;
use clap::Args;
use record::Record;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The maximum size of a record; a thorough one has about 1 MiB. This keeps a wrong file out of
/// memory.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// Show records as a table, and write them as an HTML page, Markdown or CSV.
///
/// The HTML page and the Markdown compare several records side by side. JSON results of fio are
/// shown as records.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// Records written by `trunkline bench`, or JSON results of fio.
    #[arg(value_name = "RECORD", required_unless_present = "explain")]
    records: Vec<PathBuf>,
    /// Write the HTML page to this file; - is standard output [default: beside the first record if
    /// that is a file, unless --markdown or --csv is given].
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Markdown to this file; - is standard output.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write comma-separated values to this file, a line for each cell; - is standard output.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Overwrite files that exist.
    #[arg(long)]
    force: bool,
    /// Explain every column and term.
    #[arg(long)]
    explain: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline report trunkline-results/20261121T040550Z.json\n  \
    trunkline report --markdown - before.json after.json\n  \
    trunkline report --csv results.csv trunkline-results/*.json\n  \
    trunkline report --explain";

impl ReportArgs {
    /// The file of the page, if there is one.
    fn page(&self) -> Option<PathBuf> {
        // There is no place for a page beside a pipe.
        let is_file = |record: &&PathBuf| output::stream(record).is_none();
        let beside = || self.records.first().filter(is_file).map(|first| page_beside(first));
        let other = self.markdown.is_some() || self.csv.is_some();
        self.html.clone().or_else(|| if other { None } else { beside() })
    }
}

/// The page's file name beside a record: the record's with another extension, but never the
/// record's own name.
pub fn page_beside(record: &Path) -> PathBuf {
    let page = record.with_extension("html");
    if page == record { record.with_extension("report.html") } else { page }
}

/// Reads all records before anything is shown or written.
pub fn run(args: &ReportArgs) -> Result<ExitCode, Error> {
    let records = args.records.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let names = names(&args.records);
    type Form = fn(&[Record], &[String]) -> String;
    let forms: [(Option<PathBuf>, Form); 3] = [
        (args.page(), ::report::html),
        (args.markdown.clone(), ::report::markdown),
        (args.csv.clone(), |records, _| ::report::csv(records)),
    ];
    let wanted: Vec<(PathBuf, Form)> =
        forms.into_iter().filter_map(|(file, form)| Some((file?, form))).collect();
    for (file, _) in &wanted {
        spare_records(file, &args.records)?;
        let is_named = [&args.html, &args.markdown, &args.csv].contains(&&Some(file.clone()));
        if is_named { output::spare(file, args.force)? } else { output::spare_page(file, args.force)? }
    }
    // A result on standard output is the only output there, so that it can be piped.
    if !records.is_empty() && !wanted.iter().any(|(file, _)| output::is_stdout(file)) {
        records.iter().try_for_each(|record| output::print(&format!("{}\n", table(record))))?;
    }
    if !records.is_empty() {
        wanted.iter().try_for_each(|(file, form)| output::write(file, &form(&records, &names)))?;
    }
    if args.explain {
        output::print(&::report::explain())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of records in a comparison: their file names, or their paths where two files of
/// different directories have the same name.
fn names(records: &[PathBuf]) -> Vec<String> {
    let short = |path: &PathBuf| {
        path.file_name()
            .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
    };
    let is_alone = |path: &PathBuf| records.iter().all(|other| other == path || short(other) != short(path));
    let name = |path| if is_alone(path) { short(path) } else { path.display().to_string() };
    records.iter().map(name).collect()
}

/// The record's table, with the width and colours of standard output.
pub fn table(record: &Record) -> String {
    let columns = output::stdout_columns();
    if output::stdout_has_colour() {
        ::report::terminal::render_ansi(record, columns)
    } else {
        ::report::terminal::render(record, columns)
    }
}

fn read(path: &Path) -> Result<Record, Error> {
    let file = || path.display().to_string();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|opened| opened.take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|cause| Error::Read { file: file(), cause })?;
    if bytes.len() as u64 > RECORD_BYTES_MAX {
        return Err(Error::NoText { file: file(), cause: "no record is larger than 256 MiB".to_owned() });
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::NoText { file: file(), cause: "it is not text".to_owned() })?;
    if let Some(record) = of_fio(path, &text)? {
        return Ok(record);
    }
    Record::read(&text).map_err(|cause| Error::Record { file: file(), cause })
}

/// The record of fio's JSON results; `None` if the text is not from fio.
fn of_fio(path: &Path, text: &str) -> Result<Option<Record>, Error> {
    if !fio::results::is_of_fio(text) {
        return Ok(None);
    }
    let file = path.display().to_string();
    let imported =
        fio::results::read(text).map_err(|cause| Error::FioResults { file: file.clone(), cause })?;
    for note in imported.notes {
        output::print_to_stderr(&format!("note: {file}: {note}\n"));
    }
    Ok(Some(imported.record))
}

/// Refuses to overwrite one of the records that are read.
fn spare_records(file: &Path, records: &[PathBuf]) -> Result<(), Error> {
    // Compares inode numbers, because a file may have several names.
    let number = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let same = |record: &&PathBuf| number(record).is_some_and(|record| Some(record) == number(file));
    match records.iter().find(same) {
        None => Ok(()),
        Some(record) => Err(Error::Usage {
            sentence: format!("cannot write the report to {}", file.display()),
            cause: format!("that is the record {}", record.display()),
            advice: "--html FILE with another name".to_owned(),
        }),
    }
}
