//! The credentials of a loop's calls.

use std::sync::Arc;

use rpc::auth::AuthSys;
use xdr::Writer;

use crate::call::Caller;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Credentials {
    /// Flavour, length and body of the credential of every call that names no caller.
    own: Vec<u8>,
    /// The identity by which the server knows this loop, for all callers.
    identity: u64,
    /// The credential of the last caller that was named; reused.
    named: Vec<u8>,
}

impl Credentials {
    pub(super) const fn new(own: Vec<u8>, identity: u64) -> Self {
        Self { own, identity, named: Vec::new() }
    }

    /// The mount's own credential.
    pub(super) fn own(&self) -> &[u8] {
        &self.own
    }

    /// The credential for a call.
    pub(super) fn of(&mut self, caller: Option<&Arc<Caller>>) -> &[u8] {
        let Some(caller) = caller else { return &self.own };
        self.named.clear();
        encode_credential(&mut self.named, self.identity, caller);
        &self.named
    }
}

/// Encodes a credential with the mark by which Trunkline's server recognizes its own clients:
/// flavour, length and body.
pub(crate) fn encode_credential(into: &mut Vec<u8>, identity: u64, caller: &Caller) {
    let machine = drc::machine_name(identity);
    let sys = AuthSys {
        stamp: identity as u32,
        machine: &machine,
        uid: caller.uid,
        gid: caller.gid,
        gids: caller.gids.iter().copied().take(rpc::auth::GIDS_MAX as usize).collect(),
    };
    sys.encode_opaque(&mut Writer::new(into));
}
