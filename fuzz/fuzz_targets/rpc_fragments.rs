//! A byte stream as fragments of records.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rpc::fuzzing::fragments(bytes));
