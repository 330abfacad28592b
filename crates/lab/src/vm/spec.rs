//! The properties of a lab of virtual machines.

use super::Error;
use std::path::PathBuf;
use std::str::FromStr;

/// The number of links between two guests.
pub const LINKS: u8 = 4;

/// The minimum memory in which a guest starts and a file server has room, in MiB.
const MEMORY_MIB_MIN: u32 = 512;

/// The maximum number of processors. More are useless, because all are emulated on this machine's
/// own.
const CPUS_MAX: u8 = 16;

/// The number of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guests {
    /// One guest, in which client and server share one device.
    #[default]
    One,
    /// A client and a server, joined by [`LINKS`] links.
    Two,
}

/// What executes the guests' instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accel {
    /// KVM if a guest starts on it; otherwise QEMU's emulation.
    #[default]
    Auto,
    /// KVM, through /dev/kvm.
    Kvm,
    /// QEMU's emulation, which works everywhere but is slow.
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

/// The properties of a lab of virtual machines.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The number of guests.
    pub guests: Guests,
    /// The memory of each guest, in MiB. Memory that a guest does not touch is not taken from this
    /// machine.
    pub memory_mib: u32,
    /// The number of processors of each guest.
    pub cpus: u8,
    /// The Debian package of the kernel; if absent, the distribution's default.
    pub kernel: Option<String>,
    /// What executes the guests' instructions.
    pub accel: Accel,
    /// Whether each link gets a Soft-RoCE device.
    pub rdma: bool,
    /// Directories of this machine that the guests may write. All other changes are lost when the
    /// guests end.
    pub writable: Vec<PathBuf>,
    /// The `trunkline` program, which is the agent in the guests.
    pub program: PathBuf,
}

impl Spec {
    /// One guest with two processors, 4 GiB and a Soft-RoCE device, and the `trunkline` program at
    /// this path.
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
            // These characters have a meaning in QEMU's options and in the guest's first script.
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
