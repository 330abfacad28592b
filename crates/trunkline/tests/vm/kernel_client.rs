//! Tests the Linux kernel's NFS client on our server, over TCP.

use crate::{alone, lab, sh, trunkline};
use lab::vm::Running;
use rustix::process::Signal;
use std::process::Command;
use std::time::Duration;

/// How long the server may take to listen in an emulated machine.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(300);

/// The blocks and files of fio.
const ALL_SIZES: [(&str, &str); 3] = [("4k", "2m"), ("64k", "8m"), ("1m", "16m")];

/// A server, mounted by the kernel with these options, until dropped.
pub(super) struct Mounted {
    directory: String,
    serve: Vec<String>,
    server: Running,
}

impl Mounted {
    pub(super) fn new(name: &str, port: u16, options: &str) -> Self {
        Self::serving(name, port, options, &["--mem", "256MiB"])
    }

    /// Serves with these arguments.
    pub(super) fn serving(name: &str, port: u16, options: &str, arguments: &[&str]) -> Self {
        Self::with_options(name, port, &format!("proto=tcp,port={port},{options}"), arguments)
    }

    /// Serves memory over RDMA too, and is mounted over RDMA.
    pub(super) fn over_rdma(name: &str, port: u16, options: &str) -> Self {
        let over_rdma = port + 1000;
        let listen = format!("rdma:10.77.1.2:{over_rdma}");
        let arguments = ["--mem", "256MiB", "--listen", &listen];
        Self::with_options(name, port, &format!("proto=rdma,port={over_rdma},{options}"), &arguments)
    }

    /// Serves memory by version 4 with this minor version, and mounts that.
    pub(super) fn version_4(name: &str, port: u16, minor: u32, options: &str) -> Self {
        Self::serving_version_4(name, port, minor, options, &["--mem", "256MiB"])
    }

    /// Serves by version 4 with these arguments.
    pub(super) fn serving_version_4(name: &str, port: u16, minor: u32, options: &str, more: &[&str]) -> Self {
        let mut serve = arguments(port, more);
        serve.extend(["--nfs-versions", "3,4.1,4.2"].map(str::to_owned));
        Self::of(name, serve, &format!("vers=4.{minor},port={port},{options}"))
    }

    fn with_options(name: &str, port: u16, options: &str, more: &[&str]) -> Self {
        let options = format!("vers=3,mountport={port},mountproto=tcp,nolock,{options}");
        Self::of(name, arguments(port, more), &options)
    }

    fn of(name: &str, serve: Vec<String>, options: &str) -> Self {
        let server = started(&serve);
        let directory = format!("/mnt/{name}");
        sh(&format!(
            "mkdir -p {directory}
             mount -t nfs -o {options} 10.77.1.2:/export {directory}"
        ));
        Self { directory, serve, server }
    }

    pub(super) fn directory(&self) -> &str {
        &self.directory
    }

    /// Kills the server and starts another in its place.
    pub(super) fn restart(&mut self) {
        self.server.signal(Signal::KILL);
        self.server.wait(drop).expect("the guest runs");
        self.server = started(&self.serve);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Before the server ends; a failed test must not hang here.
        let _ = lab().client().sh(&format!("umount -f -l {}", self.directory));
    }
}

/// The arguments of a server that listens on this port.
fn arguments(port: u16, more: &[&str]) -> Vec<String> {
    let listen = format!("10.77.1.2:{port}");
    let all = ["serve", "--listen", &listen].into_iter().chain(more.iter().copied());
    all.map(str::to_owned).collect()
}

/// A server that is ready.
pub(super) fn started(serve: &[String]) -> Running {
    let mut command = Command::new(trunkline());
    command.args(serve).current_dir("/");
    let mut server = lab().server().spawn(&command).expect("the guest runs");
    server.wait_for_line("ready", READY_TIMEOUT).expect("the server is ready");
    server
}

/// Random writes below a directory, with a file for each block size, and each block verified.
pub(super) fn fio_finds_what_it_wrote(directory: &str, files: &[(&str, &str)]) {
    for (block, size) in files {
        sh(&format!(
            "fio --name=f{block} --directory={directory} --rw=randwrite --bs={block} --size={size} --direct=1 \
             --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 --randseed=7"
        ));
    }
}

#[test]
fn the_kernel_reads_what_it_wrote_over_one_connection() {
    let _turn = alone();
    fio_finds_what_it_wrote(Mounted::new("one", 12049, "nconnect=1").directory(), &ALL_SIZES);
}

#[test]
fn the_kernel_reads_what_it_wrote_over_four_connections() {
    let _turn = alone();
    let mounted = Mounted::new("four", 12050, "nconnect=4");
    fio_finds_what_it_wrote(mounted.directory(), &ALL_SIZES);
    let established = sh("ss -Htn state established dport = 12050 | wc -l");
    assert_eq!(established.trim(), "4");
}

/// Copies a tree of eight times this many small files, compares the copy, and removes it.
pub(super) fn a_tree_is_copied_in(directory: &str, files: u32) {
    let differing = sh(&format!(
        "rm -rf /tmp/tree-here; mkdir /tmp/tree-here
         for d in 1 2 3 4 5 6 7 8; do
           mkdir -p /tmp/tree-here/$d/below
           for f in $(seq {files}); do
             head -c $((f * d * 37 % 9001)) /dev/urandom > /tmp/tree-here/$d/below/file-$f
           done
         done
         cp -a /tmp/tree-here {directory}/tree
         echo 3 > /proc/sys/vm/drop_caches
         diff -r /tmp/tree-here {directory}/tree
         find {directory}/tree -type f | wc -l
         rm -r {directory}/tree /tmp/tree-here
         ls -A {directory}"
    ));
    assert_eq!(differing.trim(), (8 * files).to_string(), "all files, no difference, and nothing left");
}

#[test]
fn a_tree_of_small_files_is_copied_in_and_compared() {
    let _turn = alone();
    a_tree_is_copied_in(Mounted::new("tree", 12051, "nconnect=2").directory(), 25);
}

#[test]
fn names_links_and_sizes_behave_as_on_any_file_system() {
    let _turn = alone();
    let Mounted { directory, .. } = &Mounted::new("names", 12052, "nconnect=1,noac");
    sh(&format!(
        "cd {directory}
         echo one > a; mv a b; [ ! -e a ]; [ \"$(cat b)\" = one ]
         echo two > c; mv c b; [ \"$(cat b)\" = two ]
         mkdir d; mv b d/b; [ \"$(cat d/b)\" = two ]
         ln d/b hard; [ $(stat -c %h hard) = 2 ]; rm d/b; [ $(stat -c %h hard) = 1 ]; [ \"$(cat hard)\" = two ]
         ln -s hard soft; [ \"$(readlink soft)\" = hard ]; [ \"$(cat soft)\" = two ]
         fails rmdir nothing; rmdir d; fails ls d
         truncate -s 1000000 hole; [ $(stat -c %s hole) = 1000000 ]
         printf x | dd of=hole bs=1 seek=900000 conv=notrunc 2>/dev/null
         [ $(tr -d '\\0' < hole) = x ]; [ $(stat -c %s hole) = 1000000 ]
         [ $(stat -c %b hole) -lt 1000 ]
         truncate -s 10 hole; truncate -s 20 hole; [ $(stat -c %s hole) = 20 ]; [ -z \"$(tr -d '\\0' < hole)\" ]
         chmod 640 hard; [ $(stat -c %a hard) = 640 ]; touch -d @1000000000 hard; [ $(stat -c %Y hard) = 1000000000 ]"
    ));
}

#[test]
fn a_large_directory_is_listed_completely_and_df_shows_the_size() {
    let _turn = alone();
    let Mounted { directory, .. } = &Mounted::new("large", 12053, "nconnect=1");
    let said = sh(&format!(
        "mkdir {directory}/d; cd {directory}/d
         seq -f name-%05g 2000 | xargs touch
         echo 3 > /proc/sys/vm/drop_caches
         ls -f | grep -c name-; ls | sort -u | wc -l
         df -B1 --output=size {directory} | tail -1"
    ));
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    assert_eq!(lines, ["2000", "2000", "268435456"], "each name once, and the size of the store");
}
