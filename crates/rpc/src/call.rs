//! Calls, RFC 5531 s9: the header of `call_body`; the arguments follow.
//!
//! Encoding and decoding allocate nothing. [`CallError`] carries what the right answer needs: if a
//! message is not a call, or ends within its header, there is no answer and the connection is
//! unusable.

use xdr::{Reader, Writer};

use crate::auth::{AuthStat, BODY_BYTES_MAX, Credential, encode_none};
use crate::{CALL, RPC_VERSION, Xid};

/// The header of a call. Its verifier was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// The call's xid.
    pub xid: Xid,
    /// The number of the program.
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// The number of the procedure.
    pub procedure: u32,
    /// The flavor of the credential, see [`crate::auth`].
    pub credential_flavor: u32,
    /// The body of the credential, as received: at most 400 bytes.
    pub credential_body: &'a [u8],
}

impl<'a> CallHeader<'a> {
    /// Parses the credential.
    ///
    /// # Errors
    /// [`AuthStat::BADCRED`], to be sent as a refusal.
    pub fn credential(&self) -> Result<Credential<'a>, AuthStat> {
        Credential::parse(self.credential_flavor, self.credential_body).map_err(|_| AuthStat::BADCRED)
    }
}

/// Why a record is not a call that can be served. Always the sender's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The message type is not CALL; it cannot be answered.
    #[error("the message is not a call")]
    NotACall,
    /// Another version of RPC: answered by RPC_MISMATCH with 2 to 2. RFC 5531 s9
    #[error("call {xid} is not of RPC version {RPC_VERSION}")]
    RpcMismatch {
        /// The call's xid.
        xid: Xid,
    },
    /// The credential or verifier is above its bound: answered by AUTH_ERROR. RFC 5531 s8.2
    #[error("call {xid} is refused: {stat}")]
    AuthError {
        /// The call's xid.
        xid: Xid,
        /// The status to answer with.
        stat: AuthStat,
    },
    /// The message ends within its header.
    #[error("call header: {0}")]
    Garbage(#[from] xdr::Error),
}

/// Decodes the header of a call and leaves the reader at the arguments.
///
/// # Errors
/// [`CallError`].
#[inline]
pub fn decode<'a>(reader: &mut Reader<'a>) -> Result<CallHeader<'a>, CallError> {
    let xid = Xid(reader.u32()?);
    if reader.u32()? != CALL {
        return Err(CallError::NotACall);
    }
    if reader.u32()? != RPC_VERSION {
        return Err(CallError::RpcMismatch { xid });
    }
    let program = reader.u32()?;
    let version = reader.u32()?;
    let procedure = reader.u32()?;
    let (credential_flavor, credential_body) = opaque_auth(reader, xid, AuthStat::BADCRED)?;
    opaque_auth(reader, xid, AuthStat::BADVERF)?;
    Ok(CallHeader { xid, program, version, procedure, credential_flavor, credential_body })
}

#[inline]
fn opaque_auth<'a>(reader: &mut Reader<'a>, xid: Xid, stat: AuthStat) -> Result<(u32, &'a [u8]), CallError> {
    let flavor = reader.u32()?;
    match reader.opaque(BODY_BYTES_MAX) {
        Ok(body) => Ok((flavor, body)),
        // RFC 5531 s8.2: a body above 400 bytes is no credential, but the call's xid is known.
        Err(xdr::Error::TooLong { .. }) => Err(CallError::AuthError { xid, stat }),
        Err(short) => Err(CallError::Garbage(short)),
    }
}

/// Where the body of a credential starts in its record: after six words, its flavor and its length.
/// RFC 5531 s9
pub const CREDENTIAL_AT: usize = 32;

/// Bytes of a call's header without its credential.
pub const HEAD_BYTES: usize = 32;

/// Writes the header of a call; its arguments follow. `credential` is flavor, length and body,
/// built once and used for many calls: see [`crate::auth`]. The verifier is AUTH_NONE.
#[inline]
pub fn encode(
    writer: &mut Writer<'_>,
    xid: Xid,
    program: u32,
    version: u32,
    procedure: u32,
    credential: &[u8],
) {
    for word in [xid.0, CALL, RPC_VERSION, program, version, procedure] {
        writer.u32(word);
    }
    writer.bytes(credential);
    encode_none(writer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{AUTH_SYS, AuthSys};

    #[test]
    fn golden_bytes_of_a_null_call() {
        // RFC 5531 s9
        let mut out = Vec::new();
        encode(&mut Writer::new(&mut out), Xid(0x0102_0304), 100_003, 3, 0, &[0; 8]);
        let mut expected = vec![1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 0];
        expected.extend([0; 16]);
        assert_eq!(out, expected);
        assert_eq!(out.len(), HEAD_BYTES + 8);
    }

    #[test]
    fn a_call_reads_back_and_leaves_its_arguments() {
        let sys = AuthSys { stamp: 1, machine: b"host", uid: 2, gid: 3, gids: [4, 5].into_iter().collect() };
        let mut credential = Vec::new();
        sys.encode_opaque(&mut Writer::new(&mut credential));
        let mut out = Vec::new();
        encode(&mut Writer::new(&mut out), Xid(9), 100_003, 3, 6, &credential);
        out.extend(b"arguments");
        let mut reader = Reader::new(&out);
        let header = decode(&mut reader).unwrap();
        assert_eq!((header.xid, header.program, header.version, header.procedure), (Xid(9), 100_003, 3, 6));
        assert_eq!(header.credential_flavor, AUTH_SYS);
        assert_eq!(header.credential(), Ok(Credential::Sys(sys)));
        assert_eq!(reader.rest(), b"arguments");
    }

    #[test]
    fn a_verifier_of_the_peer_is_skipped() {
        let mut out = Vec::new();
        encode(&mut Writer::new(&mut out), Xid(9), 1, 1, 1, &[0; 8]);
        out.truncate(out.len() - 8);
        out.extend([0, 0, 0, 6, 0, 0, 0, 3, 1, 2, 3, 0, 42]);
        let mut reader = Reader::new(&out);
        decode(&mut reader).unwrap();
        assert_eq!(reader.rest(), [42]);
    }
}
