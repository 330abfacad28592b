//! Tests a program in a mounted directory while paths and nodes fail: none of its calls may fail,
//! nothing that it has written may be lost, and every read must return the newest data.

use super::history::Store;
use super::program::{self, Program};
use super::testbed::{Fault, FaultTestbed, NODES, Origin};
use std::thread::park_timeout as pass;
use std::time::Duration;

const NAME: &str = "mounted::a_program_in_a_mounted_directory_notices_no_fault";
/// How long no fault lasts before and after each fault.
const UNDISTURBED: Duration = Duration::from_millis(700);

#[test]
fn a_program_in_a_mounted_directory_notices_no_fault() {
    if program::is_asked_for() {
        return;
    }
    under_a_mount(Origin::Anywhere, vec![Fault::Silent, Fault::Kill]);
}

/// The suite `faults-mounted` runs this test, which takes minutes.
#[test]
fn a_program_in_a_mounted_directory_notices_none_of_all_faults_on_any_path() {
    for origin in [Origin::Anywhere, Origin::EachAddress] {
        let faults = Fault::ALL.into_iter().filter(|fault| fault.origin() == origin);
        under_a_mount(origin, faults.flat_map(|fault| [fault; NODES as usize]).collect());
    }
}

/// How long a fault lasts. If no path answers meanwhile, long enough that the system retransmits
/// only rarely.
const fn lasts(fault: Fault) -> Duration {
    match fault {
        Fault::AllGone => Duration::from_secs(10),
        _ => Duration::from_millis(1500),
    }
}

/// Runs the program in a mounted directory while the faults occur one after the other.
fn under_a_mount(origin: Origin, faults: Vec<Fault>) {
    // On its own thread, which moves to the namespace of the client.
    let struck = std::thread::spawn(move || {
        let mut testbed = FaultTestbed::build(Store::ByParts);
        let place = tempfile::tempdir().expect("made");
        let mounted = testbed.mounted_at(place.path(), origin);
        let mut program = Program::start(NAME, "program", [place.path(), &testbed.served()]);
        let filters = faults.iter().any(|fault| fault.filters());
        for (number, fault) in faults.into_iter().enumerate() {
            let path = number % usize::from(NODES);
            // This is no wait for an event: this is how long each part lasts.
            pass(UNDISTURBED);
            let before = program.uncertain();
            testbed.apply(fault, path, lasts(fault));
            println!("{}, path {}", fault.name(), path + 1);
            program.wait_until_all_went_on();
            let uncertain = program.uncertain() - before;
            // A killed process may or may not have done the calls that it had begun.
            assert!(uncertain == 0 || fault.kills(), "{}: {uncertain} in doubt", fault.name());
        }
        pass(UNDISTURBED);
        assert!(testbed.take_stopped() > 0 || !filters, "no segment met a fault");
        let (done, uncertain) = program.stop();
        println!("{uncertain} in doubt; {done}");
        drop(mounted);
    });
    struck.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
