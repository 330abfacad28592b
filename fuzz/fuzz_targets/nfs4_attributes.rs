//! Attributes: a bitmap and the values.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nfs4::fuzzing::attributes(bytes));
