//! Hosts with secrets: what they must prove, and what they get before.

use crate::peer::{
    BLOCK, HOST, Host, PATIENCE, Queue, SUBSYSTEM, blocks, config, host_config, nqn, start_with,
    wait_until_empty,
};
use chap::{Algorithms, Credentials, Entropy, Failure, Group, Hash, Next, Secret, Sequence, command};
use nvme::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, Connected, Property, disconnect,
};
use nvme::host::{CommandData, HostConfig};
use nvme::io::IoFlags;
use nvme::pdu::Digests;
use nvme::register::{CC, CSTS, Configuration};
use nvme::{AdminOpcode, HostId, IoOpcode, Nqn, Sgl, Sqe, Status};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use target::{Access, Config, HostSecret, Hosts, Target};
use testkit::Deadline;

const REQUIRED: Status = Status::AUTHENTICATION_REQUIRED.no_retry();
const NO_SGL: Sgl = Sgl::Transport { length: 0 };
const OPEN: &str = "nqn.2026-11.test:open";

fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

/// The secret of the host, and that of the controller.
fn secrets(host: u8, controller: Option<u8>) -> HostSecret {
    let algorithms = Algorithms::new(&[Hash::Sha256], &[Group::Ffdhe2048, Group::Null]).unwrap();
    HostSecret { host: secret(host), controller: controller.map(secret), algorithms: Arc::new(algorithms) }
}

fn guarded(controller: Option<u8>) -> Config {
    let mut config = config();
    config.secrets = [(nqn(HOST), secrets(5, controller))].into();
    config.limits.authentication = PATIENCE;
    config
}

fn credentials(host: u8, controller: Option<u8>) -> Arc<Credentials> {
    Arc::new(Credentials {
        host: nqn(HOST),
        subsystem: nqn(SUBSYSTEM),
        host_secret: secret(host),
        controller_secret: controller.map(secret),
    })
}

fn offer(group: Group) -> Arc<Algorithms> {
    Arc::new(Algorithms::new(&[Hash::Sha256], &[group]).unwrap())
}

/// A connection that is a queue, and what Connect has answered.
fn connect(target: &Target, (qid, cntlid): (u16, u16), host: &str, digests: Digests) -> (Queue, Connected) {
    let mut queue = Queue::open(target.addresses()[0], digests, 32);
    let attributes = ConnectAttributes::DISABLE_SQ_FLOW;
    let sqe = Connect { recfmt: 0, qid, sqsize: 31, attributes, kato_ms: 0 }.command(0, NO_SGL);
    let data = ConnectData::new(HostId([7; 16]), cntlid, &nqn(SUBSYSTEM), &nqn(host));
    let (cqe, _) = queue.command(&sqe, CommandData::Send(data.encode().to_vec()));
    assert_eq!(cqe.status, Status::SUCCESS);
    (queue, Connected::of(cqe.result))
}

fn connect_admin(target: &Target) -> Queue {
    let (queue, connected) = connect(target, (0, CNTLID_DYNAMIC), HOST, Digests::default());
    assert!(connected.authentication_required);
    queue
}

fn send(queue: &mut Queue, message: &[u8]) -> u16 {
    queue.submit(&command::send(0, NO_SGL, message.len() as u32), CommandData::Send(message.to_vec()))
}

fn ask(queue: &mut Queue) -> (Status, Vec<u8>) {
    let (cqe, data) = queue.command(&command::receive(0, NO_SGL, 4096), CommandData::Receive(4096));
    (cqe.status, data)
}

/// What a host does, until the end.
fn authenticate(
    queue: &mut Queue,
    credentials: &Arc<Credentials>,
    algorithms: Arc<Algorithms>,
) -> Result<(), Failure> {
    let mut host = chap::Host::new(Arc::clone(credentials), algorithms, 3);
    let mut sequence = Sequence::new(9);
    loop {
        match host.next() {
            Next::Send(message) => {
                let cid = send(queue, message);
                assert_eq!(queue.wait(cid).0.status, Status::SUCCESS);
                host.handle_sent();
            }
            Next::Receive => {
                let (status, data) = ask(queue);
                assert_eq!(status, Status::SUCCESS);
                host.handle_received(&data, &Entropy::new(&[0xa5; Entropy::BYTES], sequence.take()));
            }
            Next::Authenticated => return Ok(()),
            Next::Failed(failure) => return Err(failure),
        }
    }
}

fn enable(queue: &mut Queue) {
    let set = Property::set(0, CC, Configuration::ENABLE.0);
    assert_eq!(queue.command(&set, CommandData::None).0.status, Status::SUCCESS);
    assert_eq!(queue.command(&Property::get(0, CSTS, false), CommandData::None).0.result & 1, 1);
}

fn identify() -> Sqe {
    Sqe { cdw10: 1, ..Sqe::new(AdminOpcode::IDENTIFY.0, 0, 0) }
}

/// An admin queue and an I/O queue of a host that has authenticated.
fn connect_both(target: &Target, digests: Digests) -> (Queue, Queue) {
    let (mut admin, connected) = connect(target, (0, CNTLID_DYNAMIC), HOST, digests);
    authenticate(&mut admin, &credentials(5, None), offer(Group::Null)).unwrap();
    enable(&mut admin);
    let (mut io, again) = connect(target, (1, connected.cntlid), HOST, digests);
    assert!(again.authentication_required);
    authenticate(&mut io, &credentials(5, None), offer(Group::Ffdhe2048)).unwrap();
    (admin, io)
}

#[test]
fn a_host_with_a_secret_is_served_on_each_queue_on_which_it_has_authenticated() {
    let target = start_with(&guarded(None));
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        let (admin, mut io) = connect_both(&target, digests);
        assert_eq!(io.write(1, 3, &vec![6; BLOCK]), Status::SUCCESS);
        assert_eq!(io.read(1, 3, 1), vec![6; BLOCK]);
        drop((admin, io));
        wait_until_empty(&target);
    }
}

#[test]
fn messages_may_also_come_on_request() {
    let target = start_with(&guarded(None));
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        let (mut admin, connected) = connect(&target, (0, CNTLID_DYNAMIC), HOST, digests);
        admin.machine.set_capsule_data_bytes(0);
        authenticate(&mut admin, &credentials(5, None), offer(Group::Ffdhe2048)).unwrap();
        enable(&mut admin);
        let (mut io, _) = connect(&target, (1, connected.cntlid), HOST, digests);
        io.machine.set_capsule_data_bytes(0);
        authenticate(&mut io, &credentials(5, None), offer(Group::Ffdhe2048)).unwrap();
        assert_eq!(io.write(1, 3, &vec![6; 9 * BLOCK]), Status::SUCCESS);
    }
}

#[test]
fn nothing_is_served_on_an_admin_queue_before() {
    let target = start_with(&guarded(None));
    let mut queue = connect_admin(&target);
    let events = Sqe::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, 0, 0);
    let properties = [Property::get(0, CSTS, false), Property::set(0, CC, Configuration::ENABLE.0)];
    for sqe in [events, properties[0], properties[1], disconnect(0)] {
        assert_eq!(queue.command(&sqe, CommandData::None).0.status, REQUIRED, "{sqe:?}");
    }
    assert_eq!(queue.command(&identify(), CommandData::Receive(4096)).0.status, REQUIRED);
    // Not even by one that goes on after it was refused.
    authenticate(&mut queue, &credentials(5, None), offer(Group::Null)).unwrap();
    enable(&mut queue);
    assert_eq!(queue.command(&identify(), CommandData::Receive(4096)).0.status, Status::SUCCESS);
}

#[test]
fn nothing_is_executed_on_an_io_queue_before() {
    let target = start_with(&guarded(None));
    let (mut admin, connected) = connect(&target, (0, CNTLID_DYNAMIC), HOST, Digests::default());
    authenticate(&mut admin, &credentials(5, None), offer(Group::Null)).unwrap();
    enable(&mut admin);
    let (mut io, _) = connect(&target, (1, connected.cntlid), HOST, Digests::default());
    for blocks in [1, 64] {
        assert_eq!(io.write(1, 0, &vec![6; blocks * BLOCK]), REQUIRED, "{blocks}");
    }
    let read = blocks(IoOpcode::READ, 1, 0, 1, IoFlags::NONE);
    let (cqe, data) = io.command(&read, CommandData::Receive(BLOCK as u32));
    assert_eq!((cqe.status, data), (REQUIRED, vec![0; BLOCK]));
    assert_eq!(io.command(&disconnect(0), CommandData::None).0.status, REQUIRED);
    authenticate(&mut io, &credentials(5, None), offer(Group::Null)).unwrap();
    assert_eq!(io.read(1, 0, 1), vec![0; BLOCK], "nothing was written");
}

#[test]
fn a_wrong_secret_is_refused_and_the_connection_ends() {
    let target = start_with(&guarded(None));
    let mut queue = connect_admin(&target);
    let failed = authenticate(&mut queue, &credentials(6, None), offer(Group::Ffdhe2048)).unwrap_err();
    assert!(matches!(failed, Failure::ByPeer(_)), "{failed}");
    queue.wait_for_end();
    drop(queue);
    wait_until_empty(&target);
}

#[test]
fn a_wrong_secret_on_an_io_queue_ends_that_queue_only() {
    let target = start_with(&guarded(None));
    let (mut admin, connected) = connect(&target, (0, CNTLID_DYNAMIC), HOST, Digests::default());
    authenticate(&mut admin, &credentials(5, None), offer(Group::Null)).unwrap();
    enable(&mut admin);
    let (mut io, _) = connect(&target, (1, connected.cntlid), HOST, Digests::default());
    authenticate(&mut io, &credentials(6, None), offer(Group::Null)).unwrap_err();
    io.wait_for_end();
    assert_eq!(admin.command(&identify(), CommandData::Receive(4096)).0.status, Status::SUCCESS);
}

#[test]
fn the_controller_proves_who_it_is_to_a_host_that_asks() {
    let target = start_with(&guarded(Some(8)));
    let mut queue = connect_admin(&target);
    authenticate(&mut queue, &credentials(5, Some(8)), offer(Group::Ffdhe2048)).unwrap();
    enable(&mut queue);
    // One that expects another secret of it tells it so, and is served no more.
    let mut queue = connect_admin(&target);
    let failed = authenticate(&mut queue, &credentials(5, Some(9)), offer(Group::Null)).unwrap_err();
    assert!(matches!(failed, Failure::Refused(chap::Cause::WrongResponse)), "{failed}");
    queue.wait_for_end();
}

#[test]
fn a_host_that_wants_proof_is_refused_where_there_is_no_secret_for_it() {
    let target = start_with(&guarded(None));
    let mut queue = connect_admin(&target);
    authenticate(&mut queue, &credentials(5, Some(8)), offer(Group::Null)).unwrap_err();
    queue.wait_for_end();
}

#[test]
fn what_the_target_does_not_accept_is_not_chosen() {
    let target = start_with(&guarded(None));
    let mut queue = connect_admin(&target);
    authenticate(&mut queue, &credentials(5, None), offer(Group::Ffdhe3072)).unwrap_err();
    queue.wait_for_end();
}

#[test]
fn a_host_that_stalls_within_authentication_is_closed() {
    let mut config = guarded(None);
    config.limits.authentication = Duration::from_millis(100);
    let target = start_with(&config);
    // After Connect.
    connect_admin(&target).wait_for_end();
    // With a challenge that is not asked for; with one that is not answered.
    for asks in [false, true] {
        let mut queue = connect_admin(&target);
        let host = chap::Host::new(credentials(5, None), offer(Group::Null), 3);
        let Next::Send(message) = host.next() else { panic!("it begins") };
        let cid = send(&mut queue, message);
        assert_eq!(queue.wait(cid).0.status, Status::SUCCESS);
        if asks {
            assert_eq!(ask(&mut queue).0, Status::SUCCESS);
        }
        queue.wait_for_end();
    }
    // With commands that are refused all the time.
    let mut queue = connect_admin(&target);
    Deadline::wait_until("its end", PATIENCE, || {
        let sent = queue.try_submit(&Property::get(0, CSTS, false), CommandData::None);
        sent.and_then(|_| queue.receive_only()).is_err().then_some(())
    });
    drop(queue);
    wait_until_empty(&target);
}

#[test]
fn a_host_that_does_not_send_the_message_it_was_asked_for_is_closed() {
    let mut config = guarded(None);
    config.limits.authentication = Duration::from_millis(100);
    let target = start_with(&config);
    let mut queue = connect_admin(&target);
    queue.machine.set_capsule_data_bytes(0);
    let host = chap::Host::new(credentials(5, None), offer(Group::Null), 3);
    let Next::Send(message) = host.next() else { panic!("it begins") };
    send(&mut queue, message);
    queue.receive_only().unwrap();
    queue.wait_for_end();
    drop(queue);
    wait_until_empty(&target);
}

#[test]
fn messages_are_taken_one_after_the_other() {
    let target = start_with(&guarded(None));
    let mut queue = connect_admin(&target);
    let host = chap::Host::new(credentials(5, None), offer(Group::Ffdhe2048), 3);
    let Next::Send(message) = host.next() else { panic!("it begins") };
    // The first one is asked for, so that the second one comes while it is under way.
    queue.machine.set_capsule_data_bytes(0);
    let first = send(&mut queue, message);
    let second = send(&mut queue, message);
    assert_eq!(queue.wait(second).0.status, Status::COMMAND_SEQUENCE_ERROR.no_retry());
    assert_eq!(queue.wait(first).0.status, Status::SUCCESS);
}

#[test]
fn a_host_may_authenticate_again_and_loses_the_queue_if_it_fails() {
    let target = start_with(&guarded(None));
    let (mut admin, mut io) = connect_both(&target, Digests::default());
    authenticate(&mut io, &credentials(5, None), offer(Group::Ffdhe2048)).unwrap();
    assert_eq!(io.write(1, 3, &vec![6; BLOCK]), Status::SUCCESS);
    // Commands go on meanwhile.
    let host = chap::Host::new(credentials(5, None), offer(Group::Ffdhe2048), 4);
    let Next::Send(message) = host.next() else { panic!("it begins") };
    let cid = send(&mut io, message);
    assert_eq!(io.write(1, 3, &vec![7; BLOCK]), Status::SUCCESS);
    assert_eq!(io.wait(cid).0.status, Status::SUCCESS);
    assert_eq!(io.write(1, 3, &vec![8; BLOCK]), Status::SUCCESS);
    // The transaction that was begun is not over: another one is wrong.
    let cid = send(&mut io, message);
    assert_eq!(io.wait(cid).0.status, Status::SUCCESS);
    assert_eq!(io.write(1, 3, &vec![9; BLOCK]), REQUIRED);
    assert_eq!(ask(&mut io).0, Status::SUCCESS);
    io.wait_for_end();
    assert_eq!(admin.command(&identify(), CommandData::Receive(4096)).0.status, Status::SUCCESS);
}

/// The controller is reset while a message of another transaction is received, or is handled.
#[test]
fn a_message_of_before_a_reset_is_not_answered_after_it() {
    let target = start_with(&guarded(None));
    for in_capsule in [true, false] {
        let mut queue = connect_admin(&target);
        authenticate(&mut queue, &credentials(5, None), offer(Group::Null)).unwrap();
        enable(&mut queue);
        if !in_capsule {
            queue.machine.set_capsule_data_bytes(0);
        }
        let host = chap::Host::new(credentials(5, None), offer(Group::Ffdhe2048), 4);
        let Next::Send(message) = host.next() else { panic!("it begins") };
        let (data, mut out) = (CommandData::Send(message.to_vec()), Vec::new());
        let sqe = command::send(0, NO_SGL, message.len() as u32);
        let old = queue.prepare(&sqe, data, &mut out);
        // In one write, so that what was begun is not over before the reset.
        let reset = queue.prepare(&Property::set(0, CC, 0), CommandData::None, &mut out);
        queue.stream.write_all(&out).unwrap();
        // This also sends what the target asks for.
        assert_eq!(queue.wait(reset).0.status, Status::SUCCESS);
        enable(&mut queue);
        if in_capsule {
            // The challenge is there when the message was handled.
            Deadline::wait_until("the challenge", PATIENCE, || ask(&mut queue).0.is_success().then_some(()));
        } else {
            // The message was not sent, and so the transaction begins only now.
            authenticate(&mut queue, &credentials(5, None), offer(Group::Null)).unwrap();
        }
        assert!(!queue.is_done(old));
    }
}

#[test]
fn a_queue_that_loses_its_proof_without_a_word_ends_in_time() {
    let mut config = guarded(None);
    config.limits.authentication = Duration::from_millis(100);
    let target = start_with(&config);
    let mut queue = connect_admin(&target);
    authenticate(&mut queue, &credentials(5, None), offer(Group::Null)).unwrap();
    // No message is due, and there is no room for the one that says so.
    let (cqe, _) = queue.command(&command::receive(0, NO_SGL, 1), CommandData::Receive(1));
    assert!(cqe.status.is(Status::INVALID_FIELD), "{}", cqe.status);
    queue.wait_for_end();
}

#[test]
fn hosts_without_a_secret_and_discovery_are_served_as_ever() {
    let target = start_with(&guarded(None));
    let open = |config: HostConfig| HostConfig { host: nqn(OPEN), host_id: HostId([8; 16]), ..config };
    let mut host = Host::connect_with(&target, open(host_config(1)), Digests::default()).unwrap();
    assert_eq!(host.io[0].write(1, 3, &vec![6; BLOCK]), Status::SUCCESS);
    let role = nvme::host::Role::Discovery;
    let config = HostConfig { subsystem: Nqn::discovery(), role, ..host_config(0) };
    Host::connect_with(&target, config, Digests::default()).unwrap();
    // Without a secret of its own, a host of another name cannot have the controller of this one.
    let (mut admin, connected) = connect(&target, (0, CNTLID_DYNAMIC), HOST, Digests::default());
    authenticate(&mut admin, &credentials(5, None), offer(Group::Null)).unwrap();
    enable(&mut admin);
    let mut queue = Queue::open(target.addresses()[0], Digests::default(), 32);
    let attributes = ConnectAttributes::DISABLE_SQ_FLOW;
    let sqe = Connect { recfmt: 0, qid: 1, sqsize: 31, attributes, kato_ms: 0 }.command(0, NO_SGL);
    let data = ConnectData::new(HostId([7; 16]), connected.cntlid, &nqn(SUBSYSTEM), &nqn(OPEN));
    let (cqe, _) = queue.command(&sqe, CommandData::Send(data.encode().to_vec()));
    assert!(cqe.status.is(Status::CONNECT_INVALID_PARAMETERS), "{}", cqe.status);
}

#[test]
fn changed_secrets_are_those_of_new_connections_and_of_queues_that_authenticate_again() {
    let target = start_with(&guarded(None));
    let (mut admin, mut io) = connect_both(&target, Digests::default());
    let secrets = [(nqn(HOST), secrets(7, Some(8)))].into();
    target.set_hosts(&Hosts { access: Access::Any, ids: [].into(), secrets, volumes: Vec::new() });
    assert_eq!(io.write(1, 3, &vec![6; BLOCK]), Status::SUCCESS, "it stays");
    authenticate(&mut admin, &credentials(7, Some(8)), offer(Group::Ffdhe2048)).unwrap();
    assert_eq!(admin.command(&identify(), CommandData::Receive(4096)).0.status, Status::SUCCESS);
    authenticate(&mut io, &credentials(5, None), offer(Group::Null)).unwrap_err();
    io.wait_for_end();
    let mut queue = connect_admin(&target);
    authenticate(&mut queue, &credentials(5, None), offer(Group::Null)).unwrap_err();
    let mut queue = connect_admin(&target);
    authenticate(&mut queue, &credentials(7, None), offer(Group::Null)).unwrap();
    target.set_hosts(&Hosts { access: Access::Any, ids: [].into(), secrets: [].into(), volumes: Vec::new() });
    authenticate(&mut queue, &credentials(7, None), offer(Group::Null)).unwrap();
    let (_, connected) = connect(&target, (0, CNTLID_DYNAMIC), HOST, Digests::default());
    assert!(!connected.authentication_required);
    drop(admin);
}
