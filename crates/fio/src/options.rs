//! The options of fio: which have an effect here, which change nothing, and which are refused.

use crate::error::Fault;

/// What an option does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has the effect that it has in fio.
    Effect,
    /// It changes nothing here; the text says why.
    Nothing(&'static str),
    /// It changes nothing with the first value, which is fio's default; any other is refused.
    NothingIf(&'static str, &'static str),
    /// fio knows it, and it would change the load.
    Unsupported,
}

/// Other names of options.
const ALIASES: [(&str, &str); 17] = [
    ("readwrite", "rw"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("blockalign", "ba"),
    ("wait_for_previous", "stonewall"),
    ("io_limit", "io_size"),
    ("iomem", "mem"),
    ("iomem_align", "mem_align"),
    ("fill_fs", "fill_device"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("ss", "steadystate"),
    ("ss_dur", "steadystate_duration"),
    ("ss_ramp", "steadystate_ramp_time"),
    ("disable_bw", "disable_bw_measurement"),
    ("nr_files", "nrfiles"),
];

const EFFECTS: [&str; 28] = [
    "name",
    "rw",
    "bs",
    "bsrange",
    "rwmixread",
    "rwmixwrite",
    "iodepth",
    "ioengine",
    "numjobs",
    "filename",
    "filename_format",
    "directory",
    "size",
    "filesize",
    "nrfiles",
    "io_size",
    "loops",
    "runtime",
    "time_based",
    "ramp_time",
    "rate_iops",
    "rate",
    "norandommap",
    "group_reporting",
    "new_group",
    "stonewall",
    "kb_base",
    "verify",
];

const STABLE: &str = "a write ends when its data are stable";
const NOT_CACHED: &str = "the client library caches no data, and a write ends when its data are stable";
const OWN_FILES: &str = "the files are created before the load, and removed after it";
const OWN_DATA: &str = "the data are stamped blocks, so that a wrong one is found";
const OWN_CHECK: &str = "the stamps of all data are checked";
const OWN_RESULTS: &str = "it chooses what fio prints";
const NO_LOGS: &str = "no log files are written; the record has throughput over time and all latencies";
const OWN_THREADS: &str = "the load runs on the loops of the client library";

const NOTHING: &[(&str, &str)] = &[
    ("description", "it is a remark"),
    ("direct", NOT_CACHED),
    ("buffered", NOT_CACHED),
    ("sync", STABLE),
    ("fsync", STABLE),
    ("fdatasync", STABLE),
    ("end_fsync", STABLE),
    ("fsync_on_close", STABLE),
    ("create_fsync", STABLE),
    ("invalidate", NOT_CACHED),
    ("fadvise_hint", NOT_CACHED),
    ("pre_read", NOT_CACHED),
    ("thread", OWN_THREADS),
    ("mem", OWN_THREADS),
    ("lockmem", OWN_THREADS),
    ("hugepage-size", OWN_THREADS),
    ("fallocate", OWN_FILES),
    ("overwrite", OWN_FILES),
    ("create_serialize", OWN_FILES),
    ("create_on_open", OWN_FILES),
    ("allow_file_create", OWN_FILES),
    ("unlink", OWN_FILES),
    ("unique_filename", OWN_FILES),
    ("openfiles", OWN_FILES),
    ("refill_buffers", OWN_DATA),
    ("scramble_buffers", OWN_DATA),
    ("zero_buffers", OWN_DATA),
    ("buffer_pattern", OWN_DATA),
    ("do_verify", OWN_CHECK),
    ("verify_fatal", OWN_CHECK),
    ("verify_dump", OWN_CHECK),
    ("verify_interval", OWN_CHECK),
    ("verify_pattern", OWN_CHECK),
    ("verify_state_save", OWN_CHECK),
    ("verify_async", OWN_CHECK),
    ("mem_align", OWN_THREADS),
    ("randrepeat", "the order of random blocks is the same in each run"),
    ("randseed", "the order of random blocks is the same in each run"),
    ("allrandrepeat", "the order of random blocks is the same in each run"),
    ("random_generator", "each block is accessed once in a pass, in an order of our own"),
    ("clat_percentiles", OWN_RESULTS),
    ("lat_percentiles", OWN_RESULTS),
    ("slat_percentiles", OWN_RESULTS),
    ("percentile_list", OWN_RESULTS),
    ("significant_figures", OWN_RESULTS),
    ("disk_util", OWN_RESULTS),
    ("stats", OWN_RESULTS),
    ("unit_base", OWN_RESULTS),
    ("bwavgtime", OWN_RESULTS),
    ("iopsavgtime", OWN_RESULTS),
    ("disable_lat", "all latencies are measured"),
    ("disable_clat", "all latencies are measured"),
    ("disable_slat", "all latencies are measured"),
    ("disable_bw_measurement", "speed is measured always"),
    ("gtod_reduce", "all latencies are measured"),
    ("clocksource", "the system's monotonic clock is used"),
    ("write_bw_log", NO_LOGS),
    ("write_lat_log", NO_LOGS),
    ("write_iops_log", NO_LOGS),
    ("write_hist_log", NO_LOGS),
    ("log_avg_msec", NO_LOGS),
    ("log_hist_msec", NO_LOGS),
    ("log_hist_coarseness", NO_LOGS),
    ("log_max_value", NO_LOGS),
    ("log_offset", NO_LOGS),
    ("log_unix_epoch", NO_LOGS),
    ("per_job_logs", NO_LOGS),
];

const NOTHING_IF: [(&str, &str, &str); 9] = [
    ("file_service_type", "roundrobin", "the files of a job take turns"),
    ("random_distribution", "random", "all blocks are equally likely"),
    ("rate_process", "linear", "a rate has equal intervals"),
    ("startdelay", "0", "all jobs of a phase start together"),
    ("offset", "0", "a job accesses its files from their first byte"),
    ("bs_unaligned", "0", "blocks are aligned to the smallest of them"),
    ("continue_on_error", "none", "the first error ends the experiment"),
    ("unified_rw_reporting", "none", "reads and writes are reported apart"),
    ("percentage_random", "100", "all blocks of a random job are random"),
];

/// The options of fio 3.33 that are refused: each would change the load, the files or the results.
const UNSUPPORTED: &str = "wait_for lockfile opendir ba bssplit ignore_error rw_sequencer iodepth_batch \
    iodepth_batch_complete_min iodepth_batch_complete_max iodepth_low serialize_overlap io_submit_mode \
    fill_device file_append offset_increment offset_align number_ios write_barrier sync_file_range atomic \
    verify_only verify_offset verify_backlog verify_backlog_batch experimental_verify verify_state_load \
    trim_percentage trim_verify_zero trim_backlog trim_backlog_batch write_iolog read_iolog \
    read_iolog_chunked replay_no_stall replay_redirect replay_scale replay_align replay_time_scale \
    replay_skip merge_blktrace_file merge_blktrace_scalars merge_blktrace_iters exec_prerun exec_postrun \
    ioscheduler zonemode zonesize zonecapacity zonerange zoneskip read_beyond_wp max_open_zones \
    job_max_open_zones ignore_zone_limits zone_reset_threshold zone_reset_frequency nice prio prioclass \
    thinktime thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime rate_min rate_cycle \
    rate_ignore_thinktime rate_iops_min max_latency latency_target latency_window latency_percentile \
    latency_run write_hint create_only allow_mounted_write cpumask cpus_allowed cpus_allowed_policy \
    numa_cpu_nodes numa_mem_policy unlink_each_loop exitall exit_what exitall_on_error \
    block_error_percentiles buffer_compress_percentage buffer_compress_chunk dedupe_percentage dedupe_mode \
    dedupe_working_set_percentage dedupe_global gtod_cpu error_dump profile cgroup cgroup_nodelete \
    cgroup_weight uid gid flow_id flow flow_sleep steadystate steadystate_duration steadystate_ramp_time";

/// The engines that keep `iodepth` operations in flight.
pub(crate) const ASYNCHRONOUS: [&str; 5] = ["libaio", "io_uring", "posixaio", "solarisaio", "windowsaio"];
/// The engines with one operation in flight, whatever `iodepth` says.
pub(crate) const SYNCHRONOUS: [&str; 6] = ["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap"];

/// The option's name without an alias, and what it does.
pub(crate) fn find(name: &str) -> Result<(&str, Kind), Fault> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| *name);
    if EFFECTS.contains(&name) {
        return Ok((name, Kind::Effect));
    }
    if let Some((_, why)) = NOTHING.iter().find(|(known, _)| *known == name) {
        return Ok((name, Kind::Nothing(why)));
    }
    if let Some((_, value, why)) = NOTHING_IF.iter().find(|(known, ..)| *known == name) {
        return Ok((name, Kind::NothingIf(value, why)));
    }
    if UNSUPPORTED.split_whitespace().any(|known| known == name) {
        return Ok((name, Kind::Unsupported));
    }
    let nearest = nearest(name);
    Err(Fault::new(format!("unknown option {name}"), format!("{nearest}, the nearest option there is")))
}

/// The known name with the fewest edits to this one.
fn nearest(name: &str) -> &'static str {
    let named = ALIASES.iter().map(|(alias, _)| *alias);
    let known = EFFECTS.iter().copied().chain(named).chain(NOTHING.iter().map(|(known, _)| *known));
    known.min_by_key(|known| distance(name, known)).unwrap_or("rw")
}

/// The number of characters to insert, remove or replace.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    // A name is at most as long as a line; the longest known one has 30 characters.
    for (index, from) in one.chars().take(100).enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (to, cell) in other.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(left + 1);
            left = *cell;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_of_one_kind() {
        let mut all: Vec<&str> = EFFECTS.to_vec();
        all.extend(NOTHING.iter().map(|(name, _)| name));
        all.extend(NOTHING_IF.iter().map(|(name, ..)| name));
        all.extend(UNSUPPORTED.split_whitespace());
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "an option is named twice");
        assert!(ALIASES.iter().all(|(alias, name)| all.contains(name) && !all.contains(alias)));
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        for (typed, nearest) in [("blocksiz", "blocksize"), ("io_depth", "iodepth"), ("numjob", "numjobs")] {
            assert!(find(typed).unwrap_err().advice.starts_with(&format!("{nearest},")), "{typed}");
        }
        assert_eq!(find("readwrite"), Ok(("rw", Kind::Effect)));
        assert_eq!(find("thinktime"), Ok(("thinktime", Kind::Unsupported)));
    }

    #[test]
    fn distances_count_edits() {
        for (one, other, edits) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)] {
            assert_eq!(distance(one, other), edits);
        }
    }
}
