//! Tests a mounted directory over RDMA: its data and its names, and that nothing is held
//! afterwards.

use crate::kernel_client::{READY_TIMEOUT, fio_finds_what_it_wrote, started};
use crate::{alone, lab, sh, trunkline};
use lab::vm::Running;
use rustix::process::Signal;
use std::process::Command;
use testkit::Deadline;

const PORT: u16 = 12073;
const OVER_RDMA: u16 = 20073;
const DIRECTORY: &str = "/mnt/over-rdma";
/// Queue pairs of a mount and of its server: two connections with two ends each.
const QUEUE_PAIRS: usize = 4;
/// Few and small, because a software device on an emulated machine is slow.
const SIZES: [(&str, &str); 3] = [("4k", "256k"), ("64k", "2m"), ("1m", "8m")];

fn served(listen: &str) -> Running {
    started(&format!("serve --mem 256MiB {listen}").split(' ').map(str::to_owned).collect::<Vec<_>>())
}

/// A mount in the foreground on [`DIRECTORY`], until dropped.
struct Mounted(Running);

impl Mounted {
    fn start() -> Self {
        sh(&format!("modprobe fuse; mkdir -p {DIRECTORY}"));
        let mut mount = Command::new(trunkline());
        mount.args(["mount", "-f", "10.77.1.2:/export", DIRECTORY, "-o"]).current_dir("/");
        mount.arg(format!("proto=rdma,port={OVER_RDMA},mountport={PORT},nconnect=2,nolock"));
        let mut mounted = Self(lab().client().spawn(&mount).expect("the guest runs"));
        mounted.0.wait_for_line("mounted", READY_TIMEOUT).expect("the directory is mounted");
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A failed test must not hang here.
        let _ = lab().client().sh(&format!("umount -l {DIRECTORY}"));
        self.0.signal(Signal::KILL);
    }
}

/// The objects of these kinds in the kernel that belong to programs, one for each line.
fn held(kinds: &[&str]) -> Vec<String> {
    let said = sh(&kinds.iter().map(|kind| format!("rdma resource show {kind}\n")).collect::<String>());
    // The objects of the kernel itself have a name in brackets.
    said.lines().filter(|line| !line.contains("comm [")).map(str::to_owned).collect()
}

/// Waits until no more objects are held than before.
fn wait_until_freed(kinds: &[&str], before: &[String]) {
    Deadline::wait_until("the kernel to free the objects", READY_TIMEOUT, || {
        held(kinds).iter().all(|line| before.contains(line)).then_some(())
    });
}

#[test]
fn a_directory_mounted_over_rdma_returns_what_was_written_and_its_end_frees_everything() {
    const CONNECTIONS: [&str; 1] = ["qp type RC"];
    const EVERYTHING: [&str; 3] = ["qp type RC", "mr", "cq"];
    let _turn = alone();
    let [connections, everything] = [held(&CONNECTIONS), held(&EVERYTHING)];
    let mut server = served(&format!("--listen 10.77.1.2:{PORT} --listen rdma:10.77.1.2:{OVER_RDMA}"));
    let mut mounted = Mounted::start();
    let now = held(&CONNECTIONS);
    let new = now.iter().filter(|line| !connections.contains(line)).count();
    assert_eq!(new, QUEUE_PAIRS, "two connections are over RDMA: {now:?}");
    fio_finds_what_it_wrote(DIRECTORY, &SIZES);
    buffered_data_are_whole();
    names_are_what_they_are();
    sh(&format!("umount {DIRECTORY}"));
    assert!(mounted.0.wait(drop).expect("the guest runs").success());
    wait_until_freed(&CONNECTIONS, &connections);
    server.signal(Signal::TERM);
    assert!(server.wait(drop).expect("the guest runs").success());
    wait_until_freed(&EVERYTHING, &everything);
}

/// Reads and writes through the page cache and with O_DIRECT, compared with each other, and with
/// what the server returns over TCP.
fn buffered_data_are_whole() {
    let program = trunkline().display();
    sh(&format!(
        "fio --name=buffered --directory={DIRECTORY} --rw=randwrite --bs=24k --size=6m --ioengine=psync \
           --fsync=16 --verify=crc32c --do_verify=1 --verify_fatal=1 --randseed=7
         mkdir -p /root/over-rdma; cd /root/over-rdma
         for size in 0 1 4097 65537 3000001; do head -c $size /dev/urandom > f-$size; done
         sha256sum f-* > sums
         mkdir {DIRECTORY}/data; cp f-* {DIRECTORY}/data
         head -c 2097152 /dev/urandom > direct; dd if=direct of={DIRECTORY}/data/direct bs=512k oflag=direct
         sha256sum direct >> sums
         echo 3 > /proc/sys/vm/drop_caches
         cd {DIRECTORY}/data; sha256sum -c /root/over-rdma/sums
         dd if=f-3000001 bs=1M iflag=direct | cmp - /root/over-rdma/f-3000001
         {program} cp -r -o port={PORT} nfs://10.77.1.2/export/data /root/over-rdma/back
         cd /root/over-rdma/back; sha256sum -c /root/over-rdma/sums"
    ));
}

/// Also a link and a listing whose replies need registered memory.
fn names_are_what_they_are() {
    let said = sh(&format!(
        "mkdir {DIRECTORY}/names; cd {DIRECTORY}/names
         echo one > a; mv a b; fails cat a; [ \"$(cat b)\" = one ]
         echo two > c; mv c b; [ \"$(cat b)\" = two ]
         mkdir d; mv b d/b; fails rmdir d; rm d/b; rmdir d; fails ls d
         long=$(seq -s / 300); ln -s $long soft; [ \"$(readlink soft)\" = $long ]; rm soft
         seq -f a-name-of-some-length-%04g 300 | xargs touch
         echo 3 > /proc/sys/vm/drop_caches
         ls | sort -u | wc -l
         rm a-name-*; [ -z \"$(ls -A)\" ]"
    ));
    assert_eq!(said.lines().last(), Some("300"), "each name once: {said}");
}

#[test]
fn a_mount_over_rdma_of_a_server_without_rdma_is_an_error_that_says_so() {
    let _turn = alone();
    let server = served(&format!("--listen 10.77.1.2:{PORT}"));
    let program = trunkline().display();
    sh(&format!(
        "modprobe fuse; mkdir -p {DIRECTORY}
         fails {program} mount -f -o proto=rdma,port={OVER_RDMA},mountport={PORT} \
           10.77.1.2:/export {DIRECTORY} > /root/said
         grep -q 'nobody takes connections over RDMA at 10.77.1.2:{OVER_RDMA}' /root/said
         grep -q 'try:.*proto=tcp' /root/said
         fails grep -q {DIRECTORY} /proc/mounts"
    ));
    server.signal(Signal::TERM);
}
