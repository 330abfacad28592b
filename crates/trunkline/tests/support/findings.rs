//! What `trunkline check --json` said.

use serde_json::Value;

/// The findings that are neither ok nor unknown, in order, as `fail net.mtu`. Each says what was
/// seen, where, why it matters and what mends it.
#[track_caller]
pub fn bad_findings(said: &str) -> Vec<String> {
    let value: Value = serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let findings = value["findings"].as_array().expect("findings");
    assert!(findings.len() > 8, "the rules have looked: {said}");
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let mut bad = Vec::new();
    for finding in findings {
        let status = text(finding, "status");
        if status == "warn" || status == "fail" {
            let complete = ["seen", "source", "why", "mend"].iter().all(|key| !text(finding, key).is_empty());
            assert!(complete, "{finding}");
            bad.push(format!("{status} {}", text(finding, "rule")));
        }
    }
    bad.sort_unstable();
    bad
}
