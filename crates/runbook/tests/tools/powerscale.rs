//! The steps of a PowerScale cluster, on a stand-in for OneFS's `isi` that keeps what it was told:
//! each step is done, verified, done again and undone, and its commands are those of the guide.

use crate::scripts::{folder, run, write};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// The machines of "Setup RoCE on PowerScale", with NFSv4 and a benchmark.
const GUIDE: &str = r#"
name = "guide"
[powerscale]
name = "aj"
onefs = "9.8"
administrator = "grant"
subnet = "grantsrdmasubnet"
pool = "grantsrdmapool"
prefix_length = 30
nodes = [{ lnn = 1, interface = "25gige-2", address = "10.99.99.98" }]
export = "/ifs/rdma-test"
user = "grantcurell"
uid = 2010
access_pattern = "streaming"
benchmark = true
nfsv4 = true
[hosts]
os = "rhel8"
interface = "ens6f1"
[[host]]
name = "r7625"
address = "10.99.99.97"
"#;

/// Answers questions from the files of `cluster`, logs every change, and makes it there.
const ISI: &str = r#"
cluster=$AT/cluster
case "$*" in
    *' --help') echo '[--nfsv3-rdma-enabled <boolean>] [--nfsv3-rroce-only <boolean>]'; exit ;;
    'auth roles view '*) cat "$cluster/role-$4"; exit ;;
    'network interfaces list -v') cat "$cluster/interfaces"; exit ;;
    'network subnets view '* | 'network pools view '*) cat "$cluster/$2-$4"; exit ;;
    'nfs settings global view') cat "$cluster/settings"; exit ;;
    'nfs exports list --zone System --format csv --no-header --no-footer') cat "$cluster/exports"; exit ;;
    'nfs exports view '*) cat "$cluster/view-$4"; exit ;;
    'nfs exports check') exit ;;
    'get -d /ifs/rdma-test')
        echo 'POLICY              LEVEL PERFORMANCE COAL  FILE'
        echo "default              4+2/2 $(cat "$cluster/pattern") on    rdma-test/"
        exit ;;
    'dedupe inline settings view') echo "     Mode: $(cat "$cluster/dedupe")"; exit ;;
esac
echo "isi $*" >>"$AT/log"
case "$*" in
    'auth roles create '*) : >"$cluster/role-$4" ;;
    'auth roles delete '*' --force') rm "$cluster/role-$4" ;;
    'auth roles modify '*' --add-'*) ! grep -qx "$6" "$cluster/role-$4" && echo "$6" >>"$cluster/role-$4" ;;
    'auth roles modify '*' --remove-user '*) sed -i "/^$6\$/d" "$cluster/role-$4" ;;
    'nfs settings global modify --'*)
        case $5 in
            --nfsv3-rdma-enabled) key='NFSv3 RDMA Enabled' ;;
            --nfsv4-enabled) key='NFSv4 Enabled' ;;
            --nfsv41-enabled) key='v4.1 Enabled' ;;
        esac
        value=No
        [ "$6" = false ] || value=Yes
        sed -i "s/\($key: \).*/\1$value/" "$cluster/settings" ;;
    'network subnets create '*)
        [ ! -e "$cluster/$2-$4" ] || exit 1
        printf '     Name: x\n      MTU: %s\n' "$8" >"$cluster/$2-$4" ;;
    'network pools create '*)
        [ ! -e "$cluster/$2-$4" ] || exit 1
        printf '   Access Zone: System\n        Ifaces: %s\n     IP Ranges: %s\n Static Routes: -\n' "${8//,/,$'\n' }" "$6" \
            >"$cluster/$2-$4" ;;
    'network '*' delete '*' --force') rm "$cluster/$2-$4" ;;
    'nfs exports create '*)
        printf '   Clients: %s\n Root Clients: %s\n Read Only Clients: -\n Read Write Clients: %s\n' "$8" "${12}" "${10}" \
            >"$cluster/view-7"
        echo "7,System,$4" >>"$cluster/exports" ;;
    'nfs exports delete 7 --zone System --force') rm "$cluster/view-7"; sed -i /^7,/d "$cluster/exports" ;;
    'set -R -a '*' /ifs/rdma-test') echo "${4/default/concurrency}" >"$cluster/pattern" ;;
    'dedupe inline settings modify --mode '*) echo "$6" >"$cluster/dedupe" ;;
    *) echo "isi: no $*" >&2; exit 1 ;;
esac
"#;

const INTERFACES: &str = "  IP Addresses: 10.1.1.1\n LNN: 1\n Name: ext-1\n Owners: groupnet0.a.b\n MTU: 1500\n\n\
    \x20 IP Addresses: 10.99.99.98\n LNN: 1\n Name: 25gige-2\n Owners: groupnet0.grantsrdmasubnet.grantsrdmapool\n\
    \x20 MTU: 9000\n Flags: ACCEPT_ROUTER_ADVERT, SUPPORTS_RDMA_RRoCE\n";

/// Tests make and remove the mount point /ifs one after the other.
static IFS: Mutex<()> = Mutex::new(());

/// A node of a cluster, with a runbook.
struct Cluster(TempDir);

impl Cluster {
    fn new() -> Self {
        let cluster = Self(folder(GUIDE));
        let at = cluster.at("");
        write(&cluster.at("bin/isi"), &format!("#!/bin/bash\nAT={}\n{ISI}", at.display()), 0o755);
        for (name, text) in [
            ("role-SystemAdmin", "admin\n"),
            ("settings", "NFSv3 RDMA Enabled: No\nNFSv4 Enabled: No\nv4.1 Enabled: No\n"),
            ("interfaces", INTERFACES),
            ("exports", "3,System,/ifs/rdma-test/below\n4,System,/ifs/rdma-test2\n"),
            ("pattern", "concurrency\n"),
            ("dedupe", "paused\n"),
        ] {
            cluster.set(name, text);
        }
        fs::create_dir(cluster.at("ifs")).expect("made");
        cluster
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn set(&self, name: &str, text: &str) {
        write(&self.at("cluster").join(name), text, 0o644);
    }

    /// What the cluster has: name and content of each file.
    fn whole(&self) -> BTreeMap<String, String> {
        let all = fs::read_dir(self.at("cluster")).expect("a directory");
        let read = |path: PathBuf| fs::read_to_string(path).expect("text");
        all.map(|entry| entry.expect("an entry"))
            .map(|entry| (entry.file_name().into_string().expect("text"), read(entry.path())))
            .collect()
    }

    /// Runs a step; whether it worked, what it said, and which changes it asked for.
    fn step(&self, step: &str, verb: &str) -> (bool, String, Vec<String>) {
        let _turn = IFS.lock().unwrap_or_else(PoisonError::into_inner);
        write(&self.at("log"), "", 0o644);
        let script = format!(
            "mkdir -p /ifs; mount --bind {0}/ifs /ifs; PATH={0}/bin:$PATH; exec {0}/nas-aj/{step} {verb}",
            self.at("").display()
        );
        let (worked, said) = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
        // On a real cluster it is there.
        let _ = fs::remove_dir("/ifs");
        let log = fs::read_to_string(self.at("log")).expect("text");
        (worked, said, log.lines().map(str::to_owned).collect())
    }

    #[track_caller]
    fn succeed(&self, step: &str, verb: &str) -> Vec<String> {
        let (worked, said, log) = self.step(step, verb);
        assert!(worked, "{step} {verb}: {said}");
        log
    }

    #[track_caller]
    fn refused(&self, step: &str, verb: &str, complaint: &str) {
        let before = self.whole();
        let (worked, said, log) = self.step(step, verb);
        assert!(!worked && said.contains(complaint), "{step} {verb}: {said}");
        assert_eq!((log, self.whole()), (Vec::new(), before), "{step} {verb} has changed something");
    }
}

/// Each step with what `do` and `undo` ask for. "Setup RoCE on PowerScale", sections PowerScale
/// Requirements, On the PowerScale Side, Configure the Fileshare, Set Access Pattern, Disable
/// Deduplication and Swapping to NFSv4; docs/DEVIATIONS.md lists what is corrected.
const STEPS: [(&str, &[&str], &[&str]); 6] = [
    (
        "10-privileges.sh",
        &[
            "isi auth roles modify SystemAdmin --add-user grant",
            "isi auth roles create TrunklineIdMapping --description Maps identities by hand",
            "isi auth roles modify TrunklineIdMapping --add-priv ISI_PRIV_AUTH",
            "isi auth roles modify TrunklineIdMapping --add-user grant",
        ],
        &[
            "isi auth roles delete TrunklineIdMapping --force",
            "isi auth roles modify SystemAdmin --remove-user grant",
        ],
    ),
    (
        "20-rdma.sh",
        &["isi nfs settings global modify --nfsv3-rdma-enabled true"],
        &["isi nfs settings global modify --nfsv3-rdma-enabled false"],
    ),
    (
        "30-network.sh",
        &[
            "isi network subnets create groupnet0.grantsrdmasubnet ipv4 30 --mtu 9000",
            "isi network pools create groupnet0.grantsrdmasubnet.grantsrdmapool --ranges 10.99.99.98-10.99.99.98 \
             --ifaces 1:25gige-2 --nfsv3-rroce-only true --alloc-method static --description NFS over RDMA",
        ],
        &[
            "isi network pools delete groupnet0.grantsrdmasubnet.grantsrdmapool --force",
            "isi network subnets delete groupnet0.grantsrdmasubnet --force",
        ],
    ),
    (
        "40-export.sh",
        &["isi nfs exports create /ifs/rdma-test --description Runbook of aj --clients 10.99.99.97 \
           --read-write-clients 10.99.99.97 --root-clients 10.99.99.97 --all-dirs yes --zone System"],
        &["isi nfs exports delete 7 --zone System --force"],
    ),
    (
        "50-tuning.sh",
        &["isi set -R -a streaming /ifs/rdma-test", "isi dedupe inline settings modify --mode disabled"],
        &["isi set -R -a default /ifs/rdma-test", "isi dedupe inline settings modify --mode paused"],
    ),
    (
        "60-nfsv4.sh",
        &[
            "isi nfs settings global modify --nfsv4-enabled true",
            "isi nfs settings global modify --nfsv41-enabled true",
        ],
        &[
            "isi nfs settings global modify --nfsv41-enabled false",
            "isi nfs settings global modify --nfsv4-enabled false",
        ],
    ),
];

#[test]
fn the_steps_of_a_cluster_are_those_of_the_guide_and_are_taken_back_whole() {
    let cluster = Cluster::new();
    let mut before = Vec::new();
    for (step, done, _) in STEPS {
        before.push(cluster.whole());
        assert!(!cluster.step(step, "verify").0, "{step}: verify finds what is not there");
        assert_eq!(cluster.succeed(step, "do"), done, "{step}");
        assert_eq!(cluster.succeed(step, "verify"), [""; 0], "{step}: verify changes nothing");
        let after = cluster.whole();
        cluster.succeed(step, "do");
        assert_eq!(cluster.whole(), after, "{step}: done twice");
        cluster.succeed(step, "verify");
    }
    let directory = fs::metadata(cluster.at("ifs/rdma-test")).expect("made");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&directory), 2010);
    for (step, _, undone) in STEPS.into_iter().rev() {
        assert_eq!(cluster.succeed(step, "undo"), undone, "{step}");
        assert_eq!(Some(cluster.whole()), before.pop(), "{step}: undone");
        assert_eq!(cluster.succeed(step, "undo"), [""; 0], "{step}: undone twice");
    }
    assert!(!cluster.at("ifs/.trunkline-runbook").exists(), "the notes are gone");
    assert!(!cluster.at("ifs/rdma-test").exists(), "so is the directory, which nobody has used");
}

/// What others have made or set is not used, changed or removed.
#[test]
fn what_a_cluster_had_before_stays_as_it_is() {
    let cluster = Cluster::new();
    for (name, text) in [
        ("role-SystemAdmin", "admin\ngrant\n"),
        ("role-TrunklineIdMapping", "somebody\n"),
        ("subnets-groupnet0.grantsrdmasubnet", "somebody's\n"),
        ("exports", "9,System,/ifs/rdma-test\n"),
        ("settings", "NFSv3 RDMA Enabled: Yes\nNFSv4 Enabled: Yes\nv4.1 Enabled: Yes\n"),
    ] {
        cluster.set(name, text);
    }
    let before = cluster.whole();
    for (step, ..) in STEPS {
        assert_eq!(cluster.succeed(step, "undo"), [""; 0], "{step}: nothing was done");
    }
    cluster.refused("10-privileges.sh", "do", "there is a role TrunklineIdMapping already");
    cluster.refused("30-network.sh", "do", "there is a subnet groupnet0.grantsrdmasubnet already");
    cluster.refused("40-export.sh", "do", "/ifs/rdma-test is exported already");
    for step in ["20-rdma.sh", "60-nfsv4.sh"] {
        for verb in ["do", "verify", "undo"] {
            assert_eq!(cluster.succeed(step, verb), [""; 0], "{step} {verb}: it is on already");
        }
    }
    assert_eq!(cluster.whole(), before);
    let other = Cluster::new();
    other.set("pools-groupnet0.grantsrdmasubnet.grantsrdmapool", "somebody's\n");
    let (worked, said, _) = other.step("30-network.sh", "do");
    assert!(!worked && said.contains("grantsrdmapool already"), "{said}");
    other.succeed("30-network.sh", "undo");
    let left = other.whole();
    assert!(left.contains_key("pools-groupnet0.grantsrdmasubnet.grantsrdmapool"), "{left:?}");
    assert!(!left.contains_key("subnets-groupnet0.grantsrdmasubnet"), "{left:?}");
    // The pattern of a directory that was there, not that of a new one.
    other.set("pattern", "random\n");
    other.succeed("50-tuning.sh", "do");
    other.set("pattern", "concurrency\n");
    let (worked, said, _) = other.step("50-tuning.sh", "verify");
    assert!(!worked && said.contains("the access pattern of /ifs/rdma-test is default"), "{said}");
    other.succeed("50-tuning.sh", "undo");
    assert_eq!(other.whole()["pattern"], "random\n");
}

/// A directory that is used stays, and so does one that was there.
#[test]
fn an_export_leaves_directories_that_are_not_its_own() {
    let cluster = Cluster::new();
    cluster.succeed("40-export.sh", "do");
    write(&cluster.at("ifs/rdma-test/thesis"), "data", 0o644);
    let (worked, said, _) = cluster.step("40-export.sh", "undo");
    assert!(worked && said == "/ifs/rdma-test stays: it has been used\n", "{said}");
    assert!(cluster.at("ifs/rdma-test/thesis").exists() && !cluster.at("ifs/.trunkline-runbook").exists());
    fs::remove_file(cluster.at("ifs/rdma-test/thesis")).expect("removed");
    cluster.succeed("40-export.sh", "do");
    cluster.succeed("40-export.sh", "undo");
    assert!(cluster.at("ifs/rdma-test").exists(), "it was there before");
}

/// What cannot be read is not as planned.
#[test]
fn an_access_pattern_that_is_not_shown_fails() {
    let cluster = Cluster::new();
    cluster.succeed("50-tuning.sh", "do");
    cluster.succeed("50-tuning.sh", "verify");
    cluster.set("pattern", "");
    let (worked, said, _) = cluster.step("50-tuning.sh", "verify");
    assert!(!worked && said.contains("the access pattern of /ifs/rdma-test is on"), "{said}");
    // Nor is it put back or changed then.
    let other = Cluster::new();
    for unknown in ["", "other"] {
        other.set("pattern", unknown);
        other.refused("50-tuning.sh", "do", "what it is, is not known");
    }
    write(&cluster.at("ifs/.trunkline-runbook/pattern"), "\n", 0o644);
    cluster.refused("50-tuning.sh", "undo", "what the access pattern was is not known");
    let isi = fs::read_to_string(cluster.at("bin/isi")).expect("the stand-in");
    write(&cluster.at("bin/isi"), &isi.replace("PERFORMANCE", "SOMETHING"), 0o755);
    let (worked, said, _) = cluster.step("50-tuning.sh", "verify");
    assert!(!worked && said.contains("shows no access pattern"), "{said}");
}

#[test]
fn a_cluster_without_interfaces_for_rdma_is_refused() {
    let cluster = Cluster::new();
    cluster.set("interfaces", "IP Addresses: 10.99.99.98\nFlags: ACCEPT_ROUTER_ADVERT\n");
    cluster.refused("20-rdma.sh", "do", "no interface has the flag SUPPORTS_RDMA_RRoCE");
}

#[test]
fn a_pool_or_an_export_that_differs_from_the_plan_is_found() {
    let cluster = Cluster::new();
    for step in ["30-network.sh", "40-export.sh"] {
        cluster.succeed(step, "do");
        cluster.succeed(step, "verify");
    }
    let pool = "pools-groupnet0.grantsrdmasubnet.grantsrdmapool";
    for (step, file, from, to, complaint) in [
        ("30-network.sh", "subnets-groupnet0.grantsrdmasubnet", "9000", "900", "is 900, and 9000 is planned"),
        ("30-network.sh", pool, "System", "other", "the access zone of groupnet0"),
        (
            "30-network.sh",
            pool,
            "1:25gige-2",
            "1:25gige-2, 1:25gige-1",
            "are 1:25gige-2,1:25gige-1, and 1:25gige-2 are",
        ),
        ("30-network.sh", pool, "1:25gige-2", "1:25gige-21", "are 1:25gige-21, and"),
        ("30-network.sh", pool, "98-10.99.99.98", "98-10.99.99.99", "are 10.99.99.98-10.99.99.99, and"),
        ("30-network.sh", "interfaces", "9000", "1500", "the MTU of 1:25gige-2 is 1500"),
        (
            "30-network.sh",
            "interfaces",
            "10.99.99.98",
            "10.99.99.9",
            "no interface of the plan has 10.99.99.98",
        ),
        ("30-network.sh", "interfaces", "25gige-2", "25gige-1", "there is no interface 1:25gige-2"),
        (
            "40-export.sh",
            "view-7",
            "  Clients: 10.99.99.97",
            "  Clients: 10.99.99.97, 10.0.0.1",
            "10.99.99.97,10.0.0.1, and",
        ),
        (
            "40-export.sh",
            "view-7",
            "  Clients: 10.99.99.97",
            "  Clients: 10.99.99.9",
            "Clients of /ifs/rdma-test are 10.99.99.9, and",
        ),
        (
            "40-export.sh",
            "view-7",
            "Root Clients: 10.99.99.97",
            "Root Clients: -",
            "Root Clients of /ifs/rdma-test are -",
        ),
    ] {
        let whole = cluster.whole()[file].clone();
        let changed = whole.replacen(from, to, 1);
        assert_ne!(changed, whole, "{from}");
        cluster.set(file, &changed);
        cluster.refused(step, "verify", complaint);
        cluster.set(file, &whole);
    }
}
