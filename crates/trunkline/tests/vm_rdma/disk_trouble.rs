//! Tests volumes over two links with Soft-RoCE, one of which is lost under load in every way a link
//! is lost: by our host and by the Linux kernel's. And writes whose data were on their way to the
//! target when their host went to the other link.

use crate::disk_driver::{ADDRESSES, SUBSYSTEM, run_commands, start};
use crate::driver::Driver;
use crate::guest::{again, is_in_guest};
use crate::link_faults::{Filter, Pulled, READ_MIDDLE_AND_LAST, WRITE_MIDDLE_AND_LAST};
use crate::pair::{GuestServer, TIMEOUT, alone, nothing_is_left, pair, sh};
use crate::rdma_host::{BLOCK, Host, blocks, host_config};
use lab::vm::Guest;
use nvme::end_controller::EndController;
use nvme::host::{CommandData, HostConfig};
use nvme::{IoOpcode, Nqn, Status};
use std::time::Duration;
use testkit::Deadline;

/// A target with a volume, whose node A has the link that is disturbed.
fn target() -> GuestServer {
    let server = pair().server();
    sh(server, "rm -rf /run/links");
    let volume = ["block", "serve", "--volume", "mem:64MiB", "--nqn", SUBSYSTEM, "--state", "/run/links"];
    let access = ["--listen", ADDRESSES[0], "--listen", ADDRESSES[1], "--allow", "any"];
    GuestServer::on(server, &[&volume[..], &access].concat())
}

/// Data of WRITEs stop on their way to the target, then data of READs on their way to the host,
/// then everything; and then the carrier is lost.
#[test]
fn our_host_loses_nothing_however_one_of_two_links_is_lost() {
    if is_in_guest() {
        return run_commands();
    }
    let _turn = alone();
    let target = target();
    let mut host = start("disk_trouble::our_host_loses_nothing_however_one_of_two_links_is_lost");
    let torn: [(&'static Guest, [u8; 2]); 2] =
        [(pair().server(), READ_MIDDLE_AND_LAST), (pair().client(), WRITE_MIDDLE_AND_LAST)];
    for (guest, operations) in torn {
        let filter = Filter::on_operations_by_the_link(guest, operations);
        filter.wait_until_met();
        host.send_command("goes on");
        drop(filter);
        host.send_command("regains");
        host.send_command("goes on");
    }
    let filters = [pair().client(), pair().server()].map(Filter::on_the_link);
    filters.iter().for_each(Filter::wait_until_met);
    host.send_command("goes on");
    drop(filters);
    host.send_command("regains");
    let pulled = Pulled::out();
    host.send_command("goes on");
    drop(pulled);
    host.send_command("regains");
    host.send_command("goes on");
    host.end();
    drop(target);
    nothing_is_left();
}

/// Rounds of random writes with the kernel's host until `/run/stop` exists. Each round writes its
/// number and its place into every block, and then reads all blocks.
const LOAD: &str = "cat > /run/load.sh << 'END'
round=0
while [ ! -e /run/stop ]; do
    round=$((round + 1))
    fio --name=w --filename=$1 --rw=randwrite --bs=64k --size=8m --rate_iops=40 --direct=1 \\
        --ioengine=libaio --iodepth=4 --verify=pattern --verify_pattern=%o0x$(printf %08x $round) \\
        --do_verify=1 --verify_fatal=1 --randseed=$round > /run/fio.out 2>&1 < /dev/null ||
        { echo FAILED; cat /run/fio.out; exit; }
    echo \"round $round: $(grep -E ' clat .*max' /run/fio.out | tr '\\n' ' ')\"
done
echo STOPPED
END
rm -f /run/stop; sh /run/load.sh $(device) > /run/load.out 2>&1 < /dev/null & echo $! > /run/load.pid
goes_on";

/// Shell functions: `live` waits until both controllers are; `goes_on` waits until the load has
/// done more.
fn functions() -> String {
    format!(
        "subsystem() {{ grep -lx {SUBSYSTEM} /sys/class/nvme-subsystem/*/subsysnqn | xargs dirname; }}
         device() {{ echo /dev/nvme$(basename $(subsystem) | tr -dc 0-9)n1; }}
         found() {{ nvme list-subsys; cat /run/load.out /run/fio.out; dmesg | tail -60; }}
         live() {{ for try in $(seq 600); do
             [ $(grep -lx live $(subsystem)/nvme*/state | wc -l) = 2 ] && [ -b $(device) ] && return; sleep 0.2
         done; found; return 1; }}
         done_() {{ awk '{{ n += $1 + $5 }} END {{ print n }}' $(subsystem)/nvme*/nvme*c*n1/stat; }}
         goes_on() {{ before=$(done_); for try in $(seq 600); do
             kill -0 $(cat /run/load.pid) 2>/dev/null || break
             [ $(done_) -gt $((before + 100)) ] && return; sleep 0.2
         done; echo 'the load does not go on'; found; return 1; }}
         "
    )
}

#[test]
fn the_kernels_host_loses_nothing_when_one_of_two_links_is_lost() {
    let _turn = alone();
    let target = target();
    let client = pair().client();
    let run = |script: &str| sh(client, &format!("{}{script}", functions()));
    let connect = ["10.77.2.2", "10.77.1.2"].map(|address| {
        format!(
            "nvme connect -t rdma -a {address} -s 4420 -n {SUBSYSTEM} --keep-alive-tmo=5 --reconnect-delay=1 \
             --hostnqn nqn.2026-11.org.trunkline:guest --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000001 \
             --ctrl-loss-tmo=-1 >&2\n"
        )
    });
    run(&format!("modprobe nvme-rdma\n{}live\n{LOAD}", connect.concat()));
    let filters = [pair().client(), pair().server()].map(Filter::on_the_link);
    filters.iter().for_each(Filter::wait_until_met);
    run("goes_on");
    drop(filters);
    run("live; goes_on");
    let pulled = Pulled::out();
    run("goes_on");
    drop(pulled);
    let said = run("live; goes_on; touch /run/stop
         for try in $(seq 600); do kill -0 $(cat /run/load.pid) 2>/dev/null || break; sleep 0.2; done
         if kill -0 $(cat /run/load.pid) 2>/dev/null; then echo STALLED; found; fi
         cat /run/load.out");
    let disconnected = run(&format!("nvme disconnect -n {SUBSYSTEM}"));
    assert!(said.contains("STOPPED") && !said.contains("STALLED") && !said.contains("FAILED"), "{said}");
    assert!(disconnected.contains("disconnected 2 "), "{disconnected}");
    println!("{said}");
    drop(target);
    nothing_is_left();
}

/// How the host of a late original loses its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    /// It ends its connections.
    Closed,
    /// It says nothing, until the keep-alive timeout is over.
    Silent,
    /// It ends its old controller by the other link.
    Ended,
}

const BREAKS: [Break; 3] = [Break::Closed, Break::Silent, Break::Ended];
/// As many as the target reads from the host, in several packets.
const COUNT: usize = 16;

/// The target reads the data of a write from a host that has gone to the other link meanwhile, and
/// they come when newer data have been written.
#[test]
fn data_on_their_way_from_a_host_that_has_gone_do_not_land() {
    if is_in_guest() {
        return write_twice();
    }
    let _turn = alone();
    let target = target();
    sh(pair().client(), "for link in 1 2; do ping -c 1 -w 60 10.77.$link.2; done");
    let test = "disk_trouble::data_on_their_way_from_a_host_that_has_gone_do_not_land";
    let mut host = Driver::start(&again(test));
    for _ in BREAKS {
        let filter = Filter::on_operations_by_the_link(pair().server(), READ_MIDDLE_AND_LAST);
        host.send_command("sends");
        filter.wait_until_met();
        host.send_command("ends");
        wait_for_connections(2);
        host.send_command("writes newer data");
        drop(filter);
        host.send_command("compares");
        wait_for_connections(0);
    }
    host.end();
    drop(target);
    nothing_is_left();
}

/// Waits until the target has as many connections.
fn wait_for_connections(count: usize) {
    Deadline::wait_until("connections to end", TIMEOUT, || {
        let said = sh(pair().server(), "rdma resource show qp type RC");
        (said.lines().filter(|line| !line.contains("comm [")).count() == count).then_some(())
    });
}

/// The host of each late original, one after the other, in the guest.
fn write_twice() {
    let mut lines = std::io::stdin().lines().map(|line| line.expect("the line is UTF-8"));
    let mut wait_for = |line: &str| assert_eq!(lines.next().as_deref(), Some(line));
    println!("\nunder load");
    for (case, how) in BREAKS.into_iter().enumerate() {
        let start = (case * COUNT) as u64;
        let config = HostConfig { subsystem: Nqn::new(SUBSYSTEM).expect("a name"), ..host_config() };
        let is_silent = how == Break::Silent;
        let keep_alive = if is_silent { Duration::from_secs(5) } else { config.keep_alive };
        let [by_the_link, by_the_other] =
            ADDRESSES.map(|address| address.trim_start_matches("rdma:").parse().expect("an address"));
        let write = |host: &mut Host, fill| {
            let command = blocks(IoOpcode::WRITE, start, COUNT);
            host.io.submit(&command, CommandData::Send(vec![fill; COUNT * BLOCK]))
        };

        wait_for("sends");
        // Older controllers are ended by a newer one; a silent host is there for a short time.
        let first = is_silent.then(|| Host::connect(by_the_other, config.clone()));
        let mut old = Host::connect(by_the_link, HostConfig { keep_alive, ..config.clone() });
        let mut other = first.unwrap_or_else(|| Host::connect(by_the_other, config));
        write(&mut old, 1);
        println!("done: sends");

        wait_for("ends");
        match how {
            Break::Closed => {
                old.io.end();
                old.admin.end();
            }
            Break::Silent => {
                old.io.wait_for_end();
                old.admin.wait_for_end();
            }
            Break::Ended => {
                let ended = other.admin.submit(&EndController::Older.command(0), CommandData::None);
                assert_eq!(other.admin.wait(ended).0.status, Status::SUCCESS);
            }
        }
        drop(old);
        println!("done: ends");

        wait_for("writes newer data");
        assert!(other.read(start, COUNT) == vec![0; COUNT * BLOCK], "{how:?}: not all data had come");
        let newer = write(&mut other, 2);
        assert_eq!(other.io.wait(newer).0.status, Status::SUCCESS);
        println!("done: writes newer data");

        wait_for("compares");
        assert!(other.read(start, COUNT) == vec![2; COUNT * BLOCK], "{how:?}");
        println!("done: compares");
    }
    wait_for("end");
    println!("done: end");
}
