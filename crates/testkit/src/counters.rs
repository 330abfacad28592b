//! The resources of a process: descriptors, memory, threads. Read from `/proc`.

use std::fs;

/// The number of file descriptors that this process has open, without the one that reads the list.
#[must_use]
pub fn open_fds() -> usize {
    open_fds_of(std::process::id()).saturating_sub(1)
}

/// The number of file descriptors that a process has open.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn open_fds_of(pid: u32) -> usize {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(entries) => entries.count(),
        Err(error) => panic!("cannot list the descriptors of process {pid}: {error}"),
    }
}

/// The resident memory of a process, in bytes.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn resident_bytes_of(pid: u32) -> u64 {
    status_number(pid, "VmRSS:") * 1024
}

/// The number of threads of a process.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn threads_of(pid: u32) -> u64 {
    status_number(pid, "Threads:")
}

/// The number after a field's name in `/proc/PID/status`.
fn status_number(pid: u32, field: &str) -> u64 {
    let status = match fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => status,
        Err(error) => panic!("cannot read the status of process {pid}: {error}"),
    };
    let number = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("the status of process {pid} has no {field}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_descriptors() {
        let pid = std::process::id();
        assert!(resident_bytes_of(pid) > 0);
        assert!(threads_of(pid) >= 1);
        assert!(open_fds() >= 3);
    }
}
