//! Connections: made in both directions by the connection manager, each with a reliable queue pair.

use crate::abi::{CmId, ConnParam, Context, PS_TCP, QPT_RC, Qp, QpCap, QpInitAttr};
use crate::count::{Counted, Kind};
use crate::library::library;
use crate::{Domain, Error, EventChannel, Queue};
use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use std::net::SocketAddr;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

/// How often a lost packet is sent again, and how often a receiver that is not ready is asked: what
/// the kernel's NFS uses. 7 receivers' retries mean for ever, and a peer that keeps to its credits
/// needs none.
const RETRIES: u8 = 6;
const RECEIVER_RETRIES: u8 = 0;
/// The private data of a refusal. InfiniBand Architecture, "REJ"
const REJECT_BYTES_MAX: u8 = 148;

/// What a queue pair holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Pieces of work that may be posted and not complete.
    pub work: u32,
    /// Receives that may be posted.
    pub receives: u32,
    /// Slices of memory in one piece of work.
    pub slices: u32,
}

/// What two ends tell each other while they connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms<'a> {
    /// For the other end's program; 56 bytes at most.
    pub private_data: &'a [u8],
    /// RDMA reads of the peer that we serve at a time.
    pub reads_served: u8,
    /// RDMA reads that we have under way at a time.
    pub reads_made: u8,
}

impl Terms<'_> {
    fn raw(&self) -> Result<ConnParam, Error> {
        let length = u8::try_from(self.private_data.len()).ok().filter(|length| *length <= 56);
        Ok(ConnParam {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: length.ok_or(Error::Misuse("private data is 56 bytes at most"))?,
            responder_resources: self.reads_served,
            initiator_depth: self.reads_made,
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RECEIVER_RETRIES,
            srq: 0,
            qp_num: 0,
        })
    }
}

#[derive(Debug)]
struct QueuePair {
    raw: NonNull<Qp>,
    _domain: Arc<Domain>,
    _queues: [Arc<Queue>; 2],
    _counted: Counted,
}

// SAFETY: the libraries' calls on a queue pair may come from any thread, also at the same time.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

/// What the connection manager knows a connection by. The manager closes its context of a device
/// that has gone away with the last of these that was bound to it: so whatever else was made on the
/// device holds one, too, and goes before it.
#[derive(Debug)]
pub(crate) struct Handle {
    raw: NonNull<CmId>,
    channel: Arc<EventChannel>,
    _counted: Counted,
}

// SAFETY: the libraries' calls on an identifier may come from any thread, also at the same time.
unsafe impl Send for Handle {}
// SAFETY: as above; what changes its channel takes it exclusively.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        let Ok(library) = library() else { return };
        // SAFETY: the identifier is ours, and its queue pair is gone. All its events were
        // acknowledged when they were taken, so this does not wait for any.
        unsafe { (library.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

/// One end of a connection, or what listens for them.
#[derive(Debug)]
pub struct Identifier {
    handle: Arc<Handle>,
    queue_pair: Option<QueuePair>,
}

impl Identifier {
    /// A new one whose events arrive there.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn new(channel: &Arc<EventChannel>) -> Result<Self, Error> {
        let library = library()?;
        let mut raw = null_mut();
        // SAFETY: the channel is alive, and the place outlives the call.
        let failed = unsafe { (library.rdma_create_id)(channel.raw(), &mut raw, null_mut(), PS_TCP) };
        match NonNull::new(raw).filter(|_| failed == 0) {
            Some(raw) => Ok(Self::incoming(raw, channel)),
            None => Err(Error::last("create a connection's identifier")),
        }
    }

    /// Takes over one that came with a request.
    pub(crate) fn incoming(raw: NonNull<CmId>, channel: &Arc<EventChannel>) -> Self {
        let _counted = Counted::new(Kind::Identifier);
        Self { handle: Arc::new(Handle { raw, channel: Arc::clone(channel), _counted }), queue_pair: None }
    }

    /// By what its events name it.
    #[must_use]
    pub fn token(&self) -> usize {
        self.raw() as usize
    }

    /// Where its events arrive.
    #[must_use]
    pub fn channel(&self) -> &Arc<EventChannel> {
        &self.handle.channel
    }

    /// Has its events arrive elsewhere from now on: one that came with a request begins at the
    /// listener's channel.
    ///
    /// # Errors
    /// Something was made on its device already, or the system's refusal.
    pub fn migrate(&mut self, channel: &Arc<EventChannel>) -> Result<(), Error> {
        let alone = Arc::get_mut(&mut self.handle);
        let handle = alone.ok_or(Error::Misuse("the connection has something on its device already"))?;
        // SAFETY: identifier and channel are alive. Events are acknowledged when they are taken, so
        // that none is waited for.
        let failed = unsafe { (library()?.rdma_migrate_id)(handle.raw.as_ptr(), channel.raw()) };
        if failed != 0 {
            return Err(Error::last("move a connection to another event channel"));
        }
        handle.channel = Arc::clone(channel);
        Ok(())
    }

    /// Its own address, once it is bound.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive, and the library has set the field, to zeroes where it
        // knows no address.
        address_of(&unsafe { self.handle.raw.as_ref() }.src_addr)
    }

    /// The address of the other end, once that is known.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        address_of(&unsafe { self.handle.raw.as_ref() }.dst_addr)
    }

    /// Binds it to an address, and with that to a device if the address is no wildcard.
    ///
    /// # Errors
    /// An address that no device has or that is taken.
    pub fn bind(&self, address: SocketAddr) -> Result<(), Error> {
        let library = library()?;
        let mut raw = raw_address(address);
        // SAFETY: the identifier is alive, and the address outlives the call.
        if unsafe { (library.rdma_bind_addr)(self.raw(), as_sockaddr(&mut raw)) } != 0 {
            let error = std::io::Error::last_os_error();
            // What the system says of an address that only other kinds of interfaces have.
            let ours = !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EADDRNOTAVAIL));
            return Err(if ours {
                Error::Io { what: "bind the address", source: error }
            } else {
                Error::NoRoute(address)
            });
        }
        Ok(())
    }

    /// Waits for connections on an address: each comes as an event.
    ///
    /// # Errors
    /// An address that no device has or that is taken.
    pub fn listen(&self, address: SocketAddr, backlog: u16) -> Result<(), Error> {
        self.bind(address)?;
        let library = library()?;
        // SAFETY: the identifier is alive and bound.
        let failed = unsafe { (library.rdma_listen)(self.raw(), c_int::from(backlog)) };
        if failed == 0 { Ok(()) } else { Err(Error::last("listen for RDMA connections")) }
    }

    /// Looks for a device that reaches an address, from one of ours where that is given. Ends with
    /// an event.
    ///
    /// # Errors
    /// The system's refusal at once.
    pub fn resolve(&self, from: Option<SocketAddr>, to: SocketAddr, within: Duration) -> Result<(), Error> {
        let library = library()?;
        let mut from = from.map(raw_address);
        let from = from.as_mut().map_or(null_mut(), as_sockaddr);
        let mut raw = raw_address(to);
        // SAFETY: the identifier is alive, and the addresses outlive the call.
        let failed = unsafe {
            (library.rdma_resolve_addr)(self.raw(), from, as_sockaddr(&mut raw), milliseconds(within))
        };
        match (failed, std::io::Error::last_os_error()) {
            (0, _) => Ok(()),
            (_, error) if error.raw_os_error() == Some(libc::ENODEV) => Err(Error::NoRoute(to)),
            (_, source) => Err(Error::Io { what: "find a device for the address", source }),
        }
    }

    /// Looks for the way, once the device is known. Ends with an event.
    ///
    /// # Errors
    /// The system's refusal at once.
    pub fn resolve_route(&self, within: Duration) -> Result<(), Error> {
        // SAFETY: the identifier is alive.
        let failed = unsafe { (library()?.rdma_resolve_route)(self.raw(), milliseconds(within)) };
        if failed == 0 { Ok(()) } else { Err(Error::last("find the way to the address")) }
    }

    /// Gives the connection a queue pair; receives may be posted from then on.
    ///
    /// # Errors
    /// One that has a queue pair, or the system's refusal.
    pub fn create_queue_pair(
        &mut self,
        domain: &Arc<Domain>,
        work: &Arc<Queue>,
        receives: &Arc<Queue>,
        capacity: Capacity,
    ) -> Result<(), Error> {
        let library = library()?;
        if self.queue_pair.is_some() {
            return Err(Error::Misuse("the connection has a queue pair already"));
        }
        let mut attributes = QpInitAttr {
            qp_context: null_mut(),
            send_cq: work.raw(),
            recv_cq: receives.raw(),
            srq: null_mut(),
            cap: QpCap {
                max_send_wr: capacity.work,
                max_recv_wr: capacity.receives,
                max_send_sge: capacity.slices,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: all of them are alive, and kept so by the queue pair.
        let failed = unsafe { (library.rdma_create_qp)(self.raw(), domain.raw(), &mut attributes) };
        // SAFETY: the identifier is alive; the library has just set the field.
        match NonNull::new(unsafe { self.handle.raw.as_ref() }.qp).filter(|_| failed == 0) {
            Some(raw) => {
                let _queues = [Arc::clone(work), Arc::clone(receives)];
                let _counted = Counted::new(Kind::QueuePair);
                self.queue_pair = Some(QueuePair { raw, _domain: Arc::clone(domain), _queues, _counted });
                Ok(())
            }
            None => Err(Error::last("create a queue pair")),
        }
    }

    /// Destroys the queue pair: when this returns, the device no longer reads or writes memory for
    /// it. The rest of the connection goes when it is dropped.
    pub fn destroy_queue_pair(&mut self) {
        if let (Some(queue_pair), Ok(library)) = (self.queue_pair.take(), library()) {
            // SAFETY: the identifier and its queue pair are ours, and posting work fails from now
            // on.
            unsafe { (library.rdma_destroy_qp)(self.raw()) };
            // What it used goes after it.
            drop(queue_pair);
        }
    }

    /// Connects, once the way is known. Ends with an event.
    ///
    /// # Errors
    /// The system's refusal at once.
    pub fn connect(&self, terms: &Terms<'_>) -> Result<(), Error> {
        let mut raw = terms.raw()?;
        // SAFETY: the identifier is alive, and the terms outlive the call.
        let failed = unsafe { (library()?.rdma_connect)(self.raw(), &mut raw) };
        if failed == 0 { Ok(()) } else { Err(Error::last("connect over RDMA")) }
    }

    /// Accepts a request, once it has a queue pair. Ends with an event.
    ///
    /// # Errors
    /// The system's refusal at once.
    pub fn accept(&self, terms: &Terms<'_>) -> Result<(), Error> {
        let mut raw = terms.raw()?;
        // SAFETY: the identifier is alive, and the terms outlive the call.
        let failed = unsafe { (library()?.rdma_accept)(self.raw(), &mut raw) };
        if failed == 0 { Ok(()) } else { Err(Error::last("accept an RDMA connection")) }
    }

    /// Refuses a request, and says why in 148 bytes at most, in the words of the program.
    ///
    /// # Errors
    /// Nobody is there to be refused: the other end has given up. Or the reason is too long.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        let length = u8::try_from(private_data.len()).ok().filter(|length| *length <= REJECT_BYTES_MAX);
        let length = length.ok_or(Error::Misuse("a refusal has 148 bytes of private data at most"))?;
        // SAFETY: the identifier is alive, and the private data outlive the call.
        let failed = unsafe { (library()?.rdma_reject)(self.raw(), private_data.as_ptr().cast(), length) };
        if failed == 0 { Ok(()) } else { Err(Error::last("refuse an RDMA connection")) }
    }

    /// Ends the connection: all work that is posted completes as failed, and the other end gets an
    /// event.
    ///
    /// # Errors
    /// One that is not connected.
    pub fn disconnect(&self) -> Result<(), Error> {
        // SAFETY: the identifier is alive.
        let failed = unsafe { (library()?.rdma_disconnect)(self.raw()) };
        if failed == 0 { Ok(()) } else { Err(Error::last("end an RDMA connection")) }
    }

    /// Tells devices apart: the same for identifiers of one device, as long as anything that was
    /// made on the device is left.
    ///
    /// # Errors
    /// One that is bound to no device yet.
    pub fn device(&self) -> Result<usize, Error> {
        Ok(self.context()? as usize)
    }

    /// The context of the device that it is bound to.
    pub(crate) fn context(&self) -> Result<*mut Context, Error> {
        // SAFETY: the identifier is alive.
        let context = unsafe { self.handle.raw.as_ref() }.verbs;
        if context.is_null() {
            Err(Error::Misuse("the connection is bound to no device yet"))
        } else {
            Ok(context)
        }
    }

    pub(crate) fn queue_pair(&self) -> Result<*mut Qp, Error> {
        let queue_pair =
            self.queue_pair.as_ref().ok_or(Error::Misuse("the connection has no queue pair yet"))?;
        Ok(queue_pair.raw.as_ptr())
    }

    /// What keeps the context of its device open.
    pub(crate) fn handle(&self) -> Arc<Handle> {
        Arc::clone(&self.handle)
    }

    fn raw(&self) -> *mut CmId {
        self.handle.raw.as_ptr()
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        self.destroy_queue_pair();
    }
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

fn as_sockaddr(address: &mut sockaddr_storage) -> *mut sockaddr {
    std::ptr::from_mut(address).cast()
}

fn raw_address(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all zeroes is an address of no family, and every byte of the others is set or zero
    // below.
    let (mut storage, mut v4, mut v6): (sockaddr_storage, sockaddr_in, sockaddr_in6) =
        unsafe { std::mem::zeroed() };
    let to = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            v4.sin_family = libc::AF_INET as u16;
            v4.sin_port = address.port().to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
            // SAFETY: there is room for every family's address in the storage, aligned for it.
            unsafe { to.cast::<sockaddr_in>().write(v4) };
        }
        SocketAddr::V6(address) => {
            v6.sin6_family = libc::AF_INET6 as u16;
            v6.sin6_port = address.port().to_be();
            v6.sin6_addr.s6_addr = address.ip().octets();
            v6.sin6_scope_id = address.scope_id();
            // SAFETY: as above.
            unsafe { to.cast::<sockaddr_in6>().write(v6) };
        }
    }
    storage
}

/// The other way round; none of a family that is not the Internet's.
fn address_of(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let from = std::ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address the storage holds, and it is aligned for every
            // one.
            let v4 = unsafe { from.cast::<sockaddr_in>().read() };
            let ip = std::net::Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { from.cast::<sockaddr_in6>().read() };
            let (ip, port) = (v6.sin6_addr.s6_addr.into(), u16::from_be(v6.sin6_port));
            Some(std::net::SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for address in ["10.77.1.2:20049", "[fd00::7]:1"] {
            let address = address.parse().expect("an address");
            assert_eq!(address_of(&raw_address(address)), Some(address));
        }
        // SAFETY: all zeroes is an address of no family.
        assert_eq!(address_of(&unsafe { std::mem::zeroed() }), None);
    }

    #[test]
    fn private_data_is_bounded_as_the_wire_bounds_it() {
        let terms = |bytes| Terms { private_data: bytes, reads_served: 1, reads_made: 1 };
        assert_eq!(terms(&[0; 56]).raw().expect("it fits").private_data_len, 56);
        assert!(terms(&[0; 57]).raw().is_err());
    }
}
