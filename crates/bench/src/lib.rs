//! Experiments: routes compared side by side, each with the limit of the wire.
//!
//! [`run_for_record`] takes an experiment from its calibration to its record: it measures the limit
//! ([`limit`]), starts an embedded group or uses an external server, creates files with a stamp in
//! every 4 KiB, runs each workload on all routes interleaved, compares the files as a whole, and
//! names what binds each result.
//!
//! This crate must not know how a record is shown (that is `report`).
#![forbid(unsafe_code)]

mod binding;
mod calibration;
mod cells;
mod child;
pub mod clients;
mod directory;
mod error;
mod experiment;
mod file_sets;
pub mod files;
mod fio_program;
pub mod fio_servers;
mod group;
pub mod io500;
pub mod job_files;
mod jobs;
pub mod limit;
pub mod machine;
pub mod measure;
mod progress;
mod rdma;
mod remains;
mod room;
mod routes;
mod run;
mod stamps;
mod stop;
mod targets;
mod volume;
mod watch;
mod workload;

pub use directory::counts::DirectoryCounts;
pub use error::{Error, ExperimentError, Result};
pub use experiment::{
    ClientGroup, DirectoryChoice, DirectoryLoad, Engine, EngineChoice, Experiment, RouteSpec, Steps, Target,
    WorkloadSpec,
};
pub use job_files::{JobFiles, Plan};
pub use jobs::{BlockSizes, Order, Window};
pub use remains::{Remains, Remnant};
pub use run::{Measured, MeasuredJobs, RunOptions, default_record, run_for_record, run_for_results};
pub use stop::Stop;
pub use targets::{is_target, is_target_of_clients};
pub use volume::VolumeTarget;
pub use watch::{RouteMount, Watch, Watcher};
pub use workload::{PlannedFile, PlannedJob, PlannedWorkload};
