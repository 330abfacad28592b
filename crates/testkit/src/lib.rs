//! What the test suites share: processes that end with their test, deadlines, free ports, servers,
//! RPC records, a browser.
//!
//! A test that starts something ends it in any case: [`Process`] and [`TempDir`] clean up when
//! dropped, and a child also ends when the test program itself is killed. Nothing here sleeps for a
//! fixed time: a test waits for an event, and names an event that never happened.
#![forbid(unsafe_code)]

mod browser;
mod counters;
mod cpu;
mod deadline;
mod failure_reporter;
mod outcomes;
mod ports;
mod process;
mod program;
pub mod records;
mod relay;
pub mod server_process;
pub mod strace;

pub use browser::Browser;
pub use counters::{open_fds, open_fds_of, resident_bytes_of, threads_of};
pub use cpu::stay_on_one_cpu;
pub use deadline::Deadline;
pub use outcomes::{ExpectedFailure, Outcome, Outcomes};
pub use ports::{free_port, free_port_on};
pub use process::{Process, Stream};
pub use program::{copy_program, find_program, require_program};
pub use relay::Relay;
pub use server_process::ServerProcess;
pub use tempfile::TempDir;

/// A new empty directory, removed when dropped.
///
/// # Panics
/// If the directory for temporary files cannot be written.
#[must_use]
pub fn temp_dir(label: &str) -> TempDir {
    match tempfile::Builder::new().prefix(&format!("trunkline-{label}-")).tempdir() {
        Ok(dir) => dir,
        Err(error) => panic!("cannot make a temporary directory for {label}: {error}"),
    }
}
