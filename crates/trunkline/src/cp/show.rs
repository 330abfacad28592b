//! Shows the progress of a copy on a terminal, and a summary at its end.

use ::copy::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(100);
/// The rate and the time left are shown once everything to copy has been counted.
const WHOLE: &str = "[{bar:24}] {percent:>3} % {decimal_bytes} of {decimal_total_bytes}  \
    {decimal_bytes_per_sec}  {eta} left  {msg}";
const COUNTING: &str = "{spinner} {decimal_bytes}  {decimal_bytes_per_sec}  {msg}";

/// A progress bar that follows a copy until it is finished.
pub struct Bar {
    running: Option<(Sender<()>, JoinHandle<()>)>,
    progress: Arc<Progress>,
    started: Instant,
}

impl Bar {
    /// Creates a progress bar, visible or not.
    pub fn start(shown: bool, progress: &Arc<Progress>) -> Self {
        let (sender, stop) = channel();
        let of = Arc::clone(progress);
        let follow = move || {
            let bar = ProgressBar::new(0);
            style(&bar, COUNTING);
            let mut counted = false;
            while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(STEP) {
                if !counted && of.counted.load(Relaxed) {
                    counted = true;
                    bar.set_length(of.bytes_found.load(Relaxed));
                    style(&bar, WHOLE);
                }
                let done = of.files_done.load(Relaxed) + of.files_skipped.load(Relaxed);
                let failed = of.failed.load(Relaxed);
                let total =
                    if counted { format!(" of {}", of.files_found.load(Relaxed)) } else { String::new() };
                let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
                bar.set_message(format!("{done}{total} files{failed}"));
                bar.set_position(of.bytes_done.load(Relaxed) + of.bytes_skipped.load(Relaxed));
                bar.tick();
            }
            bar.finish_and_clear();
        };
        // If the thread cannot be started, the copy runs without a bar.
        let thread = shown.then(|| std::thread::Builder::new().name("tl-bar".to_owned()).spawn(follow));
        let running = thread.and_then(Result::ok).map(|thread| (sender, thread));
        Self { running, progress: Arc::clone(progress), started: Instant::now() }
    }

    /// Removes the bar. If anything was copied and a `summary` is wanted, prints how much was
    /// copied, and how fast.
    pub fn finish(self, summary: bool) {
        if let Some((stop, thread)) = self.running {
            drop(stop);
            // A panic in the thread has already been reported.
            let _ = thread.join();
        }
        let done = self.progress.files_done.load(Relaxed) + self.progress.files_skipped.load(Relaxed);
        if !summary || done == 0 {
            return;
        }
        let of = &self.progress;
        let seconds = self.started.elapsed().as_secs_f64();
        let gigabytes = of.bytes_done.load(Relaxed) as f64 / 1e9;
        let skipped = match of.files_skipped.load(Relaxed) {
            0 => String::new(),
            skipped => format!(", {skipped} were there already"),
        };
        crate::output::print_to_stderr(&format!(
            "{} files and directories, {gigabytes:.3} GB in {seconds:.1} s ({:.3} GB/s){skipped}\n",
            of.files_done.load(Relaxed),
            gigabytes / seconds.max(1e-9),
        ));
    }
}

fn style(bar: &ProgressBar, template: &str) {
    // The templates are constants that are known to parse.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("##-"));
    }
}
