//! What is to be mounted: `server:/export`, `[IPv6]:/export`, or
//! `nfs://server[:port]/export?options`.

use super::{MountOptions, OptionError, TargetError};
use std::fmt;

use transport::{Address, AddressError};

/// RFC 1813 s5.2.1 MNTPATHLEN
const PATH_BYTES_MAX: usize = 1024;
/// RFC 1035 s2.3.4, as text.
const NAME_BYTES_MAX: usize = 253;

/// A server as the user named it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name to be resolved.
    Name(String),
    /// An address.
    Address(Address),
}

/// A server and a path on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The server.
    pub host: Host,
    /// The port in an `nfs://` address.
    pub port: Option<u16>,
    /// The absolute path. It is bytes, because file names are: an address writes others than
    /// letters as %XX. In an address it may go on below the export; only the server knows where
    /// that ends.
    pub path: Vec<u8>,
    /// The options in an `nfs://` address, comma-separated.
    pub options: String,
}

impl Target {
    /// Reads one of the three forms.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let target = match text.strip_prefix("nfs://") {
            Some(rest) => Self::parse_address(rest)?,
            None => Self::parse_source(text)?,
        };
        if target.path.len() > PATH_BYTES_MAX {
            return Err(TargetError::TooLong(target.path.len()));
        }
        Ok(target)
    }

    /// Mount options: those in the address, then `more`, which win.
    ///
    /// # Errors
    ///
    /// What is wrong with the options.
    pub fn mount_options(&self, more: &str) -> Result<MountOptions, OptionError> {
        let port = self.port.map(|port| format!("port={port}")).unwrap_or_default();
        MountOptions::parse(&format!("{port},{},{more}", self.options))
    }

    fn parse_source(text: &str) -> Result<Self, TargetError> {
        let form = || TargetError::Form(text.to_owned());
        let (host, path) = if text.starts_with('[') {
            let end = text.find("]:").ok_or_else(form)?;
            (text.get(..=end).ok_or_else(form)?, text.get(end + 2..).ok_or_else(form)?)
        } else {
            let end = text.find(":/").ok_or_else(form)?;
            (text.get(..end).ok_or_else(form)?, text.get(end + 1..).ok_or_else(form)?)
        };
        // "//" is another scheme's address, not a path.
        if !path.starts_with('/') || path.starts_with("//") {
            return Err(form());
        }
        Ok(Self {
            host: parse_host(host)?,
            port: None,
            path: path.as_bytes().to_vec(),
            options: String::new(),
        })
    }

    fn parse_address(text: &str) -> Result<Self, TargetError> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let (authority, path) = match place.find('/') {
            Some(slash) => place.split_at(slash),
            None => (place, "/"),
        };
        let authority = unescape_zone(authority);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority.as_str(), None),
        };
        let port = match port {
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(TargetError::Port(port.to_owned())),
                Ok(number) => Some(number),
            },
            None => None,
        };
        // A query separates by "&", mount options by ","; both are taken.
        let query = unescape(query)?;
        let options = String::from_utf8(query).map_err(|_| TargetError::Form(text.to_owned()))?;
        Ok(Self { host: parse_host(host)?, port, path: unescape(path)?, options: options.replace('&', ",") })
    }
}

fn parse_host(text: &str) -> Result<Host, TargetError> {
    let bad = || TargetError::Host(text.to_owned());
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or_else(bad)?;
        return match inner.parse::<Address>() {
            Ok(address) if address.is_ipv6() => Ok(Host::Address(address)),
            Ok(_) | Err(AddressError::NotAnAddress(_)) => Err(bad()),
            Err(error) => Err(TargetError::Address(error)),
        };
    }
    if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
        return Ok(Host::Address(std::net::IpAddr::from(address).into()));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // What consists of digits and dots only was meant as an address.
    let numeric = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if numeric || text.len() > NAME_BYTES_MAX || !text.chars().all(allowed) || text.starts_with(['-', '.']) {
        return Err(bad());
    }
    Ok(Host::Name(text.to_owned()))
}

/// Replaces the `%25` before the zone of an IPv6 address by a `%`; a `%` alone is accepted too. RFC
/// 6874 s2, s3
fn unescape_zone(authority: &str) -> String {
    match authority.split_once("%25") {
        Some((address, zone)) if !zone.starts_with(']') => format!("{address}%{zone}"),
        _ => authority.to_owned(),
    }
}

/// Replaces %XX. RFC 3986 s2.1
fn unescape(text: &str) -> Result<Vec<u8>, TargetError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(TargetError::Escape(text.to_owned()));
        };
        out.push(u8::try_from(high * 16 + low).unwrap_or_default());
    }
    Ok(out)
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::Address(address) => out.write_str(&address.in_brackets()),
        }
    }
}

/// `server:/path`, for people to read: bytes of the path that are not UTF-8 are replaced.
impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, String::from_utf8_lossy(&self.path))
    }
}

impl std::str::FromStr for Target {
    type Err = TargetError;
    fn from_str(text: &str) -> Result<Self, TargetError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_fstab_are_read() {
        for (text, shown) in [
            ("10.0.0.1:/data", "10.0.0.1:/data"),
            ("nas-1.lab:/ifs/data:odd", "nas-1.lab:/ifs/data:odd"),
            ("[fd00::1]:/", "[fd00::1]:/"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.to_string().as_str(), target.port), (shown, None));
        }
    }

    #[test]
    fn addresses_have_a_port_escapes_and_options() {
        let target = Target::parse("nfs://nas:2050/a%20b/%ff?nconnect=8&spread_reads,ro").unwrap();
        assert_eq!(target.host, Host::Name("nas".to_owned()));
        assert_eq!(target.path, b"/a b/\xff");
        let options = target.mount_options("rw,nconnect=4").unwrap();
        assert_eq!((options.nfs_port(), options.nconnect, options.read_only), (2050, Some(4), false));
        assert!(options.spread_reads);
        let target = Target::parse("nfs://[fd00::1]").unwrap();
        assert_eq!((target.to_string().as_str(), target.port), ("[fd00::1]:/", None));
        assert_eq!(Target::parse("nfs://[fd00::1]:99/x").unwrap().port, Some(99));
    }

    #[test]
    fn a_link_local_address_has_its_interface_in_each_form() {
        for text in [
            "[fe80::1%lo]:/x",
            "[fe80::1%1]:/x",
            "nfs://[fe80::1%25lo]/x",
            "nfs://[fe80::1%251]:7/x",
            "nfs://[fe80::1%lo]/x",
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.to_string(), "[fe80::1%lo]:/x", "{text}");
            assert_eq!(target.port.is_some(), text.contains(":7"), "{text}");
        }
        for (text, why) in [
            ("[fe80::1]:/x", "name its interface"),
            ("nfs://[fe80::1%25nosuch0]/x", "no interface \"nosuch0\""),
            ("[fd00::1%lo]:/x", "only link-local"),
        ] {
            let error = Target::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn an_invalid_target_is_refused() {
        for text in [
            "",
            "/data",
            "server",
            "server:",
            "server:data",
            ":/data",
            "fd00::1:/data",
            "[fd00::1]/data",
            "[x]:/data",
            "[fd00::1:/data",
            "10.0.0:/data",
            "10.0.0.256:/data",
            "se rver:/data",
            "-x:/data",
            "nfs://",
            "nfs:///data",
            "nfs://h:0/d",
            "nfs://h:65536/d",
            "nfs://h:x/d",
            "nfs://h/%f",
            "nfs://h/%zz",
            "http://h/d",
            "]:/",
            "é:/d",
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
        assert_eq!(Target::parse(&format!("h:/{}", "x".repeat(1024))), Err(TargetError::TooLong(1025)));
    }
}
