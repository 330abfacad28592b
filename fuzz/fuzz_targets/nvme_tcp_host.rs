//! A stream of PDUs of NVMe/TCP from a controller.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nvme::fuzzing::tcp_host(bytes));
