//! A record as a call.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    rpc::fuzzing::call(bytes);
    drc::fuzzing::call(bytes);
});
