//! The results of single jobs in the form of fio.

use fio::results::{JobResult, Results, write};
use fio::{JobFile, Phase};

use super::Plan;
use crate::measure::Flow;
use crate::run::{Measured, MeasuredJobs};
use crate::workload::PlannedWorkload;

/// The jobs of a route as fio would report them.
#[derive(Debug)]
pub(super) struct ReportedRoute {
    name: String,
    globals: Vec<(String, String)>,
    /// The workload of each phase.
    pub(super) workloads: Vec<usize>,
    /// The results of each phase.
    phases: Vec<Vec<JobResult>>,
}

impl ReportedRoute {
    pub(super) fn new(name: &str, jobs: &JobFile) -> Self {
        Self {
            name: name.to_owned(),
            globals: jobs.globals.clone(),
            workloads: Vec::new(),
            phases: Vec::new(),
        }
    }

    /// Gives each job of a phase a result: jobs of a group that is reported together share one.
    pub(super) fn add(&mut self, phase: &Phase, workload: &mut PlannedWorkload) {
        let mut results: Vec<JobResult> = Vec::new();
        let instances = phase.jobs.iter().flat_map(|job| job.instances.iter().map(move |_| job));
        for (job, planned) in instances.zip(&mut workload.jobs) {
            let shared = results.iter().position(|known| job.group_reporting && known.group == job.group);
            let index = shared.unwrap_or_else(|| {
                results.push(JobResult {
                    name: job.name.clone(),
                    group: job.group,
                    options: job.options.clone(),
                    depth: job.depth,
                    ..JobResult::default()
                });
                results.len() - 1
            });
            planned.result = Some(index);
        }
        workload.results = results.len();
        self.phases.push(results);
    }

    fn results(&self, measured: &[MeasuredJobs]) -> Vec<JobResult> {
        let mut all = Vec::new();
        for (workload, jobs) in self.workloads.iter().zip(&self.phases) {
            let mut jobs = jobs.clone();
            let of_phase = measured.iter().filter(|it| it.route == self.name && it.workload == *workload);
            for repeat in of_phase.flat_map(|it| &it.repeats) {
                for (job, flows) in jobs.iter_mut().zip(repeat) {
                    for (results, flow) in job.directions.iter_mut().zip(flows) {
                        flow.iter().for_each(|flow| add(results, flow));
                    }
                }
            }
            all.extend(jobs);
        }
        all
    }
}

fn add(results: &mut Results, flow: &Flow) {
    results.bytes += flow.bytes;
    results.ops += flow.ops;
    let measured = flow.span.map_or(0, |(first, last)| last.saturating_sub(first).as_millis());
    results.runtime_ms += u64::try_from(measured).unwrap_or(u64::MAX);
    results.latency.merge(&flow.latency);
}

impl Plan {
    /// The results of each route as fio's JSON, with the route's name. All repeats of a job are one
    /// result.
    #[must_use]
    pub fn fio_json(&self, measured: &Measured) -> Vec<(String, String)> {
        let version = format!("trunkline-{}", env!("CARGO_PKG_VERSION"));
        let now = crate::run::now();
        let json =
            |route: &ReportedRoute| write(&version, now, &route.globals, &route.results(&measured.jobs));
        self.reported.iter().map(|route| (route.name.clone(), json(route))).collect()
    }
}
