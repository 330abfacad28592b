//! The caller's identity: AUTH_SYS decoded once, kept while it stays the same, and squashed as the
//! export says.

use crate::config::ExportConfig;
use rpc::auth::{AuthStat, Credential};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use std::hash::Hasher;
use store::Caller;

/// Supplementary groups, as many as AUTH_SYS carries. RFC 5531 appendix A
type Gids = SmallVec<[u32; 16]>;

/// A user of the calling machine, as that machine states it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// One of our own clients, which the reply cache knows by this number.
    pub client_id: Option<u64>,
    uid: u32,
    gid: u32,
    gids: Gids,
    /// Whether any group is root's, so that squashing must look at them.
    root_among_gids: bool,
    /// AUTH_NONE: nobody in particular.
    nobody: bool,
    principal: u64,
}

/// A number for a principal, which is the same in every process and after a restart.
fn principal_of(flavor: u32, uid: u32, gid: u32) -> u64 {
    let mut hasher = SipHasher13::new();
    for number in [flavor, uid, gid] {
        hasher.write(&number.to_be_bytes());
    }
    hasher.finish()
}

/// The caller as an export sees it. [`caller`](Self::caller) borrows it.
#[derive(Debug)]
pub struct SquashedCaller<'a> {
    uid: u32,
    gid: u32,
    gids: &'a [u32],
    squashed_gids: Option<Gids>,
}

impl SquashedCaller<'_> {
    /// What the store wants to know.
    #[must_use]
    pub fn caller(&self) -> Caller<'_> {
        Caller { uid: self.uid, gid: self.gid, gids: self.squashed_gids.as_deref().unwrap_or(self.gids) }
    }
}

impl Identity {
    fn parse(flavor: u32, body: &[u8]) -> Result<Self, AuthStat> {
        match Credential::parse(flavor, body) {
            Ok(Credential::None) => {
                Ok(Self { nobody: true, principal: principal_of(flavor, 0, 0), ..Self::default() })
            }
            Ok(Credential::Sys(sys)) => Ok(Self {
                client_id: drc::client_id(&sys),
                uid: sys.uid,
                gid: sys.gid,
                root_among_gids: sys.gids.contains(&0),
                gids: sys.gids,
                nobody: false,
                principal: principal_of(flavor, sys.uid, sys.gid),
            }),
            // RFC 5531 s9: a flavor that is not known here is rejected, not guessed at.
            Ok(Credential::Other { .. }) => Err(AuthStat::REJECTEDCRED),
            Err(_) => Err(AuthStat::BADCRED),
        }
    }

    /// A number for who calls, which is the same from every machine: by it the clients of NFS
    /// version 4 are kept apart. RFC 8881 s2.4
    #[must_use]
    pub const fn principal(&self) -> u64 {
        self.principal
    }

    /// The caller as `export` sees it: squashed or as it is. `None`: it named nobody, and the
    /// export wants to know (answered by AUTH_TOOWEAK).
    #[must_use]
    pub fn squashed_for<'a>(&'a self, export: &ExportConfig) -> Option<SquashedCaller<'a>> {
        if export.all_squash {
            return Some(SquashedCaller {
                uid: export.anonuid,
                gid: export.anongid,
                gids: &[],
                squashed_gids: None,
            });
        }
        if self.nobody {
            return None;
        }
        if !export.root_squash {
            return Some(SquashedCaller {
                uid: self.uid,
                gid: self.gid,
                gids: &self.gids,
                squashed_gids: None,
            });
        }
        let group = |gid: u32| if gid == 0 { export.anongid } else { gid };
        let squashed_gids = self.root_among_gids.then(|| self.gids.iter().map(|gid| group(*gid)).collect());
        let uid = if self.uid == 0 { export.anonuid } else { self.uid };
        Some(SquashedCaller { uid, gid: group(self.gid), gids: &self.gids, squashed_gids })
    }
}

/// The identity behind the last credential of a connection: most calls bear the same bytes as the
/// one before, and comparing is cheaper than reading.
#[derive(Debug, Default)]
pub struct IdentityCache {
    flavor: u32,
    body: SmallVec<[u8; 64]>,
    identity: Option<Identity>,
}

impl IdentityCache {
    /// Makes the identity of a credential the [`current`](Self::current) one.
    ///
    /// # Errors
    /// Why the credential is refused. RFC 5531 s9
    #[inline]
    pub fn identify(&mut self, flavor: u32, body: &[u8]) -> Result<(), AuthStat> {
        let known = self.identity.is_some() && self.flavor == flavor && self.body.as_slice() == body;
        if known { Ok(()) } else { self.replace(flavor, body) }
    }

    /// The identity that was found last; none after a refusal.
    #[inline]
    #[must_use]
    pub const fn current(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    #[cold]
    fn replace(&mut self, flavor: u32, body: &[u8]) -> Result<(), AuthStat> {
        self.identity = None;
        self.identity = Some(Identity::parse(flavor, body)?);
        self.flavor = flavor;
        self.body.clear();
        self.body.extend_from_slice(body);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use rpc::auth::{AUTH_NONE, AUTH_SYS, AuthSys};

    fn export() -> ExportConfig {
        let mut config = Config::quick(1, "/export", &["127.0.0.1:0".parse().unwrap()]);
        let mut export = config.exports.remove(0);
        (export.anonuid, export.anongid) = (65_534, 65_533);
        export
    }

    fn body(uid: u32, gid: u32, gids: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        let sys = AuthSys { stamp: 77, machine: b"host", uid, gid, gids: gids.into() };
        sys.encode_opaque(&mut xdr::Writer::new(&mut out));
        out.split_off(8)
    }

    fn identify(cache: &mut IdentityCache, flavor: u32, body: &[u8]) -> Result<Identity, AuthStat> {
        cache.identify(flavor, body)?;
        Ok(cache.current().unwrap().clone())
    }

    fn seen(export: &ExportConfig, uid: u32, gid: u32, gids: &[u32]) -> (u32, u32, Vec<u32>) {
        let mut cache = IdentityCache::default();
        let body = body(uid, gid, gids);
        let identity = identify(&mut cache, AUTH_SYS, &body).unwrap();
        let squashed = identity.squashed_for(export).unwrap();
        let caller = squashed.caller();
        (caller.uid, caller.gid, caller.gids.to_vec())
    }

    #[test]
    fn root_becomes_anonymous_and_others_stay() {
        let mut export = export();
        assert_eq!(seen(&export, 0, 0, &[0, 4]), (65_534, 65_533, vec![65_533, 4]));
        assert_eq!(seen(&export, 1000, 100, &[4]), (1000, 100, vec![4]));
        export.root_squash = false;
        assert_eq!(seen(&export, 0, 0, &[0, 4]), (0, 0, vec![0, 4]));
        export.all_squash = true;
        assert_eq!(seen(&export, 1000, 100, &[4]), (65_534, 65_533, vec![]));
    }

    #[test]
    fn nobody_is_somebody_only_where_all_are_squashed() {
        let mut cache = IdentityCache::default();
        let mut export = export();
        let identity = identify(&mut cache, AUTH_NONE, &[]).unwrap();
        assert!(identity.squashed_for(&export).is_none());
        export.all_squash = true;
        assert!(identity.squashed_for(&export).is_some());
    }

    #[test]
    fn principals_differ_by_flavor_user_and_group_and_by_nothing_else() {
        let of =
            |flavor, body: &[u8]| identify(&mut IdentityCache::default(), flavor, body).unwrap().principal();
        let principals = [
            of(AUTH_NONE, &[]),
            of(AUTH_SYS, &body(0, 0, &[])),
            of(AUTH_SYS, &body(u32::MAX, u32::MAX, &[])),
            of(AUTH_SYS, &body(1, 0, &[])),
            of(AUTH_SYS, &body(0, 1, &[])),
        ];
        for (at, one) in principals.iter().enumerate() {
            assert!(!principals[..at].contains(one), "{at}");
        }
        assert_eq!(of(AUTH_SYS, &body(1, 0, &[7])), principals[3], "groups may change");
    }

    #[test]
    fn another_body_is_another_identity_and_a_broken_one_is_none() {
        let mut cache = IdentityCache::default();
        let first = identify(&mut cache, AUTH_SYS, &body(1, 1, &[])).unwrap();
        assert_eq!(first.client_id, None, "another's client");
        assert_ne!(identify(&mut cache, AUTH_SYS, &body(2, 1, &[])).unwrap(), first);
        assert_eq!(identify(&mut cache, AUTH_SYS, &[1, 2, 3]), Err(AuthStat::BADCRED));
        assert_eq!(identify(&mut cache, 6, &[]), Err(AuthStat::REJECTEDCRED));
        assert_eq!(identify(&mut cache, AUTH_SYS, &body(1, 1, &[])).unwrap(), first);
    }
}
