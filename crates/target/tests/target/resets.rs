//! A host that resets its controller and keeps the connection of the admin queue: what it had sent
//! before is neither answered nor in its way. NVMe Base, "Controller Level Reset".

use crate::peer::{Host, PATIENCE, Queue, config, export, memory_volume, start};
use nvme::fabrics::Property;
use nvme::feature::{Feature, FeatureId, Timestamp};
use nvme::host::CommandData;
use nvme::pdu::{CapsuleCmd, CapsuleResp, Sender};
use nvme::register::{CC, CSTS, Configuration};
use nvme::reservation::Report;
use nvme::tcp::HostReceived;
use nvme::{AdminOpcode, Cqe, Sgl, Sqe, Status};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use target::{Config, Identity, ReservationStore, Target};
use testkit::Deadline;

const NO_SGL: Sgl = Sgl::Transport { length: 0 };

/// Disables and enables the controller, and waits until it is ready.
fn reset(queue: &mut Queue) {
    for configuration in [Configuration::default(), Configuration::ENABLE] {
        let set = Property::set(0, CC, configuration.0);
        assert_eq!(queue.command(&set, CommandData::None).0.status, Status::SUCCESS);
    }
    Deadline::wait_until("the controller", PATIENCE, || {
        let (cqe, _) = queue.command(&Property::get(0, CSTS, false), CommandData::None);
        (cqe.result & 1 == 1).then_some(())
    });
}

#[test]
fn data_that_were_asked_for_before_a_reset_are_taken_and_dropped() {
    let target = start();
    let mut host = Host::connect(&target, 1);
    let admin = &mut host.admin;
    admin.machine.set_capsule_data_bytes(0);
    let set = Feature::set(0, FeatureId::TIMESTAMP, 0, NO_SGL);
    let timestamp = |ms| CommandData::Send(Timestamp::set_by_host(ms).encode().to_vec());
    let origin = |admin: &mut Queue| {
        let get = Feature::get(0, FeatureId::TIMESTAMP, 0, NO_SGL);
        let (_, data) = admin.command(&get, CommandData::Receive(8));
        Timestamp::decode(&data).unwrap()
    };
    for _ in 0..3 {
        let old = admin.submit(&set, timestamp(1 << 40));
        while admin.receive_only().unwrap() != (HostReceived::Asked { cid: old }) {}
        reset(admin);
        let before = origin(admin);
        admin.send_asked(old, usize::MAX);
        // Answers come in the order of the commands.
        assert!(origin(admin).milliseconds() < 1 << 40 && before.milliseconds() < 1 << 40);
        assert!(!admin.is_done(old));
    }
    assert_eq!(admin.command(&set, timestamp(1 << 40)).0.status, Status::SUCCESS);
    assert!(origin(admin).milliseconds() >= 1 << 40);
}

/// Saves nothing while somebody has the lock.
#[derive(Debug, Default)]
struct Held(Mutex<()>);

impl ReservationStore for Held {
    fn load(&self, _: &Identity) -> io::Result<Option<Report>> {
        Ok(None)
    }

    fn save(&self, _: &Identity, _: &Report) -> io::Result<()> {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

/// A host that uses the identifiers of commands as it likes.
struct Raw(Queue);

impl Raw {
    fn send(&mut self, commands: &[Sqe]) {
        let mut out = Vec::new();
        for sqe in commands {
            CapsuleCmd { sqe: Sqe { sgl: NO_SGL, ..*sqe } }.encode(Sender::default(), 0, &mut out);
        }
        self.0.stream.write_all(&out).unwrap();
    }

    fn answer(&mut self) -> Cqe {
        let mut pdu = [0; CapsuleResp::HLEN as usize];
        self.0.stream.read_exact(&mut pdu).unwrap();
        Cqe::decode(&pdu[8..]).unwrap()
    }
}

#[test]
fn a_host_that_resets_again_and_again_while_its_commands_wait_is_still_served() {
    const WAITING: u16 = 28;
    /// More commands than a connection may be owed answers.
    const ROUNDS: usize = 200;
    let store = Arc::new(Held::default());
    let reservations: Arc<dyn ReservationStore> = Arc::<Held>::clone(&store);
    let config = Config { reservations: Some(reservations), ..config() };
    let target = Target::start(&config, &[export(1, memory_volume(1))]).unwrap();
    let Host { mut admin, io, .. } = Host::connect(&target, 1);
    reset(&mut admin);
    drop(io);
    let mut raw = Raw(admin);
    let set = |cid, configuration: Configuration| Sqe { cid, ..Property::set(0, CC, configuration.0) };
    let persist = |cid| {
        let sqe = Feature::set(0, FeatureId::RESERVATION_PERSISTENCE, 1, NO_SGL);
        Sqe { cid, nsid: 1, ..sqe }
    };
    let keep_alive = Sqe::new(AdminOpcode::KEEP_ALIVE.0, 3, 0);
    let disabled = Configuration::default();
    let held = store.0.lock().unwrap();
    for round in 0..ROUNDS {
        let mut commands: Vec<Sqe> = (100..100 + WAITING).map(persist).collect();
        commands.extend([set(1, disabled), set(2, Configuration::ENABLE), keep_alive]);
        raw.send(&commands);
        for cid in 1..=3 {
            let cqe = raw.answer();
            assert_eq!((cqe.cid, cqe.status), (cid, Status::SUCCESS), "in round {round}");
        }
    }
    // The same identifier, for a command of now.
    raw.send(&[persist(100)]);
    drop(held);
    assert_eq!((raw.answer().cid, raw.0.is_done(100)), (100, false));
    raw.send(&[keep_alive]);
    assert_eq!(raw.answer().cid, 3, "and no other answer came");
}
