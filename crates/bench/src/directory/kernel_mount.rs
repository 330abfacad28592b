//! A mount of the kernel's NFS client, made for a route and unmounted at its end.
//!
//! `mount.nfs` makes the mount: it finds the port, talks to MOUNT, and has the words for what goes
//! wrong. The mount is at a temporary directory that nobody else uses.

use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

use crate::child::{self, Ended};
use crate::directory::mount_point::{self, MountPoint, Mounted};
use crate::directory::transports;
use crate::error::{Error, Result};
use crate::stop::Stop;

/// How often unmounting is tried again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// `mount.nfs` may ask several ports, each with time-outs of its own.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the kernel may take to let go of a mount whose files were just closed.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// Where `mount.nfs` is; `/sbin` is not on every PATH.
const HELPERS: [&str; 4] = ["/sbin/mount.nfs", "/usr/sbin/mount.nfs", "/bin/mount.nfs", "/usr/bin/mount.nfs"];
const WITHOUT: &str = "nfs:// without kernel:        measures with our client library, as any user";

/// A mount that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct KernelMount {
    point: MountPoint,
}

/// Why a route of the kernel's client cannot be measured.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The kernel's client has no such paths, which is a result and no error.
    NoMultipath(String),
    /// Anything else.
    Other(Error),
}

impl KernelMount {
    /// Mounts a server with these options.
    ///
    /// # Errors
    /// [`Failure`]; [`Error::Stopped`] in it after a stop.
    pub(crate) fn new(server: &str, options: &str, stop: &Stop) -> std::result::Result<Self, Failure> {
        let refuse = |cause: String, advice: &str| {
            Failure::Other(Error::refused(
                format!("cannot mount {server} with the kernel's client"),
                cause,
                advice,
            ))
        };
        let (source, options) = command_line(server, options)
            .map_err(|cause| refuse(cause, "kernel:nfs://HOST/EXPORT?OPTIONS, with options of nfs(5)"))?;
        if !rustix::process::geteuid().is_root() {
            return Err(refuse("only root may mount".into(), &format!("sudo, or {WITHOUT}")));
        }
        let helper = HELPERS.iter().find(|helper| Path::new(helper).exists());
        let helper = helper.ok_or_else(|| {
            refuse("the program mount.nfs is not installed".into(), "apt install nfs-common")
        })?;
        if let Some(cause) = no_nfs() {
            return Err(refuse(
                cause,
                &format!("a kernel with NFS (`trunkline lab vm` has one), or {WITHOUT}"),
            ));
        }
        let point = MountPoint::new("trunkline-bench-kernel-", stop.remains())
            .map_err(|error| refuse(error.to_string(), "a directory for temporary files: TMPDIR"))?;
        // From here on, whatever is mounted is unmounted: a helper that is ended may have mounted.
        let mount = Self { point };
        let mut command = Command::new(helper);
        // Programs and devices of the server mean nothing here.
        let guarded = format!("nosuid,nodev,{options}");
        command.arg(&source).arg(mount.point.path()).arg("-o").arg(&guarded);
        let said = run(command, stop).map_err(Failure::Other)?;
        match said {
            None => match unlike(mount.point.mounted().as_ref(), &mount.transports(), &options) {
                None => Ok(mount),
                Some((cause, advice)) => Err(refuse(cause, advice)),
            },
            Some(said) if lacks_multipath(&said, &options) => Err(Failure::NoMultipath(format!(
                "this kernel's NFS client refuses these options, of which few kernels know {}: {said}",
                multipath_option(&options).unwrap_or_default()
            ))),
            Some(said) => {
                Err(refuse(said, &format!("{} {source} DIRECTORY -o {options}        by hand", helper)))
            }
        }
    }

    /// The kinds of its connections, as far as the kernel lists them.
    fn transports(&self) -> Vec<String> {
        transports::at(&mount_point::escaped(self.point.path()))
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.point.path().to_owned()
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.point.mounted().is_none() {
            return;
        }
        let directory = self.point.path();
        let deadline = Instant::now() + UNMOUNT_TIMEOUT;
        let mut unmounted = unmount(directory, UnmountFlags::empty());
        while unmounted == Err(rustix::io::Errno::BUSY) && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
            unmounted = unmount(directory, UnmountFlags::empty());
        }
        let path = directory.display();
        if let Err(error) = unmounted {
            tracing::warn!(%path, %error, "unmounting from the tree only, because something still uses it");
            if let Err(error) = unmount(directory, UnmountFlags::DETACH) {
                tracing::error!(%path, %error, "it stays mounted");
            }
        }
    }
}

/// The source and the options as `mount.nfs` takes them: `HOST:/EXPORT`, and version 3 unless they
/// say otherwise, so that both clients speak the same.
fn command_line(server: &str, options: &str) -> std::result::Result<(String, String), String> {
    let target = client::options::Target::parse(server).map_err(|error| error.to_string())?;
    let path = String::from_utf8(target.path).map_err(|_| "the export's name is not text".to_owned())?;
    let host = target.host.to_string();
    // An IPv6 address has colons of its own.
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    let has = |names: &[&str]| {
        options.split(',').any(|option| names.contains(&option.split('=').next().unwrap_or_default()))
    };
    if has(&["bg"]) {
        return Err("with bg nobody knows when it is mounted".to_owned());
    }
    let tcp = if host.starts_with('[') { "tcp6" } else { "tcp" };
    let mut all = String::new();
    let names_version = version(options).is_some();
    let is_v3 = version(options).is_none_or(|version| version == "3");
    // Writing to a string cannot fail.
    if !names_version {
        let _ = write!(all, "vers=3,");
    }
    if !has(&["proto", "tcp", "udp", "rdma"]) {
        // Without it, mount.nfs asks the port mapper which there are, and not every server has one.
        let _ = write!(all, "proto={tcp},");
    }
    // mount.nfs would ask by UDP first, which many servers no longer have.
    if is_v3 && !has(&["mountproto", "udp"]) && !options.contains("proto=udp") {
        let _ = write!(all, "mountproto={tcp},");
    }
    if is_v3 && !has(&["lock", "nolock", "local_lock"]) {
        // The files have no other user. Version 4 has no lock manager to leave out.
        let _ = write!(all, "nolock,");
    }
    if !has(&["retry"]) {
        let _ = write!(all, "retry=0,");
    }
    if let Some(port) = target.port {
        let _ = write!(all, "port={port},");
        // As our client does: a server on a port of its own rarely has a port mapper.
        if is_v3 && !has(&["mountport"]) {
            let _ = write!(all, "mountport={port},");
        }
    }
    all.push_str(options);
    Ok((format!("{host}:{path}"), all.trim_end_matches(',').to_owned()))
}

/// The version of NFS that the options ask for: `3`, `4` (any minor one), `4.2`. The last one
/// counts.
fn version(options: &str) -> Option<&str> {
    options.rsplit(',').find_map(|option| match option.split_once('=') {
        Some(("vers" | "nfsvers", version)) => Some(version),
        None if matches!(option, "v2" | "v3" | "v4" | "v4.0" | "v4.1" | "v4.2") => option.strip_prefix('v'),
        _ => None,
    })
}

/// The transport that the options ask for: `tcp`, `rdma`, `udp`. The last one counts.
fn transport(options: &str) -> &str {
    let of = |option| match option {
        "tcp" | "rdma" | "udp" => Some(option),
        _ => option.strip_prefix("proto=").map(|proto| proto.trim_end_matches('6')),
    };
    options.rsplit(',').find_map(of).unwrap_or("tcp")
}

/// How a mount differs from what was asked for, and what to do, if it does.
fn unlike(mounted: Option<&Mounted>, transports: &[String], options: &str) -> Option<(String, &'static str)> {
    let Some(mounted) = mounted.filter(|it| matches!(&*it.kind, "nfs" | "nfs4")) else {
        let kind = mounted.map_or("nothing", |it| &it.kind);
        let cause = format!("mount.nfs succeeded, but {kind} is mounted");
        return Some((cause, "without bg, here and in /etc/nfsmount.conf"));
    };
    if let Some((asked, used)) = version(options).zip(mounted.option("vers"))
        && used != asked
        && !(asked == "4" && used.starts_with("4."))
    {
        let cause = format!("NFS version {asked} was asked for, and {used} is in use");
        return Some((cause, "vers=3 or vers=4.2, as the server has it; see /etc/nfsmount.conf too"));
    }
    let asked = transport(options);
    if let Some(used) = transports.iter().find(|used| *used != asked) {
        // Linux, fs/nfs/nfs4client.c: nfs41_walk_client_list.
        let cause = format!(
            "proto={asked} was asked for, and {used} is in use: for version 4 the kernel uses the connections of \
             another mount of the same server, whatever its transport is"
        );
        return Some((cause, "each transport of version 4 in a run of its own, or vers=3"));
    }
    // One connection is not shown.
    let used = mounted.option("nconnect").unwrap_or("1");
    let asked = options.rsplit(',').find_map(|option| option.strip_prefix("nconnect=")).unwrap_or("1");
    (used != asked).then(|| {
        let cause = format!(
            "nconnect={asked} was asked for, and nconnect={used} is in use: the kernel shares the connections of \
             all mounts of one server, and before Linux 6.9 ignores nconnect for version 4 over RDMA"
        );
        (cause, "the same nconnect for each route of the kernel to this server, and for other mounts of it")
    })
}

/// Why the kernel cannot mount NFS, if it cannot.
fn no_nfs() -> Option<String> {
    let has = || {
        let types = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        types.lines().any(|line| line.split_whitespace().last() == Some("nfs"))
    };
    if has() {
        return None;
    }
    let loaded = Command::new("modprobe").arg("nfs").stdin(Stdio::null()).output();
    if has() {
        return None;
    }
    let why = match loaded {
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("modprobe: {error}"),
    };
    Some(format!("this kernel has no NFS client ({why})"))
}

/// The first option that asks for several paths, which only some kernels have.
fn multipath_option(options: &str) -> Option<&str> {
    options
        .split(',')
        .map(|option| option.split('=').next().unwrap_or_default())
        .find(|name| ["remoteports", "localports"].contains(name))
}

/// Whether the kernel refused the options, and they have one that only some kernels have.
fn lacks_multipath(said: &str, options: &str) -> bool {
    multipath_option(options).is_some() && said.contains("incorrect mount option")
}

/// Runs `mount.nfs`; returns what it says if it fails.
fn run(mut command: Command, stop: &Stop) -> Result<Option<String>> {
    let failed = |error: std::io::Error| {
        Error::refused("cannot run mount.nfs", error.to_string(), "apt install nfs-common")
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let deadline = Instant::now() + MOUNT_TIMEOUT;
    let status = match child::wait(&mut child, stop, Some(deadline), Signal::KILL).map_err(failed)? {
        Ended::Itself(status) => status,
        Ended::Stopped => return Err(Error::Stopped),
        Ended::TimedOut => return Ok(Some(format!("no answer within {} seconds", MOUNT_TIMEOUT.as_secs()))),
    };
    if status.success() {
        return Ok(None);
    }
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_end(&mut said).map_err(failed)?;
    }
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Ok(Some(match (lines.as_slice(), status.signal()) {
        ([], Some(signal)) => format!("mount.nfs was ended by signal {signal}"),
        ([], None) => format!("mount.nfs ended with {status}"),
        (lines, _) => lines.join("; "),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_nfs_gets_the_words_of_nfs_5() {
        let line = |server: &str, options: &str| command_line(server, options).unwrap();
        let (source, options) = line("nfs://10.0.0.1:3049/data", "nconnect=4,mountport=3049");
        assert_eq!(source, "10.0.0.1:/data");
        assert_eq!(
            options,
            "vers=3,proto=tcp,mountproto=tcp,nolock,retry=0,port=3049,nconnect=4,mountport=3049"
        );
        let rdma = line("nfs://nas:3049/data", "proto=rdma,vers=3").1;
        assert_eq!(rdma, "mountproto=tcp,nolock,retry=0,port=3049,mountport=3049,proto=rdma,vers=3");
        assert_eq!(line("nas:/data", "v4.1,retry=1,lock").1, "proto=tcp,v4.1,retry=1,lock");
        // Version 4 has neither MOUNT nor a lock manager.
        for version in ["vers=4.2", "nfsvers=4", "v4.2", "vers=3,vers=4.1"] {
            let options = line("nfs://nas:3049/data", version).1;
            assert_eq!(options, format!("proto=tcp,retry=0,port=3049,{version}"));
        }
        let rdma = line("nas:/data", "vers=4.2,proto=rdma,port=20049").1;
        assert_eq!(rdma, "retry=0,vers=4.2,proto=rdma,port=20049");
        let v3 = line("nas:/data", "vers=4.2,v3").1;
        assert_eq!(v3, "proto=tcp,mountproto=tcp,nolock,retry=0,vers=4.2,v3", "the last one counts");
        let (source, options) = line("nfs://[fd00::1]/data", "");
        assert_eq!(source, "[fd00::1]:/data");
        assert_eq!(options, "vers=3,proto=tcp6,mountproto=tcp6,nolock,retry=0");
        assert!(command_line("nas:/data", "nconnect=2,bg").unwrap_err().contains("bg"));
        assert!(command_line("data", "").is_err());
    }

    #[test]
    fn a_mount_that_shares_the_connections_of_another_is_found() {
        let mounted = |kind: &str, options: &str| Mounted { kind: kind.into(), options: options.into() };
        let nfs = |options: &str| mounted("nfs", options);
        let unlike = |mounted: Option<&Mounted>, options| super::unlike(mounted, &[], options);
        assert_eq!(unlike(Some(&nfs("rw,vers=3,nconnect=4")), "vers=3,nconnect=4"), None);
        assert_eq!(unlike(Some(&nfs("rw,vers=3")), "vers=3"), None);
        assert_eq!(unlike(Some(&nfs("rw,vers=3")), "nconnect=1"), None);
        let shared = |used, asked| unlike(Some(&nfs(used)), asked).unwrap().0;
        assert!(shared("rw,nconnect=8", "vers=3").starts_with("nconnect=1 was asked for, and nconnect=8"));
        let other = shared("rw,vers=4.1", "vers=4.2");
        assert_eq!(other, "NFS version 4.2 was asked for, and 4.1 is in use");
        assert!(shared("rw,vers=3", "v4").starts_with("NFS version 4 was asked for, and 3 "));
        assert_eq!(unlike(Some(&mounted("nfs4", "rw,vers=4.2")), "vers=4"), None);
        assert_eq!(unlike(Some(&mounted("nfs4", "rw,vers=4.2")), "v4.2"), None);
        assert!(shared("rw", "nconnect=2,nconnect=16").starts_with("nconnect=16 was"));
        let over = |transports: &[&str], asked| {
            let transports: Vec<String> = transports.iter().map(|kind| (*kind).to_owned()).collect();
            super::unlike(Some(&mounted("nfs4", "rw,vers=4.2,nconnect=2")), &transports, asked)
        };
        let rdma = "proto=tcp,vers=4.2,proto=rdma,nconnect=2";
        let (cause, advice) = over(&["tcp", "tcp"], rdma).unwrap();
        assert!(cause.starts_with("proto=rdma was asked for, and tcp is in use"), "{cause}");
        assert!(advice.contains("a run of its own"), "{advice}");
        assert_eq!(over(&["rdma", "rdma"], rdma), None);
        assert_eq!(over(&["tcp", "tcp"], "vers=4.2,proto=tcp6,nconnect=2"), None);
        assert!(
            over(&["rdma", "rdma"], "vers=4.2,nconnect=2").unwrap().0.contains("proto=tcp was asked for")
        );
        assert!(unlike(None, "").unwrap().0.contains("nothing is mounted"));
        assert!(unlike(Some(&mounted("ext4", "rw")), "").unwrap().0.contains("ext4 is mounted"));
    }

    #[test]
    fn only_refused_options_for_several_paths_make_a_route_without_result() {
        let refused = "mount.nfs: an incorrect mount option was specified for /tmp/x";
        assert!(lacks_multipath(refused, "nconnect=4,remoteports=10.0.0.1-10.0.0.4"));
        assert!(!lacks_multipath(refused, "nconect=4"));
        assert!(!lacks_multipath("mount.nfs: Connection refused", "remoteports=10.0.0.1"));
    }

    #[test]
    fn what_the_helper_says_is_the_cause_and_a_stop_ends_it() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let stop = Stop::default();
        assert_eq!(run(shell("exit 0"), &stop).unwrap(), None);
        let said = run(shell("echo mount.nfs: access denied >&2; echo >&2; exit 32"), &stop).unwrap();
        assert_eq!(said.as_deref(), Some("mount.nfs: access denied"));
        assert!(run(shell("exit 3"), &stop).unwrap().unwrap().contains('3'));
        assert!(run(shell("kill -9 $$"), &stop).unwrap().unwrap().contains("signal 9"));
        stop.request();
        assert!(matches!(run(shell("exec sleep 100"), &stop), Err(Error::Stopped)));
    }
}
