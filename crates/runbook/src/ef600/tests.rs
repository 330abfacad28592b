//! The scripts against the figures of the guide, compared as parsed commands; docs/DEVIATIONS.md
//! lists where a figure is corrected first.

mod meaning;

use crate::{Artifact, runbook};
use std::collections::{BTreeMap, BTreeSet};

/// An SMcli command: its words in order, and its parameters in any order.
type Command = (Vec<String>, BTreeMap<String, String>);

/// Reads SMcli commands, without messages and comments.
fn commands(text: &str) -> Vec<Command> {
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let split = code.join(" ");
    let read = split
        .split(';')
        .map(str::trim)
        .filter(|command| !command.is_empty() && !command.starts_with("show "));
    read.map(command).collect()
}

fn command(text: &str) -> Command {
    let (mut words, mut parameters) = (Vec::new(), BTreeMap::new());
    // A list of drives has blanks within its parentheses.
    let (mut depth, mut word) = (0, String::new());
    for c in text.chars().chain([' ']) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if !c.is_whitespace() || depth > 0 {
            word.push(if c.is_whitespace() { ' ' } else { c });
        } else if let Some((key, value)) = word.split_once('=') {
            let value = value.replace(['(', ')'], " ");
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(parameters.insert(key.to_owned(), value).is_none(), "{key} twice in {text}");
            word.clear();
        } else if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
    }
    (words, parameters)
}

/// The guide's site: figures 5, 9, 13, 16 and 17.
const GUIDE_SITE: &str = r#"
name = "guide"
[[array]]
name = "de0704"
management = ["172.30.25.107", "172.30.25.108"]
domain = "hpc.eu.lenovo.com"
scheme = "raid6"
drives = 20
volume = "4992GiB"
drive_tb = 1.92
ports = [
    { controller = "a", port = "1a", address = "172.30.57.107" },
    { controller = "a", port = "1b", address = "172.30.57.108" },
    { controller = "a", port = "2a", address = "172.30.57.109" },
    { controller = "a", port = "2b", address = "172.30.57.110" },
    { controller = "b", port = "1a", address = "172.30.57.111" },
    { controller = "b", port = "1b", address = "172.30.57.112" },
    { controller = "b", port = "2a", address = "172.30.57.113" },
    { controller = "b", port = "2b", address = "172.30.57.114" },
]
[hosts]
os = "rhel8"
interface = "ib0"
nqn_prefix = "nqn.2020-12.com.lenovo.eu.hpc:nvme:"
[[host]]
name = "cmp[2501-2554]"
address = "172.30.60.1"
"#;

fn files(site: &str) -> Vec<Artifact> {
    runbook(site).expect("a valid site")
}

fn text<'a>(files: &'a [Artifact], path: &str) -> &'a str {
    let found = files.iter().find(|file| file.path == path);
    &found.unwrap_or_else(|| panic!("no {path}")).text
}

// Deploying NetApp EF600, figure 9, in two scripts, and `on error stop` as in figures 11, 13, 16.
#[test]
fn the_basic_configuration_is_that_of_figure_9() {
    let mut figure = vec![
        "on error stop".to_owned(),
        "set storageArray userLabel=\"de0704-ef600\"".to_owned(),
        "set storageArray time".to_owned(),
        "set storageArray cacheBlockSize=32".to_owned(),
        "set storageArray cacheFlushStart=50".to_owned(),
        "set storageArray mediaScanRate=30".to_owned(),
        "set storageArray autoLoadBalancingEnable=false".to_owned(),
        "set storageArray hostConnectivityReporting disable".to_owned(),
        "set storageArray defaultHostType=28".to_owned(),
    ];
    let ports = ["1a", "1b", "2a", "2b"];
    for (number, (controller, port)) in
        ["a", "b"].iter().flat_map(|c| ports.iter().map(move |p| (c, p))).enumerate()
    {
        let address = format!("172.30.57.{}", 107 + number);
        figure.push(format!("set controller [{controller}] hostPort [\"{port}\"] IPV4Address={address}"));
    }
    let files = files(GUIDE_SITE);
    let basic = commands(text(&files, "array-de0704/10-basic.smcli"));
    let mut ports = commands(text(&files, "array-de0704/15-ports.smcli"));
    assert_eq!(ports.remove(0), command("on error stop"));
    assert!(basic.iter().all(|(words, _)| words[1] != "controller"));
    assert_eq!([basic, ports].concat(), commands(&figure.join(";\n")));
}

// Deploying NetApp EF600, figures 11 and 13.
#[test]
fn the_volumes_are_those_of_figures_11_and_13() {
    let raid6 = files(GUIDE_SITE);
    let figure = include_str!("../../../plan/tests/data/figure-13.smcli");
    assert_eq!(commands(text(&raid6, "array-de0704/20-volumes.smcli")), commands(figure));
    let pool = GUIDE_SITE
        .replace("raid6", "ddp")
        .replace("drives = 20", "drives = 24")
        .replace("4992GiB", "4096GiB");
    let pool = files(&pool);
    // The figure has `all Volumes` here and `allVolumes` in figure 13; both are the same command.
    let figure =
        include_str!("../../../plan/tests/data/figure-11.smcli").replace("all Volumes", "allVolumes");
    assert_eq!(commands(text(&pool, "array-de0704/20-volumes.smcli")), commands(&figure));
}

// Deploying NetApp EF600, figure 16: hosts cmp2501 to cmp2554.
#[test]
fn the_host_topology_is_that_of_figure_16() {
    let mut figure = vec!["on error stop".to_owned(), "create hostGroup userLabel=\"de0704_hg1\"".to_owned()];
    let hosts = 2501..=2554;
    for host in hosts.clone() {
        figure.push(format!("create host userLabel=\"cmp{host}\" hostType=28 hostGroup=\"de0704_hg1\""));
    }
    for host in hosts {
        figure.push(format!(
            "create initiator identifier=\"nqn.2020-12.com.lenovo.eu.hpc:nvme:cmp{host}-ib0\" userLabel=\"cmp{host}-ib0\" \
             host=\"cmp{host}\" interfaceType=nvmeof"
        ));
    }
    let files = files(GUIDE_SITE);
    assert_eq!(commands(text(&files, "array-de0704/40-hosts.smcli")), commands(&figure.join(";\n")));
}

// Deploying NetApp EF600, figure 17, and `on error stop` as in figures 11, 13 and 16.
#[test]
fn the_mappings_are_those_of_figure_17() {
    let figure = "on error stop;
        set volume [\"de0704a01v1\"] logicalUnitNumber=1 hostGroup=\"de0704_hg1\";
        set volume [\"de0704a01v2\"] logicalUnitNumber=2 hostGroup=\"de0704_hg1\";
        set volume [\"de0704a02v1\"] logicalUnitNumber=3 hostGroup=\"de0704_hg1\";
        set volume [\"de0704a02v2\"] logicalUnitNumber=4 hostGroup=\"de0704_hg1\";";
    let files = files(GUIDE_SITE);
    assert_eq!(commands(text(&files, "array-de0704/50-map.smcli")), commands(figure));
}

// Deploying NetApp EF600, figure 5.
#[test]
fn the_lines_for_etc_hosts_are_those_of_figure_5() {
    let mut figure = BTreeMap::new();
    for (number, letter) in [(107, 'a'), (108, 'b')] {
        figure.insert(format!("172.30.25.{number}"), format!("de0704{letter}"));
    }
    for (number, name) in
        (107..).zip(["a-ib0", "a-ib1", "a-ib2", "a-ib3", "b-ib0", "b-ib1", "b-ib2", "b-ib3"])
    {
        figure.insert(format!("172.30.57.{number}"), format!("de0704{name}"));
    }
    let files = files(GUIDE_SITE);
    let lines = text(&files, "array-de0704/hosts.txt").lines().filter(|line| !line.starts_with('#'));
    let found: BTreeMap<_, _> = lines
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            assert_eq!(words[2], format!("{}.hpc.eu.lenovo.com", words[1]));
            (words[0].to_owned(), words[1].to_owned())
        })
        .collect();
    assert_eq!(found, figure);
}

/// Everything that is created is removed again, in an order in which that is possible.
#[test]
fn the_undo_scripts_name_everything_that_was_created() {
    let files = files(GUIDE_SITE);
    let of = |path: &str| commands(text(&files, &format!("array-de0704/{path}")));
    let created = |path: &str, kind: &str| -> BTreeSet<String> {
        let all = of(path).into_iter().filter(|(words, _)| words[..] == ["create", kind]);
        all.map(|(_, parameters)| parameters["userLabel"].clone()).collect()
    };
    let removed = |path: &str, kind: &str| -> BTreeSet<String> {
        let all = of(path).into_iter().filter(|(words, _)| words[..2] == ["delete", kind]);
        all.map(|(words, _)| words[2].trim_matches(['[', ']']).to_owned()).collect()
    };
    for (path, undo, kind) in [
        ("20-volumes.smcli", "undo-20-volumes.smcli", "volume"),
        ("20-volumes.smcli", "undo-20-volumes.smcli", "volumeGroup"),
        ("40-hosts.smcli", "undo-40-hosts.smcli", "host"),
        ("40-hosts.smcli", "undo-40-hosts.smcli", "initiator"),
        ("40-hosts.smcli", "undo-40-hosts.smcli", "hostGroup"),
    ] {
        let all = created(path, kind);
        assert!(!all.is_empty());
        assert_eq!(removed(undo, kind), all, "{kind}");
    }
    assert_eq!(of("undo-50-map.smcli").len(), of("50-map.smcli").len());
    let last = of("undo-40-hosts.smcli").pop().expect("a command");
    assert_eq!(last.0[..2], ["delete", "hostGroup"], "a group is removed after its hosts");
}

/// Other arrays than the guide's: a pool, and ports of RoCE.
fn sites() -> [String; 3] {
    let pool = GUIDE_SITE.replace("raid6", "ddp").replace("drives = 20", "drives = 24");
    let roce = "fabric = \"roce\"\nsubnet_mask = \"255.255.255.0\"\nmtu = 9000\nscheme =";
    [GUIDE_SITE.to_owned(), pool.replace("4992GiB", "4096GiB"), GUIDE_SITE.replace("scheme =", roce)]
}

/// SMcli, REST, Ansible and what is verified afterwards say the same about settings, addresses,
/// pools, volumes, hosts and mappings.
#[test]
fn all_forms_of_a_configuration_mean_the_same() {
    for site in sites() {
        let files = files(&site);
        let scripts = meaning::of_scripts(&files);
        // Settings, 8 ports, a pool or two groups, 4 volumes, 54 hosts in a group, 4 mappings.
        assert!([126, 127].contains(&scripts.len()), "{scripts:#?}");
        assert_eq!(meaning::of_requests(&files), scripts, "REST");
        assert_eq!(meaning::of_playbook(&files), scripts, "Ansible");
        assert_eq!(meaning::of_plan(&files), scripts, "plan.json");
    }
}

/// What SMcli alone sets is verified too, under the names of the REST interface.
#[test]
fn what_smcli_alone_sets_is_in_the_plan_that_is_verified() {
    for site in sites() {
        let files = files(&site);
        let settings = text(&files, "array-de0704/25-volume-settings.smcli");
        let plan: serde_json::Value =
            serde_json::from_str(text(&files, "array-de0704/plan.json")).expect("JSON");
        assert!(settings.contains("set storageArray mediaScanRate=30;"), "{settings}");
        assert_eq!(plan["settings"]["media scan period in days"], 30);
        let pools = plan["pools"].as_array().expect("pools").iter();
        let volumes: Vec<_> = pools.flat_map(|pool| pool["volumes"].as_array().expect("volumes")).collect();
        assert_eq!(volumes.len(), 4);
        for volume in volumes {
            let name = volume["name"].as_str().expect("a name");
            let properties = &volume["properties"];
            for (line, key, value) in [
                (
                    "set allVolumes cacheFlushModifier=10;".to_owned(),
                    "cache flush",
                    serde_json::json!("flush10Sec"),
                ),
                ("set allVolumes mediaScanEnabled=true;".to_owned(), "media scan", serde_json::json!(true)),
                (
                    format!("set volume [\"{name}\"] redundancyCheckEnabled=true;"),
                    "redundancy check",
                    serde_json::json!(true),
                ),
            ] {
                assert!(settings.contains(&line), "{line} is not in\n{settings}");
                assert_eq!(properties[key], value, "{name}: {key}");
            }
        }
    }
}

/// A value that differs in one form only is found, so that the test above can fail.
#[test]
fn a_form_that_differs_in_one_value_means_something_else() {
    for (path, from, to) in [
        ("playbook.yml", "cache_flush_threshold: 50", "cache_flush_threshold: 80"),
        ("playbook.yml", "address: 172.30.57.112", "address: 172.30.57.113"),
        ("playbook.yml", "owning_controller: B", "owning_controller: A"),
        ("playbook.yml", "lun: 3", "lun: 4"),
        ("playbook.yml", "          - \"cmp2530\"\n", ""),
        ("rest-requests.json", "\"lun\": 3", "\"lun\": 4"),
        ("rest-requests.json", "\"readAheadEnable\": false", "\"readAheadEnable\": true"),
        ("rest-requests.json", "cmp2530-ib0\"", "cmp2531-ib0\""),
        ("plan.json", "\"owner\": \"B\"", "\"owner\": \"A\""),
    ] {
        let mut files = files(GUIDE_SITE);
        let right = meaning::of_scripts(&files);
        let file = files.iter_mut().find(|file| file.path == format!("array-de0704/{path}")).expect("a file");
        assert!(file.text.contains(from), "{path} has no {from}");
        file.text = file.text.replacen(from, to, 1);
        let of = match path {
            "playbook.yml" => meaning::of_playbook,
            "plan.json" => meaning::of_plan,
            _ => meaning::of_requests,
        };
        assert_ne!(of(&files), right, "{path}: {to}");
    }
}

/// Volumes are mapped last, after the wait for formatting.
#[test]
fn volumes_are_mapped_when_they_are_formatted() {
    let files = files(GUIDE_SITE);
    let requests: serde_json::Value =
        serde_json::from_str(text(&files, "array-de0704/rest-requests.json")).expect("JSON");
    let list = requests["requests"].as_array().expect("a list");
    let place = |wanted: &str| list.iter().position(|request| request["path"] == wanted).expect("a request");
    assert!(place("/symbol/getLongLivedOpsProgress") < place("/volume-mappings"));
    assert!(place("/volumes") < place("/symbol/getLongLivedOpsProgress"));
    let playbook = text(&files, "array-de0704/playbook.yml");
    let place = |wanted: &str| playbook.find(wanted).expect("a task");
    assert!(place("./30-wait-formatted.sh") < place("na_santricity_lun_mapping:\n        volume_name"));
    assert!(place("na_santricity_volume:\n        name") < place("./30-wait-formatted.sh"));
}

#[test]
fn ports_of_roce_have_netmask_and_mtu() {
    let site = GUIDE_SITE
        .replace("scheme =", "fabric = \"roce\"\nsubnet_mask = \"255.255.255.0\"\nmtu = 9000\nscheme =");
    let files = files(&site);
    let found = commands(text(&files, "array-de0704/15-ports.smcli")).pop().expect("a command");
    let wanted = "set controller [b] hostPort [\"2b\"] IPV4ConfigurationMethod=static IPV4Address=172.30.57.114 \
                  IPV4SubnetMask=255.255.255.0 maxFramePayload=9000";
    assert_eq!(found, command(wanted));
}

/// A secret appears in no file: there is none in a site file, and each file that needs one reads
/// it.
#[test]
fn no_file_has_a_password() {
    for file in files(GUIDE_SITE) {
        let lines = file.text.lines().map(str::trim);
        for line in lines.filter(|line| line.contains("assword") || line.starts_with("SMcli")) {
            assert!(!line.contains(" -p "), "{}: {line}", file.path);
            let value = line.strip_prefix("api_password:").or(line.strip_prefix("url_password:"));
            assert!(value.is_none_or(|value| value.contains("lookup('env'")), "{}: {line}", file.path);
        }
        if file.path.ends_with("run.sh") {
            assert!(file.text.contains("EF600_PASSWORD_FILE") && file.text.contains(" -P "));
        }
    }
}
