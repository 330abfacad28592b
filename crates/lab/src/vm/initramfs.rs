//! The initramfs of a guest: busybox, a script, and only the modules that are needed to reach this
//! machine's files. It is written to memory as a cpio archive ("newc", as described in the kernel's
//! driver-api/early-userspace/buffer-format).

use std::path::Path;

/// The `mode` in the archive of an executable file and of a directory.
const FILE: u32 = 0o100_755;
const DIRECTORY: u32 = 0o040_755;

/// A cpio archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, FILE, content);
    }

    /// Adds modules, and the list in which their order is that of loading.
    pub(super) fn modules(&mut self, modules: &[(String, Vec<u8>)]) {
        let mut order = String::new();
        for (name, content) in modules {
            self.file(&format!("modules/{name}.ko"), content);
            order.push_str(&format!("{name}.ko\n"));
        }
        self.file("order", order.as_bytes());
    }

    /// Returns the complete archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // The fields: inode, mode, owner, group, links, time, size, device twice (major, minor),
        // length of the name, no checksum.
        let fields =
            [self.entries, mode, 0, 0, links, 0, size(content), 0, 0, 0, 0, size(name.as_bytes()) + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Modules and programs are far below 4 GiB. A larger one would make an archive that the kernel
/// refuses.
fn size(content: &[u8]) -> u32 {
    u32::try_from(content.len()).unwrap_or(u32::MAX)
}

/// The guest's first program. It loads the modules, mounts this machine's files read-only with an
/// overlay in memory on top, and runs [`ENTER`] there. It uses `switch_root` instead of `chroot`,
/// because the kernel's own module requests must find modprobe.
pub(super) const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module"; done < /order
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=524288,cache=loose root /low
$b mount -t tmpfs tmpfs /top; $b mkdir -p /top/upper /top/work
$b mount -t overlay -o lowerdir=/low,upperdir=/top/upper,workdir=/top/work overlay /new
$b mkdir -p /new/proc /new/sys /new/dev /new/run
$b mount -t proc proc /new/proc; $b mount -t sysfs sys /new/sys; $b mount -t devtmpfs dev /new/dev
$b mount -t tmpfs run /new/run; $b cp /enter /new/run/enter
exec $b switch_root /new /bin/sh /run/enter
"#;

/// The script that runs on the overlay: the rest of the system's start, then the agent until it
/// ends.
const ENTER: &str = r#"export PATH=/usr/sbin:/sbin:/usr/bin:/bin HOME=/root
echo @NAME@ > /proc/sys/kernel/hostname
[ -e /lib/modules/@VERSION@ ] || { mkdir -p /lib/modules; ln -s '@MODULES@' /lib/modules/@VERSION@; }
mkdir -p /dev/pts /dev/shm /run/lock /run/sendsigs.omit.d /run/rpcbind
mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm
ln -sf /proc/self/fd /dev/fd; ln -sf fd/0 /dev/stdin; ln -sf fd/1 /dev/stdout; ln -sf fd/2 /dev/stderr
mount -t configfs none /sys/kernel/config 2>/dev/null
@WRITABLE@
modprobe virtio_console
'@PROGRAM@' lab guest
echo "the agent ended with status $?"
echo o > /proc/sysrq-trigger
# The files go away with their device while it powers off: what waits now must not need any, and must not end.
while :; do :; done
"#;

/// The properties of a guest.
#[derive(Debug)]
pub(super) struct Inside<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    pub(super) modules: &'a Path,
    pub(super) program: &'a Path,
    pub(super) writable: &'a [std::path::PathBuf],
}

impl Inside<'_> {
    /// The script that runs on the overlay.
    pub(super) fn enter(&self) -> String {
        let mounts = self.writable.iter().enumerate().map(|(number, directory)| {
            let directory = directory.display();
            // Without a cache, so that written data are in the directory at once: guests are
            // killed, not shut down.
            format!(
                "mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=none write{number} '{directory}'\n"
            )
        });
        ENTER
            .replace("@NAME@", self.name)
            .replace("@VERSION@", self.version)
            .replace("@MODULES@", &self.modules.display().to_string())
            .replace("@PROGRAM@", &self.program.display().to_string())
            .replace("@WRITABLE@", &mounts.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_laid_out_as_the_kernel_reads_it() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/x", b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes.clone()).expect("all of it is text here");
        assert_eq!(bytes.len() % 4, 0);
        assert!(text.starts_with("070701"));
        // A header of 110 bytes, and the name with its zero byte, padded to four.
        let second = text.get(116..).expect("a second entry");
        assert!(second.starts_with("070701"), "{second}");
        assert_eq!(second.get(54..62), Some("00000005"), "the size of the content");
        assert_eq!(second.get(94..102), Some("00000006"), "the length of the name");
        assert_eq!(second.get(116..121), Some("hello"));
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn the_script_has_no_word_left_to_replace() {
        let writable = [std::path::PathBuf::from("/results")];
        let inside = Inside {
            name: "client",
            version: "6.1.0",
            modules: Path::new("/cache/modules"),
            program: Path::new("/bin/trunkline"),
            writable: &writable,
        };
        let script = inside.enter();
        assert!(!script.contains('@'), "{script}");
        assert!(script.contains("write0 '/results'"), "{script}");
    }
}
