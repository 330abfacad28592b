//! A command or a completion of NVMe.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nvme::fuzzing::command(bytes));
