//! The exports of a running group: their stores, their keys, and the clients that may use them.

mod warnings;

use crate::config::{Config, EXPORTS_MAX, ExportConfig, StoreConfig};
use crate::error::Error;
use crate::handle::{FileHandle, HandleError, HandleKey, fsid_of};
use crate::shared_reply_cache::{ExportIdentity, GroupError, SharedReplyCache};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{DirOptions, DirStore, MemStore, ObjectId, Store};

/// Only a privileged program can use ports below this one.
const PRIVILEGED_PORTS: u16 = 1024;

/// One export.
#[derive(Clone)]
pub(crate) struct Export {
    pub config: ExportConfig,
    pub store: Arc<dyn Store>,
    /// Whether the store's operations may wait, so that they run in the worker pool.
    pub may_block: bool,
    /// The write verifier at the start.
    pub first_verifier: u64,
    key: HandleKey,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the key, which must stay secret.
        f.debug_tuple("Export").field(&self.config.path).finish()
    }
}

impl Export {
    fn new(config: &ExportConfig, own: Option<Box<dyn Store>>) -> Result<Self, Error> {
        let is_configured = own.is_none();
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
        let export = Self {
            config: config.clone(),
            first_verifier: store.verifier(),
            may_block: store.may_block(),
            store: store.into(),
            key,
        };
        // The configuration says nothing about a store of the caller, and that store may wait for
        // an event after the start.
        if is_configured {
            export.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        Ok(export)
    }

    /// The values on which the processes of a group must agree. Other processes cannot serve a
    /// store without a key of its own.
    fn identity(&self, group: &Path) -> Result<ExportIdentity, GroupError> {
        let path = &self.config.path;
        let Some(secret) = self.store.handle_secret() else {
            return Err(GroupError::Memory { export: path.clone() });
        };
        if let StoreConfig::Dir { path: directory, .. } = &self.config.store
            && let (Some(group_at), Ok(exported)) = (existing_part(group), directory.canonicalize())
            && group_at.starts_with(exported)
        {
            return Err(GroupError::Inside { path: group.to_owned(), export: path.clone() });
        }
        let mut hasher = SipHasher24::new_with_key(&secret);
        hasher.write(path.as_bytes());
        let fingerprint = hasher.finish();
        Ok(ExportIdentity {
            fsid: self.config.fsid,
            fingerprint,
            path: path.clone(),
            verifier: self.store.verifier(),
        })
    }

    /// Takes over the write verifier that was valid when the group's cache began to remember calls.
    fn adopt_first_verifier(&mut self, shared: &SharedReplyCache) {
        self.first_verifier = shared.first_verifier(self.config.fsid).unwrap_or(self.first_verifier);
    }

    /// The same files and handles under different rules.
    fn with_rules(&self, rules: &ExportConfig) -> Self {
        Self { config: rules.clone(), ..self.clone() }
    }

    /// The handle of an object of the export.
    #[inline]
    pub fn handle(&self, object: ObjectId) -> FileHandle {
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

/// Resolves a path as far as it exists.
fn existing_part(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|part| part.canonicalize().ok())
}

/// An export that is added while the server runs, in the group of this process.
fn added(config: &ExportConfig, group: Option<(&Path, &SharedReplyCache)>) -> Result<Export, Error> {
    let mut export = Export::new(config, None)?;
    if let Some((directory, shared)) = group {
        let agreed = export.identity(directory).and_then(|identity| shared.add_export(&identity));
        agreed.map_err(|error| Error::Group { directory: directory.to_owned(), error })?;
        export.adopt_first_verifier(shared);
    }
    Ok(export)
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

    /// Whether the client may use no export, and so learns nothing.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// What a new configuration changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reloaded {
    /// The changes, a sentence each.
    pub changed: Vec<String>,
    /// The settings that stay as they were, and why.
    pub refused: Vec<String>,
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
    /// `own` may return a store for an export; the other stores come from the configuration.
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

    /// Joins the group of processes in `directory`, or creates it, with these exports.
    pub fn join_group(
        &mut self,
        directory: &Path,
        arena_words: Option<usize>,
    ) -> Result<SharedReplyCache, Error> {
        let fault = |error| Error::Group { directory: directory.to_owned(), error };
        let identities =
            self.0.iter().map(|export| export.identity(directory)).collect::<Result<Vec<_>, _>>();
        let shared = SharedReplyCache::join(directory, &identities.map_err(fault)?, arena_words);
        let shared = shared.map_err(fault)?;
        self.0.iter_mut().for_each(|export| export.adopt_first_verifier(&shared));
        Ok(shared)
    }

    /// The exports after a reload of the configuration: exports with new rules, and new exports.
    /// Settings that cannot change while the server runs stay as they are, and are reported.
    pub fn reloaded(&self, config: &Config, shared: Option<&SharedReplyCache>) -> (Self, Reloaded) {
        let (mut exports, mut report) = (Vec::new(), Reloaded::default());
        for old in &self.0 {
            let path = &old.config.path;
            let Some(new) = config.exports.iter().find(|new| new.path == *path) else {
                report.refused.push(format!(
                    "export {path} stays, though it is not in the file any more: its clients have its files open; \
                     close it by allow = [], or restart"
                ));
                exports.push(old.clone());
                continue;
            };
            let mut rules = new.clone();
            if new.store != old.config.store {
                report.refused.push(format!("export {path} keeps its store: another needs a restart"));
                rules.store.clone_from(&old.config.store);
            }
            if new.fsid != old.config.fsid {
                report.refused.push(format!(
                    "export {path} keeps its fsid {}: clients' handles bear it; another needs a restart",
                    old.config.fsid
                ));
                rules.fsid = old.config.fsid;
            }
            if rules != old.config {
                report.changed.push(format!("export {path} has other rules"));
            }
            exports.push(old.with_rules(&rules));
        }
        for new in &config.exports {
            if self.0.iter().any(|old| old.config.path == new.path) {
                continue;
            }
            let refused = match () {
                () if exports.len() >= EXPORTS_MAX => Err(format!("there are {EXPORTS_MAX} already")),
                () if exports.iter().any(|other| other.config.fsid == new.fsid) => {
                    Err(format!("its fsid {} is another's; give it one of its own", new.fsid))
                }
                () => added(new, config.group.as_deref().zip(shared)).map_err(|error| error.to_string()),
            };
            match refused {
                Ok(export) => {
                    report.changed.push(format!("export {} is new", new.path));
                    exports.push(export);
                }
                Err(why) => report.refused.push(format!("export {} is not added: {why}", new.path)),
            }
        }
        (Self(exports), report)
    }

    /// The current configurations.
    pub fn configs(&self) -> Vec<ExportConfig> {
        self.0.iter().map(|export| export.config.clone()).collect()
    }

    /// Where what outlives the process is kept, by the export with the lowest `fsid` that has such
    /// a place: that does not change with the order of exports in a file.
    pub fn state_directory(&self) -> Option<PathBuf> {
        let lasting =
            self.0.iter().filter_map(|export| Some((export.config.fsid, export.store.state_directory()?)));
        lasting.min_by_key(|(fsid, _)| *fsid).map(|(_, directory)| directory.to_owned())
    }

    /// Whether any export's store may block.
    pub fn may_block(&self) -> bool {
        self.0.iter().any(|export| export.may_block)
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &Export)> {
        self.0.iter().enumerate()
    }

    /// The exports that a client may use; computed once for each connection.
    pub fn admitted(&self, peer: SocketAddr) -> Admitted {
        let mut admitted = Admitted::default();
        for (index, export) in self.iter() {
            if export.admits(peer) {
                admitted.insert(index);
            }
        }
        admitted
    }

    /// The path of an object within its export, if the store knows it.
    pub fn path_of(&self, fsid: u32, object: ObjectId) -> Option<String> {
        let (_, export) = self.iter().find(|(_, export)| export.key.fsid() == fsid)?;
        export.store.path_of(object).map(|path| String::from_utf8_lossy(&path).into_owned())
    }

    /// The export and object of a handle. Clients without any export learn nothing: they get the
    /// same error for every handle.
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
