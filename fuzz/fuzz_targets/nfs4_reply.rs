//! The reply to a compound; the first byte is the minor version.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nfs4::fuzzing::reply(bytes));
