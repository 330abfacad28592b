//! Which paths a host counts, and which settings it applies to them, on a stand-in for /sys.

use crate::scripts::{folder, run, write};
use runbook::System;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A controller: transport, address, port, state, and the states of its volumes from the first on.
pub(crate) type Controller<'a> = (&'a str, &'a str, u16, &'a str, &'a [&'a str]);

/// The paths of the example of hosts.
const ALL: [Controller<'_>; 4] = [
    ("rdma", "10.0.0.1", 4420, "live", &["optimized"]),
    ("rdma", "10.0.1.1", 4420, "live", &["non-optimized"]),
    ("tcp", "10.0.2.1", 4420, "live", &["optimized"]),
    ("tcp", "10.0.3.1", 4420, "live", &["non-optimized"]),
];

/// A machine that seems to have these controllers, all of one subsystem.
pub(crate) struct Machine(TempDir);

impl Machine {
    pub(crate) fn new(site: &str, controllers: &[Controller<'_>]) -> Self {
        let machine = Self(folder(site));
        let put = |path: &str, value: &str| write(&machine.at(&format!("sys/{path}")), value, 0o644);
        let subsystem = "class/nvme-subsystem/nvme-subsys0";
        for (number, (transport, address, port, state, volumes)) in controllers.iter().enumerate() {
            let at = format!("class/nvme/nvme{number}");
            put(&format!("{at}/transport"), transport);
            let from = if *transport == "tcp" { ",src_addr=10.0.0.11" } else { "" };
            put(&format!("{at}/address"), &format!("traddr={address},trsvcid={port}{from}\n"));
            put(&format!("{at}/state"), state);
            put(&format!("{at}/subsysnqn"), "nqn.2024-01.org.example:stor1\n");
            for (nsid, state) in (1..).zip(*volumes) {
                let path = format!("{at}/nvme0c{number}n{nsid}");
                put(&format!("{path}/nsid"), &nsid.to_string());
                put(&format!("{path}/ana_state"), state);
                put(&format!("{path}/queue/max_sectors_kb"), "1280");
                put(&format!("{subsystem}/nvme0n{nsid}/nsid"), &nsid.to_string());
                put(&format!("block/nvme0n{nsid}/queue/max_sectors_kb"), "1280");
            }
        }
        put(&format!("{subsystem}/subsysnqn"), "nqn.2024-01.org.example:stor1\n");
        put(&format!("{subsystem}/iopolicy"), "round-robin");
        // The machine's own drive, which is nobody's path.
        put("class/nvme/nvme9/transport", "pcie");
        put("class/nvme-subsystem/nvme-subsys9/subsysnqn", "nqn.2014-08.org.example:drive");
        put("class/nvme-subsystem/nvme-subsys9/iopolicy", "numa");
        machine
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Runs a script there; `$nvme` is the program of the runbook.
    pub(crate) fn run(&self, script: &str) -> (bool, String) {
        let whole = format!(
            "exec 2>&1; set -e; mkdir -p /etc/nvme; mount -t tmpfs none /etc/nvme; \
             cp {0}/hosts/by-name/node1/discovery.conf /etc/nvme; \
             mount -t tmpfs none /sys; cp -r {0}/sys/. /sys; \
             for n in 1 2; do mknod /dev/nvme0n$n b 259 $n 2>/dev/null || :; done; \
             nvme={0}/hosts/files/trunkline-nvme; PATH={0}/bin:$PATH; {script}",
            self.0.path().display()
        );
        let dev = "mount -t tmpfs none /dev && ";
        let nodes = "mknod /dev/null c 1 3; mknod /dev/urandom c 1 9; ln -s /proc/self/fd /dev/fd; ";
        let (worked, said) =
            run(Command::new("unshare").args(["--mount", "sh", "-c", &format!("{dev}{nodes}{whole}")]));
        (worked, said)
    }
}

fn on(controllers: &[Controller<'_>], script: &str) -> (bool, String) {
    Machine::new(System::LinuxHost.site_file(), controllers).run(script)
}

#[test]
fn the_host_counts_the_paths_that_are_live() {
    let (worked, said) = on(&ALL, "$nvme verify; $nvme connect --now");
    assert!(worked && said.matches("all 4 paths are live").count() == 2, "{said}");
    let mut lost = ALL;
    lost[1].3 = "connecting";
    let (worked, said) = on(&lost, "$nvme verify");
    assert!(!worked && said.contains("rdma 10.0.1.1 4420 is not live"), "{said}");
    assert!(!said.contains("10.0.0.1"), "{said}");
    // Another transport, an address that begins alike, and another port are other paths.
    for (place, other, missing) in [
        (2, ("rdma", "10.0.2.1", 4420, "live", ALL[2].4), "tcp 10.0.2.1 4420 is not live"),
        (3, ("tcp", "10.0.3.11", 4420, "live", ALL[3].4), "tcp 10.0.3.1 4420 is not live"),
        (0, ("rdma", "10.0.0.1", 4421, "live", ALL[0].4), "rdma 10.0.0.1 4420 is not live"),
        (0, ("rdma", "10.0.0.1", 442, "live", ALL[0].4), "rdma 10.0.0.1 4420 is not live"),
    ] {
        let mut changed = ALL;
        changed[place] = other;
        let (worked, said) = on(&changed, "$nvme verify");
        assert!(!worked && said.contains(missing), "{said}");
        let surplus = format!("{} {} {} is connected, and not planned", other.0, other.1, other.2);
        assert!(said.contains(&surplus), "{said}");
    }
}

/// A controller may be live and lead to nothing.
#[test]
fn a_live_controller_is_no_path_to_volumes_that_are_inaccessible_there() {
    for (states, complaint) in [
        (&["inaccessible"][..], "rdma 10.0.1.1 4420: volume 1 is inaccessible"),
        (&["change"], "rdma 10.0.1.1 4420: volume 1 is change"),
        (&["persistent-loss"], "rdma 10.0.1.1 4420: volume 1 is persistent-loss"),
        (&[], "rdma 10.0.1.1 4420 has no volume"),
    ] {
        let mut changed = ALL;
        changed[1].4 = states;
        let (worked, said) = on(&changed, "$nvme verify");
        assert!(!worked && said.contains(complaint), "{said}");
    }
}

/// The states of a target of the same plan are known.
#[test]
fn states_are_compared_with_those_of_the_planned_target() {
    let two = [["optimized", "non-optimized"], ["non-optimized", "optimized"]];
    let planned: [Controller<'_>; 4] = [
        ("rdma", "10.0.0.1", 4420, "live", &two[0]),
        ("rdma", "10.0.1.1", 4420, "live", &two[1]),
        ("tcp", "10.0.0.1", 4420, "live", &two[0]),
        ("tcp", "10.0.1.1", 4420, "live", &two[1]),
    ];
    let site = System::LinuxServer.site_file();
    let verify = |controllers: &[Controller<'_>]| Machine::new(site, controllers).run("$nvme verify");
    let (worked, said) = verify(&planned);
    assert!(worked && said.contains("all 4 paths are live"), "{said}");
    for (states, complaint) in [
        (
            &["optimized", "optimized"][..],
            "tcp 10.0.0.1 4420: volume 2 is optimized, and non-optimized is planned",
        ),
        (&["optimized"], "tcp 10.0.0.1 4420: volume 2 is missing, and non-optimized is planned"),
        (
            &["optimized", "non-optimized", "optimized"],
            "tcp 10.0.0.1 4420 has volume 3, which is not planned",
        ),
    ] {
        let mut changed = planned;
        changed[2].4 = states;
        let (worked, said) = verify(&changed);
        assert!(!worked && said.contains(complaint), "{said}");
    }
}

/// The policy is the subsystem's; the limit is set on hidden paths and on the volume above them;
/// nothing of the machine's own drives is touched.
#[test]
fn settings_are_applied_to_the_planned_targets_only() {
    let site = System::LinuxHost
        .site_file()
        .replace("#iopolicy = \"round-robin\"", "iopolicy = \"numa\"\nrequest_kib = 512");
    let machine = Machine::new(&site, &ALL);
    let (worked, said) = machine.run(
        "! $nvme verify; $nvme tune; $nvme verify; cd /sys; \
         for file in class/nvme/*/*/queue/max_sectors_kb block/*/queue/max_sectors_kb class/nvme-subsystem/*/iopolicy; do \
             echo $file $(cat $file); done",
    );
    assert!(worked, "{said}");
    for complaint in [
        "/sys/class/nvme-subsystem/nvme-subsys0/iopolicy is round-robin, and numa is planned: trunkline-nvme tune",
        "/sys/class/nvme/nvme3/nvme0c3n1/queue/max_sectors_kb is 1280, and 512 is planned",
        "/sys/block/nvme0n1/queue/max_sectors_kb is 1280, and 512 is planned",
    ] {
        assert!(said.contains(complaint), "{complaint} is not in\n{said}");
    }
    assert_eq!(said.matches("max_sectors_kb 512\n").count(), 5, "{said}");
    assert!(
        said.contains("nvme-subsys0/iopolicy numa\n") && !said.contains("nvme-subsys9/iopolicy is"),
        "{said}"
    );
}

/// udev announces each path and volume: one run is under way, one waits and sees what came
/// meanwhile, and all others need not run.
#[test]
fn one_run_applies_the_settings_to_all_that_udev_announces_meanwhile() {
    let site = System::LinuxHost.site_file().replace("nqn_prefix", "request_kib = 512\nnqn_prefix");
    let machine = Machine::new(&site, &ALL);
    let limit = "/sys/block/nvme0n1/queue/max_sectors_kb";
    let flock = "#!/bin/sh\necho \"$*\" >>/etc/nvme/log\nexec /usr/bin/flock \"$@\"\n";
    write(&machine.at("bin/flock"), flock, 0o755);
    // The lock of a run under way is held until the first run waits for it and the second has
    // ended.
    let (worked, said) = machine.run(&format!(
        "exec 7<$nvme; flock 7; $nvme tune --once 7<&- & \
         for n in $(seq 600); do grep -qx 9 /etc/nvme/log && break; sleep 0.1; done; \
         $nvme tune --once 7<&-; cat {limit}; echo; exec 7<&-; wait; cat {limit}"
    ));
    assert!(worked, "{said}");
    assert_eq!(said, "1280\n512\n", "the second run does not wait, the first one does");
    let rules = folder(&site);
    let rules = fs::read_to_string(rules.path().join("hosts/files/71-trunkline-nvme.rules")).expect("read");
    assert_eq!(rules.matches("RUN+=").count(), rules.matches("trunkline-nvme tune --once\"").count());
}

/// A path of an earlier plan is disconnected once all planned ones are live.
#[test]
fn a_path_that_is_not_planned_any_more_is_disconnected() {
    let more: Vec<_> = ALL.into_iter().chain([("tcp", "10.0.7.1", 4420, "live", ALL[0].4)]).collect();
    let machine = Machine::new(System::LinuxHost.site_file(), &more);
    write(
        &machine.at("bin/nvme"),
        "#!/bin/sh\necho \"nvme $*\"; [ \"$1 $2\" = 'disconnect -d' ] && rm -r /sys/class/nvme/$3\n",
        0o755,
    );
    let (worked, said) = machine.run("! $nvme verify; $nvme connect --now; $nvme verify");
    assert!(worked && said.contains("nvme disconnect -d nvme4\n"), "{said}");
    assert_eq!(said.matches("nvme disconnect").count(), 1, "{said}");
}

/// While the new paths cannot carry the data, the old ones are all that a volume has.
#[test]
fn old_paths_stay_until_the_volumes_are_usable_on_the_new_ones() {
    let mut all: Vec<_> = ALL.into_iter().chain([("tcp", "10.0.7.1", 4420, "live", ALL[0].4)]).collect();
    all[1].4 = &["inaccessible"];
    let site = System::LinuxHost.site_file().replace("nqn_prefix", "connect_wait_s = 1\nnqn_prefix");
    let machine = Machine::new(&site, &all);
    write(
        &machine.at("bin/nvme"),
        "#!/bin/sh\necho \"nvme $*\"; [ \"$1 $2\" = 'disconnect -d' ] && rm -r /sys/class/nvme/$3\n",
        0o755,
    );
    let (worked, said) = machine.run("$nvme connect --now");
    assert!(!worked && said.contains("rdma 10.0.1.1 4420: volume 1 is inaccessible"), "{said}");
    assert!(said.contains("paths of an earlier plan stay") && !said.contains("disconnect"), "{said}");
    // The volume comes while the program waits.
    let patient = Machine::new(&site.replace("wait_s = 1", "wait_s = 600"), &all);
    let state = "/sys/class/nvme/nvme1/nvme0c1n1/ana_state";
    write(&patient.at("bin/sleep"), &format!("#!/bin/sh\necho optimized >{state}\n"), 0o755);
    fs::copy(machine.at("bin/nvme"), patient.at("bin/nvme")).expect("copied");
    let (worked, said) = patient.run("$nvme connect --now");
    assert!(worked && said.contains("nvme disconnect -d nvme4\n"), "{said}");
}

/// Without a plan nothing is missing, which is not what was planned.
#[test]
fn a_host_without_planned_paths_is_not_in_order() {
    for (change, complaint) in [
        ("rm /etc/nvme/discovery.conf", "there is no /etc/nvme/discovery.conf"),
        (": >/etc/nvme/discovery.conf", "/etc/nvme/discovery.conf names no path"),
        ("echo '# -t tcp -a 10.0.0.1' >/etc/nvme/discovery.conf", "/etc/nvme/discovery.conf names no path"),
    ] {
        for verb in ["verify", "connect --now"] {
            let (worked, said) = on(&ALL, &format!("{change}; $nvme {verb}"));
            assert!(!worked && said.contains(complaint), "{verb}: {said}");
        }
    }
    // A shorter list than the plan's is a smaller plan, which the step finds.
    let step = "mount -t tmpfs none /usr/local/sbin; mount -t tmpfs none /etc/systemd; mount -t tmpfs none /etc/udev; \
         cd $(dirname $nvme); mkdir /etc/systemd/system /etc/udev/rules.d; cp trunkline-nvme /usr/local/sbin; \
         cp trunkline-nvme.service /etc/systemd/system; cp 71-trunkline-nvme.rules /etc/udev/rules.d; \
         sed -i CHANGE /etc/nvme/discovery.conf; HOST_NAME=node1 ../50-connect.sh verify";
    let (worked, said) = on(&ALL, &step.replace("CHANGE", "''"));
    assert!(worked && said.contains("all 4 paths are live"), "{said}");
    let (worked, said) = on(&ALL, &step.replace("CHANGE", "'$d'"));
    assert!(
        !worked && said.contains("/etc/nvme/discovery.conf is not discovery.conf of this folder"),
        "{said}"
    );
}

/// An attempt that fails is repeated until every path is live.
#[test]
fn connect_repeats_attempts_until_all_paths_are_live() {
    let mut waiting = ALL;
    waiting[1].3 = "connecting";
    let machine = Machine::new(System::LinuxHost.site_file(), &waiting);
    let nvme = format!(
        "#!/bin/sh\necho \"nvme $*\" >>/etc/nvme/log\n[ $1 != discover ] || {{ {LISTED}; exit; }}\n\
         [ \"$(grep -c 'nvme connect ' /etc/nvme/log)\" -lt 2 ] || echo live >/sys/class/nvme/nvme1/state\nexit 1\n"
    );
    write(&machine.at("bin/nvme"), &nvme, 0o755);
    write(&machine.at("bin/sleep"), "#!/bin/sh\necho \"sleep $*\" >>/etc/nvme/log\n", 0o755);
    let (worked, said) = machine.run("$nvme connect --now; cat /etc/nvme/log");
    let path = "-t rdma -a 10.0.1.1 -s 4420 -q nqn.2024-01.org.example:node1-eth1";
    let attempt = format!(
        "nvme discover {path}\nnvme connect {path} -Q 1024 -l 3600 -n nqn.2024-01.org.example:stor1\n"
    );
    let log = format!("{attempt}{}{attempt}", "sleep 1\n".repeat(10));
    assert!(worked && said == format!("all 4 paths are live\n{log}"), "{said}");
}

/// A list of targets, with a discovery subsystem and other addresses.
const LISTED: &str = "printf '=====Discovery Log Entry %s======\\ntrtype:  rdma\\nsubtype: %s\\ntrsvcid: %s\\n\
    subnqn:  %s\\ntraddr:  %s\\n' 0 'nvme subsystem' 4420 nqn.2024-01.org.example:stor1 10.0.0.1 \
    1 'nvme subsystem' 4420 nqn.2024-01.org.example:stor1 10.0.1.1 2 'nvme subsystem' 4421 nqn.other 10.0.1.1 \
    3 'current discovery subsystem' 4420 nqn.2014-08.org.nvmexpress.discovery 10.0.1.1";

/// Linux tries one address after the other, and the SYN of a dead one is repeated for minutes.
#[test]
fn an_address_that_is_dead_does_not_hold_the_others() {
    let mut waiting = ALL;
    waiting[0].3 = "connecting";
    waiting[1].3 = "connecting";
    let site = System::LinuxHost.site_file().replace("nqn_prefix", "connect_wait_s = 1\nnqn_prefix");
    let machine = Machine::new(&site, &waiting);
    // The first address never answers; a program that is given up is ended.
    let nvme = format!(
        "#!/bin/sh\ncase \"$*\" in\n*' -a 10.0.0.1 '*) echo $$ >>/etc/nvme/held; exec tail -f /dev/null ;;\n\
         discover*) {LISTED} ;;\nconnect*) echo live >/sys/class/nvme/nvme1/state ;;\nesac\n"
    );
    write(&machine.at("bin/nvme"), &nvme, 0o755);
    let (worked, said) = machine.run(
        "rc=0; ATTEMPT_S=0.2 $nvme connect --now || rc=$?; for held in $(cat /etc/nvme/held); do ! kill -0 $held; done; \
         exit $rc",
    );
    assert!(!worked && said.contains("not connected after 1 s:\nrdma 10.0.0.1 4420\n"), "{said}");
    assert!(!said.contains("rdma 10.0.1.1"), "{said}");
    assert!(said.matches("No such process").count() >= 1, "{said}");
}

/// A target whose list has other addresses than the plan is connected as its list says.
#[test]
fn a_target_that_does_not_list_its_address_is_connected_by_its_list() {
    let mut waiting = ALL;
    waiting[2].3 = "connecting";
    let machine = Machine::new(System::LinuxHost.site_file(), &waiting);
    let nvme = format!(
        "#!/bin/sh\necho \"nvme $*\" >>/etc/nvme/log\n[ $1 != discover ] || {{ {LISTED}; exit; }}\n\
         [ $1 != connect-all ] || echo live >/sys/class/nvme/nvme2/state\n"
    );
    write(&machine.at("bin/nvme"), &nvme, 0o755);
    let (worked, said) = machine.run("$nvme connect --now; cat /etc/nvme/log");
    assert!(worked && said.starts_with("all 4 paths are live\nnvme discover -t tcp -a 10.0.2.1 "), "{said}");
    assert!(said.contains("\nnvme connect-all -t tcp -a 10.0.2.1 -s 4420 "), "{said}");
}

#[test]
fn connect_tells_which_paths_did_not_come_in_time() {
    let mut waiting = ALL;
    waiting[1].3 = "connecting";
    waiting[2].3 = "resetting";
    let site = System::LinuxHost.site_file().replace("nqn_prefix", "connect_wait_s = 1\nnqn_prefix");
    let machine = Machine::new(&site, &waiting);
    write(&machine.at("bin/nvme"), "#!/bin/sh\nexit 1\n", 0o755);
    let (worked, said) = machine.run("$nvme connect --now");
    let missing = "not connected after 1 s:\nrdma 10.0.1.1 4420\ntcp 10.0.2.1 4420\n";
    assert!(!worked && said == missing, "{said}");
}

/// Hosts that start together do not connect together.
#[test]
fn connect_waits_a_random_time_first() {
    let site = System::LinuxHost.site_file().replace("nqn_prefix", "connect_delay_s = 3\nnqn_prefix");
    let machine = Machine::new(&site, &ALL);
    write(&machine.at("bin/sleep"), "#!/bin/sh\necho \"slept $*\"\n", 0o755);
    let (worked, said) = machine.run("for n in $(seq 20); do $nvme connect; done");
    let delays: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("slept ")).collect();
    assert!(worked && delays.len() == 20, "{said}");
    assert!(delays.iter().all(|delay| ["0", "1", "2", "3"].contains(delay)), "{said}");
    assert!(delays.iter().any(|delay| *delay != delays[0]), "twenty times the same: {said}");
    let (worked, said) = machine.run("$nvme connect --now");
    assert!(worked && said == "all 4 paths are live\n", "{said}");
}

/// A machine with two volumes, each joined by DM-Multipath, and stand-ins that log what they do.
/// /proc has only what the program reads.
fn with_two_volumes() -> Machine {
    let mut two = ALL;
    two.iter_mut().for_each(|controller| controller.4 = &["optimized", "optimized"]);
    let machine = Machine::new(System::LinuxHost.site_file(), &two);
    for (volume, name) in [(1, "mpatha"), (2, "mpathb")] {
        for at in [format!("nvme0n{volume}/holders/dm-{volume}"), format!("dm-{volume}")] {
            let at = format!("sys/block/{at}/dm");
            write(&machine.at(&format!("{at}/uuid")), &format!("mpath-eui.{volume}"), 0o644);
            write(&machine.at(&format!("{at}/name")), name, 0o644);
        }
    }
    let log = "#!/bin/sh\necho \"${0##*/} $*\" >>/etc/nvme/log\n";
    write(&machine.at("bin/multipath"), &format!("{log}[ ! -e /etc/nvme/busy ]\n"), 0o755);
    let nvme = format!("{log}[ \"$1 $2\" != 'disconnect -n' ] || rm -r /sys/class/nvme/nvme[0-3]\n");
    write(&machine.at("bin/nvme"), &nvme, 0o755);
    write(&machine.at("bin/pgrep"), "#!/bin/sh\n[ -e \"/etc/nvme/runs-$2\" ]\n", 0o755);
    machine
}

/// Runs it after this change; whether it worked, what it said, and what the stand-ins did.
fn disconnected_after(machine: &Machine, change: &str) -> (bool, String, String) {
    let (worked, said) = machine.run(&format!(
        "mount -t tmpfs none /proc; : >/proc/mounts; : >/proc/swaps; : >/etc/nvme/log; {change}; \
         rc=0; $nvme disconnect || rc=$?; echo LOG; cat /etc/nvme/log; exit $rc"
    ));
    let (said, log) = said.split_once("LOG\n").unwrap_or_else(|| panic!("{said}"));
    (worked, said.to_owned(), log.to_owned())
}

// Deploying NetApp EF600, figure 28: unmount, `multipath -f`, then disconnect.
#[test]
fn disconnect_takes_the_multipath_devices_before_the_paths() {
    let machine = with_two_volumes();
    let flushed = "multipath -f mpatha\nmultipath -f mpathb\n";
    let all = format!("{flushed}nvme disconnect -n nqn.2024-01.org.example:stor1\n");
    assert_eq!(disconnected_after(&machine, ":"), (true, String::new(), all.clone()));
    // Without DM-Multipath there is nothing between volumes and paths.
    let native = "rm -r /sys/block/nvme0n*/holders /sys/block/dm-*";
    let paths = all.trim_start_matches(flushed).to_owned();
    assert_eq!(disconnected_after(&machine, native), (true, String::new(), paths));
    // A device that something holds keeps its paths.
    let (worked, _, log) = disconnected_after(&machine, "touch /etc/nvme/busy");
    assert!(!worked && log == "multipath -f mpatha\n", "{log}");
}

#[test]
fn disconnect_refuses_while_a_volume_is_in_use() {
    let machine = with_two_volumes();
    let holder = |at: &str, uuid: &str| format!("mkdir -p {at}/dm; echo {uuid} >{at}/dm/uuid");
    for (change, complaint) in [
        ("echo '/dev/nvme0n2 /data xfs rw 0 0' >/proc/mounts", "/dev/nvme0n2 is in use: unmount it first"),
        ("echo '/dev/nvme0n1p3 /data xfs rw 0 0' >/proc/mounts", "/dev/nvme0n1 is in use: unmount it first"),
        ("echo '/dev/mapper/mpathb /data xfs rw 0 0' >/proc/mounts", "/dev/dm-2 is in use: unmount it first"),
        ("echo '/dev/dm-1 partition 1 0 -2' >/proc/swaps", "/dev/dm-1 is in use: unmount it first"),
        (&holder("/sys/block/nvme0n1/holders/dm-9", "LVM-1"), "/dev/nvme0n1 is in use by dm-9"),
        (&holder("/sys/block/dm-2/holders/dm-9", "CRYPT-1"), "/dev/dm-2 is in use by dm-9"),
        (&holder("/sys/block/nvme0n2/nvme0n2p1/holders/md0", "x"), "/dev/nvme0n2 is in use by md0"),
        ("touch /etc/nvme/runs-mmfsd", "Spectrum Scale runs here and may have the volumes open"),
        ("echo 'fs1 /gpfs/fs1 gpfs rw 0 0' >/proc/mounts", "a Spectrum Scale file system is mounted here"),
    ] {
        let (worked, said, log) = disconnected_after(&machine, change);
        assert!(!worked && said.contains(complaint), "{change}: {said}");
        assert_eq!(log, "", "{change}");
    }
    // Another disk's use is nobody's obstacle.
    let other =
        "echo '/dev/nvme0n11 /data xfs rw 0 0' >/proc/mounts; echo '/dev/sda1 / ext4 rw 0 0' >>/proc/mounts";
    assert!(disconnected_after(&machine, other).0);
}

/// Addresses that do not answer come last, so that they use up nobody's time.
#[test]
fn addresses_that_answer_have_their_turn_first() {
    let mut waiting = ALL;
    waiting.iter_mut().for_each(|controller| controller.3 = "connecting");
    let site = System::LinuxHost.site_file().replace("nqn_prefix", "connect_wait_s = 600\nnqn_prefix");
    let machine = Machine::new(&site, &waiting);
    // Dead are the first addresses over RDMA and over TCP. The last attempt succeeds for all.
    let dead = |log: &str, word: &str| {
        format!(
            "#!/bin/sh\necho \"{log}\" >>/etc/nvme/probes\ncase \" $* \" in *\" {word} \"*) exit 1 ;; esac\n"
        )
    };
    write(&machine.at("bin/ping"), &dead("ping $*", "10.0.0.1"), 0o755);
    write(&machine.at("bin/bash"), &dead("tcp $3 $4", "10.0.2.1"), 0o755);
    let nvme = "#!/bin/sh\n[ $1 = discover ] || exit 0\necho \"$5\" >>/etc/nvme/log\n\
         [ $(wc -l </etc/nvme/log) -lt 4 ] || for of in 0 1 2 3; do echo live >/sys/class/nvme/nvme$of/state; done\n";
    write(&machine.at("bin/nvme"), nvme, 0o755);
    let (worked, said) = machine.run("$nvme connect --now; cat /etc/nvme/log; sort /etc/nvme/probes");
    let log = "10.0.1.1\n10.0.3.1\n10.0.0.1\n10.0.2.1\n";
    let probes = "ping -c 1 10.0.0.1\nping -c 1 10.0.1.1\ntcp 10.0.2.1 4420\ntcp 10.0.3.1 4420\n";
    assert!(worked && said == format!("all 4 paths are live\n{log}{probes}"), "{said}");
}

/// The time is over in the middle of a round: the rest of it is not begun.
#[test]
fn a_round_of_attempts_ends_with_the_time() {
    let mut waiting = ALL;
    waiting.iter_mut().for_each(|controller| controller.3 = "connecting");
    let site = System::LinuxHost.site_file().replace("nqn_prefix", "connect_wait_s = 1\nnqn_prefix");
    let machine = Machine::new(&site, &waiting);
    write(&machine.at("bin/ping"), "#!/bin/sh\n", 0o755);
    write(&machine.at("bin/bash"), "#!/bin/sh\n", 0o755);
    // Each would hold its own whole time.
    write(&machine.at("bin/nvme"), "#!/bin/sh\necho $5 >>/etc/nvme/log\nexec tail -f /dev/null\n", 0o755);
    let (worked, said) =
        machine.run("rc=0; ATTEMPT_S=3600 $nvme connect --now || rc=$?; cat /etc/nvme/log; exit $rc");
    assert!(!worked && said.contains("not connected after 1 s:\nrdma 10.0.0.1 4420\n"), "{said}");
    assert!(said.ends_with("tcp 10.0.3.1 4420\n10.0.0.1\n"), "only the first was asked: {said}");
}
