//! Tests `trunkline plan` from outside: golden outputs, and a table of invalid input with the error
//! for each.
//!
//! A golden file under `tests/plan` is the standard output of the command in the table, 80 columns
//! wide; after an intended change write the new output to the file and review the difference.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::temp_dir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Runs a command that ends by itself, in the directory of the crate.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("plan").args(arguments).current_dir(root()).env("COLUMNS", "80").env_remove("TRUNKLINE_LOG");
    let output = command.output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn done(line: &str) -> String {
    let arguments: Vec<_> = line.split(' ').collect();
    let (code, out, err) = run(&arguments);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{line}");
    out
}

/// Golden file and command line.
const GOLDENS: [(&str, &str); 11] = [
    ("size-ddp24.txt", "size --drive-tb 7.68 --drives 24 --scheme ddp"),
    ("size-ddp11.json", "size --drive-tb 1.92 --drives 11 --scheme ddp --metadata-percent 5 --json"),
    ("size-need.txt", "size --need-tib 500 --need-read-gbytes 80 --need-write-gbytes 30"),
    ("layout-raid6.txt", "layout --scheme raid6 --drives 20 --mirrors 2 --drive-tb 7.68"),
    ("layout-ddp.json", "layout --scheme ddp --drives 12 --order ends --volume 5TB --json"),
    ("layout-raid6.smcli", "layout --scheme raid6 --drives 20 --volume 4992GiB --drive-tb 7.68 --script"),
    ("limits-ddp24.txt", "limits --preset ef600-ddp24 --curve clients --to 5 --need-read-gbytes 120"),
    (
        "limits-options.txt",
        "limits --nodes 4 --server-link 100GbE --clients 1 --transport roce --mtu 9000 --curve paths",
    ),
    ("limits-sun.json", "limits --preset sun-7410-ddr --curve clients --to 2 --json"),
    ("limits.svg", "limits --preset ef600-raid6-20 --curve clients --svg -"),
    (
        "io500.txt",
        "io500 ../plan/data/io500-ddp24.txt ../plan/data/io500-raid6-20.txt --preset ef600-ddp24 --preset \
         ef600-raid6-20",
    ),
];

#[test]
fn the_output_equals_the_golden_files() {
    for (file, line) in GOLDENS {
        let arguments: Vec<_> = line.split_whitespace().collect();
        let (code, out, err) = run(&arguments);
        assert_eq!(code, Some(0), "{line}: {err}");
        let golden = std::fs::read_to_string(root().join("tests/plan").join(file)).expect("a golden file");
        assert!(out == golden, "{file}: trunkline plan {line}\n--- it was\n{golden}\n--- it is\n{out}");
    }
}

// Deploying NetApp EF600, Lenovo Press 2021, table 2: 24 x 7.68 TB in a pool are 121.6 TB, 110.6
// TiB.
#[test]
fn json_contains_the_usable_capacity_without_rounding() {
    let out = done("size --drive-tb 7.68 --drives 24 --scheme ddp --json");
    let number = |key: &str| -> f64 {
        let (_, rest) = out.split_once(&format!("\"{key}\": ")).expect(key);
        rest.split([',', '\n']).next().and_then(|text| text.parse().ok()).expect("a number")
    };
    assert!((number("usable_tb") - 121.564_08).abs() < 1e-9);
    assert!((number("usable_tib") - 121.564_08e12 / f64::from(1_u32 << 20).powi(2)).abs() < 1e-9);
}

#[test]
fn a_printed_topology_can_be_read_back() {
    let directory = temp_dir("plan");
    let file = directory.path().join("mine.toml");
    std::fs::write(&file, done("limits --preset ef600-raid6-20 --clients 3 --toml")).expect("a file");
    let name = file.to_str().expect("a name in UTF-8");
    let (again, direct) =
        (done(&format!("limits {name}")), done("limits --preset ef600-raid6-20 --clients 3"));
    assert_eq!(again, direct);
}

/// Command line, status, and what the message must contain.
const BAD: [(&str, i32, &str); 36] = [
    ("size --drive-tb 7.68 --drives 13 --scheme ddp", 1, "try:   --drives 12 or 14"),
    ("size --drive-tb 7.68 --drives 0 --scheme raid6", 1, "try:   --drives 10"),
    ("size --drive-tb 7.68 --drives -4 --scheme raid1", 1, "try:   --drives 2"),
    ("size --drive-tb 8 --drives 24 --scheme ddp", 1, "takes NVMe drives of 1.92, 3.84, 7.68, 15.36 TB"),
    ("size --drive 7.68 --drives 24 --scheme ddp", 1, "7.68 of what?"),
    ("size --drive 7.68EB --drives 24 --scheme ddp", 1, "--drive 7.68TB"),
    ("size --drive-tb -7.68 --drives 24 --scheme ddp", 1, "a capacity is more than nothing"),
    ("size --drive-tb nan --drives 24 --scheme ddp", 1, "a capacity is more than nothing"),
    ("size --drive-tb 1e300 --drives 24 --scheme ddp", 1, "a capacity is more than nothing"),
    ("size --drive-tb 7.68 --drives 24 --scheme raid5", 1, "--scheme 8+1"),
    ("size --drive-tb 7.68 --drives 24 --scheme ddp --hot-spares 1", 1, "--spares N"),
    ("size --need-tib -3", 1, "a capacity is more than nothing"),
    ("size --need-tib 0", 1, "try:   --need-tib 500        in TiB"),
    ("size --need-read-gbytes 900000", 1, "try:   --need-read-gbytes 440000"),
    ("size --need-read-gbytes 0", 1, "a speed is more than nothing"),
    ("size --drive-tb 7.68TiB --drives 24 --scheme ddp", 2, "--drive 6.98TiB takes other units"),
    ("size --drive-tb 7.68", 2, "not given: --drives, --scheme"),
    ("size", 2, "not given: --drive-tb, --drives, --scheme"),
    ("size --drives twelve", 2, "invalid value"),
    ("layout --scheme ddp --drives 11", 1, "try:   --drives 12"),
    ("layout --scheme ddp --drives 12 --slots 0-11", 1, "try:   --slots 6-17"),
    ("layout --scheme ddp --drives 12 --volume 4992", 1, "4992 of what?"),
    ("layout --scheme ddp --drives 12 --drive-tb 1.92 --volume 4TB", 1, "over-commit by 7 %"),
    ("layout --scheme ddp --drives 12 --script", 1, "--drive-tb 1.92"),
    ("layout --scheme raid6 --drives 20 --volumes 5", 1, "try:   --volumes 8"),
    ("layout --drives 12", 2, "--scheme"),
    ("limits", 1, "--server-link 100GbE --clients 1"),
    ("limits --server-link 100GbE", 1, "--clients 1"),
    ("limits --server-link 90GbE --clients 1", 1, "try:   100GbE"),
    ("limits --server-link EDR --clients 1 --transport tcp", 1, "infiniband or ipoib"),
    ("limits --preset ef600-ddp24 --drives 13", 1, "--drives 12 or 14"),
    ("limits --preset ef600-ddp24 --curve client", 1, "--curve clients"),
    ("limits --nodes 3", 2, "--server-link"),
    ("limits Cargo.toml", 1, "unknown field"),
    ("limits no/such.toml", 1, "cannot read no/such.toml"),
    ("io500 Cargo.toml", 1, "there is no phase"),
];

#[test]
fn errors_for_invalid_input_state_the_rule_and_the_nearest_choice() {
    for (line, status, part) in BAD {
        let arguments: Vec<_> = line.split(' ').collect();
        let (code, out, err) = run(&arguments);
        assert_eq!((code, out.as_str()), (Some(status), ""), "{line}: {err}");
        assert!(err.contains(part), "{line}: {err}");
        assert!(!err.contains("panicked"), "{line}: {err}");
        if status == 1 {
            assert!(err.starts_with("error: "), "{line}: {err}");
            assert!(err.contains("\n  cause: ") && err.contains("\n  try:   "), "{line}: {err}");
        }
    }
}

#[test]
fn files_that_are_not_text_incomplete_or_unwritable_are_errors() {
    let directory = temp_dir("plan");
    let file = |name: &str, bytes: &[u8]| {
        let file = directory.path().join(name);
        std::fs::write(&file, bytes).expect("a file");
        file.to_str().expect("a name in UTF-8").to_owned()
    };
    let (binary, clients) =
        (file("binary", &[0xff, 0xfe, 0]), file("clients.toml", b"[server]\nlink = \"EDR\"\n"));
    for (arguments, part) in [
        (["limits", binary.as_str()], "it is not text"),
        (["io500", binary.as_str()], "it is not text"),
        (["limits", clients.as_str()], "[clients]"),
    ] {
        let (code, _, err) = run(&arguments);
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(part) && err.contains("  try:   "), "{err}");
    }
    let svg = directory.path().join("no/such/curve.svg");
    let svg = svg.to_str().expect("a name in UTF-8");
    let (code, _, err) = run(&["limits", "--preset", "ef600-ddp24", "--curve", "clients", "--svg", svg]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("cannot write"), "{err}");
}
