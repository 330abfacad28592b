//! Scripts of runbooks, run where they can do no harm: on captured output, with stand-ins for the
//! vendors' commands, and in mount namespaces of their own.

use runbook::{System, runbook};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A runbook in a directory.
pub fn folder(site: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for file in runbook(site).unwrap_or_else(|error| panic!("{error}")) {
        write(&directory.path().join(&file.path), &file.text, file.mode);
    }
    directory
}

pub fn write(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

/// Whether a command succeeds, and what it printed on both outputs.
pub fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let both = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&both).into_owned())
}

/// Two volumes in native form, as RHEL 8 prints them. The second is nvme0n10, which a search for
/// nvme0n1 would find too; the third belongs to somebody else.
const SMDEVICES_RHEL8: &str = "\
/dev/nvme0n10, Array Name de0704-ef600, Volume Name de0704a01v2, NSID 10, Volume ID 00004ee15c0b4a07d039ea00003ef510, Controller B, Access State unknown, 5.36TB
/dev/nvme0n1, Array Name de0704-ef600, Volume Name de0704a01v1, NSID 1, Volume ID 00004edf5c0b4a01d039ea00003ef510, Controller A, Access State unknown, 5.36TB
/dev/nvme0n2, Array Name de0704-ef600, Volume Name de0704a02v1, NSID 2, Volume ID 00004de15c0b5539d039ea00003ef1fd, Controller A, Access State unknown, 5.36TB
/dev/nvme0n3, Array Name de0704-ef600, Volume Name de0704a02v2, NSID 3, Volume ID 00004de35c0b553bd039ea00003ef1fd, Controller B, Access State unknown, 5.36TB
/dev/nvme0n4, Array Name other, Volume Name other, NSID 4, Volume ID 00004de45c0b553bd039ea00003ef1fd, Controller B, Access State unknown, 5.36TB
";
const MULTIPATH_RHEL8: &str = "\
eui.00004ee15c0b4a07d039ea00003ef510 [nvme]:nvme0n10 NVMe,NetApp E-Series,98711200
size=10468982784 features='n/a' hwhandler='ANA' wp=rw
|-+- policy='n/a' prio=50 status=optimized
| `- 0:0:10 nvme0c0n10 0:0 n/a optimized live
eui.00004edf5c0b4a01d039ea00003ef510 [nvme]:nvme0n1 NVMe,NetApp E-Series,98711200
size=10468982784 features='n/a' hwhandler='ANA' wp=rw
|-+- policy='n/a' prio=50 status=optimized
| `- 0:0:1 nvme0c0n1 0:0 n/a optimized live
eui.00004de15c0b5539d039ea00003ef1fd [nvme]: nvme0n2 NVMe, NetApp E-Series, 98711200
eui.00004de35c0b553bd039ea00003ef1fd [nvme]: nvme0n3 NVMe, NetApp E-Series, 98711200
";

/// The same volumes as RHEL 7 prints them: a device for each path, joined by DM-Multipath, with and
/// without a name that the user chose; long lines are wrapped.
const SMDEVICES_RHEL7: &str = "\
/dev/nvme0n1, Array Name de0704-ef600, Volume Name de0704a01v1, NSID 1,
Volume ID 00004edf5c0b4a01d039ea00003ef510, Controller A, Access State unknown, 5.36TB
/dev/nvme1n1, Array Name de0704-ef600, Volume Name de0704a01v1, NSID 1,
Volume ID 00004edf5c0b4a01d039ea00003ef510, Controller A, Access State unknown, 5.36TB
/dev/nvme0n2, Array Name de0704-ef600, Volume Name de0704a01v2, NSID 2, Volume ID 00004ee15c0b4a07d039ea00003ef510, Controller B, Access State unknown, 5.36TB
/dev/nvme0n3, Array Name de0704-ef600, Volume Name de0704a02v1, NSID 3, Volume ID 00004de15c0b5539d039ea00003ef1fd, Controller A, Access State unknown, 5.36TB
/dev/nvme0n4, Array Name de0704-ef600, Volume Name de0704a02v2, NSID 4, Volume ID 00004de35c0b553bd039ea00003ef1fd, Controller B, Access State unknown, 5.36TB
";
const MULTIPATH_RHEL7: &str = "\
mpatha (eui.00004edf5c0b4a01d039ea00003ef510) dm-3 NVME,NetApp E-Series
size=2.4T features='1 queue_if_no_path' hwhandler='0' wp=rw
|-+- policy='service-time 0' prio=50 status=active
| |- 4:0:4:0 nvme4n4 259:70 active ready running
eui.00004ee15c0b4a07d039ea00003ef510 dm-30 NVME, NetApp E-Series
eui.00004de15c0b5539d039ea00003ef1fd dm-5 NVME, NetApp E-Series
eui.00004de35c0b553bd039ea00003ef1fd dm-6 NVME, NetApp E-Series
";

/// Runs the stanza script on captured output.
pub(crate) fn stanza(site: &str, smdevices: &str, multipath: &str) -> (bool, String) {
    let directory = folder(site);
    let at = |name: &str| directory.path().join(name);
    write(&at("smdevices"), smdevices, 0o644);
    write(&at("multipath"), multipath, 0o644);
    let mut command = Command::new(at("scale/nsd-stanza.sh"));
    run(command.arg("--smdevices").arg(at("smdevices")).arg("--multipath").arg(at("multipath")))
}

/// A stanza, as Deploying NetApp EF600, figure 33 prints it, with the whole path of the device.
fn line(device: &str, volume: &str) -> String {
    format!(
        "%nsd: device=/dev/{device} nsd={volume} usage=dataAndMetadata failureGroup=704 pool=system thinDiskType=no\n"
    )
}

#[test]
fn stanzas_are_made_of_either_form_of_output() {
    let rhel8 = System::Scale.site_file();
    let rhel7 = rhel8.replace("\"rhel8\"", "\"rhel7\"");
    for (site, smdevices, multipath, devices) in [
        (rhel8, SMDEVICES_RHEL8, MULTIPATH_RHEL8, ["nvme0n1", "nvme0n10", "nvme0n2", "nvme0n3"]),
        (&rhel7, SMDEVICES_RHEL7, MULTIPATH_RHEL7, ["dm-3", "dm-30", "dm-5", "dm-6"]),
    ] {
        let volumes = ["de0704a01v1", "de0704a01v2", "de0704a02v1", "de0704a02v2"];
        let wanted: String =
            devices.iter().zip(volumes).map(|(device, volume)| line(device, volume)).collect();
        assert_eq!(stanza(site, smdevices, multipath), (true, wanted));
    }
}

// Deploying NetApp EF600, figures 23 and 24: four volumes in one group. Figure 24 leaves out the
// entries of the volumes 1 and 3; docs/DEVIATIONS.md has how they are filled in.
#[test]
fn stanzas_are_made_of_the_corrected_pair_that_the_guide_prints() {
    const SMDEVICES: &str =
        include_str!("../../../check/tests/printed/ef600-rhel7/nvme-netapp-smdevices.txt");
    const MULTIPATH: &str = include_str!("../../../check/tests/printed/ef600-rhel7/multipath.txt");
    let site = System::Scale.site_file().replace("\"rhel8\"", "\"rhel7\"");
    let site = site.replace("drives = 20", "drives = 10").replace("4992GiB", "2477GiB");
    // As printed, two of the four IDs are in no entry.
    let (worked, said) = stanza(&site, SMDEVICES, MULTIPATH);
    let missing = "no multipath device has the volume de0704a01v1 (0000127e5bacc864d039ea00003ef510)";
    assert!(!worked && said.contains(missing), "{said}");
    // The entry of dm-0, which is the volume 2, as that of another volume.
    let (_, entry) = MULTIPATH.split_once("eui.00000eb35bacd37cd039ea00003ef1fd dm-0").expect("an entry");
    let of = |id: &str, device: &str, nsid: u32| {
        let paths = entry.replace("0:2:0 ", &format!("0:{nsid}:0 ")).replace("n2 ", &format!("n{nsid} "));
        format!("eui.{id} {device}{paths}")
    };
    let corrected = [
        MULTIPATH.to_owned(),
        of("0000127e5bacc864d039ea00003ef510", "dm-1", 1),
        of("000012805bacc86cd039ea00003ef510", "dm-2", 3),
    ]
    .concat();
    let devices = ["dm-1", "dm-0", "dm-2", "dm-3"];
    let volumes = ["de0704a01v1", "de0704a01v2", "de0704a01v3", "de0704a01v4"];
    let wanted: String = devices.iter().zip(volumes).map(|(device, volume)| line(device, volume)).collect();
    assert_eq!(stanza(&site, SMDEVICES, &corrected), (true, wanted));
}

#[test]
fn no_stanza_is_made_of_a_volume_that_is_missing_or_without_multipath() {
    let site = System::Scale.site_file();
    let (worked, said) = stanza(site, &SMDEVICES_RHEL8.replace("de0704a02v2", "renamed"), MULTIPATH_RHEL8);
    assert!(!worked && said.contains("the volume de0704a02v2 is not visible here"), "{said}");
    let (worked, said) = stanza(site, SMDEVICES_RHEL8, &MULTIPATH_RHEL8.replace("00004de35c", "00004de36c"));
    assert!(!worked && said.contains("no multipath device has the volume de0704a02v2"), "{said}");
    let (worked, said) = stanza(site, "", MULTIPATH_RHEL8);
    assert!(!worked && said.contains("connect first"), "{said}");
    let twice = SMDEVICES_RHEL8.replace("Name other, NSID", "Name de0704a01v1, NSID");
    let (worked, said) = stanza(site, &twice, MULTIPATH_RHEL8);
    assert!(!worked && said.contains("several volumes de0704a01v1"), "{said}");
}

/// A stand-in for OneFS's `isi`, which knows one spelling and keeps what it was told.
fn isi(directory: &Path, option: &str) {
    let program = format!(
        "#!/bin/sh\ncase \"$*\" in\n\
         'nfs settings global modify --help') echo '    --nfsv4-enabled <boolean>'; echo '    [--{option} <boolean>]' ;;\n\
         'nfs settings global modify --{option} true') echo Yes >{at}/rdma ;;\n\
         'nfs settings global modify --{option} false') echo No >{at}/rdma ;;\n\
         'nfs settings global view') echo \"  NFS RDMA Enabled: $(cat {at}/rdma)\" ;;\n\
         'network interfaces list -v') echo ' Flags: ACCEPT_ROUTER_ADVERT, SUPPORTS_RDMA_RRoCE' ;;\n\
         *) echo \"isi: no $*\" >&2; exit 1 ;;\nesac\n",
        at = directory.display()
    );
    write(&directory.join("isi"), &program, 0o755);
}

/// The sources print two spellings, and newer releases have a third.
#[test]
fn rdma_is_enabled_by_the_spelling_that_the_cluster_knows() {
    let directory = folder(System::PowerScale.site_file());
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").expect("a path"));
    let step = |verb: &str| {
        let program = directory.path().join("nas-f210/20-rdma.sh");
        let state = directory.path().join("state");
        run(Command::new(program).arg(verb).env("PATH", &path).env("RUNBOOK_STATE", state))
    };
    for option in ["enable-rdma", "nfsv3-rdma-enabled", "nfs-rdma-enabled"] {
        isi(directory.path(), option);
        write(&directory.path().join("rdma"), "No\n", 0o644);
        assert_eq!(step("do"), (true, String::new()), "{option}");
        assert_eq!(step("verify"), (true, String::new()), "{option}");
        assert_eq!(step("undo"), (true, String::new()), "{option}");
        let (worked, said) = step("verify");
        assert!(!worked && said.contains("RDMA is not enabled"), "{option}: {said}");
        // What was on before stays on.
        write(&directory.path().join("rdma"), "Yes\n", 0o644);
        assert_eq!([step("do"), step("undo"), step("verify")], [0; 3].map(|_| (true, String::new())));
    }
    isi(directory.path(), "rdma");
    let (worked, said) = step("do");
    assert!(
        !worked && said.contains("has none of: nfs-rdma-enabled nfsv3-rdma-enabled enable-rdma"),
        "{said}"
    );
}

/// What is placed is taken back: a file that was there has its old content, a file and directories
/// that were not are gone, and nothing is left of the notes.
#[test]
fn what_is_placed_is_taken_back_without_a_trace() {
    let directory = folder(System::LinuxHost.site_file());
    let at = |path: &str| directory.path().join(path);
    write(&at("root/there"), "old", 0o600);
    write(&at("one"), "new", 0o644);
    let script = format!(
        "set -euo pipefail; cd {0}/hosts; . ./placing.sh; \
         place {0}/one {0}/root/there 644; place {0}/one {0}/root/there 644; place {0}/one {0}/root/deep/er/new 755; \
         remember words first; remember words second; remember words first; \
         is_placed {0}/one {0}/root/there; cat {0}/root/deep/er/new; \
         [ \"$(recalled words | xargs)\" = 'second first' ]; \
         take_back {0}/root/there; take_back {0}/root/deep/er/new; take_back {0}/root/never",
        directory.path().display()
    );
    let state = at("state");
    let mut command = Command::new("bash");
    let (worked, said) = run(command.args(["-c", &script]).env("RUNBOOK_STATE", &state));
    assert!(worked && said == "new", "{said}");
    assert_eq!(fs::read_to_string(at("root/there")).expect("a file"), "old");
    let mode = fs::metadata(at("root/there")).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert!(!at("root/deep/er").exists() && !state.exists());
}

/// Without its transport's module a controller is gone, and the module does not count controllers.
#[test]
fn modules_of_transports_that_controllers_use_stay_loaded() {
    let directory = folder(System::LinuxHost.site_file());
    let at = directory.path().display();
    let script = format!(
        "exec 2>&1; set -euo pipefail; mount -t tmpfs none /sys; export RUNBOOK_STATE={at}/state; \
         mkdir -p /sys/module/nvme_rdma /sys/module/nvme_tcp /sys/class/nvme/nvme0 /sys/class/nvme/nvme1; \
         echo pcie >/sys/class/nvme/nvme0/transport; echo tcp >/sys/class/nvme/nvme1/transport; \
         cd {at}/hosts; . ./placing.sh; rmmod() {{ echo rmmod $*; }}; \
         remember modules nvme_rdma; remember modules nvme_tcp; unload_modules; [ ! -e {at}/state ]"
    );
    let (worked, said) = run(Command::new("unshare").args(["--mount", "bash", "-c", &script]));
    assert!(worked, "{said}");
    assert_eq!(said, "rmmod nvme_rdma\nnvme_tcp stays loaded: NVMe controllers use it\n");
}

/// Linux, lib/crc64-rocksoft.c: the module loads the one that computes for it, and uses it.
#[test]
fn a_module_that_an_older_one_uses_is_unloaded_after_that() {
    let directory = folder(System::LinuxHost.site_file());
    let at = directory.path().display();
    let script = format!(
        "exec 2>&1; set -euo pipefail; mount -t tmpfs none /sys; export RUNBOOK_STATE={at}/state; \
         mkdir -p /sys/module/older /sys/module/newer /sys/module/busy; cd {at}/hosts; . ./placing.sh; \
         rmmod() {{ \
             case $1 in newer) [ ! -e /sys/module/older ] ;; busy) false ;; esac || return 1; \
             rmdir /sys/module/$1; echo rmmod $1; \
         }}; \
         remember modules older; remember modules newer; remember modules busy; unload_modules; [ ! -e {at}/state ]"
    );
    let (worked, said) = run(Command::new("unshare").args(["--mount", "bash", "-c", &script]));
    assert!(worked, "{said}");
    assert_eq!(said, "rmmod older\nrmmod newer\nbusy stays loaded: it is in use\n");
}
