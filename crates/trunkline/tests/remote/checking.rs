//! `trunkline check`: of captures that hosts and arrays printed, and of a server that runs.

use super::fixtures::{TestServer, fails, prints, run};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};

/// Captures of a host whose interface has an MTU of 9000, but whose RDMA device was brought up
/// before that; of a multipath device without one of its paths; of a cluster without NFSv3.
const CAPTURES: &[(&str, &str)] = &[
    (
        "ibv_devinfo.txt",
        "hca_id: irdma0\n\ttransport:\t\tInfiniBand (0)\n\tfw_ver:\t\t1.72\n\t\tport:\t1\n\
         \t\t\tstate:\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t4096 (5)\n\t\t\tactive_mtu:\t1024 (3)\n\
         \t\t\tlink_layer:\tEthernet\n",
    ),
    ("rdma-link.txt", "link irdma0/1 state ACTIVE physical_state LINK_UP netdev ens6f0\n"),
    ("sys-net.txt", "/sys/class/net/ens6f0/mtu:9000\n"),
    (
        "multipath.txt",
        "eui.00000eb55bacd37f dm-3 NVME, NetApp E-Series\n\
         size=2.4T features='1 queue_if_no_path' hwhandler='0' wp=rw\n\
         |-+- policy='service-time 0' prio=50 status=active\n\
         | `- 4:0:4:0 nvme4n4 259:70  active ready running\n\
         `-+- policy='service-time 0' prio=10 status=enabled\n\
         \x20 `- 0:0:4:0 nvme0n4 259:6   failed faulty running\n",
    ),
    (
        "isi-nfs-settings.txt",
        "NFS Service Enabled: Yes\n      NFSv3 Enabled: No\n        NFSv3 RDMA Enabled: Yes\n\
         \x20     NFSv4 Enabled: Yes\n     Rquota Enabled: No\n",
    ),
];

fn captures() -> TempDir {
    let directory = tempdir().expect("a directory");
    for (name, text) in CAPTURES {
        fs::write(directory.path().join(name), text).expect("a capture");
    }
    directory
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn captured_output_is_checked_with_what_would_mend_it() {
    let directory = captures();
    let (code, out, err) = run(&["check", "--from", text(directory.path())]);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    for expected in [
        "ok      rdma.port-state          irdma0 port 1: PORT_ACTIVE, firmware 1.72\n",
        "warn    rdma.mtu                 irdma0 port 1: active RDMA MTU 1024; ens6f0 has an MTU of 9000\n",
        "        mend   ip link set dev ens6f0 mtu 9000    # if the device keeps its MTU",
        "fail    multipath.paths          dm-3 (eui.00000eb55bacd37f, DM-Multipath): 2 paths of 2, not usable: \
         nvme0n4 (failed faulty running)\n",
        "fail    powerscale.nfs3          NFSv3 Enabled: false\n",
    ] {
        assert!(out.contains(expected.trim_end_matches(' ')), "{expected}\n---\n{out}");
    }
    assert!(out.ends_with(" ok, 1 warn, 2 fail, 0 unknown\n"), "{out}");
    let (_, quiet, _) = run(&["check", "--quiet", "--from", text(directory.path())]);
    assert!(!quiet.contains("\nok ") && quiet.contains("multipath.paths"), "{quiet}");
    // A plan for more paths is another fault of the same device.
    fs::write(directory.path().join("multipath.txt"), CAPTURES[3].1.replace("failed faulty", "active ready"))
        .expect("a capture");
    fs::remove_file(directory.path().join("isi-nfs-settings.txt")).expect("removed");
    let (code, out, _) = run(&["check", "--from", text(directory.path())]);
    assert_eq!(code, Some(0), "warnings are no failure: {out}");
    let (code, out, _) = run(&["check", "--from", text(directory.path()), "--paths", "4"]);
    assert!(code == Some(1) && out.contains("2 paths of 4"), "{out}");
}

#[test]
fn json_has_every_finding_with_its_evidence() {
    let directory = captures();
    let (code, out, _) = run(&["check", "--json", "--from", text(directory.path())]);
    assert_eq!(code, Some(1));
    let value: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(value["status"], "fail");
    let findings = value["findings"].as_array().expect("an array");
    let find = |rule: &str| findings.iter().find(|finding| finding["rule"] == rule).expect("the rule");
    let paths = find("multipath.paths");
    assert_eq!(paths["status"], "fail");
    assert_eq!(paths["source"], text(&directory.path().join("multipath.txt")));
    assert!(
        ["seen", "why", "mend"].iter().all(|key| paths[key].as_str().is_some_and(|text| !text.is_empty()))
    );
    assert_eq!(find("rdma.link-layer")["status"], "ok");
}

#[test]
fn captures_are_listed_saved_and_read_back() {
    let listed = prints(&["check", "--captures"]);
    assert!(listed.contains("rdma-link.txt") && listed.contains("rdma link show"), "{listed}");
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CLI.md");
    let document = fs::read_to_string(document).expect("the document");
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        assert!(document.contains(&format!("`{name}`")), "docs/CLI.md does not name {name}");
    }
    assert!(listed.contains("isi nfs settings global view    # on the array"), "{listed}");
    let directory = tempdir().expect("a directory");
    let saved = directory.path().join("saved");
    let (_, live, err) = run(&["check", "--json", "--save", text(&saved)]);
    assert_eq!(err, "");
    let (_, again, _) = run(&["check", "--json", "--from", text(&saved)]);
    let rules = |text: &str| {
        let value: Value = serde_json::from_str(text).expect("JSON");
        let findings = value["findings"].as_array().expect("an array").clone();
        findings
            .iter()
            .map(|of| (of["rule"].clone(), of["status"].clone(), of["seen"].clone()))
            .collect::<Vec<_>>()
    };
    assert!(rules(&live).iter().any(|(rule, ..)| rule == "limits.open-files"), "{live}");
    assert_eq!(rules(&live), rules(&again));
    let error = fails(&["check", "--save", text(&saved)]);
    assert!(error.contains("exists"), "{error}");
    let empty = tempdir().expect("a directory");
    let error = fails(&["check", "--from", text(empty.path())]);
    assert!(error.contains("trunkline check --captures"), "{error}");
    assert!(fails(&["check", "--from", text(&empty.path().join("none"))]).contains("No such file"));
}

/// The sources below a directory, without tests.
fn sources(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            found.push(fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// A rule in a text between these marks: an area, a dot and a name.
fn rules(text: &str, mark: char) -> std::collections::BTreeSet<&str> {
    const AREAS: [&str; 13] = [
        "rdma",
        "net",
        "tcp",
        "limits",
        "nfs",
        "nvme",
        "multipath",
        "block",
        "clock",
        "powerscale",
        "server",
        "capture",
        "expected",
    ];
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_rule = |word: &&str| {
        let parts = word.split_once('.');
        parts.is_some_and(|(area, name)| {
            AREAS.contains(&area) && !matches!(name, "" | "txt" | "sh") && name.chars().all(is_plain)
        })
    };
    text.split(mark).filter(is_rule).collect()
}

/// Users look rules up by their names.
#[test]
fn each_rule_is_in_the_list_of_the_document_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    for directory in ["crates/check/src/rules", "crates/trunkline/src/check"] {
        sources(&root.join(directory), &mut texts);
    }
    let all = texts.concat();
    let known = rules(&all, '"');
    assert!(known.len() > 50 && known.contains("multipath.native"), "{known:?}");
    let document = fs::read_to_string(root.join("docs/CLI.md")).expect("the document");
    let (_, list) = document.split_once("\nThe rules, by area").expect("the list");
    let (list, _) = list.split_once("\n## ").expect("its end");
    assert_eq!(rules(list, '`'), known);
}

/// Captures that say nothing are listed with the reason, and a check that judges nothing fails.
#[test]
fn captures_that_show_nothing_are_listed_and_are_no_success() {
    let directory = captures();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("numa.txt"), "").expect("a capture");
    fs::write(at("ip-addr.txt"), "bash: ip: command not found\n").expect("a capture");
    let (_, out, _) = run(&["check", "--from", text(directory.path())]);
    let listed = out.split("\nnot seen:\n").nth(1).expect("what was not seen");
    assert!(listed.starts_with("  missing: kernel-release.txt, "), "{out}");
    assert!(listed.contains("\n  empty: numa.txt\n  not understood: ip-addr.txt\n"), "{out}");
    assert!(!listed.contains("rdma-link.txt"), "{out}");
    let (_, quiet, _) = run(&["check", "--quiet", "--from", text(directory.path())]);
    assert!(!quiet.contains("not seen"), "{quiet}");
    let (_, out, _) = run(&["check", "--json", "--from", text(directory.path())]);
    let value: Value = serde_json::from_str(&out).expect("JSON");
    let not_seen = value["not_seen"].as_array().expect("an array");
    let reason = |name: &str| not_seen.iter().find(|of| of["name"] == name).map(|of| of["reason"].clone());
    for (name, expected) in
        [("numa.txt", "empty"), ("ip-addr.txt", "not understood"), ("sys-nvme.txt", "missing")]
    {
        assert_eq!(reason(name), Some(expected.into()), "{name}: {out}");
    }
    assert_eq!(reason("multipath.txt"), None, "{out}");
}

#[test]
fn captures_of_which_nothing_is_judged_are_a_failure() {
    for (contents, status) in [("", "unknown"), ("rubbish\n", "unknown")] {
        let directory = tempdir().expect("a directory");
        for name in ["ibv_devinfo.txt", "multipath.txt", "isi-nfs-settings.txt"] {
            fs::write(directory.path().join(name), contents).expect("a capture");
        }
        let (code, out, err) = run(&["check", "--from", text(directory.path())]);
        assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
        assert!(out.contains("\nnothing could be judged: "), "{out}");
        let (code, out, _) = run(&["check", "--json", "--from", text(directory.path())]);
        let value: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!((code, &value["status"]), (Some(1), &status.into()), "{out}");
    }
}

/// The finding of a rule in the output of a check of a server.
#[track_caller]
fn found(out: &str, rule: &str) -> (String, String) {
    let value: Value = serde_json::from_str(out).expect("JSON");
    let findings = value["findings"].as_array().expect("an array");
    let finding = findings.iter().find(|finding| finding["rule"] == rule);
    let finding = finding.unwrap_or_else(|| panic!("no {rule} in {out}"));
    let text = |key: &str| finding[key].as_str().expect("text").to_owned();
    (text("status"), text("seen"))
}

/// A server of version 3 alone.
const VERSION_3: [&str; 6] = ["--mem", "64MiB", "--listen", "127.0.0.1:0", "--nfs-versions", "3"];

#[test]
fn a_sound_server_passes_and_keeps_nothing() {
    let server = TestServer::with(&VERSION_3);
    let (_, out, err) = run(&["check", "--json", "--write", &server.url("")]);
    assert_eq!(err, "");
    let (status, seen) = found(&out, "server.version");
    assert_eq!(status, "ok", "{seen}");
    assert!(
        seen.starts_with("NFS version 3 over TCP at 127.0.0.1:") && seen.ends_with(": offered"),
        "{seen}"
    );
    assert!(
        out.contains("NFS version 4 over TCP") && out.contains("not offered; versions 3 to 3 are"),
        "{out}"
    );
    for rule in ["server.mount", "server.export", "server.rights", "server.write", "server.clock"] {
        let (status, seen) = found(&out, rule);
        assert_eq!(status, "ok", "{rule}: {seen}");
    }
    let value: Value = serde_json::from_str(&out).expect("JSON");
    let findings = value["findings"].as_array().expect("an array").iter();
    let mut of_server =
        findings.filter(|of| of["rule"].as_str().is_some_and(|rule| rule.starts_with("server.")));
    assert!(of_server.all(|finding| finding["status"] != "fail"), "{out}");
    assert_eq!(prints(&["ls", "-a", &server.url("")]), "");
    // Without --write it is told what was not looked at.
    let (_, out, _) = run(&["check", "--json", &server.url("")]);
    let (status, seen) = found(&out, "server.write");
    assert!(status == "unknown" && seen.contains("clock"), "{seen}");
    assert!(!out.contains("server.clock"), "{out}");
}

#[test]
fn minor_versions_that_a_server_offers_are_told() {
    for (versions, offered) in [
        ("3,4.1,4.2", "offered are 4.1, 4.2; not offered: 4.0"),
        ("3,4.2", "offered are 4.2; not offered: 4.0, 4.1"),
    ] {
        let server =
            TestServer::with(&["--mem", "64MiB", "--listen", "127.0.0.1:0", "--nfs-versions", versions]);
        let (_, out, err) = run(&["check", "--json", &server.url("")]);
        assert_eq!(err, "");
        let (status, seen) = found(&out, "server.minor-versions");
        assert!(status == "ok" && seen.ends_with(offered), "{versions}: {status} {seen}");
    }
    let server = TestServer::with(&VERSION_3);
    let (_, out, _) = run(&["check", "--json", &server.url("")]);
    assert!(!out.contains("server.minor-versions"), "version 4 is not offered: {out}");
}

#[test]
fn frames_are_sent_from_each_local_address_that_is_named() {
    let server = TestServer::start();
    let options = "localports=127.0.0.2~127.0.0.3";
    let (_, out, err) = run(&["check", "--json", "-o", options, &server.url("")]);
    assert_eq!(err, "");
    let value: Value = serde_json::from_str(&out).expect("JSON");
    let findings = value["findings"].as_array().expect("an array").iter();
    let of_mtu = findings.filter(|of| of["rule"] == "server.mtu");
    let sources: Vec<_> = of_mtu.filter_map(|of| of["source"].as_str()).collect();
    assert_eq!(sources.len(), 2, "{out}");
    for (source, local) in sources.iter().zip(["127.0.0.2", "127.0.0.3"]) {
        assert!(source.contains(&format!(" -I {local} 127.0.0.1")), "{source}");
    }
}

/// Captures of a host of the site in docs/examples that has seven of its eight paths.
#[test]
fn a_host_is_compared_with_its_plan() {
    let directory = tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let mut listed = "nvme-subsys0 - NQN=nqn.1992-08.com.netapp:6000\n\\\n".to_owned();
    for path in 0..7 {
        let address = 107 + path;
        listed.push_str(&format!(" +- nvme{path} rdma traddr=172.30.57.{address},trsvcid=4420 live\n"));
    }
    fs::write(at("nvme-list-subsys.txt"), listed).expect("a capture");
    fs::write(at("sys-module.txt"), "nvme_core\nnvme_fabrics\n").expect("a capture");
    fs::write(at("ip-addr.txt"), "2: ib0    inet 172.30.60.2/16 scope global ib0\n").expect("a capture");
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/site-ef600.toml");
    let check = |more: &[&str]| {
        let all = [&["check", "--from", text(directory.path()), "--plan", text(&site)], more].concat();
        run(&all)
    };
    let (code, out, err) = check(&["--host", "cmp02"]);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    for expected in [
        "ok      net.address              ib0 has 172.30.60.2, as planned\n",
        "fail    nvme.modules             NVMe: loaded are nvme_core, nvme_fabrics; not loaded: nvme_rdma\n",
        "ok      nvme.plan                de0704: rdma 172.30.57.113 port 4420 is nvme6\n",
        "fail    nvme.plan                de0704: no controller for rdma 172.30.57.114 port 4420, which the plan names\n",
        "fail    nvme.subsystem           nvme-subsys0 (nqn.1992-08.com.netapp:6000): 7 live paths of 8\n",
    ] {
        assert!(out.contains(expected), "{expected}\n---\n{out}");
    }
    assert!(out.ends_with(", 0 warn, 3 fail, 4 unknown\n"), "{out}");
    let (_, out, _) = check(&["--host", "cmp02", "--paths", "7"]);
    assert!(out.contains("7 live paths of 7"), "{out}");
    let (code, _, err) = check(&["--host", "cmp99"]);
    assert!(
        code == Some(1) && err.contains("no host cmp99") && err.contains("--host NAME, one of cmp01"),
        "{err}"
    );
    let (code, _, err) = check(&[]);
    assert!(code == Some(1) && err.contains("has several hosts"), "{err}");
}

#[test]
fn an_export_that_this_user_cannot_write_to_is_told() {
    let directory = tempdir().expect("a directory");
    let configuration = directory.path().join("serve.toml");
    let lines = "[[node]]\nlisten = [\"127.0.0.1:0\"]\n[[export]]\npath = \"/export\"\nmem = \"16MiB\"\n\
        allow = [\"127.0.0.0/8\"]\n";
    fs::write(&configuration, lines).expect("a configuration");
    let server = TestServer::with(&["-c", text(&configuration)]);
    let (code, out, _) = run(&["check", "--json", "--write", &server.url("")]);
    assert_eq!(code, Some(1), "{out}");
    assert_eq!(found(&out, "server.export").0, "ok");
    assert_eq!(found(&out, "server.write").0, "fail");
    let (status, seen) = found(&out, "server.rights");
    assert_eq!(status, "warn", "{seen}");
    assert!(seen.contains("may list, enter;"), "{seen}");
}

#[test]
fn a_server_that_is_not_there_and_an_export_that_is_not_are_told_apart() {
    let server = TestServer::start();
    let address = server.addresses()[0];
    let (code, out, _) = run(&["check", "--json", &format!("nfs://{address}/other")]);
    assert_eq!(code, Some(1));
    assert_eq!(found(&out, "server.version").0, "ok");
    let (status, seen) = found(&out, "server.export");
    assert!(status == "fail" && seen.contains("/other"), "{seen}");
    drop(server);
    let (code, out, _) = run(&["check", "--json", &format!("nfs://{address}/export?retry=0")]);
    assert_eq!(code, Some(1));
    assert_eq!(found(&out, "server.version").0, "fail");
    assert_eq!(found(&out, "server.mount").0, "fail");
    assert_eq!(found(&out, "server.export").0, "fail");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for arguments in [
        &["check", "--write"][..],
        &["check", "--from", "/x", "--save", "/y"],
        &["check", "--captures", "--json"],
        &["check", "--mtu", "1"],
        &["check", "--paths", "0"],
        &["check", "--host", "a"],
        &["check", "--interface", "a"],
    ] {
        let (code, _, err) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
    }
}
