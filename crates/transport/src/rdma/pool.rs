//! Registered memory that is reused: registering costs a system call and pins pages.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memory::Registered;
use verbs::{Access, Domain, Error, Region};

/// The sizes of buffers: for small, usual and the largest transfers. The largest has room for a
/// call that is read as a whole, including its head.
const CLASSES: [usize; 4] = [8 << 10, 64 << 10, 256 << 10, (1 << 20) + (64 << 10)];

#[derive(Debug, Default)]
struct FreeBuffers {
    free: Vec<(Access, Arc<Region>)>,
    /// Bytes of all regions, free and in use.
    bytes: usize,
}

#[derive(Debug)]
struct Shared {
    domain: Arc<Domain>,
    bytes_max: usize,
    kept: Mutex<FreeBuffers>,
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, FreeBuffers> {
        // The list of regions is consistent between any two operations.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool of one endpoint.
#[derive(Debug)]
pub(super) struct Pool(Arc<Shared>);

impl Pool {
    pub fn new(domain: &Arc<Domain>, bytes_max: usize) -> Self {
        Self(Arc::new(Shared { domain: Arc::clone(domain), bytes_max, kept: Mutex::default() }))
    }

    /// Returns a buffer of at least this many bytes, with arbitrary contents; `None` while too much
    /// is in use. A buffer larger than the maximum size of the pool is returned only if nothing
    /// else is in use.
    pub fn take(&self, bytes: usize, access: Access) -> Result<Option<Buffer>, Error> {
        let size = CLASSES.iter().copied().find(|class| bytes <= *class).unwrap_or(bytes);
        let mut kept = self.0.kept();
        let fits = |(with, region): &(Access, Arc<Region>)| *with == access && region.bytes() == size;
        if let Some(at) = kept.free.iter().rposition(fits) {
            let (access, region) = kept.free.swap_remove(at);
            return Ok(Some(Buffer::new(region, access, &self.0)));
        }
        // Free regions of other sizes are dropped only if there is no room beside them.
        while kept.bytes + size > self.0.bytes_max {
            let Some((_, region)) = kept.free.pop() else { break };
            kept.bytes -= region.bytes();
        }
        if kept.bytes > 0 && kept.bytes + size > self.0.bytes_max {
            return Ok(None);
        }
        let mut region = Region::new(&self.0.domain, size, access);
        if matches!(region, Err(Error::Register { .. })) && !kept.free.is_empty() {
            // The limit of locked memory is reached, in part by free regions of this pool.
            let idle: usize = kept.free.drain(..).map(|(_, region)| region.bytes()).sum();
            kept.bytes -= idle;
            region = Region::new(&self.0.domain, size, access);
        }
        let region = match region {
            Ok(region) => Arc::new(region),
            // Memory in use will be returned.
            Err(Error::Register { .. }) if kept.bytes > 0 => return Ok(None),
            Err(error) => return Err(error),
        };
        kept.bytes += size;
        drop(kept);
        Ok(Some(Buffer::new(region, access, &self.0)))
    }
}

struct Held {
    /// Shared only so that it can be returned without being moved out of a dropped value.
    region: Arc<Region>,
    access: Access,
    home: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.home.kept().free.push((self.access, Arc::clone(&self.region)));
    }
}

/// Registered memory. Clones share the memory, which returns to its pool when the last clone is
/// dropped. Bytes are copied in and out: a device or a peer may write the memory at any time.
#[derive(Clone)]
pub struct Buffer(Arc<Held>);

impl Buffer {
    fn new(region: Arc<Region>, access: Access, home: &Arc<Shared>) -> Self {
        Self(Arc::new(Held { region, access, home: Arc::clone(home) }))
    }

    /// The whole region, which may be longer than was asked for.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.0.region
    }

    /// A part as the device addresses it, which lies in the buffer.
    #[must_use]
    pub fn registered(&self, from: usize, bytes: usize) -> Registered {
        let region = self.region();
        let whole = Registered { start: region.address(), bytes: region.bytes(), key: region.local_key() };
        whole.part(from, bytes)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// The bytes don't fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), super::Error> {
        Ok(self.region().write(offset, bytes)?)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// The range exceeds the buffer.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), super::Error> {
        Ok(self.region().read(offset, bytes)?)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.region().bytes())
    }
}

/// A range of a buffer.
#[derive(Debug, Clone)]
pub struct Part {
    /// The buffer; kept until the work is done.
    pub buffer: Buffer,
    /// The first byte.
    pub from: usize,
    /// The number of bytes.
    pub bytes: u32,
}
