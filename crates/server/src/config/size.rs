//! Sizes and rates in text form: `2GiB`, `512M`, `2Gbit`.

/// Why a size or rate could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text does not begin with a number.
    #[error("\"{0}\" does not begin with a number")]
    NoNumber(String),
    /// The unit is not known.
    #[error("\"{0}\" has an unknown unit; known: {1}")]
    Unit(String, &'static str),
    /// The value does not fit into 64 bits.
    #[error("\"{0}\" is too large")]
    TooLarge(String),
}

const SIZE_UNITS: &str = "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB";
const RATE_UNITS: &str = "kbit, Mbit, Gbit, or a size (bytes per second), each with or without /s";

fn split(text: &str) -> Result<(f64, &str), SizeError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse::<f64>().map_err(|_| SizeError::NoNumber(text.to_owned()))?;
    Ok((number, unit.trim()))
}

/// The bytes in one unit. A single letter means the binary unit, as in other storage tools.
fn bytes_in(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

fn product(text: &str, number: f64, unit: f64) -> Result<u64, SizeError> {
    let value = (number * unit).round();
    // 2^63 is far above every size here, and the conversion is well-defined below it.
    if value >= 9.0e18 {
        return Err(SizeError::TooLarge(text.to_owned()));
    }
    Ok(value as u64)
}

/// Formats a size in the largest binary unit that does not exceed it.
#[must_use]
pub fn in_words(bytes: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// Parses a size in bytes: `4096`, `2GiB`, `1.5 TiB`, `512M`, `20GB`.
///
/// # Errors
/// [`SizeError`].
pub fn parse_bytes(text: &str) -> Result<u64, SizeError> {
    let (number, unit) = split(text)?;
    let unit = bytes_in(unit).ok_or_else(|| SizeError::Unit(text.to_owned(), SIZE_UNITS))?;
    product(text, number, unit as f64)
}

/// Parses a rate in bytes per second: `2Gbit`, `2gbit/s`, `250MB`, `250MB/s`.
///
/// # Errors
/// [`SizeError`].
pub fn parse_rate(text: &str) -> Result<u64, SizeError> {
    let (number, unit) = split(text)?;
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let bits = match unit.to_ascii_lowercase().as_str() {
        "bit" => Some(1.0),
        "kbit" => Some(1e3),
        "mbit" => Some(1e6),
        "gbit" => Some(1e9),
        _ => None,
    };
    let bytes = bits.map(|bits| bits / 8.0).or_else(|| bytes_in(unit).map(|bytes| bytes as f64));
    product(text, number, bytes.ok_or_else(|| SizeError::Unit(text.to_owned(), RATE_UNITS))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("2GiB", 2 << 30),
            ("2 GiB", 2 << 30),
            ("512M", 512 << 20),
            ("1.5KiB", 1536),
            ("20GB", 20_000_000_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert!(matches!(parse_bytes("GiB"), Err(SizeError::NoNumber(_))));
        assert!(matches!(parse_bytes("2 goats"), Err(SizeError::Unit(..))));
        assert!(matches!(parse_bytes("99999999999999TiB"), Err(SizeError::TooLarge(_))));
        assert!(matches!(parse_bytes("1.2.3"), Err(SizeError::NoNumber(_))));
    }

    #[test]
    fn rates_are_bits_of_links_or_bytes() {
        for (text, bytes) in [("2Gbit", 250_000_000), ("100mbit/s", 12_500_000), ("250MB/s", 250_000_000)] {
            assert_eq!(parse_rate(text), Ok(bytes), "{text}");
        }
        assert!(parse_rate("2 furlongs").is_err());
    }
}
