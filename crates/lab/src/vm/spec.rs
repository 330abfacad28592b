//! What a lab of virtual machines shall be.

use super::Error;
use std::path::PathBuf;
use std::str::FromStr;

/// How many links join two guests.
pub const LINKS: u8 = 4;

/// The least memory in which a guest starts and a file server has room, in MiB.
const MEMORY_MIB_MIN: u32 = 512;

/// More processors than this help nobody: all are emulated on this machine's own.
const CPUS_MAX: u8 = 16;

/// How many guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guests {
    /// One, in which client and server share one device.
    #[default]
    One,
    /// A client and a server, joined by [`LINKS`] links.
    Two,
}

/// What executes the guests' instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accel {
    /// The processor, where a guest comes up on it; otherwise QEMU.
    #[default]
    Auto,
    /// The processor, through /dev/kvm.
    Kvm,
    /// QEMU, which works everywhere and takes its time.
    Tcg,
}

impl FromStr for Accel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err(Error::Misuse(format!("no acceleration is called {text}; there are: auto kvm tcg"))),
        }
    }
}

/// What a lab of virtual machines shall be.
#[derive(Debug, Clone)]
pub struct Spec {
    /// How many guests.
    pub guests: Guests,
    /// Memory of each guest, in MiB; what it does not touch is not taken from this machine.
    pub memory_mib: u32,
    /// Processors of each guest.
    pub cpus: u8,
    /// The Debian package of the kernel; the distribution's default when not given.
    pub kernel: Option<String>,
    /// What executes the guests' instructions.
    pub accel: Accel,
    /// Whether each link gets a Soft-RoCE device.
    pub rdma: bool,
    /// Directories of this machine that the guests may write; everything else they write is gone
    /// with them.
    pub writable: Vec<PathBuf>,
    /// The `trunkline` program: it is the agent in the guests.
    pub program: PathBuf,
}

impl Spec {
    /// One guest of two processors and 4 GiB with a Soft-RoCE device, and `trunkline` from this
    /// path.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            guests: Guests::One,
            memory_mib: 4096,
            cpus: 2,
            kernel: None,
            accel: Accel::Auto,
            rdma: true,
            writable: Vec::new(),
            program: program.into(),
        }
    }

    pub(super) fn validate(&self) -> Result<(), Error> {
        if self.memory_mib < MEMORY_MIB_MIN {
            return Err(Error::Misuse(format!("a guest needs {MEMORY_MIB_MIN} MiB of memory at least")));
        }
        if !(1..=CPUS_MAX).contains(&self.cpus) {
            return Err(Error::Misuse(format!("a guest has 1 to {CPUS_MAX} processors")));
        }
        for directory in &self.writable {
            let text = directory.to_str().unwrap_or("");
            if !directory.is_absolute() || !directory.is_dir() {
                return Err(Error::Misuse(format!(
                    "{} is no directory with a full path",
                    directory.display()
                )));
            }
            // QEMU's options and the guest's first script would read these otherwise.
            if text.is_empty() || text.contains([',', '\'', '\n']) {
                return Err(Error::Misuse(format!(
                    "{} cannot be written by a guest: its name has a comma, a quote or the like",
                    directory.display()
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let spec = Spec::new("/bin/true");
        assert!(spec.validate().is_ok());
        assert!(Spec { memory_mib: 1, ..spec.clone() }.validate().is_err());
        assert!(Spec { cpus: 0, ..spec.clone() }.validate().is_err());
        assert!(Spec { writable: vec!["relative".into()], ..spec.clone() }.validate().is_err());
        assert!(Spec { writable: vec!["/no/such/directory".into()], ..spec }.validate().is_err());
        assert!("fast".parse::<Accel>().is_err());
        assert!(matches!("kvm".parse(), Ok(Accel::Kvm)));
    }
}
