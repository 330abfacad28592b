//! Tests of the page without a browser: figures, links, escapes, times and paths.

use super::*;
use metrics::{FORMAT, Key, Kind, Latency, Operations, PathState, Process, SizeClass, Tally};
use std::collections::HashMap;
use std::sync::Arc;

const HOSTILE: &str = "</title><script>alert(1)</script>\"'&";

fn snapshot(kind: Kind, seconds: u64) -> Snapshot {
    Snapshot {
        format: FORMAT,
        process: Process {
            pid: 7,
            kind,
            version: "0.1.0".into(),
            name: HOSTILE.into(),
            started_unix_ms: 1_700_000_000_000,
        },
        taken_unix_ms: 1_700_000_000_000 + seconds * 1000,
        uptime_ms: seconds * 1000,
        operations: Operations::default(),
        paths: Vec::new(),
        loops: Vec::new(),
        gauges: Vec::new(),
        silent_ms: 0,
        files: None,
    }
}

fn set_time(snapshot: &mut Snapshot, second: u64) {
    snapshot.uptime_ms = second * 1000;
    snapshot.taken_unix_ms = snapshot.process.started_unix_ms + second * 1000;
}

fn tally(count: u64) -> Tally {
    let mut latencies = metrics::latency::histogram();
    latencies.record_n(200_000, count).unwrap();
    Tally { count, sent_bytes: count << 20, latency: Latency::of(&latencies), ..Tally::default() }
}

/// Three seconds of a server with two nodes; the names of a client and an export are hostile.
fn served() -> History {
    let mut history = History::default();
    let mut counted = snapshot(Kind::Serve, 10);
    history.push(Arc::new(counted.clone()));
    for second in 11..14 {
        set_time(&mut counted, second);
        for (node, client, count) in [("node1", HOSTILE, 300), ("node2", "10.0.0.7", 100)] {
            let key = Key {
                node: Some(node.into()),
                client: Some(client.into()),
                export: Some(HOSTILE.into()),
                operation: Some("READ".into()),
                size: Some(SizeClass::To1M),
                ..Key::default()
            };
            counted.operations.add(key, &tally(count));
        }
        history.push(Arc::new(counted.clone()));
    }
    history
}

fn request(pairs: &[(&str, &str)]) -> Request {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Request::parse(&pairs.collect::<HashMap<_, _>>(), &[]).unwrap()
}

fn sheet(history: &History, pairs: &[(&str, &str)]) -> Sheet {
    Sheet::new(history, request(pairs), None).unwrap()
}

#[test]
fn the_page_has_the_figures_without_a_script() {
    let history = served();
    let text = page(&sheet(&history, &[]));
    for part in [
        "<a data-go href=\"/?by=client&#38;node=node1\">node1</a>",
        "<td>300</td><td>0 B/s</td><td>315 MB/s</td><td>75 %</td>",
        "<tfoot><tr><th scope=\"row\">all</th><td>400</td>",
        "aria-current=\"true\">node</a>",
        "id=\"pause\"",
        "History: 3 of 3600 seconds",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("style=") && !text.contains("onclick"), "the policy forbids both");
}

#[test]
fn foreign_names_are_text_everywhere() {
    let history = served();
    for pairs in [&[][..], &[("by", "client")], &[("by", "export"), ("client", HOSTILE)]] {
        let sheet = sheet(&history, pairs);
        let worksheet = worksheet::content(&sheet, worksheet::Format::Html);
        for text in [page(&sheet), worksheet] {
            assert!(!text.contains("<script>alert") && !text.contains("</title><script"), "{text}");
            assert!(text.contains("&#60;script&#62;alert(1)"), "{text}");
        }
    }
    // A condition on a name leads to that name, and nowhere else.
    let only = sheet(&history, &[("client", HOSTILE)]);
    assert_eq!(only.view.total.count, 900);
    let csv = worksheet::content(&only, worksheet::Format::Csv);
    assert_eq!(csv.lines().count(), 1 + 3 * 2, "{csv}");
}

#[test]
fn each_click_narrows_the_figures_and_crumbs_lead_back() {
    let history = served();
    let narrow = sheet(&history, &[("node", "node2"), ("client", "10.0.0.7")]);
    assert_eq!((narrow.by, narrow.view.total.count), (Dimension::Operation, 300));
    let crumbs = crumbs(&narrow);
    let hrefs: Vec<_> = crumbs.iter().map(|crumb| (crumb.href.as_str(), crumb.without.as_str())).collect();
    assert_eq!(
        hrefs,
        [
            ("/?by=client&node=node2", "/?client=10.0.0.7"),
            ("/?by=operation&node=node2&client=10.0.0.7", "/?node=node2"),
        ]
    );
    let nothing = page(&sheet(&history, &[("node", "node3")]));
    assert!(nothing.contains("No operation in this time that matches."), "{nothing}");
}

#[test]
fn a_time_in_the_past_is_paused_and_can_be_left() {
    let history = served();
    let paused = panels(&sheet(&history, &[("until", "1700000012000"), ("window", "10")]));
    assert!(
        paused.contains("Paused, until") && paused.contains("id=\"live\" href=\"/?window=10\""),
        "{paused}"
    );
    assert!(paused.contains("<th scope=\"row\">all</th><td>400</td>"), "{paused}");
    let json = worksheet::json(&sheet(&history, &[("until", "1700000012000")]));
    assert_eq!(json["points"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["groups"][0]["count"], serde_json::json!([300, 300]));
}

#[test]
fn figures_of_a_process_that_hangs_are_told_to_be_old() {
    let history = served();
    let last = Arc::clone(history.last().unwrap());
    let shown = |age, until: &[(&str, &str)]| {
        let now = Now { snapshot: &last, age: Duration::from_secs(age), files: None };
        panels(&Sheet::new(&history, request(until), Some(now)).unwrap())
    };
    let fresh = shown(1, &[]);
    assert!(fresh.contains("Live, until") && !fresh.contains("does not answer"), "{fresh}");
    let old = shown(75, &[]);
    assert!(old.contains("Old, until") && old.contains("These figures are 75 s old"), "{old}");
    // What was stays what it was.
    assert!(shown(75, &[("until", "1700000012000")]).contains("Paused, until"));
}

#[test]
fn files_are_a_table_of_now_beside_the_panels() {
    let history = served();
    let last = Arc::clone(history.last().unwrap());
    let mut operations = Operations::default();
    let key = Key { file: Some(format!("/x/{HOSTILE}").into()), ..Key::default() };
    operations.add(key, &tally(20));
    let files = metrics::FileActivity { seconds: 5.0, operations };
    let now = Now { snapshot: &last, age: Duration::from_secs(1), files: Some(&files) };
    let shown = panels(&Sheet::new(&history, request(&[("by", "file")]), Some(now)).unwrap());
    for part in ["By file, over the last 5 s", "<td>4</td>", "aria-current=\"true\">file</a>"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert!(!shown.contains("<script>alert"), "{shown}");
    // Panels are by node.
    assert!(shown.contains("node1 300"), "{shown}");
    let past = panels(&sheet(&history, &[("by", "file"), ("until", "1700000012000")]));
    assert!(past.contains("only while this page shows them live"), "{past}");
}

#[test]
fn paths_of_a_mount_show_their_state_now_and_then() {
    let state = |name: &str, state: &str| PathState {
        name: name.into(),
        node: "10.0.0.1:2049".into(),
        state: state.into(),
        since_ms: 3_000,
        failovers: 0,
        moved_calls: 4,
        retransmissions: 0,
        deaths: 0,
        gap_worst_ms: 0,
        gap_last_ms: 0,
    };
    let mut history = History::default();
    let mut mounted = snapshot(Kind::Mount, 1);
    mounted.paths = vec![state("a", "up"), state(HOSTILE, "up")];
    for second in 1..4 {
        set_time(&mut mounted, second);
        let key = Key { path: Some("a".into()), operation: Some("READ".into()), ..Key::default() };
        mounted.operations.add(key, &tally(10));
        history.push(Arc::new(mounted.clone()));
    }
    let mut now = mounted.clone();
    now.paths[0].state = "down".into();
    let fresh = |snapshot| Some(Now { snapshot, age: Duration::from_secs(1), files: None });
    let live = Sheet::new(&history, Request::default(), fresh(&now)).unwrap();
    let states: Vec<_> = live.picture.edges.iter().map(|edge| edge.state.as_str()).collect();
    assert_eq!(states, ["down", "up"]);
    let text = page(&live);
    assert!(text.contains("class=\"edge down\"") && text.contains("<tr class=\"down\">"), "{text}");
    assert!(text.contains("100 %, 10 ops/s") && text.contains("<td>3 s</td><td>4</td>"), "{text}");
    assert!(!text.contains("<script>alert"), "{text}");
    let past = request(&[("until", "1700000003000")]);
    let past = Sheet::new(&history, past, fresh(&now)).unwrap();
    assert!(past.picture.edges.iter().all(|edge| edge.state == "up"));
}
