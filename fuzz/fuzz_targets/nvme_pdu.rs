//! A PDU of NVMe/TCP.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nvme::fuzzing::pdu(bytes));
