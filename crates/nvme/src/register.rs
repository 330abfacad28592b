//! The properties of a controller that Property Get and Set reach: capabilities, version,
//! configuration, status, timeouts. NVMe Base, "Controller Properties".

use crate::layout::numbers;

/// The offset of CAP, controller capabilities: eight bytes.
pub const CAP: u32 = 0x00;
/// The offset of VS, the version.
pub const VS: u32 = 0x08;
/// The offset of CC, controller configuration, the only one that hosts change besides NSSR.
pub const CC: u32 = 0x14;
/// The offset of CSTS, controller status.
pub const CSTS: u32 = 0x1c;
/// The offset of NSSR, the subsystem reset.
pub const NSSR: u32 = 0x20;
/// The offset of CRTO, controller ready timeouts.
pub const CRTO: u32 = 0x68;

numbers! {
    /// A version of the base specification, as VS and Identify Controller have it.
    pub struct Version(u32) {
        /// 1.3.0.
        V1_3 = 0x0001_0300,
        /// 1.4.0.
        V1_4 = 0x0001_0400,
        /// 2.0.0.
        V2_0 = 0x0002_0000,
        /// 2.1.0.
        V2_1 = 0x0002_0100,
    }
}

/// CAP: what a controller can do. NVMe Base, "CAP"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// MQES: the most entries of a queue, minus one.
    pub mqes: u16,
    /// TO: how long to wait for CSTS.RDY, in units of 500 ms.
    pub timeout_500_ms: u8,
    /// NSSRS: subsystem reset is supported.
    pub subsystem_reset: bool,
    /// CSS bit 0: the NVM command set is supported.
    pub nvm_command_set: bool,
    /// CSS bit 6: I/O command sets can be selected.
    pub command_sets: bool,
    /// CRMS bit 0: ready with media (CRWMS), which makes CRTO valid.
    pub ready_with_media: bool,
    /// CRMS bit 1: ready independent of media (CRIMS).
    pub ready_independent_of_media: bool,
}

impl Capabilities {
    /// The value of the property. CQR (contiguous queues required) is set as fabrics demands;
    /// memory pages of 4 KiB are the smallest and the largest (MPSMIN, MPSMAX).
    #[must_use]
    pub fn encode(&self) -> u64 {
        let bit = |set: bool, at: u32| u64::from(set) << at;
        u64::from(self.mqes)
            | 1 << 16
            | u64::from(self.timeout_500_ms) << 24
            | bit(self.subsystem_reset, 36)
            | bit(self.nvm_command_set, 37)
            | bit(self.command_sets, 43)
            | bit(self.ready_with_media, 59)
            | bit(self.ready_independent_of_media, 60)
    }

    /// Reads the value of the property.
    #[must_use]
    pub const fn decode(value: u64) -> Self {
        Self {
            mqes: value as u16,
            timeout_500_ms: (value >> 24) as u8,
            subsystem_reset: value >> 36 & 1 != 0,
            nvm_command_set: value >> 37 & 1 != 0,
            command_sets: value >> 43 & 1 != 0,
            ready_with_media: value >> 59 & 1 != 0,
            ready_independent_of_media: value >> 60 & 1 != 0,
        }
    }
}

/// CC: how a controller is to work. NVMe Base, "CC"
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Configuration(pub u32);

/// How a host wants a controller to shut down (CC.SHN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Not at all.
    None,
    /// Finish what is under way.
    Normal,
    /// At once.
    Abrupt,
}

impl Configuration {
    /// A configuration that enables a controller: entries of 64 and 16 bytes, NVM command set,
    /// pages of 4 KiB.
    pub const ENABLE: Self = Self(1 | 6 << 16 | 4 << 20);

    /// EN: the controller is to be enabled.
    #[must_use]
    pub const fn enable(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS: the selected I/O command sets; 0 is NVM, 6 all supported ones, 7 none.
    #[must_use]
    pub const fn command_set(self) -> u8 {
        (self.0 >> 4 & 7) as u8
    }

    /// MPS: the memory page size, 2 to the power of 12 + this.
    #[must_use]
    pub const fn page_size(self) -> u8 {
        (self.0 >> 7 & 0xf) as u8
    }

    /// AMS: the arbitration mechanism; 0 is round robin.
    #[must_use]
    pub const fn arbitration(self) -> u8 {
        (self.0 >> 11 & 7) as u8
    }

    /// SHN; the reserved value counts as none.
    #[must_use]
    pub const fn shutdown(self) -> Shutdown {
        match self.0 >> 14 & 3 {
            1 => Shutdown::Normal,
            2 => Shutdown::Abrupt,
            _ => Shutdown::None,
        }
    }

    /// The same configuration with a notice of shutdown.
    #[must_use]
    pub const fn with_shutdown(self, shutdown: Shutdown) -> Self {
        let value = match shutdown {
            Shutdown::None => 0,
            Shutdown::Normal => 1,
            Shutdown::Abrupt => 2,
        };
        Self(self.0 & !(3 << 14) | value << 14)
    }

    /// IOSQES: the size of a submission queue entry, as a power of two; 6 for 64 bytes.
    #[must_use]
    pub const fn sqe_size(self) -> u8 {
        (self.0 >> 16 & 0xf) as u8
    }

    /// IOCQES: the size of a completion queue entry, as a power of two; 4 for 16 bytes.
    #[must_use]
    pub const fn cqe_size(self) -> u8 {
        (self.0 >> 20 & 0xf) as u8
    }
}

/// The state of a shutdown (CSTS.SHST).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShutdownStatus {
    /// None was asked for.
    #[default]
    Normal,
    /// It is under way.
    Occurring,
    /// It is complete.
    Complete,
}

/// CSTS: the state of a controller. NVMe Base, "CSTS"
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControllerStatus {
    /// RDY: the controller takes commands.
    pub ready: bool,
    /// CFS: the controller failed; only a reset helps.
    pub fatal: bool,
    /// SHST.
    pub shutdown: ShutdownStatus,
}

impl ControllerStatus {
    /// The value of the property.
    #[must_use]
    pub fn encode(self) -> u32 {
        let shutdown = match self.shutdown {
            ShutdownStatus::Normal => 0,
            ShutdownStatus::Occurring => 1,
            ShutdownStatus::Complete => 2,
        };
        u32::from(self.ready) | u32::from(self.fatal) << 1 | shutdown << 2
    }

    /// Reads the value of the property.
    #[must_use]
    pub const fn decode(value: u32) -> Self {
        let shutdown = match value >> 2 & 3 {
            1 => ShutdownStatus::Occurring,
            2 => ShutdownStatus::Complete,
            _ => ShutdownStatus::Normal,
        };
        Self { ready: value & 1 != 0, fatal: value & 2 != 0, shutdown }
    }
}

/// CRTO: how long to wait until a controller is ready, in units of 500 ms. NVMe Base, "CRTO"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyTimeouts {
    /// CRWMT: with media.
    pub with_media_500_ms: u16,
    /// CRIMT: independent of media.
    pub independent_of_media_500_ms: u16,
}

impl ReadyTimeouts {
    /// The value of the property.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.with_media_500_ms) | u32::from(self.independent_of_media_500_ms) << 16
    }

    /// Reads the value of the property.
    #[must_use]
    pub const fn decode(value: u32) -> Self {
        Self { with_media_500_ms: value as u16, independent_of_media_500_ms: (value >> 16) as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_their_bits() {
        let capabilities = Capabilities {
            mqes: 127,
            timeout_500_ms: 15,
            subsystem_reset: false,
            nvm_command_set: true,
            command_sets: true,
            ready_with_media: true,
            ready_independent_of_media: false,
        };
        assert_eq!(capabilities.encode(), 0x0800_0820_0f01_007f);
        assert_eq!(Capabilities::decode(capabilities.encode()), capabilities);
    }

    #[test]
    fn the_configuration_that_linux_sets() {
        let configuration = Configuration(0x0046_0001);
        assert_eq!(configuration, Configuration::ENABLE);
        assert!(configuration.enable());
        assert_eq!((configuration.sqe_size(), configuration.cqe_size()), (6, 4));
        assert_eq!(
            (configuration.command_set(), configuration.page_size(), configuration.arbitration()),
            (0, 0, 0)
        );
        let ending = configuration.with_shutdown(Shutdown::Normal);
        assert_eq!((ending.0, ending.shutdown()), (0x0046_4001, Shutdown::Normal));
        assert_eq!(Configuration(3 << 14).shutdown(), Shutdown::None);
    }

    #[test]
    fn states_are_read_as_they_are_written() {
        for value in [0, 1, 2, 4 | 1, 8 | 1] {
            assert_eq!(ControllerStatus::decode(value).encode(), value);
        }
        let timeouts = ReadyTimeouts { with_media_500_ms: 3, independent_of_media_500_ms: 2 };
        assert_eq!((timeouts.encode(), ReadyTimeouts::decode(0x0002_0003)), (0x0002_0003, timeouts));
    }
}
