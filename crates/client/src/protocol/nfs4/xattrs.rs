//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR. RFC 8276 s8.4

use ::nfs4::Operation as Nfs;
use ::nfs4::op::{Args, Reply, kind, xattr};
use ::nfs4::table::Family;
use ::nfs4::types::attributes::number;
use ::nfs4::{Bitmap, ChangeInfo, op::Fore};
use fs::FileHandle;
use xdr::Writer;

use super::on;
use super::operations::{of_file_system, operation, read_put, told};
use super::reply::{done, expect};
use crate::protocol::Operation;

/// A part of the names of an object's attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamesPage {
    pub names: Vec<Vec<u8>>,
    /// Where the next part begins.
    pub cookie: u64,
    pub eof: bool,
}

pub(crate) fn value(minor: u32, object: FileHandle, name: &[u8]) -> Operation<Vec<u8>> {
    let args = on(minor, object, |to| _ = to.push(&Args::GetXattr(xattr::GetArgs { name })));
    operation(Nfs::GetXattr, args, |reader| {
        read_put(reader)?;
        Ok(done(expect::<kind::GetXattr>(reader)?)?.to_vec())
    })
}

pub(crate) fn set(
    minor: u32,
    object: FileHandle,
    (name, value): (&[u8], &[u8]),
    option: xattr::SetOption,
) -> Operation<()> {
    let set = xattr::SetArgs { option, name, value };
    let args = on(minor, object, |to| _ = to.push(&Args::SetXattr(set)));
    operation(Nfs::SetXattr, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::SetXattr>(reader)?).map(drop)
    })
}

pub(crate) fn remove(minor: u32, object: FileHandle, name: &[u8]) -> Operation<()> {
    let args = on(minor, object, |to| _ = to.push(&Args::RemoveXattr(xattr::RemoveArgs { name })));
    operation(Nfs::RemoveXattr, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::RemoveXattr>(reader)?).map(drop)
    })
}

/// The results of a removal, as kept: it is done, whoever did it.
pub(super) fn removed_before() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.u32(::nfs4::Status::OK.0);
    for result in [Reply::PutFh(Ok(())), Reply::RemoveXattr(Ok(ChangeInfo::default()))] {
        writer.u32(result.operation().number());
        Fore::encode_reply(&result, &mut writer);
    }
    out
}

/// Whether an object's file system has extended attributes; not if the server does not know of
/// them. RFC 8276 s8.2.1
pub(crate) fn support(minor: u32, object: FileHandle) -> Operation<bool> {
    of_file_system(minor, object, Bitmap::of(&[number::XATTR_SUPPORT]), |reader| {
        read_put(reader)?;
        Ok(told(reader)?.xattr_support.unwrap_or(false))
    })
}

/// The names from a cookie on, in a reply of at most so many bytes. RFC 8276 s8.4.3
pub(crate) fn list(minor: u32, object: FileHandle, (cookie, count_max): (u64, u32)) -> Operation<NamesPage> {
    let args = on(minor, object, |to| {
        to.push(&Args::ListXattrs(xattr::ListArgs { cookie, count_max }));
    });
    operation(Nfs::ListXattrs, args, |reader| {
        read_put(reader)?;
        let page = done(expect::<kind::ListXattrs>(reader)?)?;
        let names = page.names.iter().map(<[u8]>::to_vec).collect();
        Ok(NamesPage { names, cookie: page.cookie, eof: page.eof })
    })
}
