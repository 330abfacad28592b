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
        group: None,
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
        let now = Now { snapshot: &last, age: Duration::from_secs(age), has_group: false };
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
fn files_are_on_the_axis_of_time_from_the_first_look_on() {
    let history = served();
    let mut files = History::new(metrics::history::Limits::FILES);
    let by_file = |files: &History| sheet(&history, &[("by", "file")]).by_file(files);
    let empty = panels(&by_file(&files));
    assert!(empty.contains("counted only while this page shows them: now they are"), "{empty}");
    let activity = |counts: &[(&str, u64)]| {
        let mut operations = Operations::default();
        for (name, count) in counts {
            let key = Key { file: Some((*name).into()), client: Some("10.0.0.7".into()), ..Key::default() };
            operations.add(key, &Tally { count: *count, ..Tally::default() });
        }
        metrics::FileActivity { seconds: 1.0, operations }
    };
    let hostile = format!("/x/{HOSTILE}");
    files.push_activity(1_700_000_012_000, activity(&[(&hostile, 20), ("/x/b", 5)]));
    files.push_activity(1_700_000_013_000, activity(&[(&hostile, 40)]));
    let sheet = by_file(&files);
    let text = panels(&sheet);
    for part in [
        "By file, over those 2 s of the time shown in which they were counted",
        "<td>30</td>",
        "aria-current=\"true\">file</a>",
        "; /x/b 5</title>",
        "By file: 2 seconds, 0.00 of at most 16 MiB",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("<script>alert"), "{text}");
    let operations = &sheet.panels()[0];
    assert_eq!((operations.id, operations.columns.len(), operations.shapes.len()), ("operations", 2, 2));
    assert_eq!(sheet.panels()[2].columns.len(), 3, "latencies are not by file");
    let csv = worksheet::content(&sheet, worksheet::Format::Csv);
    assert!(csv.starts_with("end,end_unix_ms,seconds,file,") && csv.contains(",1.000,/x/b,5.000,"), "{csv}");
    let json = worksheet::json(&sheet);
    assert_eq!((&json["by"], json["groups"][0]["count"][1].as_u64()), (&"file".into(), Some(40)));
    let one = super::Sheet::new(&history, request(&[("by", "file"), ("client", "10.0.0.8")]), None).unwrap();
    assert!(one.by_file(&files).lines().0.is_empty(), "no file of that client");
    // A process that cannot count by file shows what it has.
    assert!(panels(&self::sheet(&history, &[("by", "file")])).contains("node1 300"));
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
    let fresh = |snapshot| Some(Now { snapshot, age: Duration::from_secs(1), has_group: false });
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

#[test]
fn a_bench_with_an_embedded_group_leads_to_it_and_back() {
    let history = served();
    let sheet = |side, has_group| {
        let last = history.last().cloned().unwrap();
        let now = Now { snapshot: &last, age: Duration::ZERO, has_group };
        let request = Request { side, window_s: 600, ..Request::default() };
        page(&Sheet::new(&history, request, Some(now)).unwrap())
    };
    let of_bench = sheet(Side::Process, true);
    assert!(of_bench.contains("<a href=\"/?of=group&#38;window=600\">embedded group</a>"), "{of_bench}");
    let of_group = sheet(Side::Group, true);
    for link in [
        "<a href=\"/?window=600\">bench</a>",
        "<a href=\"/?of=group&#38;window=600\" aria-current=\"true\">embedded group</a>",
        "href=\"/worksheet?format=csv&#38;of=group",
    ] {
        assert!(of_group.contains(link), "{link}: {of_group}");
    }
    assert!(!of_group.contains("by=file"), "a group does not count by file");
    assert!(!sheet(Side::Process, false).contains("embedded group"));
}

#[test]
fn a_bench_with_agents_has_a_picture_of_them_and_the_nodes() {
    let mut history = History::default();
    let mut counted = snapshot(Kind::Bench, 10);
    history.push(Arc::new(counted.clone()));
    for second in 11..14 {
        set_time(&mut counted, second);
        for client in [HOSTILE, "c2"] {
            let key = Key {
                node: Some("10.0.0.1:2049".into()),
                client: Some(client.into()),
                path: Some("tcp 10.0.0.1:2049".into()),
                operation: Some("READ".into()),
                ..Key::default()
            };
            counted.operations.add(key, &tally(100));
        }
        history.push(Arc::new(counted.clone()));
    }
    let text = page(&Sheet::new(&history, Request::default(), None).unwrap());
    assert!(text.contains("Clients and nodes") && text.contains("c2 to 10.0.0.1:2049"), "{text}");
    assert!(text.contains("&#60;script&#62;alert(1)") && !text.contains("<script>alert"), "{text}");
}
