//! Faults between our NVMe/TCP host (`block attach`) and our target, in one process and in a pair
//! of two: those of `target_faults`, and what becomes of processes.

use crate::bad_links::links;
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_target::run;
use crate::our_target::OurTarget;
use crate::target_faults::{Fault, Step, of_every_target, under_faults};
use crate::{alone, lab};
use rustix::process::Signal;

#[test]
fn nothing_is_lost_or_undone_by_faults_of_our_target_under_our_host() {
    const NAME: &str = "our_target_faults::nothing_is_lost_or_undone_by_faults_of_our_target_under_our_host";
    runs(NAME, OurTarget::in_one_process, of_one_process);
}

#[test]
fn nothing_is_lost_or_undone_by_faults_of_our_pair_under_our_host() {
    const NAME: &str = "our_target_faults::nothing_is_lost_or_undone_by_faults_of_our_pair_under_our_host";
    runs(NAME, OurTarget::pair, of_a_pair);
}

/// Runs the test of this name in a guest, and there a target with its faults.
#[track_caller]
fn runs(name: &str, start: fn() -> OurTarget, faults: fn() -> Vec<Fault<OurTarget>>) {
    if is_in_guest() {
        let mut target = start();
        under_faults(name, &mut target, &faults());
        return target.end();
    }
    let _turn = alone();
    links();
    passes_in(lab().client(), name);
}

/// Of a process: A's, or that of both.
fn fault(name: &'static str, strike: fn(&mut OurTarget), mend: fn(&mut OurTarget)) -> Fault<OurTarget> {
    Fault { name, strike: Step::Do(strike), mend: Step::Do(mend), is_loss: true }
}

fn moves() -> Fault<OurTarget> {
    let moves = |target: &mut OurTarget| target.give_to("B");
    Fault {
        is_loss: false,
        ..fault("the volume moves to the other node", moves, |target| target.give_to("A"))
    }
}

/// Node B has taken the volume, and node A comes back and gets it again.
fn owner_returns(target: &mut OurTarget) {
    target.wait_for_owner("B");
    target.start_again(0);
    target.give_to("A");
}

fn of_one_process() -> Vec<Fault<OurTarget>> {
    let mut faults = of_every_target();
    faults.extend([
        moves(),
        fault(
            "the process stands still",
            |target| target.signal(0, Signal::STOP),
            |target| target.signal(0, Signal::CONT),
        ),
        fault(
            "the process is killed and started again",
            |target| target.signal(0, Signal::KILL),
            |target| target.start_again(0),
        ),
    ]);
    faults
}

fn of_a_pair() -> Vec<Fault<OurTarget>> {
    let mut faults = of_every_target();
    faults.extend([
        moves(),
        fault(
            "the other node's process is killed and started again",
            |target| target.signal(1, Signal::KILL),
            |target| target.start_again(1),
        ),
        fault(
            "the owner's process is killed, and the other node takes the volume",
            |target| target.signal(0, Signal::KILL),
            owner_returns,
        ),
        fault(
            "the owner's process hangs, and the other node takes the volume",
            |target| target.signal(0, Signal::STOP),
            owner_returns,
        ),
        // What the device holds of the killed process must not land after what is written then.
        fault(
            "the owner's process is killed while its device stands still",
            |target| {
                run("dmsetup suspend --noflush --nolockfs store");
                target.signal(0, Signal::KILL);
            },
            |target| {
                run("dmsetup resume store");
                owner_returns(target);
            },
        ),
    ]);
    faults
}
