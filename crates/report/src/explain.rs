//! Explains every column and term of the table and the page, for `trunkline report --explain` and
//! for the end of the page.

/// A term and what it means.
pub(crate) struct Term {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
}

/// The terms, in the order in which a reader meets them.
#[rustfmt::skip]
pub(crate) const TERMS: &[Term] = &[
    Term { name: "route", meaning: "All the paths that one mount uses. `tcp` is TCP to one node; `tcp-mp` is TCP to all nodes at once (multipath); `rdma` and `rdma-mp` are the same over RDMA, `nvme-tcp` and `nvme-tcp-mp` to a block volume over NVMe/TCP, `nvme-rdma` over NVMe/RDMA. All routes of a comparison use the same number of connections." },
    Term { name: "skipped", meaning: "The route could not be measured on this machine, for the reason given. It is not counted as slow." },
    Term { name: "GB/s", meaning: "Payload carried per second in units of 10^9 bytes (decimal), without protocol headers: the median of the repeats. Links are in Gbit/s (8 Gbit/s carry 1 GB/s at most), memory and blocks in KiB, MiB and GiB (binary)." },
    Term { name: "kIOPS", meaning: "Thousands of operations completed per second: the median of the repeats. Shown for blocks up to 16 KiB, where the number of operations is what costs." },
    Term { name: "bar", meaning: "The speed beside it. In the terminal the fastest cell of the same half has the full length. On the page all bars of a half have one scale, the upright line is the cell's limit, the thin line its 95 % interval, each dot one repeat." },
    Term { name: "95 %", meaning: "The interval in which the true median lies with 95 % confidence, by bootstrap: 2000 times over, as many repeats as were measured are drawn from them with replacement; the middle 95 % of the 2000 medians is the interval." },
    Term { name: "limit", meaning: "The most that this route can carry in this shape of traffic: calibrated in the same run by a program that only moves bytes, in several modes and with each congestion control on offer, the fastest taken; over RDMA by a loop that posts RDMA WRITEs (for reads) and RDMA READs (for writes) to the device. In the paced half it is the pace. A result above its limit fails the record. `of machine`, where the page has it, is the same over the most that the machine carries whatever the route." },
    Term { name: "of limit", meaning: "Speed over limit. `55 / 48 %` means 55 % reading and 48 % writing." },
    Term { name: "p99", meaning: "Latency: 99 of 100 calls took no longer, from when each was meant to start until its answer was complete. `9.0/18 ms` means 9 ms reading and 18 ms writing. Left out where a line has no room for it." },
    Term { name: "share by node", meaning: "The percentage of all bytes that each node carried, in the order of the group's nodes. `25 25 25 25` is even; `100 0 0 0` used one node." },
    Term { name: "share by path", meaning: "The same for each path: transport, local address, remote address." },
    Term { name: "Jain's index", meaning: "Evenness of the shares in one number: 1 where all nodes carry the same, 1/n where one of n carries everything." },
    Term { name: "binds", meaning: "The stage whose limit was reached first, with the measurement that shows it. Raising any other limit would change nothing. Stages: link, pace, rate (the one asked for), CPU (of a machine that client and nodes share), node CPU, client CPU, one path, slots, store, drive, PCIe, memory." },
    Term { name: "slots", meaning: "Calls in flight. Little's law: speed is at most calls in flight x block size / latency, so a greater depth or more connections would help. Said where a step with more in flight gained at least half of what the first step did, or where everything behind the route is seen and was not at its limit." },
    Term { name: "unknown", meaning: "No stage was seen at its limit. `The server's machine is not seen` means that bench neither started the server nor runs on its machine: look at the processors, drives and links there. With `no greater depth was tried`, a step test of the depth tells whether calls in flight bind." },
    Term { name: "raw", meaning: "As fast as it goes. Where client and nodes share one machine, more nodes cannot be faster than that machine, and often are not." },
    Term { name: "paced", meaning: "Each node is held to a rate that the machine can clearly exceed, as if each had a link of that rate. The number of nodes then shows. It says how well a route uses several nodes, not how fast this machine is. Each such number is labelled `paced`, or `p` where space is short." },
    Term { name: "simulated", meaning: "Links were shaped, or a device or processor was emulated. Each such number is labelled `simulated`, or `s`." },
    Term { name: "verdict", meaning: "One route compared with another by the median ratio of their interleaved repeats, pair by pair, which cancels a machine that drifts. It says faster or slower only where the whole 95 % interval of the ratio lies above or below 1, and there are at least 5 pairs. With fewer it says `too few pairs (3 of 5)`. `No difference shown` does not mean that there is none. Routes of which one is simulated and the other is not are compared too, with a note that says what sets them apart. Ratios add up reads and writes that ran at once." },
    Term { name: "p50 ... p99.99, max", meaning: "Latency: half of the calls, ..., 9,999 in ten thousand took no longer; the slowest. Of all repeats together, in microseconds, from when a call was meant to start until its answer was complete. p99.99 needs 10,000 calls." },
    Term { name: "CPU us/op, ns/byte", meaning: "CPU time of the client and of all nodes together for each operation and each byte of payload. Where reads and writes run at once, it is the time of both over the amount of both." },
    Term { name: "first and last done", meaning: "When the first and the last worker ran out of work. Far apart, some had much less than others, and the average flatters." },
    Term { name: "longest time without a completed call", meaning: "Within a measured window, over all repeats, to the millisecond. Where a path died meanwhile it is what the failover cost." },
    Term { name: "failovers", meaning: "Calls that were moved off a path to another one, calls that were sent again on the same path, and paths that were not up at the end. Shown only where there are any." },
    Term { name: "latency over time", meaning: "A heat map: across is the measured time of all repeats (between two, other routes ran), upwards the latency on a logarithmic scale, and the shade is the share of the interval's calls that took so long. A column without any shade is an interval in which no call completed; one at a mark of the axis parts two repeats. The last interval of a repeat also has the calls that ended after the measured time. All maps of a workload and half have the same scale." },
    Term { name: "step test", meaning: "The same workload with more and more clients, or operations in flight. The gain of a step is the speed that it adds to the step before, reads and writes together, for each added client or operation; the first step's gain is its speed for each of its units." },
    Term { name: "knee", meaning: "The last step before the first one that gains less than half of what the first step gained. No knee was reached means that every step still pays." },
    Term { name: "straggler", meaning: "A client that moved less than half of what the median client moved, or took more than 1.5 times as long until it was done." },
    Term { name: "faster, slower, no difference shown", meaning: "Of records side by side: the ratio of the medians of a speed to that in the first record, and its 95 % interval by bootstrap. It says faster or slower only where the whole interval lies above or below 1, and both have at least 5 repeats. Records are different sittings, so a difference may be that of the machine." },
    Term { name: "conditions", meaning: "With --fail-if: failed means that the condition is shown to hold, by the whole 95 % interval; not shown, that the median fulfils it but not the whole interval, so that noise may have done it; passed, that it does not hold. Only the first fails the command." },
    Term { name: "published", meaning: "With --published: what others have published about other machines, as they published it, beside what this record has alike: routes of the same transport, number of addresses and version of NFS, whatever their names are. It is no limit of this machine and takes part in no verdict." },
    Term { name: "RDMA for a call", meaning: "What both ends did for each call, all kinds of calls together: work requests posted to the device (messages, RDMA writes and reads, and places for messages to come), completions taken, and interrupts, which are the device's notices of completions. The server's stand beside the client's where it is the embedded group. How much one READ or WRITE may take is held by a test." },
    Term { name: "RDMA ports", meaning: "What each port of this machine's RDMA devices counted during the repeats of a route, their warm-up included: evidence that the traffic went where the row says. Headers count too, and where both ends are one machine each packet leaves and arrives there. Devices count bytes, packets or both." },
    Term { name: "steady", meaning: "With --thorough: over the last five rounds greatest and least lie within 20 % of the mean, and the fitted line rises or falls by at most 10 % (SNIA)." },
    Term { name: "verified", meaning: "Each 4 KiB of data carries a stamp of its own that was checked while timing; the whole payload was compared in an untimed pass. A wrong block fails the record." },
    Term { name: "failed", meaning: "Something makes these numbers untrustworthy: a result above its limit, a wrong block. They are shown to find out why, not to be used." },
    Term { name: "times, in a comparison of records", meaning: "A later record's median over the first one's. Records are different sittings: the same machine may drift by a third between two, so only a comparison within one record tells routes apart." },
];

/// All columns and terms with their meanings, as plain text of 80 columns.
pub fn explain() -> String {
    let mut out = String::from("What the table and the report of trunkline bench say.\n");
    for term in TERMS {
        out.push_str(&format!("\n{}\n", term.name));
        let mut line = String::new();
        for word in term.meaning.split(' ') {
            if !line.is_empty() && line.len() + 1 + word.len() > 76 {
                out.push_str(&format!("    {line}\n"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        out.push_str(&format!("    {line}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, terminal};

    #[test]
    fn every_column_of_the_table_is_explained() {
        let table = terminal::render(&sample::record(), 80);
        let columns = [
            "route",
            "GB/s",
            "kIOPS",
            "of limit",
            "p99",
            "share by node",
            "binds",
            "paced",
            "skipped",
            "raw",
            "95 %",
        ];
        for column in columns {
            assert!(table.contains(column), "the table has {column}");
            assert!(TERMS.iter().any(|term| term.name == column), "{column} is explained");
        }
    }

    #[test]
    fn the_explanation_fits_80_columns() {
        assert!(explain().lines().all(|line| line.chars().count() <= 80));
        assert!(explain().is_ascii());
    }
}
