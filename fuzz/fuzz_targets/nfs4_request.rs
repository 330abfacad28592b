//! A compound of a client, whole, and with the data of a WRITE beside it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nfs4::fuzzing::request(bytes));
