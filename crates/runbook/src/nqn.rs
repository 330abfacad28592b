//! NVMe qualified names in the form of organisations: `nqn.yyyy-mm.reversed-domain:text`.
//!
//! NVM Express Base Specification 2.0, section 4.5 (7.9 in 1.4b): UTF-8, at most 223 bytes; the
//! date is one on which the organisation owned the domain.

/// The source of the rules.
pub(crate) const ORIGIN: &str = "NVM Express Base Specification 2.0, section 4.5; 1.4b, section 7.9";
/// The most bytes of a name.
pub(crate) const BYTES_MAX: usize = 223;
/// What the form with a UUID begins with.
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";
/// The same as a guide misprints it (docs/DEVIATIONS.md).
const MISPRINTED_UUID_PREFIX: &str = "nqn.2014-08.org.nvmeexpress:uuid:";

/// Checks a host's NQN, or what comes before the host's own text; returns the broken rule.
pub(crate) fn check(nqn: &str) -> Result<(), String> {
    if [UUID_PREFIX, MISPRINTED_UUID_PREFIX].iter().any(|prefix| nqn.starts_with(prefix)) {
        return Err(
            "a host's NQN names the host and outlives a new installation; the UUID form does neither"
                .to_owned(),
        );
    }
    let rest = nqn.strip_prefix("nqn.").ok_or("an NQN begins with nqn.")?;
    let (naming, text) = rest.split_once(':').ok_or("a colon follows the domain")?;
    let (date, domain) = naming.split_once('.').ok_or("a date and a reversed domain follow nqn.")?;
    if !is_date(date) {
        return Err(format!("nqn. is followed by a year and a month, yyyy-mm, and {date} is none"));
    }
    let labels: Vec<_> = domain.split('.').collect();
    if labels.len() < 2 || !labels.iter().all(|label| is_label(label)) {
        return Err(format!(
            "the date is followed by a domain in reverse order, such as com.example, and {domain} is none"
        ));
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte)) {
        return Err("the colon is followed by letters, digits and -._: that are unique in the organisation"
            .to_owned());
    }
    if nqn.len() > BYTES_MAX {
        return Err(format!("an NQN has at most {BYTES_MAX} bytes, and this has {}", nqn.len()));
    }
    Ok(())
}

fn is_date(text: &str) -> bool {
    let Some((year, month)) = text.split_once('-') else { return false };
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(year, 4) && digits(month, 2) && (1..=12).contains(&month.parse().unwrap_or(0))
}

/// Whether this is one part of a domain name. RFC 1123 s2.1
pub(crate) fn is_label(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(valid)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    // Deploying NetApp EF600, figure 16.
    #[test]
    fn the_form_of_organisations_is_accepted() {
        for nqn in [
            "nqn.2020-12.com.lenovo.eu.hpc:nvme:cmp2501-ib0",
            "nqn.2024-01.org.example:h",
            "nqn.1992-08.com.netapp:6000.6d039ea0003ef5100000000059729fff",
        ] {
            assert_eq!(check(nqn), Ok(()), "{nqn}");
        }
    }

    #[test]
    fn broken_names_are_refused_with_the_rule() {
        for (nqn, rule) in [
            ("iqn.2020-12.com.example:h", "begins with nqn."),
            ("nqn.2020-12.com.example", "a colon"),
            ("nqn.2020:h", "a date and a reversed domain"),
            ("nqn.2020-13.com.example:h", "a year and a month"),
            ("nqn.20-12.com.example:h", "a year and a month"),
            ("nqn.2020-12.example:h", "in reverse order"),
            ("nqn.2020-12.com.Example:h", "in reverse order"),
            ("nqn.2020-12.com..example:h", "in reverse order"),
            ("nqn.2020-12.com.example:", "unique"),
            ("nqn.2020-12.com.example:two words", "unique"),
            ("nqn.2014-08.org.nvmeexpress:uuid:783f3338-eda8-46d9-bb27-dd14cddb4a1b", "outlives"),
            ("nqn.2014-08.org.nvmexpress:uuid:783f3338-eda8-46d9-bb27-dd14cddb4a1b", "outlives"),
            (&format!("nqn.2020-12.com.example:{}", "x".repeat(200)), "at most 223"),
        ] {
            assert!(check(nqn).is_err_and(|text| text.contains(rule)), "{nqn}: {:?}", check(nqn));
        }
    }
}
