//! What a client's results can be. A wrong sample must not stop the coordinator, which still has
//! files to remove and results to write.

use std::time::Duration;

use record::PortCounters;

use super::message::ClientSample;
use crate::jobs::INTERVALS_MAX;
use crate::measure::Flow;

/// The highest count: more than an hour of the fastest links in bytes, and so low that the sum of
/// a thousand clients is a number.
const COUNT_MAX: u64 = 1 << 50;
/// The longest time.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// The maximum number of paths, of ports, and of counters of one kind.
const ENTRIES_MAX: usize = 4096;
/// The maximum number of bytes of a name.
const NAME_BYTES_MAX: usize = 1024;

impl ClientSample {
    /// The reason why this cannot have been measured, if it cannot.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let flows = || self.read.iter().chain(&self.write);
        let by_path = || self.bytes_by_path.iter();
        let times = [Duration::from_nanos(self.began_ns), self.longest_gap, self.client_cpu, self.window];
        let entries = [self.paths.len(), self.ports.len(), self.counters.len()];
        let lengths = entries.into_iter().chain(by_path().map(Vec::len));
        let counts = by_path().flatten().copied().chain([self.stamps, self.loops as u64]);
        let counts = counts.chain(self.counters.values().copied());
        let path_counts =
            self.paths.iter().flat_map(|path| [path.calls, path.bytes, path.retransmissions, path.failovers]);
        let paths = || self.paths.iter().flat_map(|path| [&path.path, &path.state]);
        let mut names = self.counters.keys().chain(paths());
        if let Some(fault) = flows().find_map(flow_fault) {
            Some(fault)
        } else if self.ports.iter().any(is_wrong_port) {
            Some("counters of a port that are none")
        } else if self.done.is_some_and(is_backward) {
            Some("it ends before it begins")
        } else if times.into_iter().any(|time| time > TIME_MAX) {
            Some("a time of more than a year")
        } else if lengths.into_iter().any(|length| length > ENTRIES_MAX) {
            Some("too many paths, ports or counters")
        } else if counts.chain(path_counts).any(|count| count > COUNT_MAX) {
            Some("a count that nothing reaches")
        } else if names.any(|name| name.len() > NAME_BYTES_MAX) {
            Some("a name that is too long")
        } else if ![self.busy, self.stolen].into_iter().all(is_amount) {
            Some("a share of processor time that is none")
        } else {
            None
        }
    }
}

fn flow_fault(flow: &Flow) -> Option<&'static str> {
    let counts = [flow.ops, flow.bytes, flow.finished, flow.finished_bytes, flow.latency.count()];
    let intervals = flow.series.len().max(flow.latencies.intervals());
    if flow.span.is_some_and(is_backward) {
        Some("it ends before it begins")
    } else if ![flow.bytes_per_s, flow.iops].into_iter().all(is_amount) {
        Some("a speed that is none")
    } else if intervals > INTERVALS_MAX as usize {
        Some("too many intervals")
    } else if counts.into_iter().chain(flow.series.iter().copied()).any(|count| count > COUNT_MAX) {
        Some("a count that nothing reaches")
    } else {
        None
    }
}

fn is_wrong_port(port: &PortCounters) -> bool {
    let main = [port.sent_bytes, port.received_bytes, port.sent_packets, port.received_packets];
    let counts = main.into_iter().flatten().chain(port.others.values().copied());
    let names = || port.others.keys().chain([&port.port]);
    port.others.len() > ENTRIES_MAX
        || counts.into_iter().any(|count| count > COUNT_MAX)
        || names().any(|name| name.len() > NAME_BYTES_MAX)
}

fn is_backward((first, last): (Duration, Duration)) -> bool {
    first > last || last > TIME_MAX
}

fn is_amount(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use record::PathCounters;

    use super::*;

    /// What a client sends that did nothing wrong.
    pub(in crate::clients) fn sample() -> ClientSample {
        let span = (Duration::from_secs(1), Duration::from_secs(5));
        ClientSample {
            began_ns: 1,
            read: Some(Flow { span: Some(span), ops: 7, series: vec![3; 4], ..Flow::empty() }),
            write: None,
            bytes_by_path: [vec![1], vec![2]],
            loops: 1,
            longest_gap: Duration::ZERO,
            stamps: 3,
            client_cpu: Duration::from_secs(1),
            window: Duration::from_secs(4),
            busy: 0.5,
            stolen: 0.0,
            ports: vec![PortCounters { port: "rxe0/1".into(), ..PortCounters::default() }],
            paths: vec![PathCounters { path: "a to b".into(), ..PathCounters::default() }],
            counters: BTreeMap::from([("rdma_sends".to_owned(), 4)]),
            done: Some(span),
        }
    }

    #[test]
    fn a_sample_that_cannot_be_is_told_from_one_that_can() {
        assert_eq!(sample().fault(), None);
        fn read(sample: &mut ClientSample) -> &mut Flow {
            sample.read.as_mut().unwrap()
        }
        type Change<'a> = &'a dyn Fn(&mut ClientSample);
        let backward = Some((Duration::from_secs(5), Duration::from_secs(1)));
        let wrong: [(Change<'_>, &str); 16] = [
            (&|it| read(it).span = backward, "before it begins"),
            (&|it| it.done = backward, "before it begins"),
            (&|it| read(it).bytes_per_s = f64::NAN, "speed"),
            (&|it| read(it).iops = -1.0, "speed"),
            (&|it| read(it).bytes = u64::MAX, "count"),
            (&|it| read(it).series[0] = u64::MAX, "count"),
            (&|it| read(it).series = vec![0; 101], "intervals"),
            (&|it| read(it).latencies = record::LatencyCounts::new(101), "intervals"),
            (&|it| it.client_cpu = Duration::MAX, "year"),
            (&|it| it.began_ns = u64::MAX, "year"),
            (&|it| it.bytes_by_path[1] = vec![0; 5000], "too many"),
            (&|it| it.bytes_by_path[1][0] = u64::MAX, "count"),
            (&|it| it.paths[0].bytes = u64::MAX, "count"),
            (&|it| it.paths[0].path = "x".repeat(5000), "name"),
            (&|it| it.ports[0].sent_bytes = Some(u64::MAX), "port"),
            (&|it| it.busy = f64::INFINITY, "share"),
        ];
        for (index, (change, needle)) in wrong.into_iter().enumerate() {
            let mut changed = sample();
            change(&mut changed);
            assert!(changed.fault().is_some_and(|fault| fault.contains(needle)), "{index} {needle}");
        }
    }
}
