//! Formats numbers for readers, with three significant digits.

use record::Pace;
pub(crate) use record::number::{duration, plain};

/// A speed, where there is space for a third digit: `3.10`, `0.245`, `0.0241`.
pub(crate) fn fine(value: f64) -> String {
    match value.abs() {
        size if size >= 0.9995 || size == 0.0 => plain(value),
        size if size >= 0.09995 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// Thousands of operations per second.
pub(crate) fn kiops(iops: f64) -> String {
    plain(iops / 1000.0)
}

/// A ratio of two speeds, always with two decimals.
pub(crate) fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// The ends of a ratio's interval. They have three decimals if two would hide on which side of 1 an
/// end lies.
pub(crate) fn interval_of_ratio(interval: [f64; 2]) -> [String; 2] {
    let shown = interval.map(ratio);
    if shown.iter().any(|end| end == "1.00") { interval.map(|end| format!("{end:.3}")) } else { shown }
}

/// A share in whole percent, without the percent sign.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}

/// Microseconds with separated thousands: `13.5`, `987`, `12,480`.
pub(crate) fn us(value: f64) -> String {
    if value < 99.95 { plain(value) } else { thousands(value.round() as u64) }
}

/// One or two durations of so many microseconds in one unit, as short as a table needs: `18 ms`,
/// `9.0/18 ms`.
pub(crate) fn short_durations(us: &[f64]) -> String {
    let greatest = us.iter().copied().fold(0.0, f64::max);
    let (scale, unit) = match greatest {
        us if us >= 995_000.0 => (1e6, "s"),
        us if us >= 995.0 => (1e3, "ms"),
        _ => (1.0, "us"),
    };
    let short = |us: &f64| match us / scale {
        value if value >= 9.95 => format!("{value:.0}"),
        value if value >= 0.95 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    if us.is_empty() {
        "-".to_owned()
    } else {
        format!("{} {unit}", us.iter().map(short).collect::<Vec<_>>().join("/"))
    }
}

/// A round duration as a tick: `500 us`, `2 ms`, `0.5 us`.
pub(crate) fn round_duration(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 999_500.0 => (us / 1e6, "s"),
        us if us >= 999.5 => (us / 1e3, "ms"),
        us => (us, "us"),
    };
    format!("{} {unit}", (value * 1000.0).round() / 1000.0)
}

/// The longest time without a completed call, as the number of whole milliseconds without one. With
/// 0, two calls completed in adjacent milliseconds.
pub(crate) fn gap(ms: f64) -> String {
    if ms < 1.0 { "under 2 ms".to_owned() } else { format!("{} ms", thousands(ms.round() as u64)) }
}

/// A whole number with separated thousands.
pub(crate) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A size in binary units: `4 KiB`, `1 MiB`, `15.6 GiB`.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut size = value as f64;
    let mut name = "bytes";
    for unit in UNITS {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        name = unit;
    }
    if size.fract() == 0.0 { format!("{size} {name}") } else { format!("{size:.1} {name}") }
}

/// A pace: `2 Gbit/s a node`.
pub(crate) fn pace(pace: Pace) -> String {
    let rate = pace.gbit_per_s_per_node;
    if rate.fract() == 0.0 {
        format!("{rate} Gbit/s a node")
    } else {
        format!("{} Gbit/s a node", plain(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits() {
        assert_eq!([3.1, 0.9999, 0.2445, 0.0241, 0.0].map(fine), ["3.10", "1.00", "0.244", "0.0241", "0.00"]);
        assert_eq!([13.5, 987.4, 12_480.0, 1_234_567.0].map(us), ["13.5", "987", "12,480", "1,234,567"]);
        let short = [&[][..], &[17_900.0], &[8990.0, 17_900.0], &[650.0, 652_739.0]].map(short_durations);
        assert_eq!(short, ["-", "18 ms", "9.0/18 ms", "0.65/653 ms"]);
        assert_eq!([0.5, 20.0, 5000.0, 2e6].map(round_duration), ["0.5 us", "20 us", "5 ms", "2 s"]);
        assert_eq!(
            [512, 4096, 1 << 20, 16_750_000_000].map(bytes),
            ["512 bytes", "4 KiB", "1 MiB", "15.6 GiB"]
        );
        assert_eq!([0.0, 4.0, 1240.0].map(gap), ["under 2 ms", "4 ms", "1,240 ms"]);
        assert_eq!(interval_of_ratio([1.002, 1.031]), ["1.002", "1.031"]);
        assert_eq!(interval_of_ratio([4.012, 4.081]), ["4.01", "4.08"]);
        assert_eq!(pace(Pace { gbit_per_s_per_node: 2.0 }), "2 Gbit/s a node");
        assert_eq!(pace(Pace { gbit_per_s_per_node: 2.5 }), "2.50 Gbit/s a node");
    }
}
