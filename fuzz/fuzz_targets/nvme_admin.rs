//! Commands on the admin queue of an NVMe controller.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nvme::fuzzing::admin(bytes));
