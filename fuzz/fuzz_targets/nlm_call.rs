//! Arguments of the procedure of NLM or NSM that the first byte names.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nlm::fuzzing::call(bytes));
