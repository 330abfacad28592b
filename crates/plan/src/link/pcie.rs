//! PCI Express: the throughput of a slot by generation and lanes, before and after packet headers.
//!
//! After the PCI Express Base Specification: the rate and the encoding of each generation. A
//! transaction packet carries at most Max_Payload_Size bytes after 24 bytes of overhead (framing 2,
//! sequence 2, header 16, link CRC 4). Left out: acknowledgements and flow-control packets, which
//! take a few percent more. Generation 6 with its flits is not modelled.

use super::Encoding;
use crate::error::{Result, refuse};
use serde::{Deserialize, Serialize};

/// The overhead of a packet.
const PACKET_OVERHEAD_BYTES: u32 = 24;
/// The rate of a lane in GT/s, by generation.
const RATES: [f64; 5] = [2.5, 5.0, 8.0, 16.0, 32.0];
const ORIGIN: &str = "PCI Express Base Specification";
/// The maximum number of slots of one machine.
const SLOTS_MAX: u32 = 64;

/// The slots of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    /// Generation, 1 to 5.
    pub generation: u32,
    /// The number of lanes of each slot.
    pub lanes: u32,
    /// The number of slots with an adapter in use.
    #[serde(default = "one")]
    pub slots: u32,
    /// The payload of a packet in bytes; if absent, 128 up to generation 2 and 256 from generation
    /// 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u32>,
}

const fn one() -> u32 {
    1
}

impl Pcie {
    /// Checks the values.
    ///
    /// # Errors
    /// A generation, a width or a payload that does not exist.
    pub fn check(&self, place: &str) -> Result<()> {
        let (sentence, rule, nearest) = if !(1..=5).contains(&self.generation) {
            (
                format!("cannot use PCIe generation {} ({place})", self.generation),
                "generations 1 to 5 are modelled; 6 packs its packets otherwise",
                format!("generation = {}", self.generation.clamp(1, 5)),
            )
        } else if !self.lanes.is_power_of_two() || self.lanes > 16 {
            let below = [1, 2, 4, 8, 16].into_iter().rev().find(|lanes| *lanes <= self.lanes).unwrap_or(1);
            (
                format!("cannot use {} PCIe lanes ({place})", self.lanes),
                "a slot has 1, 2, 4, 8 or 16 lanes",
                format!("lanes = {below}"),
            )
        } else if !(1..=SLOTS_MAX).contains(&self.slots) {
            (
                format!("cannot use {} PCIe slots ({place})", self.slots),
                "a machine has 1 to 64 slots",
                "slots = 1".to_owned(),
            )
        } else if self
            .payload_bytes
            .is_some_and(|bytes| !bytes.is_power_of_two() || !(128..=4096).contains(&bytes))
        {
            (
                format!("cannot use PCIe packets of {} bytes ({place})", self.payload()),
                "Max_Payload_Size is 128, 256, 512, 1024, 2048 or 4096 bytes; lspci -vv shows it",
                "payload_bytes = 256".to_owned(),
            )
        } else {
            return Ok(());
        };
        refuse(sentence, rule, ORIGIN, nearest)
    }

    /// The payload of a packet in bytes.
    #[must_use]
    pub fn payload(&self) -> u32 {
        self.payload_bytes.unwrap_or(if self.generation <= 2 { 128 } else { 256 })
    }

    /// The encoding of the generation.
    #[must_use]
    pub const fn encoding(&self) -> Encoding {
        if self.generation <= 2 { Encoding::B8b10 } else { Encoding::B128b130 }
    }

    /// The throughput of a slot after its encoding, in GB/s in each direction.
    #[must_use]
    pub fn slot_line_gbytes_per_s(&self) -> f64 {
        let index = self.generation.clamp(1, 5) as usize - 1;
        let rate = RATES.get(index).copied().unwrap_or_default();
        rate * f64::from(self.lanes) * self.encoding().efficiency() / 8.0
    }

    /// The share of that which is payload.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        f64::from(self.payload()) / f64::from(self.payload() + PACKET_OVERHEAD_BYTES)
    }

    /// The computation of a slot's throughput, as text.
    #[must_use]
    pub fn arithmetic(&self) -> String {
        let index = self.generation.clamp(1, 5) as usize - 1;
        format!(
            "gen {} x{}: {} GT/s x {} x {} / 8, packets {}/{}",
            self.generation,
            self.lanes,
            RATES.get(index).copied().unwrap_or_default(),
            self.lanes,
            self.encoding().name(),
            self.payload(),
            self.payload() + PACKET_OVERHEAD_BYTES
        )
    }
}
