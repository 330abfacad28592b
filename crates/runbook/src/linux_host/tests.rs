//! The hosts' files against the figures of the guide.

use crate::{Artifact, System, runbook};

fn files(site: &str) -> Vec<Artifact> {
    runbook(site).expect("a valid site")
}

fn text<'a>(files: &'a [Artifact], path: &str) -> &'a str {
    let found = files.iter().find(|file| file.path == path);
    &found.unwrap_or_else(|| panic!("no {path}")).text
}

/// The options of each line of a discovery.conf.
fn lines(text: &str) -> Vec<Vec<(&str, &str)>> {
    let read = text.lines().filter(|line| !line.starts_with('#'));
    read.map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut options: Vec<_> = words.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        options.sort_unstable();
        options
    })
    .collect()
}

// Deploying NetApp EF600, figure 21; the port is the one that nvme takes when it is told none.
#[test]
fn discovery_conf_is_that_of_figure_21() {
    let files = files(System::Ef600.site_file());
    let found = lines(text(&files, "hosts/by-name/cmp01/discovery.conf"));
    assert_eq!(found.len(), 8);
    for (number, options) in (107..).zip(&found) {
        let address = format!("172.30.57.{number}");
        let mut figure = vec![
            ("-t", "rdma"),
            ("-a", address.as_str()),
            ("-s", "4420"),
            ("-q", "nqn.2020-12.com.example.hpc:nvme:cmp01-ib0"),
            ("-Q", "1024"),
            ("-l", "3600"),
        ];
        figure.sort_unstable();
        assert_eq!(*options, figure);
    }
    assert_eq!(text(&files, "hosts/by-name/mgt01/hostnqn"), "nqn.2020-12.com.example.hpc:nvme:mgt01-ib0\n");
}

/// The settings of the device section of a multipath.conf.
fn device(text: &str) -> Vec<(String, String)> {
    let section = text.split_once("device {").expect("a device section").1;
    let section = section.split_once('}').expect("its end").0;
    let mut settings: Vec<_> = section
        .lines()
        .filter_map(|line| line.trim().split_once(char::is_whitespace))
        .map(|(key, value)| (key.to_owned(), value.trim().trim_matches('"').to_owned()))
        .collect();
    settings.sort_unstable();
    settings
}

// Deploying NetApp EF600, figure 18.
#[test]
fn multipath_conf_has_the_device_of_figure_18() {
    let mut figure = [
        ("vendor", "NVME"),
        ("product", "NetApp E-Series*"),
        ("path_grouping_policy", "group_by_prio"),
        ("failback", "immediate"),
        ("no_path_retry", "30"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()));
    figure.sort_unstable();
    let rhel8 = System::Ef600.site_file();
    for (site, is_native) in [(rhel8.to_owned(), true), (rhel8.replace("\"rhel8\"", "\"rhel7\""), false)] {
        let files = files(&site);
        let conf = text(&files, "hosts/files/multipath.conf");
        assert_eq!(device(conf), figure);
        assert_eq!(conf.contains("enable_foreign"), is_native);
        let rules = text(&files, "hosts/files/71-trunkline-nvme.rules");
        assert_eq!(rules.contains("mpath-"), !is_native);
        let program = text(&files, "hosts/files/trunkline-nvme");
        assert_eq!(program.contains("\niopolicy=round-robin\n"), is_native);
        assert!(program.contains("\nrequest_kib=1024\n"));
    }
}

#[test]
fn hosts_of_other_targets_need_no_multipath_conf() {
    let files = files(System::LinuxHost.site_file());
    assert!(files.iter().all(|file| !file.path.ends_with("multipath.conf")));
    assert_eq!(text(&files, "hosts/files/modules.conf"), "nvme-rdma\nnvme-tcp\n");
    let found = lines(text(&files, "hosts/by-name/node3/discovery.conf"));
    let transports: Vec<_> =
        found.iter().map(|options| options.iter().find(|option| option.0 == "-t")).collect();
    assert_eq!(
        transports,
        [Some(&("-t", "rdma")), Some(&("-t", "rdma")), Some(&("-t", "tcp")), Some(&("-t", "tcp"))]
    );
}

// Deploying NetApp EF600, section EF600 and InfiniBand Fabric Topologies.
#[test]
fn with_direct_cables_each_host_has_one_port_of_each_controller() {
    let site = System::Ef600.site_file();
    let site =
        site.replace("#topology = \"fabric\"", "topology = \"direct\"").replace("cmp[01-54]", "cmp[1-3]");
    let files = files(&site);
    let addresses = |host: &str| -> Vec<String> {
        let found = lines(text(&files, &format!("hosts/by-name/{host}/discovery.conf")));
        found.iter().flatten().filter(|(key, _)| *key == "-a").map(|(_, value)| (*value).to_owned()).collect()
    };
    assert_eq!(addresses("cmp1"), ["172.30.57.107", "172.30.57.111"]);
    assert_eq!(addresses("mgt01"), ["172.30.57.110", "172.30.57.114"]);
}
