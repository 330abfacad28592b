//! Tests the Debian package: it is installed on a bare Debian without a network, used from fstab,
//! and removed completely. `TRUNKLINE_DEB` names a package; otherwise `cargo xtask package` builds
//! one from these sources, optimised. Needs root, FUSE, and the network once for debootstrap and
//! cargo-deb.

#[path = "package/root.rs"]
mod root;
#[path = "package/service.rs"]
mod service;

use root::Root;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use testkit::{Process, find_program};

/// How long a server may take to start or to end on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The root of the project.
fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The package to test, built once.
fn package() -> PathBuf {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(build).clone()
}

fn build() -> PathBuf {
    if let Some(file) = std::env::var_os("TRUNKLINE_DEB") {
        return std::path::absolute(file).unwrap();
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(["xtask", "package"]).current_dir(project());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "cargo xtask package:\n{out}{err}");
    PathBuf::from(out.lines().last().expect("the path of the package"))
}

/// The names and types of all files, except records of apt and dpkg and files that the test
/// creates.
fn files(root: &Root) -> Vec<String> {
    let kept = ["/proc", "/dev", "/tmp", "/run", "/var/log", "/var/cache", "/var/lib/apt", "/var/lib/dpkg"];
    let prune = kept.map(|path| format!("-path {path} -prune")).join(" -o ");
    let listing = root.run(&format!("find / {prune} -o -printf '%p %y\\n' | sort"));
    listing.lines().map(str::to_owned).collect()
}

/// Starts a server in the root.
fn serve(root: &Root, arguments: &str) -> Process {
    let script = format!("echo \"process $$\"; exec trunkline serve {arguments}");
    let server = Process::spawn(root.command(&script));
    server.wait_for_line("ready", TIMEOUT);
    server
}

/// Ends a server as systemd does. A signal to the child itself would not leave its namespace.
fn stop(root: &Root, mut server: Process) {
    let line = server.wait_for_line("process ", TIMEOUT);
    root.run(&line.replace("process", "kill"));
    let status = server.wait(TIMEOUT);
    assert!(status.success(), "{status}: {}", server.all_output());
}

#[test]
fn the_package_installs_without_a_network_mounts_by_fstab_and_leaves_nothing_behind() {
    let package = package();
    let root = Root::start();
    root.run("mkdir -p /mnt/at /srv/data");
    let before = files(&root);
    root.put(&package, "/tmp/trunkline.deb");
    root.run("apt-get install --yes --no-install-recommends /tmp/trunkline.deb");
    what_is_installed_works(&root);
    mounts_by_fstab(&root);
    // A server of a directory creates the key of its handles in its state directory.
    let server = serve(&root, "--dir /srv/data --listen 127.0.0.1:2050");
    root.run("test -d /var/lib/trunkline");
    stop(&root, server);

    root.run("apt-get remove --yes trunkline");
    root.run("test ! -e /usr/bin/trunkline; test -e /etc/trunkline/serve.toml; test -d /var/lib/trunkline");
    root.run("apt-get purge --yes trunkline");
    assert_eq!(
        root.run(
            "dpkg-query --list | grep trunkline || true; ls /var/lib/dpkg/info | grep trunkline || true"
        ),
        ""
    );
    let after = files(&root);
    let left: Vec<_> = after.iter().filter(|file| !before.contains(file)).collect();
    let gone: Vec<_> = before.iter().filter(|file| !after.contains(file)).collect();
    assert!(left.is_empty() && gone.is_empty(), "left behind: {left:#?}\nremoved: {gone:#?}");
}

/// Checks the program, its manual, its completions and its units; nothing is enabled.
fn what_is_installed_works(root: &Root) {
    let version = root.run("trunkline --version");
    assert_eq!(version.trim(), concat!("trunkline ", env!("CARGO_PKG_VERSION")));
    // Stripped: 20 MB instead of more than 100.
    root.run("test $(stat --format %s /usr/bin/trunkline) -lt 30000000");
    for (page, word) in [
        ("man1/trunkline.1", "SUBCOMMANDS"),
        ("man1/trunkline-mount.1", "nconnect"),
        ("man1/trunkline-lab-net.1", "rate"),
        ("man5/trunkline.toml.5", "root_squash"),
        ("man8/mount.trunkline.8", "nconnect"),
        ("man8/umount.trunkline.8", "DIR"),
    ] {
        root.run(&format!("zcat /usr/share/man/{page}.gz | grep -q {word}"));
    }
    root.run("bash -n /usr/share/bash-completion/completions/trunkline");
    for (shell, option, file) in [
        ("zsh", "-n", "/usr/share/zsh/vendor-completions/_trunkline"),
        ("fish", "--no-execute", "/usr/share/fish/vendor_completions.d/trunkline.fish"),
    ] {
        let content = root.run(&format!("cat {file}"));
        assert!(content.contains("nconnect") || content.contains("serve"), "{file}");
        // A bare Debian has neither shell; this machine may have both.
        if let Some(shell) = find_program(shell) {
            let copy = testkit::temp_dir("completion");
            let copy = copy.path().join("completion");
            std::fs::write(&copy, content).unwrap();
            let status = Command::new(shell).arg(option).arg(&copy).status().unwrap();
            assert!(status.success(), "{file}");
        }
    }
    root.run("test -e /usr/lib/systemd/system/trunkline.service");
    root.run("test ! -e /etc/systemd/system/multi-user.target.wants/trunkline.service");
    root.run("test -s /usr/share/doc/trunkline/copyright");
    root.run("zcat /usr/share/doc/trunkline/changelog.Debian.gz | grep -q '^trunkline ('");
    assert_eq!(root.run("dpkg --verify trunkline"), "");
    // A dry run of the helper of mount(8), and bad usage, which has the status of mount(8).
    root.run("/sbin/mount.trunkline nas:/data /mnt/at -f -o ro");
    root.run("/sbin/mount.trunkline 2>/dev/null && exit 9; test $? = 1");
    root.run("/sbin/umount.trunkline /mnt/at 2>/dev/null && exit 9; test $? = 32");
}

/// Runs a server with the installed configuration, and mounts it by a line of fstab.
fn mounts_by_fstab(root: &Root) {
    let server = serve(root, "-c /etc/trunkline/serve.toml");
    root.run("echo '127.0.0.1:/export /mnt/at trunkline nconnect=2,noauto,_netdev 0 0' >> /etc/fstab");
    root.run("mount /mnt/at; findmnt --noheadings --types fuse.trunkline /mnt/at");
    root.run("echo written > /mnt/at/file; sync /mnt/at/file");
    root.run("umount /mnt/at; test ! -e /mnt/at/file");
    assert_eq!(root.run("mount /mnt/at; cat /mnt/at/file"), "written\n");
    root.run("umount.trunkline /mnt/at -n -N 1 -v; test ! -e /mnt/at/file");
    stop(root, server);
}
