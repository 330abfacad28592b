//! Faults of the host, made one by one: `trunkline check --plan` finds each by its rule and nothing
//! else, and what the runbook offers mends them.

use crate::findings::bad_findings;
use crate::load::Load;
use crate::steps::Folder;
use crate::{TRUNKLINE, VOLUME, client, server, sh};

/// The server drops what comes over the second link, and lets it pass again.
pub const CUT: &str = "nft 'add table ip cut; add chain ip cut in { type filter hook prerouting priority 0; }
    add rule ip cut in iifname n2 drop'";
pub const UNCUT: &str = "nft 'delete table ip cut'";

/// The two clocks are set by emulated devices with whole seconds, so they may differ.
const CLOCK: &str = "warn server.clock";

/// What `trunkline check` finds on the host, compared with the plan, that is not as it should be.
#[track_caller]
pub fn bad(arguments: &str) -> Vec<String> {
    checked("", &format!("--plan /dev/shm/site.toml {arguments}"))
}

/// The same, with what stands before the program.
#[track_caller]
pub fn checked(run: &str, arguments: &str) -> Vec<String> {
    let check = format!("{run} {TRUNKLINE} check --json --mtu 9000 {arguments}");
    let said = sh(client(), &format!("{check} || [ $? = 1 ]"));
    let mut bad = bad_findings(&said);
    bad.retain(|finding| finding != CLOCK);
    // For the case that this is not what a test expects.
    println!("check {arguments}: {bad:?}");
    bad
}

/// A host on which no step has run, and on which more is wrong, one thing at a time.
pub fn before_the_host_is_set_up() {
    let base = ["fail nvme.modules", "fail nvme.plan", "fail nvme.plan", "fail nvme.plan", "fail nvme.plan"];
    let with = |more: &[&'static str]| {
        let mut expected = [&base[..], more].concat();
        expected.sort_unstable();
        expected
    };
    let found = |make: &str, mend: &str, more: &[&'static str]| {
        sh(client(), make);
        let found = bad("");
        sh(client(), mend);
        assert_eq!(found, with(more), "after: {make}");
    };
    found("true", "true", &[]);
    found("ip link set n1 mtu 1500", "ip link set n1 mtu 9000", &["fail net.mtu"]);
    found("ip addr del 10.77.1.1/24 dev n1", "ip addr add 10.77.1.1/24 dev n1", &["fail net.address"]);
    // The server has that address.
    found(
        "ip -6 addr add fd77:3::2/64 dev n3
         for attempt in $(seq 100); do ip -o addr show dev n3 | grep -q dadfailed && break; sleep 0.2; done",
        "ip -6 addr del fd77:3::2/64 dev n3",
        &["fail net.duplicate"],
    );
    found(
        "for n in 1 2 3 4; do rdma link del rxe$n; done",
        "for n in 1 2 3 4; do rdma link add rxe$n type rxe netdev n$n; done",
        &["fail rdma.devices"],
    );
    found("modprobe nvme_core multipath=N", "modprobe -r nvme_core", &["fail nvme.native"]);
    assert_eq!(
        checked("ulimit -n 1024;", "--plan /dev/shm/site.toml"),
        with(&["warn limits.open-files"]),
        "few descriptors"
    );
    // RHEL 7 joins paths by DM-Multipath.
    sh(client(), "sed s/debian12/rhel7/ /dev/shm/site.toml > /dev/shm/rhel7.toml");
    assert_eq!(checked("", "--plan /dev/shm/rhel7.toml"), with(&["fail multipath.modules"]), "another layer");
    a_port_without_a_carrier(&with(&["fail rdma.port-state"]));
}

fn a_port_without_a_carrier(expected: &[&str]) {
    let until = |state: &str| {
        sh(
            client(),
            &format!(
                "for attempt in $(seq 100); do rdma link show rxe4/1 | grep -q 'state {state}' && exit 0; sleep 0.2; done
                 rdma link; exit 1"
            ),
        )
    };
    client().set_link(4, false).expect("the guest has the link");
    let _ = until("DOWN");
    let found = bad("");
    client().set_link(4, true).expect("the guest has the link");
    let _ = until("ACTIVE");
    assert_eq!(found, expected, "without a carrier");
}

/// Settings and names that differ from the plan. The steps say so too, and put it right.
pub fn while_nothing_is_under_way(hosting: &Folder) {
    sh(
        client(),
        &format!(
            "{VOLUME}
             one=$(volume 1); echo 64 > /sys/block/${{one#/dev/}}/queue/max_sectors_kb
             for at in /sys/class/nvme-subsystem/*; do echo numa > $at/iopolicy; done"
        ),
    );
    assert_eq!(bad(""), ["warn block.request-size", "warn nvme.policy"]);
    let said = hosting.fails("50-connect.sh", "verify");
    for part in ["iopolicy is numa, and round-robin is planned", "max_sectors_kb is 64, and 256 is planned"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    sh(client(), "/usr/local/sbin/trunkline-nvme tune");
    hosting.run("50-connect.sh", "verify");

    sh(client(), "echo nqn.2026-11.test.pair:other > /etc/nvme/hostnqn");
    assert_eq!(bad(""), ["warn nvme.host-nqn"]);
    hosting.fails("30-identity.sh", "verify");
    hosting.run("30-identity.sh", "do");
    hosting.run("30-identity.sh", "verify");
    assert_eq!(bad(""), [""; 0], "a sound host again");
    volumes_that_are_missing(hosting);
    assert_eq!(bad(""), [""; 0], "a sound host again");
}

/// The server takes one volume away, and then both: the paths stay.
fn volumes_that_are_missing(hosting: &Folder) {
    let enable = |nsid: u32, value: u32| {
        let at = format!("/sys/kernel/config/nvmet/subsystems/*/namespaces/{nsid}/enable");
        sh(server(), &format!("echo {value} > $(echo {at})"));
    };
    let until_shown = |count: u32| {
        sh(
            client(),
            &format!(
                "for attempt in $(seq 300); do
                     shown=$(ls -d /sys/class/nvme/nvme*/nvme*c*n* 2>/dev/null | wc -l)
                     [ $shown != $((4 * {count})) ] || exit 0
                     sleep 0.2
                 done
                 echo \"$shown paths of volumes are shown\"; exit 1"
            ),
        )
    };
    enable(2, 0);
    let _ = until_shown(1);
    assert_eq!(bad(""), ["fail nvme.volumes"], "one volume");
    hosting.fails("50-connect.sh", "verify");
    enable(1, 0);
    let _ = until_shown(0);
    assert_eq!(bad(""), ["fail nvme.volumes", "warn nvme.namespaces"], "no volume");
    enable(1, 1);
    enable(2, 1);
    let _ = until_shown(2);
    hosting.wait_until_verified("50-connect.sh");
}

/// What `multipath -ll` says of native paths, on a host that lets it speak of them. It is loaded
/// for this check only.
fn with_multipath_tools() -> Vec<String> {
    sh(
        client(),
        "[ -e /etc/multipath ] || : > /dev/shm/no-multipath; [ ! -e /etc/multipath.conf ] || mv /etc/multipath.conf /dev/shm/multipath.conf
         printf 'defaults {\\n enable_foreign \"^nvme$\"\\n}\\n' > /etc/multipath.conf
         cut -d ' ' -f 1 /proc/modules > /dev/shm/modules; modprobe dm_multipath; multipath -ll",
    );
    let found = bad("");
    sh(
        client(),
        "rm /etc/multipath.conf; [ ! -e /dev/shm/multipath.conf ] || mv /dev/shm/multipath.conf /etc/multipath.conf
         [ ! -e /dev/shm/no-multipath ] || rm -rf /etc/multipath
         for module in $(cut -d ' ' -f 1 /proc/modules | grep -vxF -f /dev/shm/modules); do
             rmmod $module 2>/dev/null || :
         done; for module in $(cut -d ' ' -f 1 /proc/modules | grep -vxF -f /dev/shm/modules); do rmmod $module; done",
    );
    found
}

/// Paths whose state changes, that go, and that fall silent: I/O goes on meanwhile.
pub fn under_a_load(serving: &Folder, hosting: &Folder, load: &Load) {
    states_that_are_not_planned(serving, hosting, load);
    a_path_that_is_missing(hosting, load);
    a_link_that_is_cut(hosting, load);
    assert_eq!(bad(""), [""; 0], "a sound host again");
}

/// A script's function that waits until all paths of volume $1 over the first link have the state
/// $2 on the host.
const UNTIL_STATE: &str = r#"
until_state() {
    for attempt in $(seq 300); do
        count=0
        for at in /sys/class/nvme/nvme*; do
            grep -qs 'traddr=10.77.1.2,' $at/address || continue
            [ "$(cat $at/nvme*c*n$1/ana_state 2>/dev/null)" != $2 ] || count=$((count + 1))
        done
        [ $count -lt 2 ] || return 0
        sleep 0.2
    done
    echo "$count of 2 paths are $2"; return 1
}
"#;

fn states_that_are_not_planned(serving: &Folder, hosting: &Folder, load: &Load) {
    sh(
        server(),
        "for at in /sys/kernel/config/nvmet/ports/*; do
             [ $(cat $at/addr_traddr) != 10.77.1.2 ] || echo inaccessible > $at/ana_groups/1/ana_state
         done",
    );
    sh(client(), &format!("{UNTIL_STATE} until_state 1 inaccessible"));
    load.goes_on();
    let states = ["fail nvme.paths", "fail nvme.states", "fail nvme.states"];
    assert_eq!(bad(""), states, "an owner that offers nothing");
    let and_multipath = [&["fail multipath.paths"], &states[..]].concat();
    assert_eq!(with_multipath_tools(), and_multipath, "the same, and multipath");
    let said = hosting.fails("50-connect.sh", "verify");
    assert_eq!(said.matches("volume 1 is inaccessible, and optimized is planned").count(), 2, "{said}");
    let said = serving.fails("30-nvmet.sh", "verify");
    assert_eq!(said.matches("is inaccessible, and optimized is planned").count(), 2, "{said}");
    sh(server(), "/usr/local/sbin/trunkline-nvmet configure");
    serving.run("30-nvmet.sh", "verify");
    sh(client(), &format!("{UNTIL_STATE} until_state 1 optimized"));
    hosting.run("50-connect.sh", "verify");
}

/// It is connected again by nvme-cli, and udev's rule gives it the settings of the plan.
fn a_path_that_is_missing(hosting: &Folder, load: &Load) {
    sh(
        client(),
        "for at in /sys/class/nvme/nvme*; do
             grep -q tcp $at/transport && grep -q 'traddr=10.77.2.2,' $at/address || continue
             nvme disconnect -d ${at##*/}
         done",
    );
    load.goes_on();
    // Both volumes have a path less.
    let expected = ["fail nvme.paths", "fail nvme.paths", "fail nvme.plan"];
    assert_eq!(bad(""), expected, "a path less than planned");
    let said = hosting.fails("50-connect.sh", "verify");
    assert!(said.contains("tcp 10.77.2.2 4420 is not live"), "{said}");
    sh(
        client(),
        "nvme connect-all >/dev/null 2>&1 || :
         for attempt in $(seq 300); do
             limits=$(cat /sys/class/nvme/nvme*/nvme*c*n*/queue/max_sectors_kb | sort | uniq -c)
             [ \"$(echo $limits)\" != '8 256' ] || exit 0
             sleep 0.2
         done
         echo \"the limits of requests are $limits\"; exit 1",
    );
    hosting.wait_until_verified("50-connect.sh");
}

/// Both paths of a link fall silent, and come back by themselves.
fn a_link_that_is_cut(hosting: &Folder, load: &Load) {
    sh(server(), CUT);
    sh(
        client(),
        "for attempt in $(seq 300); do
             count=0
             for at in /sys/class/nvme/nvme*; do
                 grep -qs 'traddr=10.77.2.2,' $at/address || continue
                 grep -q live $at/state || count=$((count + 1))
             done
             [ $count -lt 2 ] || exit 0
             sleep 0.5
         done
         echo \"$count of 2 paths have noticed\"; exit 1",
    );
    load.goes_on();
    let found = bad("");
    let said = hosting.fails("50-connect.sh", "verify");
    sh(server(), UNCUT);
    let expected = [["fail nvme.controller"; 2], ["fail nvme.paths"; 2], ["fail nvme.plan"; 2]].concat();
    assert_eq!(found, expected, "a silent link");
    for transport in ["rdma", "tcp"] {
        assert!(said.contains(&format!("{transport} 10.77.2.2 4420 is not live")), "{said}");
    }
    hosting.wait_until_verified("50-connect.sh");
    load.goes_on();
}
