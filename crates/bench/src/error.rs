//! Why an experiment cannot be run, or not be believed.

/// What stops an experiment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The experiment file makes no sense.
    #[error("cannot use {file}")]
    Experiment {
        /// The file.
        file: String,
        /// Where and why.
        #[source]
        cause: ExperimentError,
    },
    /// The embedded group does not start.
    #[error("cannot start the embedded group of {nodes} nodes")]
    Embedded {
        /// How many nodes.
        nodes: usize,
        /// Why.
        #[source]
        cause: Box<server::Error>,
    },
    /// A route cannot be mounted.
    #[error("cannot use the route {route}")]
    Route {
        /// The route's name.
        route: String,
        /// Why.
        #[source]
        cause: Box<client::Error>,
    },
    /// A file of the experiment cannot be made.
    #[error("cannot prepare the files of the experiment")]
    Prepare(#[source] Box<client::Error>),
    /// A run failed midway.
    #[error("{route}, {workload}: {reason}")]
    Run {
        /// Which route.
        route: String,
        /// Which workload.
        workload: String,
        /// What happened.
        reason: String,
    },
    /// The limit cannot be measured.
    #[error("cannot calibrate the limit")]
    Calibrate(#[source] Box<crate::limit::Error>),
    /// The limit of RDMA could be measured before, and cannot any more.
    #[error("cannot calibrate the limit of RDMA")]
    CalibrateRdma(#[source] Box<crate::limit::verbs::Error>),
    /// A file cannot be written.
    #[error("cannot write {file}")]
    Write {
        /// Which file.
        file: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

/// What is wrong with an experiment file.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// It is not the TOML that docs/EXPERIMENTS.md describes.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A value makes no sense.
    #[error("{0}")]
    Value(String),
}

impl Error {
    pub(crate) fn prepare(cause: client::Error) -> Self {
        Self::Prepare(Box::new(cause))
    }
}

/// The result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
