//! Tests the Linux kernel's NVMe/TCP host without its own multipath (`nvme_core.multipath=N`) and
//! with DM-Multipath above its paths, on a pair of two processes: a path that is cut, a process
//! that is killed, a volume that moves, and controllers that are reset, all under one verified
//! load. The suite `vm-multipath` runs this test in a boot of its own.

use crate::kernel_client::started;
use crate::{alone, lab, sh, trunkline};
use lab::vm::Running;
use rustix::process::Signal;
use testkit::require_program;

const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:joined";
const HOST: &str = "--hostnqn nqn.2026-11.org.trunkline:guest --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000001";
/// The addresses of node A and of node B.
const PORTS: [u16; 2] = [12470, 12471];
const CONFIG: &str = "/run/joined.toml";
/// What docs/BLOCK.md says.
const MULTIPATH_CONF: &str = "defaults {
    find_multipaths yes
    user_friendly_names yes
}
devices {
    device {
        vendor \"NVME\"
        product \"Trunkline\"
        path_grouping_policy group_by_prio
        prio ana
        failback immediate
        no_path_retry queue
    }
}
";

/// Shell functions. `paths` prints of each path its node, its priority, the state of its group,
/// and its own states for the device mapper and for multipathd. `are PATTERN` waits until they are
/// that. `goes_on` waits until the load has done more. All show what they found if it takes too
/// long.
fn functions() -> String {
    let [a, b] = PORTS;
    format!(
        r#"map() {{ dmsetup ls --target multipath | cut -f1 | grep -v '^No '; }}
        of() {{ basename $(dirname $(grep -l "trsvcid=$1" /sys/class/nvme/nvme*/address)); }}
        paths() {{ multipath -ll | awk -v a=$(of {a}) -v b=$(of {b}) '
            / policy=/ {{ prio = $0; sub(/.* prio=/, "", prio); sub(/ .*/, "", prio)
                group = $0; sub(/.* status=/, "", group) }}
            {{ for (i = 1; i < NF; i++) if ($i ~ /^nvme[0-9]+n1$/) {{ c = $i; sub(/n1$/, "", c)
                print (c == a ? "A" : c == b ? "B" : c), prio, group, $(i + 2), $(i + 3) }} }}' | sort; }}
        found() {{ (set +e; multipath -ll; nvme list-subsys; {program} block list; cat /tmp/load.out /tmp/fio.out
            dmesg | tail -60); }}
        are() {{ for try in $(seq 180); do paths > /tmp/paths
            tr '\n' ';' < /tmp/paths | grep -qE "^$1;\$" && return; sleep 0.5
        done; echo "these are not $1:"; cat /tmp/paths; found; return 1; }}
        done_() {{ awk '{{ print $1 + $5 }}' /sys/block/$(basename $(readlink -f /dev/mapper/$(map)))/stat; }}
        goes_on() {{ before=$(done_); for try in $(seq 180); do
            kill -0 $(cat /tmp/load.pid) 2>/dev/null || break
            [ $(done_) -gt $((before + 100)) ] && return; sleep 0.5
        done; echo 'the load does not go on'; found; return 1; }}
        "#,
        program = trunkline().display()
    )
}

/// The states of both paths, for `are`, while A or B owns the volume.
const OWNED_BY_A: &str = "A 50 active active ready;B 10 enabled active ready";
const OWNED_BY_B: &str = "A 10 enabled active ready;B 50 active active ready";

fn start(node: usize) -> Running {
    let name = ["A", "B"][node];
    started(&["block", "serve", "-c", CONFIG, "--node", name].map(str::to_owned))
}

/// The two processes with a volume of A, and a host with both paths joined by DM-Multipath.
struct Joined {
    nodes: [Option<Running>; 2],
}

impl Joined {
    fn new() -> Self {
        let [a, b] = PORTS;
        sh(&format!(
            "/lib/systemd/systemd-udevd --daemon; udevadm control --ping
             modprobe -r nvme-tcp nvme-fabrics nvme-core
             modprobe nvme-core multipath=N; [ $(cat /sys/module/nvme_core/parameters/multipath) = N ]
             modprobe nvme-tcp; modprobe dm-multipath; modprobe nf_tables
             modprobe brd rd_nr=1 rd_size=65536; dd if=/dev/zero of=/dev/ram0 bs=1M count=64 2>/dev/null
             rm -rf /run/trunkline-joined /run/stop; mkdir -p /etc/multipath
             cat > /etc/multipath.conf << 'END'\n{MULTIPATH_CONF}END
             cat > {CONFIG} << 'END'
nqn = \"{SUBSYSTEM}\"
state = \"/run/trunkline-joined\"
allow = [\"any\"]
listen = [\"10.77.1.2:{a}\", \"10.77.1.2:{b}\"]
[[volume]]
source = \"/dev/ram0\"
owner = \"A\"
END
             multipathd > /dev/null 2>&1 < /dev/null
             for try in $(seq 100); do multipathd show daemon | grep -q idle && exit; sleep 0.2; done; exit 1"
        ));
        let joined = Self { nodes: [0, 1].map(|node| Some(start(node))) };
        let connect = PORTS.map(|port| {
            format!(
                "nvme connect -t tcp -a 10.77.1.2 -s {port} -n {SUBSYSTEM} {HOST} \
                 --keep-alive-tmo=2 --reconnect-delay=1 --ctrl-loss-tmo=-1 >&2\n"
            )
        });
        // Which group is active is decided by the first request.
        let ready = OWNED_BY_A.replace(" active active", " [a-z]+ active");
        sh(&format!("{}{}are '{ready}'", functions(), connect.concat()));
        joined
    }

    /// Waits until the paths are that and the load has gone on.
    #[track_caller]
    fn wait_for(&self, what: &str, paths: &str) {
        let said = sh(&format!(
            "{}began=$(cut -d. -f1 /proc/uptime); are '{paths}'; goes_on
             echo \"$(($(cut -d. -f1 /proc/uptime) - began)) s\"",
            functions()
        ));
        println!("{what}: {}", said.trim());
    }

    fn own(&self, node: &str) {
        sh(&format!("{} block own 1 {node}", trunkline().display()));
    }

    fn kill(&mut self, node: usize) {
        let killed = self.nodes[node].take().expect("it runs");
        killed.signal(Signal::KILL);
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // After a failure requests may wait for ever: they fail, so that nothing holds the paths.
        let _ = lab().client().sh(&format!(
            "touch /run/stop; nft delete table ip cut
             for map in $(dmsetup ls --target multipath | cut -f1); do dmsetup message $map 0 fail_if_no_path; done
             multipath -F; nvme disconnect -n {SUBSYSTEM}"
        ));
        self.nodes.iter_mut().for_each(|node| drop(node.take()));
        let _ = lab().client().sh("multipathd shutdown; udevadm control --exit; rm -f /etc/multipath.conf
             modprobe -r nvme-tcp nvme-fabrics nvme-core");
    }
}

/// Rounds of random writes over the whole range until `/run/stop` exists. Each round writes its
/// number and its place into every block, and then reads all blocks: one that is lost, or has
/// another round's content, fails. (fio's checksums alone accept what an earlier round has
/// written.)
fn load() -> String {
    format!(
        "{}cat > /run/load.sh << 'END'
round=0
while [ ! -e /run/stop ]; do
    round=$((round + 1))
    fio --name=w --filename=/dev/mapper/$1 --rw=randwrite --bs=64k --size=16m --rate_iops=40 --direct=1 \\
        --ioengine=libaio --iodepth=4 --verify=pattern --verify_pattern=%o0x$(printf %08x $round) \\
        --do_verify=1 --verify_fatal=1 --randseed=$round > /tmp/fio.out 2>&1 < /dev/null ||
        {{ echo FAILED; exit; }}
    echo \"round $round: $(grep -E ' clat .*max' /tmp/fio.out | tr '\\n' ' ')\"
done
echo STOPPED
END
         sh /run/load.sh $(map) > /tmp/load.out 2>&1 < /dev/null & echo $! > /tmp/load.pid
         are '{OWNED_BY_A}'; goes_on",
        functions()
    )
}

/// Ends the load; its output, after at least two rounds.
fn stopped() -> String {
    sh(&format!(
        "{}touch /run/stop
         for try in $(seq 300); do kill -0 $(cat /tmp/load.pid) 2>/dev/null || break; sleep 0.5; done
         if kill -0 $(cat /tmp/load.pid) 2>/dev/null; then echo STALLED; found; exit; fi
         grep -q STOPPED /tmp/load.out || found
         cat /tmp/load.out
         round=$(grep -c '^round' /tmp/load.out); [ $round -ge 2 ]
         # The check can fail: the blocks are not those of another round.
         check() {{ fio --name=w --filename=/dev/mapper/$(map) --rw=randwrite --bs=64k --size=16m --direct=1 \
             --verify=pattern --verify_pattern=%o0x$(printf %08x $1) --verify_only --verify_fatal=1 \
             --randseed=$round > /tmp/check.out 2>&1 < /dev/null; }}
         check $round; fails check $((round - 1)) > /dev/null
         dd if=/dev/mapper/$(map) of=/tmp/seen bs=1M count=16 iflag=direct 2>/dev/null
         dd if=/dev/ram0 of=/tmp/stored bs=1M count=16 iflag=direct 2>/dev/null; cmp /tmp/seen /tmp/stored",
        functions()
    ))
}

#[test]
fn under_dm_multipath_a_cut_path_a_killed_node_a_move_and_a_reset_lose_nothing() {
    let _turn = alone();
    for program in ["multipath", "multipathd", "udevadm"] {
        let _ = require_program(program);
    }
    let mut joined = Joined::new();
    sh(&load());
    sh(&format!(
        "nft 'add table ip cut; add chain ip cut in {{ type filter hook input priority 0; }}
              add rule ip cut in tcp dport {port} drop; add rule ip cut in tcp sport {port} drop'",
        port = PORTS[0]
    ));
    joined.wait_for("A's path is cut", "A [0-9]+ enabled failed faulty;B 10 active active ready");
    sh("nft delete table ip cut");
    joined.wait_for("it is back", OWNED_BY_A);
    joined.kill(0);
    // The failed path may stay in the group of its last priority, which is that of B's path now.
    joined.wait_for("A is killed", "A [0-9]+ (enabled|active) failed faulty;B 50 active active ready");
    joined.nodes[0] = Some(start(0));
    joined.wait_for("A is back", OWNED_BY_B);
    for (node, paths) in [("A", OWNED_BY_A), ("B", OWNED_BY_B), ("A", OWNED_BY_A)] {
        joined.own(node);
        joined.wait_for(&format!("{node} takes the volume"), paths);
    }
    for port in PORTS {
        sh(&format!("{}echo 1 > /sys/class/nvme/$(of {port})/reset_controller", functions()));
        joined.wait_for(&format!("the controller at {port} is reset"), OWNED_BY_A);
    }
    let said = stopped();
    assert!(said.contains("STOPPED") && !said.contains("STALLED") && !said.contains("FAILED"), "{said}");
    println!("{said}");
    leaves_nothing();
}

/// The map is flushed and both controllers go: no device and no connection stays.
fn leaves_nothing() {
    let [a, b] = PORTS;
    sh(&format!(
        "{}udevadm settle; multipath -f $(map); nvme disconnect -n {SUBSYSTEM} | grep 'disconnected 2 '
         left() {{ ls /dev/nvme[0-9]* 2>/dev/null; map; multipath -ll; ss -Htn state established '( sport = :{a} or sport = :{b} )'; }}
         for try in $(seq 150); do [ -z \"$(left)\" ] && exit; sleep 0.2; done; left; exit 1",
        functions()
    ));
}
