//! Tests the server from outside, with raw sockets.

mod bad_input;
mod exports;
mod files;
mod held;
mod life;
mod load;
mod mount;
mod nfs4;
mod nlm;
mod peer;
mod reload;
mod replay;
mod rpcbind;
