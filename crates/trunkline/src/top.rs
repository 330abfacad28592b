//! `trunkline top`: what the Trunkline processes of this host are doing, live.

mod csv;
mod format;
mod screen;
mod source;
mod view;

use crate::error::Error;
use crate::live;
use crate::output;
use clap::Args;
use metrics::{Dimension, Interval, Snapshot};
use screen::Shown;
use source::{Answers, Silent, Source, Target};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use view::{Order, View, needs_files};

/// Watch servers, mounts, benches and agents: operations, bytes, latencies and paths, once a
/// second.
///
/// In a terminal it takes the whole screen; `?` explains the keys. Elsewhere, and with --batch,
/// it prints text.
///
/// Without a target it shows every Trunkline process of this user on this host, and root sees those
/// of all users. Each process has a
/// line of totals, a table of its operations, and, if it is a client, a table of its paths.
/// "share" is a line's part of the bytes, or of the operations where no bytes move. Latencies are
/// those of the interval: at a server from the receipt of a call to the end of its reply, at a
/// client from the sending of a call to its reply.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// The number of a process, or the metrics address of one (10.0.0.1:9100); without it, every
    /// process of this user, or for root of all users.
    #[arg(value_name = "PID|ADDR:PORT")]
    target: Option<Target>,
    /// Show the token in this file to the metrics address.
    #[arg(long, value_name = "FILE", requires = "target")]
    token: Option<PathBuf>,
    /// Tell operations apart by these: node, client, export, path, operation, size, file [default:
    /// node,operation at a server, path,operation at a client, client,operation at a bench whose
    /// clients are on other machines]. A server counts by file only while
    /// somebody asks for that, and without latencies.
    #[arg(long, value_name = "DIMENSION,...", value_delimiter = ',')]
    by: Vec<Dimension>,
    /// Show only operations with this value, for example client=10.0.0.7; may be repeated.
    #[arg(long = "where", value_name = "DIMENSION=VALUE", value_parser = condition)]
    conditions: Vec<(Dimension, String)>,
    /// The order of the lines: the highest first, or by name.
    #[arg(long, value_enum, default_value_t = Order::Ops)]
    sort: Order,
    /// Show at most this many lines of each table.
    #[arg(long, value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Seconds between two snapshots.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Print this many snapshots, each over one interval, and end. 0 prints the counts since the
    /// start of each process, and ends at once.
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
    /// With --batch: print each snapshot as a line of JSON, with all counts since the start.
    #[arg(long, requires = "batch", conflicts_with = "csv")]
    json: bool,
    /// With --batch: print lines of comma-separated values.
    #[arg(long, requires = "batch")]
    csv: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline top\n  \
    trunkline top 4711 --by client,operation --sort bytes\n  \
    trunkline top 10.0.0.1:9100 --token /etc/trunkline/token\n  \
    trunkline top --by client --where operation=READ --where node=node2\n  \
    trunkline top --by file --sort bytes\n  \
    trunkline top --batch 10 --csv > load.csv\n  \
    trunkline top --batch 0 --json";

/// The shortest interval: below it, a snapshot is a load of its own.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// A busy host may ask a little later.
const FILES_TIME_MIN: Duration = Duration::from_secs(10);

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let within = seconds.filter(|interval| (INTERVAL_MIN..=INTERVAL_MAX).contains(interval));
    within.ok_or_else(|| "a number of seconds from 0.1 to 3600".to_owned())
}

fn condition(text: &str) -> Result<(Dimension, String), String> {
    let (dimension, value) = text.split_once('=').ok_or("a dimension and its value: client=10.0.0.7")?;
    let dimension = dimension.parse::<Dimension>().map_err(|error| error.to_string())?;
    Ok((dimension, value.to_owned()))
}

/// Watches until the user ends it, or prints the snapshots that were asked for.
pub fn run(args: &TopArgs) -> Result<ExitCode, Error> {
    if args.sort == Order::P99 && needs_files(&args.by, &args.conditions) {
        return Err(Error::Usage {
            sentence: "cannot sort files by p99".to_owned(),
            cause: "a server counts calls, bytes and errors of files, and no latencies".to_owned(),
            advice: "--sort ops or bytes; or --by export,operation --sort p99".to_owned(),
        });
    }
    if args.batch.is_none() && screen::is_possible() {
        screen::run(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.csv {
        output::print(&csv::head())?;
    }
    let mut previous = Previous::new();
    match args.batch {
        Some(0) => print(args, &args.answers(&previous)?, &mut previous)?,
        times => {
            remember(&args.answers(&previous)?, &mut previous);
            let mut next = Instant::now();
            for _ in 0..times.unwrap_or(u32::MAX) {
                // After a stop the intervals that are over are left out.
                next = (next + args.interval).max(Instant::now());
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                print(args, &args.answers(&previous)?, &mut previous)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The last snapshot of each process.
type Previous = BTreeMap<(u32, u64), Snapshot>;

fn identity(snapshot: &Snapshot) -> (u32, u64) {
    (snapshot.process.pid, snapshot.process.started_unix_ms)
}

/// Keeps these for the next interval, and the last ones of processes that are silent now: the next
/// answer covers the time since.
fn remember(answers: &Answers, previous: &mut Previous) {
    previous.retain(|(pid, _), _| answers.silent.iter().any(|silent| silent.may_be(*pid)));
    previous.extend(answers.snapshots.iter().map(|one| (identity(one), one.clone())));
}

impl TopArgs {
    fn target(&self) -> &Target {
        self.target.as_ref().unwrap_or(&Target::All)
    }

    /// What each process that is watched tells. Of those that told something before, one must still
    /// run.
    fn ask(&self, previous: &Previous) -> Result<Answers, Error> {
        let token = self.token.as_deref().map(live::read_token).transpose()?;
        let by_file = needs_files(&self.by, &self.conditions).then(|| self.files_time());
        let found = self.target().ask(token.as_deref(), by_file)?;
        let is_watched = |silent: &Silent| previous.keys().any(|(pid, _)| silent.may_be(*pid));
        if found.snapshots.is_empty() && !found.silent.iter().any(is_watched) {
            if *self.target() != Target::All
                && let Some(silent) = found.silent.first().cloned()
            {
                return Err(silent.into());
            }
            let silent: Vec<_> =
                found.silent.iter().map(|one| format!("{}: {}", one.who, one.cause)).collect();
            return Err(Error::Usage {
                sentence: "there is no process to watch".to_owned(),
                cause: match silent.is_empty() {
                    true => "no trunkline serve, mount or bench of this user runs on this host".to_owned(),
                    false => silent.join("; "),
                },
                advice: "start one, or run this as the user who did (root for mounts from fstab)".to_owned(),
            });
        }
        Ok(found)
    }

    /// For how long a server should count by file after a question: the next one comes before that.
    fn files_time(&self) -> Duration {
        self.interval * 2 + FILES_TIME_MIN
    }

    /// The answers, with a warning for each process that tells nothing.
    fn answers(&self, previous: &Previous) -> Result<Answers, Error> {
        let answers = self.ask(previous)?.with_groups();
        for one in &answers.silent {
            output::print_to_stderr(&format!("{} is left out: {}\n", one.who, one.cause));
        }
        Ok(answers)
    }

    /// Whom this snapshot came from.
    fn source_of(&self, snapshot: &Snapshot) -> Source {
        match self.target() {
            Target::Address(address) => Source::Address(address.clone()),
            Target::All | Target::Process(_) => Source::Process(snapshot.process.pid),
        }
    }

    fn view(&self) -> Shown {
        Shown { by: self.by.clone(), conditions: self.conditions.clone(), order: self.sort }
    }
}

fn print(args: &TopArgs, answers: &Answers, previous: &mut Previous) -> Result<(), Error> {
    let mut text = String::new();
    for snapshot in &answers.snapshots {
        if args.json {
            text.push_str(&String::from_utf8_lossy(&snapshot.to_json()));
            text.push('\n');
            continue;
        }
        let before = previous.get(&identity(snapshot));
        let interval = before.and_then(|before| Interval::between(before, snapshot).ok());
        let interval = interval.unwrap_or_else(|| Interval::since_start(snapshot));
        let view = View::new(snapshot, &interval, &args.by, &args.conditions, args.sort);
        text.push_str(&if args.csv { csv::lines(&view) } else { format::text(&view, args.lines) });
    }
    remember(answers, previous);
    output::print(&text)
}

#[cfg(test)]
mod tests {
    use super::view::tests::example;
    use super::*;

    #[test]
    fn an_answer_that_is_missed_lengthens_the_interval_and_an_end_forgets_the_process() {
        let (mut previous, first) = (Previous::new(), example());
        let answers = |snapshots, silent| Answers { snapshots, silent };
        remember(&answers(vec![first.clone()], vec![]), &mut previous);
        remember(&answers(vec![], vec![Silent::for_test("it does not answer", false)]), &mut previous);
        assert_eq!(previous.get(&identity(&first)), Some(&first));
        remember(&answers(vec![], vec![]), &mut previous);
        assert!(previous.is_empty());
    }
}
