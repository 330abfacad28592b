//! The one question that a client of version 3 asks of NFSv4: which minor versions a server has.
//! RFC 8881

use xdr::{Reader, Writer};

use crate::caller::Program;

/// NFS version 4, with all its minor versions.
pub(crate) const PROGRAM: Program = Program { number: nfs3::PROGRAM, version: 4 };
/// The minor versions that are asked for.
pub(crate) const MINOR_VERSIONS: [u32; 3] = [0, 1, 2];
/// The procedure that carries all operations. RFC 8881 s16.2
pub(crate) const COMPOUND: u32 = 1;
/// The status of a COMPOUND of a minor version that the server has not, whatever is in it.
/// RFC 8881 s15.1.3.1
const MINOR_VERS_MISMATCH: u32 = 10_021;

/// COMPOUND without a tag and without operations, which changes no state. A server that has the
/// minor version returns NFS4_OK, or says that something should be in it. RFC 8881 s16.2.1
pub(crate) fn encode_empty_compound(args: &mut Writer<'_>, minor: u32) {
    args.opaque(&[]);
    args.u32(minor);
    args.u32(0);
}

/// Whether the results of a COMPOUND are those of a server that has the minor version.
pub(crate) fn has_minor_version(results: &[u8]) -> xdr::Result<bool> {
    Ok(Reader::new(results).u32()? != MINOR_VERS_MISMATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s16.2.1, s15.1.3.1
    #[test]
    fn an_empty_compound_is_a_tag_a_minor_version_and_a_count() {
        let mut bytes = Vec::new();
        encode_empty_compound(&mut Writer::new(&mut bytes), 2);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(has_minor_version(&[0, 0, 0, 0]), Ok(true));
        // NFS4ERR_OP_NOT_IN_SESSION, of a server that wants an operation
        assert_eq!(has_minor_version(&10_071_u32.to_be_bytes()), Ok(true));
        assert_eq!(has_minor_version(&10_021_u32.to_be_bytes()), Ok(false));
        assert!(has_minor_version(&[0, 0]).is_err());
    }
}
