//! The output of a suite: passed through, and what failed remembered, so that the end of a long run
//! names each failed test and shows its last words.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many lines of one test program's report of failures are remembered: its last.
const LINES_MAX: usize = 80;
/// How many lines of a panic's message are remembered: its first.
const PANIC_LINES_MAX: usize = 8;
/// How many lines of all messages of a program's panics are remembered.
const PANICS_LINES_MAX: usize = 40;
/// How many bytes of a line are remembered.
const LINE_BYTES_MAX: usize = 400;
/// How long the reader has for what is left in the pipe after the suite has ended. A process that
/// outlives the suite may hold the pipe open for good.
const REST_MAX: Duration = Duration::from_secs(2);

/// What was said of one failed test program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Failure {
    /// The program, as cargo names it.
    pub(super) program: String,
    /// Its failed tests; if none failed, those that were still running after a minute.
    pub(super) tests: Vec<String>,
    /// The last lines of its report.
    pub(super) report: VecDeque<String>,
    /// The first lines of each panic of its report, which processes of the test may have followed
    /// with more output than the report keeps.
    pub(super) panics: Vec<String>,
}

/// Reads lines of cargo and of test programs.
#[derive(Debug, Default)]
pub(super) struct Reader {
    program: String,
    /// Whether the lines are those of a report of failures.
    reporting: bool,
    failures: Vec<Failure>,
    /// How many more lines may be the message of the panic that was reported last.
    panic_left: usize,
    /// The last lines, whatever they are.
    last: VecDeque<String>,
    /// Tests that the program named as slow and that have not ended.
    slow: Vec<String>,
    /// The test that runs alone and whose output is passed on as it comes: its result follows on a
    /// line of its own, and the report of failures has none of its output.
    uncaptured: Option<String>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        remember(&mut self.last, line);
        let words = line.trim();
        if let Some(program) = words.strip_prefix("Running ") {
            self.program = program.to_owned();
            self.reporting = false;
        } else if let Some(crate_name) = words.strip_prefix("Doc-tests ") {
            self.program = format!("doc tests of {crate_name}");
            self.reporting = false;
        } else if words.starts_with("test result: ") {
            self.reporting = false;
        } else if words == "failures:" {
            self.reporting = true;
        }
        let test = words.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        if let Some(test) = test {
            let test = test.to_owned();
            self.failure().tests.push(test);
        }
        if let Some(rest) = words.strip_prefix("test ") {
            if let Some(test) = rest.strip_suffix(" has been running for over 60 seconds") {
                self.slow.push(test.to_owned());
            } else if let Some((test, _)) = rest.split_once(" ... ") {
                self.slow.retain(|slow| slow != test);
            }
        }
        self.uncaptured_test(words);
        if self.reporting {
            self.report(line);
        }
    }

    /// Keeps the last lines of a failed test whose output is not captured.
    fn uncaptured_test(&mut self, words: &str) {
        if let Some((test, result)) = words.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            let ended = matches!(result, "ok" | "FAILED") || result.starts_with("ignored");
            self.uncaptured = (!ended).then(|| test.to_owned());
        } else if matches!(words, "ok" | "FAILED")
            && let Some(test) = self.uncaptured.take()
            && words == "FAILED"
        {
            let last = std::mem::take(&mut self.last);
            self.failure().tests.push(test);
            last.iter().for_each(|line| self.report(line));
        }
    }

    /// Adds a line to what is known of the failure of the program that runs now.
    fn report(&mut self, line: &str) {
        if line.contains(" panicked at ") {
            self.panic_left = PANIC_LINES_MAX;
        } else if line.trim().is_empty() || line.starts_with("note: run with") {
            self.panic_left = 0;
        }
        let is_message = self.panic_left > 0;
        self.panic_left = self.panic_left.saturating_sub(1);
        let failure = self.failure();
        remember(&mut failure.report, line);
        if is_message && failure.panics.len() < PANICS_LINES_MAX {
            failure.panics.push(shortened(line));
        }
    }

    /// What is known of a suite that has failed. One that was ended, or whose program crashed, has
    /// named no failed test: then its slow tests and its last lines are all there is.
    fn failures(&mut self) -> Vec<Failure> {
        if self.failures.is_empty() && !self.last.is_empty() {
            let (tests, report) = (std::mem::take(&mut self.slow), std::mem::take(&mut self.last));
            let program = self.program.clone();
            self.failures.push(Failure { program, tests, report, panics: Vec::new() });
        }
        std::mem::take(&mut self.failures)
    }

    /// What is known of the failure of the program that runs now.
    fn failure(&mut self) -> &mut Failure {
        if self.failures.last().is_none_or(|last| last.program != self.program) {
            self.failures.push(Failure { program: self.program.clone(), ..Failure::default() });
        }
        self.failures.last_mut().expect("one was pushed")
    }
}

/// Adds a line to the last ones.
fn remember(lines: &mut VecDeque<String>, line: &str) {
    if lines.len() == LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(shortened(line));
}

fn shortened(line: &str) -> String {
    line[..line.floor_char_boundary(LINE_BYTES_MAX)].to_owned()
}

/// A suite's output that is being passed through.
pub(super) struct Output {
    reader: Arc<Mutex<Reader>>,
    thread: JoinHandle<()>,
}

impl Output {
    /// Passes what comes out of a pipe to standard output.
    pub(super) fn pass_through(pipe: PipeReader) -> Self {
        let reader = Arc::new(Mutex::new(Reader::default()));
        let shared = Arc::clone(&reader);
        let thread = std::thread::spawn(move || copy(pipe, std::io::stdout(), &shared));
        Self { reader, thread }
    }

    /// What failed, after the suite has ended without success.
    pub(super) fn failures(self) -> Vec<Failure> {
        let start = Instant::now();
        while !self.thread.is_finished() && start.elapsed() < REST_MAX {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).failures()
    }
}

/// Copies each line as soon as it is there. A line that is very long is copied in pieces.
fn copy(from: impl Read, mut to: impl Write, reader: &Mutex<Reader>) {
    const PIECE_MAX: u64 = 64 * 1024;
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut from).take(PIECE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // A reader of standard output that has gone away is no reason to stop the suite, which
        // would block as soon as the pipe is full.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.line(text.trim_end_matches(['\n', '\r']));
    }
}

/// Prints what failed in a suite.
pub(super) fn show(suite: &str, failures: &[Failure]) {
    for failure in failures {
        println!("\n=== {suite}: failed in {}", failure.program);
        failure.report.iter().for_each(|line| println!("{line}"));
    }
    for failure in failures {
        for test in &failure.tests {
            println!("=== {suite}: failed: {test}   ({})", failure.program);
        }
        failure.panics.iter().for_each(|line| println!("    {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "     Running tests/a.rs (target/debug/deps/a-1)
running 2 tests
test fine ... ok
test broken::one ... FAILED

failures:

---- broken::one stdout ----
thread panicked: left is not right

failures:
    broken::one

test result: FAILED. 1 passed; 1 failed
     Running tests/b.rs (target/debug/deps/b-2)
test fine ... ok
test result: ok. 1 passed
";

    #[test]
    fn what_failed_is_told_with_its_report_and_all_is_passed_through() {
        let (reader, mut out) = (Mutex::new(Reader::default()), Vec::new());
        copy(RUN.as_bytes(), &mut out, &reader);
        assert_eq!(out, RUN.as_bytes());
        let failures = reader.into_inner().expect("nobody panicked").failures;
        let [failure] = failures.as_slice() else { panic!("{failures:?}") };
        assert_eq!(failure.program, "tests/a.rs (target/debug/deps/a-1)");
        assert_eq!(failure.tests, ["broken::one"]);
        assert!(failure.report.iter().any(|line| line.contains("left is not right")), "{failure:?}");
        assert!(!failure.report.iter().any(|line| line.contains("test result")), "{failure:?}");
    }

    #[test]
    fn a_test_whose_output_is_not_captured_is_told_with_its_last_lines() {
        let run = "     Running tests/a.rs (target/debug/deps/a-1)
test fine ... okay, it says
ok
test broken ... ok so far
thread panicked: left is not right
FAILED
test later ... it says more
ok

failures:

failures:
    broken

test result: FAILED. 2 passed; 1 failed
";
        let (reader, mut out) = (Mutex::new(Reader::default()), Vec::new());
        copy(run.as_bytes(), &mut out, &reader);
        let failures = reader.into_inner().expect("nobody panicked").failures;
        let [failure] = failures.as_slice() else { panic!("{failures:?}") };
        assert_eq!(failure.tests, ["broken"]);
        assert!(failure.report.iter().any(|line| line.contains("left is not right")), "{failure:?}");
        assert!(!failure.report.iter().any(|line| line.contains("says more")), "{failure:?}");
    }

    #[test]
    fn the_message_of_a_panic_is_kept_however_much_follows_it() {
        let mut run = "test broken ... FAILED\n\nfailures:\n\n---- broken stdout ----\n\n\
            thread 'broken' panicked at src/lib.rs:1:1:\nleft is\nnot right\n\
            note: run with `RUST_BACKTRACE=1`\n--- output of a program ---\n"
            .to_owned();
        (0..LINES_MAX).for_each(|at| run.push_str(&format!("line {at}\n")));
        let (reader, mut out) = (Mutex::new(Reader::default()), Vec::new());
        copy(run.as_bytes(), &mut out, &reader);
        let failures = reader.into_inner().expect("nobody panicked").failures;
        let panics = &failures[0].panics;
        assert_eq!(panics, &["thread 'broken' panicked at src/lib.rs:1:1:", "left is", "not right"]);
    }

    #[test]
    fn a_long_report_keeps_its_end_and_bytes_that_are_no_text_do_no_harm() {
        let mut run = b"test x ... FAILED\nfailures:\n".to_vec();
        (0..1000).for_each(|at| run.extend_from_slice(format!("line {at}\n").as_bytes()));
        run.extend_from_slice(&[0xff; 2 * 64 * 1024]);
        run.extend_from_slice("\n".as_bytes());
        run.extend_from_slice("é".repeat(LINE_BYTES_MAX).as_bytes());
        let (reader, mut out) = (Mutex::new(Reader::default()), Vec::new());
        copy(run.as_slice(), &mut out, &reader);
        assert_eq!(out, run);
        let failures = reader.into_inner().expect("nobody panicked").failures;
        assert_eq!(failures[0].report.len(), LINES_MAX);
        assert!(failures[0].report.iter().any(|line| line == "line 999"));
        assert!(failures[0].report.iter().all(|line| line.len() <= LINE_BYTES_MAX));
    }

    #[test]
    fn a_program_that_was_ended_is_told_with_its_slow_tests_and_its_last_lines() {
        let run = "     Running tests/a.rs (target/debug/deps/a-1)
test slow has been running for over 60 seconds
test slower has been running for over 60 seconds
test slow ... ok
error: test failed (signal: 6, SIGABRT)
";
        let (reader, mut out) = (Mutex::new(Reader::default()), Vec::new());
        copy(run.as_bytes(), &mut out, &reader);
        let failures = reader.into_inner().expect("nobody panicked").failures();
        let [failure] = failures.as_slice() else { panic!("{failures:?}") };
        assert_eq!(failure.tests, ["slower"]);
        assert!(failure.report.back().is_some_and(|line| line.contains("SIGABRT")), "{failure:?}");
    }
}
