//! Values of options: sizes, times, numbers, switches.
//!
//! With `kb_base=1024`, which is the default, fio's prefixes are the opposite of the SI's: `k` and
//! `kb` are 1024, `Ki` and `KiB` are 1000. With `kb_base=1000` they are as in the SI.

use crate::error::Fault;

type Parsed<T> = std::result::Result<T, Fault>;

/// The meaning of the prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Base {
    /// `kb_base=1024`.
    #[default]
    Binary,
    /// `kb_base=1000`.
    Decimal,
}

/// A size in bytes: `4k`, `1M`, `10G`, `0x1000`.
pub(crate) fn size(text: &str, base: Base) -> Parsed<u64> {
    let wrong =
        |why: &str| Fault::new(format!("`{text}` is no size{why}"), "a size as in 512, 4k, 1M or 10G");
    if text.ends_with('%') {
        return Err(wrong(": a percentage depends on a device"));
    }
    let lower = text.to_ascii_lowercase();
    let (digits, unit) = split_number(&lower);
    let number = integer(digits).ok_or_else(|| wrong(""))?;
    let unit = unit.strip_suffix('b').unwrap_or(unit);
    let (prefix, opposite) = match unit.strip_suffix('i') {
        Some(prefix) => (prefix, true),
        None => (unit, false),
    };
    let power = match prefix {
        "" if !opposite => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong("")),
    };
    let step: u64 = if (base == Base::Binary) == opposite { 1000 } else { 1024 };
    step.checked_pow(power)
        .and_then(|unit| number.checked_mul(unit))
        .ok_or_else(|| wrong(": it is too large"))
}

/// A time in microseconds. A number without a unit is in seconds.
pub(crate) fn time_us(text: &str) -> Parsed<u64> {
    let wrong = || Fault::new(format!("`{text}` is no time"), "a time as in 60, 1m or 500ms");
    let lower = text.to_ascii_lowercase();
    let (digits, unit) = split_number(&lower);
    let number = integer(digits).ok_or_else(wrong)?;
    let scale: u64 = match unit {
        "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(scale).ok_or_else(wrong)
}

/// A number without a unit of bytes; as in fio, a prefix scales it.
pub(crate) fn number(text: &str, base: Base) -> Parsed<u64> {
    size(text, base).map_err(|_| Fault::new(format!("`{text}` is no number"), "a whole number"))
}

/// A switch: an option alone is on.
pub(crate) fn switch(text: Option<&str>) -> Parsed<bool> {
    match text {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(other) => Err(Fault::new(format!("`{other}` is neither 0 nor 1"), "1 for on, 0 for off")),
    }
}

fn split_number(text: &str) -> (&str, &str) {
    let is_digit = |it: char| {
        if text.starts_with("0x") { it == 'x' || it.is_ascii_hexdigit() } else { it.is_ascii_digit() }
    };
    let end = text.find(|it: char| !is_digit(it)).unwrap_or(text.len());
    text.split_at(end)
}

fn integer(digits: &str) -> Option<u64> {
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_fio() {
        for (text, binary, decimal) in [
            ("512", 512, 512),
            ("4k", 4096, 4000),
            ("4K", 4096, 4000),
            ("4kb", 4096, 4000),
            ("4KiB", 4000, 4096),
            ("1m", 1 << 20, 1_000_000),
            ("10G", 10 << 30, 10_000_000_000),
            ("2T", 2 << 40, 2_000_000_000_000),
            ("7b", 7, 7),
            ("0x1000", 4096, 4096),
        ] {
            assert_eq!(size(text, Base::Binary), Ok(binary), "{text}");
            assert_eq!(size(text, Base::Decimal), Ok(decimal), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "k", "1.5k", "-1", "4q", "4kk", "10%", "99999999999999999999", "30000000P", "i", "7i"]
        {
            assert!(size(text, Base::Binary).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_seconds_as_their_unit() {
        for (text, us) in [("60", 60_000_000), ("1m", 60_000_000), ("500ms", 500_000), ("5s", 5_000_000)] {
            assert_eq!(time_us(text), Ok(us), "{text}");
        }
        for text in ["", "m", "1h30m", "1.5m", "5 s"] {
            assert!(time_us(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_switch_alone_is_on() {
        assert_eq!(switch(None), Ok(true));
        assert_eq!(switch(Some("0")), Ok(false));
        assert!(switch(Some("true")).is_err());
    }
}
