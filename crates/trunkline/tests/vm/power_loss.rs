//! A block device with a volatile write cache, and what it would hold after a loss of power.
//!
//! The device is dm-log-writes (Linux, Documentation/admin-guide/device-mapper/log-writes.rst). It
//! logs a write when a flush that began after the end of that write has ended, or when the write
//! itself ends if it has FUA. So what is on the log before a mark is what a loss of power at that
//! time would leave. Beneath it a flush takes its time (dm-delay): what is acknowledged without
//! waiting for the flush is not on the log yet.

use crate::attached::run;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;
use testkit::Deadline;

/// The device.
pub(super) const DEVICE: &str = "/dev/mapper/cached";
pub(super) const BLOCK: usize = 4096;
/// Where a file system of the device is mounted.
const MOUNTED: &str = "/mnt/cached";
/// The volume in that file system.
pub(super) const FILE: &str = "/mnt/cached/volume";
const LOG: &str = "/run/cached-log";
/// What the device would hold, for those who mount it.
const SURVIVED: &str = "/run/cached-survived";
const DEVICE_BYTES: usize = 16 << 20;
const FILE_BYTES: usize = 4 << 20;
const FLUSH_MS: u32 = 200;
const TIMEOUT: Duration = Duration::from_secs(120);

/// The log's unit, and the size of the superblock and of each entry.
const SECTOR: u64 = 512;
const MAGIC: u64 = 0x6a_7366_7773_6872;
const IS_DISCARD: u64 = 1 << 2;
const IS_MARK: u64 = 1 << 3;

/// The device, until dropped; empty, or with a file system and a [`FILE`] of zeros.
pub(super) struct CachedDevice {
    has_file: bool,
    log: File,
    /// What of the log was applied to `content`: entries, and where the next one begins.
    entries: u64,
    next: u64,
    /// What a loss of power would have left at the last mark.
    content: Vec<u8>,
    marks: u32,
}

impl CachedDevice {
    pub(super) fn create(has_file: bool) -> Self {
        let sectors = DEVICE_BYTES as u64 / SECTOR;
        // The log also has what mkfs writes.
        run(&format!(
            "modprobe -a loop dm-mod dm-delay dm-log-writes
             rm -f /run/cached-data {LOG}; truncate -s {DEVICE_BYTES} /run/cached-data; truncate -s 256M {LOG}
             data=$(losetup --find --show /run/cached-data); log=$(losetup --find --show {LOG})
             dmsetup create --noudevsync slow \
                 --table \"0 {sectors} delay $data 0 0 $data 0 0 $data 0 {FLUSH_MS}\"
             dmsetup mknodes
             dmsetup create --noudevsync cached --table \"0 {sectors} log-writes /dev/mapper/slow $log\"
             dmsetup mknodes"
        ));
        if has_file {
            // What a file system writes by itself, after some time, is no part of a test.
            run(&format!(
                "mkfs.ext4 -q -E nodiscard {DEVICE}; mkdir -p {MOUNTED}
                 mount -o commit=3600 {DEVICE} {MOUNTED}; fallocate -l {FILE_BYTES} {FILE}; sync -f {FILE}"
            ));
        }
        let log = File::open(LOG).expect("the log");
        Self { has_file, log, entries: 0, next: 1, content: vec![0; DEVICE_BYTES], marks: 0 }
    }

    /// The byte that a block of the volume would be filled with after a loss of power now.
    pub(super) fn survivor(&mut self, block: usize) -> u8 {
        self.marks += 1;
        run(&format!("dmsetup message cached 0 mark m{}", self.marks));
        let mut reached = 0;
        Deadline::wait_until("the mark on the log", TIMEOUT, || {
            reached += self.replay();
            (reached > 0).then_some(())
        });
        assert_eq!(reached, 1, "the log has each mark once");
        let found = if self.has_file {
            std::fs::write(SURVIVED, &self.content).expect("room");
            let read = format!(
                "mkdir -p /mnt/survived; mount -o loop {SURVIVED} /mnt/survived
                 dd if=/mnt/survived/volume of=/run/cached-block bs={BLOCK} skip={block} count=1 2>/dev/null
                 umount /mnt/survived"
            );
            run(&read);
            std::fs::read("/run/cached-block").expect("the block")
        } else {
            self.content[block * BLOCK..][..BLOCK].to_vec()
        };
        assert!(found.len() == BLOCK && found.iter().all(|byte| *byte == found[0]), "the block is mixed");
        found[0]
    }

    /// Applies what the log has more. Returns the number of marks.
    fn replay(&mut self) -> usize {
        let (head, mut marks) = (self.words(0), 0);
        // There is no superblock before the first mark.
        if head == [0; 4] {
            return 0;
        }
        assert_eq!((head[0], head[3] & 0xffff_ffff), (MAGIC, SECTOR), "a log");
        while self.entries < head[2] {
            let [sector, count, flags, _] = self.words(self.next);
            let range = (sector * SECTOR) as usize..((sector + count) * SECTOR) as usize;
            self.next += 1;
            if flags & IS_DISCARD != 0 {
                self.content[range].fill(0);
            } else {
                let data = &mut self.content[range];
                self.log.read_exact_at(data, self.next * SECTOR).expect("an entry's data");
                self.next += count;
            }
            marks += usize::from(flags & IS_MARK != 0);
            self.entries += 1;
        }
        marks
    }

    /// The first words of a sector of the log: magic, version, number of entries, size of a sector;
    /// of an entry its first sector, number of sectors, flags, length of the mark's name.
    fn words(&self, sector: u64) -> [u64; 4] {
        let mut bytes = [0; 32];
        self.log.read_exact_at(&mut bytes, sector * SECTOR).expect("a head");
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("eight bytes"));
        [0, 1, 2, 3].map(word)
    }
}

impl Drop for CachedDevice {
    fn drop(&mut self) {
        // Whatever a failed case has left; a panic of its own would hide the first one.
        let script = format!(
            "umount /mnt/survived; umount {MOUNTED}
             for name in cached slow; do
                 for try in $(seq 100); do dmsetup remove --noudevsync $name && break; sleep 0.1; done
             done
             for file in /run/cached-data {LOG}; do
                 losetup --detach $(losetup --noheadings --output name --associated $file); rm $file
             done"
        );
        let _ = std::process::Command::new("sh").args(["-c", &script]).output();
    }
}
