//! Identify Namespace. NVM Command Set, "Identify Namespace Data Structure (CNS 00h)".

use crate::layout::{flags, layout};

flags! {
    /// NSFEAT: which fields are valid.
    pub struct NamespaceFeatures(u8) {
        /// Thin provisioning.
        THIN = 1 << 0,
        /// NAWUN, NAWUPF and NACWU are valid for this namespace.
        ATOMICITY = 1 << 1,
        /// NPWG, NPWA, NPDG, NPDA and NOWS are valid.
        OPTIMAL_IO = 1 << 4,
    }
}

flags! {
    /// NMIC: whether a namespace may be attached to several controllers.
    pub struct Shared(u8) {
        /// It may.
        SHARED = 1 << 0,
    }
}

/// RESCAP: persistence through power loss, all six types of reservations, and the ignored existing
/// key of NVMe 1.3.
pub const RESCAP_ALL: u8 = 0xff;

layout! {
    /// A format of blocks.
    pub struct LbaFormat[4] {
        /// Bytes of metadata for each block.
        metadata_bytes: u16 = 0,
        /// LBADS: the size of a block as a power of two.
        shift: u8 = 2,
        /// RP: the relative performance, 0 for the best.
        performance: u8 = 3,
    }
}

layout! {
    /// Identify Namespace. Sizes and lengths are in blocks.
    pub struct Namespace[4096] {
        /// NSZE: the size.
        size: u64 = 0,
        /// NCAP: the capacity. 0 for a namespace that is not there.
        capacity: u64 = 8,
        /// NUSE: how much of it is allocated.
        utilization: u64 = 16,
        /// NSFEAT.
        features: NamespaceFeatures = 24,
        /// NLBAF: the number of formats, minus one.
        formats_minus_1: u8 = 25,
        /// FLBAS: the format in use.
        format: u8 = 26,
        /// NMIC.
        shared: Shared = 30,
        /// RESCAP: which reservations there are.
        reservations: u8 = 31,
        /// DLFEAT: what deallocated blocks read as (bits 2:0, 1 for zeroes), and whether Write
        /// Zeroes may deallocate (bit 3).
        deallocation: u8 = 33,
        /// NAWUN, minus one.
        nawun: u16 = 34,
        /// NAWUPF, minus one.
        nawupf: u16 = 36,
        /// NACWU, minus one.
        nacwu: u16 = 38,
        /// NOIOB: the boundary that I/O should not cross; Linux splits there if it is a power of
        /// two.
        noiob: u16 = 46,
        /// NPWG: the preferred granularity of writes, minus one.
        npwg: u16 = 64,
        /// NPWA: their preferred alignment, minus one.
        npwa: u16 = 66,
        /// NPDG: the preferred granularity of deallocation, minus one.
        npdg: u16 = 68,
        /// NPDA: its preferred alignment, minus one.
        npda: u16 = 70,
        /// NOWS: the optimal length of writes, minus one.
        nows: u16 = 72,
        /// ANAGRPID: the ANA group.
        ana_group: u32 = 92,
        /// NSATTR: bit 0 for write protected.
        attributes: u8 = 99,
        /// NGUID: the identifier of the namespace in the world.
        nguid: [u8; 16] = 104,
        /// EUI64.
        eui64: [u8; 8] = 120,
        /// The formats.
        formats: [LbaFormat; 16] = 128,
    }
}

impl Namespace {
    /// The format in use. The upper bits of its number are of formats that are not here.
    #[must_use]
    pub fn lba_format(&self) -> LbaFormat {
        self.formats.get(usize::from(self.format & 0xf)).copied().unwrap_or_default()
    }
}
