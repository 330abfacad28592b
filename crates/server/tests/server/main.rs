//! The server from outside: raw sockets that speak bytes.

mod bad_input;
mod exports;
mod files;
mod life;
mod load;
mod mount;
mod peer;
mod reload;
mod replay;
mod rpcbind;
