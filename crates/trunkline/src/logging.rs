//! Writes log messages to standard error.

mod rate_limit;

use crate::error::Error;
use crate::output;
use clap::{ArgAction, Args, ValueEnum};
use std::io;
use tracing_subscriber::filter::FilterExt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry};

/// The environment variable that sets the level if no option does.
const VARIABLE: &str = "TRUNKLINE_LOG";

/// Options for log messages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log messages")]
pub struct LoggingArgs {
    /// Show more log messages: -v info, -vv debug, -vvv trace.
    #[arg(short, long, action = ArgAction::Count, global = true, conflicts_with = "log_level")]
    verbose: u8,
    /// Show messages of this level and above [default: warn, or as set by TRUNKLINE_LOG].
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<Level>,
    /// Format of log messages: text, or json with one object per line.
    #[arg(long, value_name = "FORMAT", global = true, default_value = "text")]
    log_format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl LoggingArgs {
    fn level(&self) -> Option<Level> {
        self.log_level.or(match self.verbose {
            0 => None,
            1 => Some(Level::Info),
            2 => Some(Level::Debug),
            _ => Some(Level::Trace),
        })
    }
}

/// Starts logging. An option overrides the environment variable, which is set for many runs.
pub fn start(args: &LoggingArgs) -> Result<(), Error> {
    let from_environment = || std::env::var(VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let filter = match (args.level(), from_environment()) {
        (Some(level), _) => EnvFilter::new(level.name()),
        (None, None) => EnvFilter::new(Level::Warn.name()),
        (None, Some(text)) => EnvFilter::try_new(&text).map_err(|error| Error::Usage {
            sentence: format!("cannot use {VARIABLE}={text}"),
            cause: error.to_string(),
            advice: format!("{VARIABLE}=info        or server=debug,client=trace"),
        })?,
    };
    // A message that cannot be written is dropped: a complaint would go to the same place.
    let layer = tracing_subscriber::fmt::layer::<Registry>()
        .with_writer(io::stderr)
        .with_ansi(output::stderr_has_colour())
        .log_internal_errors(false);
    let layer = match args.log_format {
        Format::Text => layer.boxed(),
        Format::Json => layer.json().flatten_event(true).boxed(),
    };
    // The level first, so that a message that is not shown does not count.
    let limited = layer.with_filter(filter.and(rate_limit::RateLimit::default()));
    tracing_subscriber::registry().with(limited).init();
    Ok(())
}
