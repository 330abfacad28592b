//! Progress bars, if a terminal shows them, who watches, and the request to stop.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::{Error, Result};
use crate::stop::Stop;
use crate::watch::Watch;

/// A bar for the current stage.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    stop: Stop,
    watch: Watch,
}

impl Progress {
    /// Creates a progress bar on standard error, or a hidden one.
    #[must_use]
    pub fn new(shown: bool, stop: Stop, watch: Watch) -> Self {
        let bar = if shown { ProgressBar::new(0) } else { ProgressBar::hidden() };
        // The template is a constant that is known to parse.
        if let Ok(style) = ProgressStyle::with_template("{msg:28} [{bar:30}] {percent:>3} %  {elapsed}") {
            bar.set_style(style.progress_chars("##-"));
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, stop, watch }
    }

    /// Begins a stage with this many steps.
    pub fn stage(&self, name: &str, steps: u64) {
        self.bar.reset();
        self.bar.set_length(steps);
        self.bar.set_message(name.to_owned());
    }

    /// Records that some steps are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// The request to stop.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Who watches the experiment.
    #[must_use]
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Fails if the experiment is to stop.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn go_on(&self) -> Result<()> {
        if self.stop.is_requested() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
