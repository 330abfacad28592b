//! `trunkline bench`: compares routes side by side, with the limit of the wire.

mod clients;
mod directories;
mod io500;
mod job_files;

use self::clients::ClientArgs;
use self::directories::DirectoryArgs;
use self::io500::Io500Args;
use self::job_files::JobFileArgs;
use crate::error::Error;
use crate::live::{self, Identity, MetricsArgs, Publication, Watched};
use crate::signals::SignalWatch;
use crate::{output, report};
use ::bench::{Plan, Remnant, RunOptions, Stop, Watch, Watcher};
use clap::Args;
use record::{Procedure, Record};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Measure which route is faster, how close each is to its limit, and which resource binds it.
///
/// Without a file, bench starts an embedded group of four nodes on loopback and compares one path
/// with four, raw (unpaced) and paced, within two minutes. It writes a record and an HTML report to
/// ./trunkline-results/.
///
/// fio job files run as they are: each is a route to the server that --map names for the directory
/// of its files. The phases that several job files have in common are compared.
///
/// With --client, other machines make the load, all at the same time (docs/EXPERIMENTS.md).
///
/// The exit status is 1 if the record fails: a block is wrong, a result is above its limit, or a
/// client was lost.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// The server, routes and workloads to measure, or fio job files (docs/EXPERIMENTS.md); or
    /// targets, each of which is a route: a directory, nfs://HOST/EXPORT?OPTIONS,
    /// kernel:nfs://HOST/EXPORT?OPTIONS for a mount by the kernel's client, group:?OPTIONS for an
    /// embedded group, nvme-tcp://ADDR:PORT/NQN?OPTIONS or nvme-rdma:// for a block volume, which
    /// is only read unless its options have `overwrite`, or volume:?OPTIONS for one of an
    /// embedded target.
    #[arg(value_name = "EXPERIMENT.toml|JOB.fio|TARGET")]
    experiment: Vec<PathBuf>,
    /// Run fewer workloads and shorter repeats: 45 seconds.
    #[arg(long, conflicts_with = "thorough")]
    quick: bool,
    /// Run at least ten repeats of two seconds each, until the results are steady: several minutes.
    #[arg(long)]
    thorough: bool,
    /// Repeat each workload on each route so many times, instead of what the experiment file says
    /// [default: 8; 1 for one job file; 10 or more with --thorough]. A verdict needs 5.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Write the record to this file, and the HTML report beside it; - is standard output, without
    /// report and table [default: a new file under ./trunkline-results/].
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Overwrite the files of record and report if they exist.
    #[arg(long)]
    force: bool,
    /// Write no HTML report.
    #[arg(long)]
    no_report: bool,
    #[command(flatten)]
    clients: ClientArgs,
    #[command(flatten)]
    jobs: JobFileArgs,
    #[command(flatten)]
    directories: DirectoryArgs,
    #[command(flatten)]
    io500: Io500Args,
    #[command(flatten)]
    metrics: MetricsArgs,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline bench --quick\n  \
    trunkline bench --record before.json my-nas.toml\n  \
    trunkline bench --quick /mnt/tcp /mnt/tcp-mp        two directories, whatever mounted them\n  \
    trunkline bench --io500 --suite-dir io500 --mpirun \"mpirun -np 4\" /mnt/tcp nfs://10.0.0.1/data\n  \
    trunkline bench --quick nvme-tcp://10.0.0.1:4420/nqn.2026-11.org.example:store?queues=4\n  \
    trunkline bench --client host1,host2 --client-key bench.key my-nas.toml\n  \
    trunkline bench --client ssh:host1,ssh:host2 /mnt/tcp        that directory on each client\n  \
    trunkline bench --map /mnt/tcp=nfs://10.0.0.1/data?nconnect=8 --shrink 2GiB tcp.fio\n  \
    trunkline bench --map /mnt=group:?nconnect=8 --shrink 1GiB --runtime 5s any.fio\n  \
    trunkline report --explain        what the columns of the table say";

/// Runs the experiment, prints its table, and says where the record and the report are.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Error> {
    let procedure = match (args.quick, args.thorough) {
        (true, _) => Procedure::Quick,
        (_, true) => Procedure::Thorough,
        _ => Procedure::Standard,
    };
    if args.io500.is_given() {
        refuse_with_io500(args)?;
        let targets = directories::experiment(&args.experiment, false, procedure)?;
        return args.io500.run(&args.experiment, targets);
    }
    if let Some(record) = &args.record {
        output::spare(record, args.force)?;
        if !args.no_report && output::stream(record).is_none() {
            output::spare_page(&report::page_beside(record), args.force)?;
        }
        output::check_writable(record)?;
    }
    let of_fio = args.clients.job_of_fio(&args.experiment)?;
    let on_clients = of_fio.is_none() && !args.clients.clients().is_empty();
    let of_targets = directories::experiment(&args.experiment, on_clients, procedure)?;
    let plan = match (of_fio, &of_targets) {
        (Some(_), _) => refuse_with_fio(args).map(|()| None)?,
        (None, Some(_)) => args.jobs.refuse_with_targets().map(|()| None)?,
        (None, None) => job_files::plan(&args.experiment, &args.jobs, args.repeats, procedure)?,
    };
    if of_fio.is_some() {
        args.jobs.check_results_of_fio(args.force)?;
    }
    if let Some(plan) = &plan {
        job_files::check_results(plan, &args.jobs, args.force)?;
    }
    let counts = Arc::new(live::bench::Counts::new(identity(&args.experiment)));
    let options = RunOptions {
        experiment: args.experiment.first().cloned(),
        planned: plan.as_ref().map(|plan| plan.experiment.clone()).or(of_targets),
        procedure,
        progress: io::stderr().is_terminal(),
        stop: Stop::default(),
        clients: args.clients.clients(),
        access: args.clients.access(),
        nodes_on: args.clients.nodes_on(),
        watch: Watch::by(Arc::clone(&counts) as Arc<dyn Watcher>),
        engine: args.directories.engine(),
        direct: args.directories.direct(),
        repeats: args.repeats,
    };
    let work = Work { options, plan, job_of_fio: of_fio.map(Path::to_owned) };
    let _published = publish(&args.metrics, counts)?;
    if let Some(record) = args.record.as_deref().filter(|record| output::stream(record).is_some()) {
        return run_into(record, &work, &args.jobs);
    }
    let record = measure(&work, &args.jobs)?;
    let file = args.record.clone().unwrap_or_else(::bench::default_record);
    let table = report::table(&record);
    if let Err(error) = output::write_new(&file, &record.write()) {
        // What was measured is not lost with the file.
        output::print(&format!("{table}\n"))?;
        return Err(error);
    }
    let mut text = format!("{table}\nrecord {}", file.display());
    if !args.no_report {
        let page = report::page_beside(&file);
        let name = file.display().to_string();
        output::write_new(&page, &::report::html(std::slice::from_ref(&record), &[name]))?;
        text.push_str(&format!("    report {}", page.display()));
    }
    output::print(&format!("{text}\n"))?;
    Ok(status(&record))
}

/// Refuses options that IO500 does not have.
fn refuse_with_io500(args: &BenchArgs) -> Result<(), Error> {
    let options = [
        ("--quick", args.quick),
        ("--thorough", args.thorough),
        ("--repeats", args.repeats.is_some()),
        ("--record", args.record.is_some()),
        ("--client", !args.clients.clients().is_empty()),
        ("--engine or --buffered", args.directories.is_given()),
        ("--no-report", args.no_report),
        ("--metrics or --metrics-file", args.metrics.is_given()),
        ("--nodes-on", !args.clients.nodes_on().is_empty()),
        ("--force", args.force),
    ];
    match options.into_iter().find(|(_, given)| *given) {
        None => args.jobs.refuse_with_io500(),
        Some((option, _)) => Err(Error::Usage {
            sentence: format!("{option} does not go with --io500"),
            cause: "io500 makes its own load, and writes its own results".to_owned(),
            advice: match option.starts_with("--metrics") {
                true => "trunkline top        shows the mounts that io500 uses",
                false => "--io500-seconds, --io500-ini or --io500-results",
            }
            .to_owned(),
        }),
    }
}

/// Refuses options that have no effect where `fio --server` runs the job file.
fn refuse_with_fio(args: &BenchArgs) -> Result<(), Error> {
    let as_it_is = "fio runs the job file once, as it is";
    let by_fio = "fio makes the load there, and bench only collects its results";
    let agents = "trunkline agent on these hosts, and --client HOST";
    let options = [
        ("--repeats", args.repeats.is_some(), as_it_is, "loops=NUMBER in the job file"),
        ("--quick", args.quick, as_it_is, "runtime=SECONDS in the job file"),
        ("--thorough", args.thorough, as_it_is, "runtime=SECONDS in the job file"),
        ("--engine", args.directories.has_engine(), by_fio, "ioengine=NAME in the job file"),
        ("--buffered", args.directories.direct().is_some(), by_fio, "direct=0 in the job file"),
        ("--nodes-on", !args.clients.nodes_on().is_empty(), by_fio, agents),
        ("--metrics or --metrics-file", args.metrics.is_given(), by_fio, agents),
    ];
    let of_agents = args.clients.given_for_agents().map(|option| (option, true, by_fio, agents));
    match options.into_iter().chain(of_agents).find(|(_, given, ..)| *given) {
        None => args.jobs.refuse_with_fio(),
        Some((option, _, cause, advice)) => Err(Error::Usage {
            sentence: format!("{option} does not go with fio:HOST"),
            cause: cause.to_owned(),
            advice: advice.to_owned(),
        }),
    }
}

/// What is to be run.
struct Work {
    options: RunOptions,
    /// The plan of job files.
    plan: Option<Plan>,
    /// The job file that fio is to run.
    job_of_fio: Option<PathBuf>,
}

/// This bench, by the files that it runs.
fn identity(files: &[PathBuf]) -> Identity {
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let name = if names.is_empty() { "built-in experiment".to_owned() } else { names.join(" ") };
    Identity::new(metrics::Kind::Bench, &name)
}

/// Lets others watch the experiment, or an agent, which is ready as long as it runs.
pub fn publish(args: &MetricsArgs, counts: Arc<live::bench::Counts>) -> Result<Publication, Error> {
    let snapshot = move || counts.snapshot();
    let watched = Watched { snapshot: Arc::new(snapshot), is_ready: Arc::new(|| true), by_file: None };
    let published = Publication::new(args, watched)?;
    if let Some(address) = published.address {
        // The record may go to standard output.
        output::print_to_stderr(&format!("metrics on http://{address}/metrics\n"));
    }
    Ok(published)
}

/// Runs the experiment. A signal stops it, and removes its files on the server.
fn measure(work: &Work, args: &JobFileArgs) -> Result<Record, Error> {
    let Work { options, plan, job_of_fio } = work;
    let stop = &options.stop;
    let watch = watch_signals(stop)?;
    let measured = beside_the_main_thread(|| match job_of_fio {
        Some(job) => {
            let measured = ::bench::fio_servers::run(&options.clients, job, stop)?;
            let record = measured.record;
            Ok((::bench::Measured { record, jobs: Vec::new() }, Some(measured.json)))
        }
        None => ::bench::run_for_results(options).map(|measured| (measured, None)),
    });
    let signal = u8::try_from(watch.end()).unwrap_or_default();
    let (measured, json) = measured.map_err(|error| interrupted(error, signal))?;
    if let Some(json) = json {
        args.write_results_of_fio(&json)?;
    }
    if let Some(plan) = plan {
        job_files::write_results(plan, args, &measured)?;
    }
    Ok(measured.record)
}

/// Has the first signal stop the run. The second ends it at once, and says what remains.
fn watch_signals(stop: &Stop) -> Result<SignalWatch, Error> {
    let (first, remains) = (stop.clone(), stop.remains().clone());
    SignalWatch::with_hangup(move || first.request(), move |_| ended_at_once(&remains.list()))
}

/// Does work on another thread. The kernel gives a signal to the main thread unless that blocks it,
/// even while the thread waits for a file system that does not answer; no handler would run then.
fn beside_the_main_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// What a run that ends at once leaves, and how to remove it.
fn ended_at_once(remnants: &[Remnant]) -> String {
    remains_after("error: ended at once by a second signal; no record is written\n", remnants)
}

/// A sentence with what remains.
pub fn remains_after(sentence: &str, remnants: &[Remnant]) -> String {
    let mut text = sentence.to_owned();
    for remnant in remnants {
        text.push_str(&format!("  cause: {}\n", remnant.what));
    }
    for remnant in remnants {
        text.push_str(&format!("  try:   {}\n", remnant.advice));
    }
    if remnants.is_empty() {
        text.push_str("  try:   the same again; nothing remains\n");
    }
    text
}

/// What a run without a result says after what it has left.
const NO_RECORD: &str = ", and no record is written";

/// An error that ended a measurement, perhaps because of a signal.
fn interrupted(error: ::bench::Error, signal: u8) -> Error {
    match error {
        ::bench::Error::Stopped => Error::BenchInterrupted {
            remains: format!("the files are removed{NO_RECORD}"),
            advice: "the same again".to_owned(),
            signal,
        },
        ::bench::Error::StoppedWithFiles { directory, cause } => Error::BenchInterrupted {
            remains: format!("{directory} remains{NO_RECORD}\n  cause: {}", causes(&cause)),
            advice: match directory.starts_with('/') {
                true => format!("rm -r {directory}"),
                false => format!("trunkline rm -r        with {directory} in the export"),
            },
            signal,
        },
        error => error.into(),
    }
}

/// An error with its causes, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Runs the experiment and writes the record to a pipe or a device, without a page.
fn run_into(file: &Path, work: &Work, args: &JobFileArgs) -> Result<ExitCode, Error> {
    let record = measure(work, args)?;
    output::write(file, &record.write())?;
    if !output::is_stdout(file) {
        output::print(&format!("{}\n", report::table(&record)))?;
    }
    Ok(status(&record))
}

fn status(record: &Record) -> ExitCode {
    if record.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::bench::{Experiment, Target};

    /// The example of the document; with `embedded`, as if the lines for the other target were
    /// chosen.
    fn example(embedded: bool) -> String {
        let document = include_str!("../../../docs/EXPERIMENTS.md");
        let start = document.find("```toml\n").unwrap() + "```toml\n".len();
        let text = &document[start..][..document[start..].find("```").unwrap()];
        let of_a_server =
            |line: &str| ["server =", "link =", "client_link ="].iter().any(|it| line.starts_with(it));
        let chosen = text.lines().filter(|line| !(embedded && of_a_server(line))).map(|line| {
            let other = line.strip_prefix("# ").filter(|rest| rest.contains(" = "));
            other.filter(|_| embedded).unwrap_or(line)
        });
        chosen.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_last_words_name_what_remains_and_how_to_remove_it() {
        let remnant = |what: &str, advice: &str| Remnant { what: what.to_owned(), advice: advice.to_owned() };
        assert_eq!(
            ended_at_once(&[
                remnant("/m is still mounted (nfs)", "umount /m"),
                remnant("/d is not removed", "rm -r /d")
            ]),
            "error: ended at once by a second signal; no record is written\n  cause: /m is still mounted (nfs)\n  \
             cause: /d is not removed\n  try:   umount /m\n  try:   rm -r /d\n"
        );
        assert!(ended_at_once(&[]).ends_with("nothing remains\n"));
    }

    #[test]
    fn the_example_of_the_document_is_an_experiment_with_either_target() {
        let server = Experiment::from_toml(&example(false), Procedure::Standard).unwrap();
        assert_eq!(server.target, Target::Server("10.0.0.1:/data".to_owned()));
        let embedded = Experiment::from_toml(&example(true), Procedure::Standard).unwrap();
        assert_eq!(embedded.target, Target::Embedded { nodes: 4, mem_bytes: 2 << 30, addresses: Vec::new() });
        assert_eq!(embedded.pace_bits_per_s, Some(1_000_000_000));
    }
}
