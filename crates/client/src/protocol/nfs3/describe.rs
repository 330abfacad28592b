//! What a call asks for, for the log.

use fs::FileHandle;
use nfs3::Procedure as Nfs;
use xdr::Reader;

/// The longest handle and name that are decoded.
const OPAQUE_BYTES_MAX: u32 = 1024;

/// The procedure with the handle and the name in the arguments of a call, as far as it has these.
pub(crate) fn describe(procedure: Nfs, args: &[u8]) -> String {
    let operation = procedure.name();
    let mut reader = Reader::new(args);
    let Some(handle) = reader.opaque(OPAQUE_BYTES_MAX).ok().and_then(FileHandle::new) else {
        return operation.to_owned();
    };
    let is_named = matches!(
        procedure,
        Nfs::Lookup
            | Nfs::Create
            | Nfs::MkDir
            | Nfs::SymLink
            | Nfs::MkNod
            | Nfs::Remove
            | Nfs::RmDir
            | Nfs::Rename
    );
    match reader.opaque(OPAQUE_BYTES_MAX) {
        Ok(name) if is_named => {
            format!("{operation} of \"{}\" in the directory with handle {handle}", name.escape_ascii())
        }
        _ => format!("{operation} of the object with handle {handle}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_described_by_its_procedure_handle_and_name() {
        let args = [0, 0, 0, 2, 0xab, 0xcd, 0, 0, 0, 0, 0, 3, b'a', b'\n', b'c', 0];
        let named = "LOOKUP of \"a\\nc\" in the directory with handle abcd";
        assert_eq!(describe(Nfs::Lookup, &args), named);
        assert_eq!(describe(Nfs::GetAttr, &args), "GETATTR of the object with handle abcd");
        assert_eq!(describe(Nfs::Lookup, &args[..3]), "LOOKUP");
    }
}
