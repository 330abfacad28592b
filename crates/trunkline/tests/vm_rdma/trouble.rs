//! Tests faults under a load over RDMA: a server that is killed and restarted, connections that
//! break in the middle of an RDMA operation, a link that drops everything, a device that is
//! removed. Nothing is lost, nothing hangs, and no object remains at either end.

use crate::guest::is_in_guest;
use crate::history::Store;
use crate::link_faults::{Filter, LINK, Pulled, READ_MIDDLE_AND_LAST, WRITE_MIDDLE_AND_LAST};
use crate::mount_driver::{run_commands, start};
use crate::pair::{TIMEOUT, alone, nothing_is_left, pair, sh};
use lab::vm::{Event, Guest, Running, Vm};
use rustix::process::Signal;
use std::process::Command;
use std::time::Instant;

/// Options for the first link, and for the first two.
const ONE_LINK: &str = "proto=rdma,mountport=2049,nconnect=4";
const TWO_LINKS: &str = "proto=rdma,mountport=2049,nconnect=4,remoteports=10.77.1.2~10.77.2.2";
const IN_MEMORY: &str = "--mem 256MiB";
/// The store of a server that is restarted: see [`Directory`].
const IN_DIRECTORY: &str = "--dir /srv/trouble/data --state /srv/trouble/state --no-root-squash";

/// Our server on the first two links; killed when dropped.
struct Server {
    process: Running,
    serves: &'static str,
}

impl Server {
    fn start(serves: &'static str) -> Self {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        serve.args(["serve", "--export", "/export"]).args(serves.split(' ')).current_dir("/");
        for link in 1..=2 {
            serve.args(["--listen", &format!("10.77.{link}.2:2049")]);
            serve.args(["--listen", &format!("rdma:10.77.{link}.2:20049")]);
        }
        let mut process = pair().server().spawn(&serve).expect("the guest runs");
        process.wait_for_line("ready", TIMEOUT).expect("the server starts");
        Self { process, serves }
    }

    fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        let _ = self.process.wait(drop);
    }

    fn kill_and_start_again(&mut self) {
        self.kill();
        *self = Self::start(self.serves);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An empty directory in the server's guest, until dropped.
struct Directory;

impl Directory {
    fn make() -> Self {
        sh(
            pair().server(),
            "mkdir -p /srv/trouble; mount -t tmpfs none /srv/trouble
             mkdir /srv/trouble/data /srv/trouble/state; chmod 700 /srv/trouble/state",
        );
        Self
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // After a failed case the directory may still be in use.
        let _ = pair().server().sh("umount -l /srv/trouble");
    }
}

#[test]
fn a_server_that_is_killed_and_restarted_under_load_loses_nothing() {
    if is_in_guest() {
        return run_commands();
    }
    let _turn = alone();
    let directory = Directory::make();
    let mut server = Server::start(IN_DIRECTORY);
    let mut client = start(
        "trouble::a_server_that_is_killed_and_restarted_under_load_loses_nothing",
        ONE_LINK,
        Store::ByParts,
    );
    for _ in 0..3 {
        server.kill_and_start_again();
        client.send_command("goes on");
    }
    client.end();
    nothing_is_left();
    drop(server);
    drop(directory);
}

/// The server's device writes to the client's memory: the first packet arrives and no other, until
/// the device gives up.
#[test]
fn connections_that_break_in_the_middle_of_a_read_lose_nothing() {
    if is_in_guest() {
        return run_commands();
    }
    torn(
        "trouble::connections_that_break_in_the_middle_of_a_read_lose_nothing",
        Vm::client,
        WRITE_MIDDLE_AND_LAST,
    );
}

/// The server's device reads from the client's memory: the first packet arrives and no other, until
/// the device gives up.
#[test]
fn connections_that_break_in_the_middle_of_a_write_lose_nothing() {
    if is_in_guest() {
        return run_commands();
    }
    torn(
        "trouble::connections_that_break_in_the_middle_of_a_write_lose_nothing",
        Vm::server,
        READ_MIDDLE_AND_LAST,
    );
}

/// A guest drops packets with these opcodes until connections break, and then no more.
#[track_caller]
fn torn(test: &str, guest: fn(&Vm) -> &Guest, operations: [u8; 2]) {
    let _turn = alone();
    let server = Server::start(IN_MEMORY);
    let mut client = start(test, ONE_LINK, Store::Whole);
    let filter = Filter::on_operations(guest(pair()), operations);
    filter.wait_until_met();
    client.send_command("breaks");
    drop(filter);
    client.send_command("goes on");
    client.end();
    nothing_is_left();
    drop(server);
}

#[test]
fn a_client_killed_in_the_middle_of_reads_and_writes_leaves_nothing() {
    if is_in_guest() {
        return run_commands();
    }
    let _turn = alone();
    let server = Server::start(IN_MEMORY);
    let client = start(
        "trouble::a_client_killed_in_the_middle_of_reads_and_writes_leaves_nothing",
        ONE_LINK,
        Store::Whole,
    );
    let filters = [
        Filter::on_operations(pair().client(), WRITE_MIDDLE_AND_LAST),
        Filter::on_operations(pair().server(), READ_MIDDLE_AND_LAST),
    ];
    filters.iter().for_each(Filter::wait_until_met);
    client.kill();
    drop(filters);
    nothing_is_left();
    drop(server);
}

#[test]
fn calls_of_a_link_that_drops_everything_silently_move_to_the_other_and_back() {
    if is_in_guest() {
        return run_commands();
    }
    let _turn = alone();
    let server = Server::start(IN_MEMORY);
    let mut client = start(
        "trouble::calls_of_a_link_that_drops_everything_silently_move_to_the_other_and_back",
        TWO_LINKS,
        Store::Whole,
    );
    let filters = [pair().client(), pair().server()].map(Filter::on_the_link);
    client.send_command("loses 1");
    filters.iter().for_each(Filter::wait_until_met);
    drop(filters);
    client.send_command("regains 1");
    client.end();
    nothing_is_left();
    drop(server);
}

/// Both ends of one of two links lose their carrier.
#[test]
fn calls_of_a_link_that_goes_down_move_to_the_other_and_back() {
    if is_in_guest() {
        return run_commands();
    }
    let _turn = alone();
    let server = Server::start(IN_MEMORY);
    let mut client =
        start("trouble::calls_of_a_link_that_goes_down_move_to_the_other_and_back", TWO_LINKS, Store::Whole);
    let pulled = Pulled::out();
    client.send_command("loses 1");
    drop(pulled);
    client.send_command("regains 1");
    client.end();
    nothing_is_left();
    drop(server);
}

/// The client's device on one of two links is removed. The kernel completes the removal only when
/// the programs that use the device have closed it.
#[test]
fn calls_of_a_removed_client_device_move_to_the_other_link() {
    if is_in_guest() {
        return run_commands();
    }
    let _turn = alone();
    let mut device = Device::of(pair().client());
    let server = Server::start(IN_MEMORY);
    let mut client =
        start("trouble::calls_of_a_removed_client_device_move_to_the_other_link", TWO_LINKS, Store::Whole);
    device.remove();
    client.send_command("loses 1");
    client.end();
    device.made_anew();
    nothing_is_left();
    drop(server);
}

/// The server's device on one of two links is removed; the server continues on the other link, and
/// is restarted later.
#[test]
fn calls_of_a_removed_server_device_move_to_the_other_link_and_back() {
    if is_in_guest() {
        return run_commands();
    }
    let _turn = alone();
    let directory = Directory::make();
    let mut device = Device::of(pair().server());
    let mut server = Server::start(IN_DIRECTORY);
    let mut client = start(
        "trouble::calls_of_a_removed_server_device_move_to_the_other_link_and_back",
        TWO_LINKS,
        Store::ByParts,
    );
    device.remove();
    client.send_command("loses 1");
    server.kill();
    device.made_anew();
    server = Server::start(IN_DIRECTORY);
    client.send_command("regains 1");
    client.end();
    nothing_is_left();
    drop(server);
    drop(directory);
}

/// A guest's device on a link; the device exists again when this is dropped.
struct Device {
    guest: &'static Guest,
    removal: Option<Running>,
}

impl Device {
    fn of(guest: &'static Guest) -> Self {
        Self { guest, removal: None }
    }

    /// Starts the removal of the device.
    fn remove(&mut self) {
        let mut delete = Command::new("rdma");
        delete.args(["link", "delete", &format!("rxe{LINK}")]);
        self.removal = Some(self.guest.spawn(delete.current_dir("/")).expect("the guest runs"));
    }

    /// Waits until the device is removed, and adds it again.
    #[track_caller]
    fn made_anew(mut self) {
        let mut removal = self.removal.take().expect("the removal was started");
        let (began, mut said) = (Instant::now(), String::new());
        while let Some(Event::Out(bytes) | Event::Err(bytes)) =
            removal.next_within(TIMEOUT.saturating_sub(began.elapsed())).expect("the device is removed")
        {
            said.push_str(&String::from_utf8_lossy(&bytes));
        }
        let status = removal.wait(drop).expect("the guest runs");
        assert!(status.success(), "{status}: {said}");
        sh(self.guest, &format!("rdma link add rxe{LINK} type rxe netdev n{LINK}"));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(mut removal) = self.removal.take() {
            // A case failed in between; its programs have ended by now, and the next case needs the
            // device.
            while let Ok(Some(_)) = removal.next_within(TIMEOUT) {}
            let _ = self.guest.sh(&format!("rdma link add rxe{LINK} type rxe netdev n{LINK}"));
        }
    }
}
