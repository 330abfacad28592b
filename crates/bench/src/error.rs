//! Why an experiment cannot be run, or its results cannot be trusted.

/// An error that ends an experiment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The experiment file is invalid.
    #[error("cannot use {file}")]
    Experiment {
        /// The file.
        file: String,
        /// The position and the reason.
        #[source]
        cause: ExperimentError,
    },
    /// A fio job file cannot be run.
    #[error("cannot use {file}")]
    JobFile {
        /// The file.
        file: String,
        /// The position, the reason and what to do.
        #[source]
        cause: fio::Error,
    },
    /// What the command line asks for cannot be done.
    #[error("{sentence}")]
    Refused {
        /// The error.
        sentence: String,
        /// The cause.
        #[source]
        cause: Box<ExperimentError>,
        /// What to do.
        advice: String,
    },
    /// The files need more room than a server has.
    #[error("{route}: there is no room for the files: they need {needed_bytes} bytes, {free_bytes} are free")]
    NoRoom {
        /// The route's name.
        route: String,
        /// The bytes of all files.
        needed_bytes: u64,
        /// The bytes that are free for the user.
        free_bytes: u64,
    },
    /// The embedded group cannot be started.
    #[error("cannot start the embedded group of {nodes} nodes")]
    Embedded {
        /// The number of nodes.
        nodes: usize,
        /// The cause.
        #[source]
        cause: Box<server::Error>,
    },
    /// A route cannot be mounted.
    #[error("cannot use the route {route}")]
    Route {
        /// The route's name.
        route: String,
        /// The cause.
        #[source]
        cause: Box<client::Error>,
    },
    /// The embedded target cannot be started.
    #[error("cannot start the embedded NVMe/TCP target")]
    Target(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A volume cannot be attached, or read and written.
    #[error("cannot use the volume of the route {route}")]
    Volume {
        /// The route's name.
        route: String,
        /// The cause.
        #[source]
        cause: Box<initiator::Error>,
    },
    /// A directory that is measured, or a file in it, cannot be used.
    #[error("{route}: cannot {doing} {path}")]
    Directory {
        /// The route's name.
        route: String,
        /// The directory or file.
        path: String,
        /// What cannot be done: `write`.
        doing: &'static str,
        /// The cause.
        #[source]
        cause: std::io::Error,
    },
    /// A file of the experiment cannot be created.
    #[error("cannot prepare the files of the experiment")]
    Prepare(#[source] Box<client::Error>),
    /// A run failed.
    #[error("{route}, {workload}: {reason}")]
    Run {
        /// The name of the route.
        route: String,
        /// The name of the workload.
        workload: String,
        /// The reason.
        reason: String,
    },
    /// The limit cannot be measured.
    #[error("cannot calibrate the limit")]
    Calibrate(#[source] Box<crate::limit::Error>),
    /// The limit of RDMA cannot be measured again, although it could be before.
    #[error("cannot calibrate the limit of RDMA")]
    CalibrateRdma(#[source] Box<crate::limit::verbs::Error>),
    /// The experiment was stopped ([`crate::Stop`]), and its files are removed.
    #[error("stopped; the files of the experiment are removed")]
    Stopped,
    /// The experiment was stopped, but its files cannot be removed.
    #[error("stopped; the directory {directory} remains")]
    StoppedWithFiles {
        /// The name of the directory in the export, or the whole path of a directory here.
        directory: String,
        /// The cause.
        #[source]
        cause: Box<Error>,
    },
    /// A file cannot be written.
    #[error("cannot write {file}")]
    Write {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        cause: std::io::Error,
    },
}

/// Ends the reason of [`Error::Run`] where a load that overwrites its files finds no room. Reasons
/// may come from other machines, as text.
const NO_ROOM_LEFT: &str = "no room is left for what the load overwrites";

/// The reason why an operation of a load failed, with [`NO_ROOM_LEFT`] if that is the cause.
pub(crate) fn reason(said: String, lacks_room: bool) -> String {
    if lacks_room { format!("{said}: {NO_ROOM_LEFT}") } else { said }
}

/// Whether an error of the system says that there is no room.
pub(crate) fn lacks_room(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Why an experiment file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// The file is not TOML as described in docs/EXPERIMENTS.md.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A value is invalid.
    #[error("{0}")]
    Value(String),
}

impl Error {
    /// Whether a load found no room for what it overwrites.
    #[must_use]
    pub fn is_without_room(&self) -> bool {
        matches!(self, Self::Run { reason, .. } if reason.contains(NO_ROOM_LEFT))
    }

    pub(crate) fn refused(
        sentence: impl Into<String>,
        cause: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let cause = Box::new(ExperimentError::Value(cause.into()));
        Self::Refused { sentence: sentence.into(), cause, advice: advice.into() }
    }

    pub(crate) fn directory(
        route: &str,
        path: &std::path::Path,
        doing: &'static str,
        cause: std::io::Error,
    ) -> Self {
        Self::Directory { route: route.to_owned(), path: path.display().to_string(), doing, cause }
    }

    pub(crate) fn prepare(cause: client::Error) -> Self {
        Self::Prepare(Box::new(cause))
    }
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_load_without_room_is_told_from_other_failures() {
        let run = |errno: Errno| {
            let error = std::io::Error::from(errno);
            let reason = reason(format!("file 3 at byte 4096: {error}"), lacks_room(&error));
            let run = Error::Run { route: "r".into(), workload: "w".into(), reason };
            (run.to_string(), run.is_without_room())
        };
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            let (said, without_room) = run(errno);
            assert!(said.starts_with("r, w: file 3 at byte 4096: ") && without_room, "{said}");
        }
        let (said, without_room) = run(Errno::IO);
        assert!(said.ends_with("(os error 5)") && !without_room, "{said}");
        assert!(!Error::Stopped.is_without_room());
    }
}
