//! Numbers and times of live figures, as `trunkline top` and the page show them.

/// Units of amounts, each a thousand times the one before.
const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];

/// Three digits and a unit: `0`, `7`, `12.3`, `1.23 k`.
pub fn number(value: f64) -> String {
    scaled(value, "")
}

/// Bytes: `1.61 GB`.
pub fn bytes(value: f64) -> String {
    let text = scaled(value, "B");
    if text.contains(' ') { text } else { format!("{text} B") }
}

/// Bytes per second: `1.61 GB/s`.
pub fn bytes_per_s(value: f64) -> String {
    format!("{}/s", bytes(value))
}

fn scaled(value: f64, name: &str) -> String {
    let mut scaled = if value.is_finite() { value.max(0.0) } else { 0.0 };
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    while scaled >= 999.5 {
        let Some(next) = units.next() else { break };
        (scaled, unit) = (scaled / 1000.0, next);
    }
    let digits = match scaled {
        0.0 => 0,
        small if small < 0.0995 => 3,
        small if small < 9.995 => 2,
        small if small < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{scaled:.digits$}");
    let text =
        if digits > 0 && unit.is_empty() { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if unit.is_empty() { text.to_owned() } else { format!("{text} {unit}{name}") }
}

/// A latency with the unit that fits: `410 us`, `3.9 ms`; `-` without one.
pub fn latency(ns: Option<u64>) -> String {
    let Some(ns) = ns else { return "-".to_owned() };
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..999_500 => (ns as f64 / 1e3, "us"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// A part of 1 in percent.
pub fn percent(part: f64) -> String {
    match part * 100.0 {
        0.0 => "0 %".to_owned(),
        little if little < 0.05 => "<0.1 %".to_owned(),
        little if little < 0.95 => format!("{little:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// The length of a time: `12 s`, `3 min`, `5 h`, `2 d`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The time of day in UTC: `12:03:04`.
pub fn time_of_day(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Date and time in UTC: `2026-11-26T04:18:42Z`.
pub fn date_time(unix_ms: u64) -> String {
    // Days since 1 March of year 0: leap days come last in a year. In the Gregorian calendar, 400
    // years have 146,097 days.
    let days = unix_ms / 86_400_000 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) =
        if month < 10 { (era * 400 + year, month + 3) } else { (era * 400 + year + 1, month - 9) };
    format!("{year:04}-{month:02}-{day_of_month:02}T{}Z", time_of_day(unix_ms))
}

/// The next number of 1, 2 or 5 times a power of ten, for the top of an axis.
pub fn axis_end(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|end| *end >= value).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (value, text) in [
            (0.0, "0"),
            (0.015, "0.015"),
            (0.25, "0.25"),
            (7.0, "7"),
            (12.34, "12.3"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (24_310.0, "24.3 k"),
            (1.5e12, "1.50 T"),
            (1.5e16, "15000 T"),
            (-1.0, "0"),
            (f64::NAN, "0"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
        assert_eq!(bytes_per_s(1.61e9), "1.61 GB/s");
        assert_eq!(bytes_per_s(12.0), "12 B/s");
        assert_eq!((bytes(0.0), bytes(1_048_576.0)), ("0 B".to_owned(), "1.05 MB".to_owned()));
    }

    #[test]
    fn latencies_parts_and_lengths_have_the_unit_that_fits() {
        let found =
            [None, Some(900), Some(4_100), Some(410_000), Some(3_900_000), Some(2_000_000_000)].map(latency);
        assert_eq!(found, ["-", "900 ns", "4.1 us", "410 us", "3.9 ms", "2.0 s"]);
        assert_eq!([0.0, 0.0001, 0.004, 0.26, 1.0].map(percent), ["0 %", "<0.1 %", "0.4 %", "26 %", "100 %"]);
        assert_eq!([5, 119, 180, 9_000, 200_000].map(duration), ["5 s", "119 s", "3 min", "2 h", "2 d"]);
    }

    #[test]
    fn times_are_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59Z"),
            (1_795_666_722_000, "2026-11-26T04:18:42Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date_time(ms), text);
        }
    }

    #[test]
    fn an_axis_ends_at_or_above_the_value() {
        for value in [0.2, 1.0, 1.1, 3.7, 47.0, 999.0, 1001.0, 6.2e9] {
            let end = axis_end(value);
            assert!(end >= value && end <= value * 1.6, "{value}: {end}");
        }
        assert!((axis_end(0.0) - 1.0).abs() < 1e-9);
    }
}
