//! Bodies shared by the property tests, the golden tests and the fuzz targets.
//!
//! A message that decodes must encode to the same length, and decode from there to the same value.

use crate::proc::{cancel, free_all, granted, lock, share, test, unlock};
use crate::{Procedure, Wire, nsm};
use std::fmt::Debug;
use xdr::{Reader, Result};

/// A procedure of either program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// A procedure of NLM.
    Nlm(Procedure),
    /// A procedure of NSM.
    Nsm(nsm::Procedure),
}

/// The procedures of both programs.
pub const PROCEDURES: u8 = 27;

impl Which {
    /// All procedures.
    pub fn all() -> impl Iterator<Item = Self> {
        let nsm = nsm::Procedure::ALL.into_iter().map(Self::Nsm);
        Procedure::ALL.into_iter().map(Self::Nlm).chain(nsm)
    }

    /// The byte by which [`call`] and [`reply`] select the procedure.
    ///
    /// # Panics
    /// Never: every procedure is in the table.
    #[must_use]
    pub fn selector(self) -> u8 {
        let position = Self::all().position(|one| one == self).expect("every procedure is in the table");
        u8::try_from(position).expect("27 procedures")
    }

    fn selected(by: u8) -> Option<Self> {
        Self::all().nth(usize::from(by % PROCEDURES))
    }
}

/// Decodes arguments; the first byte selects the procedure.
pub fn call(bytes: &[u8]) {
    if let Some((selector, body)) = bytes.split_first()
        && let Some(which) = Which::selected(*selector)
    {
        let _ = call_again(which, body, &mut Vec::new());
    }
}

/// Decodes results; the first byte selects the procedure.
pub fn reply(bytes: &[u8]) {
    if let Some((selector, body)) = bytes.split_first()
        && let Some(which) = Which::selected(*selector)
    {
        let _ = reply_again(which, body, &mut Vec::new());
    }
}

/// Decodes arguments and encodes them again into `written`. Returns how many bytes follow the
/// arguments.
///
/// # Errors
/// If the arguments do not decode.
pub fn call_again<'a>(which: Which, bytes: &'a [u8], written: &'a mut Vec<u8>) -> Result<usize> {
    match which {
        Which::Nlm(procedure) => match procedure {
            Procedure::Null => again::<()>(bytes, written),
            Procedure::Test | Procedure::TestMsg => again::<test::Args<'a>>(bytes, written),
            Procedure::Lock | Procedure::LockMsg | Procedure::NmLock => {
                again::<lock::Args<'a>>(bytes, written)
            }
            Procedure::Cancel | Procedure::CancelMsg => again::<cancel::Args<'a>>(bytes, written),
            Procedure::Unlock | Procedure::UnlockMsg => again::<unlock::Args<'a>>(bytes, written),
            Procedure::Granted | Procedure::GrantedMsg => again::<granted::Args<'a>>(bytes, written),
            Procedure::TestRes => again::<test::Reply<'a>>(bytes, written),
            Procedure::LockRes | Procedure::CancelRes | Procedure::UnlockRes | Procedure::GrantedRes => {
                again::<lock::Reply<'a>>(bytes, written)
            }
            Procedure::Share | Procedure::Unshare => again::<share::Args<'a>>(bytes, written),
            Procedure::FreeAll => again::<free_all::Args<'a>>(bytes, written),
        },
        Which::Nsm(procedure) => match procedure {
            nsm::Procedure::Null | nsm::Procedure::SimuCrash => again::<()>(bytes, written),
            nsm::Procedure::Stat => again::<nsm::stat::Args<'a>>(bytes, written),
            nsm::Procedure::Mon => again::<nsm::monitor::Args<'a>>(bytes, written),
            nsm::Procedure::Unmon => again::<nsm::monitor::Id<'a>>(bytes, written),
            nsm::Procedure::UnmonAll => again::<nsm::monitor::Caller<'a>>(bytes, written),
            nsm::Procedure::Notify => again::<nsm::notify::Args<'a>>(bytes, written),
        },
    }
}

/// Decodes results and encodes them again into `written`. Returns how many bytes follow the
/// results.
///
/// # Errors
/// If the results do not decode.
pub fn reply_again<'a>(which: Which, bytes: &'a [u8], written: &'a mut Vec<u8>) -> Result<usize> {
    match which {
        Which::Nlm(procedure) => match procedure {
            Procedure::Test => again::<test::Reply<'a>>(bytes, written),
            Procedure::Lock
            | Procedure::NmLock
            | Procedure::Cancel
            | Procedure::Unlock
            | Procedure::Granted => again::<lock::Reply<'a>>(bytes, written),
            Procedure::Share | Procedure::Unshare => again::<share::Reply<'a>>(bytes, written),
            // Messages and their results have none.
            _ => again::<()>(bytes, written),
        },
        Which::Nsm(procedure) => match procedure {
            nsm::Procedure::Stat | nsm::Procedure::Mon => again::<nsm::stat::Reply>(bytes, written),
            nsm::Procedure::Unmon | nsm::Procedure::UnmonAll => again::<nsm::State>(bytes, written),
            nsm::Procedure::Null | nsm::Procedure::SimuCrash | nsm::Procedure::Notify => {
                again::<()>(bytes, written)
            }
        },
    }
}

fn again<'a, T: Wire<'a> + PartialEq + Debug>(bytes: &'a [u8], written: &'a mut Vec<u8>) -> Result<usize> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    written.clear();
    value.encode(&mut xdr::Writer::new(written));
    assert_eq!(written.len(), bytes.len() - reader.remaining(), "encoded as long as it came");
    let mut second = Reader::new(written);
    assert_eq!(T::decode(&mut second), Ok(value), "encoded to the same value");
    assert_eq!(second.remaining(), 0, "and to nothing more");
    Ok(reader.remaining())
}
