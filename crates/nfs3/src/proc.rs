//! The 22 procedures of NFS, one file each: `Args`, `Reply`, and the reply's content, `Success` and
//! `Failure`. RFC 1813 s3.3

pub mod access;
pub mod commit;
pub mod create;
pub mod entry_writer;
pub mod fsinfo;
pub mod fsstat;
pub mod getattr;
pub mod link;
pub mod lookup;
pub mod mkdir;
pub mod mknod;
pub mod null;
pub mod pathconf;
pub mod read;
pub mod readdir;
pub mod readdirplus;
pub mod readlink;
pub mod remove;
pub mod rename;
pub mod rmdir;
pub mod setattr;
pub mod symlink;
pub mod write;
