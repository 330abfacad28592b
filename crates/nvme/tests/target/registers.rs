//! Properties: enabling, reset, shutdown. NVMe Base, "Controller Initialization", "Controller
//! Shutdown".

use crate::support::Target;
use nvme::Status;
use nvme::controller::{CloseReason, Kind, QueueId};
use nvme::fabrics::Property;
use nvme::identify::Cns;
use nvme::register::{
    CAP, CC, CRTO, CSTS, Capabilities, Configuration, NSSR, Shutdown, ShutdownStatus, VS, Version,
};

#[test]
fn the_properties_that_hosts_read() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.connect("h");
    let capabilities = Capabilities::decode(target.property(cntlid, CAP, true).expect("CAP"));
    assert_eq!(capabilities.mqes, 127);
    assert!(capabilities.nvm_command_set && capabilities.ready_with_media);
    assert!(!capabilities.subsystem_reset && capabilities.timeout_500_ms > 0);
    assert_eq!(target.property(cntlid, VS, false), Ok(Version::V2_0.0.into()));
    assert_eq!(target.property(cntlid, CSTS, false), Ok(0));
    assert_eq!(target.property(cntlid, CC, false), Ok(0));
    assert!(target.property(cntlid, CRTO, false).is_ok_and(|crto| crto & 0xffff > 0));
    let invalid = Err(Status::INVALID_FIELD.no_retry());
    assert_eq!(target.property(cntlid, CAP, false), invalid);
    assert_eq!(target.property(cntlid, CSTS, true), invalid);
    assert_eq!(target.property(cntlid, 0x2000, false), invalid);
    let (cqe, _) = target.command(cntlid, Property::set(0, NSSR, 0x4e56_4d65), &[]);
    assert_eq!(cqe.status, Status::INVALID_FIELD.no_retry());
}

#[test]
fn before_it_is_enabled_a_controller_takes_fabrics_commands_only() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.connect("h");
    let early = target.identify(cntlid, Cns::CONTROLLER, 0);
    assert_eq!(early, Err(Status::COMMAND_SEQUENCE_ERROR.no_retry()));
    target.configure(cntlid, Configuration::ENABLE);
    assert!(target.identify(cntlid, Cns::CONTROLLER, 0).is_ok());
}

#[test]
fn a_configuration_that_is_not_supported_fails_the_controller() {
    for configuration in [
        Configuration(1 | 5 << 16 | 4 << 20),
        Configuration(1 | 6 << 16 | 3 << 20),
        Configuration(Configuration::ENABLE.0 | 1 << 4),
        Configuration(Configuration::ENABLE.0 | 1 << 7),
        Configuration(Configuration::ENABLE.0 | 1 << 11),
    ] {
        let mut target = Target::of(Kind::Io);
        let cntlid = target.connect("h");
        target.configure(cntlid, configuration);
        let status = target.status(cntlid);
        assert!(status.fatal && !status.ready, "{configuration:?}");
        target.configure(cntlid, Configuration::default());
        target.configure(cntlid, Configuration::ENABLE);
        assert!(target.status(cntlid).ready, "a reset mends it");
    }
}

#[test]
fn a_reset_closes_io_queues_and_is_over_when_they_are_closed() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    target.connect_io("h", cntlid, 1);
    let closing = target.configure(cntlid, Configuration::default());
    assert_eq!(closing, [(QueueId { cntlid, qid: 1 }, CloseReason::Reset)]);
    assert!(target.status(cntlid).ready, "a command may still have an effect");
    assert_eq!(target.configure(cntlid, Configuration::default()), [], "and is not closed twice");
    target.queue_closed(cntlid, 1);
    assert!(!target.status(cntlid).ready);
    target.configure(cntlid, Configuration::ENABLE);
    target.connect_io("h", cntlid, 1);
}

#[test]
fn a_host_that_does_not_wait_for_the_end_of_a_reset_waits_for_the_start() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    target.connect_io("h", cntlid, 1);
    target.configure(cntlid, Configuration::default());
    target.configure(cntlid, Configuration::ENABLE);
    let refusal = target.try_connect("h", cntlid, &crate::support::connect_command(2, 127, 0));
    assert_eq!(refusal.expect_err("not yet").status, Status::COMMAND_SEQUENCE_ERROR.no_retry());
    target.queue_closed(cntlid, 1);
    assert!(target.status(cntlid).ready);
    target.connect_io("h", cntlid, 2);
}

#[test]
fn a_shutdown_is_complete_when_the_io_queues_are_closed() {
    let mut target = Target::of(Kind::Io);
    for how in [Shutdown::Normal, Shutdown::Abrupt] {
        let cntlid = target.enabled("h");
        target.connect_io("h", cntlid, 1);
        let closing = target.configure(cntlid, Configuration::ENABLE.with_shutdown(how));
        assert_eq!(closing, [(QueueId { cntlid, qid: 1 }, CloseReason::Shutdown)]);
        assert_eq!(target.status(cntlid).shutdown, ShutdownStatus::Occurring);
        target.queue_closed(cntlid, 1);
        assert_eq!(target.status(cntlid).shutdown, ShutdownStatus::Complete);
        let refusal = target.try_connect("h", cntlid, &crate::support::connect_command(1, 127, 0));
        refusal.expect_err("it is shut down");
        target.configure(cntlid, Configuration::default());
        assert_eq!(target.status(cntlid).encode(), 0);
        target.configure(cntlid, Configuration::ENABLE);
        assert!(target.status(cntlid).ready, "and may begin again");
    }
}

#[test]
fn a_reset_forgets_what_the_host_has_set() {
    let mut target = Target::of(Kind::Io);
    let cntlid = target.enabled("h");
    let queues = nvme::feature::FeatureId::NUMBER_OF_QUEUES;
    assert_eq!(target.set_feature(cntlid, queues, 0x0001_0001), Ok(0x0001_0001));
    target.configure(cntlid, Configuration::default());
    target.configure(cntlid, Configuration::ENABLE);
    target.connect_io("h", cntlid, 3);
}
