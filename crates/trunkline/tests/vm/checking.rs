//! Tests `trunkline check` on a stock kernel: on a sound set-up nothing is found but what is true
//! of every small emulated machine, and each fault that is made is found by its rule and by no
//! other.

use crate::findings::bad_findings;
use crate::kernel_server::served;
use crate::{alone, lab, sh, trunkline};
use std::process::Command;
use std::time::Duration;

/// The kernel's server gives a machine of this size no transfers of 1 MiB. `server.export` says so
/// of our mount, `nfs.transfer-size` of the kernel's.
const SMALL_SERVER: &str = "warn server.export";
const SMALL_MOUNT: &str = "warn nfs.transfer-size";
/// What a user without rights may lock here.
const LITTLE_LOCKED: &str = "warn limits.memlock";

/// The findings that are not as they should be. `run` stands before the program, `arguments` after
/// it.
#[track_caller]
fn bad(run: &str, arguments: &str) -> Vec<String> {
    let program = trunkline().display();
    // The status of a check with failures is 1; that of one that could not be made has no output.
    bad_findings(&sh(&format!("{run} {program} check --json {arguments} || [ $? = 1 ]")))
}

/// Makes a fault, checks, takes the fault back, and asserts that it was found, and nothing else.
#[track_caller]
fn found(make: &str, mend: &str, run: &str, arguments: &str, expected: &[&str]) {
    sh(make);
    let bad = bad(run, arguments);
    sh(mend);
    assert_eq!(bad, expected, "after: {make}");
}

/// Two interfaces of one network, each with a table of its own, to a host of its own (`far`), and
/// an NVMe target with two addresses, one of which is preferred.
fn set_up() {
    served();
    sh("ip netns add far
        ip -n far link add wide mtu 9000 type bridge; ip -n far addr add 10.88.0.9/24 dev wide
        for n in 1 2; do
          ip link add s$n mtu 9000 type veth peer name f$n mtu 9000 netns far
          ip -n far link set f$n master wide; ip -n far link set f$n up
          echo 1 > /proc/sys/net/ipv4/conf/s$n/arp_ignore; echo 2 > /proc/sys/net/ipv4/conf/s$n/arp_announce
          ip addr add 10.88.0.$n/24 dev s$n; ip link set s$n up
          ip route add 10.88.0.0/24 dev s$n src 10.88.0.$n table 10$n
          ip rule add from 10.88.0.$n table 10$n
        done
        ip -n far link set wide up; ip -n far link set lo up");
    sh("modprobe -a nvme-tcp nvmet nvmet-tcp; modprobe brd rd_nr=1 rd_size=16384
        mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
        config=/sys/kernel/config/nvmet; subsystem=$config/subsystems/nqn.2026-11.test:a
        mkdir -p $subsystem; echo 1 > $subsystem/attr_allow_any_host
        mkdir $subsystem/namespaces/1; echo -n /dev/ram0 > $subsystem/namespaces/1/device_path
        echo 1 > $subsystem/namespaces/1/enable
        mkdir -p /etc/nvme; echo nqn.2026-11.test:host > /etc/nvme/hostnqn
        for port in 1 2; do
          at=$config/ports/$port; mkdir $at; echo ipv4 > $at/addr_adrfam; echo tcp > $at/addr_trtype
          echo 10.77.1.$port > $at/addr_traddr; echo 4420 > $at/addr_trsvcid
          [ $port = 1 ] || echo non-optimized > $at/ana_groups/1/ana_state
          ln -s $subsystem $at/subsystems/a
          nvme connect -t tcp -a 10.77.1.$port -s 4420 -n nqn.2026-11.test:a
        done");
}

fn tear_down() {
    sh("nvme disconnect -n nqn.2026-11.test:a
        config=/sys/kernel/config/nvmet
        for port in 1 2; do rm $config/ports/$port/subsystems/a; rmdir $config/ports/$port; done
        echo 0 > $config/subsystems/nqn.2026-11.test:a/namespaces/1/enable
        rmdir $config/subsystems/nqn.2026-11.test:a/namespaces/1 $config/subsystems/nqn.2026-11.test:a
        for n in 1 2; do ip rule del from 10.88.0.$n table 10$n; ip link del s$n; done
        ip netns del far");
}

#[test]
fn check_finds_each_fault_of_a_host_and_none_where_there_is_none() {
    let _turn = alone();
    set_up();
    faults_of_interfaces();
    faults_of_limits_and_modules();
    faults_of_kernel_mounts();
    faults_of_nvme();
    frames_that_vanish_on_one_of_two_links();
    tear_down();
}

const HOST: &str = "--mtu 9000 --paths 2";

fn faults_of_interfaces() {
    assert_eq!(bad("", HOST), [""; 0], "a sound host");
    found("ip link set n1 mtu 1500", "ip link set n1 mtu 9000", "", HOST, &["fail net.mtu"]);
    let rule = ("ip rule del from 10.88.0.2 table 102", "ip rule add from 10.88.0.2 table 102");
    found(rule.0, rule.1, "", HOST, &["warn net.source-routing"]);
    let strict = |value: u8| format!("echo {value} > /proc/sys/net/ipv4/conf/s2/rp_filter");
    found(
        &format!("{}; {}", rule.0, strict(1)),
        &format!("{}; {}", rule.1, strict(0)),
        "",
        HOST,
        &["fail net.rp-filter", "warn net.source-routing"],
    );
    found(
        "echo 0 > /proc/sys/net/ipv4/conf/s1/arp_ignore; echo '4096 131072 212992' > /proc/sys/net/ipv4/tcp_rmem
         modprobe tcp_vegas; echo vegas > /proc/sys/net/ipv4/tcp_congestion_control",
        "echo 1 > /proc/sys/net/ipv4/conf/s1/arp_ignore; echo '4096 131072 6291456' > /proc/sys/net/ipv4/tcp_rmem
         echo cubic > /proc/sys/net/ipv4/tcp_congestion_control",
        "",
        HOST,
        &["warn net.arp", "warn tcp.buffers", "warn tcp.congestion-control"],
    );
}

fn faults_of_limits_and_modules() {
    found("rmmod rdma_ucm", "modprobe rdma_ucm", "", HOST, &["fail rdma.modules"]);
    let limited = "ulimit -l 64; setpriv --bounding-set -ipc_lock";
    assert_eq!(bad(limited, HOST), [LITTLE_LOCKED]);
}

/// Debian's kernel 6.1 opens one connection for version 4 over RDMA, whatever nconnect asks for,
/// and does not show what that was.
fn faults_of_kernel_mounts() {
    // Version 4 begins at a root of its own.
    sh("mkdir -p /srv/root /mnt/check; mount -t tmpfs root /srv/root
        exportfs -o rw,no_root_squash,insecure,fsid=0 '*:/srv/root'");
    let mount = |options: &str| format!("mount -t nfs -o nconnect=4,{options} /mnt/check");
    let tcp = mount("vers=3,nolock,mountport=20048,proto=tcp 10.77.1.2:/srv/root");
    found(&tcp, "umount /mnt/check", "", HOST, &[SMALL_MOUNT]);
    let rdma = mount("vers=4.1,proto=rdma,port=20049 10.77.1.2:/");
    found(&rdma, "umount /mnt/check", "", HOST, &[SMALL_MOUNT]);
    sh("exportfs -u '*:/srv/root'");
}

fn faults_of_nvme() {
    // What nvme-cli lists says the same as sysfs, as text and as JSON.
    let program = trunkline().display();
    let said = sh(&format!(
        "for form in normal json; do
           mkdir /root/listed-$form
           for list in list list-subsys; do nvme $list -o $form > /root/listed-$form/nvme-$list.txt; done
           {program} check --from /root/listed-$form --paths 2
         done"
    ));
    for part in ["nqn.2026-11.test:a): 2 live paths of 2", ": 1 devices of 1 namespaces, firmware "] {
        assert_eq!(said.matches(part).count(), 2, "{part}: {said}");
    }
    let state = |port: u8, state: &str| {
        format!("echo {state} > /sys/kernel/config/nvmet/ports/{port}/ana_groups/1/ana_state; {SETTLED}")
    };
    // A path that carries nothing, then none that does.
    found(&state(1, "inaccessible"), "true", "", HOST, &["fail nvme.paths"]);
    found("true", "true", "", "--mtu 9000", &["warn nvme.paths"]);
    found(&state(2, "inaccessible"), &state(2, "non-optimized"), "", HOST, &["fail nvme.paths"]);
    sh(&state(1, "optimized"));
    // The target ends the connection, and the host tries again.
    let port = "/sys/kernel/config/nvmet/ports/2/subsystems/a";
    let lost = format!("rm {port}; until grep -q connecting /sys/class/nvme/nvme*/state; do sleep 0.2; done");
    found(&lost, "true", "", HOST, &["fail nvme.controller", "fail nvme.paths"]);
    found(
        "nvme disconnect -d nvme1",
        &format!(
            "ln -s /sys/kernel/config/nvmet/subsystems/nqn.2026-11.test:a {port}
             nvme connect -t tcp -a 10.77.1.2 -s 4420 -n nqn.2026-11.test:a"
        ),
        "",
        HOST,
        &["fail nvme.paths"],
    );
}

/// The host has heard of all changes of states once it shows what the target has.
const SETTLED: &str = "wanted=$(cat /sys/kernel/config/nvmet/ports/*/ana_groups/1/ana_state | sort | tr '\\n' ' ')
    until [ \"$(cat /sys/class/nvme/nvme*/nvme*c*n*/ana_state | sort | tr '\\n' ' ')\" = \"$wanted\" ]; do sleep 0.2; done";

/// One side of the second link takes shorter frames and tells nobody.
fn frames_that_vanish_on_one_of_two_links() {
    let mut serve = Command::new("ip");
    serve.args(["netns", "exec", "far"]).arg(trunkline());
    serve.args(["serve", "--export", "/export", "--mem", "16MiB", "--listen", "10.88.0.9:2049"]);
    let mut server = lab().client().spawn(&serve).expect("the guest runs");
    server.wait_for_line("ready", Duration::from_secs(600)).expect("the server is ready");
    let target = format!("{HOST} 10.88.0.9:/export -o localports=10.88.0.1~10.88.0.2");
    assert_eq!(bad("", &target), [""; 0], "two sound links");
    found(
        "ip -n far link set f2 mtu 1500",
        "ip -n far link set f2 mtu 9000",
        "",
        &target,
        &["fail server.mtu"],
    );
    server.signal(rustix::process::Signal::KILL);
    let _ = server.wait(drop);
}

#[test]
fn check_finds_each_fault_of_a_server_and_none_where_there_is_none() {
    let _turn = alone();
    served();
    sh("mkdir -p /srv/check; mount -t tmpfs check /srv/check
        mkdir /srv/check/closed /srv/check/squash /srv/check/other
        chown 1234:1234 /srv/check/other; chmod 700 /srv/check/other
        exportfs -o rw,no_root_squash,insecure,fsid=71 '10.99.0.0/16:/srv/check/closed'
        exportfs -o rw,root_squash,insecure,fsid=72 '*:/srv/check/squash'
        exportfs -o rw,no_root_squash,insecure,fsid=73 '*:/srv/check/other'");
    let over_rdma =
        |export: &str| format!("--mtu 9000 --write -o proto=rdma,mountport=20048 10.77.1.2:{export}");
    assert_eq!(bad("", &over_rdma("/srv/export")), [SMALL_SERVER], "a sound server");
    assert_eq!(bad("", &over_rdma("/srv/check/closed")), ["fail server.export"]);
    // Root is nobody there, and the directory is root's.
    assert_eq!(
        bad("", &over_rdma("/srv/check/squash")),
        ["fail server.write", SMALL_SERVER, "warn server.rights"]
    );
    // A user whose number is another one there.
    let over_tcp = "--mtu 9000 -o mountport=20048 10.77.1.2:/srv/check/other";
    let user = |uid: u32| format!("setpriv --reuid {uid} --regid {uid} --clear-groups");
    assert_eq!(bad(&user(1234), over_tcp), [LITTLE_LOCKED, SMALL_SERVER], "the owner");
    assert_eq!(bad(&user(1235), over_tcp), ["fail server.rights", LITTLE_LOCKED, SMALL_SERVER]);
    // Nobody listens there.
    let port = over_rdma("/srv/export").replace("proto=rdma", "proto=rdma,port=20050");
    assert_eq!(bad("", &port), ["fail server.export", "fail server.version"]);
    sh("for export in 10.99.0.0/16:closed '*:squash' '*:other'; do
          exportfs -u \"${export%:*}:/srv/check/${export#*:}\"
        done
        umount /srv/check");
}
