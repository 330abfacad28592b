//! XDR items read in every way the reader offers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| xdr::fuzzing::read_everything(bytes));
