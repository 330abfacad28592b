//! What memory of stores and of callers is registered with, and the protection domain that all
//! connections of a server on one device share, so that memory of a store is registered once for
//! all of them.
//!
//! One domain is enough because no registration in it gives a peer any right: a server reads and
//! writes the memory of its clients, never the other way round. A client's connection has a domain
//! of its own, because its registrations can be reached by its server. Its callers' memory is
//! registered for windows only, and no server reaches it without one (`endpoint/lending.rs`).
//!
//! The domain lives as long as any connection of the device, and ends its registrations in the
//! memory of all stores with the last. A store's memory may use half of what this process may lock,
//! and callers' memory a quarter: connections need the rest for their messages.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use memory::{Device, Registrar};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use verbs::{Domain, Error, EventChannel, Identifier, Registration};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct SharedDomain {
    /// Dropped first: it ends its registrations.
    pub registrar: Registrar,
    pub domain: Arc<Domain>,
}

/// The domains in use, by their devices.
static IN_USE: Mutex<Vec<(usize, Weak<SharedDomain>)>> = Mutex::new(Vec::new());

impl SharedDomain {
    /// The domain of the device that a connection is bound to, at this local address.
    pub fn on(connection: &Identifier, local: SocketAddr) -> Result<Arc<Self>, Error> {
        let device = connection.device()?;
        // The list is consistent between any two operations.
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        // A domain keeps its device open, so that the number of a domain in use is no other's.
        in_use.retain(|(_, shared)| shared.strong_count() > 0);
        let found = in_use.iter().find(|(of, _)| *of == device).and_then(|(_, shared)| shared.upgrade());
        if let Some(shared) = found {
            return Ok(shared);
        }
        let domain = Domain::on(own_identifier(device, local).as_ref().unwrap_or(connection))?;
        let memory = OwnersMemory {
            domain: Arc::clone(&domain),
            whose: "stores",
            bytes_max: lockable_bytes().map_or(u64::MAX, |bytes| bytes / 2),
            bytes: Arc::default(),
            refused: AtomicBool::new(false),
            bindable: None,
        };
        let shared = Arc::new(Self { registrar: Registrar::new(Box::new(memory)), domain });
        in_use.push((device, Arc::downgrade(&shared)));
        Ok(shared)
    }
}

/// An identifier of the same device for the domain, which keeps its identifier: that of a
/// connection must go with the connection, because the peer learns of its end then.
fn own_identifier(device: usize, local: SocketAddr) -> Option<Identifier> {
    let identifier = Identifier::new(&EventChannel::new().ok()?).ok()?;
    identifier.bind(SocketAddr::new(local.ip(), 0)).ok()?;
    identifier.device().is_ok_and(|of| of == device).then_some(identifier)
}

/// How much memory this process may lock; `None` if there is no limit for it.
fn lockable_bytes() -> Option<u64> {
    let unlimited = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if unlimited { None } else { getrlimit(Resource::Memlock).current }
}

/// The registrations for windows, by their keys. A window is bound to one of them.
pub(super) type Bindable = Mutex<HashMap<u32, Arc<Registration>>>;

pub(super) fn lock(bindable: &Bindable) -> MutexGuard<'_, HashMap<u32, Arc<Registration>>> {
    // The map is consistent between any two operations.
    bindable.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers memory of stores or callers, as far as the limit allows. Once it was refused no more
/// is tried, so that payload in memory that is not registered costs a copy and not a system call
/// besides.
struct OwnersMemory {
    domain: Arc<Domain>,
    whose: &'static str,
    bytes_max: u64,
    bytes: Arc<AtomicU64>,
    refused: AtomicBool,
    /// Registrations that windows are bound to are found here.
    bindable: Option<Arc<Bindable>>,
}

/// What registers memory of callers with a client's connection.
pub(super) fn callers_registrar(domain: &Arc<Domain>, bindable: &Arc<Bindable>) -> Registrar {
    /// Of all connections: each has its own registrations.
    static REGISTERED: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);
    Registrar::new(Box::new(OwnersMemory {
        domain: Arc::clone(domain),
        whose: "callers",
        bytes_max: lockable_bytes().map_or(u64::MAX, |bytes| bytes / 4),
        bytes: Arc::clone(&REGISTERED),
        refused: AtomicBool::new(false),
        bindable: Some(Arc::clone(bindable)),
    }))
}

/// One registration, counted until dropped.
struct Held {
    key: u32,
    registration: Option<Registration>,
    bindable: Option<Arc<Bindable>>,
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.registration.take());
        let registration = self.bindable.as_ref().and_then(|bindable| lock(bindable).remove(&self.key));
        // Not under the lock: this is a system call.
        drop(registration);
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Device for OwnersMemory {
    unsafe fn register(&self, start: NonNull<u8>, bytes: usize) -> Option<memory::Registration> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let counted = bytes as u64;
        let within = self.bytes.fetch_add(counted, Ordering::Relaxed) + counted <= self.bytes_max;
        let registration = match (within, &self.bindable) {
            // SAFETY: the caller keeps the memory until the registration is dropped.
            (true, None) => unsafe { Registration::new(&self.domain, start, bytes) },
            // SAFETY: as above.
            (true, Some(_)) => unsafe { Registration::for_windows(&self.domain, start, bytes) },
            (false, _) => Err(Error::Register { bytes, source: std::io::ErrorKind::OutOfMemory.into() }),
        };
        match registration {
            Ok(registration) => {
                let (key, all) = (registration.key(), Arc::clone(&self.bytes));
                let bindable = self.bindable.clone();
                let registration = match &bindable {
                    None => Some(registration),
                    Some(bindable) => {
                        lock(bindable).insert(key, Arc::new(registration));
                        None
                    }
                };
                let held = Held { key, registration, bindable, bytes: counted, all };
                Some(memory::Registration { key, held: Box::new(held) })
            }
            Err(error) => {
                self.bytes.fetch_sub(counted, Ordering::Relaxed);
                if !self.refused.swap(true, Ordering::Relaxed) {
                    let whose = self.whose;
                    tracing::warn!(%error, "memory of {whose} is not registered; RDMA copies its payload");
                }
                None
            }
        }
    }
}
