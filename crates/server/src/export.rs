//! The exports of a group while it runs: their stores, their keys, and who may use them.

use crate::config::{Config, EXPORTS_MAX, ExportConfig, StoreConfig};
use crate::error::Error;
use crate::handle::{HandleError, HandleKey, fsid_of};
use std::net::SocketAddr;
use store::{DirOptions, DirStore, MemStore, ObjectId, Store};

/// Ports below this one only a privileged program can come from.
const PRIVILEGED_PORTS: u16 = 1024;

/// One export.
pub(crate) struct Export {
    pub config: ExportConfig,
    pub store: Box<dyn Store>,
    /// Whether the store's operations may wait, so that they run off the loops.
    pub may_block: bool,
    /// The write verifier at the start.
    pub first_verifier: u64,
    key: HandleKey,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the key, which is nobody's business.
        f.debug_tuple("Export").field(&self.config.path).finish()
    }
}

impl Export {
    fn new(config: &ExportConfig, own: Option<Box<dyn Store>>) -> Result<Self, Error> {
        let store = match own {
            Some(store) => store,
            None => open_store(config)?,
        };
        let no_random = |error: getrandom::Error| Error::System {
            what: "random bytes for file handles",
            error: std::io::Error::other(error.to_string()),
        };
        let key = match store.handle_secret() {
            Some(secret) => HandleKey::new(&secret, config.fsid),
            None => HandleKey::random(config.fsid).map_err(no_random)?,
        };
        Ok(Self {
            config: config.clone(),
            first_verifier: store.verifier(),
            may_block: store.may_block(),
            store,
            key,
        })
    }

    /// The handle of one of its objects.
    #[inline]
    pub fn handle(&self, object: ObjectId) -> nfs3::FileHandle {
        self.key.seal(object)
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        let from_there = self.config.allow.iter().any(|network| network.contains(peer.ip()));
        from_there && (!self.config.secure || peer.port() < PRIVILEGED_PORTS)
    }
}

/// The store that a configuration names.
fn open_store(config: &ExportConfig) -> Result<Box<dyn Store>, Error> {
    match &config.store {
        StoreConfig::Mem { bytes, owner_uid, owner_gid } => {
            Ok(Box::new(MemStore::new(*bytes, *owner_uid, *owner_gid)))
        }
        StoreConfig::Dir { path, state, server_groups } => {
            let options =
                DirOptions { path: path.clone(), state: state.clone(), server_groups: *server_groups };
            let opened = DirStore::open(&options);
            let store = opened.map_err(|error| Error::Store { export: config.path.clone(), error })?;
            for note in store.notes() {
                tracing::warn!("export {}: {note}", config.path);
            }
            Ok(Box::new(store))
        }
    }
}

/// The exports that one client address may use, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Admitted([u64; EXPORTS_MAX / 64]);

impl Admitted {
    fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    #[inline]
    pub fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Whether it is a stranger, who learns nothing.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// All exports of a group.
#[derive(Debug)]
pub(crate) struct Exports(Vec<Export>);

/// Why a handle opens nothing for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenError {
    Handle(HandleError),
    /// The client's address may not use that export.
    NotAdmitted,
}

impl Exports {
    /// `own` may give a store for an export; the others' come from the configuration.
    pub fn new(
        config: &Config,
        mut own: impl FnMut(&ExportConfig) -> Option<Box<dyn Store>>,
    ) -> Result<Self, Error> {
        config
            .exports
            .iter()
            .map(|export| Export::new(export, own(export)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether any export's store may block.
    pub fn may_block(&self) -> bool {
        self.0.iter().any(|export| export.may_block)
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &Export)> {
        self.0.iter().enumerate()
    }

    /// Which exports a client may use; found once for each connection.
    pub fn admitted(&self, peer: SocketAddr) -> Admitted {
        let mut admitted = Admitted::default();
        for (index, export) in self.iter() {
            if export.admits(peer) {
                admitted.insert(index);
            }
        }
        admitted
    }

    /// The export and object of a handle. Strangers learn nothing: they are told the same of every handle.
    #[inline]
    pub fn open(&self, handle: &[u8], admitted: &Admitted) -> Result<(&Export, ObjectId), OpenError> {
        if admitted.is_empty() {
            return Err(OpenError::NotAdmitted);
        }
        let fsid = fsid_of(handle).map_err(OpenError::Handle)?;
        let found = self.iter().find(|(_, export)| export.key.fsid() == fsid);
        let (index, export) = found.ok_or(OpenError::Handle(HandleError::Stale))?;
        let object = export.key.open(handle).map_err(OpenError::Handle)?;
        if admitted.contains(index) { Ok((export, object)) } else { Err(OpenError::NotAdmitted) }
    }
}
