//! The NBD server as its clients see it, in front of volumes and of files.

mod client;
mod file;
mod server;
