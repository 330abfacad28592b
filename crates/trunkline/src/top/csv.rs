//! A view as lines of comma-separated values (RFC 4180), for programs. Numbers are in base units;
//! what is absent is empty.

use super::view::View;
use metrics::{Dimension, Rates};

/// The columns before those of the dimensions.
const BEFORE: [&str; 6] = ["time", "pid", "kind", "name", "seconds", "table"];
/// The columns after those of the dimensions.
const AFTER: [&str; 13] = [
    "ops_per_s",
    "received_bytes_per_s",
    "sent_bytes_per_s",
    "share",
    "errors",
    "p50_s",
    "p99_s",
    "max_s",
    "state",
    "failovers",
    "moved_calls",
    "state_for_s",
    "gap_worst_s",
];

/// The names of the columns.
pub fn head() -> String {
    let dimensions = Dimension::ALL.map(Dimension::name);
    line(BEFORE.iter().chain(&dimensions).chain(&AFTER).map(|name| (*name).to_owned()))
}

/// A line for each operation (`table` is `operations`) and each path (`paths`).
pub fn lines(view: &View) -> String {
    let process = &view.snapshot.process;
    let before = |table: &str| {
        [
            format!("{:.3}", view.snapshot.taken_unix_ms as f64 / 1e3),
            process.pid.to_string(),
            process.kind.name().to_owned(),
            process.name.clone(),
            view.seconds.to_string(),
            table.to_owned(),
        ]
    };
    let operations = view.lines.iter().map(|one| {
        let named = |dimension: Dimension| {
            let at = view.by.iter().position(|by| *by == dimension);
            at.and_then(|at| one.names.get(at)).filter(|name| *name != "-").cloned().unwrap_or_default()
        };
        let after = rates(&one.rates, one.share).into_iter().chain([(); 5].map(|()| String::new()));
        line(before("operations").into_iter().chain(Dimension::ALL.map(named)).chain(after))
    });
    let paths = view.paths.iter().map(|one| {
        let now = &one.activity.now;
        let named = |dimension| match dimension {
            Dimension::Node => now.node.clone(),
            Dimension::Path => now.name.clone(),
            _ => String::new(),
        };
        let after = rates(&one.rates, one.share).into_iter().chain([
            now.state.clone(),
            one.activity.failovers.to_string(),
            one.activity.moved_calls.to_string(),
            (now.since_ms as f64 / 1e3).to_string(),
            (now.gap_worst_ms as f64 / 1e3).to_string(),
        ]);
        line(before("paths").into_iter().chain(Dimension::ALL.map(named)).chain(after))
    });
    operations.chain(paths).collect()
}

fn rates(rates: &Rates, share: f64) -> [String; 8] {
    let seconds = |ns: Option<u64>| ns.map(|ns| (ns as f64 / 1e9).to_string()).unwrap_or_default();
    [
        rates.ops_per_s.to_string(),
        rates.received_bytes_per_s.to_string(),
        rates.sent_bytes_per_s.to_string(),
        share.to_string(),
        rates.errors.to_string(),
        seconds(rates.p50_ns),
        seconds(rates.p99_ns),
        seconds(rates.max_ns),
    ]
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let quoted = cells.map(|cell| {
        if cell.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell
        }
    });
    let mut line = quoted.collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::snapshot;
    use super::super::view::{Order, View};
    use super::*;
    use metrics::Interval;

    #[test]
    fn each_line_has_a_value_for_each_column() {
        let snapshot = snapshot(&[("node,1", "10.0.0.7", "READ", 30, 1 << 20)]);
        let view = View::new(&snapshot, &Interval::since_start(&snapshot), &[], &[], Order::Ops);
        let text = lines(&view);
        let expected =
            "2.000,7,serve,/a\\u{1b}[2J,2,operations,\"node,1\",,,,READ,,,15,0,15728640,1,0,,,,,,,,\n";
        assert_eq!(text, expected);
        let mut snapshot = snapshot;
        snapshot.paths.push(metrics::PathState {
            name: "10.0.0.1:2049".into(),
            node: "10.0.0.1".into(),
            state: "probing".into(),
            since_ms: 12_500,
            failovers: 1,
            moved_calls: 9,
            retransmissions: 0,
            deaths: 1,
            gap_worst_ms: 410,
            gap_last_ms: 20,
        });
        let view = View::new(&snapshot, &Interval::since_start(&snapshot), &[], &[], Order::Ops);
        let path = lines(&view).lines().last().unwrap().to_owned();
        assert!(path.ends_with(",probing,1,9,12.5,0.41"), "{path}");
        assert!(head().ends_with(",state,failovers,moved_calls,state_for_s,gap_worst_s\n"));
        let columns = head().matches(',').count();
        assert_eq!(path.matches(',').count(), columns);
        assert_eq!(text.replace("node,1", "").matches(',').count(), columns);
    }
}
