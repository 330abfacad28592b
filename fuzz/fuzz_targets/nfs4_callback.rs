//! A callback, and the same bytes as the reply to one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    nfs4::fuzzing::callback(bytes);
    nfs4::fuzzing::callback_reply(bytes);
});
