//! Counts the system calls of the two ends of a connection under `strace`, and how many bytes they
//! receive into memory from which they are copied.
//!
//! The load runs in a child process, which has both ends. `strace` distinguishes their threads by
//! name. `getppid`, which nothing else calls, marks where the count begins and ends.

use std::collections::HashMap;
use std::process::Command;

/// Marks where the count begins and ends.
pub fn mark() {
    let _ = rustix::process::getppid();
}

/// What the threads of one end did during the count.
#[derive(Debug, Default)]
pub struct Side {
    /// How often each system call was called.
    pub calls: HashMap<String, u64>,
    /// Bytes that were received into memory of the loop, from which they are copied.
    pub copied: u64,
}

impl Side {
    /// How often a system call was called.
    #[must_use]
    pub fn count(&self, call: &str) -> u64 {
        self.calls.get(call).copied().unwrap_or(0)
    }

    /// All calls.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.calls.values().sum()
    }
}

/// Runs this program again under `strace`, with an environment that makes it the load. Returns what
/// the threads with each name did between the marks; `copied` says of a whole line of a receive how
/// many of its bytes are copied.
///
/// # Panics
/// If there is no `strace`, or the load fails.
#[must_use]
pub fn traced(environment: (&str, &str), threads: [&str; 2], copied: fn(&str) -> u64) -> [Side; 2] {
    let output = Command::new("strace")
        .args(["-f", "-Y", "-qq", "-s", "24", "-e", "abbrev=none", "-e", "signal=none", "-o", "/dev/stdout"])
        .arg(std::env::current_exe().expect("the program has a name"))
        .env(environment.0, environment.1)
        .output()
        .expect("strace can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace = String::from_utf8_lossy(&output.stdout);
    let mut sides = [Side::default(), Side::default()];
    let mut marks = 0;
    let mut unfinished: HashMap<String, String> = HashMap::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once("> ") else { continue };
        let Some((_, comm)) = thread.split_once('<') else { continue };
        let call = call.trim_start();
        let is_mark = call.starts_with("getppid");
        marks += u32::from(is_mark);
        let Some(at) = threads.iter().position(|name| comm.starts_with(name)) else { continue };
        let Some(side) = sides.get_mut(at) else { continue };
        let is_counted = marks == 1 && !is_mark;
        let whole = if let Some(begin) = call.strip_suffix("<unfinished ...>") {
            unfinished.insert(comm.to_owned(), begin.to_owned());
            if is_counted {
                count(side, call);
            }
            continue;
        } else if call.starts_with("<...") {
            let rest = call.split_once("resumed>").map_or("", |(_, rest)| rest);
            unfinished.remove(comm).unwrap_or_default() + rest
        } else {
            if is_counted {
                count(side, call);
            }
            call.to_owned()
        };
        if marks == 1 {
            side.copied += copied(&whole);
        }
    }
    assert_eq!(marks, 2, "the marks of {}", environment.1);
    sides
}

fn count(side: &mut Side, call: &str) {
    let name = call.split('(').next().unwrap_or_default();
    *side.calls.entry(name.to_owned()).or_default() += 1;
}

/// What a call returned, if that is a number of bytes.
#[must_use]
pub fn returned(call: &str) -> u64 {
    call.rsplit_once("= ").and_then(|(_, got)| got.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// The bytes that a `readv` received into its last piece, which receives what is not received in
/// place; none of another call.
#[must_use]
pub fn in_last_piece(call: &str) -> u64 {
    if !call.starts_with("readv(") {
        return 0;
    }
    let lens: Vec<u64> = call
        .split("iov_len=")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect();
    let in_place: u64 = lens.iter().take(lens.len().saturating_sub(1)).sum();
    returned(call).saturating_sub(in_place)
}
