//! Tests a mount of a group of processes that serve one directory, and of a server whose cookies
//! are invalid after a restart.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, unmount_all_below};
use rustix::mount::{MountFlags, mount};
use rustix::process::Signal;
use std::ffi::CStr;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use testkit::{Process, Stream, TempDir, free_port_on};

/// The directories that the processes serve and share, and the directory of the mount.
pub struct Directories(TempDir);

impl Directories {
    pub fn new(name: &str) -> Self {
        let directories = Self(testkit::temp_dir(name));
        for directory in ["served", "mnt"] {
            std::fs::create_dir(directories.at(directory)).unwrap();
        }
        directories
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Serves a file system whose offsets do not remain valid, so each process numbers the names
    /// itself.
    pub fn on_ramfs(&self) {
        mount("none", self.at("served"), "ramfs", MountFlags::empty(), None::<&CStr>).unwrap();
    }

    /// Starts a process of the group; returns when it is ready.
    pub fn serve(&self, listen: SocketAddr) -> Process {
        let listen = listen.to_string();
        let mut arguments = ["--no-root-squash", "--nfs-versions", "3,4.1,4.2", "--listen", &listen]
            .map(str::to_owned)
            .to_vec();
        for (word, place) in [("--dir", "served"), ("--state", "state"), ("--group", "group")] {
            arguments.extend([word.to_owned(), self.at(place).display().to_string()]);
        }
        testkit::ServerProcess::start(Command::new(env!("CARGO_BIN_EXE_trunkline")), &arguments).process
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        unmount_all_below(self.0.path());
    }
}

fn kill(mut process: Process) {
    process.signal(Signal::KILL);
    process.wait(MOUNT_TIMEOUT);
}

const FILES: u32 = 300;

/// The content of a file: lines with the 5,001 numbers from its own on.
fn content(number: u32) -> String {
    (number..=number + 5_000).map(|line| format!("{line}\n")).collect()
}

#[test]
fn data_of_a_program_arrive_when_processes_of_the_group_are_killed() {
    let directories = Directories::new("mounted-group");
    let port = free_port_on(IpAddr::from([127, 0, 0, 1]));
    let node = |number: u8| directories.serve(SocketAddr::new([127, 0, 0, number].into(), port));
    let (first, second) = (node(1), node(2));
    let options = format!("nolock,port={port},nconnect=4,remoteports=127.0.0.1-127.0.0.2");
    let mounted = Mounted::start("127.0.0.1:/export", directories.at("mnt"), &options);
    let script = "cd \"$0\"; for i in $(seq $1); do
        mkdir d$i; seq $i $((i + 5000)) > d$i/part; mv d$i/part d$i/whole; echo written $i; done; echo all";
    let mut command = Command::new("sh");
    command.args(["-euc", script]).arg(&mounted.directory).arg(FILES.to_string());
    let mut writer = Process::spawn(command);
    writer.wait_for_line("written 40", MOUNT_TIMEOUT);
    kill(first);
    second.wait_for_line("this one listens on its address", MOUNT_TIMEOUT);
    writer.wait_for_line("written 120", MOUNT_TIMEOUT);
    let first = node(1);
    writer.wait_for_line("written 200", MOUNT_TIMEOUT);
    kill(second);
    first.wait_for_line("this one listens on its address", MOUNT_TIMEOUT);
    writer.wait_for_line("all", MOUNT_TIMEOUT);
    assert!(writer.wait(MOUNT_TIMEOUT).success(), "{}", writer.all_output());
    // Read beneath the servers, so that the mount is not involved.
    for number in 1..=FILES {
        let directory = directories.at("served").join(format!("d{number}"));
        let found = std::fs::read_to_string(directory.join("whole")).unwrap();
        assert!(found == content(number), "file {number}: {} bytes", found.len());
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 1);
    }
}

const NAMES: usize = 3_000;

/// A name so long that a listing of all names does not fit into a program's buffer.
pub fn name(number: usize) -> String {
    format!("{number:05}-{}", "n".repeat(200))
}

/// The number of READDIRPLUS calls that were answered with an error.
fn refused_listings(server: &Process) -> u64 {
    server.signal(Signal::USR1);
    server.wait_for_line("calls refused", MOUNT_TIMEOUT);
    let table = server.output(Stream::Err);
    let row = table.lines().rfind(|line| line.split_whitespace().nth(1) == Some("READDIRPLUS"));
    let cell = row.and_then(|row| row.split_whitespace().nth(3)).unwrap_or("0");
    cell.parse().unwrap_or_else(|_| panic!("{table}"))
}

#[test]
fn a_listing_continues_with_each_name_once_when_the_server_refuses_its_cookies() {
    let directories = Directories::new("cookies");
    directories.on_ramfs();
    for number in 0..NAMES {
        std::fs::write(directories.at("served").join(name(number)), b"").unwrap();
    }
    let ip = IpAddr::from([127, 0, 0, 1]);
    let address = SocketAddr::new(ip, free_port_on(ip));
    let server = directories.serve(address);
    let options = format!("vers=3,nolock,port={}", address.port());
    let mounted = Mounted::start("127.0.0.1:/export", directories.at("mnt"), &options);
    // With -U, ls prints what it has read so far, and then waits because the pipe is full.
    let mut listing = Command::new("ls");
    listing.arg("-1U").arg(&mounted.directory).stdout(Stdio::piped());
    let mut listing = listing.spawn().unwrap();
    let mut lines = BufReader::with_capacity(512, listing.stdout.take().unwrap()).lines();
    let mut found = vec![lines.next().unwrap().unwrap()];
    kill(server);
    let server = directories.serve(address);
    found.extend(lines.map(Result::unwrap));
    assert!(listing.wait().unwrap().success());
    assert!(refused_listings(&server) > 0, "the server refused no cookie");
    found.sort_unstable();
    let expected: Vec<_> = (0..NAMES).map(name).collect();
    assert_eq!(found.len(), NAMES);
    assert!(found == expected, "a name is missing or was listed twice");
}
