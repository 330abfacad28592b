//! Who takes part, with which secrets, and what each side accepts.

use crate::group::Group;
use crate::hash::Hash;
use crate::secret::Secret;
use nvme::Nqn;
use zeroize::Zeroizing;

/// The names of both sides and their secrets.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The name of the host.
    pub host: Nqn,
    /// The name of the subsystem.
    pub subsystem: Nqn,
    /// The secret by which the host proves who it is.
    pub host_secret: Secret,
    /// The secret by which the controller does. A host that has one demands the proof.
    pub controller_secret: Option<Secret>,
}

impl Credentials {
    /// The key of the host. NVMe Base, "Host and Controller secret transformation"
    pub(crate) fn host_key(&self) -> Zeroizing<Vec<u8>> {
        self.host_secret.key(&self.host)
    }

    /// The key of the controller.
    pub(crate) fn controller_key(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.controller_secret.as_ref().map(|secret| secret.key(&self.subsystem))
    }
}

/// The algorithms that a side accepts, the preferred first. A host offers them; a controller takes
/// the first of its own that the host offers. The offer itself is not authenticated, so that
/// somebody between both could take the strong ones out of it: who fears that accepts strong ones
/// only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithms {
    hashes: Vec<Hash>,
    groups: Vec<Group>,
}

/// A list of algorithms without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at least one hash function and one group (possibly \"null\") must be accepted")]
pub struct NoAlgorithm;

impl Algorithms {
    /// These algorithms; repeated ones count once.
    ///
    /// # Errors
    /// [`NoAlgorithm`] if a list is empty.
    pub fn new(hashes: &[Hash], groups: &[Group]) -> Result<Self, NoAlgorithm> {
        if hashes.is_empty() || groups.is_empty() {
            return Err(NoAlgorithm);
        }
        Ok(Self { hashes: without_repetition(hashes), groups: without_repetition(groups) })
    }

    /// The hash functions.
    #[must_use]
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// The groups.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }
}

/// All, the strongest first.
impl Default for Algorithms {
    fn default() -> Self {
        Self { hashes: Hash::ALL.to_vec(), groups: Group::ALL.to_vec() }
    }
}

fn without_repetition<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    let mut kept = Vec::new();
    for one in list {
        if !kept.contains(one) {
            kept.push(*one);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_keep_their_order_and_are_never_empty() {
        let algorithms = Algorithms::new(
            &[Hash::Sha384, Hash::Sha256, Hash::Sha384],
            &[Group::Null, Group::Null, Group::Ffdhe3072],
        );
        let algorithms = algorithms.expect("not empty");
        assert_eq!(algorithms.hashes(), [Hash::Sha384, Hash::Sha256]);
        assert_eq!(algorithms.groups(), [Group::Null, Group::Ffdhe3072]);
        assert_eq!(Algorithms::new(&[], &[Group::Null]), Err(NoAlgorithm));
        assert_eq!(Algorithms::new(&[Hash::Sha256], &[]), Err(NoAlgorithm));
    }
}
