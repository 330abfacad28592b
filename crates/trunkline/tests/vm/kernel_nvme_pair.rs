//! Tests the Linux kernel's NVMe/TCP host on a pair of two processes with volumes on block devices:
//! a process that is killed under verified load, and one whose writes a device still holds.

use crate::kernel_client::started;
use crate::kernel_nvme::verified;
use crate::{alone, lab, sh, trunkline};
use lab::vm::Running;
use rustix::process::Signal;
use std::fmt::Write;

const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:pair";
const HOST: &str = "--hostnqn nqn.2026-11.org.trunkline:guest --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000001";
/// The addresses of node A and of node B.
const PORTS: [u16; 2] = [12430, 12431];
const CONFIG: &str = "/run/pair.toml";

/// Shell functions: `device N` is where the kernel has namespace N; `is_at N NODE STATE` waits
/// until the pair says so of it; `live N` waits for as many controllers.
fn functions() -> String {
    format!(
        "subsystem() {{ grep -lx {SUBSYSTEM} /sys/class/nvme-subsystem/*/subsysnqn | xargs dirname; }}
         device() {{ for d in /sys/block/nvme$(basename $(subsystem) | tr -dc 0-9)n*; do
             [ \"$(cat $d/nsid 2>/dev/null)\" = $1 ] && echo /dev/$(basename $d) && return
         done; echo /dev/none; }}
         list() {{ {program} block list 2>/dev/null; }}
         is_at() {{ for try in $(seq 600); do
             list | grep -qE \"^$1 +/dev/mapper/[a-z]+ +$2 +$3 \" && return; sleep 0.1
         done; echo \"volume $1 is not $3 at $2\"; list; return 1; }}
         live() {{ for try in $(seq 600); do
             [ $(grep -lx live $(subsystem)/nvme*/state | wc -l) = $1 ] && return; sleep 0.1
         done; nvme list-subsys; return 1; }}
         ",
        program = trunkline().display()
    )
}

/// The two processes, each with a volume on a device of its own, and a host that is connected to
/// both.
struct Pair {
    nodes: [Option<Running>; 2],
}

fn start(node: usize) -> Running {
    let name = ["A", "B"][node];
    started(&["block", "serve", "-c", CONFIG, "--node", name].map(str::to_owned))
}

impl Pair {
    fn new() -> Self {
        let [a, b] = PORTS;
        let mut text = format!(
            "nqn = \"{SUBSYSTEM}\"\nstate = \"/run/trunkline-pair\"\nallow = [\"any\"]\nlisten = [\"10.77.1.2:{a}\", \
             \"10.77.1.2:{b}\"]\n"
        );
        for (name, owner) in [("first", "A"), ("second", "B")] {
            // Writing to a string does not fail.
            let _ = write!(text, "[[volume]]\nsource = \"/dev/mapper/{name}\"\nowner = \"{owner}\"\n");
        }
        sh(&format!(
            "modprobe nvme-tcp; modprobe dm-mod; modprobe brd rd_nr=1 rd_size=65536
             dd if=/dev/zero of=/dev/ram0 bs=1M count=64 2>/dev/null
             rm -rf /run/trunkline-pair
             dmsetup remove --noudevsync first second 2>/dev/null || true
             dmsetup create --noudevsync first --table '0 65536 linear /dev/ram0 0'
             dmsetup create --noudevsync second --table '0 65536 linear /dev/ram0 65536'
             dmsetup mknodes
             cat > {CONFIG} << 'END'\n{text}END"
        ));
        let pair = Self { nodes: [0, 1].map(|node| Some(start(node))) };
        let connect = PORTS.map(|port| {
            format!(
                "nvme connect -t tcp -a 10.77.1.2 -s {port} -n {SUBSYSTEM} {HOST} --reconnect-delay=1 >&2\n"
            )
        });
        sh(&format!(
            "{}is_at 1 A serving; is_at 2 B serving
             {}live 2
             for try in $(seq 600); do [ -b $(device 1) ] && [ -b $(device 2) ] && exit; sleep 0.1; done; exit 1",
            functions(),
            connect.concat()
        ));
        pair
    }

    fn kill(&mut self, node: usize) {
        let killed = self.nodes[node].take().expect("it runs");
        killed.signal(Signal::KILL);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = lab().client().sh(&format!("nvme disconnect -n {SUBSYSTEM}; dmsetup resume first"));
        self.nodes.iter_mut().for_each(|node| drop(node.take()));
        let removed =
            "for try in $(seq 100); do dmsetup remove --noudevsync first second && exit; sleep 0.1; done";
        let _ = lab().client().sh(removed);
    }
}

#[test]
fn the_kernels_host_goes_on_when_either_process_of_a_pair_is_killed() {
    let _turn = alone();
    let mut pair = Pair::new();
    let fio = |namespace: usize, load: usize| {
        format!(
            "fio --name=w{namespace} --filename=$(device {namespace}) --rw=randwrite --bs=64k --size=8m \
                 --rate_iops=25 --direct=1 --ioengine=libaio --iodepth=4 {} \
                 > /tmp/fio.{namespace} 2>&1 < /dev/null & pid{namespace}=$!
             ",
            verified(load)
        )
    };
    for (node, survivor) in [(0, "B"), (1, "A")] {
        let load = node + 1;
        let began = sh(&format!(
            "{}{}{}sleep 0.5; echo $pid1 $pid2 > /tmp/fio.pids; kill -0 $pid1 && kill -0 $pid2",
            functions(),
            fio(1, load),
            fio(2, load + 2)
        ));
        println!("{began}");
        pair.kill(node);
        let said = sh(&format!(
            "{}is_at 1 {survivor} serving; is_at 2 {survivor} serving
             for pid in $(cat /tmp/fio.pids); do
                 for try in $(seq 900); do kill -0 $pid 2>/dev/null || break; sleep 0.2; done
                 if kill -0 $pid 2>/dev/null; then echo STALLED; dmesg | tail -60; exit; fi
             done
             for n in 1 2; do
                 grep -q 'err= 0' /tmp/fio.$n || {{ cat /tmp/fio.$n; echo FAILED; }}
                 grep -E ' clat .*max' /tmp/fio.$n
             done",
            functions()
        ));
        assert!(!said.contains("STALLED") && !said.contains("FAILED"), "{node} was killed: {said}");
        println!("{said}");
        // It comes back, and takes nothing.
        pair.nodes[node] = Some(start(node));
        sh(&format!("{}live 2; is_at 1 {survivor} serving; is_at 2 {survivor} serving", functions()));
    }
}

/// The kernel still has writes of the killed process: the other one waits until they have ended,
/// and they change nothing newer.
#[test]
fn a_volume_waits_while_a_device_holds_writes_of_a_killed_process() {
    let _turn = alone();
    let mut pair = Pair::new();
    sh(&format!(
        "{}d=$(device 1)
         for what in original newer; do head -c 65536 /dev/urandom > /tmp/$what; done
         dd if=/dev/zero of=$d bs=64k count=1 oflag=direct 2>/dev/null
         dmsetup suspend --noflush --nolockfs first
         dd if=/tmp/original of=$d bs=64k count=1 oflag=direct > /tmp/dd.out 2>&1 < /dev/null & echo $! > /tmp/dd.pid
         # It is at the device when the process waits for it.
         sleep 2; kill -0 $(cat /tmp/dd.pid)",
        functions()
    ));
    pair.kill(0);
    let said = sh(&format!(
        "{}is_at 2 B serving
         for try in $(seq 100); do list | grep -qE '^1 +/dev/mapper/first +[AB] +serving ' || break; sleep 0.1; done
         for try in $(seq 30); do
             if list | grep -qE '^1 +/dev/mapper/first +[AB] +serving '; then echo EARLY; list; break; fi
             kill -0 $(cat /tmp/dd.pid) || {{ echo EARLY; cat /tmp/dd.out; break; }}; sleep 0.1
         done
         list
         dmsetup resume first
         is_at 1 B serving
         for try in $(seq 600); do kill -0 $(cat /tmp/dd.pid) 2>/dev/null || break; sleep 0.1; done
         fails kill -0 $(cat /tmp/dd.pid)
         dd if=/tmp/newer of=$(device 1) bs=64k count=1 oflag=direct 2>/dev/null
         sleep 1
         dd if=$(device 1) of=/tmp/found bs=64k count=1 iflag=direct 2>/dev/null; cmp /tmp/newer /tmp/found
         cmp -n 65536 /tmp/newer /dev/mapper/first",
        functions()
    ));
    assert!(!said.contains("EARLY"), "{said}");
    println!("{said}");
}
