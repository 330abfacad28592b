//! Arguments of the procedure that the first byte names.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nfs3::fuzzing::call(bytes));
