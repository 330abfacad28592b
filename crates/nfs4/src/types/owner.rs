//! Owners and groups, which are text in this version: RFC 8881 s5.9 (`utf8str_mixed`).
//!
//! Under AUTH_SYS both ends speak in numbers: "1000". Linux does so unless told otherwise. A name
//! of the form "1000@domain" is accepted for one configured domain; everything else is for a
//! service of names, which is not here.

use crate::Wire;
use xdr::{Reader, Result, Writer};

/// The value of `owner` or `owner_group`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner<'a> {
    /// A number, written in decimal without leading zeros.
    Id(u32),
    /// Any other text.
    Name(&'a [u8]),
}

impl Owner<'_> {
    /// The number of the owner: "1000", or "1000@domain" if that is the `domain` given here, in any
    /// case of letters. `None` for anything else; the answer is NFS4ERR_BADOWNER. RFC 8881 s5.9
    #[must_use]
    pub fn id(self, domain: &[u8]) -> Option<u32> {
        match self {
            Self::Id(id) => Some(id),
            Self::Name(name) => {
                let at = name.iter().position(|byte| *byte == b'@')?;
                let (digits, rest) = name.split_at_checked(at)?;
                let named = rest.get(1..)?;
                let ours = !domain.is_empty() && named.eq_ignore_ascii_case(domain);
                if ours { decimal(digits) } else { None }
            }
        }
    }
}

/// A decimal number of 32 bits without sign, blanks and leading zeros.
fn decimal(digits: &[u8]) -> Option<u32> {
    let leading_zero = digits.len() > 1 && digits.starts_with(b"0");
    if digits.is_empty() || leading_zero {
        return None;
    }
    digits.iter().try_fold(0_u32, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u32::from(digit))
    })
}

impl<'a> Wire<'a> for Owner<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let text = <&[u8]>::decode(reader)?;
        Ok(decimal(text).map_or(Self::Name(text), Self::Id))
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Id(id) => {
                let mut digits = [0; 10];
                writer.opaque(in_decimal(*id, &mut digits));
            }
            Self::Name(name) => writer.opaque(name),
        }
    }
}

/// The decimal digits of `value`, at the end of the buffer.
fn in_decimal(mut value: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut used = 0;
    for place in digits.iter_mut().rev() {
        // A digit fits 8 bits.
        *place = b'0' + (value % 10) as u8;
        used += 1;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    digits.get(10 - used..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(text: &[u8]) -> (Option<u32>, Vec<u8>) {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).opaque(text);
        let owner = Owner::decode(&mut Reader::new(&bytes)).unwrap();
        let mut again = Vec::new();
        owner.encode(&mut Writer::new(&mut again));
        assert_eq!(again, bytes);
        (owner.id(b"example.org"), bytes)
    }

    // RFC 8881 s5.9
    #[test]
    fn numbers_are_owners_and_names_of_the_domain_may_be_numbers() {
        for (text, id) in [
            ("0", Some(0)),
            ("1000", Some(1000)),
            ("4294967295", Some(u32::MAX)),
            ("1000@example.org", Some(1000)),
            ("1000@EXAMPLE.ORG", Some(1000)),
            ("4294967296", None),
            ("1000@other.org", None),
            ("1000@", None),
            ("@example.org", None),
            ("root@example.org", None),
            ("root", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            (" 1", None),
            ("007", None),
            ("1000@example.org@example.org", None),
        ] {
            assert_eq!(owner(text.as_bytes()).0, id, "{text}");
        }
        assert_eq!(Owner::Name(b"1@").id(b""), None);
    }
}
