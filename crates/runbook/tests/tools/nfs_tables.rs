//! The tables of NFS, read by the tools that read them: fstab, exports and nfs.conf.

use crate::{Folder, run, sites, succeed};
use runbook::System;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What mount(8) would make of a table, by findmnt(8).
fn verified(tab: &Path) -> String {
    let output = run(Command::new("findmnt").args(["--verify", "--verbose", "--tab-file"]).arg(tab));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn findmnt_reads_every_line_of_fstab() {
    let mut count = 0;
    for site in sites() {
        let folder = Folder::of(&site);
        for name in ["fstab.trunkline", "fstab.kernel", "fstab.vendor"] {
            for tab in folder.ending(name) {
                let lines: Vec<_> = tab.text.lines().filter(|line| !line.starts_with('#')).collect();
                let said = verified(&folder.path(&tab.path));
                assert!(said.contains("\n0 parse errors, 0 errors"), "{said}");
                assert_eq!(said.matches(" FS options: ").count(), lines.len(), "{said}\n{}", tab.text);
                // The options for mount(8) itself are known as such.
                assert_eq!(said.matches("userspace options: _netdev,nofail,noauto\n").count(), lines.len());
                count += lines.len();
            }
        }
    }
    assert!(count > 20, "{count} lines");
    let directory = tempfile::tempdir().expect("a directory");
    let wrong = directory.path().join("wrong");
    fs::write(&wrong, "nas:/a /mnt\n").expect("written");
    assert!(verified(&wrong).contains("1 parse error"));
}

/// What exportfs(8) would export, on a machine with these directories and no exports of its own.
fn exported(exports: &Path, directory: &str) -> (bool, String) {
    let script = format!(
        "exec 2>&1; set -e; for at in /srv /var/lib/nfs; do mkdir -p $at; mount -t tmpfs none $at; done; \
         mkdir -p {directory}; [ -e /etc/exports ] || : >/etc/exports; mount --bind {} /etc/exports; \
         [ ! -d /etc/exports.d ] || mount -t tmpfs none /etc/exports.d; exportfs -ra; exportfs -s",
        exports.display()
    );
    let output = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn exportfs_exports_what_the_site_says() {
    let site = System::LinuxServer.site_file().replace(
        "rw = true, fsid = 1 },",
        "rw = true, fsid = 1 },\n{ path = \"/srv/two\", clients = [\"10.0.0.9\", \"fd00::/64\"], no_root_squash = true },",
    );
    let folder = Folder::of(&site);
    for exports in folder.ending("/exports") {
        let (worked, said) = exported(&folder.path(&exports.path), "/srv/nfs /srv/two");
        assert!(worked, "{said}");
        let lines: Vec<Vec<&str>> =
            said.lines().map(|line| line.split([' ', '(', ')', ',']).collect()).collect();
        for (path, client, options) in [
            ("/srv/nfs", "10.0.0.0/16", &["rw", "root_squash", "fsid=1", "sync", "no_subtree_check"][..]),
            ("/srv/two", "10.0.0.9", &["ro", "no_root_squash", "sync", "no_subtree_check"]),
            ("/srv/two", "fd00::/64", &["ro", "no_root_squash", "sync", "no_subtree_check"]),
        ] {
            let line = lines.iter().find(|words| words[0] == path && words.contains(&client));
            let line = line.unwrap_or_else(|| panic!("no {path} for {client} in\n{said}"));
            assert!(options.iter().all(|option| line.contains(option)), "{options:?}: {said}");
        }
        assert_eq!(lines.len(), 3, "{said}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let wrong = directory.path().join("wrong");
    fs::write(&wrong, "/srv/nfs 10.0.0.9(rw,synch)\n").expect("written");
    let (worked, said) = exported(&wrong, "/srv/nfs");
    assert!(!worked && said.contains("unknown keyword"), "{said}");
}

#[test]
fn nfsconf_reads_the_settings_of_the_servers_threads_and_ports() {
    let with = System::LinuxServer.site_file().to_owned();
    for (site, rdma) in [(with.clone(), "y\n20049\n"), (with.replace("\nrdma = true", "\n#rdma = true"), "")]
    {
        let folder = Folder::of(&site);
        let mut count = 0;
        for conf in folder.ending("nfs.conf") {
            let get = |tag: &str| {
                let mut command = Command::new("nfsconf");
                command.arg("--file").arg(folder.path(&conf.path)).args(["--get", "nfsd", tag]);
                String::from_utf8_lossy(&run(&mut command).stdout).into_owned()
            };
            assert_eq!(get("threads"), "64\n");
            assert_eq!(get("rdma") + &get("rdma-port"), rdma);
            succeed(Command::new("nfsconf").arg("--file").arg(folder.path(&conf.path)).arg("--dump"));
            count += 1;
        }
        assert_eq!(count, 1);
    }
}
