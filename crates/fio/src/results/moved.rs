//! What each job of fio moved, for whoever runs fio and makes a sample of its results.

use std::time::Duration;

use record::Latency;

use super::read::{Direction, File, ReadError, Times, last_object};

/// What a job moved.
#[derive(Debug, Clone)]
pub struct JobMoved {
    /// The name of the job.
    pub name: String,
    /// The error number with which it ended; 0 if there was none.
    pub error: i64,
    /// What it read; `None` if nothing.
    pub read: Option<Moved>,
    /// What it wrote; `None` if nothing.
    pub write: Option<Moved>,
    /// How long it ran, as measured.
    pub runtime: Duration,
    /// The processor time that it used.
    pub cpu: Duration,
}

/// What a job moved in one direction.
#[derive(Debug, Clone)]
pub struct Moved {
    /// Bytes.
    pub bytes: u64,
    /// Operations.
    pub ops: u64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Operations per second.
    pub iops: f64,
    /// How long it ran, as measured.
    pub runtime: Duration,
    /// The latencies from the submission on, if fio had `lat_percentiles=1`, else from when the
    /// system had the operation.
    pub latency: Latency,
    /// The operations by their latency from when the system had them: fio's bins in nanoseconds.
    pub completions: Vec<(u64, u64)>,
}

/// The results of each job, in the order of the text.
///
/// # Errors
/// What is wrong with the text.
pub fn jobs(text: &str) -> Result<Vec<JobMoved>, ReadError> {
    let (file, _): (File, usize) = last_object(text)?;
    if file.jobs.is_empty() {
        return Err(ReadError::NoJobs);
    }
    let job = |job: &super::read::Job| {
        let runtime = Duration::from_millis(job.job_runtime);
        JobMoved {
            name: job.jobname.clone(),
            error: job.error,
            read: job.read.as_ref().and_then(moved),
            write: job.write.as_ref().and_then(moved),
            runtime,
            cpu: runtime.mul_f64(((job.usr_cpu + job.sys_cpu) / 100.0).clamp(0.0, 1e6)),
        }
    };
    Ok(file.jobs.iter().map(job).collect())
}

fn moved(direction: &Direction) -> Option<Moved> {
    let times: &Times = match direction.lat_ns.bins.is_empty() {
        true => &direction.clat_ns,
        false => &direction.lat_ns,
    };
    (direction.total_ios > 0).then(|| Moved {
        bytes: direction.io_bytes,
        ops: direction.total_ios,
        bytes_per_s: direction.bytes_per_s(),
        iops: direction.iops,
        runtime: Duration::from_millis(direction.runtime),
        latency: times.latency(),
        completions: direction.clat_ns.counts().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of fio 3.33 with `lat_percentiles=1` and `clat_percentiles=0`, shortened.
    const TEXT: &str = r#"{ "fio version" : "fio-3.33", "jobs" : [
        { "jobname" : "job0", "groupid" : 0, "error" : 0, "job_runtime" : 200, "usr_cpu" : 5.0, "sys_cpu" : 20.0,
          "read" : { "io_bytes" : 20299776, "bw_bytes" : 100993910, "bw" : 98626, "iops" : 24641.79, "runtime" : 201,
            "total_ios" : 4956, "clat_ns" : { "min" : 24085, "max" : 41867808, "mean" : 153243.7 },
            "lat_ns" : { "max" : 41872507, "mean" : 160980.2, "bins" : { "35584" : 3, "36096" : 4953 } } },
          "write" : { "io_bytes" : 0, "bw_bytes" : 0, "bw" : 0, "iops" : 0.0, "runtime" : 0, "total_ios" : 0 } } ] }"#;

    #[test]
    fn each_job_has_what_it_moved_and_whole_latencies() {
        let jobs = jobs(TEXT).expect("results");
        let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
        let read = job.read.as_ref().expect("reads");
        assert_eq!((read.ops, read.bytes, read.latency.count()), (4956, 20_299_776, 4956));
        assert!((read.bytes_per_s - 100_993_910.0).abs() < 1.0 && job.write.is_none());
        assert!(read.completions.is_empty(), "fio has no bins of them without clat_percentiles=1");
        assert_eq!((job.cpu, job.runtime), (Duration::from_millis(50), Duration::from_millis(200)));
    }

    #[test]
    fn without_bins_of_the_whole_latency_those_of_completions_count() {
        let text =
            TEXT.replace("\"lat_ns\"", "\"other\"").replace("\"mean\" : 153243.7", "\"bins\": {\"1000\": 7}");
        let found = jobs(&text).expect("results");
        let read = found[0].read.as_ref().expect("reads");
        assert_eq!((read.latency.count(), read.completions.as_slice()), (7, &[(1000, 7)][..]));
        assert!(matches!(jobs("fio: no such file\n"), Err(ReadError::NoJson)));
        assert!(matches!(jobs("{\"fio version\": \"fio-3.33\", \"jobs\": []}"), Err(ReadError::NoJobs)));
    }
}
