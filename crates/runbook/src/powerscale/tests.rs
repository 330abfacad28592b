//! The cluster's commands and the clients' fstab lines against those that the sources print, as
//! parsed words; docs/DEVIATIONS.md lists what is corrected first.

use crate::{Artifact, System, runbook};
use std::collections::BTreeSet;

fn files(site: &str) -> Vec<Artifact> {
    runbook(site).unwrap_or_else(|error| panic!("{error}"))
}

fn text<'a>(files: &'a [Artifact], path: &str) -> &'a str {
    let found = files.iter().find(|file| file.path == path);
    &found.unwrap_or_else(|| panic!("no {path}")).text
}

/// A line of fstab: source, mount point, type, and the options as a set.
type Line = (String, String, String, BTreeSet<String>);

fn mounts(text: &str) -> Vec<Line> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let read = lines.map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words.len(), 6, "{line}");
        let options = words[3].split(',').map(str::to_owned).collect();
        (words[0].to_owned(), words[1].to_owned(), words[2].to_owned(), options)
    });
    read.collect()
}

/// A test of four routes by Dell's users, "Test 1" to "Test 4", without `timeo=10,soft`: a call
/// that takes a second would be an error to programs.
#[test]
fn the_vendors_lines_are_those_of_the_four_tests() {
    let site = System::PowerScale.site_file().replace("#localports", "localports");
    let files = files(&site);
    let found = mounts(text(&files, "nas-clients/files/by-name/p4-01/fstab.vendor"));
    let large = "rsize=1048576,wsize=1048576";
    let several = "remoteports=192.168.1.201-192.168.1.204";
    let local = "localports=192.168.1.21-192.168.1.22";
    let tests = [
        ("tcp", format!("rw,vers=3,nconnect=32,{large}")),
        ("tcp-mp", format!("rw,vers=3,nconnect=32,{local},{several},{large}")),
        ("rdma", format!("rw,proto=rdma,port=20049,vers=3,nconnect=32,{large}")),
        ("rdma-mp", format!("rw,proto=rdma,port=20049,vers=3,nconnect=32,{local},{several},{large}")),
    ];
    assert_eq!(found.len(), tests.len());
    for ((name, options), (source, point, kind, mut found)) in tests.into_iter().zip(found) {
        assert_eq!((source.as_str(), kind.as_str()), ("192.168.1.201:/ifs/data/bench", "nfs"));
        assert_eq!(point, format!("/mnt/f210/{name}"));
        // Ours: a mount waits for the network, and a machine starts without it.
        for ours in ["_netdev", "nofail", "noauto"] {
            assert!(found.remove(ours));
        }
        assert_eq!(found, options.split(',').map(str::to_owned).collect());
    }
}

/// A client cannot connect from the addresses of another one.
#[test]
fn only_the_client_that_has_local_addresses_is_told_them_and_the_export_admits_them() {
    let site = System::PowerScale.site_file().replace("#localports", "localports");
    let all = files(&site);
    let local = "localports=192.168.1.21-192.168.1.22,remoteports=";
    let with: Vec<_> = all.iter().filter(|file| file.text.contains(local)).map(|file| &*file.path).collect();
    let own = ["trunkline", "vendor"].map(|driver| format!("nas-clients/files/by-name/p4-01/fstab.{driver}"));
    assert_eq!(with, own);
    for path in own {
        assert_eq!(text(&all, &path).matches(local).count(), 2, "{path}");
        let shared = text(&all, &path.replace("by-name/p4-01/", ""));
        assert_eq!(shared, text(&all, &path).replace("localports=192.168.1.21-192.168.1.22,", ""));
    }
    let export = text(&all, "nas-f210/40-export.sh");
    assert!(export.contains("clients=192.168.1.21,192.168.1.22,192.168.1.23\n"), "{export}");
    let without = files(System::PowerScale.site_file());
    assert!(without.iter().all(|file| !file.path.contains("by-name") && !file.text.contains("localports=")));
}

#[test]
fn trunklines_lines_have_the_same_routes_and_the_kernels_those_without_multipath() {
    let files = files(System::PowerScale.site_file());
    let vendor = mounts(text(&files, "nas-clients/files/fstab.vendor"));
    let ours = mounts(text(&files, "nas-clients/files/fstab.trunkline"));
    let kernel = mounts(text(&files, "nas-clients/files/fstab.kernel"));
    let paths = |options: &BTreeSet<String>| -> Vec<String> {
        let about = ["proto", "port", "nconnect", "remoteports", "localports"];
        let is_about = |option: &&String| about.contains(&option.split('=').next().unwrap_or_default());
        options.iter().filter(is_about).cloned().collect()
    };
    for (one, other) in ours.iter().zip(&vendor) {
        assert_eq!((&one.0, &one.1, one.2.as_str()), (&other.0, &other.1, "trunkline"));
        assert_eq!(paths(&one.3), paths(&other.3));
    }
    assert_eq!(kernel.len(), 2);
    assert!(kernel.iter().all(|(.., options)| options.contains("nconnect=16")));
    assert!(kernel.iter().all(|(.., options)| options.iter().all(|option| !option.contains("ports="))));
}

/// The words of a shell command, with continued lines joined.
fn command(script: &str, start: &str) -> String {
    let joined = script.replace("\\\n", " ");
    let line = joined.lines().find(|line| line.trim().starts_with(start));
    let line = line.unwrap_or_else(|| panic!("no {start} in\n{script}"));
    let words: Vec<_> = line.split_whitespace().map(|word| word.trim_matches('"')).collect();
    words.join(" ")
}

/// "Setup RoCE on PowerScale", sections On the PowerScale Side and Configure the Fileshare.
#[test]
fn the_clusters_commands_are_those_of_the_guide() {
    let files = files(System::PowerScale.site_file());
    let network = text(&files, "nas-f210/30-network.sh");
    assert_eq!(
        command(network, "isi network subnets create"),
        "isi network subnets create groupnet0.rdmasubnet ipv4 24 --mtu 9000"
    );
    let pool = command(network, "isi network pools create");
    for part in [
        "groupnet0.rdmasubnet.rdmapool",
        "--ranges 192.168.1.201-192.168.1.204",
        "--ifaces 1:100gige-1,2:100gige-1,3:100gige-1,4:100gige-1",
        "--$only true",
        "--alloc-method static",
    ] {
        assert!(pool.contains(part), "{part} is not in {pool}");
    }
    let export = text(&files, "nas-f210/40-export.sh");
    assert!(export.contains("clients=192.168.1.21,192.168.1.23\n"));
    for option in ["--clients", "--read-write-clients", "--root-clients", "--all-dirs yes", "--zone System"] {
        assert!(export.contains(option), "{option}");
    }
    assert!(
        text(&files, "nas-f210/50-tuning.sh").contains("isi dedupe inline settings modify --mode disabled")
    );
    let without = System::PowerScale.site_file().replace("benchmark = true", "benchmark = false");
    assert!(!text(&self::files(&without), "nas-f210/50-tuning.sh").contains("dedupe"));
}

#[test]
fn addresses_that_are_no_neighbours_become_several_ranges() {
    let site = System::PowerScale.site_file().replace("192.168.1.203", "192.168.1.210");
    let files = files(&site);
    let network = text(&files, "nas-f210/30-network.sh");
    let ranges = "192.168.1.201-192.168.1.202,192.168.1.204-192.168.1.204,192.168.1.210-192.168.1.210";
    assert!(network.contains(ranges), "{network}");
    let fstab = text(&files, "nas-clients/files/fstab.trunkline");
    assert!(
        fstab.contains("remoteports=192.168.1.201-192.168.1.202~192.168.1.204~192.168.1.210,"),
        "{fstab}"
    );
}

/// "NetApp NFS RDMA Performance Test": nconnect is not supported by NFSv4 over RDMA, and the
/// vendor's driver has one connection for each of the addresses there (`max_connect`).
#[test]
fn nfsv4_has_lines_of_its_own_where_the_site_asks_for_it() {
    let site = System::PowerScale.site_file();
    let with = site.replace("#nfsv4 = false", "nfsv4 = true").replace("\"9.5\"", "\"9.8\"");
    let (without, with) = (files(site), files(&with));
    for (driver, wanted) in [
        ("trunkline", &["tcp-v4", "tcp-mp-v4", "rdma-v4", "rdma-mp-v4"][..]),
        ("kernel", &["tcp-v4", "rdma-v4"]),
        ("vendor", &["tcp-v4", "tcp-mp-v4", "rdma-v4", "rdma-mp-v4"]),
    ] {
        let path = format!("nas-clients/files/fstab.{driver}");
        let is_new = |line: &Line| !mounts(text(&without, &path)).contains(line);
        let new: Vec<_> = mounts(text(&with, &path)).into_iter().filter(is_new).collect();
        let names: Vec<_> = new.iter().map(|line| line.1.trim_start_matches("/mnt/f210/")).collect();
        assert_eq!(names, wanted, "{driver}");
        for (_, point, kind, options) in &new {
            let wanted = if driver == "trunkline" { "trunkline" } else { "nfs" };
            assert!(kind == wanted && options.contains("vers=4.1"), "{point}: {options:?}");
            let is_rdma = options.contains("proto=rdma") && options.contains("port=20049");
            assert_eq!(is_rdma, point.contains("rdma"), "{point}");
            let has = |start: &str| options.iter().any(|option| option.starts_with(start));
            // Trunkline's own mounts have several connections in one session over RDMA too.
            let has_limit = is_rdma && driver != "trunkline";
            assert_eq!(has("nconnect="), !has_limit, "{point}");
            assert_eq!(options.contains("max_connect=4"), has_limit && point.contains("-mp"), "{point}");
            assert_eq!(has("remoteports="), point.contains("-mp"), "{point}");
        }
    }
}

#[test]
fn nfsv4_is_a_step_only_where_the_site_asks_for_it() {
    let site = System::PowerScale.site_file();
    assert!(files(site).iter().all(|file| !file.path.ends_with("60-nfsv4.sh")));
    let with = site.replace("#nfsv4 = false", "nfsv4 = true").replace("\"9.5\"", "\"9.8\"");
    assert!(text(&files(&with), "nas-f210/60-nfsv4.sh").contains("--nfsv41-enabled true"));
}
