//! The Linux kernel's NVMe/TCP target (nvmet) behind two links, and what its tests do in the guest.
//!
//! Its ports listen in the network namespace at the far end of the links of `bad_links`. The
//! namespace is a dm device on memory, which can be suspended. Our target at the same place, on the
//! same device, is in `our_target`.

use std::process::Command;
use std::time::Duration;
use testkit::Deadline;

pub(super) const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:kernel";
pub(super) const HOST: &str = "nqn.2026-11.org.trunkline:guest";
pub(super) const ADDRESSES: [&str; 2] = ["10.99.1.2:4420", "10.99.2.2:4420"];
/// What the target's namespace is, from `store_made` to `store_removed`.
pub(super) const STORE: &str = "/dev/mapper/store";
/// Only a hang takes so long, also in an emulated machine.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// Shell functions: `far` runs a command at the target's end of the links; `opened N` and
/// `closed N` add the subsystem to a port and take it away, which ends the port's controllers.
/// `store_made` and `store_removed` create the device, empty, and remove it. `held` keeps what is
/// sent to the target by the first link until `delivered`; resets are lost.
const FUNCTIONS: &str = "
    nqn=nqn.2026-11.org.trunkline:kernel
    nvmet=/sys/kernel/config/nvmet
    far() { nsenter --net=/run/netns/far -- \"$@\"; }
    opened() { far ln -s $nvmet/subsystems/$nqn $nvmet/ports/$1/subsystems/$nqn; }
    closed() { rm $nvmet/ports/$1/subsystems/$nqn; }
    store_made() {
        modprobe -a dm-mod sch_plug tcp_diag; modprobe brd rd_nr=1 rd_size=65536
        dd if=/dev/zero of=/dev/ram0 bs=1M count=64 oflag=direct 2>/dev/null
        dmsetup create --noudevsync store --table '0 131072 linear /dev/ram0 0'; dmsetup mknodes
    }
    store_removed() {
        dmsetup resume store 2>/dev/null
        for try in $(seq 100); do dmsetup remove --noudevsync store && return; sleep 0.1; done
    }
    held() {
        nft add table ip held; nft add chain ip held output '{ type filter hook output priority 0 ; }'
        nft add rule ip held output oifname bad1 tcp flags rst counter drop
        tc qdisc add dev bad1 root plug limit 10000000
    }
    delivered() {
        tc qdisc change dev bad1 root plug release_indefinite
        until tc -statistics qdisc show dev bad1 | grep -q ' backlog 0b 0p '; do sleep 0.1; done
        tc qdisc del dev bad1 root; nft delete table ip held
    }
";

/// Runs a shell script in this guest, which must succeed; returns its output.
#[track_caller]
pub(super) fn run(script: &str) -> String {
    let script = format!("{FUNCTIONS}{script}");
    let output = Command::new("sh").args(["-ec", &script]).output().expect("there is a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{}\n{out}{err}", output.status);
    out.into_owned()
}

/// Runs what it can of a shell script in this guest.
pub(super) fn try_to_run(script: &str) {
    let _ = Command::new("sh").args(["-c", &format!("{FUNCTIONS}{script}")]).output();
}

/// The target, until dropped.
pub(super) struct KernelTarget;

impl KernelTarget {
    /// Starts it; the ANA state of the second address is this one.
    pub(super) fn start(second: &str) -> Self {
        run(&format!(
            "modprobe -a nvmet nvmet-tcp; store_made
             mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
             mkdir $nvmet/subsystems/$nqn; echo 1 > $nvmet/subsystems/$nqn/attr_allow_any_host
             namespace=$nvmet/subsystems/$nqn/namespaces/1; mkdir $namespace
             echo -n {STORE} > $namespace/device_path; echo 1 > $namespace/enable
             for n in 1 2; do
               port=$nvmet/ports/$n; mkdir $port
               echo ipv4 > $port/addr_adrfam; echo tcp > $port/addr_trtype
               echo 10.99.$n.2 > $port/addr_traddr; echo 4420 > $port/addr_trsvcid
             done
             echo {second} > $nvmet/ports/2/ana_groups/1/ana_state
             opened 1; opened 2"
        ));
        Self
    }
}

impl Drop for KernelTarget {
    fn drop(&mut self) {
        // Whatever a failed case has left; a panic of its own would hide the first one.
        let script = "dmsetup resume store 2>/dev/null
            for n in 1 2; do closed $n; rmdir $nvmet/ports/$n; done
            echo 0 > $nvmet/subsystems/$nqn/namespaces/1/enable
            rmdir $nvmet/subsystems/$nqn/namespaces/1 $nvmet/subsystems/$nqn
            store_removed";
        try_to_run(script);
    }
}

/// Waits until a host in this guest has as many connections to each of these addresses.
#[track_caller]
pub(super) fn wait_for_connections(count: usize, addresses: &[&str]) {
    let established = |address: &&str| {
        run(&format!("ss --tcp --numeric --no-header state established dst {address}")).lines().count()
    };
    Deadline::wait_until("connections to the target", TIMEOUT, || {
        addresses.iter().all(|address| established(address) == count).then_some(())
    });
}
