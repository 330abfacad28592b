//! Numbers in sentences for readers, with three significant digits.

/// A speed or rate: `1120`, `12.3`, `3.10`, `0.24`, `0.024`.
#[must_use]
pub fn plain(value: f64) -> String {
    // The bounds are where rounding would add a digit: 9.996 is shown as 10.0, not 10.00.
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A duration of this many microseconds, with three digits in the unit that suits it: `987 us`,
/// `12.5 ms`, `1.25 s`.
#[must_use]
pub fn duration(us: f64) -> String {
    // The bounds are where rounding would give 1000 of the smaller unit.
    let (value, unit) = match us {
        us if us >= 999_500.0 => (us / 1e6, "s"),
        us if us >= 999.5 => (us / 1e3, "ms"),
        us => (us, "us"),
    };
    format!("{} {unit}", plain(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [1120.4, 99.96, 12.34, 9.996, 3.1, 0.9999, 0.24, 0.0241, 0.0].map(plain);
        assert_eq!(shown, ["1120", "100", "12.3", "10.0", "3.10", "1.00", "0.24", "0.024", "0.00"]);
        let durations =
            [0.25, 13.5, 987.4, 999.6, 12_480.0, 652_739.0, 999_700.0, 12_345_678.0].map(duration);
        assert_eq!(
            durations,
            ["0.25 us", "13.5 us", "987 us", "1.00 ms", "12.5 ms", "653 ms", "1.00 s", "12.3 s"]
        );
    }
}
