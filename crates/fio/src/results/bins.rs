//! fio's latency histogram: 64 bins for each power of two, named by their middle.

/// The bits of a value that a bin keeps below the leading one.
const BITS: u32 = 6;

/// The name of the bin that has a latency.
pub(super) fn middle(ns: u64) -> u64 {
    if ns < 2 << BITS {
        return ns;
    }
    let dropped = u64::BITS - 1 - ns.leading_zeros() - BITS;
    let low = ns >> dropped << dropped;
    low + (1 << dropped) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_have_the_names_that_fio_gives_them() {
        // From the output of fio 3.33: the smallest and the largest latency, and their bins.
        for (ns, bin) in [(0, 0), (127, 127), (128, 129), (50_504, 50_432), (7_757_953, 7_766_016)] {
            assert_eq!(middle(ns), bin, "{ns}");
        }
        assert!(middle(u64::MAX) > u64::MAX / 2);
    }
}
