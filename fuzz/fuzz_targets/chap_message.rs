//! A message of NVMe authentication, and a secret as text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    chap::fuzzing::message(bytes);
    chap::fuzzing::secret(&String::from_utf8_lossy(bytes));
});
