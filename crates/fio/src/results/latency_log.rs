//! fio's log of latencies over time: `write_hist_log`, with [`COARSENESS`].
//!
//! A line is an interval of one direction: its end in milliseconds, 0 for reads and 1 for writes,
//! the size of a block, and the calls of each bin. The calls after the last whole interval are in
//! no line, so whoever needs all of them compares with the bins of the results.

/// The `log_hist_coarseness` that leaves four bins to an octave.
pub const COARSENESS: u32 = 4;
/// The bits of a latency that a bin keeps below the leading one.
const BITS: u32 = 2;
/// The bins of a line: those of fio, of which it joins 2^COARSENESS.
const BINS: usize = (29 * 64) >> COARSENESS;
const READS: u64 = 0;
const WRITES: u64 = 1;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// When it ended, in milliseconds since the measured time began.
    pub end_ms: u64,
    /// Whether its calls are writes; else they are reads.
    pub is_write: bool,
    /// The calls by the shortest latency of their bin, in nanoseconds.
    pub calls: Vec<(u64, u64)>,
}

/// Reads a log of one job. Lines of other directions, such as TRIM, are skipped.
///
/// # Errors
/// What is wrong, with the number of the line.
pub fn latency_log(text: &str) -> Result<Vec<Interval>, String> {
    let mut intervals = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: &str| format!("line {} of fio's log of latencies {what}", number + 1);
        let numbers: Vec<u64> = line
            .split(',')
            .map(|number| number.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| wrong("has something else than numbers"))?;
        let [end_ms, direction, _block, bins @ ..] = numbers.as_slice() else {
            return Err(wrong("is too short"));
        };
        if bins.len() != BINS {
            return Err(wrong(&format!("has {} bins instead of {BINS}", bins.len())));
        }
        if !matches!(*direction, READS | WRITES) {
            continue;
        }
        let counted = bins.iter().enumerate().filter(|(_, calls)| **calls > 0);
        let calls = counted.map(|(bin, calls)| (shortest(bin), *calls)).collect();
        intervals.push(Interval { end_ms: *end_ms, is_write: *direction == WRITES, calls });
    }
    Ok(intervals)
}

/// The shortest latency of a bin: the first ones have 16 ns each, the others a quarter of an
/// octave.
fn shortest(bin: usize) -> u64 {
    let per_octave = 1 << BITS;
    if bin < per_octave {
        return (bin as u64) << COARSENESS;
    }
    let (octave, part) = (bin / per_octave, bin % per_octave);
    ((per_octave + part) as u64) << (octave - 1) << COARSENESS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of fio 3.33 with these calls in bins.
    fn line(end_ms: u64, direction: u64, calls: &[(usize, u64)]) -> String {
        let mut bins = [0; BINS];
        for (bin, count) in calls {
            bins[*bin] = *count;
        }
        format!("{end_ms}, {direction}, 4096, {}\n", bins.map(|count| count.to_string()).join(", "))
    }

    #[test]
    fn each_line_is_an_interval_with_its_calls() {
        let text = [line(51, 0, &[(36, 3), (40, 1)]), line(51, 1, &[]), line(101, 2, &[(5, 9)])].concat();
        let read = Interval { end_ms: 51, is_write: false, calls: vec![(16_384, 3), (32_768, 1)] };
        let write = Interval { end_ms: 51, is_write: true, calls: vec![] };
        assert_eq!(latency_log(&text), Ok(vec![read, write]));
        assert_eq!(latency_log(""), Ok(vec![]));
    }

    #[test]
    fn the_bins_are_those_of_fio_in_order() {
        // fio 3.33 has 42,240 ns in bin 658 of 1,856, whose 16 from 656 on begin at 40,960 ns.
        assert_eq!(shortest(658 >> COARSENESS), 40_960);
        for (bin, ns) in [(0, 0), (1, 16), (3, 48), (4, 64), (5, 80), (8, 128), (12, 256)] {
            assert_eq!(shortest(bin), ns, "{bin}");
        }
        assert!((1..BINS).all(|bin| shortest(bin - 1) < shortest(bin)));
    }

    #[test]
    fn a_broken_log_is_refused_with_its_line() {
        let short = format!("{}51, 0\n", line(51, 0, &[]));
        assert!(
            latency_log(&short).unwrap_err().starts_with("line 2 of fio's log of latencies is too short")
        );
        let other = line(51, 0, &[]).replace("51", "x");
        assert!(latency_log(&other).unwrap_err().contains("line 1 "));
        assert!(latency_log("51, 0, 4096, 1, 2\n").unwrap_err().contains("has 2 bins instead of 116"));
    }
}
