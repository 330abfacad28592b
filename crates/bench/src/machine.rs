//! Properties of this machine, and how busy it was.

use std::time::{Duration, Instant};

use record::Environment;

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Kernel, processors, memory, congestion controls and command line; no names of hosts or people.
#[must_use]
pub fn environment() -> Environment {
    let uname = rustix::system::uname();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory_kib = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    let offered = transport::socket::congestion_controls();
    let emulated = field("model name").filter(|model| model.contains("QEMU TCG"));
    Environment {
        kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
        arch: uname.machine().to_string_lossy().into_owned(),
        cpu_model: field("model name").unwrap_or_else(|| "unknown".into()),
        cpus: u32::try_from(cpus()).unwrap_or(u32::MAX),
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        congestion: offered.first().cloned().unwrap_or_default(),
        congestion_offered: offered,
        cmdline: std::env::args().collect::<Vec<_>>().join(" "),
        emulated,
    }
}

/// The memory that this machine could give to a process, if the system says.
#[must_use]
pub fn free_memory_bytes() -> Option<u64> {
    let meminfo = read("/proc/meminfo");
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = rest.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024)
}

/// An environment variable that is set for commands within `trunkline lab net`.
const LAB_VARIABLE: &str = "TRUNKLINE_LAB";

/// The parts of an experiment that are not real hardware; each cell states them.
#[must_use]
pub fn simulated(is_embedded: bool, environment: &Environment, over_rdma: bool) -> Option<String> {
    let in_lab = !is_embedded && std::env::var_os(LAB_VARIABLE).is_some();
    let lab = in_lab.then(|| "the links of a lab on one machine".to_owned());
    let processor = environment.emulated.as_ref().map(|by| format!("a processor emulated by {by}"));
    let software = over_rdma.then(software_rdma).flatten();
    let devices = software.map(|names| format!("RDMA in software ({names})"));
    let found: Vec<String> = lab.into_iter().chain(devices).chain(processor).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// The share of processor time used by other programs above which a measurement counts as
/// disturbed.
pub const OTHERS_MAX: f64 = 0.1;

/// The processor time that this process has used.
#[must_use]
pub fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The software RDMA devices of this machine, by the kernel's default names: rxe (RoCE) and siw
/// (iWARP).
fn software_rdma() -> Option<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("rxe") || name.starts_with("siw"))
        .collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The number of processors that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Measures how busy all processors are from a start on.
#[derive(Debug, Clone, Copy)]
pub struct CpuMeter {
    started: Instant,
    busy: Duration,
    stolen: Duration,
}

/// Shares of the processors' time.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuShares {
    /// Time spent working, by any program.
    pub busy: f64,
    /// Time taken by the hypervisor.
    pub stolen: f64,
}

impl CpuMeter {
    /// Starts a measurement.
    #[must_use]
    pub fn start() -> Self {
        let (busy, stolen) = processor_time();
        Self { started: Instant::now(), busy, stolen }
    }

    /// The shares since the start.
    #[must_use]
    pub fn share(&self) -> CpuShares {
        let (busy, stolen) = processor_time();
        let all = self.started.elapsed().as_secs_f64() * cpus() as f64;
        let share = |time: Duration| if all > 0.0 { (time.as_secs_f64() / all).min(1.0) } else { 0.0 };
        CpuShares {
            busy: share(busy.saturating_sub(self.busy)),
            stolen: share(stolen.saturating_sub(self.stolen)),
        }
    }
}

/// The time that all processors have worked, and the time taken from them, since boot; in ticks of
/// 10 ms.
fn processor_time() -> (Duration, Duration) {
    let stat = read("/proc/stat");
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .into_iter()
        .flat_map(|line| line.split_whitespace().skip(1))
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let at = |index: usize| fields.get(index).copied().unwrap_or(0);
    // The fields are user, nice, system, idle, iowait, irq, softirq, steal.
    let busy = at(0) + at(1) + at(2) + at(5) + at(6);
    (Duration::from_millis(busy * 10), Duration::from_millis(at(7) * 10))
}
