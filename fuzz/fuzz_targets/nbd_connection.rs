//! A client of NBD: its handshake and its requests.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nbd::fuzzing::connection(bytes));
