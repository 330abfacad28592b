//! Debian's nfs-ganesha on its own tmpfs. The tmpfs is in a mount namespace that lives as long as a
//! process of the test, so no mount remains, even if the test is killed.
//!
//! If the daemon ends by itself, the test program ends with the daemon's log: the calls of a hard
//! mount would wait for ever.
//!
//! Only one runs at a time: each registers with rpcbind, and a machine can have only one rpcbind.

use crate::fixtures::TIMEOUT;
use crate::libnfs::Export;
use client::options::Version;
use client::{Mount, Settings};
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use testkit::{Deadline, Process, TempDir, free_port, require_program, temp_dir};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const RPCBIND_PORT: u16 = 111;

static TURN: Mutex<()> = Mutex::new(());

/// A running nfs-ganesha; ends when dropped, the daemon first.
#[derive(Debug)]
pub(crate) struct Ganesha {
    daemon: Process,
    namespace: Process,
    _rpcbind: Option<Process>,
    place: TempDir,
    pub(crate) port: u16,
    pub(crate) mount_port: u16,
    _turn: MutexGuard<'static, ()>,
}

impl Ganesha {
    /// Starts nfs-ganesha on free ports and waits until it accepts connections. Owners are numbers.
    pub(crate) fn start() -> Self {
        Self::start_with("Only_Numeric_Owners = true;")
    }

    /// The same with owners that are names of a domain alone.
    pub(crate) fn start_with_names(domain: &str) -> Self {
        Self::start_with(&format!(
            "Only_Numeric_Owners = false; Allow_Numeric_Owners = false; UseGetpwnam = true; DomainName = {domain};"
        ))
    }

    fn start_with(owners: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let root = rustix::process::geteuid().is_root();
        assert!(
            root,
            "nfs-ganesha needs root, for its mount and its file handles; try: sudo cargo xtask test"
        );
        let place = temp_dir("ganesha");
        let (port, mount_port) = (free_port(), free_port());
        let export = place.path().join("export");
        fs::create_dir(&export).unwrap();
        fs::write(place.path().join("ganesha.conf"), configuration(&place, (port, mount_port), owners))
            .unwrap();
        let rpcbind = start_rpcbind();
        let namespace = start_namespace(&export);
        let daemon = start_daemon(&place, &namespace);
        let mut ganesha = Self { daemon, namespace, _rpcbind: rpcbind, place, port, mount_port, _turn: turn };
        ganesha.wait_until_it_accepts();
        ganesha
    }

    /// Kills the daemon. Data already written stay in the tmpfs.
    pub(crate) fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Starts the daemon again on the same ports and the same tmpfs: a new instance, with a new
    /// write verifier.
    pub(crate) fn start_again(&mut self) {
        self.daemon = start_daemon(&self.place, &self.namespace);
        self.wait_until_it_accepts();
    }

    /// The local path of a file of the export.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        let inside = format!("/proc/{}/root{}/export", self.namespace.id(), self.place.path().display());
        PathBuf::from(inside).join(name)
    }

    /// The path of the export.
    pub(crate) fn export_path(&self) -> String {
        self.place.path().join("export").display().to_string()
    }

    /// The export for libnfs.
    pub(crate) fn export(&self) -> Export {
        Export { address: ADDRESS, port: self.port, mount_port: self.mount_port, path: self.export_path() }
    }

    /// Mounts the export with our client.
    pub(crate) fn mount(&self, version: Version, nconnect: u16) -> Mount {
        self.mount_with(Settings { version, nconnect, ..self.settings() })
    }

    /// What a mount of the export needs.
    pub(crate) fn settings(&self) -> Settings {
        Settings { mount_port: self.mount_port, ..Settings::new(ADDRESS, self.port, self.export_path()) }
    }

    pub(crate) fn mount_with(&self, settings: Settings) -> Mount {
        Mount::with_settings(settings).unwrap_or_else(|error| panic!("{error:?}\n{}", self.log()))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path().join("ganesha.log")).unwrap_or_default()
    }

    fn wait_until_it_accepts(&mut self) {
        let deadline = Deadline::after(TIMEOUT);
        while [self.port, self.mount_port].iter().any(|port| TcpStream::connect((ADDRESS, *port)).is_err()) {
            assert!(self.daemon.is_running(), "nfs-ganesha has ended:\n{}", self.log());
            assert!(deadline.left().is_some(), "nfs-ganesha does not accept:\n{}", self.log());
            std::thread::yield_now();
        }
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = if self.daemon.is_running() { "is running" } else { "has ended" };
            eprintln!("nfs-ganesha {state}; its log:\n{}", self.log());
        }
    }
}

fn configuration(place: &TempDir, (port, mount_port): (u16, u16), owners: &str) -> String {
    let export = place.path().join("export");
    let (export, plugins) = (export.display(), plugins());
    let plugins = plugins.display();
    format!(
        r#"NFS_CORE_PARAM {{
  NFS_Port = {port}; MNT_Port = {mount_port}; Bind_addr = {ADDRESS}; Protocols = 3, 4;
  Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = None; Plugins_Dir = "{plugins}";
}}
NFSv4 {{ Graceless = true; Minor_Versions = 1, 2; {owners} }}
EXPORT {{
  Export_Id = 1; Path = {export}; Pseudo = {export}; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
  Protocols = 3, 4; Transports = TCP; PrivilegedPort = false;
  FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = WARN; }}
"#
    )
}

/// The directory of nfs-ganesha's plugins on Debian, whose name contains the architecture.
fn plugins() -> PathBuf {
    let libraries = fs::read_dir("/usr/lib").unwrap().flatten();
    let mut places = libraries.map(|entry| entry.path().join("ganesha"));
    places
        .find(|place| place.join("libfsalvfs.so").exists())
        .expect("nfs-ganesha's VFS is not installed; try: apt-get install nfs-ganesha-vfs")
}

/// Starts rpcbind, unless the machine already runs one.
fn start_rpcbind() -> Option<Process> {
    let program = require_program("rpcbind");
    let there = || TcpStream::connect((ADDRESS, RPCBIND_PORT)).is_ok();
    if there() {
        return None;
    }
    let mut command = Command::new(program);
    command.arg("-f");
    let mut process = Process::spawn(command);
    Deadline::wait_until("rpcbind to accept", TIMEOUT, || {
        assert!(process.is_running(), "rpcbind has ended:\n{}", process.all_output());
        there().then_some(())
    });
    Some(process)
}

/// A process that holds a mount namespace with a tmpfs on `export`.
fn start_namespace(export: &std::path::Path) -> Process {
    let mut command = Command::new(require_program("unshare"));
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=1G,mode=777 none \"$1\" && echo mounted && exec sleep infinity");
    command.arg("sh").arg(export);
    let process = Process::spawn(command);
    process.wait_for_line("mounted", TIMEOUT);
    process
}

fn start_daemon(place: &TempDir, namespace: &Process) -> Process {
    let place = place.path();
    let mut command = Command::new(require_program("nsenter"));
    command.arg(format!("--mount=/proc/{}/ns/mnt", namespace.id()));
    // Entering a mount namespace leaves a chroot, and the tests may run in one.
    command.arg(format!("--root=/proc/{}/root", namespace.id()));
    command.arg(require_program("ganesha.nfsd")).arg("-F");
    command.arg("-f").arg(place.join("ganesha.conf")).arg("-L").arg(place.join("ganesha.log"));
    command.arg("-p").arg(place.join("ganesha.pid"));
    let daemon = Process::spawn(command);
    let log = place.join("ganesha.log");
    daemon.on_early_end(move || {
        let log = fs::read_to_string(log).unwrap_or_default();
        // Not `eprintln`, which is captured and shown only after a test has ended.
        let _ = writeln!(std::io::stderr(), "error: nfs-ganesha has ended by itself; its log:\n{log}");
        std::process::exit(101);
    });
    daemon
}
