//! What is shown of one process: its interval, grouped, filtered and sorted.

use crate::names;
use metrics::{Dimension, Interval, Kind, Operations, PathActivity, Rates, Snapshot, Tally};
use std::cmp::Ordering;

/// The order of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// Most operations per second first.
    Ops,
    /// Most bytes per second first.
    Bytes,
    /// The longest 99th percentile first.
    P99,
    /// Most errors first.
    Errors,
    /// By name.
    Name,
}

/// A line of the table of operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// A value for each dimension of the view; `-` where the process does not tell it apart.
    pub names: Vec<String>,
    /// The same values as they were counted; absent where the process does not tell them apart.
    pub values: Vec<Option<String>>,
    /// The rates.
    pub rates: Rates,
    /// The part of all bytes, or of all operations where no bytes move; 0 to 1.
    pub share: f64,
}

/// A line of the table of paths.
#[derive(Debug, Clone, PartialEq)]
pub struct PathLine {
    /// The path, and what it did.
    pub activity: PathActivity,
    /// The rates.
    pub rates: Rates,
    /// As of [`Line`].
    pub share: f64,
}

/// See the module's documentation. All names are free of control characters.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The process.
    pub snapshot: Snapshot,
    /// The length of the interval.
    pub seconds: f64,
    /// The rates of all operations that are shown.
    pub total: Rates,
    /// The processors that the event loops used together: 1.5 is one and a half.
    pub cpu: f64,
    /// By what the lines are told apart.
    pub by: Vec<Dimension>,
    /// The operations.
    pub lines: Vec<Line>,
    /// The paths, in the order of the mount.
    pub paths: Vec<PathLine>,
}

/// By what operations are told apart if the user does not say.
pub fn default_by(snapshot: &Snapshot) -> Vec<Dimension> {
    match snapshot.process.kind {
        Kind::Serve => vec![Dimension::Node, Dimension::Operation],
        Kind::Bench if snapshot.operations.dimensions().contains(&Dimension::Client) => {
            vec![Dimension::Client, Dimension::Operation]
        }
        Kind::Block => vec![Dimension::Export, Dimension::Operation],
        Kind::Mount | Kind::Bench | Kind::Agent => vec![Dimension::Path, Dimension::Operation],
    }
}

/// Whether a view needs the operations by file.
pub fn needs_files(by: &[Dimension], conditions: &[(Dimension, String)]) -> bool {
    by.contains(&Dimension::File) || conditions.iter().any(|(dimension, _)| *dimension == Dimension::File)
}

impl View {
    /// The view of an interval that ends with `snapshot`.
    pub fn new(
        snapshot: &Snapshot,
        interval: &Interval,
        by: &[Dimension],
        conditions: &[(Dimension, String)],
        order: Order,
    ) -> Self {
        let by = if by.is_empty() { default_by(snapshot) } else { by.to_vec() };
        // Files are told apart in operations of their own, which have no latencies.
        let nothing = Operations::default();
        let (operations, seconds) = match &interval.files {
            _ if !needs_files(&by, conditions) => (&interval.operations, interval.seconds),
            Some(files) => (&files.operations, files.seconds),
            None => (&nothing, interval.seconds),
        };
        let shown = operations.by(&Dimension::ALL, conditions);
        let total = shown.total();
        let mut lines = lines(&shown.by(&by, &[]), &by, &total, seconds);
        lines.sort_by(|a, b| order.compare(a, b).then_with(|| a.names.cmp(&b.names)));
        let paths = interval.paths.iter().filter(|path| path.now.state != "unused").map(|path| {
            let of_path = shown.by(&[], &[(Dimension::Path, path.now.name.clone())]).total();
            let mut activity = path.clone();
            for name in [&mut activity.now.name, &mut activity.now.node, &mut activity.now.state] {
                *name = names::escaped(name.as_bytes());
            }
            PathLine { activity, rates: Rates::of(&of_path, seconds), share: of_path.share_of(&total) }
        });
        let mut snapshot = snapshot.clone();
        snapshot.process.name = names::escaped(snapshot.process.name.as_bytes());
        Self {
            seconds,
            total: Rates::of(&total, seconds),
            cpu: interval.cpu.iter().fold(0.0, |sum, one| sum + one),
            lines,
            paths: paths.collect(),
            by,
            snapshot,
        }
    }
}

impl Order {
    /// The order after this one, round.
    pub fn next(self) -> Self {
        match self {
            Self::Ops => Self::Bytes,
            Self::Bytes => Self::P99,
            Self::P99 => Self::Errors,
            Self::Errors => Self::Name,
            Self::Name => Self::Ops,
        }
    }

    /// The name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ops => "ops",
            Self::Bytes => "bytes",
            Self::P99 => "p99",
            Self::Errors => "errors",
            Self::Name => "name",
        }
    }

    /// The highest first; names in their own order.
    fn compare(self, a: &Line, b: &Line) -> Ordering {
        let by = |of: fn(&Line) -> f64| of(b).total_cmp(&of(a));
        match self {
            Self::Ops => by(|line| line.rates.ops_per_s),
            Self::Bytes => by(|line| line.rates.bytes_per_s()),
            Self::P99 => by(|line| line.rates.p99_ns.unwrap_or_default() as f64),
            Self::Errors => by(|line| line.rates.errors * line.rates.ops_per_s),
            Self::Name => Ordering::Equal,
        }
    }
}

fn lines(operations: &Operations, by: &[Dimension], total: &Tally, seconds: f64) -> Vec<Line> {
    let lines = operations.iter().map(|(key, tally)| Line {
        names: by
            .iter()
            .map(|dimension| key.of(*dimension).map_or("-".into(), |name| names::escaped(name.as_bytes())))
            .collect(),
        values: by.iter().map(|dimension| key.of(*dimension).map(str::to_owned)).collect(),
        rates: Rates::of(tally, seconds),
        share: tally.share_of(total),
    });
    lines.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use metrics::{FORMAT, Key, PathState, Process};

    /// A server that answered these: node, client, operation, count, bytes sent of each.
    pub fn snapshot(rows: &[(&str, &str, &str, u64, u64)]) -> Snapshot {
        let mut operations = Operations::default();
        for (node, client, operation, count, bytes) in rows {
            let key = Key {
                node: Some((*node).into()),
                client: Some((*client).into()),
                operation: Some((*operation).into()),
                size: Some(metrics::SizeClass::None),
                ..Key::default()
            };
            operations.add(key, &Tally { count: *count, sent_bytes: count * bytes, ..Tally::default() });
        }
        Snapshot {
            format: FORMAT,
            process: Process {
                pid: 7,
                kind: Kind::Serve,
                version: "0".into(),
                name: "/a\u{1b}[2J".into(),
                started_unix_ms: 0,
            },
            taken_unix_ms: 2_000,
            uptime_ms: 2_000,
            operations,
            paths: Vec::new(),
            loops: Vec::new(),
            gauges: Vec::new(),
            silent_ms: 0,
            files: None,
            group: None,
        }
    }

    pub fn example() -> Snapshot {
        snapshot(&[
            ("node1", "10.0.0.7", "READ", 30, 1 << 20),
            ("node1", "10.0.0.8", "READ", 10, 1 << 20),
            ("node2", "10.0.0.7", "GETATTR", 900, 0),
        ])
    }

    fn view(by: &[Dimension], conditions: &[(Dimension, String)], order: Order) -> View {
        View::new(&example(), &Interval::since_start(&example()), by, conditions, order)
    }

    fn names(view: &View) -> Vec<String> {
        view.lines.iter().map(|line| line.names.join(" ")).collect()
    }

    #[test]
    fn a_server_is_shown_by_node_and_operation_unless_the_user_says_otherwise() {
        assert_eq!(names(&view(&[], &[], Order::Ops)), ["node2 GETATTR", "node1 READ"]);
        assert_eq!(names(&view(&[], &[], Order::Bytes)), ["node1 READ", "node2 GETATTR"]);
        assert_eq!(names(&view(&[Dimension::Client], &[], Order::Name)), ["10.0.0.7", "10.0.0.8"]);
    }

    #[test]
    fn a_bench_with_clients_on_other_machines_is_shown_by_client() {
        let mut bench = example();
        bench.process.kind = Kind::Bench;
        assert_eq!(default_by(&bench), [Dimension::Client, Dimension::Operation]);
        bench.operations = bench.operations.by(&[Dimension::Node], &[]);
        assert_eq!(default_by(&bench), [Dimension::Path, Dimension::Operation]);
    }

    #[test]
    fn conditions_leave_out_the_others_and_shares_are_of_what_is_shown() {
        let shown = view(&[Dimension::Client], &[(Dimension::Operation, "READ".into())], Order::Ops);
        assert_eq!(names(&shown), ["10.0.0.7", "10.0.0.8"]);
        assert!((shown.lines[0].share - 0.75).abs() < 1e-9);
        assert!((shown.total.ops_per_s - 20.0).abs() < 1e-9);
        let metadata = view(&[Dimension::Node], &[(Dimension::Operation, "GETATTR".into())], Order::Ops);
        assert!((metadata.lines[0].share - 1.0).abs() < 1e-9, "of operations, where no bytes move");
    }

    #[test]
    fn files_have_operations_of_their_own() {
        let mut snapshot = example();
        let by_file = [Dimension::File];
        let view = |snapshot: &Snapshot| {
            View::new(snapshot, &Interval::since_start(snapshot), &by_file, &[], Order::Ops)
        };
        assert!(view(&snapshot).lines.is_empty(), "nothing is counted by file yet");
        let mut operations = Operations::default();
        let key = Key { file: Some("/data/a".into()), node: Some("node1".into()), ..Key::default() };
        operations.add(key, &Tally { count: 30, ..Tally::default() });
        snapshot.files = Some(metrics::Files { counted_ms: 3_000, operations });
        let shown = view(&snapshot);
        assert_eq!((names(&shown), shown.lines[0].rates.ops_per_s), (vec!["/data/a".to_owned()], 10.0));
    }

    #[test]
    fn what_is_not_told_apart_is_a_dash_and_names_cannot_move_the_cursor() {
        let shown = view(&[Dimension::Export], &[], Order::Ops);
        assert_eq!(names(&shown), ["-"]);
        assert!(shown.snapshot.process.name.chars().all(|c| !c.is_control()));
    }

    #[test]
    fn paths_that_no_loop_uses_are_left_out() {
        let path = |name: &str, state: &str| PathState {
            name: name.into(),
            node: name.into(),
            state: state.into(),
            since_ms: 0,
            failovers: 0,
            moved_calls: 0,
            retransmissions: 0,
            deaths: 0,
            gap_worst_ms: 0,
            gap_last_ms: 0,
        };
        let mut snapshot = example();
        snapshot.paths = vec![path("a", "up"), path("b", "unused"), path("c\u{1b}]52;", "down")];
        let view = View::new(&snapshot, &Interval::since_start(&snapshot), &[], &[], Order::Ops);
        assert!(view.paths.iter().all(|path| path.activity.now.name.chars().all(|c| !c.is_control())));
        let states: Vec<_> = view.paths.iter().map(|path| path.activity.now.state.as_str()).collect();
        assert_eq!(states, ["up", "down"]);
    }
}
