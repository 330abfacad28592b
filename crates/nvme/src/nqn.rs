//! NVMe qualified names and host identifiers. NVMe Base, "NVMe Qualified Names", "Host Identifier".
//!
//! A name that was made here keeps the rules: it begins with `nqn.`, a date and a reversed domain
//! name, is at most 223 bytes of UTF-8 and has no character that would end or hide it. What peers
//! send is compared with such names and never needs more.

use crate::layout::hex;
use std::fmt;

/// The longest name in bytes, without the NUL that ends it on the wire.
pub const NQN_BYTES_MAX: usize = 223;

/// The field of a name on the wire: filled with NULs.
pub const NQN_FIELD_BYTES: usize = 256;

/// The well-known name of discovery services. NVMe Base, "Discovery Service"
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The beginning of names that are made from a UUID.
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// An NVMe qualified name that keeps the rules.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn(Box<str>);

/// Which rule a name breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    /// Longer than 223 bytes.
    #[error("the name has {0} bytes, at most {NQN_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// A field without the NUL that ends the name.
    #[error("the name does not end within its field")]
    NotTerminated,
    /// Not UTF-8.
    #[error("the name is not UTF-8")]
    NotUtf8,
    /// It begins otherwise.
    #[error("the name does not begin with \"nqn.\"")]
    Prefix,
    /// Its date is missing or none.
    #[error("\"nqn.\" must be followed by year and month as in \"nqn.2014-08.\"")]
    Date,
    /// No domain name after the date.
    #[error("the date must be followed by a reversed domain name as in \"nqn.2014-08.com.example\"")]
    Domain,
    /// A name that claims to have a UUID and has none.
    #[error("\"{UUID_PREFIX}\" must be followed by a UUID")]
    Uuid,
    /// A blank or a control character.
    #[error("the name has a blank or a control character")]
    Character,
}

impl Nqn {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NqnError`] names the rule that the name breaks.
    pub fn new(name: &str) -> Result<Self, NqnError> {
        if name.len() > NQN_BYTES_MAX {
            return Err(NqnError::TooLong(name.len()));
        }
        if name.chars().any(|one| one.is_control() || one.is_whitespace()) {
            return Err(NqnError::Character);
        }
        let rest = name.strip_prefix("nqn.").ok_or(NqnError::Prefix)?;
        let (date, rest) = rest.split_once('.').ok_or(NqnError::Date)?;
        if !is_year_and_month(date) {
            return Err(NqnError::Date);
        }
        if let Some(uuid) = name.strip_prefix(UUID_PREFIX) {
            if !is_uuid(uuid) {
                return Err(NqnError::Uuid);
            }
        } else if !is_domain(rest.split(':').next().unwrap_or_default()) {
            return Err(NqnError::Domain);
        }
        Ok(Self(name.into()))
    }

    /// The name of a host or subsystem with this UUID.
    #[must_use]
    pub fn of_uuid(uuid: [u8; 16]) -> Self {
        Self(format!("{UUID_PREFIX}{}", HostId(uuid)).into())
    }

    /// The name of discovery services.
    #[must_use]
    pub fn discovery() -> Self {
        Self(DISCOVERY_NQN.into())
    }

    /// Reads the name in a field of the wire.
    ///
    /// # Errors
    /// [`NqnError`] names the rule that the name breaks.
    pub fn decode(field: &[u8; NQN_FIELD_BYTES]) -> Result<Self, NqnError> {
        let end = field.iter().position(|byte| *byte == 0).ok_or(NqnError::NotTerminated)?;
        let name = field.get(..end).unwrap_or_default();
        if name.len() > NQN_BYTES_MAX {
            return Err(NqnError::TooLong(name.len()));
        }
        Self::new(std::str::from_utf8(name).map_err(|_| NqnError::NotUtf8)?)
    }

    /// The field of the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; NQN_FIELD_BYTES] {
        crate::layout::text(&self.0, 0)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the well-known name of discovery services.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }
}

fn is_year_and_month(date: &str) -> bool {
    let Some((year, month)) = date.split_once('-') else { return false };
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(year, 4) && digits(month, 2) && ("01"..="12").contains(&month)
}

/// Labels of letters, digits and hyphens. A single label is not refused, since tests and small
/// sites have such names.
fn is_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let characters = label.chars().all(|one| one.is_alphanumeric() || one == '-' || one == '_');
        !label.is_empty() && characters && !label.starts_with('-') && !label.ends_with('-')
    })
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

impl fmt::Debug for Nqn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::str::FromStr for Nqn {
    type Err = NqnError;

    fn from_str(name: &str) -> Result<Self, NqnError> {
        Self::new(name)
    }
}

/// The 128 bits that identify a host, besides its name. Zero is not valid over fabrics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct HostId(pub [u8; 16]);

crate::layout::transparent!(HostId, [u8; 16]);

impl fmt::Display for HostId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in [(0, 4), (4, 6), (6, 8), (8, 10), (10, 16)].into_iter().enumerate() {
            formatter.write_str(if at == 0 { "" } else { "-" })?;
            hex(self.0.get(part.0..part.1).unwrap_or_default(), formatter)?;
        }
        Ok(())
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_hosts_have() {
        for name in [
            DISCOVERY_NQN,
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2014-08.com.example:nvme.host.sys.xyz",
            "nqn.2026-11.test:a",
            "nqn.2014-08.com.vmware:nvme:esx-1",
        ] {
            let nqn = Nqn::new(name).expect(name);
            assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn.clone()));
            assert_eq!(nqn.to_string(), name);
        }
    }

    #[test]
    fn a_broken_name_names_the_rule() {
        let long = format!("nqn.2014-08.com.example:{}", "x".repeat(200));
        for (name, error) in [
            (long.as_str(), NqnError::TooLong(224)),
            ("", NqnError::Prefix),
            ("iqn.2014-08.com.example", NqnError::Prefix),
            ("nqn.2014-08", NqnError::Date),
            ("nqn.2014-13.com.example", NqnError::Date),
            ("nqn.14-08.com.example", NqnError::Date),
            ("nqn.2014-08.", NqnError::Domain),
            ("nqn.2014-08..com", NqnError::Domain),
            ("nqn.2014-08.:x", NqnError::Domain),
            ("nqn.2014-08.org.nvmexpress:uuid:f81d4fae", NqnError::Uuid),
            ("nqn.2014-08.com.example:a b", NqnError::Character),
            ("nqn.2014-08.com.example:a\n", NqnError::Character),
        ] {
            assert_eq!(Nqn::new(name), Err(error), "{name:?}");
        }
    }

    #[test]
    fn a_field_is_checked_like_a_name() {
        assert_eq!(Nqn::decode(&[b'n'; 256]), Err(NqnError::NotTerminated));
        let mut field = [0; 256];
        field[..5].copy_from_slice(&[b'n', b'q', b'n', b'.', 0xff]);
        assert_eq!(Nqn::decode(&field), Err(NqnError::NotUtf8));
        assert_eq!(Nqn::decode(&[0; 256]), Err(NqnError::Prefix));
        let longest = format!("nqn.2014-08.com.example:{}", "x".repeat(199));
        assert_eq!(Nqn::new(&longest).expect("223 bytes").encode()[222..224], [b'x', 0]);
    }

    #[test]
    fn a_name_of_a_uuid_has_its_digits_in_order() {
        let nqn = Nqn::of_uuid(std::array::from_fn(|at| at as u8));
        let name = "nqn.2014-08.org.nvmexpress:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f";
        assert_eq!((nqn.as_str(), Nqn::new(name)), (name, Ok(nqn.clone())));
    }
}
