//! Tests the Linux kernel's client on a group of processes that are killed one after another and
//! never started again: it knows one address, and goes on at the process that listens there.

use crate::kernel_client::started;
use crate::{alone, lab, sh};
use lab::vm::Running;
use rustix::process::Signal;
use std::process::Command;

/// The longest wait of a program that is accepted. Linux tries again 3 seconds after it was
/// refused, and an emulated machine is slow.
const WAIT_S_MAX: f64 = 60.0;
const NODES: u16 = 4;

/// A group over one directory in memory of the guest, and the mount of its first process.
struct Mounted {
    name: &'static str,
    /// The ports of the processes that live.
    ports: Vec<u16>,
    processes: Vec<Running>,
}

impl Mounted {
    /// `{port}` in the options is the first process's port, `{rdma}` that over RDMA.
    fn new(name: &'static str, port: u16, options: &str) -> Self {
        lab()
            .server()
            .sh(&format!(
                "mkdir -p /srv/{name}; mount -t tmpfs none /srv/{name}; cd /srv/{name}; mkdir data state group
                 chmod 1777 data; chmod 700 state group"
            ))
            .expect("the guest runs");
        let ports: Vec<u16> = (port..port + NODES).collect();
        let start = |port: &u16| {
            let at = |what: &str| format!("/srv/{name}/{what}");
            let over_rdma = format!("rdma:10.77.1.2:{}", port + 1000);
            let listen = format!("10.77.1.2:{port}");
            let (data, state, group) = (at("data"), at("state"), at("group"));
            let words = ["serve", "--dir", &data, "--state", &state, "--group", &group];
            let more = ["--nfs-versions", "3,4.1,4.2", "--listen", &listen, "--listen", &over_rdma];
            started(&words.into_iter().chain(more).map(str::to_owned).collect::<Vec<_>>())
        };
        let processes = ports.iter().map(start).collect();
        let (tcp, over_rdma) = (port.to_string(), (port + 1000).to_string());
        let options = options.replace("{port}", &tcp).replace("{rdma}", &over_rdma);
        sh(&format!("mkdir -p /mnt/{name}; mount -t nfs -o {options} 10.77.1.2:/export /mnt/{name}"));
        Self { name, ports, processes }
    }

    /// Kills the process that has the lowest port of those that live, for good.
    fn kill_next(&mut self) {
        let process = self.processes.remove(0);
        self.ports.remove(0);
        process.signal(Signal::KILL);
        { process }.wait(drop).expect("the guest runs");
    }

    /// A program that writes, renames and removes until it is told to end, and notes when it has
    /// done each round; and fio beside it.
    fn load(&self) -> Running {
        let name = self.name;
        sh(&format!(
            "cd /mnt/{name}; rm -f /tmp/{name}.end /tmp/{name}.times
             (set -e; i=0
              while [ ! -e /tmp/{name}.end ]; do
                printf '%08d\\n' $i | dd of=log bs=9 seek=$i conv=notrunc,fsync 2>/dev/null
                mkdir made; mv made moved; rmdir moved
                i=$((i + 1)); cut -d' ' -f1 /proc/uptime >> /tmp/{name}.times
              done; touch /tmp/{name}.done) </dev/null >/tmp/{name}.said 2>&1 &"
        ));
        let mut fio = Command::new("fio");
        fio.current_dir("/").args(["--name=fio", "--rw=randwrite", "--bs=16k", "--size=8m", "--direct=1"]);
        fio.args(["--ioengine=libaio", "--iodepth=4", "--rate_iops=,50", "--randseed=7"]);
        fio.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1"]);
        fio.arg(format!("--directory=/mnt/{name}"));
        lab().client().spawn(&fio).expect("the guest runs")
    }

    /// Waits until the program has done so many more rounds.
    fn goes_on(&self, rounds: u32) {
        let name = self.name;
        sh(&format!(
            "rounds() {{ cat /tmp/{name}.times 2>/dev/null | wc -l; }}
             from=$(rounds)
             for try in $(seq 1200); do [ $(($(rounds) - from)) -ge {rounds} ] && exit 0; sleep 0.1; done
             echo stuck after $from; cat /tmp/{name}.said; exit 1"
        ));
    }

    /// Ends the load. Nothing of it may be lost or done twice; returns the longest wait in seconds.
    fn end(&self, fio: Running) -> f64 {
        let name = self.name;
        let fio = fio.output().expect("the guest runs");
        let said = String::from_utf8_lossy(&fio.stdout);
        assert!(fio.status.success(), "{said}\n{}", String::from_utf8_lossy(&fio.stderr));
        let wait = sh(&format!(
            "touch /tmp/{name}.end
             for try in $(seq 600); do [ -e /tmp/{name}.done ] && break; sleep 0.1; done
             cat /tmp/{name}.said >&2; [ -e /tmp/{name}.done ]
             seq -f %08g 0 $(($(wc -l < /tmp/{name}.times) - 1)) > /tmp/{name}.expected
             cmp /tmp/{name}.expected /srv/{name}/data/log
             echo 3 > /proc/sys/vm/drop_caches; cmp /tmp/{name}.expected /mnt/{name}/log
             [ ! -e /srv/{name}/data/made ]; [ ! -e /srv/{name}/data/moved ]
             awk 'NR > 1 && $1 - last > most {{ most = $1 - last }} {{ last = $1 }} END {{ print most }}' /tmp/{name}.times"
        ));
        wait.trim().parse().unwrap_or_else(|_| panic!("{wait}"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Before the servers end; a failed test must not hang here.
        let name = self.name;
        let script = format!(
            "touch /tmp/{name}.end; umount -f -l /mnt/{name}; umount -f -l /mnt/{name}-other; umount -l /srv/{name}"
        );
        let _ = lab().client().sh(&script);
    }
}

/// Kills all processes but one under load, one after another.
#[track_caller]
fn goes_on_when_processes_are_killed_for_good(mounted: &mut Mounted, held: &str) {
    let fio = mounted.load();
    mounted.goes_on(10);
    while mounted.processes.len() > 1 {
        mounted.kill_next();
        mounted.goes_on(10);
        sh(held);
    }
    let wait = mounted.end(fio);
    println!("{}: the longest wait was {wait:.2} s", mounted.name);
    assert!(wait <= WAIT_S_MAX, "{wait} s");
}

/// The kernel is two clients here: the other one mounts the last process by another minor version,
/// and does not get the lock.
#[test]
fn version_4_2_goes_on_with_its_locks_when_processes_are_killed_for_good() {
    let _turn = alone();
    let name = "group-v42";
    let mut mounted = Mounted::new(name, 12130, "vers=4.2,port={port}");
    let last = mounted.ports[usize::from(NODES) - 1];
    sh(&format!(
        "mkdir -p /mnt/{name}-other; mount -t nfs -o vers=4.1,port={last} 10.77.1.2:/export /mnt/{name}-other
         cd /mnt/{name}; rm -f /tmp/{name}.release; echo before > held
         (flock -x 8; while [ ! -e /tmp/{name}.release ]; do sleep 0.2; done; echo after >&8) 8>>held \
             </dev/null >/dev/null 2>&1 &
         for try in $(seq 100); do flock -n /mnt/{name}-other/held true || break; sleep 0.2; done"
    ));
    let held = format!("fails flock -n /mnt/{name}-other/held true");
    goes_on_when_processes_are_killed_for_good(&mut mounted, &held);
    sh(&format!(
        "{held}; touch /tmp/{name}.release; flock -w 60 /mnt/{name}-other/held true
         [ \"$(cat /mnt/{name}-other/held)\" = \"$(echo before; echo after)\" ]"
    ));
}

#[test]
fn version_3_goes_on_when_processes_are_killed_for_good() {
    let _turn = alone();
    let options = "vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp,nolock";
    goes_on_when_processes_are_killed_for_good(&mut Mounted::new("group-v3", 12135, options), "true");
}

#[test]
fn version_3_over_rdma_goes_on_when_processes_are_killed_for_good() {
    let _turn = alone();
    let options = "vers=3,proto=rdma,port={rdma},mountport={port},mountproto=tcp,nolock";
    goes_on_when_processes_are_killed_for_good(&mut Mounted::new("group-rdma", 12140, options), "true");
}
