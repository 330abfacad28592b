//! What a virtual machine with a disk of its own boots from: the labs' kernel, and an initramfs
//! whose script finds the disk.

use super::initramfs::Archive;
use super::kernel::Kernel;
use super::{Error, programs};
use std::path::PathBuf;

/// The kernel and the initramfs of a machine that is not a guest of a lab.
#[derive(Debug, Clone)]
pub struct BootFiles {
    /// The kernel, a file of the user's cache directory.
    pub kernel: PathBuf,
    /// The initramfs: `/bin/busybox`, the modules, and the script as `/init`.
    pub initramfs: Vec<u8>,
}

impl BootFiles {
    /// Finds the labs' kernel, or fetches it. `/order` of the initramfs has the files in `/modules`
    /// of the named modules and of what they need, in the order of loading.
    ///
    /// # Errors
    /// If there is no kernel or no static busybox.
    pub fn find(modules: &[&str], init: &str) -> Result<Self, Error> {
        let kernel = Kernel::find(None)?;
        let mut archive = Archive::default();
        for directory in ["bin", "modules", "proc", "sys", "dev", "new"] {
            archive.directory(directory);
        }
        archive.file("bin/busybox", &programs::busybox()?);
        archive.modules(&kernel.modules_for(modules)?);
        archive.file("init", init.as_bytes());
        Ok(Self { kernel: kernel.image, initramfs: archive.finish() })
    }
}
