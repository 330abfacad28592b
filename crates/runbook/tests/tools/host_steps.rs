//! Steps of a Linux host, with stand-ins for the kernel and for the packages of the system.

use crate::scripts::{folder, run, write};
use runbook::System;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Stand-ins for the kernel's modules: /sys/module and /proc/modules are theirs, and the driver has
/// native multipath off unless an option turns it on, as on RHEL 8.
const KERNEL: &str = r#"
load() {
    mkdir -p /sys/module/nvme_core/parameters
    value=N
    if grep -qs '^options nvme_core multipath=Y' /etc/modprobe.d/*.conf; then value=Y; fi
    echo $value >/sys/module/nvme_core/parameters/multipath
    echo "nvme_core 1 0 - Live 0x0" >$AT/modules
}
unload() {
    [ ! -e $AT/busy ] || exit 1
    rm -rf /sys/module/nvme_core
    : >$AT/modules
}
case "${0##*/} $*" in
    'modprobe nvme_core') load ;;
    'modprobe -r nvme_core' | 'rmmod nvme_core') unload ;;
    'modinfo -n nvme_core') echo /lib/modules/nvme-core.ko ;;
    'dracut --force --kver '*) echo dracut $3 >>$AT/made ;;
    'grubby --default-kernel') echo /boot/vmlinuz-4.18.0-default ;;
    'uname -r') echo 4.18.0-running ;;
    *) echo "${0##*/}: no $*" >&2; exit 1 ;;
esac
"#;

/// Runs a script of a host on a machine that seems to have a kernel of RHEL 8.
fn on_rhel8(script: &str) -> (bool, String) {
    let directory = folder(&System::LinuxHost.site_file().replace("debian12", "rhel8"));
    let at = directory.path();
    for name in ["modprobe", "rmmod", "modinfo", "dracut", "grubby", "uname"] {
        write(&at.join("bin").join(name), &format!("#!/bin/sh\nAT={}\n{KERNEL}", at.display()), 0o755);
    }
    write(&at.join("modules"), "", 0o644);
    let whole = format!(
        "exec 2>&1; set -eu; export AT={0} PATH={0}/bin:$PATH RUNBOOK_STATE={0}/state RUNBOOK_MODULES={0}/modules; \
         mount -t tmpfs none /sys; mkdir -p /etc/modprobe.d; mount -t tmpfs none /etc/modprobe.d; \
         mkdir -p /lib/modules; mount -t tmpfs none /lib/modules; \
         mkdir /lib/modules/4.18.0-running /lib/modules/4.18.0-default /lib/modules/4.18.0-fallback; \
         step={0}/hosts/15-native-multipath.sh; {script}",
        at.display()
    );
    run(Command::new("unshare").args(["--mount", "sh", "-c", &whole]))
}

#[test]
fn native_multipath_is_turned_on_at_once_where_the_driver_is_not_in_use() {
    let (worked, said) = on_rhel8(
        "$step do; $step verify; cat /etc/modprobe.d/trunkline-nvme.conf; cat $AT/made; \
         $step undo; ls /etc/modprobe.d; ls /sys/module; [ ! -e $AT/state ]",
    );
    assert!(worked && said.contains("options nvme_core multipath=Y\n"), "{said}");
    // The fallback's stays as it is.
    assert!(said.contains("Y\ndracut 4.18.0-default\ndracut 4.18.0-running\n"), "{said}");
    assert_eq!(said.matches("dracut").count(), 2, "{said}");
    assert!(!said.contains("RESTART"), "{said}");
    assert!(said.ends_with("stays on until this machine is restarted\n"), "nothing is left: {said}");
}

#[test]
fn native_multipath_asks_for_a_restart_where_a_disk_uses_the_driver() {
    let (worked, said) = on_rhel8(
        "modprobe nvme_core; touch $AT/busy; $step do; ! $step verify; \
         echo Y >/sys/module/nvme_core/parameters/multipath; $step verify; $step do; $step undo; cat $AT/modules",
    );
    assert!(worked && said.contains("RESTART THIS MACHINE NOW"), "{said}");
    assert!(said.contains("native multipath is off until this machine is restarted"), "{said}");
    assert!(said.ends_with("nvme_core 1 0 - Live 0x0\n"), "a module of others stays: {said}");
}

/// Its devices have other names afterwards.
#[test]
fn native_multipath_is_not_turned_on_below_a_device_of_dm_multipath() {
    let script = "modprobe nvme_core; touch $AT/busy; \
         mkdir -p /sys/block/dm-0/dm /sys/block/dm-0/slaves/sdb /sys/block/dm-3/dm /sys/block/dm-3/slaves/nvme4n1; \
         echo UUID >/sys/block/dm-3/dm/uuid; echo mpathc >/sys/block/dm-3/dm/name; \
         echo mpath-3600 >/sys/block/dm-0/dm/uuid; WITH $step do; ls /etc/modprobe.d; cat $AT/made";
    let of = |uuid: &str, with: &str| on_rhel8(&script.replace("UUID", uuid).replace("WITH", with));
    let (worked, said) = of("mpath-eui.1", "!");
    assert!(!worked && said.contains("joins paths of nvme4n1 in mpathc"), "{said}");
    assert!(!said.contains("trunkline-nvme.conf") && said.contains("/made: No such file"), "{said}");
    for (uuid, with) in [("mpath-eui.1", "REPLACE_MULTIPATH=yes"), ("LVM-1", "")] {
        let (worked, said) = of(uuid, with);
        assert!(worked && said.contains("trunkline-nvme.conf") && said.contains("RESTART"), "{said}");
    }
}

/// The kernel that was running then is made to start as before, also where another one runs now.
#[test]
fn undo_makes_the_initial_file_systems_again_that_do_has_made() {
    let (worked, said) = on_rhel8(
        "$step do; rm $AT/made; sed -i s/-running/-later/ $AT/bin/uname; mkdir /lib/modules/4.18.0-later; \
         rmdir /lib/modules/4.18.0-default; $step undo; cat $AT/made",
    );
    assert!(worked && said.ends_with("dracut 4.18.0-later\ndracut 4.18.0-running\n"), "{said}");
}

#[test]
fn native_multipath_that_something_else_turns_off_or_on_is_left_alone() {
    let (worked, said) = on_rhel8(
        "echo 'options nvme-core multipath=N' >/etc/modprobe.d/mine.conf; ! $step do; \
         ls /etc/modprobe.d; [ ! -e $AT/made ]; rm /etc/modprobe.d/mine.conf; $step undo; \
         echo 'options nvme_core multipath=Y' >/etc/modprobe.d/mine.conf; $step do; $step verify; ls /etc/modprobe.d; \
         $step undo; [ ! -e $AT/made ]",
    );
    assert!(worked && said.contains("/etc/modprobe.d/mine.conf turns it off"), "{said}");
    assert!(said.ends_with("native multipath is on\nmine.conf\n"), "{said}");
}

/// The programs that steps use beside those for packages.
const PROGRAMS: [&str; 19] = [
    "awk", "basename", "bash", "cat", "comm", "cp", "cut", "dirname", "find", "grep", "id", "ls", "mkdir",
    "rm", "rmdir", "sed", "sort", "tac", "tr",
];

/// Stand-ins for the packages of a system: an installed package is a file with the names that it
/// needs, and the repository has a folder of such files.
const PACKAGES: &str = r#"
here=$AT/installed
install() {
    for name in "$@"; do
        [ ! -e $here/$name ] || continue
        cp $AT/repository/$name $here/$name
        install $(cat $here/$name)
    done
}
remove() {
    [ -e $here/$1 ] || return 0
    ! grep -rqxF "$1" $here || { echo "$1 is needed" >&2; exit 1; }
    rm $here/$1
}
case "${0##*/} $1" in
    'dpkg-query -W' | 'rpm -q')
        [ "${3-}" = "" ] || case $3 in *Abbrev*) ls $here | sed 's/^/ii  /'; exit ;; esac
        for name; do :; done
        [ -e $here/$name ] || exit 1
        echo 'install ok installed' ;;
    'rpm -qa') ls $here ;;
    'apt-get install' | 'dnf install') shift 2; install "$@" ;;
    'dpkg --purge' | 'rpm -e') remove "$2" ;;
    *) echo "${0##*/}: no $*" >&2; exit 1 ;;
esac
"#;

/// A machine with these stand-ins and nothing else in its path: a folder of runbooks and `bin`.
fn machine(stand_ins: &[&str]) -> TempDir {
    let directory = folder(System::LinuxHost.site_file());
    let at = directory.path();
    for name in stand_ins {
        write(&at.join("bin").join(name), &format!("#!/bin/bash\nAT={}\n{PACKAGES}", at.display()), 0o755);
    }
    for name in PROGRAMS {
        let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        let found = found.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("no {name}"));
        std::os::unix::fs::symlink(found, at.join("bin").join(name)).expect("made");
    }
    for (name, needs) in [("nvme-cli", "libnvme\n"), ("libnvme", ""), ("rdma-core", "kmod\n"), ("kmod", "")] {
        write(&at.join("repository").join(name), needs, 0o644);
    }
    fs::create_dir_all(at.join("installed")).expect("made");
    directory
}

/// What is removed is what was installed for the runbook, without what other packages need now.
#[test]
fn packages_that_were_there_or_that_others_need_are_not_removed() {
    for stand_ins in [["apt-get", "dpkg", "dpkg-query"], ["dnf", "rpm", "yum"]] {
        let machine = machine(&stand_ins);
        let at = |path: &str| machine.path().join(path);
        let step = |verb: &str| {
            let mut command = Command::new(at("hosts/10-packages.sh"));
            let (worked, said) =
                run(command.arg(verb).env("PATH", at("bin")).env("RUNBOOK_STATE", at("state")));
            assert!(worked, "{stand_ins:?} {verb}: {said}");
            said
        };
        let installed = || {
            let all = fs::read_dir(at("installed")).expect("a directory");
            let mut names: Vec<_> =
                all.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
            names.sort_unstable();
            names.join(" ")
        };
        write(&at("installed/kmod"), "", 0o644);
        step("do");
        step("do");
        assert_eq!(installed(), "kmod libnvme nvme-cli rdma-core", "{stand_ins:?}");
        assert_eq!(step("undo"), "", "{stand_ins:?}");
        assert_eq!(installed(), "kmod", "{stand_ins:?}: what was there stays, and nothing else");
        // Something that needs a part of it came later.
        step("do");
        write(&at("installed/later"), "libnvme\n", 0o644);
        let said = step("undo");
        assert!(said.contains("these packages stay, as others need them now: libnvme"), "{said}");
        assert_eq!(installed(), "kmod later libnvme", "{stand_ins:?}");
        assert!(!at("state").exists(), "{stand_ins:?}");
    }
}

/// The names are between marks, and everything else of /etc/hosts stays.
#[test]
fn names_are_added_to_etc_hosts_and_removed_again() {
    let directory = folder(&System::Ef600.site_file().replace("cmp[01-54]", "cmp[01-02]"));
    let on = |script: &str| {
        let whole = format!(
            "exec 2>&1; set -eu; export RUNBOOK_STATE={0}/state; echo '127.0.0.1 localhost' >{0}/own; cp {0}/own {0}/etc-hosts; \
             mkdir {0}/etc; cp -a /etc/. {0}/etc; mount --bind {0}/etc /etc; cp {0}/own /etc/hosts; chmod 640 /etc/hosts; \
             echo 'hosts: files' >/etc/nsswitch.conf; step={0}/hosts/25-names.sh; {script}; rm -rf {0}/etc",
            directory.path().display()
        );
        let result = run(Command::new("unshare").args(["--mount", "sh", "-c", &whole]));
        let _ = fs::remove_dir_all(directory.path().join("etc"));
        result
    };
    let (worked, said) = on(
        "! $step verify; $step do; $step verify; getent hosts de0704a-ib0 cmp01-ib0; cp /etc/hosts /etc/once; $step do; \
         cmp /etc/hosts /etc/once; stat -c %a /etc/hosts; echo '10.0.0.9 later' >>/etc/hosts; $step undo; cat /etc/hosts; $step undo",
    );
    assert!(worked, "{said}");
    assert!(said.contains(" is not ") && said.contains("172.30.57.107   de0704a-ib0"), "{said}");
    assert!(said.ends_with("\n640\n127.0.0.1 localhost\n10.0.0.9 later\n"), "{said}");
    let (worked, said) =
        on("rm /etc/hosts; $step do; $step verify; $step undo; [ ! -e /etc/hosts ]; [ ! -e $RUNBOOK_STATE ]");
    assert!(worked, "{said}");
    let mark = "# BEGIN of the names of the runbook of";
    for (change, complaint) in [
        (
            "echo '10.0.0.9 de0704a-ib0 # old' >>/etc/hosts".to_owned(),
            "gives de0704a-ib0 another address (10.0.0.9)",
        ),
        (format!("$step do; sed -i '/{mark}/d' /etc/hosts"), "one of the two marks without the other"),
    ] {
        let (worked, said) =
            on(&format!("{change}; cp /etc/hosts /etc/before; ! $step do; cmp /etc/hosts /etc/before"));
        assert!(worked && said.contains(complaint), "{change}: {said}");
    }
}
