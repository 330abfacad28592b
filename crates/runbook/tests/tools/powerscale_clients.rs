//! The steps of a PowerScale cluster's clients, with stand-ins for the programs that would change
//! the network or mount, and on a copy of /etc.

use crate::scripts::{folder, run, write};
use runbook::System;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A client of the example's cluster, `p4-01`.
struct Client(TempDir);

impl Client {
    /// With stand-ins, each a script that finds the client's directory in `$AT`.
    fn new(site: &str, stand_ins: &[(&str, &str)]) -> Self {
        let client = Self(folder(site));
        let at = client.at("").display().to_string();
        for (name, script) in stand_ins {
            let whole = format!("#!/bin/bash\nAT={at}\n{script}\n");
            write(&client.at("bin").join(name), &whole, 0o755);
        }
        client
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Runs a script in the folder of the steps; `$AT` is the client's directory. /etc is a copy,
    /// and /home, /mnt, /sys and the mail of users are empty.
    fn run(&self, script: &str) -> (bool, String) {
        let whole = format!(
            "exec 2>&1; set -eu; AT={}; export AT; cp -a /etc $AT/etc; mount --bind $AT/etc /etc; \
             for at in /home /mnt /sys /var/mail; do mount -t tmpfs none $at; done; \
             export PATH=$AT/bin:$PATH RUNBOOK_STATE=$AT/state HOST_NAME=p4-01; cd $AT/nas-clients; {script}",
            self.0.path().display()
        );
        run(Command::new("unshare").args(["--mount", "sh", "-c", &whole]))
    }
}

/// The site with lines for NFSv4 too.
fn with_nfsv4() -> String {
    let site = System::PowerScale.site_file();
    site.replace("#nfsv4 = false", "nfsv4 = true").replace("\"9.5\"", "\"9.8\"")
}

/// NetworkManager's settings are the files of `nm`; what is up shows in /sys and in `ip`.
const NETWORK: [(&str, &str); 3] = [
    (
        "nmcli",
        r#"
case "$*" in
    '-g GENERAL.CONNECTION device show ens6f1') echo 'Wired connection 2' ;;
    '-g '*' connection show Wired connection 2') for one in ${2//,/ }; do cat "$AT/nm/$one"; done ;;
    'connection modify Wired connection 2 '*)
        shift 3
        while [ $# -gt 0 ]; do echo "$2" >"$AT/nm/$1"; shift 2; done ;;
    'connection up Wired connection 2') sed 's/^auto$/1500/' "$AT/nm/802-3-ethernet.mtu" >/sys/class/net/ens6f1/mtu ;;
    *) echo "nmcli: no $*" >&2; exit 1 ;;
esac"#,
    ),
    (
        "ip",
        r#"
case "$*" in
    'route show default dev ens6f1') [ ! -e "$AT/default" ] || echo 'default via 10.0.0.1' ;;
    '-o address show dev ens6f1' | '-brief address show dev ens6f1') echo "ens6f1 UP $(cat "$AT/nm/ipv4.addresses")" ;;
    *) echo "ip: no $*" >&2; exit 1 ;;
esac"#,
    ),
    ("ping", "echo \"ping $*\""),
];

fn networked() -> Client {
    let client = Client::new(System::PowerScale.site_file(), &NETWORK);
    for (name, value) in [
        ("ipv4.method", "auto\n"),
        ("ipv4.addresses", "10.5.0.7/16\n"),
        ("ipv4.gateway", "10.5.0.1\n"),
        ("ipv4.dns", "\n"),
        ("802-3-ethernet.mtu", "auto\n"),
    ] {
        write(&client.at("nm").join(name), value, 0o644);
    }
    client
}

/// "Setup RoCE on PowerScale", section On the Linux Side: the five settings and no others.
#[test]
fn a_client_gets_its_address_and_mtu_and_has_its_own_again_afterwards() {
    let client = networked();
    let (worked, said) = client.run(
        "mkdir -p /sys/class/net/ens6f1; echo 1500 >/sys/class/net/ens6f1/mtu; cp -r $AT/nm $AT/before; \
         step=./20-network.sh; ! $step verify; $step do; $step verify; grep -r . $AT/nm | sort; $step do; $step verify; \
         $step undo; diff -r $AT/before $AT/nm; cat /sys/class/net/ens6f1/mtu; [ ! -e $AT/state ]",
    );
    assert!(worked && said.ends_with("\n1500\n"), "{said}");
    assert!(said.starts_with("20-network.sh: ens6f1 does not have 192.168.1.21/24\n"), "{said}");
    assert_eq!(said.matches("ping -c 1 -M do -s 8972 192.168.1.201\n").count(), 2, "{said}");
    for set in ["ipv4.addresses:192.168.1.21/24", "ipv4.method:manual", "802-3-ethernet.mtu:9000"] {
        assert!(said.contains(&format!("/nm/{set}\n")), "{set}: {said}");
    }
    assert!(!said.contains("nm/ipv4.gateway:") && !said.contains("nm/ipv4.dns:"), "{said}");
}

#[test]
fn an_interface_that_carries_something_else_is_not_given_to_storage() {
    let client = networked();
    let (worked, said) = client.run(
        "cp -r $AT/nm $AT/before; touch $AT/default; ! ./20-network.sh do; rm $AT/default; \
         export SSH_CONNECTION='10.5.0.2 5 10.5.0.7 22'; ! ./20-network.sh do; diff -r $AT/before $AT/nm; \
         unset SSH_CONNECTION; export HOST_NAME=other; ! ./20-network.sh do",
    );
    assert!(worked, "{said}");
    for part in [
        "ens6f1 has the default route",
        "this session comes through ens6f1",
        "hosts.list has no other: set HOST_NAME to one of p4-01 p4-02",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The system's own programs, on a copy of /etc.
#[test]
fn an_account_is_made_and_removed_with_a_home_that_nobody_used() {
    let client = Client::new(System::PowerScale.site_file(), &[]);
    let (worked, said) = client.run(
        "step=./40-identity.sh; cp /etc/passwd $AT/before; ! $step verify; $step do; $step verify; $step do; \
         id -u bench; ls /home; $step undo; cmp /etc/passwd $AT/before; ls -A /home /var/mail; [ ! -e $AT/state ]; \
         echo USED; $step do; echo >/home/bench/thesis; $step undo; cmp /etc/passwd $AT/before; ls /home/bench; \
         echo OTHER; useradd --uid 3000 --no-create-home bench; $step do; ! $step verify; $step undo; id -u bench",
    );
    assert!(worked, "{said}");
    let (first, rest) = said.split_once("USED\n").unwrap_or_else(|| panic!("{said}"));
    let (used, other) = rest.split_once("OTHER\n").unwrap_or_else(|| panic!("{said}"));
    assert!(first.contains("\n2010\nbench\n"), "made with a home: {said}");
    assert!(first.ends_with("/home:\n\n/var/mail:\n"), "nothing is left: {said}");
    assert!(used.contains("/home/bench stays: it has been used") && used.ends_with("thesis\n"), "{said}");
    assert!(other.contains("bench has UID 3000 here, and 2010 on the cluster"), "{said}");
    assert!(other.ends_with("3000\n"), "an account of others stays: {said}");
}

/// What is mounted is in a list.
const MOUNTS: [(&str, &str); 6] = [
    ("mountpoint", "grep -qx \"$2\" \"$AT/mounted\" 2>/dev/null"),
    (
        "mount",
        r#"awk -v point="$1" '$2 == point { found = 1 } END { exit !found }' /etc/fstab && echo "$1" >>"$AT/mounted""#,
    ),
    ("umount", "grep -qx \"$1\" \"$AT/mounted\" && sed -i \"\\\\|^$1\\$|d\" \"$AT/mounted\""),
    ("runuser", "[ \"$1 $2 $3\" = '-u bench --' ] && exec \"${@:4}\""),
    ("mount.trunkline", ""),
    ("systemctl", ""),
];

#[test]
fn mounts_of_either_driver_are_made_and_taken_back_without_a_trace() {
    for (driver, routes) in [
        ("trunkline", "rdma\nrdma-mp\ntcp\ntcp-mp\n"),
        ("kernel", "rdma\nrdma-v4\ntcp\ntcp-v4\n"),
        ("vendor", "rdma\nrdma-mp\nrdma-mp-v4\nrdma-v4\ntcp\ntcp-mp\ntcp-mp-v4\ntcp-v4\n"),
    ] {
        let client = Client::new(&with_nfsv4(), &MOUNTS);
        // DRIVER is not given again to undo.
        let (worked, said) = client.run(&format!(
            "step=./50-mounts.sh; echo 'LABEL=a / ext4 defaults 0 1' >/etc/fstab; DRIVER={driver} $step do; \
             DRIVER={driver} $step verify >$AT/said; [ $(wc -l <$AT/mounted) = $(wc -l <$AT/said) ]; ls /mnt/f210; \
             DRIVER={driver} $step do; grep -c /mnt/f210 /etc/fstab; echo 'LABEL=b /b ext4 defaults 0 1' >>/etc/fstab; \
             $step undo; cat $AT/mounted /etc/fstab; ls /mnt; [ ! -e /etc/fstab.new ]; [ ! -e $AT/state ]"
        ));
        let count = routes.lines().count();
        let left = "LABEL=a / ext4 defaults 0 1\nLABEL=b /b ext4 defaults 0 1\n";
        assert_eq!(said, format!("{routes}{count}\n{left}"), "{driver}");
        assert!(worked, "{driver}: {said}");
    }
}

#[test]
fn a_client_with_local_addresses_mounts_by_lines_of_its_own() {
    let site = System::PowerScale.site_file().replace("#localports", "localports");
    let client = Client::new(&site, &MOUNTS);
    let (worked, said) = client.run(
        "step=./50-mounts.sh; : >/etc/fstab; for driver in trunkline vendor; do for name in p4-01 p4-02; do \
         HOST_NAME=$name DRIVER=$driver $step do; echo $name $(grep -c localports=192.168.1.21-192.168.1.22, /etc/fstab); \
         HOST_NAME=$name DRIVER=$driver $step undo; done; done; DRIVER=kernel $step do; ! grep localports /etc/fstab; \
         $step undo; export HOST_NAME=other; ! $step do; [ ! -s /etc/fstab ]; [ ! -e $AT/state ]",
    );
    assert!(worked, "{said}");
    let (counts, refused) = said.split_at(said.find("50-mounts.sh").unwrap_or_else(|| panic!("{said}")));
    assert_eq!(counts, "p4-01 2\np4-02 0\n".repeat(2));
    assert!(refused.contains("hosts.list has no other: set HOST_NAME to one of p4-01 p4-02"), "{said}");
}

#[test]
fn a_mount_point_that_fstab_has_already_is_left_alone() {
    let client = Client::new(System::PowerScale.site_file(), &MOUNTS);
    let (worked, said) = client.run(
        "step=./50-mounts.sh; mkdir -p /mnt/f210/tcp; echo 'nas:/a /mnt/f210/tcp nfs defaults 0 0' >/etc/fstab; \
         ! $step do; $step undo; cat /etc/fstab; ls /mnt/f210; ! DRIVER=other $step do; \
         rm $AT/bin/mount.trunkline; ! $step do",
    );
    assert!(worked, "{said}");
    assert!(said.contains("/etc/fstab has a line for /mnt/f210/tcp already"), "{said}");
    assert!(said.contains("nas:/a /mnt/f210/tcp nfs defaults 0 0\ntcp\n"), "what was there stays: {said}");
    assert!(said.contains("DRIVER is trunkline, kernel or vendor"), "{said}");
    assert!(said.contains("install trunkline first"), "{said}");
}

#[test]
fn the_baseline_runs_on_the_processors_beside_the_card() {
    let pass_on =
        |name: &str| format!("echo \"{name} $*\" >>$AT/log; while [ \"$1\" != -- ]; do shift; done; shift");
    let runuser = format!("{}; exec \"$@\"", pass_on("runuser"));
    let client = Client::new(
        System::PowerScale.site_file(),
        &[
            ("numactl", "echo \"numactl $1 $2\" >>$AT/log; shift 2; exec \"$@\""),
            ("runuser", &runuser),
            ("fio", "echo \"fio $* in $DIRECTORY\" >>$AT/log; echo '{ \"jobname\": \"streaming\" }'"),
            ("mountpoint", "[ -d \"$2\" ]"),
            ("trunkline", "echo \"trunkline $*\" >>$AT/log"),
        ],
    );
    let (worked, said) = client.run(
        "step=./70-baseline.sh; ! $step do; mkdir -p /mnt/f210/tcp /mnt/f210/rdma-mp /sys/class/net/ens6f1/device; \
         echo 1 >/sys/class/net/ens6f1/device/numa_node; $step do; $step verify; \
         echo -1 >/sys/class/net/ens6f1/device/numa_node; ROUTE=tcp $step do; \
         rm /sys/class/net/ens6f1/device/numa_node; ROUTE=tcp $step do; cat $AT/log; \
         touch /mnt/f210/rdma-mp/baseline.0 /mnt/f210/rdma-mp/mine; $step undo; ls /mnt/f210/rdma-mp; ls baseline*",
    );
    assert!(worked && said.starts_with("70-baseline.sh: /mnt/f210/rdma-mp is not mounted\n"), "{said}");
    let run = |route: &str| {
        format!(
            "runuser -u bench --preserve-environment -- fio --output-format=json+ baseline.fio\n\
             fio --output-format=json+ baseline.fio in /mnt/f210/{route}\n"
        )
    };
    let log = format!(
        "baseline-rdma-mp.json can be compared: trunkline report\nnumactl --cpunodebind=1 --membind=1\n{}\
         trunkline report baseline-rdma-mp.json\n{tcp}{tcp}",
        run("rdma-mp"),
        tcp = run("tcp")
    );
    assert!(said.contains(&log), "{said}\n{log}");
    assert!(said.ends_with("\nmine\nbaseline-tcp.json\nbaseline.fio\n"), "{said}");
}
