//! The program of a Linux server's NVMe-oF target, on a directory that behaves like the kernel's
//! configfs: directories come with their attributes, and go with them.

use crate::scripts::{folder, run, write};
use runbook::System;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The devices of the Linux server's example.
const DEVICES: [&str; 2] =
    ["/dev/disk/by-id/nvme-eui.0025385b21404321", "/dev/disk/by-id/nvme-eui.0025385b21404322"];
const NQN: &str = "nqn.2024-01.org.example:stor1";

/// What `mkdir` and `rmdir` do below the stand-in for configfs.
const CONFIGFS: &str = r#"
for at; do :; done
case ${0##*/} in
    mkdir)
        /bin/mkdir "$@"
        case $at in
            "$TARGET_ROOT"/subsystems/*/namespaces/*) printf '(null)' >$at/device_path ;;
            "$TARGET_ROOT"/subsystems/*)
                [ -d $at/allowed_hosts ] || printf 0 >$at/attr_allow_any_host
                /bin/mkdir -p $at/allowed_hosts $at/namespaces ;;
            "$TARGET_ROOT"/ports/*/ana_groups/*) [ -e $at/ana_state ] || printf inaccessible >$at/ana_state ;;
            "$TARGET_ROOT"/ports/*) /bin/mkdir -p $at/subsystems $at/ana_groups/1 ;;
        esac ;;
    rmdir)
        case $at in
            "$TARGET_ROOT"/*)
                [ -z "$(find $at -type l)" ] || exit 1
                [ -z "$(find $TARGET_ROOT -lname $at)" ] || exit 1
                case $at in */ana_groups/1) exit 1 ;; esac
                [ -d "$at" ] && rm -r "$at" ;;
            *) /bin/rmdir "$@" ;;
        esac ;;
esac
"#;

/// A machine with a target.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["mkdir", "rmdir"] {
            write(&directory.path().join("bin").join(name), &format!("#!/bin/bash\n{CONFIGFS}"), 0o755);
        }
        fs::create_dir_all(directory.path().join("nvmet")).expect("made");
        let machine = Self(directory);
        machine.has(&["10.0.0.1", "10.0.1.1"]);
        machine.mounts("");
        machine
    }

    /// These are the machine's addresses.
    fn has(&self, addresses: &[&str]) {
        let line = |address: &&str| format!("2: eth1    inet {address}/24 scope global eth1\\ forever\n");
        let text: String = addresses.iter().map(line).collect();
        let program = format!("#!/bin/sh\n[ \"$*\" = '-o addr show' ] && cat <<'END'\n{text}END\n");
        write(&self.at("bin/ip"), &program, 0o755);
    }

    /// These file systems are mounted.
    fn mounts(&self, lines: &str) {
        let text = format!("22 1 0:20 / /proc rw,nosuid - proc proc rw\n{lines}");
        write(&self.at("proc/self/mountinfo"), &text, 0o644);
    }

    /// Makes a block device; partitions are numbers below its own directory of /sys.
    fn block(&self, name: &str, minor: u32, partitions: &[u32]) -> String {
        let path = self.at("dev").join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        let (worked, said) = run(Command::new("mknod").arg(&path).arg("b").arg("253").arg(minor.to_string()));
        assert!(worked, "{said}");
        for partition in partitions {
            let at = self.at(&format!("sys/dev/block/253:{minor}/part{partition}"));
            write(&at.join("partition"), "1\n", 0o644);
            write(&at.join("dev"), &format!("253:{partition}\n"), 0o644);
        }
        path.display().to_string()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Runs the program of a site.
    fn run(&self, site: &str, verb: &str) -> (bool, String) {
        let runbook = folder(site);
        let path = format!("{}:{}", self.at("bin").display(), std::env::var("PATH").expect("a path"));
        let mut command = Command::new(runbook.path().join("server-stor1/files/trunkline-nvmet"));
        command.arg(verb).env("PATH", path);
        for (name, path) in [("ROOT", "nvmet"), ("MADE", "made"), ("PROC", "proc"), ("SYS", "sys")] {
            command.env(format!("TARGET_{name}"), self.at(path));
        }
        run(&mut command)
    }

    /// The same, and it must succeed.
    fn succeed(&self, site: &str, verb: &str) -> String {
        let (worked, said) = self.run(site, verb);
        assert!(worked, "{verb}: {said}");
        said
    }

    /// What the verification of a site complains about, without its first line.
    fn complaints(&self, site: &str) -> Vec<String> {
        let (worked, said) = self.run(site, "verify");
        assert!(!worked, "nothing was found");
        said.lines().skip(1).map(str::to_owned).collect()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at("nvmet").join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn names(&self, path: &str) -> Vec<String> {
        let all = fs::read_dir(self.at("nvmet").join(path)).expect("a directory");
        let mut names: Vec<_> =
            all.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort_unstable();
        names
    }

    /// Every entry below the stand-in, with what the files say.
    fn whole(&self) -> String {
        let script = "find . | sort; find . -type f | sort | xargs -r tail -n +1";
        run(Command::new("sh").args(["-c", script]).current_dir(self.at("nvmet"))).1
    }
}

/// The example with devices that are there.
fn site() -> String {
    System::LinuxServer.site_file().replace(DEVICES[0], "/dev/null").replace(DEVICES[1], "/dev/zero")
}

#[test]
fn the_target_is_configured_as_planned_and_removed_without_a_trace() {
    let (machine, site) = (Machine::new(), site());
    assert_eq!(machine.succeed(&site, "configure"), "");
    let first = machine.whole();
    assert_eq!(machine.succeed(&site, "configure"), "");
    assert_eq!(machine.whole(), first, "a second time changes nothing");
    assert!(machine.succeed(&site, "verify").contains("2 volumes on 4 addresses"));
    assert_eq!(machine.read("ports/102/addr_traddr"), "10.0.1.1");
    assert_eq!(machine.read("ports/102/addr_trtype"), "rdma");
    assert_eq!(machine.read("ports/102/ana_groups/1/ana_state"), "non-optimized");
    assert_eq!(machine.read("ports/102/ana_groups/2/ana_state"), "optimized");
    let volume = format!("subsystems/{NQN}/namespaces/2");
    assert_eq!(machine.read(&format!("{volume}/ana_grpid")), "2");
    assert_eq!(machine.read(&format!("{volume}/enable")), "1");
    let hosts = ["nqn.2024-01.org.example:node1-eth1", "nqn.2024-01.org.example:node2-eth1"];
    assert_eq!(machine.names(&format!("subsystems/{NQN}/allowed_hosts")), hosts);
    assert_eq!(machine.succeed(&site, "remove"), "");
    for kind in ["hosts", "ports", "subsystems"] {
        assert_eq!(machine.names(kind), [""; 0], "{kind}");
    }
    assert!(!machine.at("made").exists());
}

/// Verification reports every difference, in both directions.
#[test]
fn what_differs_from_the_plan_and_what_is_there_beside_it_is_reported() {
    let (machine, site) = (Machine::new(), site());
    assert_eq!(machine.complaints(&site), [format!("there is no target {NQN}")]);
    machine.succeed(&site, "configure");
    let put = |path: &str, value: &str| write(&machine.at("nvmet").join(path), value, 0o644);
    put("ports/102/ana_groups/1/ana_state", "inaccessible");
    put("ports/103/ana_groups/9/ana_state", "optimized");
    put(&format!("subsystems/{NQN}/namespaces/1/enable"), "0");
    put(&format!("subsystems/{NQN}/namespaces/5/device_path"), "/dev/full");
    put(&format!("subsystems/{NQN}/allowed_hosts/nqn.2024-01.org.example:stranger"), "");
    put("ports/7/addr_trtype", "tcp");
    put("ports/7/addr_traddr", "10.0.9.9");
    put("ports/7/addr_trsvcid", "4420");
    put(&format!("ports/7/subsystems/{NQN}"), "");
    fs::remove_file(machine.at(&format!("nvmet/ports/104/subsystems/{NQN}"))).expect("removed");
    assert_eq!(
        machine.complaints(&site),
        [
            "nqn.2024-01.org.example:stranger may connect, and is not planned",
            "volume 1 is 0, and 1 is planned",
            "volume 5 (/dev/full) is there, and not planned",
            "the state of group 1 at rdma 10.0.1.1 is inaccessible, and non-optimized is planned",
            "group 9 at tcp 10.0.0.1 is there, and not planned",
            "nothing listens on tcp 10.0.1.1 4420",
            "it listens on tcp 10.0.9.9 4420, which is not planned",
        ]
    );
}

/// A changed plan is what runs afterwards. What both plans have is not touched: hosts keep these
/// paths.
#[test]
fn a_changed_plan_is_applied_to_a_running_target() {
    let (machine, old) = (Machine::new(), site());
    machine.succeed(&old, "configure");
    let new = old
        // The first address is no more; the second has other states.
        .replace("    { address = \"10.0.0.1\", transport = \"rdma\", optimized = [1] },\n", "")
        .replace(
            "{ address = \"10.0.1.1\", transport = \"rdma\", optimized = [2] }",
            "{ address = \"10.0.1.1\", transport = \"rdma\", optimized = [3] }",
        )
        .replace(
            "transport = \"tcp\", optimized = [2] }",
            "transport = \"tcp\", port = 4421, optimized = [3] }",
        )
        // The first volume is no more; the second keeps its number; a third comes.
        .replace(
            "    { device = \"/dev/null\", ana_group = 1 },\n",
            "    { device = \"/dev/full\", nsid = 3 },\n",
        )
        .replace("\"/dev/zero\", ana_group = 2", "\"/dev/zero\", nsid = 2, ana_group = 3")
        .replace("node[1-2]", "node[2-3]");
    assert!(!machine.run(&new, "verify").0);
    // A kept port and a kept volume are the same directories.
    let inode = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(machine.at("nvmet").join(path)).expect("there").ino()
    };
    let volume = format!("subsystems/{NQN}/namespaces/2");
    let kept = [inode("ports/102"), inode("ports/103"), inode(&volume)];
    let uuid = machine.read(&format!("{volume}/device_uuid"));
    machine.succeed(&new, "configure");
    assert!(machine.succeed(&new, "verify").contains("2 volumes on 3 addresses"));
    assert_eq!([inode("ports/102"), inode("ports/103"), inode(&volume)], kept);
    assert_eq!(machine.read(&format!("{volume}/device_uuid")), uuid, "a volume stays the same volume");
    assert_eq!(machine.names(&format!("subsystems/{NQN}/namespaces")), ["2", "3"]);
    assert_eq!(machine.names("ports/102/ana_groups"), ["1", "3"]);
    let hosts = ["nqn.2024-01.org.example:node2-eth1", "nqn.2024-01.org.example:node3-eth1"];
    assert_eq!(machine.names("hosts"), hosts);
    // Any host instead of a list, and back.
    let open = new.replace("#allow_any_host = false", "allow_any_host = true");
    machine.succeed(&open, "configure");
    machine.succeed(&open, "verify");
    assert_eq!(machine.names("hosts"), [""; 0]);
    machine.succeed(&old, "configure");
    machine.succeed(&old, "verify");
    machine.succeed(&old, "remove");
    assert_eq!(machine.names("ports"), [""; 0]);
}

#[test]
fn a_plan_that_cannot_be_reached_changes_nothing_and_says_what_to_do() {
    let (machine, site) = (Machine::new(), site());
    machine.succeed(&site, "configure");
    let before = machine.whole();
    for (old, new, complaint) in [
        // Another disk behind the number of a volume that hosts may use.
        ("\"/dev/zero\"", "\"/dev/full\"", "volume 2 is /dev/zero, and the plan has /dev/full there"),
        ("\"/dev/zero\"", "\"/no/such/device\"", "there is no /no/such/device"),
    ] {
        let (worked, said) = machine.run(&site.replace(old, new), "configure");
        assert!(!worked && said.contains(complaint), "{said}");
        assert_eq!(machine.whole(), before, "{complaint}");
    }
    // A target of that name which somebody else has made, and an address of another target.
    fs::remove_dir_all(machine.at("made")).expect("removed");
    let (worked, said) = machine.run(&site, "configure");
    assert!(!worked && said.contains("which this has not made"), "{said}");
    let other = site.replace(NQN, "nqn.2024-01.org.example:other");
    let (worked, said) = machine.run(&other, "configure");
    assert!(!worked && said.contains(&format!("same device as /dev/null of the target {NQN}")), "{said}");
    let other = other.replace("\"/dev/null\"", "\"/dev/full\"").replace("/dev/zero", "/dev/random");
    let (worked, said) = machine.run(&other, "configure");
    assert!(!worked && said.contains("another target has rdma 10.0.0.1 4420"), "{said}");
    assert_eq!(machine.whole(), before);
    let said = machine.succeed(&site, "remove");
    assert!(said.contains("which this has not made: it stays as it is"), "{said}");
    assert_eq!(machine.whole(), before, "what others have made stays, with the addresses of it");
}

/// A device that something else uses would be written to by two. Its name there is not the planned
/// one.
#[test]
fn a_device_in_use_is_refused_by_whatever_name_it_is_used() {
    let machine = Machine::new();
    let device = machine.block("mapper/vg0-data", 3, &[4]);
    let site = site().replace("\"/dev/zero\"", &format!("{device:?}"));
    let refused = |complaint: &str| {
        let (worked, said) = machine.run(&site, "check");
        assert!(!worked && said.contains(complaint), "{said}");
        let (worked, _) = machine.run(&site, "configure");
        assert!(!worked && machine.whole().lines().count() == 1, "{}", machine.whole());
    };
    // By the number of the file system, of a partition, and of the device that btrfs names.
    for (mount, complaint) in [
        ("29 1 253:3 / /srv rw - ext4 /dev/dm-3 rw", "253:3 is mounted at /srv"),
        ("29 1 253:4 / /srv rw shared:1 master:2 - xfs /dev/other rw", "253:4 is mounted at /srv"),
        (&format!("29 1 0:40 /sub /srv rw - btrfs {device} rw"), "253:3 is mounted at /srv"),
    ] {
        machine.mounts(&format!("{mount}\n"));
        refused(complaint);
    }
    machine.mounts("29 1 253:33 / /srv rw - ext4 /dev/dm-33 rw\n");
    let swaps = machine.at("proc/swaps");
    write(&swaps, &format!("Filename Type Size Used Priority\n{device} partition 1 0 -2\n"), 0o644);
    refused("253:3 is swapped to");
    fs::remove_file(swaps).expect("removed");
    let holder = machine.at("sys/dev/block/253:3/holders/dm-9");
    fs::create_dir_all(&holder).expect("made");
    refused("253:3 is held by dm-9");
    fs::remove_dir(&holder).expect("removed");
    let part = machine.at("sys/fs/btrfs/f5a7/devices/253:3");
    fs::create_dir_all(&part).expect("made");
    refused("253:3 is held by 253:3");
    fs::remove_dir(&part).expect("removed");
    assert_eq!(machine.succeed(&site, "check"), "");
    assert_eq!(machine.whole().lines().count(), 1, "a check changes nothing");
    machine.succeed(&site, "configure");
}

/// One disk has several names, and a partition is a part of its disk.
#[test]
fn one_device_is_exported_once() {
    let machine = Machine::new();
    let first = machine.block("by-id/first", 3, &[4]);
    let second = machine.block("by-id/second", 3, &[]);
    let partition = machine.block("by-id/first-part1", 4, &[]);
    let other = machine.block("by-id/other", 5, &[]);
    let of = |one: &str, two: &str| {
        site().replace("\"/dev/null\"", &format!("{one:?}")).replace("\"/dev/zero\"", &format!("{two:?}"))
    };
    for (one, two) in [(&first, &second), (&first, &partition), (&partition, &first)] {
        let (worked, said) = machine.run(&of(one, two), "check");
        let complaint = format!("volume 2 ({two}) is the same device as volume 1 ({one})");
        assert!(!worked && said.contains(&complaint), "{said}");
    }
    machine.succeed(&of(&first, &other), "check");
    write(
        &machine.at("nvmet/subsystems/nqn.2024-01.org.example:theirs/namespaces/7/device_path"),
        &format!("{second}\n"),
        0o644,
    );
    let (worked, said) = machine.run(&of(&other, &partition), "check");
    let complaint = format!("is the same device as {second} of the target nqn.2024-01.org.example:theirs");
    assert!(!worked && said.contains(&complaint), "{said}");
    machine.succeed(&of(&other, "/dev/null"), "configure");
    assert_eq!(machine.succeed(&of(&other, "/dev/null"), "check"), "", "our own volumes are no obstacle");
}

/// A mistyped address leaves the addresses that hosts use.
#[test]
fn old_addresses_stay_until_the_new_ones_listen() {
    let (machine, old) = (Machine::new(), site());
    machine.succeed(&old, "configure");
    let new = old.replace("\"10.0.0.1\"", "\"10.0.7.1\"");
    assert_ne!(new, old);
    let (worked, said) = machine.run(&new, "check");
    assert!(!worked && said.contains("this machine does not have the address 10.0.7.1"), "{said}");
    let (worked, said) = machine.run(&new, "configure");
    assert!(!worked && said.contains("nothing listens on rdma 10.0.7.1 4420"), "{said}");
    assert_eq!(machine.names("ports"), ["101", "102", "103", "104"]);
    assert_eq!(machine.read(&format!("ports/101/subsystems/{NQN}/attr_allow_any_host")), "0");
    machine.has(&["10.0.0.1", "10.0.1.1", "10.0.7.1"]);
    machine.succeed(&new, "check");
    machine.succeed(&new, "configure");
    machine.succeed(&new, "verify");
    assert_eq!(machine.names("ports"), ["102", "104", "105", "106"], "new ones came first");
    // An address that stands for all keeps others from listening: it goes first. Its number is the
    // first free one then.
    for id in ["101", "103"] {
        fs::create_dir_all(machine.at("nvmet/ports").join(id).join("subsystems")).expect("made");
    }
    for (name, value) in [("addr_traddr", "0.0.0.0"), ("addr_trsvcid", "4420")] {
        fs::write(machine.at("nvmet/ports/105").join(name), value).expect("written");
    }
    machine.succeed(&new, "configure");
    machine.succeed(&new, "verify");
    assert_eq!(machine.names("ports"), ["101", "102", "103", "104", "105", "106"]);
}

/// A machine whose second interface is down serves by the first one.
#[test]
fn a_start_without_an_interface_serves_by_the_others_and_fails() {
    let (machine, site) = (Machine::new(), site());
    machine.has(&["10.0.0.1"]);
    let (worked, said) = machine.run(&site, "configure");
    assert!(!worked && said.contains("nothing listens on rdma 10.0.1.1 4420"), "{said}");
    assert_eq!(machine.names("ports"), ["101", "102"]);
    assert_eq!(machine.read(&format!("subsystems/{NQN}/namespaces/2/enable")), "1");
    machine.has(&["10.0.0.1", "10.0.1.1"]);
    machine.succeed(&site, "configure");
    machine.succeed(&site, "verify");
}

/// A refused plan is not put in place, so that the next start does not follow it.
#[test]
fn a_refused_plan_is_not_installed() {
    let runbook = folder(&site().replace("/dev/zero", "/no/such/device"));
    let script = format!(
        "mkdir {0}/sbin; mount --bind {0}/sbin /usr/local/sbin; mount -t tmpfs none /etc; \
         RUNBOOK_STATE={0}/state {0}/server-stor1/30-nvmet.sh do && exit 9; ls -A /etc /usr/local/sbin; [ ! -e {0}/state ]",
        runbook.path().display()
    );
    let (worked, said) = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    assert!(worked && said.contains("there is no /no/such/device"), "{said}");
    assert!(said.starts_with("/etc:\n\n/usr/local/sbin:\n"), "{said}");
}

/// An interrupted run is finished by the next one.
#[test]
fn what_an_interrupted_run_has_left_is_used() {
    let (machine, site) = (Machine::new(), site());
    machine.succeed(&site, "configure");
    let whole = machine.whole();
    fs::remove_file(machine.at(&format!("nvmet/ports/103/subsystems/{NQN}"))).expect("removed");
    let volume = machine.at(&format!("nvmet/subsystems/{NQN}/namespaces/2"));
    fs::remove_dir_all(&volume).expect("removed");
    write(&volume.join("device_path"), "(null)", 0o644);
    machine.succeed(&site, "configure");
    assert_eq!(machine.whole(), whole);
}

/// The step refuses a plan with another name while the target of the earlier one may run.
#[test]
fn a_target_of_another_name_is_undone_first() {
    let runbook = folder(&site());
    let at = |path: &str| runbook.path().join(path);
    write(&at("sbin/trunkline-nvmet"), "#!/bin/bash\nnqn=nqn.2024-01.org.example:older\n", 0o755);
    let script = format!(
        "mount --bind {0}/sbin /usr/local/sbin && RUNBOOK_STATE={0}/state {0}/server-stor1/30-nvmet.sh do",
        runbook.path().display()
    );
    let (worked, said) = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    assert!(
        !worked && said.contains("an earlier plan made the target nqn.2024-01.org.example:older"),
        "{said}"
    );
    assert!(!at("state").exists());
}

/// What uses the loop device writes to the file beside the target.
#[test]
fn a_file_of_a_loop_device_is_refused() {
    let machine = Machine::new();
    for name in ["mine.img", "other.img"] {
        write(&machine.at(name), "", 0o644);
    }
    let file = machine.at("mine.img").display().to_string();
    let site = site().replace("\"/dev/zero\"", &format!("{file:?}"));
    let backing = machine.at("sys/block/loop3/loop/backing_file");
    write(&backing, &format!("{file}\n"), 0o644);
    let (worked, said) = machine.run(&site, "check");
    assert!(!worked && said.contains("is the file of /dev/loop3"), "{said}");
    for other in [machine.at("other.img").display().to_string(), format!("{file} (deleted)")] {
        write(&backing, &format!("{other}\n"), 0o644);
        machine.succeed(&site, "check");
    }
}
