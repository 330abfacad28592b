//! The interface of one side of a copy: directories, files to read, files to write.

use std::fmt::Debug;
use std::sync::Arc;

use client::{Address, Block, Buffer};
use fs::{Attributes, FileHandle};

use crate::entry::{Entry, NewAttributes};
use crate::error::Result;
use crate::local::LocalPath;

/// How a file is read or written.
#[derive(Debug, Clone, Copy)]
pub struct TransferOptions {
    /// The size of a block in bytes.
    pub block_bytes: usize,
    /// The number of blocks in flight.
    pub depth: usize,
    /// Whether the file is large enough to be read or written over all paths at once.
    pub spread: bool,
}

/// An object that can be given another name.
#[derive(Debug, Clone)]
pub enum LinkSource {
    /// A file of this machine.
    Local(LocalPath),
    /// A file of a server.
    Remote(FileHandle),
}

/// Identifies a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// On this machine: file system and file number.
    Local(u64, u64),
    /// On a server that has these addresses and this port.
    Remote(Vec<Address>, u16, FileHandle),
}

impl Identity {
    /// Whether both are the same directory.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Remote(a, a_port, a_handle), Self::Remote(b, b_port, b_handle)) => {
                a_handle == b_handle && a_port == b_port && a.iter().any(|address| b.contains(address))
            }
            _ => self == other,
        }
    }
}

/// The entries of a directory, in no particular order.
pub type Entries = Box<dyn Iterator<Item = Result<Entry>> + Send>;

/// A directory.
pub trait Directory: Debug + Send + Sync {
    /// The name of the directory in messages.
    fn display_name(&self) -> String;
    /// Identifies the directory.
    ///
    /// # Errors
    /// Errors of the backend.
    fn identity(&self) -> Result<Identity>;
    /// Lists the directory, in no particular order.
    ///
    /// # Errors
    /// Errors of the backend.
    fn list(&self) -> Result<Entries>;
    /// Finds the object of a name; symbolic links are not followed. `None` if there is none.
    ///
    /// # Errors
    /// Errors of the backend, except that the name does not exist.
    fn find(&self, name: &[u8]) -> Result<Option<Entry>>;
    /// A subdirectory.
    fn child(&self, entry: &Entry) -> Arc<dyn Directory>;
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Errors of the backend.
    fn read_link(&self, entry: &Entry) -> Result<Vec<u8>>;
    /// The maximum size of a READ and of a WRITE.
    fn block_bytes(&self) -> usize;
    /// Opens a file for reading, from this offset on.
    ///
    /// # Errors
    /// Errors of the backend.
    fn open(&self, entry: &Entry, from: u64, transfer: TransferOptions) -> Result<Box<dyn Source>>;
    /// Creates a directory to which its owner has all rights.
    ///
    /// # Errors
    /// Errors of the backend.
    fn make_directory(&self, name: &[u8], mode: u32) -> Result<Entry>;
    /// Creates a symbolic link.
    ///
    /// # Errors
    /// Errors of the backend.
    fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<Entry>;
    /// Creates a named pipe, a socket or a device.
    ///
    /// # Errors
    /// Errors of the backend.
    fn make_special(&self, name: &[u8], like: &Attributes) -> Result<Entry>;
    /// Creates an empty file that only its owner may use. The name must not exist.
    ///
    /// # Errors
    /// Errors of the backend.
    fn create(&self, name: &[u8], transfer: TransferOptions) -> Result<Box<dyn Sink>>;
    /// Opens a file that an earlier copy created by [`Directory::create`], and returns its length.
    /// `None` if the name does not exist or belongs to something else.
    ///
    /// # Errors
    /// Errors of the backend.
    fn reopen(&self, name: &[u8], transfer: TransferOptions) -> Result<Option<(u64, Box<dyn Sink>)>>;
    /// Renames an object, and replaces an object that has the new name.
    ///
    /// # Errors
    /// Errors of the backend.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()>;
    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// Errors of the backend.
    fn remove(&self, name: &[u8]) -> Result<()>;
    /// What [`Directory::link`] needs to give the object of this name another name.
    ///
    /// # Errors
    /// Errors of the backend.
    fn link_source(&self, name: &[u8]) -> Result<LinkSource>;
    /// Gives an object another name.
    ///
    /// # Errors
    /// Errors of the backend.
    fn link(&self, link_source: &LinkSource, name: &[u8]) -> Result<()>;
    /// Sets attributes of an entry or, without an entry, of the directory itself.
    ///
    /// # Errors
    /// Errors of the backend.
    fn set(&self, entry: Option<&Entry>, new: NewAttributes) -> Result<()>;
    /// Whether a partial file can be trusted only if this machine was not restarted meanwhile.
    fn boot_matters(&self) -> bool;
}

/// A file that is read.
pub trait Source: Debug + Send {
    /// The next block of data, in order; holes are left out. `None` at the end.
    ///
    /// # Errors
    /// Errors of the backend.
    fn next_block(&mut self) -> Result<Option<Block>>;
    /// Takes back a buffer for reuse.
    fn give_back(&mut self, buffer: Buffer);
    /// The present attributes of the file.
    ///
    /// # Errors
    /// Errors of the backend.
    fn attributes(&self) -> Result<Attributes>;
}

/// A file that is written.
pub trait Sink: Debug + Send {
    /// Writes a whole buffer, now or later. Offsets must increase.
    ///
    /// # Errors
    /// Errors of this write or of an earlier one.
    fn write(&mut self, offset: u64, buffer: Buffer) -> Result<()>;
    /// A buffer whose write has completed.
    fn spare(&mut self) -> Option<Buffer>;
    /// Waits for all writes.
    ///
    /// # Errors
    /// Errors of one of the writes.
    fn drain(&mut self) -> Result<()>;
    /// Sets the length and the attributes. With `sync`, also waits until a local file is on its
    /// disk.
    ///
    /// # Errors
    /// Errors of the backend.
    fn finish(&mut self, size: u64, new: NewAttributes, sync: bool) -> Result<()>;
    /// Opens what was written for reading, from the server or the disk rather than from memory
    /// where possible.
    ///
    /// # Errors
    /// Errors of the backend.
    fn read_back(&self, size: u64, transfer: TransferOptions) -> Result<Box<dyn Source>>;
    /// Whether a name in the directory is still this file's.
    ///
    /// # Errors
    /// Errors of the backend.
    fn is_named(&self, directory: &dyn Directory, name: &[u8]) -> Result<bool>;
}
