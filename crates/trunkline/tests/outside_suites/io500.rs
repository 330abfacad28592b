//! The real io500, with its ior, mdtest and pfind, in a directory and on a mount of an embedded
//! group.

use crate::cases::{run, suite};
use std::process::Command;
use std::time::Duration;

/// Small enough for a minute: the runs are invalid anyhow.
const SETTINGS: &str = "[ior-easy]\nblockSize = 64m\n[mdtest-easy]\nn = 300\n[mdtest-hard]\nn = 300\n\
                        [ior-hard]\nsegmentCount = 300\n";

#[test]
fn io500_has_a_score_of_its_own_phases_on_each_route() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    std::fs::create_dir(path.join("local")).unwrap();
    std::fs::write(path.join("small.ini"), SETTINGS).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.current_dir(path);
    command.args(["bench", "--io500", "--io500-seconds", "2", "--io500-ini", "small.ini", "--suite-dir"]);
    command.arg(suite()).args(["--io500-results", "results", "local", "group:2?nconnect=2"]);
    let ended = run(command, Duration::from_secs(500));
    assert!(ended.status.is_some_and(|status| status.success()), "{}", ended.tail());
    assert_eq!(ended.output.matches("the run marks its score as invalid").count(), 2, "{}", ended.tail());
    let text = std::fs::read_to_string(path.join("results/comparison.json")).unwrap();
    let comparison: serde_json::Value = serde_json::from_str(&text).unwrap();
    for run in comparison["runs"].as_array().unwrap() {
        let phases = run["phases"].as_array().unwrap();
        assert_eq!(phases.len(), 12, "{run}");
        assert!(phases.iter().all(|phase| phase["value"].as_f64().unwrap() > 0.0), "{run}");
        let warnings = run["warnings"].to_string();
        assert!(
            !warnings.contains("not that of its phases"),
            "the score is the one that io500 states: {run}"
        );
        assert_eq!(warnings.matches("wrote for less than 300 s").count(), 4, "{run}");
    }
    assert_eq!(std::fs::read_dir(path.join("local")).unwrap().count(), 0, "the data are removed");
}
