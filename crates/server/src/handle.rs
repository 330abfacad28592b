//! File handles: their content, and how forgery is prevented.
//!
//! At most 64 bytes: a version byte, the key's name (3), the export's fsid (4), fileid (8), the
//! store's name of the object (0 to 39: 8 of a memory store, which makes 32 bytes in all), and a
//! code over all of these (8): SipHash-2-4 under a key of the export. A handle of another export
//! fails its code, a handle of an earlier start of a memory store bears another key's name. The
//! client sees an opaque value. RFC 1813 s2.6 (nfs_fh3), s2.6 (NFS3ERR_BADHANDLE, NFS3ERR_STALE)

use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use store::{NAME_BYTES_MAX, ObjectId};

/// Before the store's name of the object.
const HEAD_BYTES: usize = 16;
const CODE_BYTES: usize = 8;
/// The longest handle.
const HANDLE_BYTES_MAX: usize = HEAD_BYTES + NAME_BYTES_MAX + CODE_BYTES;
const _: () = assert!(HANDLE_BYTES_MAX <= PROTOCOLS_BYTES_MAX);
/// The longest handle that every version of NFS carries. RFC 1813 s2.4 (NFS3_FHSIZE)
const PROTOCOLS_BYTES_MAX: usize = 64;

/// A handle of this server.
pub type FileHandle = fs::Handle<PROTOCOLS_BYTES_MAX>;

const VERSION: u8 = 1;

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
    /// The key of the export `fsid`. Different secrets have different names, but for one case in 16
    /// million.
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
    #[inline]
    pub fn seal(&self, object: ObjectId) -> FileHandle {
        let mut handle = [0; HANDLE_BYTES_MAX];
        let [n1, n2, n3] = self.name;
        handle[..4].copy_from_slice(&[VERSION, n1, n2, n3]);
        handle[4..8].copy_from_slice(&self.fsid.to_be_bytes());
        handle[8..HEAD_BYTES].copy_from_slice(&object.fileid.to_be_bytes());
        let name = object.name();
        let code_at = HEAD_BYTES + name.len();
        handle[HEAD_BYTES..code_at].copy_from_slice(name);
        let code = self.code(&handle[..code_at]);
        handle[code_at..code_at + CODE_BYTES].copy_from_slice(&code);
        let sealed = FileHandle::new(&handle[..code_at + CODE_BYTES]);
        sealed.expect("the longest handle is within the 64 bytes of RFC 1813 s2.4")
    }

    /// The object of a handle that [`fsid_of`] said is this export's.
    ///
    /// # Errors
    /// [`HandleError`].
    #[inline]
    pub fn open(&self, handle: &[u8]) -> Result<ObjectId, HandleError> {
        let (body, code) = handle.split_last_chunk::<CODE_BYTES>().ok_or(HandleError::Bad)?;
        let (head, object) = body.split_first_chunk::<HEAD_BYTES>().ok_or(HandleError::Bad)?;
        let [version, n1, n2, n3, f1, f2, f3, f4, fileid @ ..] = *head;
        if version != VERSION || u32::from_be_bytes([f1, f2, f3, f4]) != self.fsid {
            return Err(HandleError::Bad);
        }
        if [n1, n2, n3] != self.name {
            return Err(HandleError::Stale);
        }
        if self.code(body) != *code {
            return Err(HandleError::Bad);
        }
        ObjectId::named(u64::from_be_bytes(fileid), object).ok_or(HandleError::Bad)
    }
}

/// The export that a handle claims to belong to; this proves nothing yet.
///
/// # Errors
/// [`HandleError::Bad`] when the length or version is not ours.
#[inline]
pub fn fsid_of(handle: &[u8]) -> Result<u32, HandleError> {
    let ours = HEAD_BYTES + CODE_BYTES..=HANDLE_BYTES_MAX;
    let [VERSION, _, _, _, a, b, c, d, ..] = *handle else { return Err(HandleError::Bad) };
    if ours.contains(&handle.len()) { Ok(u32::from_be_bytes([a, b, c, d])) } else { Err(HandleError::Bad) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OBJECT: ObjectId = ObjectId::new(7, 9);

    fn bytes(handle: FileHandle) -> Vec<u8> {
        handle.as_slice().to_vec()
    }

    #[test]
    fn a_handle_opens_under_its_key_only() {
        let key = HandleKey::new(&[1; 16], 5);
        let handle = bytes(key.seal(OBJECT));
        assert_eq!(fsid_of(&handle), Ok(5));
        assert_eq!(key.open(&handle), Ok(OBJECT));
        // RFC 1813 s2.6: no longer valid, and never valid, are told apart.
        assert_eq!(HandleKey::new(&[2; 16], 5).open(&handle), Err(HandleError::Stale), "an earlier start");
        assert_eq!(HandleKey::new(&[1; 16], 6).open(&handle), Err(HandleError::Bad), "another export");
        assert_eq!(key.open(&handle[..31]), Err(HandleError::Bad), "truncated");
        assert_eq!(fsid_of(&[]), Err(HandleError::Bad));
    }

    #[test]
    fn the_longest_name_fits_and_shorter_handles_are_no_handles() {
        let key = HandleKey::new(&[1; 16], 5);
        let object = ObjectId::named(u64::MAX, &[7; NAME_BYTES_MAX]).unwrap();
        let handle = bytes(key.seal(object));
        assert_eq!((handle.len(), key.open(&handle)), (HANDLE_BYTES_MAX, Ok(object)));
        for len in 0..handle.len() {
            assert_eq!(key.open(&handle[..len]), Err(HandleError::Bad), "{len} bytes");
        }
        assert_eq!(fsid_of(&handle[..HEAD_BYTES + CODE_BYTES - 1]), Err(HandleError::Bad));
        assert_eq!(fsid_of(&[1; HANDLE_BYTES_MAX + 1]), Err(HandleError::Bad));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let key = HandleKey::new(&[1; 16], 5);
        for bit in 0..32 * 8 {
            let mut handle = bytes(key.seal(OBJECT));
            handle[bit / 8] ^= 1 << (bit % 8);
            assert!(key.open(&handle).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_handle_moved_to_another_export_is_refused() {
        let (one, other) = (HandleKey::random(1).unwrap(), HandleKey::random(2).unwrap());
        let mut handle = bytes(one.seal(OBJECT));
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
