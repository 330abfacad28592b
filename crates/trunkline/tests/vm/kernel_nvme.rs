//! Tests the Linux kernel's NVMe/TCP host on our target: discovery, multipath over two ports, data
//! of three sizes, TRIM, digests, that nothing is left after a disconnect, paths that fail, and
//! volumes that go to the other node.

use crate::kernel_client::started;
use crate::{alone, lab, sh};
use lab::vm::Running;
use rustix::process::Signal;

pub(super) const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:vm";
pub(super) const HOST: &str =
    "--hostnqn nqn.2026-11.org.trunkline:guest --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000001";
pub(super) const PORTS: [u16; 2] = [12420, 12421];

/// A target with a volume of memory and one on a block device, until dropped.
pub(super) struct Served {
    server: Option<Running>,
}

impl Served {
    pub(super) fn new() -> Self {
        sh("modprobe nvme-tcp; modprobe brd rd_nr=1 rd_size=65536
            dd if=/dev/zero of=/dev/ram0 bs=1M count=64 2>/dev/null");
        let listen = PORTS.map(|port| format!("10.77.1.2:{port}"));
        let arguments = [
            "block",
            "serve",
            "--volume",
            "mem:64MiB",
            "--volume",
            "/dev/ram0",
            "--listen",
            &listen[0],
            "--listen",
            &listen[1],
            "--state",
            "/run/trunkline-block",
            "--nqn",
            SUBSYSTEM,
            "--allow",
            "nqn.2026-11.org.trunkline:guest",
        ];
        Self { server: Some(started(&arguments.map(str::to_owned))) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Before the target ends, or the kernel tries for ten minutes to connect again.
        let _ = lab().client().sh(&format!("nvme disconnect -n {SUBSYSTEM}"));
        drop(self.server.take());
    }
}

/// The shell function `device N`: where the kernel has namespace N. The number in its name is that
/// of the order in which the kernel has found them, and Linux 6.12 looks for several at a time.
pub(super) fn device() -> String {
    format!(
        "subsystem() {{ grep -lx {SUBSYSTEM} /sys/class/nvme-subsystem/*/subsysnqn | xargs dirname; }}
         device() {{ for d in /sys/block/nvme$(basename $(subsystem) | tr -dc 0-9)n*; do
             [ \"$(cat $d/nsid 2>/dev/null)\" = $1 ] && echo /dev/$(basename $d) && return
         done; echo /dev/none; }}
         settled() {{ for try in $(seq 600); do [ -b $(device 1) ] && [ -b $(device 2) ] && break; sleep 0.1; done; }}
         "
    )
}

/// fio's options to verify what it writes by the place of each block and a number of this load. By
/// checksums alone, blocks that an earlier load of the same disk has left pass too.
pub(super) fn verified(load: usize) -> String {
    format!(
        "--verify=pattern --verify_pattern=%o0x{load:08x} --do_verify=1 --verify_fatal=1 --randseed={load}"
    )
}

/// Random writes with each size of blocks, and each block verified.
pub(super) fn fio_finds_what_it_wrote(namespace: u32) {
    for (block, offset, size) in [("4k", "0", "2m"), ("64k", "8m", "8m"), ("1m", "24m", "16m")] {
        let said = sh(&format!(
            "{}
             fio --name=w --filename=$(device {namespace}) --rw=randwrite --bs={block} --offset={offset} \
                 --size={size} --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 \
                 --verify_fatal=1 --randseed=7 > /tmp/fio.out 2>&1 < /dev/null & pid=$!
             # A thread that waits for the kernel's host cannot be ended: it must not be waited for.
             for try in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.2; done
             if kill -0 $pid 2>/dev/null; then echo STALLED; dmesg | tail -60; exit; fi
             wait $pid || {{ cat /tmp/fio.out; echo FAILED; }}",
            device()
        ));
        assert!(!said.contains("STALLED") && !said.contains("FAILED"), "blocks of {block}: {said}");
    }
}

/// TRIM and Write Zeroes change what they name, and a disconnect from both paths leaves no disk.
pub(super) fn trims_zeroes_and_disconnects() {
    sh(&format!(
        "{}d=$(device 1)
         head -c 1048576 /dev/urandom > /tmp/nvme-data
         dd if=/tmp/nvme-data of=$d bs=64k seek=32 oflag=direct conv=fsync 2>/dev/null
         blkdiscard -o 2228224 -l 262144 $d
         dd if=$d bs=64k skip=32 count=16 iflag=direct of=/tmp/nvme-read 2>/dev/null
         cmp -n 131072 /tmp/nvme-data /tmp/nvme-read
         cmp -n 262144 -i 131072:0 /tmp/nvme-read /dev/zero
         cmp -i 393216 /tmp/nvme-data /tmp/nvme-read
         blkdiscard -z -o 2097152 -l 65536 $d
         dd if=$d bs=64k skip=32 count=1 iflag=direct of=/tmp/nvme-read 2>/dev/null
         cmp -n 65536 /tmp/nvme-read /dev/zero
         nvme disconnect -n {SUBSYSTEM} | grep 'disconnected 2 '
         [ ! -e $d ]",
        device()
    ));
}

#[test]
fn the_kernel_reads_what_it_wrote_over_two_paths_and_leaves_nothing() {
    let _turn = alone();
    let served = Served::new();
    let found = sh(&format!("nvme discover -t tcp -a 10.77.1.2 -s {} {HOST}", PORTS[0]));
    assert_eq!(found.matches(SUBSYSTEM).count(), 2, "{found}");
    assert!(PORTS.iter().all(|port| found.contains(&port.to_string())), "{found}");
    sh(&format!(
        "nvme connect-all -t tcp -a 10.77.1.2 -s {} {HOST}
         {}settled
         live=$(grep -lx live $(subsystem)/nvme*/state | wc -l); [ $live = 2 ] || {{ nvme list-subsys; exit 1; }}
         is() {{ [ \"$2\" = \"$3\" ] || {{ echo \"$1: $2\"; exit 1; }}; }}
         is size $(blockdev --getsize64 $(device 1)) 67108864; is size $(blockdev --getsize64 $(device 2)) 67108864
         is block $(blockdev --getss $(device 1)) 4096
         for nsid in 1 2; do
             states=$(cat $(subsystem)/nvme*/nvme*c*n$nsid/ana_state | sort | tr '\\n' ' ')
             is \"volume $nsid\" \"$states\" 'non-optimized optimized '
         done
         nvme id-ctrl $(device 1) > /tmp/id-ctrl; grep '^mn .*Trunkline' /tmp/id-ctrl || {{ cat /tmp/id-ctrl; exit 1; }}",
        PORTS[0],
        device()
    ));
    fio_finds_what_it_wrote(1);
    fio_finds_what_it_wrote(2);
    trims_zeroes_and_disconnects();
    let left = format!(
        "for try in $(seq 300); do [ $(ss -Htn state established 'sport = :{} or sport = :{}' | wc -l) = 0 ] && exit 0
         sleep 0.1; done; ss -tn; exit 1",
        PORTS[0], PORTS[1]
    );
    lab().server().sh(&left).expect("no connection is left");
    drop(served);
}

#[test]
fn the_kernel_uses_digests_and_a_host_that_is_not_allowed_is_refused() {
    let _turn = alone();
    let _served = Served::new();
    let connect = format!("nvme connect -t tcp -a 10.77.1.2 -s {} -n {SUBSYSTEM}", PORTS[1]);
    sh(&format!(
        "fails {connect} --hostnqn nqn.2026-11.org.trunkline:other --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000002
         {connect} {HOST} -g -G -i 2
         {}settled",
        device()
    ));
    fio_finds_what_it_wrote(1);
    sh(&format!("nvme disconnect -n {SUBSYSTEM} | grep 'disconnected 1 '"));
}

/// A path that is silent, and a controller that is reset, each while verified writes run: they go
/// on over the other path, and both paths serve again.
#[test]
fn the_kernels_host_loses_nothing_when_a_path_is_cut_or_a_controller_is_reset() {
    let _turn = alone();
    let _served = Served::new();
    let paths = PORTS.map(|port| {
        format!(
            "nvme connect -t tcp -a 10.77.1.2 -s {port} -n {SUBSYSTEM} {HOST} \
                 --keep-alive-tmo=2 --reconnect-delay=1\n"
        )
    });
    let prepare = format!(
        "{}{}settled; modprobe nf_tables
         live() {{ for try in $(seq 300); do [ $(grep -lx live $(subsystem)/nvme*/state | wc -l) = 2 ] && return; sleep 0.1; done; nvme list-subsys; return 1; }}
         live",
        paths.concat(),
        device()
    );
    let cut = format!(
        "nft 'add table ip cut; add chain ip cut in {{ type filter hook input priority 0; }}
              add rule ip cut in tcp dport {port} drop; add rule ip cut in tcp sport {port} drop'",
        port = PORTS[0]
    );
    let reset = "for c in $(subsystem)/nvme*/reset_controller; do echo 1 > $c; live; sleep 0.5; done";
    let strikes = [(cut.as_str(), "nft delete table ip cut"), (reset, "true")];
    for (load, (strike, mend)) in (1..).zip(strikes) {
        let verified = verified(load);
        let said = sh(&format!(
            "{prepare}
             fio --name=w --filename=$(device 1) --rw=randwrite --bs=64k --size=16m --rate_iops=40 \
                 --direct=1 --ioengine=libaio --iodepth=8 {verified} > /tmp/fio.out 2>&1 < /dev/null & pid=$!
             sleep 1; {strike}
             for try in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.2; done
             {mend}
             if kill -0 $pid 2>/dev/null; then echo STALLED; dmesg | tail -60; exit; fi
             wait $pid || {{ cat /tmp/fio.out; echo FAILED; }}
             grep -E ' clat .*max' /tmp/fio.out
             live; nvme disconnect -n {SUBSYSTEM} >&2"
        ));
        assert!(!said.contains("STALLED") && !said.contains("FAILED"), "{strike}: {said}");
        println!("{said}");
    }
}

/// The configuration of a volume that this node owns.
fn write_owner(owner: &str) {
    let [a, b] = PORTS;
    let text = format!(
        "nqn = \"{SUBSYSTEM}\"\nlisten = [\"10.77.1.2:{a}\", \"10.77.1.2:{b}\"]\nallow = [\"any\"]\n\
         state = \"/run/trunkline-moves\"\n[[volume]]\nsource = \"mem:64MiB\"\nowner = \"{owner}\"\n"
    );
    lab().server().sh(&format!("cat > /run/moves.toml << 'END'\n{text}END\n")).expect("a file");
}

/// A volume goes from node to node while verified writes run: the kernel learns which path is the
/// best one, and loses nothing.
#[test]
fn the_kernels_host_follows_a_volume_to_the_other_node() {
    let _turn = alone();
    sh("modprobe nvme-tcp");
    write_owner("A");
    let arguments = ["block", "serve", "-c", "/run/moves.toml"].map(str::to_owned);
    let served = Served { server: Some(started(&arguments)) };
    let paths = PORTS
        .map(|port| format!("nvme connect -t tcp -a 10.77.1.2 -s {port} -n {SUBSYSTEM} {HOST} >&2\n"))
        .concat();
    let best = format!(
        "{}best() {{ for c in $(subsystem)/nvme*; do [ -e $c/address ] || continue
             [ \"$(cat $c/nvme*c*n1/ana_state)\" = optimized ] && grep -o 'trsvcid=[0-9]*' $c/address; done; true; }}
         ",
        device()
    );
    let is_best = |port: u16| {
        sh(&format!(
            "{best}for try in $(seq 300); do [ \"$(best)\" = trsvcid={port} ] && exit; sleep 0.1; done
             best; nvme list-subsys; exit 1"
        ));
    };
    sh(&format!(
        "{}for try in $(seq 600); do [ -b $(device 1) ] && exit; sleep 0.1; done",
        paths + &device()
    ));
    is_best(PORTS[0]);
    let (mut moves, mut said) = (0, String::new());
    std::thread::scope(|scope| {
        let fio = scope.spawn(|| {
            sh(&format!(
                "{}fio --name=w --filename=$(device 1) --rw=randwrite --bs=64k --size=48m --rate_iops=60 \
                     --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 \
                     --randseed=7 > /tmp/fio.out 2>&1 < /dev/null & pid=$!
                 for try in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.2; done
                 if kill -0 $pid 2>/dev/null; then echo STALLED; dmesg | tail -60; exit; fi
                 wait $pid || {{ cat /tmp/fio.out; echo FAILED; }}",
                device()
            ))
        });
        while !fio.is_finished() {
            moves += 1;
            write_owner(if moves % 2 == 1 { "B" } else { "A" });
            served.server.iter().for_each(|server| server.signal(Signal::HUP));
            is_best(PORTS[moves % 2]);
        }
        said = fio.join().expect("fio");
    });
    assert!(!said.contains("STALLED") && !said.contains("FAILED"), "{said}");
    assert!(moves >= 4, "it moved {moves} times");
    println!("{moves} moves");
}

/// Two hosts in one guest, each with a block device of its own, which the kernel makes without its
/// multipath only. A target with a volume on a block device.
struct Cluster {
    server: Option<Running>,
}

impl Cluster {
    fn new() -> Self {
        sh("modprobe -r nvme-tcp nvme-fabrics nvme-core
            modprobe nvme-core multipath=N; modprobe nvme-tcp; modprobe brd rd_nr=1 rd_size=65536
            rm -rf /run/trunkline-reserved; dd if=/dev/zero of=/dev/ram0 bs=1M count=64 2>/dev/null");
        let mut cluster = Self { server: None };
        cluster.start();
        cluster
    }

    fn start(&mut self) {
        let [one, other] = PORTS.map(|port| format!("10.77.1.2:{port}"));
        let listen = ["--listen", &one, "--listen", &other];
        let common = [&["block", "serve", "--volume", "/dev/ram0", "--nqn", SUBSYSTEM][..], &listen].concat();
        let arguments = [&common[..], &["--state", "/run/trunkline-reserved", "--allow", "any"]].concat();
        self.server = Some(started(&arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = lab().client().sh(&format!("nvme disconnect -n {SUBSYSTEM}"));
        drop(self.server.take());
        let _ = lab().client().sh("modprobe -r nvme-tcp nvme-fabrics nvme-core");
    }
}

/// What a cluster does with a member that is to write no more, and that it holds when the target
/// was killed and comes back.
#[test]
fn reservations_of_the_kernels_hosts_exclude_others_and_survive_a_restart() {
    let _turn = alone();
    let mut cluster = Cluster::new();
    let host = "nqn.2026-11.org.trunkline:member";
    let functions = format!(
        "controller() {{ basename $(dirname $(grep -lx {host}-$1 /sys/class/nvme/nvme*/hostnqn)); }}
         disk() {{ echo /dev/$(controller $1)n1; }}
         settled() {{ for h in a b; do for try in $(seq 600); do
             [ \"$(cat /sys/class/nvme/$(controller $h)/state)\" = live ] && [ -b $(disk $h) ] && break; sleep 0.1
         done; done; [ -b $(disk a) ]; [ -b $(disk b) ]; }}
         writes() {{ dd if=/dev/urandom of=$(disk $1) bs=4k count=4 oflag=direct 2>/tmp/dd.out || {{ cat /tmp/dd.out; return 1; }}; }}
         conflicts() {{ fails writes $1; grep -q 'Invalid exchange' /tmp/dd.out; }}
         reads() {{ dd if=$(disk $1) of=/dev/null bs=4k count=4 iflag=direct 2>/dev/null; }}
         report() {{ nvme resv-report $(disk $1) --namespace-id=1 --eds; }}
         "
    );
    // Each on an address of its own: nvme-cli takes two hosts at one for the same.
    let connect = [("a", PORTS[0]), ("b", PORTS[1])].map(|(name, port)| {
        format!(
            "nvme connect -t tcp -a 10.77.1.2 -s {port} -n {SUBSYSTEM} --hostnqn {host}-{name} \
             --hostid 5f2c1a0e-7d1c-4c5e-9a57-0000000{port} --reconnect-delay=1\n"
        )
    });
    let said = sh(&format!(
        "{functions}{}settled
         nvme id-ns $(disk a) | grep -i 'rescap *: 0xff'
         nvme resv-register $(disk a) --namespace-id=1 --nrkey=0xa --rrega=0 --cptpl=3
         nvme resv-register $(disk b) --namespace-id=1 --nrkey=0xb --rrega=0 --cptpl=3
         writes b
         nvme resv-acquire $(disk a) --namespace-id=1 --crkey=0xa --rtype=1 --racqa=0
         writes a; reads b; conflicts b
         fails nvme resv-acquire $(disk b) --namespace-id=1 --crkey=0xb --rtype=1 --racqa=0
         nvme resv-acquire $(disk b) --namespace-id=1 --crkey=0xb --prkey=0xa --rtype=1 --racqa=2
         writes b; reads a; conflicts a
         report b",
        connect.concat()
    ));
    assert!(said.contains("rtype") && said.contains("ptpls"), "{said}");
    drop(cluster.server.take());
    cluster.start();
    let said = sh(&format!(
        "{functions}settled
         writes b; conflicts a
         report a | tee /tmp/report
         grep -E 'rtype *: 1' /tmp/report; grep -E 'regctl *: 1' /tmp/report; grep -E 'ptpls *: 1' /tmp/report
         nvme resv-release $(disk b) --namespace-id=1 --crkey=0xb --rtype=1 --rrela=0
         writes a"
    ));
    println!("{said}");
}
