//! Tests links that lose and reorder segments under our client, and faults under our client and the
//! kernel's, side by side. Two additional links lead to a namespace of the guest in which our
//! servers run.

use crate::kernel_client::READY_TIMEOUT;
use crate::{alone, lab, sh, trunkline};
use lab::vm::Running;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;
use std::sync::OnceLock;

const PORT: u16 = 12090;
/// 1 of 100 segments is lost, and a quarter of the others overtakes earlier segments.
const BAD: &str = "netem delay 1ms 1ms loss 1% reorder 25% 50%";
/// The prefix of commands at each end of a link.
const ENDS: [&str; 2] = ["", "ip netns exec far"];

/// Creates the links, the first time.
pub(super) fn links() {
    static LINKS: OnceLock<()> = OnceLock::new();
    LINKS.get_or_init(|| {
        sh("modprobe sch_netem; modprobe fuse; modprobe veth; modprobe tcp_diag
            mkdir -p /mnt/ours /mnt/kernels; ip netns add far
            for n in 1 2; do
              ip link add bad$n type veth peer name bad$n netns far
              ip addr add 10.99.$n.1/24 dev bad$n; ip link set bad$n up
              ip -n far addr add 10.99.$n.2/24 dev bad$n; ip -n far link set bad$n up
            done");
    });
}

/// Servers behind the links, and a mount of them by our client at `/mnt/ours`, until dropped.
struct OurServer {
    mount: Running,
    servers: Vec<Running>,
}

impl OurServer {
    /// One server in memory behind both links.
    fn in_memory() -> Self {
        links();
        let mut serve = Command::new("ip");
        serve.args(["netns", "exec", "far"]).arg(trunkline()).args(["serve", "--mem", "256MiB"]);
        for link in 1..=2 {
            serve.args(["--listen", &format!("10.99.{link}.2:{PORT}")]);
        }
        Self::mounted(&mut [serve])
    }

    /// A group with a server behind each link, over one directory. A killed server is started again
    /// once `/run/bad/held` is gone.
    fn group() -> Self {
        links();
        sh("rm -rf /run/bad; mkdir -p /srv/bad /run/bad; mount -t tmpfs none /srv/bad
            mkdir /srv/bad/data /srv/bad/state; chmod 700 /srv/bad/state");
        let mut servers = [1, 2].map(|link| {
            let mut serve = Command::new("sh");
            serve.args(["-c", "while :; do \"$@\" & echo $! > $0; wait $!; while [ -e /run/bad/held ]; do sleep 0.1; done; done"]);
            serve.arg(format!("/run/bad/{link}.pid")).args(["ip", "netns", "exec", "far"]).arg(trunkline());
            serve.args(["serve", "--dir", "/srv/bad/data", "--state", "/srv/bad/state", "--no-root-squash"]);
            serve.args(["--export", "/export", "--group", "/run/bad/group"]);
            serve.args(["--listen", &format!("10.99.{link}.2:{PORT}")]);
            serve
        });
        Self::mounted(&mut servers)
    }

    fn mounted(serve: &mut [Command]) -> Self {
        let servers = serve
            .iter_mut()
            .map(|serve| {
                let mut server = lab().server().spawn(serve.current_dir("/")).expect("the guest runs");
                server.wait_for_line("ready", READY_TIMEOUT).expect("the server is ready");
                server
            })
            .collect();
        let mut mount = Command::new(trunkline());
        mount.args(["mount", "-f", "10.99.1.2:/export", "/mnt/ours", "-o"]);
        mount.arg(format!("port={PORT},nconnect=4,nolock,remoteports=10.99.1.2~10.99.2.2"));
        let mut mount = lab().client().spawn(mount.current_dir("/")).expect("the guest runs");
        mount.wait_for_line("mounted", READY_TIMEOUT).expect("the client mounts");
        Self { mount, servers }
    }
}

impl Drop for OurServer {
    fn drop(&mut self) {
        // The next case starts its own; a failed case must not hang here.
        let _ = lab().client().sh("umount -l /mnt/ours; umount -f -l /mnt/kernels");
        for one in self.servers.iter_mut().chain([&mut self.mount]) {
            one.signal(Signal::KILL);
        }
        let _ = lab().server().sh("umount -l /srv/bad; rm -rf /run/bad");
        for one in self.servers.iter_mut().chain([&mut self.mount]) {
            let _ = one.wait(drop);
        }
    }
}

/// Runs `tc` with these arguments at each end of these links.
fn at_each_end(links: &[u8], what: &str) -> String {
    let ends = links.iter().flat_map(|link| ENDS.iter().map(move |inside| (link, inside)));
    ends.map(|(link, inside)| sh(&format!("{inside} tc {}", what.replace("LINK", &format!("bad{link}")))))
        .collect()
}

/// The number of dropped segments in the output of `tc -s qdisc`: `Sent 7057538 bytes 5011 pkt
/// (dropped 8, overlimits ...`.
fn dropped(said: &str) -> u64 {
    said.split("(dropped ").skip(1).filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn on_links_that_lose_and_reorder_segments_our_client_reads_what_it_wrote() {
    let _turn = alone();
    let _ours = OurServer::in_memory();
    at_each_end(&[1, 2], &format!("qdisc add dev LINK root {BAD}"));
    sh("fio --name=lossy --directory=/mnt/ours --rw=randrw --bs=64k --size=4m --direct=1 --ioengine=libaio \
        --iodepth=8 --verify=crc32c --verify_fatal=1 --verify_backlog=16 --randseed=7");
    let said = at_each_end(&[1, 2], "-s qdisc show dev LINK");
    at_each_end(&[1, 2], "qdisc del dev LINK root");
    assert!(dropped(&said) > 0, "{said}");
}

/// A fault of the first link, of the server behind it, or of all links, for three seconds.
struct Fault {
    name: &'static str,
    strike: &'static str,
    mend: &'static str,
}

const FAULTS: [Fault; 8] = [
    Fault {
        name: "packets dropped silently",
        strike: "tc qdisc add dev bad1 root netem loss 100%; ip netns exec far tc qdisc add dev bad1 root netem loss 100%",
        mend: "tc qdisc del dev bad1 root; ip netns exec far tc qdisc del dev bad1 root",
    },
    Fault { name: "link down", strike: "ip -n far link set bad1 down", mend: "ip -n far link set bad1 up" },
    Fault {
        name: "connections reset",
        strike: "ip netns exec far ss --kill --tcp src 10.99.1.2 | grep -q 10.99.1.2",
        mend: ":",
    },
    Fault {
        name: "server killed and started again",
        strike: "touch /run/bad/held; kill -KILL $(cat /run/bad/1.pid)",
        mend: "rm /run/bad/held",
    },
    Fault {
        name: "server frozen and thawed",
        strike: "kill -STOP $(cat /run/bad/1.pid)",
        mend: "kill -CONT $(cat /run/bad/1.pid)",
    },
    Fault {
        name: "link slowed to 10 Mbit/s",
        strike: "tc qdisc add dev bad1 root netem rate 10mbit; ip netns exec far tc qdisc add dev bad1 root netem rate 10mbit",
        mend: "tc qdisc del dev bad1 root; ip netns exec far tc qdisc del dev bad1 root",
    },
    Fault {
        name: "link down for half of each second",
        strike: "(for turn in 1 2 3; do
                    ip -n far link set bad1 down; sleep 0.5; ip -n far link set bad1 up; sleep 0.5
                  done) &
                 flaps=$!",
        mend: "wait $flaps",
    },
    Fault {
        name: "packets of all links dropped silently",
        strike: "for n in 1 2; do
                   tc qdisc add dev bad$n root netem loss 100%; ip netns exec far tc qdisc add dev bad$n root netem loss 100%
                 done",
        mend: "for n in 1 2; do tc qdisc del dev bad$n root; ip netns exec far tc qdisc del dev bad$n root; done",
    },
];

/// The longest wait of a call in milliseconds, of two programs that read and write during a fault.
fn gap_ms(directory: &str, fault: &Fault) -> f64 {
    let Fault { strike, mend, .. } = fault;
    // The fault occurs once the load has begun.
    sh(&format!(
        "fio --name=gap --directory={directory} --numjobs=2 --rw=write --bs=16k --size=4m --end_fsync=1
         seen=$(cat /sys/class/net/bad1/statistics/tx_packets)
         fio --name=gap --directory={directory} --numjobs=2 --group_reporting --rw=randrw --bs=16k --size=4m --direct=1 \
           --ioengine=psync --time_based --runtime=10 --randseed=7 --output-format=json --output=/tmp/gap.json &
         load=$!
         until [ $(cat /sys/class/net/bad1/statistics/tx_packets) -gt $((seen + 200)) ]; do
           kill -0 $load; sleep 0.1
         done
         {strike}
         sleep 3
         {mend}
         wait $load"
    ));
    let record: Value = serde_json::from_str(&sh("cat /tmp/gap.json")).expect("fio writes JSON");
    let longest =
        |way: &str| record["jobs"][0][way]["clat_ns"]["max"].as_f64().expect("fio reports the longest call");
    longest("read").max(longest("write")) / 1e6
}

/// Neither client sees an error. How long each waits is printed, and not asserted on. The suite
/// `vm-faults` runs this test.
#[test]
fn no_call_fails_when_faults_occur_under_our_client_and_under_the_kernels() {
    let _turn = alone();
    let _ours = OurServer::group();
    sh(&format!(
        "mount -t nfs -o vers=3,proto=tcp,port={PORT},mountport={PORT},mountproto=tcp,nolock,nconnect=4 \
         10.99.1.2:/export /mnt/kernels"
    ));
    println!(
        "the longest wait of a call in ms, emulated; a fault of the one address that the kernel's client uses, and the first of \
         the two that ours does (at last of both), for 3 s\n"
    );
    println!("| fault | the kernel's client | ours |\n|---|---|---|");
    for fault in &FAULTS {
        let [kernels, ours] = ["/mnt/kernels", "/mnt/ours"].map(|directory| gap_ms(directory, fault));
        println!("| {} | {kernels:.0} | {ours:.0} |", fault.name);
    }
}
