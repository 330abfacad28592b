//! Tests `cargo xtask bench` on a small scale: a few rows of the table, with our server as a
//! separate process, and a valid record.

use acceptance::{AcceptanceRecord, LIMIT, OURS, Options, Peer, Scale};
use std::time::Duration;

fn options(rows: &[&str]) -> Options {
    Options {
        program: env!("CARGO_BIN_EXE_trunkline").into(),
        peers: Vec::new(),
        libnfs: None,
        rows: rows.iter().map(|row| (*row).to_owned()).collect(),
        scale: Scale {
            warm: Duration::from_millis(1),
            window: Duration::from_millis(20),
            calibration_window: Duration::from_millis(1),
            repeats: 1,
            file_bytes: 1 << 20,
            names: 10,
            // However slow the machine is.
            budget: Duration::from_secs(600),
            scaling: false,
        },
        command: "a test".into(),
        notes: Vec::new(),
    }
}

#[test]
fn a_small_table_gives_a_record_that_can_be_read() {
    let mut options = options(&["write-64k-2", "listing"]);
    options.peers = vec![
        Peer { name: "ourselves".into(), command: figures_of_ourselves() },
        Peer { name: "broken".into(), command: "echo cannot serve; exit 1".into() },
    ];
    let measured = acceptance::run(&options, |_| ()).unwrap();
    let record = AcceptanceRecord::read(&measured.write()).unwrap();
    // Fractions may lose their last digit in the file.
    assert_eq!(record.notes, measured.notes);
    assert_eq!(record.environment.cmdline, "a test");
    let [data, listing] = record.lines.as_slice() else { panic!("{} lines", record.lines.len()) };
    for (line, who) in [
        (data, LIMIT),
        (data, OURS),
        (data, "ourselves + our client"),
        (listing, OURS),
        (listing, "ourselves + our client"),
    ] {
        let series = line.series(who).unwrap_or_else(|| panic!("{}: no {who}", line.title));
        assert_eq!(series.failed, None, "{}, {who}", line.title);
        let sample = series.samples.first().unwrap().as_ref().unwrap();
        assert!(sample.per_s > 0.0, "{}, {who}", line.title);
    }
    assert!(data.marks.iter().all(|mark| mark.found.is_some()), "{:?}", data.marks);
    assert!(record.notes.iter().any(|note| note.contains("cannot serve")), "{:?}", record.notes);
    let table = acceptance::render(&record);
    assert!(table.contains("WRITE 64 KiB, depth 32, 2 conns") && table.contains("of the limit"), "{table}");
}

#[test]
fn latency_of_small_calls_beside_bulk_writes_is_compared_with_that_of_the_limit() {
    let mut options = options(&["read-4k-beside-write"]);
    options.scale.window = Duration::from_millis(300);
    let measured = acceptance::run(&options, |_| ()).unwrap();
    let [line] = measured.lines.as_slice() else { panic!("{} lines", measured.lines.len()) };
    for who in [LIMIT, OURS] {
        let series = line.series(who).unwrap();
        assert_eq!(series.failed, None, "{who}");
        assert!(series.samples.first().unwrap().as_ref().unwrap().p99_us.is_some(), "{who}");
    }
    let [mark] = line.marks.as_slice() else { panic!("{:?}", line.marks) };
    assert!(mark.at_most && mark.what.contains("99th percentile"), "{mark:?}");
}

/// The command that starts our server in place of another implementation.
fn figures_of_ourselves() -> String {
    let program = env!("CARGO_BIN_EXE_trunkline");
    format!(
        "exec '{program}' serve --mem 64MiB --export \"$EXPORT\" --listen 127.0.0.1:$PORT \
         --listen 127.0.0.1:$MOUNT_PORT"
    )
}

#[test]
fn a_row_that_does_not_exist_is_an_error_that_names_the_rows() {
    let error = acceptance::run(&options(&["read-5g"]), |_| ()).unwrap_err();
    assert!(error.contains("read-5g") && error.contains("read-1m-1"), "{error}");
}
