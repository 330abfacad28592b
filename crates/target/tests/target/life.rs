//! How controllers and connections come and go.

use crate::peer::{
    BLOCK, Host, PATIENCE, SUBSYSTEM, blocks, config, export, host_config, memory_volume, nqn, random_bytes,
    start, start_with, wait_until_empty,
};
use nvme::fabrics::disconnect;
use nvme::host::{CommandData, HostConfig};
use nvme::io::IoFlags;
use nvme::pdu::Digests;
use nvme::tcp::HostReceived;
use nvme::{IoOpcode, Status};
use std::net::TcpStream;
use std::time::Duration;
use target::{Access, Config, Error, Target};
use testkit::Deadline;

#[test]
fn a_host_that_disconnects_leaves_nothing() {
    let target = start();
    for _ in 0..3 {
        let mut host = Host::connect(&target, 4);
        assert_eq!(host.limits.io_queues, 4);
        assert_eq!(host.io[3].write(1, 1, &vec![3; BLOCK]), Status::SUCCESS);
        let usage = target.usage();
        assert_eq!((usage.connections, usage.controllers, usage.io_queues), (5, 1, 4));
        drop(host);
        wait_until_empty(&target);
    }
}

#[test]
fn a_disconnected_queue_is_answered_and_the_controller_stays() {
    let target = start();
    let mut host = Host::connect(&target, 2);
    let mut queue = host.io.remove(0);
    assert_eq!(queue.command(&disconnect(0), CommandData::None).0.status, Status::SUCCESS);
    queue.wait_for_end();
    assert_eq!(host.io[0].write(1, 1, &vec![3; BLOCK]), Status::SUCCESS);
    drop(queue);
    Deadline::wait_until("the end of the queue", PATIENCE, || (target.usage().io_queues == 1).then_some(()));
    assert_eq!(target.usage().controllers, 1);
}

#[test]
fn the_end_of_the_admin_queue_ends_the_io_queues() {
    let target = start();
    let Host { admin, mut io, .. } = Host::connect(&target, 3);
    drop(admin);
    io.iter_mut().for_each(crate::peer::Queue::wait_for_end);
    // Without waiting for the host to close them.
    wait_until_empty(&target);
    drop(io);
}

#[test]
fn a_host_that_dies_within_a_write_changes_nothing_and_leaves_nothing() {
    let target = start();
    let mut witness = Host::connect(&target, 1);
    let before = random_bytes(1, 256 * BLOCK);
    assert_eq!(witness.io[0].write(1, 0, &before), Status::SUCCESS);
    for part in [0, 1, 5000, 70_000, 1 << 19] {
        let mut host = Host::connect(&target, 1);
        let sqe = blocks(IoOpcode::WRITE, 1, 0, 256, IoFlags::NONE);
        let cid = host.io[0].submit(&sqe, CommandData::Send(random_bytes(2, 256 * BLOCK)));
        // Asked: the head of the data and a part of them, and then the end.
        assert_eq!(host.io[0].receive_only().unwrap(), HostReceived::Asked { cid });
        host.io[0].send_asked(cid, part);
        drop(host);
        Deadline::wait_until("the end of the host", PATIENCE, || {
            (target.usage().controllers == 1).then_some(())
        });
        assert!(witness.io[0].read(1, 0, 256) == before, "after {part} bytes");
    }
    drop(witness);
    wait_until_empty(&target);
}

#[test]
fn a_silent_host_loses_its_controller_when_its_keep_alive_timeout_is_over() {
    let target = start();
    let config = HostConfig { keep_alive: Duration::from_secs(1), ..host_config(2) };
    let mut silent = Host::connect_with(&target, config, Digests::default()).unwrap();
    let config = HostConfig { keep_alive: Duration::from_secs(1), ..host_config(1) };
    let mut busy = Host::connect_with(&target, config, Digests::default()).unwrap();
    // Commands on an I/O queue keep the other one alive.
    Deadline::wait_until("the end of the silent host", PATIENCE, || {
        assert_eq!(busy.io[0].write(1, 1, &vec![3; BLOCK]), Status::SUCCESS);
        (target.usage().controllers == 1).then_some(())
    });
    silent.io.iter_mut().for_each(crate::peer::Queue::wait_for_end);
    // Without waiting for the host to close its connections.
    Deadline::wait_until("two connections", PATIENCE, || (target.usage().connections == 2).then_some(()));
    drop(silent);
    assert_eq!(busy.io[0].write(1, 1, &vec![3; BLOCK]), Status::SUCCESS);
}

#[test]
fn a_write_that_waits_is_not_executed_after_its_host_has_gone() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, volumes::BlockSize::B4096, false);
    let target = Target::start(&config(), &[export(1, volume.clone())]).unwrap();
    let mut gone = Host::connect(&target, 1);
    let mut other = Host::connect(&target, 1);
    faults.hold_writes();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 1, IoFlags::NONE);
    let first = other.io[0].submit(&sqe, CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the first write", PATIENCE, || (volume.commands() == 1).then_some(()));
    gone.io[0].submit(&sqe, CommandData::Send(vec![2; BLOCK]));
    Deadline::wait_until("the second write", PATIENCE, || (volume.commands() == 2).then_some(()));
    drop(gone);
    Deadline::wait_until("its end", PATIENCE, || (target.usage().controllers == 1).then_some(()));
    faults.release_writes();
    assert_eq!(other.io[0].wait(first).0.status, Status::SUCCESS);
    assert!(other.io[0].read(1, 0, 1) == vec![1; BLOCK]);
}

#[test]
fn a_controller_identifier_is_taken_until_the_drive_has_finished() {
    let (volume, faults) = volumes::testing::faulty_volume(1024, volumes::BlockSize::B4096, false);
    let target = Target::start(&config(), &[export(1, volume.clone())]).unwrap();
    let mut host = Host::connect(&target, 1);
    faults.hold_writes();
    let sqe = blocks(IoOpcode::WRITE, 1, 0, 1, IoFlags::NONE);
    host.io[0].submit(&sqe, CommandData::Send(vec![1; BLOCK]));
    Deadline::wait_until("the write", PATIENCE, || (volume.commands() == 1).then_some(()));
    drop(host);
    Deadline::wait_until("the end of the admin queue", PATIENCE, || {
        (target.usage().connections == 1).then_some(())
    });
    let mut other = Host::connect(&target, 1);
    assert_eq!(target.usage().controllers, 2, "the drive may still write for the first");
    faults.release_writes();
    Deadline::wait_until("its end", PATIENCE, || (target.usage().controllers == 1).then_some(()));
    assert!(other.io[0].read(1, 0, 1) == vec![1; BLOCK]);
}

#[test]
fn a_target_that_stops_ends_its_hosts_and_frees_its_addresses() {
    let target = start();
    let address = target.addresses()[0];
    let mut host = Host::connect(&target, 2);
    target.stop();
    host.admin.wait_for_end();
    host.io.iter_mut().for_each(crate::peer::Queue::wait_for_end);
    assert!(TcpStream::connect(address).is_err());
    let again = Config::new(nqn(SUBSYSTEM), "1", Access::Any, vec![address]);
    let target = Target::start(&again, &[export(1, memory_volume(1))]).unwrap();
    Host::connect(&target, 1);
}

#[test]
fn what_cannot_be_served_is_refused_with_its_reason() {
    let start = |change: &dyn Fn(&mut Config), exports: &[target::Export]| {
        let mut config = config();
        change(&mut config);
        Target::start(&config, exports).err().map(|error| error.to_string())
    };
    let listen = |address: &str| vec![address.parse::<std::net::SocketAddr>().unwrap().into()];
    let taken = start_with(&config());
    let address = taken.addresses()[0];
    let one = [export(1, memory_volume(1))];
    assert_eq!(
        start(&|config| config.listen = vec![address.into()], &one),
        Some(format!("cannot listen on {address}"))
    );
    let any = start(&|config| config.listen = listen("0.0.0.0:0"), &one).unwrap();
    assert!(any.contains("not an address that discovery can tell"), "{any}");
    assert!(start(&|config| config.listen.clear(), &one).is_some());
    let twins = [export(1, memory_volume(1)), export(2, memory_volume(1))];
    assert!(start(&|_| {}, &twins).unwrap().contains("same UUID"));
    assert!(start(&|_| {}, &[export(0, memory_volume(1))]).is_some());
    let same = [export(1, memory_volume(1)), export(1, memory_volume(2))];
    assert!(matches!(Target::start(&config(), &same), Err(Error::Volume { .. })));
}
