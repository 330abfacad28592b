//! A volume of an attachment as a disk.

use crate::disk::{Disk, Operation, Outcome};
use initiator::{Completion, Error, Volume};
use nbd::{Errno, Export, Features};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The best size of requests where the volume names none.
const PREFERRED_BYTES: u32 = 64 << 10;

/// A volume as a disk.
#[derive(Debug, Clone)]
pub struct VolumeDisk(pub Volume);

impl Disk for VolumeDisk {
    type Completion = Completion;

    fn export(&self) -> Export {
        let namespace = self.0.namespace();
        let preferred = u32::from(namespace.preferred_blocks) << namespace.block_shift;
        let block_min = namespace.block_bytes();
        let features = Features {
            read_only: namespace.write_protected,
            trim: namespace.deallocate,
            write_zeroes: namespace.write_zeroes,
        };
        Export {
            name: format!("namespace-{}", namespace.nsid),
            description: format!("namespace {} of an NVMe subsystem", namespace.nsid),
            bytes: namespace.bytes(),
            block_min,
            block_preferred: if preferred.is_power_of_two() {
                preferred
            } else {
                PREFERRED_BYTES.max(block_min)
            },
            features,
        }
    }

    fn has_volatile_cache(&self) -> bool {
        self.0.namespace().volatile_cache
    }

    /// An attachment first ends the controllers of the one before it.
    fn may_repeat(&self) -> bool {
        true
    }

    fn submit(&self, operation: Operation, cookie: u64, reply: &Sender<Completion>) {
        let operation = match operation {
            Operation::Read { offset, bytes } => {
                initiator::Operation::Read { offset, memory: vec![0; bytes] }
            }
            Operation::Write { offset, data, durable } => {
                initiator::Operation::Write { offset, data: Arc::new(data), durable }
            }
            Operation::Flush => initiator::Operation::Flush,
            Operation::WriteZeroes { offset, bytes, durable, may_deallocate } => {
                initiator::Operation::WriteZeroes { offset, bytes, durable, deallocate: may_deallocate }
            }
            Operation::Trim { offset, bytes } => initiator::Operation::Deallocate { offset, bytes },
        };
        self.0.submit(operation, cookie, reply);
    }

    fn outcome(completion: Completion) -> Outcome {
        let Completion { cookie, result } = completion;
        Outcome { cookie, result: result.map_err(|error| (errno(&error), error.to_string())) }
    }
}

fn errno(error: &Error) -> Errno {
    match error {
        Error::OutOfRange { .. } => Errno::Invalid,
        Error::Unsupported => Errno::Unsupported,
        Error::Ended => Errno::Shutdown,
        Error::NoAddress
        | Error::Start(_)
        | Error::Unreachable { .. }
        | Error::NoDiscovery { .. }
        | Error::Refused { .. }
        | Error::NoNamespace { .. }
        | Error::NotServed { .. }
        | Error::NoPath(_)
        | Error::PersistentLoss
        | Error::Command(_)
        | Error::Discovery(_) => Errno::Io,
    }
}
