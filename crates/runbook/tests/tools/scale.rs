//! The steps of Spectrum Scale against figures 30, 33 and 35 of the guide, with stand-ins for its
//! commands and for the devices of a node. docs/DEVIATIONS.md has what is corrected first.

use crate::scripts::{folder, run, stanza, write};
use runbook::System;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Deploying NetApp EF600, figure 30.
const FIGURE_30: &str = "#!/bin/ksh\n\nlsblk | grep ^nvme | cut -d' ' -f1 | while read DEV\ndo\n    \
    echo \"$DEV generic\"\ndone\n\nreturn 0\n";

/// Deploying NetApp EF600, figure 33: the stanzas.
const FIGURE_33: &str = "\
%nsd: device=nvme0n1 nsd=de0704a01v1 usage=dataAndMetadata
failureGroup=704 pool=system thinDiskType=no
%nsd: device=nvme0n2 nsd=de0704a01v2 usage=dataAndMetadata
failureGroup=704 pool=system thinDiskType=no
%nsd: device=nvme0n3 nsd=de0704a02v1 usage=dataAndMetadata
failureGroup=704 pool=system thinDiskType=no
%nsd: device=nvme0n4 nsd=de0704a02v2 usage=dataAndMetadata
failureGroup=704 pool=system thinDiskType=no
";

/// The same figure: what mmlsnsd prints.
const NSDS: &str = "\
File system   Disk name      NSD servers
-----
(free disk)   de0704a01v1    (directly attached)
(free disk)   de0704a01v2    (directly attached)
(free disk)   de0704a02v1    (directly attached)
(free disk)   de0704a02v2    (directly attached)
";

/// Each stanza as its keys and values, by the name of the NSD.
fn stanzas(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let words = |one: &str| -> BTreeMap<String, String> {
        let pairs = one.split_whitespace().map(|word| word.split_once('=').expect("a key and a value"));
        pairs.map(|(key, value)| (key.to_owned(), value.trim_start_matches("/dev/").to_owned())).collect()
    };
    let all = text.split("%nsd:").filter(|one| !one.trim().is_empty()).map(words);
    all.map(|keys| (keys["nsd"].clone(), keys)).collect()
}

// Deploying NetApp EF600, figures 26, 27 and 33.
#[test]
fn the_stanzas_of_figures_26_and_27_are_those_of_figure_33() {
    let smdevices = include_str!("../../../check/tests/printed/ef600-rhel8/nvme-netapp-smdevices.txt");
    let multipath = include_str!("../../../check/tests/printed/ef600-rhel8/multipath.txt");
    let (worked, said) = stanza(System::Scale.site_file(), smdevices, multipath);
    assert!(worked, "{said}");
    assert_eq!(stanzas(&said), stanzas(FIGURE_33));
    assert_eq!(stanzas(&said).len(), 4);
    // The whole path, which the text of the guide has.
    assert_eq!(said.matches("device=/dev/nvme0n").count(), 4, "{said}");
}

/// A node with stand-ins for what it runs: each is a script, and the first words are its name.
fn node(stand_ins: &[(&str, &str)]) -> TempDir {
    let directory = folder(&System::Scale.site_file().replace("cmp[01-54]", "cmp[01-02]"));
    for (name, script) in stand_ins {
        let script = format!("#!/bin/bash\nAT={}\n{script}\n", directory.path().display());
        write(&directory.path().join("bin").join(name), &script, 0o755);
    }
    directory
}

/// Runs a script in the folder of the steps, where /sys, /dev and /var have only what it makes.
fn on(node: &TempDir, script: &str) -> (bool, String) {
    let whole = format!(
        "exec 2>&1; set -eu; AT={}; export AT; for at in /sys /dev /var; do mount -t tmpfs none $at; done; \
         mknod /dev/null c 1 3; ln -s /proc/self/fd /dev/fd; mkdir -p /var/lib; \
         volume() {{ mkdir -p /sys/block/$1/device; echo \"$2\" >/sys/block/$1/device/model; }}; \
         export PATH=$AT/bin:$PATH RUNBOOK_STATE=$AT/state; cd $AT/scale; {script}",
        node.path().display()
    );
    run(Command::new("unshare").args(["--mount", "bash", "-c", &whole]))
}

/// Four volumes of the array, as native multipath shows them, and their hidden paths.
const VOLUMES: &str = "for n in 1 2 3 4; do volume nvme0n$n 'NetApp E-Series'; mknod /dev/nvme0n$n b 259 $n; \
    volume nvme0c0n$n 'NetApp E-Series'; volume nvme0c1n$n 'NetApp E-Series'; done";

// Deploying NetApp EF600, figure 30: each device in the form `name type`, and 0 at the end.
#[test]
fn nsddevices_prints_what_the_script_of_figure_30_prints() {
    // As a node of RHEL 8 prints its devices: hidden paths are none.
    let lsblk = "echo 'NAME    MAJ:MIN RM  SIZE RO TYPE MOUNTPOINT'; echo 'sda       8:0    0  100G  0 disk'\n\
                 for n in 1 2 3 4; do echo \"nvme0n$n 259:$n    0  4.9T  0 disk\"; done";
    let node = node(&[("lsblk", lsblk)]);
    write(&node.path().join("figure-30"), FIGURE_30, 0o755);
    let script = format!(
        "{VOLUMES}; ksh $AT/figure-30 >$AT/figure; ksh files/nsddevices >$AT/ours; echo $?; diff $AT/figure $AT/ours; cat $AT/ours"
    );
    let (worked, said) = on(&node, &script);
    assert!(worked, "{said}");
    assert_eq!(said, "0\nnvme0n1 generic\nnvme0n2 generic\nnvme0n3 generic\nnvme0n4 generic\n");
}

/// The figure's script would hand the node's own drives to the cluster.
#[test]
fn nsddevices_leaves_out_drives_of_the_node_and_hidden_paths() {
    let node = node(&[]);
    let (worked, said) = on(
        &node,
        "volume nvme0n1 'NetApp E-Series'; volume nvme1n1 'SAMSUNG MZ1L21T9'; volume nvme2n1 'NetApp E-Series  '; \
         volume nvme2c0n1 'NetApp E-Series'; volume nvme2n10 'NetApp E-Series'; mkdir -p /sys/block/nvme3n1 /sys/block/sda; \
         for n in nvme0n1 nvme1n1 nvme2n1 nvme2n10 nvme3n1 sda; do mknod /dev/$n b 259 1; done; ksh files/nsddevices",
    );
    assert_eq!((worked, said.as_str()), (true, "nvme0n1 generic\nnvme2n1 generic\nnvme2n10 generic\n"));
    let (worked, said) = on(&node, "mkdir -p /sys/block; ksh files/nsddevices");
    assert_eq!((worked, said.as_str()), (true, ""));
}

#[test]
fn the_step_of_nsddevices_counts_the_volumes_and_is_taken_back() {
    let node = node(&[]);
    let (worked, said) = on(
        &node,
        &format!(
            "step=./10-nsddevices.sh; ! $step do; mkdir -p /var/mmfs/etc; echo old >/var/mmfs/etc/nsddevices; $step do; \
             ! $step verify; {VOLUMES}; $step verify; rm /dev/nvme0n4; ! $step verify; stat -c %a /var/mmfs/etc/nsddevices; \
             $step undo; cat /var/mmfs/etc/nsddevices; [ ! -e $AT/state ]"
        ),
    );
    assert!(worked && said.ends_with("755\nold\n"), "{said}");
    assert!(said.starts_with("10-nsddevices.sh: install Spectrum Scale first\n"), "{said}");
    for found in ["0 volumes are found, and 4 are planned", "3 volumes are found, and 4 are planned"] {
        assert!(said.contains(found), "{said}");
    }
}

/// What `mmcrnsd` gets is kept, and `mmlsnsd` prints what the guide shows.
fn manager() -> TempDir {
    let captured = |name: &str| format!("cat $AT/{name}");
    let one = "case \"$*\" in -m) echo 'Disk name     NSD volume ID   Device' ;;\n\
        '-d '*) echo 'File system   Disk name      NSD servers'; grep \" $2 \" $AT/nsds ;;\n*) cat $AT/nsds ;;\nesac";
    let node = node(&[
        ("nvme", &captured("smdevices")),
        ("multipath", &captured("multipath")),
        ("mmcrnsd", "echo \"mmcrnsd $*\" >>$AT/log; cat \"$2\" >$AT/got"),
        ("mmlsnsd", one),
        ("mmdelnsd", "echo \"mmdelnsd $*\" >>$AT/log"),
        ("mmreclaimspace", "echo \"mmreclaimspace $*\" >>$AT/log"),
    ]);
    let printed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../check/tests/printed/ef600-rhel8");
    for (name, of) in [("smdevices", "nvme-netapp-smdevices.txt"), ("multipath", "multipath.txt")] {
        let text = fs::read_to_string(printed.join(of)).expect("a capture");
        write(&node.path().join(name), &text, 0o644);
    }
    write(&node.path().join("nsds"), NSDS, 0o644);
    node
}

// Deploying NetApp EF600, figure 33.
#[test]
fn nsds_are_created_from_the_stanzas_and_listed_as_directly_attached() {
    let node = manager();
    let (worked, said) = on(
        &node,
        "step=./30-nsds.sh; $step do; $step verify; cat $AT/log; sed -i 's/v2    (directly attached)/v2    nsd01,nsd02/' $AT/nsds; \
         ! $step verify; $step undo; [ ! -e ef600_mlx.stanza ]; tail -n 1 $AT/log",
    );
    assert!(worked, "{said}");
    // -v yes is the default, said here as it protects other clusters.
    assert!(said.contains("\nmmcrnsd -F ef600_mlx.stanza -v yes\n"), "{said}");
    let got = fs::read_to_string(node.path().join("got")).expect("stanzas");
    assert_eq!(stanzas(&got), stanzas(FIGURE_33));
    assert!(said.contains("30-nsds.sh: de0704a01v2 is not directly attached\n"), "{said}");
    assert!(said.ends_with("mmdelnsd de0704a01v1;de0704a01v2;de0704a02v1;de0704a02v2\n"), "{said}");
}

// Deploying NetApp EF600, figure 35: `mmreclaimspace ef600_mlx --reclaim-threshold 0`.
#[test]
fn space_is_reclaimed_by_the_command_of_figure_35() {
    let reclaim =
        System::Scale.site_file().replace("#reclaim = false", "reclaim = true").replace("11.70.1", "11.80");
    let node = manager();
    for file in runbook::runbook(&reclaim).expect("a valid site") {
        write(&node.path().join(&file.path), &file.text, file.mode);
    }
    let (worked, said) = on(
        &node,
        "for n in 1 2 3 4; do mkdir -p /sys/block/nvme0n$n/queue; echo 4096 >/sys/block/nvme0n$n/queue/discard_max_bytes; done; \
         step=./50-reclaim.sh; $step do; RECLAIM_THRESHOLD=25 $step do; cat $AT/log; ./30-nsds.sh do; $step verify; \
         echo 0 >/sys/block/nvme0n3/queue/discard_max_bytes; ! ./30-nsds.sh do; sed -i s/=nvme/=no/ ef600_mlx.stanza; ! $step verify",
    );
    assert!(worked, "{said}");
    let commands =
        "mmreclaimspace ef600_mlx --reclaim-threshold 0\nmmreclaimspace ef600_mlx --reclaim-threshold 25\n";
    assert!(said.starts_with(commands), "{said}");
    assert!(said.contains("de0704a02v1 takes no space back: reclaim = false"), "{said}");
    assert!(said.ends_with("50-reclaim.sh: the NSDs were not made for space reclaim\n"), "{said}");
    // As the figure, but for the attribute.
    let got = fs::read_to_string(node.path().join("got")).expect("stanzas");
    assert_eq!(stanzas(&got), stanzas(&FIGURE_33.replace("thinDiskType=no", "thinDiskType=nvme")));
}
