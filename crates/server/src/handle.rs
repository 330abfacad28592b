//! File handles: what they hold, and how none can be forged.
//!
//! 32 bytes: a version byte, the key's name (3), the export's fsid (4), fileid (8), generation (8), and a code
//! over all of these (8): SipHash-2-4 under a key of the export. A handle of another export fails its code, a
//! handle of an earlier start of a memory store bears another key's name. The client sees an opaque value.
//! RFC 1813 s2.6 (nfs_fh3), s2.6 (NFS3ERR_BADHANDLE, NFS3ERR_STALE)

use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use store::ObjectId;

/// Bytes of a handle; RFC 1813 s2.4 (NFS3_FHSIZE) allows 64.
pub const HANDLE_BYTES: usize = 32;

const VERSION: u8 = 1;
const CODE_AT: usize = 24;

/// Why a handle is not one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandleError {
    /// It never was: wrong length, version or code. Answered by NFS3ERR_BADHANDLE.
    Bad,
    /// It may have been once: its export is gone, or its key is of an earlier start. NFS3ERR_STALE.
    Stale,
}

/// The secret of one export, and the name under which its handles refer to it.
#[derive(Clone)]
pub struct HandleKey {
    hasher: SipHasher24,
    name: [u8; 3],
    fsid: u32,
}

impl HandleKey {
    /// The key of the export `fsid`. Different secrets have different names, but for one case in 16 million.
    #[must_use]
    pub fn new(secret: &[u8; 16], fsid: u32) -> Self {
        let hasher = SipHasher24::new_with_key(secret);
        let mut naming = hasher;
        // No handle is this short, so that the name gives away nothing about any code.
        naming.write(b"name");
        let [a, b, c, ..] = naming.finish().to_le_bytes();
        Self { hasher, name: [a, b, c], fsid }
    }

    /// A key that nobody knows, for stores whose handles need not survive a restart.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn random(fsid: u32) -> Result<Self, getrandom::Error> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)?;
        Ok(Self::new(&secret, fsid))
    }

    /// The export that its handles belong to.
    #[must_use]
    pub const fn fsid(&self) -> u32 {
        self.fsid
    }

    fn code(&self, body: &[u8]) -> [u8; 8] {
        let mut hasher = self.hasher;
        hasher.write(body);
        hasher.finish().to_le_bytes()
    }

    /// The handle of an object.
    #[must_use]
    pub fn seal(&self, object: ObjectId) -> [u8; HANDLE_BYTES] {
        let mut handle = [0; HANDLE_BYTES];
        let [v, n1, n2, n3] = [VERSION, self.name[0], self.name[1], self.name[2]];
        handle[..4].copy_from_slice(&[v, n1, n2, n3]);
        handle[4..8].copy_from_slice(&self.fsid.to_be_bytes());
        handle[8..16].copy_from_slice(&object.fileid.to_be_bytes());
        handle[16..CODE_AT].copy_from_slice(&object.generation.to_be_bytes());
        let code = self.code(&handle[..CODE_AT]);
        handle[CODE_AT..].copy_from_slice(&code);
        handle
    }

    /// The object of a handle that [`fsid_of`] said is this export's.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn open(&self, handle: &[u8]) -> Result<ObjectId, HandleError> {
        let handle: &[u8; HANDLE_BYTES] = handle.try_into().map_err(|_| HandleError::Bad)?;
        let (body, code) = handle.split_at(CODE_AT);
        let mut reader = xdr::Reader::new(body);
        let bad = |_| HandleError::Bad;
        let version_and_name = reader.opaque_fixed::<4>().map_err(bad)?;
        let fsid = reader.u32().map_err(bad)?;
        let fileid = reader.u64().map_err(bad)?;
        let generation = reader.u64().map_err(bad)?;
        let [version, name @ ..] = version_and_name;
        if version != VERSION || fsid != self.fsid {
            return Err(HandleError::Bad);
        }
        if name != self.name {
            return Err(HandleError::Stale);
        }
        if self.code(body) != code {
            return Err(HandleError::Bad);
        }
        Ok(ObjectId { fileid, generation })
    }
}

/// Which export a handle says it is of; nothing is proved by that yet.
///
/// # Errors
/// [`HandleError::Bad`] when the length or version is not ours.
pub fn fsid_of(handle: &[u8]) -> Result<u32, HandleError> {
    let handle: &[u8; HANDLE_BYTES] = handle.try_into().map_err(|_| HandleError::Bad)?;
    let [VERSION, _, _, _, a, b, c, d, ..] = *handle else { return Err(HandleError::Bad) };
    Ok(u32::from_be_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OBJECT: ObjectId = ObjectId { fileid: 7, generation: 9 };

    #[test]
    fn a_handle_opens_under_its_key_only() {
        let key = HandleKey::new(&[1; 16], 5);
        let handle = key.seal(OBJECT);
        assert_eq!(fsid_of(&handle), Ok(5));
        assert_eq!(key.open(&handle), Ok(OBJECT));
        // RFC 1813 s2.6: no longer valid, and never valid, are told apart.
        assert_eq!(HandleKey::new(&[2; 16], 5).open(&handle), Err(HandleError::Stale), "an earlier start");
        assert_eq!(HandleKey::new(&[1; 16], 6).open(&handle), Err(HandleError::Bad), "another export");
        assert_eq!(key.open(&handle[..31]), Err(HandleError::Bad), "truncated");
        assert_eq!(fsid_of(&[]), Err(HandleError::Bad));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let key = HandleKey::new(&[1; 16], 5);
        for bit in 0..HANDLE_BYTES * 8 {
            let mut handle = key.seal(OBJECT);
            handle[bit / 8] ^= 1 << (bit % 8);
            assert!(key.open(&handle).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_handle_moved_to_another_export_is_refused() {
        let (one, other) = (HandleKey::random(1).unwrap(), HandleKey::random(2).unwrap());
        let mut handle = one.seal(OBJECT);
        handle[4..8].copy_from_slice(&2_u32.to_be_bytes());
        assert!(other.open(&handle).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_open(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(HandleKey::new(&[3; 16], 1).open(&bytes).is_err());
        }
    }
}
