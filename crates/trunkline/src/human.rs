//! Amounts as ls(1), du(1) and df(1) show them.

/// Units of human-readable amounts, each 1024 times the one before.
const UNITS: &str = "KMGTPE";

/// In units of 1024 and its powers, rounded up: `17`, `4.2K`, `120M`.
pub fn human(amount: u64) -> String {
    let mut divisor: u128 = 1;
    let amount = u128::from(amount);
    if amount < 1024 {
        return amount.to_string();
    }
    for unit in UNITS.chars() {
        divisor *= 1024;
        let tenths = (amount * 10).div_ceil(divisor);
        if tenths < 100 {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        let whole = amount.div_ceil(divisor);
        if whole < 1024 || unit == 'E' {
            return format!("{whole}{unit}");
        }
    }
    amount.to_string()
}

/// Human-readable, or in blocks of 1024 bytes, rounded up.
pub fn blocks(bytes: u64, is_human: bool) -> String {
    if is_human { human(bytes) } else { bytes.div_ceil(1024).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up_as_ls_rounds_them() {
        for (amount, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (5_000_000_000, "4.7G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(amount), text, "{amount}");
        }
        assert_eq!(blocks(1025, false), "2");
    }
}
