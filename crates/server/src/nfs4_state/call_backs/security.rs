//! What the state keeps of how to call a client back: the minor version of its session, and the
//! first credential of those that the client allows which this server can send. RFC 8881 s18.33,
//! s18.36.3

use nfs4::Array;
use nfs4::op::create_session::CallbackSecurity;
use rpc::auth::{AuthSys, encode_none};
use smallvec::SmallVec;
use xdr::Writer;

/// Bytes that the state keeps.
const BYTES_MAX: usize = 64;
/// Minor version, flavor, stamp, user, group, and the length of the machine's name.
const FIXED_BYTES: usize = 1 + 1 + 3 * 4 + 1;
/// What is left for the name, which is only shown in traces of the network.
const MACHINE_BYTES_MAX: usize = BYTES_MAX - FIXED_BYTES;

const NONE: u8 = 0;
const SYS: u8 = 1;
const UNUSABLE: u8 = 2;

/// What the state keeps. Further groups are left out: a call-back concerns no file of the client.
/// If the client allows none that this server can send, it is not called back.
pub(crate) fn keep(minor: u32, allowed: Array<'_, CallbackSecurity<'_>>) -> SmallVec<[u8; BYTES_MAX]> {
    let mut bytes = SmallVec::new();
    bytes.push(u8::try_from(minor).unwrap_or(u8::MAX));
    if allowed.is_empty() {
        // Nothing is asked for.
        bytes.push(NONE);
        return bytes;
    }
    let usable = allowed.iter().find(|security| !matches!(security, CallbackSecurity::Gss { .. }));
    match usable {
        Some(CallbackSecurity::None) => bytes.push(NONE),
        Some(CallbackSecurity::Sys { stamp, machine, uid, gid, gids: _ }) => {
            bytes.push(SYS);
            for number in [stamp, uid, gid] {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            let machine = machine.as_slice();
            let machine = machine.get(..MACHINE_BYTES_MAX).unwrap_or(machine);
            bytes.push(machine.len() as u8);
            bytes.extend_from_slice(machine);
        }
        Some(CallbackSecurity::Gss { .. }) | None => bytes.push(UNUSABLE),
    }
    bytes
}

/// Whether call-backs can be sent by what was kept.
pub(crate) fn is_usable(kept: &[u8]) -> bool {
    credential(kept).is_some()
}

/// The minor version, and the credential as it is sent: flavor, length and body. `None` if the
/// client cannot be called back.
pub(super) fn credential(kept: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (minor, rest) = kept.split_first()?;
    let (flavor, rest) = rest.split_first()?;
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    match (*flavor, rest) {
        (NONE, []) => encode_none(&mut writer),
        (SYS, rest) => {
            let (numbers, rest) = rest.split_first_chunk::<12>()?;
            let (len, machine) = rest.split_first()?;
            if usize::from(*len) != machine.len() {
                return None;
            }
            let number =
                |at: usize| numbers[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
            let (stamp, uid, gid) = (number(0), number(4), number(8));
            AuthSys { stamp, machine, uid, gid, gids: SmallVec::new() }.encode_opaque(&mut writer);
        }
        _ => return None,
    }
    Some((u32::from(*minor), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs4::Opaque;
    use nfs4::op::create_session::GssService;
    use rpc::auth::Credential;
    use xdr::Reader;

    const GSS: CallbackSecurity<'static> =
        CallbackSecurity::Gss { service: GssService::None, from_server: b"", from_client: b"" };

    fn sys(machine: &[u8]) -> CallbackSecurity<'_> {
        let machine = Opaque::new(machine).expect("not too long");
        CallbackSecurity::Sys { stamp: 7, machine, uid: 1000, gid: 100, gids: Array::from(&[5][..]) }
    }

    fn sent(allowed: &[CallbackSecurity<'_>]) -> Option<(u32, Vec<u8>)> {
        let kept = keep(2, Array::from(allowed));
        assert!(kept.len() <= BYTES_MAX);
        assert_eq!(is_usable(&kept), credential(&kept).is_some());
        credential(&kept)
    }

    fn parsed(bytes: &[u8]) -> Credential<'_> {
        let mut reader = Reader::new(bytes);
        let (flavor, body) = (reader.u32().expect("a flavor"), reader.opaque(400).expect("a body"));
        reader.finish().expect("no more");
        Credential::parse(flavor, body).expect("sound")
    }

    #[test]
    fn the_first_credential_that_can_be_sent_is_sent() {
        for allowed in [&[][..], &[CallbackSecurity::None], &[GSS, CallbackSecurity::None, sys(b"host")]] {
            let (minor, bytes) = sent(allowed).expect("usable");
            assert_eq!((minor, parsed(&bytes)), (2, Credential::None));
        }
        for machine in [&b"host"[..], b"", &[b'm'; 49], &[b'm'; 255]] {
            let (_, bytes) = sent(&[GSS, sys(machine)]).expect("usable");
            let Credential::Sys(of) = parsed(&bytes) else { panic!("another flavor") };
            assert_eq!((of.stamp, of.uid, of.gid, of.gids.len()), (7, 1000, 100, 0));
            assert_eq!(of.machine, &machine[..machine.len().min(MACHINE_BYTES_MAX)]);
        }
        assert_eq!(sent(&[GSS]), None);
    }

    #[test]
    fn what_was_never_kept_is_no_credential() {
        let kept = keep(1, Array::from(&[sys(b"host")][..]));
        for cut in 0..kept.len() {
            assert_eq!(credential(&kept[..cut]), None, "{cut} bytes");
        }
        assert_eq!(credential(&[1, 9]), None);
        assert_eq!(credential(&[1, NONE, 0]), None);
    }
}
