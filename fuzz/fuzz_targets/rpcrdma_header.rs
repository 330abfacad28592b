//! A transport header of RPC-over-RDMA.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::header(bytes));
