//! `trunkline report`: shows records as a table, HTML, Markdown or comma-separated values.

use crate::error::Error;
use crate::output;
use ::report::{Additions, Basis, Checked, Condition, Published, RecordChecks};
use clap::Args;
use record::Record;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The maximum size of a record; a thorough one has about 1 MiB. This keeps a wrong file out of
/// memory.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// The name that lists all published results.
const LIST: &str = "list";

/// Show records as a table, and write them as an HTML page, Markdown or CSV.
///
/// The table, the HTML page and the Markdown compare several records with the first. JSON results
/// of fio are shown as records. With --fail-if or --junit the command fails (status 1) if a
/// condition holds, or if a record itself failed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// Records written by `trunkline bench`, or JSON results of fio.
    #[arg(value_name = "RECORD", required_unless_present_any = ["explain", "published"])]
    records: Vec<PathBuf>,
    /// Write the HTML page to this file; - is standard output [default: beside the first record if
    /// that is a file, unless --markdown, --csv, --record or --junit is given].
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Markdown to this file; - is standard output.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write comma-separated values to this file, a line for each cell; - is standard output.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the one RECORD to this file as a record of this version: of JSON results of fio, what
    /// was imported; - is standard output.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Fail if this holds: `tcp-mp.read < 0.9 * baseline`, `tcp.mix-1m.write.p99 > 20 ms`. A value
    /// is ROUTE, then WORKLOAD, then raw or paced, then read or write, then gbytes_per_s, iops,
    /// p50 or p99, with dots between them; only ROUTE and the direction are needed. baseline is
    /// the same value of the baseline record. May be given several times.
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<String>,
    /// The record with which the others are compared [default: the first of several].
    #[arg(long, value_name = "RECORD")]
    baseline: Option<PathBuf>,
    /// Compare medians alone in conditions, however few the repeats are. Without it, a condition
    /// holds only if the whole 95 % interval fulfils it.
    #[arg(long, requires = "fail_if")]
    medians: bool,
    /// Write the outcome of the conditions to this file as JUnit XML; - is standard output.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Show results that others have published beside the records, with their machine and what does
    /// not add up; `list` prints the names. May be given several times.
    #[arg(long, value_name = "NAME")]
    published: Vec<String>,
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
    trunkline report --record fio-record.json fio-results.json\n  \
    trunkline report --fail-if 'tcp-mp.read < 0.9 * baseline' before.json after.json\n  \
    trunkline report --explain";

impl ReportArgs {
    /// The file of the page, if there is one.
    fn page(&self) -> Option<PathBuf> {
        // There is no place for a page beside a pipe.
        let is_file = |record: &&PathBuf| output::stream(record).is_none();
        let beside = || self.records.first().filter(is_file).map(|first| page_beside(first));
        let other = [&self.markdown, &self.csv, &self.record, &self.junit].into_iter().any(Option::is_some);
        self.html.clone().or_else(|| if other { None } else { beside() })
    }
}

/// The page's file name beside a record: the record's with another extension, but never the
/// record's own name.
pub fn page_beside(record: &Path) -> PathBuf {
    let page = record.with_extension("html");
    if page == record { record.with_extension("report.html") } else { page }
}

/// The records, their names, and the outcome of the conditions.
struct Results {
    records: Vec<Record>,
    names: Vec<String>,
    /// Absent if no condition was given, and no document of them is wanted.
    checks: Option<Vec<RecordChecks>>,
    published: Vec<Published>,
}

impl Results {
    fn additions(&self) -> Additions<'_> {
        Additions { checks: self.checks.as_deref().unwrap_or_default(), published: &self.published }
    }
}

/// Writes one form of the results.
type Form = fn(&Results) -> String;

/// Reads all records, and judges all conditions, before anything is shown or written. The status
/// depends on them alone, whether or not somebody reads the output.
pub fn run(args: &ReportArgs) -> Result<ExitCode, Error> {
    if args.published.iter().any(|name| name == LIST) {
        output::print(&::report::published_list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (files, wanted) = (record_files(args), wanted(args));
    if let (Some(file), 2..) = (&args.record, files.len()) {
        return Err(Error::Usage {
            sentence: format!("cannot write one record to {}", file.display()),
            cause: format!("there are {} records", files.len()),
            advice: "--record FILE with one RECORD".to_owned(),
        });
    }
    check_files(args, &wanted, &files)?;
    let conditions = args.fail_if.iter().map(|text| condition(text)).collect::<Result<Vec<_>, _>>()?;
    let published = args.published.iter().map(|name| published(name)).collect::<Result<Vec<_>, _>>()?;
    if args.records.is_empty() && !args.explain {
        return Err(no_record());
    }
    let records = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    let names = names(&files);
    let checks = match conditions.is_empty() && args.junit.is_none() {
        true => None,
        false => Some(judged(args, &conditions, &records, &names)?),
    };
    let results = Results { records, names, checks, published };
    let failed = results.checks.iter().flatten().any(RecordChecks::has_failed);
    match write_and_show(args, &wanted, &results) {
        // A reader that closed standard output early has still asked for the status.
        Err(Error::Print(cause)) if failed && cause.kind() == ErrorKind::BrokenPipe => {}
        other => other?,
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Writes the files first, so that they are complete even if nobody reads standard output.
fn write_and_show(args: &ReportArgs, wanted: &[(PathBuf, Form)], results: &Results) -> Result<(), Error> {
    let (to_stdout, to_files): (Vec<_>, Vec<_>) =
        wanted.iter().partition(|(file, _)| output::is_stdout(file));
    let write = |(file, form): &(PathBuf, Form)| output::write(file, &form(results));
    let has_records = !results.records.is_empty();
    to_files.into_iter().filter(|_| has_records).try_for_each(write)?;
    show(results, !to_stdout.is_empty())?;
    to_stdout.into_iter().filter(|_| has_records).try_for_each(write)?;
    if args.explain { output::print(&::report::explain()) } else { Ok(()) }
}

/// Checks the files to write before anything is read: no record, none of them twice, and none that
/// exists without --force. With it, an earlier JUnit document is removed, so that none remains if
/// this report ends with an error.
fn check_files(args: &ReportArgs, wanted: &[(PathBuf, Form)], records: &[PathBuf]) -> Result<(), Error> {
    for (index, (file, _)) in wanted.iter().enumerate() {
        spare_records(file, records)?;
        if wanted.iter().take(index).any(|(other, _)| is_same_output(file, other)) {
            return Err(Error::Usage {
                sentence: format!("cannot write two results to {}", file.display()),
                cause: "one would overwrite the other".to_owned(),
                advice: "a FILE of its own for each of --html, --markdown, --csv, --record and --junit"
                    .to_owned(),
            });
        }
        let named = [&args.html, &args.markdown, &args.csv, &args.record, &args.junit];
        let is_named = named.contains(&&Some(file.clone()));
        if is_named { output::spare(file, args.force)? } else { output::spare_page(file, args.force)? }
    }
    let earlier = args.junit.as_ref().filter(|file| args.force && output::stream(file).is_none());
    match earlier.map(std::fs::remove_file) {
        Some(Err(cause)) if cause.kind() != ErrorKind::NotFound => {
            let file = args.junit.clone().unwrap_or_default().display().to_string();
            Err(Error::Write { file, cause })
        }
        _ => Ok(()),
    }
}

/// Whether two results would be written to the same file or stream.
fn is_same_output(one: &Path, other: &Path) -> bool {
    let place = |file: &Path| {
        let directory = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((directory.canonicalize().ok()?, file.file_name()?.to_owned()))
    };
    let is_discarded = |file: &Path| file == Path::new("/dev/null");
    let both_stdout = output::is_stdout(one) && output::is_stdout(other);
    let same_place = one == other || place(one).is_some_and(|it| Some(it) == place(other));
    !is_discarded(one) && (both_stdout || same_place || is_same_file(one, other))
}

/// The forms to write, with their files.
fn wanted(args: &ReportArgs) -> Vec<(PathBuf, Form)> {
    let forms: [(Option<PathBuf>, Form); 5] = [
        (args.junit.clone(), |it| ::report::junit(it.checks.as_deref().unwrap_or_default())),
        (args.page(), |it| ::report::html_with(&it.records, &it.names, &it.additions())),
        (args.markdown.clone(), |it| ::report::markdown_with(&it.records, &it.names, &it.additions())),
        (args.csv.clone(), |it| ::report::csv(&it.records)),
        (args.record.clone(), |it| it.records.first().map(Record::write).unwrap_or_default()),
    ];
    forms.into_iter().filter_map(|(file, form)| Some((file?, form))).collect()
}

/// Prints the tables and the outcome of the conditions. A result on standard output is the only
/// output there, so that it can be piped; the outcome goes to standard error then.
fn show(results: &Results, stdout_is_taken: bool) -> Result<(), Error> {
    let columns = output::stdout_columns();
    if !stdout_is_taken {
        results.records.iter().try_for_each(|record| output::print(&format!("{}\n", table(record))))?;
        let (records, names) = (&results.records, &results.names);
        let colour = output::stdout_has_colour();
        output::print(&::report::terminal::side_by_side(records, names, columns, colour))?;
        for (record, result) in records.iter().flat_map(|it| results.published.iter().map(move |p| (it, p))) {
            output::print(&::report::terminal::published(result, record, columns, colour))?;
        }
    }
    let Some(checks) = &results.checks else { return Ok(()) };
    if stdout_is_taken {
        let text = ::report::terminal::checks(checks, columns, output::stderr_has_colour());
        output::print_to_stderr(&text);
        return Ok(());
    }
    output::print(&::report::terminal::checks(checks, columns, output::stdout_has_colour()))
}

/// All records to show: the baseline first, then the others.
fn record_files(args: &ReportArgs) -> Vec<PathBuf> {
    let Some(baseline) = &args.baseline else { return args.records.clone() };
    let others = args.records.iter().filter(|file| !is_same_file(file, baseline)).cloned();
    std::iter::once(baseline.clone()).chain(others).collect()
}

/// The published result with this name.
fn published(name: &str) -> Result<Published, Error> {
    let mut all = ::report::published();
    let names: Vec<String> = all.iter().map(|it| it.name.clone()).collect();
    let at = names.iter().position(|it| it == name).ok_or_else(|| Error::Usage {
        sentence: format!("cannot show the published result {name}"),
        cause: format!("there is none of this name; there are {}", names.join(", ")),
        advice: "trunkline report --published list".to_owned(),
    })?;
    Ok(all.swap_remove(at))
}

fn no_record() -> Error {
    Error::Usage {
        sentence: "cannot show published results alone".to_owned(),
        cause: "no RECORD was given beside which they stand".to_owned(),
        advice: "--published NAME RECORD, or --published list".to_owned(),
    }
}

fn condition(text: &str) -> Result<Condition, Error> {
    text.parse::<Condition>().map_err(|cause| Error::Usage {
        sentence: format!("cannot use the condition {text}"),
        cause: cause.to_string(),
        advice: "ROUTE.read < 0.9 * baseline, or ROUTE.WORKLOAD.write.p99 > 20 ms; \
                 trunkline report --help        for more"
            .to_owned(),
    })
}

/// Judges the conditions on the records that were given; a baseline beside them is only compared
/// with.
fn judged(
    args: &ReportArgs,
    conditions: &[Condition],
    records: &[Record],
    names: &[String],
) -> Result<Vec<RecordChecks>, Error> {
    let all: Vec<Checked<'_>> =
        records.iter().zip(names).map(|(record, name)| Checked { record, name }).collect();
    let baseline = all.first().copied().filter(|_| args.baseline.is_some() || all.len() > 1);
    let beside =
        args.baseline.as_ref().filter(|baseline| !args.records.iter().any(|it| is_same_file(it, baseline)));
    let checked = all.get(usize::from(beside.is_some())..).unwrap_or_default();
    let basis = if args.medians { Basis::Medians } else { Basis::Intervals };
    ::report::check(conditions, checked, baseline, basis).map_err(|(condition, cause)| Error::Usage {
        sentence: format!("cannot judge the condition {}", condition.text()),
        cause: cause.to_string(),
        advice: cause.advice.to_owned(),
    })
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
    match records.iter().find(|record| is_same_file(record, file)) {
        None => Ok(()),
        Some(record) => Err(Error::Usage {
            sentence: format!("cannot write the report to {}", file.display()),
            cause: format!("that is the record {}", record.display()),
            advice: "--html FILE with another name".to_owned(),
        }),
    }
}

/// Whether two names are of the same file. Compares inode numbers, because a file may have several
/// names.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    number(one).is_some_and(|one| Some(one) == number(other))
}
