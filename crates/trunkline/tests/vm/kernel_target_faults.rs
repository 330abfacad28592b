//! Faults between our NVMe/TCP host (`block attach`) and the Linux kernel's target: those of
//! `target_faults`, and what only that target has.

use crate::bad_links::links;
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_target::KernelTarget;
use crate::target_faults::{Fault, of_every_target, under_faults};
use crate::{alone, lab};

#[test]
fn nothing_is_lost_or_undone_by_faults_of_the_kernels_target_under_our_host() {
    const NAME: &str =
        "kernel_target_faults::nothing_is_lost_or_undone_by_faults_of_the_kernels_target_under_our_host";
    if is_in_guest() {
        let mut target = KernelTarget::start("optimized");
        return under_faults("the kernel's target", &mut target, &faults());
    }
    let _turn = alone();
    links();
    passes_in(lab().client(), NAME);
}

fn faults() -> Vec<Fault<KernelTarget>> {
    let mut faults = of_every_target();
    faults.extend([
        Fault::of_scripts(
            "subsystem taken from one port: its controllers end, and it refuses",
            true,
            "closed 1",
            "opened 1",
        ),
        Fault::of_scripts(
            "ANA state of one port inaccessible",
            false,
            "echo inaccessible > $nvmet/ports/2/ana_groups/1/ana_state",
            "echo optimized > $nvmet/ports/2/ana_groups/1/ana_state",
        ),
    ]);
    faults
}
