//! Messages of strangers to both ends of NVMe authentication.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| chap::fuzzing::machines(bytes));
