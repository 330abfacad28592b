//! Credentials, RFC 5531 s8.2 and appendix A.
//!
//! A call carries its credential as a flavor and an opaque body. A server usually compares the
//! bytes with those of the previous call, and parses only new credentials: [`Credential::parse`].

use smallvec::SmallVec;
use xdr::{Reader, Writer};

/// Bytes of a credential's or verifier's body. RFC 5531 s8.2
pub const BODY_BYTES_MAX: u32 = 400;
/// Bytes of AUTH_SYS's machine name. RFC 5531 appendix A
pub const MACHINE_BYTES_MAX: u32 = 255;
/// Supplementary groups of AUTH_SYS. RFC 5531 appendix A
pub const GIDS_MAX: u32 = 16;

/// The flavor of no authentication. RFC 5531 s8.2
pub const AUTH_NONE: u32 = 0;
/// The flavor of Unix user and group numbers. RFC 5531 s8.2
pub const AUTH_SYS: u32 = 1;

/// The caller's identity, as claimed by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential<'a> {
    /// No identity.
    None,
    /// A user of the calling machine.
    Sys(AuthSys<'a>),
    /// A flavor that this crate does not know.
    Other {
        /// Its number.
        flavor: u32,
        /// The body, as received.
        body: &'a [u8],
    },
}

impl<'a> Credential<'a> {
    /// Parses the bytes that [`crate::call::decode`] returned. The body of AUTH_NONE is ignored:
    /// RFC 5531 s8.2 says that it should be empty, but old senders differ.
    ///
    /// # Errors
    /// An invalid AUTH_SYS body: answer with [`AuthStat::BADCRED`]. RFC 5531 s9
    pub fn parse(flavor: u32, body: &'a [u8]) -> xdr::Result<Self> {
        match flavor {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => AuthSys::parse(body).map(Self::Sys),
            flavor => Ok(Self::Other { flavor, body }),
        }
    }
}

/// `authsys_parms`. RFC 5531 appendix A
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// Any number chosen by the caller.
    pub stamp: u32,
    /// The caller's name, at most 255 bytes.
    pub machine: &'a [u8],
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// Supplementary groups, at most 16.
    pub gids: SmallVec<[u32; 16]>,
}

impl<'a> AuthSys<'a> {
    fn parse(body: &'a [u8]) -> xdr::Result<Self> {
        let mut reader = Reader::new(body);
        let stamp = reader.u32()?;
        let machine = reader.opaque(MACHINE_BYTES_MAX)?;
        let uid = reader.u32()?;
        let gid = reader.u32()?;
        let count = reader.length(GIDS_MAX)?;
        let mut gids = SmallVec::new();
        for _ in 0..count {
            gids.push(reader.u32()?);
        }
        reader.finish()?;
        Ok(Self { stamp, machine, uid, gid, gids })
    }

    /// Writes flavor, length and body: the `credential` of [`crate::call::encode`]. A name or a
    /// list of groups above its bound is truncated, as in every Unix client.
    pub fn encode_opaque(&self, writer: &mut Writer<'_>) {
        let machine = self.machine.get(..MACHINE_BYTES_MAX as usize).unwrap_or(self.machine);
        let gids = self.gids.get(..GIDS_MAX as usize).unwrap_or(&self.gids);
        let words = 5 + gids.len();
        let body = words * xdr::UNIT_BYTES + machine.len() + xdr::padding(machine.len());
        writer.u32(AUTH_SYS);
        // The two lengths are within their bounds: at most 340 bytes and 16 groups.
        writer.u32(body as u32);
        writer.u32(self.stamp);
        writer.opaque(machine);
        writer.u32(self.uid);
        writer.u32(self.gid);
        writer.u32(gids.len() as u32);
        for gid in gids {
            writer.u32(*gid);
        }
    }
}

/// Writes AUTH_NONE: a flavor and an empty body.
pub fn encode_none(writer: &mut Writer<'_>) {
    writer.u32(AUTH_NONE);
    writer.u32(0);
}

/// Why a credential is refused; unknown numbers are kept. RFC 5531 s9
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthStat(pub u32);

impl AuthStat {
    /// Success; not sent in a refusal.
    pub const OK: Self = Self(0);
    /// The credential is broken.
    pub const BADCRED: Self = Self(1);
    /// The client must begin a new session.
    pub const REJECTEDCRED: Self = Self(2);
    /// The verifier is broken.
    pub const BADVERF: Self = Self(3);
    /// The verifier is too old or was used before.
    pub const REJECTEDVERF: Self = Self(4);
    /// The flavor is too weak for this server.
    pub const TOOWEAK: Self = Self(5);
    /// The server's verifier is broken (detected by the client).
    pub const INVALIDRESP: Self = Self(6);
    /// Some other reason.
    pub const FAILED: Self = Self(7);

    /// The name in the RFC; `None` for an unknown number.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "AUTH_OK",
            1 => "AUTH_BADCRED",
            2 => "AUTH_REJECTEDCRED",
            3 => "AUTH_BADVERF",
            4 => "AUTH_REJECTEDVERF",
            5 => "AUTH_TOOWEAK",
            6 => "AUTH_INVALIDRESP",
            7 => "AUTH_FAILED",
            8 => "AUTH_KERB_GENERIC",
            9 => "AUTH_TIMEEXPIRE",
            10 => "AUTH_TKT_FILE",
            11 => "AUTH_DECODE",
            12 => "AUTH_NET_ADDR",
            13 => "RPCSEC_GSS_CREDPROBLEM",
            14 => "RPCSEC_GSS_CTXPROBLEM",
            _ => return None,
        })
    }
}

impl std::fmt::Display for AuthStat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "auth_stat {}", self.0),
        }
    }
}

// The largest AUTH_SYS body fits the bound of every body: five words, a padded name, sixteen
// groups.
const _: () = assert!(5 * 4 + MACHINE_BYTES_MAX + 1 + GIDS_MAX * 4 <= BODY_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opaque(sys: &AuthSys<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        sys.encode_opaque(&mut Writer::new(&mut out));
        out
    }

    fn sys(machine: &[u8], groups: u32) -> AuthSys<'_> {
        AuthSys { stamp: 7, machine, uid: 1000, gid: 100, gids: (0..groups).collect() }
    }

    #[test]
    fn golden_bytes_of_auth_sys() {
        // RFC 5531 appendix A
        let expected = [
            &[0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 7, 0, 0, 0, 1, b'a', 0, 0, 0][..],
            &[0, 0, 3, 0xe8, 0, 0, 0, 100, 0, 0, 0, 1, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(opaque(&sys(b"a", 1)), expected);
    }

    #[test]
    fn names_and_groups_above_their_bounds_are_cut_when_written() {
        let machine = [b'm'; 300];
        let out = opaque(&sys(&machine, 20));
        let mut reader = Reader::new(&out);
        assert_eq!(reader.u32(), Ok(AUTH_SYS));
        let body = reader.opaque(BODY_BYTES_MAX).unwrap();
        reader.finish().unwrap();
        let Ok(Credential::Sys(read)) = Credential::parse(AUTH_SYS, body) else { panic!("AUTH_SYS") };
        assert_eq!((read.machine.len(), read.gids.len()), (255, 16));
    }

    #[test]
    fn seventeen_groups_are_refused_when_read() {
        let mut body = opaque(&sys(b"abcd", 16)).split_off(8);
        body[20 + 3] = 17;
        body.extend([0; 4]);
        let error = Credential::parse(AUTH_SYS, &body).unwrap_err();
        assert_eq!(error, xdr::Error::TooLong { len: 17, max: 16 });
    }

    #[test]
    fn an_unknown_flavor_survives_as_its_number() {
        let parsed = Credential::parse(6, b"gss").unwrap();
        assert_eq!(parsed, Credential::Other { flavor: 6, body: b"gss" });
        assert_eq!(AuthStat(99).to_string(), "auth_stat 99");
    }

    proptest! {
        #[test]
        fn auth_sys_reads_back(
            stamp in any::<u32>(), machine in proptest::collection::vec(any::<u8>(), 0..=255),
            uid in any::<u32>(), gid in any::<u32>(), gids in proptest::collection::vec(any::<u32>(), 0..=16),
        ) {
            let sys = AuthSys { stamp, machine: &machine, uid, gid, gids: gids.into() };
            let out = opaque(&sys);
            let body = Reader::new(&out[4..]).opaque(BODY_BYTES_MAX).unwrap();
            prop_assert_eq!(Credential::parse(AUTH_SYS, body).unwrap(), Credential::Sys(sys));
        }
    }
}
