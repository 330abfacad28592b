//! The data and the holes of files, and storage that is reserved. RFC 7862 s15.1, s15.4, s15.11

use std::ops::Range;

use ::nfs4::Status as Nfs;
use ::nfs4::op::seek::What;
use fs::{FileHandle, Status};

use super::Operations;
use crate::error::{Error, Result};
use crate::protocol::nfs4::space::{self, Found};

const SEEK: &str = "SEEK";

/// What a seek looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    /// Data.
    Data,
    /// A hole. Behind the last data every file has one.
    Hole,
}

/// What servers refuse for one file, or at one moment. RFC 7862 s11
const DECLINED: [Nfs; 4] =
    [Nfs::UNION_NOTSUPP, Nfs::PARTNER_NOTSUPP, Nfs::OFFLOAD_DENIED, Nfs::OFFLOAD_NO_REQS];

/// Tells a refusal that is about one file from [`Status::NotSupported`].
pub(super) fn declined(error: Error) -> Error {
    match error {
        Error::Status { operation, status: Status::Other(number) } if DECLINED.contains(&Nfs(number)) => {
            Error::Declined { operation, reason: Nfs(number).to_string() }
        }
        error => error,
    }
}

impl Operations<'_> {
    /// The minor version, if it has the operations of version 4.2.
    pub(super) fn version_4_2(&self, operation: &'static str) -> Result<u32> {
        let minor = self.protocol().minor();
        let missing = Error::Status { operation, status: Status::NotSupported };
        if minor >= 2 { Ok(minor) } else { Err(missing) }
    }

    /// Finds the first data, or the first hole, at an offset or behind it; `None` if there are no
    /// more data. An offset at the end of the file, or behind it, is [`Status::NoAddress`].
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    /// [`Error::Declined`] if the server does not look for this, or what it finds cannot be:
    /// nfs-ganesha 4.3 finds everything at the beginning of the file.
    pub async fn seek(&self, file: FileHandle, offset: u64, sought: Sought) -> Result<Option<u64>> {
        let found = self.seek_once(file, offset, sought).await?;
        // By a hole that is none, a program that leaves out holes would lose data.
        let is_hole_here = sought == Sought::Hole && found == Some(offset);
        if is_hole_here && self.seek_once(file, offset, Sought::Data).await.is_ok_and(|at| at == Some(offset))
        {
            return Err(not_believed(offset, offset));
        }
        Ok(found)
    }

    async fn seek_once(&self, file: FileHandle, offset: u64, sought: Sought) -> Result<Option<u64>> {
        let what = match sought {
            Sought::Data => What::Data,
            Sought::Hole => What::Hole,
        };
        let minor = self.version_4_2(SEEK)?;
        let sought_at = self.run(space::seek(minor, file, offset, what)).await.map_err(declined)?;
        let Found { eof, offset: found } = sought_at;
        match (eof, sought) {
            (true, Sought::Data) => Ok(None),
            _ if found < offset => Err(not_believed(offset, found)),
            _ => Ok(Some(found)),
        }
    }

    /// Reserves storage for a range. A file that ends before the range does becomes longer.
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    pub async fn allocate(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        let minor = self.version_4_2("ALLOCATE")?;
        self.run(space::allocate(minor, file, offset_and_length(range))).await.map_err(declined)
    }

    /// Makes a range a hole. The size of the file stays what it is.
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    pub async fn deallocate(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        let minor = self.version_4_2("DEALLOCATE")?;
        self.run(space::deallocate(minor, file, offset_and_length(range), false)).await.map_err(declined)
    }

    /// As [`Self::deallocate`]; when it is done, the hole survives a crash of the server.
    ///
    /// # Errors
    /// As there.
    pub async fn deallocate_stably(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        let minor = self.version_4_2("DEALLOCATE")?;
        self.run(space::deallocate(minor, file, offset_and_length(range), true)).await.map_err(declined)
    }

    /// Makes a range zeros for which storage is reserved. A file that ends before the range does
    /// becomes longer. A server that cannot reserve storage, or not make holes, changes no data. If
    /// something else fails, the range may be zeros without storage.
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    pub async fn zero(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        self.zero_as(file, range, false).await
    }

    /// As [`Self::zero`]; when it is done, zeros within the file survive a crash of the server.
    ///
    /// # Errors
    /// As there.
    pub async fn zero_stably(&self, file: FileHandle, range: Range<u64>) -> Result<()> {
        self.zero_as(file, range, true).await
    }

    async fn zero_as(&self, file: FileHandle, range: Range<u64>, stable: bool) -> Result<()> {
        let minor = self.version_4_2("ALLOCATE")?;
        // Behind its end a file needs no hole, and what is reserved before it changes nothing.
        let end = self.getattr(file).await?.size;
        let within = range.start..range.end.min(end);
        if within.is_empty() {
            return self.allocate(file, range).await;
        }
        let (within, range) = (offset_and_length(within), offset_and_length(range));
        self.run(space::zero(minor, file, within, range, stable)).await.map_err(declined)
    }
}

/// What the server has found is not there, so it is as if it could not look.
fn not_believed(offset: u64, found: u64) -> Error {
    let reason = format!("what it finds at {found} from {offset} on is not there");
    Error::Declined { operation: SEEK, reason }
}

const fn offset_and_length(range: Range<u64>) -> (u64, u64) {
    (range.start, range.end.saturating_sub(range.start))
}
