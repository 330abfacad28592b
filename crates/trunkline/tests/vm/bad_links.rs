//! Links that lose and reorder segments, and one that falls silent: our client on our server, and the kernel's client
//! on it for comparison. Two links of their own lead to a namespace of the guest, where the server is.

use crate::kernel_client::READY_WITHIN;
use crate::{alone, lab, sh, trunkline};
use lab::vm::Running;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;
use std::sync::OnceLock;

const PORT: u16 = 12090;
/// 1 of 100 segments is lost, and of the others a quarter goes before those that it came after.
const BAD: &str = "netem delay 1ms 1ms loss 1% reorder 25% 50%";
/// What a command begins with at either end of a link.
const ENDS: [&str; 2] = ["", "ip netns exec far"];

/// Our server behind both links, and a mount of it by our client at `/mnt/ours`, until dropped.
struct Ours {
    mount: Running,
    server: Running,
}

impl Ours {
    fn mounted() -> Self {
        static LINKS: OnceLock<()> = OnceLock::new();
        LINKS.get_or_init(|| {
            sh("modprobe sch_netem; modprobe fuse; modprobe veth
                mkdir -p /mnt/ours /mnt/kernels; ip netns add far
                for n in 1 2; do
                  ip link add bad$n type veth peer name bad$n netns far
                  ip addr add 10.99.$n.1/24 dev bad$n; ip link set bad$n up
                  ip -n far addr add 10.99.$n.2/24 dev bad$n; ip -n far link set bad$n up
                done");
        });
        let mut serve = Command::new("ip");
        serve.args(["netns", "exec", "far"]).arg(trunkline()).args(["serve", "--mem", "256MiB"]);
        for link in 1..=2 {
            serve.args(["--listen", &format!("10.99.{link}.2:{PORT}")]);
        }
        let mut server = lab().server().spawn(serve.current_dir("/")).expect("the guest is there");
        server.wait_for_line("ready", READY_WITHIN).expect("it serves");
        let mut mount = Command::new(trunkline());
        mount.args(["mount", "-f", "10.99.1.2:/export", "/mnt/ours", "-o"]);
        mount.arg(format!("port={PORT},nconnect=4,nolock,remoteports=10.99.1.2~10.99.2.2"));
        let mut mount = lab().client().spawn(mount.current_dir("/")).expect("the guest is there");
        mount.wait_for_line("mounted", READY_WITHIN).expect("it mounts");
        Self { mount, server }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // The next case brings its own; a failed one must not hang here.
        let _ = lab().client().sh("umount -l /mnt/ours; umount -f -l /mnt/kernels");
        for one in [&mut self.mount, &mut self.server] {
            one.signal(Signal::KILL);
            let _ = one.wait(drop);
        }
    }
}

/// Does this with `tc` at each end of these links.
fn at_each_end(links: &[u8], what: &str) -> String {
    let ends = links.iter().flat_map(|link| ENDS.iter().map(move |inside| (link, inside)));
    ends.map(|(link, inside)| sh(&format!("{inside} tc {}", what.replace("LINK", &format!("bad{link}")))))
        .collect()
}

/// How many segments `tc -s qdisc` says were dropped: `Sent 7057538 bytes 5011 pkt (dropped 8, overlimits ...`.
fn dropped(said: &str) -> u64 {
    said.split("(dropped ").skip(1).filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn where_links_lose_and_reorder_segments_our_client_finds_what_it_wrote() {
    let _turn = alone();
    let _ours = Ours::mounted();
    at_each_end(&[1, 2], &format!("qdisc add dev LINK root {BAD}"));
    sh("fio --name=lossy --directory=/mnt/ours --rw=randrw --bs=64k --size=4m --direct=1 --ioengine=libaio \
        --iodepth=8 --verify=crc32c --verify_fatal=1 --verify_backlog=16 --randseed=7");
    let said = at_each_end(&[1, 2], "-s qdisc show dev LINK");
    at_each_end(&[1, 2], "qdisc del dev LINK root");
    assert!(dropped(&said) > 0, "{said}");
}

/// The longest wait of a call in milliseconds, of two programs that read and write while one link is silent for three
/// seconds.
fn gap_ms(directory: &str) -> f64 {
    let silent = "root netem loss 100%";
    // It is struck when the load has begun.
    sh(&format!(
        "seen=$(cat /sys/class/net/bad1/statistics/tx_packets)
         fio --name=gap --directory={directory} --numjobs=2 --group_reporting --rw=randrw --bs=16k --size=4m --direct=1 \
           --ioengine=psync --time_based --runtime=10 --randseed=7 --output-format=json --output=/tmp/gap.json &
         until [ $(cat /sys/class/net/bad1/statistics/tx_packets) -gt $((seen + 200)) ]; do
           kill -0 $!; sleep 0.1
         done
         tc qdisc add dev bad1 {silent}; ip netns exec far tc qdisc add dev bad1 {silent}
         sleep 3
         tc qdisc del dev bad1 root; ip netns exec far tc qdisc del dev bad1 root
         wait $!"
    ));
    let record: Value = serde_json::from_str(&sh("cat /tmp/gap.json")).expect("fio writes JSON");
    let longest = |way: &str| record["jobs"][0][way]["clat_ns"]["max"].as_f64().expect("it has a longest");
    longest("read").max(longest("write")) / 1e6
}

/// Neither sees an error; how long each waits is said, and not asserted on. The suite `vm-faults` runs it.
#[test]
fn a_link_falls_silent_under_our_client_and_under_the_kernels() {
    let _turn = alone();
    let _ours = Ours::mounted();
    sh(&format!(
        "mount -t nfs -o vers=3,proto=tcp,port={PORT},mountport={PORT},mountproto=tcp,nolock,nconnect=4 \
         10.99.1.2:/export /mnt/kernels"
    ));
    let [kernels, ours] = ["/mnt/kernels", "/mnt/ours"].map(gap_ms);
    println!(
        "one of two links silent for 3 s, emulated: the longest wait of a call was {kernels:.0} ms with the kernel's \
         client, which uses one address, and {ours:.0} ms with ours"
    );
}
