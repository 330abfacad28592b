//! Why there is no device.

use crate::wire::CONTROL;
use std::io;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no driver, or it is not loaded.
    #[error("{CONTROL} is not there: this kernel has no driver ublk_drv, or it is not loaded")]
    NoDriver,
    /// Only root may.
    #[error("this process may not use {CONTROL}: {0}")]
    Denied(io::Error),
    /// The driver cannot do what is needed.
    #[error("the driver ublk_drv of this kernel has no {0}")]
    TooOld(&'static str),
    /// Another process serves it, or is about to.
    #[error("/dev/ublkb{0} is served by another process")]
    InUse(u32),
    /// It is there, and is not what was asked for.
    #[error("/dev/ublkb{0} is there, for another disk or for this one with another size or other features")]
    Other(u32),
    /// No device can have such blocks, or that size.
    #[error("a device cannot have {bytes} bytes in blocks of {block_bytes}")]
    Unfit {
        /// The size.
        bytes: u64,
        /// The size of a block.
        block_bytes: u32,
    },
    /// The system refuses.
    #[error("cannot {0}: {1}")]
    System(String, io::Error),
}

impl Error {
    /// The error of an attempt.
    pub(crate) fn of(attempt: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let attempt = attempt.into();
        move |error| Self::System(attempt, error)
    }
}
