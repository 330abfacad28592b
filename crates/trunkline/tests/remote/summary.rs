//! The summary that `cp` prints to standard error after it has copied something.

/// Standard error without the summary, if there is one.
pub(crate) fn without_summary(said: &str) -> String {
    said.split_inclusive('\n').filter(|line| !is_summary(line)).collect()
}

/// Whether a line is a summary, as in `7 files and directories, 0.001 GB in 0.1 s (0.010 GB/s)`.
pub(crate) fn is_summary(line: &str) -> bool {
    line.contains(" files and directories, ") && line.contains(" GB/s)") && !line.starts_with("error: ")
}
