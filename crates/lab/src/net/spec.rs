//! The properties of a lab: the number of nodes, and the rate and delay of a link.

use super::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The maximum number of nodes: link n has the networks 10.77.n.0/24 and fd77:n::/64.
pub const NODES_MAX: u8 = 250;

/// The minimum rate. Below it, a full Ethernet frame takes over a second.
const BITS_PER_S_MIN: u64 = 16_000;

/// The maximum rate. Above it, the shaper's clock is too coarse.
const BITS_PER_S_MAX: u64 = 400_000_000_000;

/// The maximum delay in each direction. A path around the world takes a fifth of it.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// The rate of a link in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Rate {
    bits_per_s: u64,
}

impl Rate {
    /// A rate in bits per second.
    #[must_use]
    pub const fn bits_per_s(bits_per_s: u64) -> Self {
        Self { bits_per_s }
    }

    /// The rate in bits per second.
    #[must_use]
    pub const fn as_bits_per_s(self) -> u64 {
        self.bits_per_s
    }

    /// The burst size of the shaper: a millisecond's worth of bytes, and at least two of the
    /// largest segments of TCP, so that shaping causes no additional segmentation.
    #[must_use]
    pub(super) fn burst_bytes(self) -> u64 {
        (self.bits_per_s / 8 / 1000).max(128 * 1024)
    }
}

impl fmt::Display for Rate {
    /// Formats the rate for `tc`, in the largest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")];
        match units.into_iter().find(|(unit, _)| self.bits_per_s.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.bits_per_s / unit),
            None => write!(f, "{}bit", self.bits_per_s),
        }
    }
}

impl FromStr for Rate {
    type Err = Error;

    /// Parses a rate such as `1gbit`, `2.5gbit`, `500mbit` or `64kbit`, in any case.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Misuse(format!("{text:?} is no rate; write one like 1gbit or 500mbit"));
        let lower = text.to_ascii_lowercase();
        let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
        let (number, unit) = units
            .into_iter()
            .find_map(|(name, unit)| lower.strip_suffix(name).map(|number| (number.trim_end(), unit)))
            .ok_or_else(wrong)?;
        let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number: f64 = number.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
        let bits = (number * unit).round();
        if !(BITS_PER_S_MIN as f64..=BITS_PER_S_MAX as f64).contains(&bits) {
            return Err(Error::Misuse(format!(
                "a link of {text} cannot be shaped; between {} and {} can",
                Self::bits_per_s(BITS_PER_S_MIN),
                Self::bits_per_s(BITS_PER_S_MAX)
            )));
        }
        Ok(Self::bits_per_s(bits as u64))
    }
}

/// Whether nodes share a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum Layout {
    /// All nodes' addresses are in one namespace, `nodes`, so that one process can listen on all of
    /// them.
    #[default]
    Together,
    /// Each node has its own namespace, `node1` and so on, for its own process. A node reaches all
    /// addresses of the client over its link, and no other node.
    Apart,
}

/// The properties of a lab.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The number of nodes, and of links: 1 to [`NODES_MAX`].
    pub nodes: u8,
    /// The rate of each link in each direction; unlimited if absent.
    pub rate: Option<Rate>,
    /// The additional delay of a packet in each direction.
    pub delay: Option<Duration>,
    /// Whether nodes share a namespace.
    pub layout: Layout,
}

impl Spec {
    /// A lab with this many nodes at this rate, in one namespace and without delay.
    #[must_use]
    pub fn new(nodes: u8, rate: Rate) -> Self {
        Self { nodes, rate: Some(rate), delay: None, layout: Layout::Together }
    }

    pub(super) fn validate(&self) -> Result<(), Error> {
        if self.nodes == 0 || self.nodes > NODES_MAX {
            let nodes = self.nodes;
            return Err(Error::Misuse(format!("a lab has 1 to {NODES_MAX} nodes, not {nodes}")));
        }
        if self.delay.is_some_and(|delay| delay > DELAY_MAX) {
            return Err(Error::Misuse(format!("a link's delay is at most {DELAY_MAX:?} each way")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        let bits = |text: &str| text.parse::<Rate>().expect(text).as_bits_per_s();
        assert_eq!(bits("1gbit"), 1_000_000_000);
        assert_eq!(bits("2.5Gbit"), 2_500_000_000);
        assert_eq!(bits("500mbit"), 500_000_000);
        assert_eq!(bits("64 kbit"), 64_000);
    }

    #[test]
    fn what_is_no_rate_is_refused_with_an_example() {
        for wrong in
            ["", "gbit", "1", "1gbyte", "-1gbit", "infbit", "1e3mbit", "nan gbit", "1bit", "1000gbit"]
        {
            let error = wrong.parse::<Rate>().expect_err(wrong).to_string();
            assert!(error.contains("1gbit") || error.contains("400gbit"), "{error}");
        }
    }

    #[test]
    fn a_rate_is_shown_as_it_can_be_read() {
        for text in ["1gbit", "2500mbit", "16kbit"] {
            assert_eq!(text.parse::<Rate>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn a_lab_without_nodes_is_refused() {
        let rate = Rate::bits_per_s(1_000_000_000);
        assert!(Spec::new(0, rate).validate().is_err());
        assert!(Spec::new(251, rate).validate().is_err());
        assert!(Spec::new(4, rate).validate().is_ok());
    }
}
