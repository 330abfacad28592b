//! The logs of errors, of health and of firmware. NVMe Base, "Error Information (Log Page
//! Identifier 01h)", "SMART / Health Information (02h)", "Firmware Slot Information (03h)".

use crate::Status;
use crate::layout::layout;

layout! {
    /// An entry of the error log; newer ones come first, and an entry with count 0 is none.
    pub struct ErrorEntry[64] {
        /// Counts errors; never 0.
        count: u64 = 0,
        /// The queue of the command.
        sqid: u16 = 8,
        /// The command.
        cid: u16 = 10,
        /// The status of the command.
        status: Status = 12,
        /// Where in the command the error is: byte in bits 7:0, bit in bits 10:8.
        location: u16 = 14,
        /// The first block.
        lba: u64 = 16,
        /// The namespace.
        nsid: u32 = 24,
    }
}

layout! {
    /// Health of a controller.
    pub struct Health[512] {
        /// Warnings, one bit each; 0 if there is none.
        critical_warning: u8 = 0,
        /// The temperature in kelvins.
        temperature: u16 = 1,
        /// Spare capacity in percent.
        available_spare: u8 = 3,
        /// Below which spare capacity there is a warning, in percent.
        spare_threshold: u8 = 4,
        /// How much of its life the device has used, in percent.
        percentage_used: u8 = 5,
        /// Data read, in thousands of 512 bytes, rounded up.
        data_units_read: u128 = 32,
        /// Data written, likewise.
        data_units_written: u128 = 48,
        /// Commands that read.
        host_reads: u128 = 64,
        /// Commands that wrote.
        host_writes: u128 = 80,
        /// Minutes in which commands were outstanding.
        busy_minutes: u128 = 96,
        /// Power cycles.
        power_cycles: u128 = 112,
        /// Hours of operation.
        power_on_hours: u128 = 128,
        /// Shutdowns without notice.
        unsafe_shutdowns: u128 = 144,
        /// Errors of media and of data integrity.
        media_errors: u128 = 160,
        /// Entries that the error log has had.
        error_entries: u128 = 176,
    }
}

layout! {
    /// Firmware slots.
    pub struct FirmwareSlots[512] {
        /// AFI: bits 2:0 the active slot.
        active: u8 = 0,
        /// The revision in the first slot, in ASCII, filled with blanks.
        revision_1: [u8; 8] = 8,
    }
}
