//! Protection schemes: those of the EF600, and k+m coding in general.

use crate::ef600::{cite, ef600};
use crate::error::{Error, Result, refuse};
use std::fmt;
use std::str::FromStr;

/// The maximum number of data or parity segments of a stripe: that of codes over bytes.
const SEGMENTS_MAX: u32 = 255;

/// A protection scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Scheme {
    /// A dynamic disk pool: declustered RAID 6 with spare capacity in the pool.
    Ddp,
    /// RAID 6 groups of 8 data and 2 parity drives.
    Raid6,
    /// Mirrored pairs.
    Raid1,
    /// k data and m parity segments over any number of drives, with distributed spare capacity.
    Coded {
        /// The number of data segments of a stripe.
        data: u32,
        /// The number of parity segments of a stripe.
        parity: u32,
    },
}

impl Scheme {
    /// The number of data and parity segments of a stripe; for a mirror, the data and their copy.
    #[must_use]
    pub fn segments(self) -> (u32, u32) {
        let array = ef600();
        match self {
            Self::Ddp => (array.pool.data, array.pool.parity),
            Self::Raid6 => (array.raid6.data, array.raid6.parity),
            Self::Raid1 => (1, 1),
            Self::Coded { data, parity } => (data, parity),
        }
    }

    /// The share of a stripe that is data.
    #[must_use]
    pub fn efficiency(self) -> f64 {
        let (data, parity) = self.segments();
        f64::from(data) / f64::from(data + parity)
    }

    /// The name shown to users.
    #[must_use]
    pub fn title(self) -> String {
        let (data, parity) = self.segments();
        match self {
            Self::Ddp => format!("DDP (declustered {data}+{parity}P)"),
            Self::Raid6 => format!("RAID 6 ({data}+{parity}P)"),
            Self::Raid1 => "RAID 1".to_owned(),
            Self::Coded { .. } => format!("{data}+{parity} declustered"),
        }
    }

    /// The source that describes the scheme.
    pub(crate) fn origin(self) -> String {
        match self {
            Self::Coded { .. } => "the definition of k+m coding".to_owned(),
            _ => cite("section Configuring the EF600 Storage Volumes"),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ddp => f.write_str("ddp"),
            Self::Raid6 => f.write_str("raid6"),
            Self::Raid1 => f.write_str("raid1"),
            Self::Coded { data, parity } => write!(f, "{data}+{parity}"),
        }
    }
}

impl From<Scheme> for String {
    fn from(scheme: Scheme) -> Self {
        scheme.to_string()
    }
}

impl TryFrom<String> for Scheme {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for Scheme {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let plain = text.trim().to_ascii_lowercase().replace([' ', '_'], "");
        match plain.replace('-', "").as_str() {
            "ddp" => return Ok(Self::Ddp),
            "raid6" => return Ok(Self::Raid6),
            "raid1" => return Ok(Self::Raid1),
            _ => {}
        }
        if let Some((data, parity)) = plain.split_once('+') {
            let parity = parity.trim_end_matches('p');
            if let (Ok(data), Ok(parity)) = (data.parse::<u32>(), parity.parse::<u32>())
                && (1..=SEGMENTS_MAX).contains(&data)
                && parity <= SEGMENTS_MAX
            {
                return Ok(Self::Coded { data, parity });
            }
            return refuse(
                format!("cannot use the scheme {text}"),
                format!("K+M has 1 to {SEGMENTS_MAX} data and 0 to {SEGMENTS_MAX} parity segments"),
                "the range of the model",
                "8+2",
            );
        }
        if plain == "raid10" {
            return refuse(
                "cannot use the scheme raid10",
                "mirroring and striping together is not recommended: the file system stripes over RAID 1 volumes",
                cite("section RAID Overhead"),
                "--scheme raid1",
            );
        }
        let nearest = match plain.as_str() {
            "raid5" | "raid0" => "--scheme 8+1        for 8 data and 1 parity; 8+0 for none",
            text if text.starts_with("raid") => "--scheme raid6, or raid1",
            _ => "--scheme ddp, raid6, raid1, or K+M as in 8+2",
        };
        refuse(
            format!("cannot use the scheme {text}"),
            "the schemes are ddp, raid6 and raid1, and K+M for any other code",
            cite("section RAID Overhead"),
            nearest,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_read_as_people_write_them() {
        for (text, scheme) in [
            ("ddp", Scheme::Ddp),
            ("RAID 6", Scheme::Raid6),
            ("raid-1", Scheme::Raid1),
            ("8+2", Scheme::Coded { data: 8, parity: 2 }),
            ("8+2P", Scheme::Coded { data: 8, parity: 2 }),
            ("4+0", Scheme::Coded { data: 4, parity: 0 }),
        ] {
            assert_eq!(text.parse(), Ok(scheme), "{text}");
        }
        for wrong in
            ["", "raid10", "raid5", "raid", "0+2", "8+", "+", "-1+2", "8+256", "zfs", "99999999999+1"]
        {
            let text = wrong.parse::<Scheme>().expect_err(wrong).to_string();
            assert!(text.contains("\n  try:   "), "{text}");
        }
    }
}
