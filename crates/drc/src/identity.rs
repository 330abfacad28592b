//! How a server recognizes Trunkline's own clients.
//!
//! Each loop of a client has its own identity, 64 random bits, because it has its own xid space.
//! The loop sends its identity in AUTH_SYS: in hexadecimal in the machine name, and the lower half
//! again as the stamp. Older clients number the loops of a mount by the last 8 bits and share the
//! other 56; identities are compared whole. A foreign client whose machine happens to have such a
//! name fails the check of the stamp. The identity is no proof: AUTH_SYS proves nothing, so
//! a server looks for it only after the export has admitted the caller's address.

use xdr::Reader;

use rpc::auth::{AUTH_SYS, AuthSys, MACHINE_BYTES_MAX};

const PREFIX: &[u8; 10] = b"trunkline-";
const DIGITS: usize = 16;

/// Bytes of the machine name by which Trunkline's clients are recognized.
pub const MACHINE_NAME_BYTES: usize = PREFIX.len() + DIGITS;

/// The machine name of the client `id`; its stamp is the low 32 bits of `id`.
#[must_use]
pub fn machine_name(id: u64) -> [u8; MACHINE_NAME_BYTES] {
    let mut name = [0; MACHINE_NAME_BYTES];
    let (prefix, digits) = name.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX);
    for (place, digit) in digits.iter_mut().enumerate() {
        let nibble = (id >> (4 * (DIGITS - 1 - place)) & 0xf) as u8;
        *digit = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    }
    name
}

/// Whether a name is one that [`machine_name`] makes.
#[must_use]
pub fn is_machine_name(name: &[u8]) -> bool {
    let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    name.len() == MACHINE_NAME_BYTES
        && name.strip_prefix(PREFIX).is_some_and(|digits| digits.iter().all(is_digit))
}

/// The id of the Trunkline client that wrote this credential; `None` for a foreign client's.
#[must_use]
pub fn client_id(sys: &AuthSys<'_>) -> Option<u64> {
    id_of(sys.stamp, sys.machine)
}

/// Like [`client_id`], but from an unparsed credential, for use on each call: reads the stamp and
/// the name, not the groups.
#[must_use]
pub fn client_id_of_credential(flavor: u32, body: &[u8]) -> Option<u64> {
    if flavor != AUTH_SYS {
        return None;
    }
    let mut reader = Reader::new(body);
    let stamp = reader.u32().ok()?;
    id_of(stamp, reader.opaque(MACHINE_BYTES_MAX).ok()?)
}

fn id_of(stamp: u32, machine: &[u8]) -> Option<u64> {
    let digits: &[u8; DIGITS] = machine.strip_prefix(PREFIX)?.try_into().ok()?;
    let id = digits.iter().try_fold(0, |id: u64, digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(id << 4 | u64::from(nibble))
    })?;
    (id & u64::from(u32::MAX) == u64::from(stamp)).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xdr::Writer;

    fn sys(stamp: u32, machine: &[u8]) -> AuthSys<'_> {
        AuthSys { stamp, machine, uid: 0, gid: 0, gids: Default::default() }
    }

    #[test]
    fn a_name_that_only_looks_like_ours_is_not() {
        let name = machine_name(0x0123_4567_89ab_cdef);
        assert_eq!(&name, b"trunkline-0123456789abcdef");
        assert!(is_machine_name(&name));
        for other in [&b"trunkline-0123456789abcdeF"[..], b"trunkline-0123", b"", &[&name[..], b"0"].concat()]
        {
            assert!(!is_machine_name(other), "{other:?}");
        }
        assert_eq!(client_id(&sys(0x89ab_cdef, &name)), Some(0x0123_4567_89ab_cdef));
        assert_eq!(client_id(&sys(0x89ab_cdee, &name)), None, "another stamp");
        assert_eq!(client_id(&sys(0x89ab_cdef, b"trunkline-0123456789ABCDEF")), None, "capitals");
        assert_eq!(client_id(&sys(0x89ab_cdef, b"trunkline-0123456789abcdef0")), None, "longer");
        assert_eq!(client_id(&sys(0, b"trunkline-")), None, "shorter");
        assert_eq!(client_id(&sys(0, b"")), None);
    }

    proptest! {
        #[test]
        fn the_mark_is_read_from_the_parsed_and_from_the_raw_credential(id in any::<u64>()) {
            let name = machine_name(id);
            let sys = sys(id as u32, &name);
            let mut opaque = Vec::new();
            sys.encode_opaque(&mut Writer::new(&mut opaque));
            prop_assert_eq!(client_id(&sys), Some(id));
            prop_assert_eq!(client_id_of_credential(AUTH_SYS, &opaque[8..]), Some(id));
            prop_assert_eq!(client_id_of_credential(0, &opaque[8..]), None);
        }
    }
}
