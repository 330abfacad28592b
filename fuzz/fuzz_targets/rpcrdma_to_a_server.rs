//! What a client of RPC-over-RDMA sends to a server.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::to_a_server(bytes));
