//! Capacities and speeds with their units, so that decimal (TB, GB) and binary (TiB, GiB) units are
//! never confused.
//!
//! A text without a unit is refused: 7.68 TB and 7.68 TiB differ by a tenth. Drives and speeds are
//! given in decimal units; memory, and what an array's command line calls GB, in binary units.

use crate::error::{Result, refuse};
use serde::Serialize;

/// The source of the factors and of which unit is usual where.
const ORIGIN: &str = "Deploying NetApp EF600, Lenovo Press 2021, appendix and table 4";
/// 2^30 bytes.
pub const GIB: f64 = 1_073_741_824.0;
/// 2^40 bytes.
pub const TIB: f64 = 1_099_511_627_776.0;
/// The maximum capacity, an exabyte. A larger one is a typing error.
const CAPACITY_BYTES_MAX: f64 = 1e18;
/// A number without a unit from here on is more likely in GB than in TB.
const TB_WITHOUT_UNIT_MAX: f64 = 1000.0;
/// The maximum speed, a petabyte per second. A larger one is a typing error.
const SPEED_GBYTES_MAX: f64 = 1e6;
/// The minimum speed, a byte per second, so that quotients of speeds are finite.
const SPEED_GBYTES_MIN: f64 = 1e-9;

/// A number of bytes, finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Bytes(f64);

impl Bytes {
    /// This many bytes; 0 for a negative number or NaN.
    #[must_use]
    pub const fn new(bytes: f64) -> Self {
        if bytes.is_finite() && bytes > 0.0 { Self(bytes) } else { Self(0.0) }
    }

    /// Converts from decimal terabytes of 10^12 bytes.
    #[must_use]
    pub const fn from_tb(tb: f64) -> Self {
        Self::new(tb * 1e12)
    }

    /// Converts from binary tebibytes of 2^40 bytes.
    #[must_use]
    pub const fn from_tib(tib: f64) -> Self {
        Self::new(tib * TIB)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The capacity in decimal terabytes.
    #[must_use]
    pub const fn tb(self) -> f64 {
        self.0 / 1e12
    }

    /// The capacity in binary tebibytes.
    #[must_use]
    pub const fn tib(self) -> f64 {
        self.0 / TIB
    }

    /// The capacity in binary gibibytes.
    #[must_use]
    pub const fn gib(self) -> f64 {
        self.0 / GIB
    }

    /// This multiple of the capacity.
    #[must_use]
    pub const fn times(self, factor: f64) -> Self {
        Self::new(self.0 * factor)
    }
}

/// The units of a capacity, longest names first.
const CAPACITY_UNITS: [(&str, f64); 6] =
    [("TiB", TIB), ("GiB", GIB), ("PiB", TIB * 1024.0), ("TB", 1e12), ("GB", 1e9), ("PB", 1e15)];

/// Reads a capacity with its unit, such as `7.68TB` or `6.98 TiB`. `what` is the option with the
/// text.
///
/// # Errors
/// A text without a unit or a number, or an impossible number.
pub fn parse_capacity(what: &str, text: &str) -> Result<Bytes> {
    let trimmed = text.trim();
    let unit = CAPACITY_UNITS.iter().find_map(|(name, factor)| Some((trimmed.strip_suffix(name)?, factor)));
    if let Some((number, factor)) = unit {
        let value: f64 = number.trim().parse().unwrap_or(f64::NAN);
        return capacity(what, trimmed, value * factor, "7.68TB");
    }
    match trimmed.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => no_unit(what, trimmed, value),
        _ => refuse(
            format!("cannot read {what} {trimmed}"),
            "a capacity is a number and one of TB, GB, PB (decimal) or TiB, GiB, PiB (binary)",
            ORIGIN,
            format!("{what} 7.68TB"),
        ),
    }
}

/// Refuses a number without a unit, and proposes the two most likely units.
fn no_unit(what: &str, text: &str, value: f64) -> Result<Bytes> {
    let (decimal, binary, in_binary, habit) = if value < TB_WITHOUT_UNIT_MAX {
        ("TB", "TiB", Bytes::from_tb(value).tib(), "as drives are sold")
    } else {
        ("GB", "GiB", Bytes::new(value * 1e9).gib(), "in decimal units")
    };
    refuse(
        format!("cannot read {what} {text}"),
        format!("{text} of what? {text} {decimal} are {in_binary:.2} {binary}, so a capacity needs its unit"),
        ORIGIN,
        format!("{what} {text}{decimal}        {habit}; or {text}{binary}"),
    )
}

fn capacity(what: &str, text: &str, bytes: f64, nearest: &str) -> Result<Bytes> {
    if bytes.is_finite() && bytes > 0.0 && bytes <= CAPACITY_BYTES_MAX {
        return Ok(Bytes::new(bytes));
    }
    refuse(
        format!("cannot use {what} {text}"),
        "a capacity is more than nothing and at most 1,000,000 TB",
        "the range of the model",
        format!("{what} {nearest}"),
    )
}

/// Checks a capacity in TB.
///
/// # Errors
/// A capacity that neither a drive nor a need has.
pub fn check_tb(what: &str, tb: f64) -> Result<Bytes> {
    capacity(what, &trim(tb), tb * 1e12, "7.68TB")
}

/// Checks a capacity in TiB.
///
/// # Errors
/// A capacity that no need has.
pub fn check_tib(what: &str, tib: f64) -> Result<Bytes> {
    capacity(what, &trim(tib), tib * TIB, "500        in TiB")
}

/// Checks a speed in GB/s.
///
/// # Errors
/// A speed that is not a number, not above 0, or beyond any fabric.
pub fn check_speed(what: &str, gbytes_per_s: f64) -> Result<f64> {
    if (SPEED_GBYTES_MIN..=SPEED_GBYTES_MAX).contains(&gbytes_per_s) {
        return Ok(gbytes_per_s);
    }
    refuse(
        format!("cannot use {what} {}", trim(gbytes_per_s)),
        "a speed is more than nothing and at most 1,000,000 GB/s",
        "the range of the model",
        format!("{what} 3.5        in decimal GB/s; a drive's data sheet has it"),
    )
}

/// Checks a share in percent.
///
/// # Errors
/// A share below 0, or 100 and above.
pub fn check_percent(what: &str, percent: f64) -> Result<f64> {
    if (0.0..100.0).contains(&percent) {
        return Ok(percent);
    }
    let nearest = if percent >= 100.0 { "99" } else { "0" };
    refuse(
        format!("cannot use {what} {}", trim(percent)),
        "a share is 0 to less than 100 percent",
        "the range of the model",
        format!("{what} {nearest}"),
    )
}

/// Converts GB/s to GiB/s.
#[must_use]
pub const fn gib_per_s(gbytes_per_s: f64) -> f64 {
    gbytes_per_s * 1e9 / GIB
}

/// Converts GiB/s to GB/s.
#[must_use]
pub const fn gbytes_per_s(gib_per_s: f64) -> f64 {
    gib_per_s * GIB / 1e9
}

/// A number as usually written: at most six decimals, without trailing zeros.
#[must_use]
pub fn trim(value: f64) -> String {
    if value.abs() >= 1e15 {
        return format!("{value:e}");
    }
    let text = format!("{value:.6}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Deploying NetApp EF600, Lenovo Press 2021, table 4.
    #[test]
    fn decimal_and_binary_units_differ_as_table_4_has_it() {
        let ratios = [
            (1e9 / GIB, "0.931323"),
            (1e12 / TIB, "0.909495"),
            (GIB / 1e9, "1.073742"),
            (TIB / 1e12, "1.099512"),
        ];
        for (ratio, printed) in ratios {
            assert_eq!(format!("{ratio:.6}"), printed);
        }
    }

    #[test]
    fn a_number_without_a_unit_is_refused_with_both_units_to_choose_from() {
        let text = parse_capacity("--drive", "7.68").expect_err("no unit").to_string();
        assert!(text.contains("7.68 of what?"), "{text}");
        assert!(text.contains("6.98 TiB"), "{text}");
        assert!(text.contains("--drive 7.68TB"), "{text}");
    }

    #[test]
    fn a_number_of_a_volumes_size_without_a_unit_is_asked_whether_it_is_gb_or_gib() {
        let text = parse_capacity("--volume", "4992").expect_err("no unit").to_string();
        assert!(text.contains("4992 GB are 4649.16 GiB"), "{text}");
        assert!(text.contains("--volume 4992GB") && text.contains("or 4992GiB"), "{text}");
    }

    // A capacity in TiB is a tenth more than the same number of TB.
    #[test]
    fn the_largest_capacity_is_the_same_in_tb_and_in_tib() {
        assert!(check_tb("--drive-tb", 1e6).is_ok() && check_tb("--drive-tb", 1.000_001e6).is_err());
        assert!(check_tib("--need-tib", 909_494.0).is_ok() && check_tib("--need-tib", 909_496.0).is_err());
    }

    #[test]
    fn capacities_are_read_with_their_units() {
        for (text, bytes) in [("7.68TB", 7.68e12), ("1 TiB", TIB), ("4992GiB", 4992.0 * GIB), ("5GB", 5e9)] {
            assert_eq!(parse_capacity("--drive", text).map(Bytes::get), Ok(bytes), "{text}");
        }
        for wrong in ["", "TB", "-1TB", "0TB", "nanTB", "infTiB", "1e300TB", "1EB", "seven TB", "7,68TB"] {
            assert!(parse_capacity("--drive", wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn units_round_trip(value in 1e-6_f64..1e6) {
            let close = |a: f64, b: f64| (a - b).abs() <= b.abs() * 1e-12;
            prop_assert!(close(Bytes::from_tb(value).tb(), value));
            prop_assert!(close(Bytes::from_tib(Bytes::from_tb(value).tib()).tb(), value));
            prop_assert!(close(gbytes_per_s(gib_per_s(value)), value));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,12}") {
            let _ = parse_capacity("--drive", &text);
        }
    }
}
