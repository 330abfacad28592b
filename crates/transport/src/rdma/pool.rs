//! Registered memory that is used again and again: registering costs a system call and pins pages.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbs::{Access, Domain, Error, Region};

/// The sizes buffers come in: of small, usual and the largest transfers. The largest has room for a
/// call that is read whole, with its head.
const CLASSES: [usize; 4] = [8 << 10, 64 << 10, 256 << 10, (1 << 20) + (64 << 10)];

#[derive(Debug, Default)]
struct Kept {
    free: Vec<(Access, Arc<Region>)>,
    /// Bytes of all regions, free and in use.
    bytes: usize,
}

#[derive(Debug)]
struct Shared {
    domain: Arc<Domain>,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A list of regions is whole between any two of its operations.
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

    /// A buffer of at least so many bytes; none while too much is in use. What is in it is of no
    /// meaning. One that is larger than the whole pool may be is given when nothing else is in use.
    pub fn take(&self, bytes: usize, access: Access) -> Result<Option<Buffer>, Error> {
        let size = CLASSES.iter().copied().find(|class| bytes <= *class).unwrap_or(bytes);
        let mut kept = self.0.kept();
        let fits = |(with, region): &(Access, Arc<Region>)| *with == access && region.bytes() == size;
        if let Some(at) = kept.free.iter().rposition(fits) {
            let (access, region) = kept.free.swap_remove(at);
            return Ok(Some(Buffer::new(region, access, &self.0)));
        }
        // Others' places are taken only when there is no room beside them.
        while kept.bytes + size > self.0.bytes_max {
            let Some((_, region)) = kept.free.pop() else { break };
            kept.bytes -= region.bytes();
        }
        if kept.bytes > 0 && kept.bytes + size > self.0.bytes_max {
            return Ok(None);
        }
        let mut region = Region::new(&self.0.domain, size, access);
        if matches!(region, Err(Error::Register { .. })) && !kept.free.is_empty() {
            // What may be locked is used up, in part by memory that lies idle here.
            let idle: usize = kept.free.drain(..).map(|(_, region)| region.bytes()).sum();
            kept.bytes -= idle;
            region = Region::new(&self.0.domain, size, access);
        }
        let region = match region {
            Ok(region) => Arc::new(region),
            // What is in use comes back.
            Err(Error::Register { .. }) if kept.bytes > 0 => return Ok(None),
            Err(error) => return Err(error),
        };
        kept.bytes += size;
        drop(kept);
        Ok(Some(Buffer::new(region, access, &self.0)))
    }
}

struct Held {
    /// Shared only so that it can be given back without being moved out of what is dropped.
    region: Arc<Region>,
    access: Access,
    home: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.home.kept().free.push((self.access, Arc::clone(&self.region)));
    }
}

/// Registered memory. Clones are the same memory, which goes back to its pool when the last one is
/// dropped. Bytes are copied in and out: a device or a peer may write them at any time.
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

    /// Copies bytes in.
    ///
    /// # Errors
    /// They don't fit there.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), super::Error> {
        Ok(self.region().write(offset, bytes)?)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// There are not so many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), super::Error> {
        Ok(self.region().read(offset, bytes)?)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.region().bytes())
    }
}

/// Bytes of a buffer.
#[derive(Debug, Clone)]
pub struct Part {
    /// The buffer; kept until the work is done.
    pub buffer: Buffer,
    /// The first byte.
    pub from: usize,
    /// How many.
    pub bytes: u32,
}
