//! The table against golden files at 80 and 120 columns, narrow widths, and hostile text.

use record::Record;

use super::*;
use crate::sample;

/// Compares with a golden file; `UPDATE_GOLDENS=1` writes it instead.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = format!("{}/goldens/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file exists: UPDATE_GOLDENS=1 writes it");
    assert!(golden == text, "{name} differs from its golden file (UPDATE_GOLDENS=1 writes it):\n{text}");
}

fn assert_fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(width(line) <= columns, "{} columns: {line}", width(line));
        assert_eq!(line, line.trim_end(), "no blanks at the end of a line");
    }
}

#[test]
fn the_table_at_80_columns_is_the_golden_one() {
    let text = render(&sample::record(), 80);
    assert_fits(&text, 80);
    assert_golden("table-80.txt", &text);
}

#[test]
fn the_table_at_120_columns_is_the_golden_one() {
    let text = render(&sample::record(), 120);
    assert_fits(&text, 120);
    assert_golden("table-120.txt", &text);
}

#[test]
fn every_width_from_60_fits_and_loses_no_evidence() {
    let record = sample::record();
    for columns in 60..200 {
        let text = render(&record, columns);
        if columns >= 80 {
            assert_fits(&text, columns);
        }
        assert!(text.contains("both cores at 99 %") && text.contains("each node at its pace"), "{text}");
    }
}

#[test]
fn a_failed_record_ends_with_its_reasons() {
    let mut record = sample::record();
    record.fail("tcp read of mix-1m (raw) reached 9.000 GB/s, above its limit of 5.680 GB/s");
    let text = render(&record, 80);
    assert_fits(&text, 80);
    let (_, end) = text.split_once("FAILED: do not use these numbers\n").expect("it says so");
    assert!(end.starts_with("  - tcp read of mix-1m (raw) reached 9.000 GB/s"), "{end}");
}

#[test]
fn text_from_a_record_cannot_command_the_terminal() {
    let text = render(&sample::hostile(), 80);
    assert!(!text.contains('\u{1b}') && !text.contains("\n# pwned"), "{text}");
}

#[test]
fn colour_is_there_only_when_asked_for() {
    let record = sample::record();
    assert!(!render(&record, 80).contains('\u{1b}'));
    let coloured = render_ansi(&record, 80);
    assert!(coloured.contains("\u{1b}[34m####"));
    let mut plain = String::new();
    let mut in_code = false;
    for character in coloured.chars() {
        match character {
            '\u{1b}' => in_code = true,
            'm' if in_code => in_code = false,
            _ if in_code => {}
            other => plain.push(other),
        }
    }
    assert_eq!(plain, render(&record, 80));
}

#[test]
fn a_record_without_results_says_why() {
    let mut record = sample::record();
    record.routes.retain(|route| route.skipped.is_some());
    let text = render(&record, 80);
    assert!(text.contains("rdma: no RDMA device here"), "{text}");
    assert!(render(&Record::default(), 0).starts_with("trunkline bench: "));
}

#[test]
fn how_directories_are_accessed_stands_below_the_table_and_each_note_once() {
    let mut record = sample::record();
    for route in &mut record.routes {
        route.access = Some("buffered on ext4, by our threads".into());
        route.workloads.iter_mut().for_each(|workload| workload.note = Some("reads are of memory".into()));
    }
    let text = render(&record, 300);
    assert!(text.contains("access: tcp buffered on ext4, by our threads; tcp-mp buffered on"), "{text}");
    assert!(text.contains("by our threads; tcp, tcp-mp: reads are of memory"), "{text}");
}

#[test]
fn each_paced_or_simulated_number_is_labelled() {
    let mut record = sample::record();
    // The column of the latency leaves room for words from 100 columns.
    let narrow = render(&record, 100);
    assert!(narrow.contains("0.24 paced ##"), "{narrow}");
    let narrower = render(&record, 80);
    assert!(narrower.contains("12/24 ms"), "{narrower}");
    assert!(
        narrower.contains("paced at 2 Gbit/s a node (each marked p)") && narrower.contains("0.24p #"),
        "{narrower}"
    );
    for workload in record.routes.iter_mut().flat_map(|route| &mut route.workloads) {
        workload.simulated = Some("Soft-RoCE".into());
    }
    let text = render(&record, 80);
    assert_fits(&text, 80);
    assert!(text.contains("0.24ps #") && text.contains("simulated: Soft-RoCE"), "{text}");
}

#[test]
fn a_route_that_cannot_be_paced_says_why_and_ports_tell_where_traffic_went() {
    let mut record = sample::record();
    let name = record.experiment.workloads[0].name.clone();
    let pace = record.routes[0].workloads.iter().find_map(|workload| workload.pace);
    let port = |packets| record::PortCounters {
        port: "rxe1/1".into(),
        sent_packets: Some(packets),
        received_packets: Some(packets),
        ..record::PortCounters::default()
    };
    record.routes[0].workloads[0].ports = vec![port(0)];
    record.routes[1].workloads[0].ports =
        vec![record::PortCounters { sent_bytes: Some(3_000_000_000), ..port(12_345) }];
    let each = |count| {
        std::collections::BTreeMap::from([
            ("rdma_work_requests".to_owned(), count),
            ("rdma_completions".to_owned(), count / 2),
        ])
    };
    let calls: u64 = record.routes[1].workloads[0].paths.iter().map(|path| path.calls).sum();
    record.routes[1].workloads[0].counters =
        record::Counters { client: each(2 * calls), ..Default::default() };
    let skipped = Some("nothing holds it to a pace".to_owned());
    let paced = record::Workload { name, pace, skipped, ..record::Workload::default() };
    record.routes[2] = record::Route { name: "rdma".into(), workloads: vec![paced], ..Default::default() };
    let text = render(&record, 100);
    let after = text.split("paced at").nth(1).expect("a paced half");
    assert!(after.contains("rdma     skipped: nothing holds it to a pace"), "{text}");
    let reported =
        "RDMA ports: tcp nothing; tcp-mp rxe1/1 3.00 GB out, 0.00 in, 12,345 packets out, 12,345 in";
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(reported), "{text}");
    let work = "tcp-mp client 2.0 work requests, 1.0 completions, 0.0 interrupts";
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(work), "{text}");
    let markdown = crate::markdown(&[record.clone()], &[]);
    assert!(markdown.contains("- RDMA for a call: tcp-mp client 2.0"), "{markdown}");
    assert!(markdown.contains("- rdma was skipped: nothing holds it to a pace"), "{markdown}");
    assert!(crate::csv(&[record.clone()]).contains("nothing holds it to a pace"));
    let page = crate::html(&[record], &[]);
    assert!(
        page.contains("<b>rdma</b> was skipped: nothing holds it to a pace") && page.contains("RDMA ports:")
    );
}

#[test]
fn a_stage_that_is_unknown_is_not_said_to_bind() {
    let mut record = sample::record();
    let unseen = "the server's machine is not seen; depth 8 gained 5 % of the first step";
    for workload in record.routes.iter_mut().flat_map(|route| &mut route.workloads) {
        for cell in [&mut workload.read, &mut workload.write].into_iter().flatten() {
            cell.binding = record::Binding::new(record::Stage::Unknown, unseen);
        }
    }
    let table = render(&record, 80).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(table.contains(&format!("what binds tcp, tcp-mp is unknown: {unseen}")), "{table}");
    assert!(!table.contains("unknown binds"), "{table}");
}
