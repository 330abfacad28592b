//! A record as a reply.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rpc::fuzzing::reply(bytes));
