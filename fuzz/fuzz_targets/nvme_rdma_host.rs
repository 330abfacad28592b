//! Messages of NVMe/RDMA from a controller.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nvme::fuzzing::rdma_host(bytes));
