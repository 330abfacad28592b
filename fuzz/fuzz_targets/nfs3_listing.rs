//! Results of READDIR and READDIRPLUS, written entry by entry under bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nfs3::fuzzing::listing(bytes));
