//! One side of a copy: directories, files that are read, files that are written.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use client::Block;
use fs::{Attributes, FileHandle};

use crate::entry::{Entry, NewAttributes};
use crate::error::Result;
use crate::local::LocalPath;

/// How a file is read or written.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Blocks in flight.
    pub depth: usize,
    /// Whether it is worth using all paths for this one file.
    pub spread: bool,
}

/// An object that a further name can be given to.
#[derive(Debug, Clone)]
pub enum Anchor {
    /// A file of this machine.
    Local(LocalPath),
    /// A file of a server.
    Remote(FileHandle),
}

/// Which directory it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// On this machine.
    Local(u64, u64),
    /// On a server that has these addresses and this port.
    Remote(Vec<IpAddr>, u16, FileHandle),
}

impl Identity {
    /// Whether two are one.
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

/// The entries of a directory, one after another.
pub type Entries = Box<dyn Iterator<Item = Result<Entry>> + Send>;

/// A directory.
pub trait Folder: Debug + Send + Sync {
    /// Where it is, for people.
    fn place(&self) -> String;
    /// Which it is.
    ///
    /// # Errors
    /// What the side says.
    fn identity(&self) -> Result<Identity>;
    /// What is in it, in no order.
    ///
    /// # Errors
    /// What the side says.
    fn list(&self) -> Result<Entries>;
    /// What a name in it names; symbolic links are not followed.
    ///
    /// # Errors
    /// What the side says, but that there is no such name.
    fn find(&self, name: &[u8]) -> Result<Option<Entry>>;
    /// A directory in it.
    fn child(&self, entry: &Entry) -> Arc<dyn Folder>;
    /// Where a symbolic link points.
    ///
    /// # Errors
    /// What the side says.
    fn read_link(&self, entry: &Entry) -> Result<Vec<u8>>;
    /// The largest READ and WRITE.
    fn block_bytes(&self) -> usize;
    /// Reads a file from a place on.
    ///
    /// # Errors
    /// What the side says.
    fn open(&self, entry: &Entry, from: u64, shape: Shape) -> Result<Box<dyn Source>>;
    /// Makes a directory that its owner may use.
    ///
    /// # Errors
    /// What the side says.
    fn make_folder(&self, name: &[u8], mode: u32) -> Result<Entry>;
    /// Makes a symbolic link.
    ///
    /// # Errors
    /// What the side says.
    fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<Entry>;
    /// Makes a named pipe, a socket or a device.
    ///
    /// # Errors
    /// What the side says.
    fn make_special(&self, name: &[u8], like: &Attributes) -> Result<Entry>;
    /// Makes an empty file that only its owner may use; the name must be free.
    ///
    /// # Errors
    /// What the side says.
    fn create(&self, name: &[u8], shape: Shape) -> Result<Box<dyn Sink>>;
    /// Opens a file that an earlier copy made by [`Folder::create`], with the bytes that it has;
    /// none where the name is free or names something else.
    ///
    /// # Errors
    /// What the side says.
    fn reopen(&self, name: &[u8], shape: Shape) -> Result<Option<(u64, Box<dyn Sink>)>>;
    /// Gives another name, taking it away from what has it.
    ///
    /// # Errors
    /// What the side says.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()>;
    /// Removes a name of what is no directory.
    ///
    /// # Errors
    /// What the side says.
    fn remove(&self, name: &[u8]) -> Result<()>;
    /// What [`Folder::link`] needs to give what a name in it names a further name.
    ///
    /// # Errors
    /// What the side says.
    fn anchor(&self, name: &[u8]) -> Result<Anchor>;
    /// Gives an object a further name.
    ///
    /// # Errors
    /// What the side says.
    fn link(&self, anchor: &Anchor, name: &[u8]) -> Result<()>;
    /// Sets attributes of what a name in it names, or without an entry its own.
    ///
    /// # Errors
    /// What the side says.
    fn set(&self, entry: Option<&Entry>, new: NewAttributes) -> Result<()>;
    /// Whether this machine must not have started anew for a partial file here to be believed.
    fn boot_matters(&self) -> bool;
}

/// A file that is read.
pub trait Source: Debug + Send {
    /// The next block that is no hole, in order; none at the end.
    ///
    /// # Errors
    /// What the side says.
    fn next_block(&mut self) -> Result<Option<Block>>;
    /// Takes a buffer back.
    fn give_back(&mut self, buffer: Vec<u8>);
    /// What the file is by now.
    ///
    /// # Errors
    /// What the side says.
    fn attributes(&self) -> Result<Attributes>;
}

/// A file that is written.
pub trait Sink: Debug + Send {
    /// Writes a whole buffer, now or soon; places must grow.
    ///
    /// # Errors
    /// What this write or an earlier one met.
    fn write(&mut self, offset: u64, buffer: Vec<u8>) -> Result<()>;
    /// A buffer that is written.
    fn spare(&mut self) -> Option<Vec<u8>>;
    /// Waits for all writes.
    ///
    /// # Errors
    /// What one of them met.
    fn drain(&mut self) -> Result<()>;
    /// Sets length and attributes and makes all of it stable.
    ///
    /// # Errors
    /// What the side says.
    fn finish(&mut self, size: u64, new: NewAttributes, sync: bool) -> Result<()>;
    /// Reads what was written, from the side and not from memory where that can be had.
    ///
    /// # Errors
    /// What the side says.
    fn read_back(&self, size: u64, shape: Shape) -> Result<Box<dyn Source>>;
    /// Whether a name in the directory still names this file.
    ///
    /// # Errors
    /// What the side says.
    fn is_named(&self, folder: &dyn Folder, name: &[u8]) -> Result<bool>;
}
