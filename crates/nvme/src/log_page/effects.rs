//! The logs of what is supported. NVMe Base, "Commands Supported and Effects (Log Page Identifier
//! 05h)", "Supported Log Pages (00h)", "Feature Identifiers Supported and Effects (12h)".

use crate::layout::{flags, load, store};

flags! {
    /// What a command or a feature does. The same bit says of log pages and of features that they
    /// are supported.
    pub struct Effects(u32) {
        /// CSUPP, LSUPP or FSUPP: it is supported.
        SUPPORTED = 1 << 0,
        /// LBCC: it changes blocks.
        CHANGES_BLOCKS = 1 << 1,
        /// NCC: it changes the capabilities of a namespace.
        CHANGES_NAMESPACE = 1 << 2,
        /// CCC: it changes the capabilities of the controller.
        CHANGES_CONTROLLER = 1 << 4,
        /// CSE 001b: no other command for the namespace should be outstanding.
        ALONE_ON_NAMESPACE = 1 << 16,
    }
}

/// The effects of all commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEffects {
    /// By opcode, of the admin queue.
    pub admin: [Effects; 256],
    /// By opcode, of I/O queues.
    pub io: [Effects; 256],
}

impl Default for CommandEffects {
    fn default() -> Self {
        Self { admin: [Effects::NONE; 256], io: [Effects::NONE; 256] }
    }
}

impl CommandEffects {
    /// The length of the log page in bytes.
    pub const BYTES: usize = 4096;

    /// Reads the log page; what is missing counts as not supported.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        Self { admin: load(bytes, 0), io: load(bytes, 1024) }
    }

    /// The log page.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        store(&self.admin, &mut bytes, 0);
        store(&self.io, &mut bytes, 1024);
        bytes
    }
}

/// Which of 256 log pages or features are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupportedPages(pub [Effects; 256]);

impl SupportedPages {
    /// The length of the log page in bytes.
    pub const BYTES: usize = 1024;

    /// These ones.
    #[must_use]
    pub fn of(supported: impl IntoIterator<Item = u8>) -> Self {
        let mut all = [Effects::NONE; 256];
        for one in supported {
            if let Some(place) = all.get_mut(usize::from(one)) {
                *place = Effects::SUPPORTED;
            }
        }
        Self(all)
    }

    /// Reads the log page.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        Self(load(bytes, 0))
    }

    /// The log page.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        store(&self.0, &mut bytes, 0);
        bytes
    }
}
