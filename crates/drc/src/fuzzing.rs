//! The body that a property test and a fuzz target share: it takes arbitrary bytes and asserts what
//! must hold of them.

use crate::{client_id, client_id_of_credential};
use rpc::auth::Credential;
use rpc::call;
use xdr::Reader;

/// Bytes as a call: its credential names the same client before and after it is parsed.
pub fn call(bytes: &[u8]) {
    let Ok(header) = call::decode(&mut Reader::new(bytes)) else { return };
    credential(header.credential_flavor, header.credential_body);
}

/// The same for the credential alone.
pub fn credential(flavor: u32, body: &[u8]) {
    let marked = client_id_of_credential(flavor, body);
    if let Ok(Credential::Sys(sys)) = Credential::parse(flavor, body) {
        assert_eq!(client_id(&sys), marked, "parsed and unparsed agree on whose it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_words_as_a_credential(flavor in 0_u32..4, words in proptest::collection::vec(0_u32..40, 0..30)) {
            let body: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            credential(flavor, &body);
        }

        #[test]
        fn a_machine_name_like_ours_as_a_credential(stamp in any::<u32>(), id in any::<u64>(), matches in any::<bool>()) {
            let stamp = if matches { id as u32 } else { stamp };
            let sys = rpc::auth::AuthSys { stamp, machine: &crate::machine_name(id), uid: 0, gid: 0, gids: Default::default() };
            let mut written = Vec::new();
            sys.encode_opaque(&mut xdr::Writer::new(&mut written));
            prop_assert_eq!(client_id(&sys).is_some(), stamp == id as u32);
            credential(rpc::auth::AUTH_SYS, &written[8..]);
        }
    }
}
