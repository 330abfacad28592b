//! Checks which crate depends on which, against the table of layers.
//!
//! A dependency that is not in the table is not allowed, so a new one is a decision that shows in a
//! diff. The table is in the order of the layers, and a crate may only use crates above it in the
//! table, so there are no cycles.

use crate::workspace::{Dependency, Metadata, Package};

/// How a layer relates to the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// No I/O, clock, threads or unsafe code; uses only the listed external crates.
    Pure,
    /// Knows the operating system.
    Io,
    /// Drives pure state machines.
    Runtime,
    /// Measures, reports, tests.
    Tool,
    /// The program.
    Binary,
}

/// What one crate may depend on.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The name of its package, its directory and its library.
    pub(crate) name: &'static str,
    /// The layer of the crate.
    pub(crate) layer: Layer,
    /// The workspace's crates that it may use.
    ours: &'static [&'static str],
    /// Further crates of the workspace that its tests may use. All crates above the pure ones may
    /// use testkit.
    ours_in_tests: &'static [&'static str],
    /// The external crates that a pure crate may use. For others, docs/DEPENDENCIES.md decides.
    others: &'static [&'static str],
}

const fn pure(name: &'static str, ours: &'static [&'static str], others: &'static [&'static str]) -> Rule {
    Rule { name, layer: Layer::Pure, ours, ours_in_tests: &[], others }
}

const fn rule(
    name: &'static str,
    layer: Layer,
    ours: &'static [&'static str],
    ours_in_tests: &'static [&'static str],
) -> Rule {
    Rule { name, layer, ours, ours_in_tests, others: &[] }
}

/// Every crate of the workspace, from the lowest layer up.
pub(crate) const RULES: &[Rule] = &[
    pure("xdr", &[], &["thiserror"]),
    pure("fs", &[], &[]),
    pure("rpc", &["xdr"], &["thiserror", "smallvec"]),
    pure("drc", &["xdr", "rpc"], &["thiserror", "smallvec", "xxhash-rust"]),
    // The golden bytes of the tests are whole calls and replies, so the tests parse RPC first.
    Rule { ours_in_tests: &["rpc"], ..pure("nfs3", &["xdr", "fs", "drc"], &["thiserror", "smallvec"]) },
    pure("nfs4", &["xdr", "rpc", "fs"], &["thiserror"]),
    pure("nlm", &["xdr"], &[]),
    pure("nbd", &[], &["thiserror"]),
    pure("nvme", &[], &["thiserror", "crc32c"]),
    pure("chap", &["nvme"], &["thiserror", "base64ct", "crypto-bigint", "hmac", "sha2", "zeroize"]),
    pure("state", &[], &["siphasher", "thiserror", "xxhash-rust"]),
    pure("rpcrdma", &["xdr"], &["thiserror", "smallvec"]),
    pure("paths", &[], &["thiserror", "smallvec"]),
    pure("record", &[], &["thiserror", "serde", "serde_json", "hdrhistogram"]),
    pure("metrics", &[], &["thiserror", "serde", "serde_json", "hdrhistogram", "prometheus"]),
    pure("plan", &[], &["thiserror", "serde", "serde_json", "toml", "askama"]),
    pure("check", &[], &["serde", "serde_json"]),
    pure("runbook", &["plan"], &["thiserror", "serde", "serde_json", "toml", "askama"]),
    pure("fio", &["record"], &["thiserror", "serde", "serde_json"]),
    rule("testkit", Layer::Tool, &[], &[]),
    rule("memory", Layer::Io, &[], &[]),
    rule("verbs", Layer::Io, &[], &[]),
    rule("transport", Layer::Io, &["xdr", "rpc", "rpcrdma", "memory", "verbs"], &[]),
    rule("drives", Layer::Io, &["memory"], &[]),
    rule("ublk", Layer::Io, &[], &[]),
    rule("store", Layer::Runtime, &["fs", "memory"], &[]),
    rule("volumes", Layer::Runtime, &["metrics", "memory", "drives"], &[]),
    rule(
        "target",
        Layer::Runtime,
        &["nvme", "chap", "metrics", "memory", "transport", "drives", "volumes"],
        &[],
    ),
    // The host's tests run against our own target. The host itself does not depend on it.
    rule("initiator", Layer::Runtime, &["nvme", "chap", "transport"], &["drives", "volumes", "target"]),
    rule(
        "server",
        Layer::Runtime,
        &[
            "xdr",
            "rpc",
            "drc",
            "fs",
            "nfs3",
            "nfs4",
            "nlm",
            "state",
            "metrics",
            "memory",
            "transport",
            "store",
        ],
        &[],
    ),
    // The client's tests run against our own server. The client itself does not depend on it.
    rule(
        "client",
        Layer::Runtime,
        &[
            "xdr",
            "rpc",
            "drc",
            "fs",
            "nfs3",
            "nfs4",
            "nlm",
            "paths",
            "metrics",
            "memory",
            "verbs",
            "transport",
        ],
        &["server", "store"],
    ),
    rule("mount", Layer::Runtime, &["fs", "client"], &[]),
    rule(
        "attach",
        Layer::Runtime,
        &["nbd", "fs", "ublk", "initiator", "client"],
        &["volumes", "target", "server"],
    ),
    rule("lab", Layer::Tool, &[], &[]),
    // The limit is measured over the same sockets, and the files are made by name.
    rule(
        "bench",
        Layer::Tool,
        &[
            "record",
            "plan",
            "fio",
            "fs",
            "metrics",
            "memory",
            "verbs",
            "transport",
            "store",
            "server",
            "client",
            "target",
            "initiator",
        ],
        &[],
    ),
    rule("acceptance", Layer::Tool, &["record", "fs", "transport", "client", "bench"], &[]),
    rule("copy", Layer::Tool, &["fs", "client"], &["server", "store"]),
    rule("report", Layer::Tool, &["record"], &[]),
    // The tests inspect what is on the wire, and run the acceptance benchmark with the program.
    rule(
        "trunkline",
        Layer::Binary,
        &[
            "fs",
            "record",
            "metrics",
            "plan",
            "check",
            "fio",
            "store",
            "server",
            "target",
            "client",
            "initiator",
            "attach",
            "mount",
            "copy",
            "lab",
            "bench",
            "report",
            "runbook",
        ],
        &[
            "xdr",
            "rpc",
            "drc",
            "nfs3",
            "nfs4",
            "nlm",
            "nvme",
            "rpcrdma",
            "paths",
            "memory",
            "verbs",
            "transport",
            "volumes",
            "acceptance",
        ],
    ),
];

/// External crates that the tests of every crate may use, including pure ones.
const OTHERS_IN_TESTS: [&str; 3] = ["fastrand", "proptest", "tempfile"];

/// A sentence for every dependency that is not allowed.
pub(crate) fn findings(metadata: &Metadata) -> Vec<String> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        if package.name == "xtask" {
            findings.extend(xtask_stands_alone(package));
            continue;
        }
        match RULES.iter().find(|rule| rule.name == package.name) {
            Some(rule) => findings.extend(package.dependencies.iter().filter_map(|used| refuse(rule, used))),
            None => findings.push(format!(
                "{} has no place in the layers; give it one in xtask/src/layers.rs and ARCHITECTURE.md",
                package.name
            )),
        }
    }
    findings
}

/// The sentence about this dependency, if it is not allowed.
fn refuse(rule: &Rule, used: &Dependency) -> Option<String> {
    let (user, name, in_tests) = (rule.name, used.name.as_str(), used.kind.as_deref() == Some("dev"));
    if is_ours(&used.name) {
        let testkit = in_tests && name == "testkit" && rule.layer != Layer::Pure;
        let allowed =
            rule.ours.contains(&name) || (in_tests && rule.ours_in_tests.contains(&name)) || testkit;
        let place = if in_tests { "the tests of " } else { "" };
        let able = if rule.ours.is_empty() { "none of ours".to_owned() } else { rule.ours.join(", ") };
        return (!allowed).then(|| {
            format!(
                "{place}{user} must not use {name}; {user} may use {able}. Move what is shared down, or \
                     decide otherwise in xtask/src/layers.rs and docs/decisions"
            )
        });
    }
    let allowed = rule.layer != Layer::Pure
        || rule.others.contains(&name)
        || (in_tests && OTHERS_IN_TESTS.contains(&name));
    (!allowed)
        .then(|| format!("{user} is pure and must not use {name}; it may use {}", rule.others.join(", ")))
}

/// xtask must build even when the project does not.
fn xtask_stands_alone(package: &Package) -> Option<String> {
    let ours = package.dependencies.iter().find(|used| is_ours(&used.name))?;
    Some(format!("xtask must not use {}; it has to run when the project does not build", ours.name))
}

fn is_ours(package: &str) -> bool {
    RULES.iter().any(|rule| rule.name == package)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(user: &str, used: &str, kind: Option<&str>) -> Metadata {
        let dependency = Dependency { name: used.to_owned(), kind: kind.map(str::to_owned) };
        let package = Package { name: user.to_owned(), dependencies: vec![dependency], targets: Vec::new() };
        Metadata { packages: vec![package] }
    }

    #[test]
    fn a_crate_only_names_crates_that_stand_before_it() {
        for (place, rule) in RULES.iter().enumerate() {
            for used in rule.ours.iter().chain(rule.ours_in_tests) {
                let below = RULES.iter().position(|other| other.name == *used);
                assert!(below.is_some_and(|below| below < place), "{} names {used}", rule.name);
            }
        }
    }

    #[test]
    fn an_arrow_back_up_fails_with_a_sentence() {
        let findings = findings(&workspace("rpc", "nfs3", None));
        assert!(findings[0].starts_with("rpc must not use nfs3; rpc may use xdr."), "{findings:?}");
    }

    #[test]
    fn tests_may_use_more_than_the_crate_itself() {
        let in_tests = workspace("client", "server", Some("dev"));
        assert_eq!(findings(&in_tests), Vec::<String>::new());
        assert_eq!(findings(&workspace("client", "server", None)).len(), 1);
    }

    #[test]
    fn a_file_protocol_is_known_to_no_layer_above_the_client() {
        for user in ["mount", "copy", "bench", "acceptance", "trunkline"] {
            assert_eq!(findings(&workspace(user, "nfs3", None)).len(), 1, "{user}");
        }
        assert_eq!(findings(&workspace("trunkline", "nfs3", Some("dev"))).len(), 0);
    }

    #[test]
    fn pure_crates_take_few_of_others() {
        assert_eq!(findings(&workspace("xdr", "rustix", None)).len(), 1);
        assert_eq!(findings(&workspace("xdr", "proptest", Some("dev"))).len(), 0);
        assert_eq!(findings(&workspace("server", "rustix", None)).len(), 0);
    }

    #[test]
    fn a_crate_without_a_place_is_refused() {
        let findings = findings(&workspace("magic", "thiserror", None));
        assert!(findings[0].contains("has no place in the layers"), "{findings:?}");
    }
}
