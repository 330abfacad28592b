//! Receiving: from bytes to PDUs, and data to their places.

use super::authentication::AUTHENTICATION_TAG;
use super::link::Stream;
use super::{Connection, Context, EndReason, Link, Phase, Role, digest_of};
use crate::inbound::{BESIDE_DATA_BYTES, DIRECT_BYTES_MIN, Data, Place, State};
use nvme::Sqe;
use nvme::pdu::{Layout, Malformed, PduType};
use nvme::tcp::{Incoming, Progress, Received};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io::IoSliceMut;

/// What one turn receives from a connection before others have theirs.
const TURN_BYTES: usize = 2 << 20;

impl Connection {
    /// Receives what is waiting, up to the share of a turn.
    pub(crate) fn receive(&mut self, scratch: &mut [u8], context: &mut Context<'_>) {
        self.has_more = false;
        if matches!(self.link, Link::Rdma(_)) {
            return self.receive_capsules(context);
        }
        if matches!(self.phase, Phase::Lingering(_)) {
            return self.discard(scratch, context);
        }
        if let Err(reason) = self.try_receive(scratch, context) {
            self.end(&reason, context);
        }
        let Link::Tcp(stream) = &mut self.link else { return };
        let inbound = &mut stream.inbound;
        let since = inbound.since.filter(|_| inbound.within_pdu());
        inbound.since = since.or_else(|| inbound.within_pdu().then_some(context.now));
    }

    /// The host has ended the connection. What it sent before is not executed any more: the host may
    /// have sent it again on another path meanwhile, and something newer after that.
    pub(crate) fn receive_after_end(&mut self, scratch: &mut [u8], context: &mut Context<'_>) {
        if matches!(self.link, Link::Rdma(_)) || matches!(self.phase, Phase::Lingering(_)) {
            return self.receive(scratch, context);
        }
        self.end(&EndReason::ClosedByHost, context);
    }

    fn try_receive(&mut self, scratch: &mut [u8], context: &mut Context<'_>) -> Result<(), EndReason> {
        if self.wants_more()
            && let Link::Tcp(stream) = &mut self.link
        {
            let unparsed = std::mem::take(&mut stream.inbound.unparsed);
            self.parse(&unparsed, context)?;
        }
        let (mut left, mut is_empty) = (TURN_BYTES, false);
        while self.wants_more() {
            if left == 0 {
                self.has_more = true;
                break;
            }
            let (wanted, got) = self.receive_once(scratch, context)?;
            left = left.saturating_sub(got);
            // A short receive has emptied the socket.
            if got < wanted {
                is_empty = !self.has_unparsed();
                break;
            }
        }
        let behind_since = self.behind_since.unwrap_or(context.now);
        self.behind_since = (!is_empty).then_some(behind_since);
        Ok(())
    }

    /// One system call. Returns how many bytes it could have received, and how many it has.
    fn receive_once(
        &mut self,
        scratch: &mut [u8],
        context: &mut Context<'_>,
    ) -> Result<(usize, usize), EndReason> {
        let Link::Tcp(stream) = &mut self.link else { return Ok((0, 0)) };
        let Some(socket) = &stream.socket else { return Err(EndReason::ClosedByHost) };
        // While data are expected that go to their place, no more of them are taken here than it
        // costs to learn what they are.
        let beside = self.role.expects_data() || matches!(stream.inbound.state, State::Data(_));
        let room = if beside { BESIDE_DATA_BYTES } else { scratch.len() };
        let scratch = scratch.get_mut(..room).unwrap_or_default();
        let mut slices: SmallVec<[IoSliceMut<'_>; 24]> = SmallVec::new();
        let mut direct = 0;
        if let State::Data(data) = &stream.inbound.state
            && data.missing() >= DIRECT_BYTES_MIN
            && let Place::Command { tag, offset } = data.place
            && let Role::Io(io) = &mut self.role
        {
            direct = data.missing();
            io.unfilled(tag, offset + data.filled, direct, &mut slices);
        }
        slices.push(IoSliceMut::new(scratch));
        let wanted = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let got = match rustix::io::readv(socket, &mut slices) {
            Ok(0) => return Err(EndReason::ClosedByHost),
            Ok(got) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok((wanted, 0)),
            Err(errno) => return Err(EndReason::Io(errno.into())),
        };
        drop(slices);
        if let State::Data(data) = &mut stream.inbound.state
            && direct > 0
        {
            data.filled += got.min(direct);
        }
        self.parse(scratch.get(..got.saturating_sub(direct)).unwrap_or_default(), context)?;
        Ok((wanted, got))
    }

    /// Takes PDUs from `bytes`; keeps what is not wanted now.
    fn parse(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Result<(), EndReason> {
        let mut rest = bytes;
        loop {
            let Link::Tcp(stream) = &self.link else { return Ok(()) };
            rest = match &stream.inbound.state {
                State::Data(_) => {
                    let (left, is_complete) = self.take_data(rest);
                    rest = left;
                    if !is_complete {
                        return Ok(());
                    }
                    self.finish_data(context)?;
                    rest
                }
                State::Head if rest.is_empty() || !self.is_open() => return Ok(()),
                State::Head if !self.wants_more() => {
                    self.keep_unparsed(rest);
                    return Ok(());
                }
                State::Head => self.take_head(rest, context)?,
            };
        }
    }

    fn keep_unparsed(&mut self, bytes: &[u8]) {
        if let Link::Tcp(stream) = &mut self.link {
            stream.inbound.unparsed.extend_from_slice(bytes);
        }
    }

    /// Whether something was received that is not parsed yet.
    pub(super) fn has_unparsed(&self) -> bool {
        matches!(&self.link, Link::Tcp(stream) if !stream.inbound.unparsed.is_empty())
    }

    /// Copies data to their place; returns what follows them, and whether they are complete.
    fn take_data<'a>(&mut self, bytes: &'a [u8]) -> (&'a [u8], bool) {
        let Link::Tcp(stream) = &mut self.link else { return (bytes, false) };
        let State::Data(data) = &mut stream.inbound.state else { return (bytes, false) };
        let (now, rest) = bytes.split_at(bytes.len().min(data.missing()));
        match (&mut data.place, &mut self.role) {
            (Place::Own(memory), _) => memory.extend_from_slice(now),
            (Place::Command { tag, offset }, Role::Io(io)) => io.fill(*tag, *offset + data.filled, now),
            (Place::Admin { tag, offset }, Role::Admin(admin)) => {
                admin.fill(*tag, *offset + data.filled, now);
            }
            (Place::Authentication { offset }, _) => {
                if let Some(authentication) = &mut self.authentication {
                    authentication.fill(*offset + data.filled, now);
                }
            }
            _ => {}
        }
        data.filled += now.len();
        let rest = if data.missing() > 0 { rest } else { data.take_trailer(rest) };
        (rest, data.is_complete())
    }

    /// Takes a header, as far as it is there; returns what follows.
    fn take_head<'a>(&mut self, bytes: &'a [u8], context: &mut Context<'_>) -> Result<&'a [u8], EndReason> {
        let Link::Tcp(stream) = &mut self.link else { return Ok(&[]) };
        let Stream { machine, inbound, outbound, .. } = &mut **stream;
        let Some(layout) = inbound.layout else {
            let (rest, complete) = inbound.fill_head(bytes, nvme::pdu::HEADER_BYTES_MIN);
            if complete {
                match machine.layout(&inbound.first()) {
                    Ok(layout) => inbound.layout = Some(layout),
                    Err(malformed) => return Err(fail(stream, malformed)),
                }
            }
            return Ok(rest);
        };
        let (rest, complete) = inbound.fill_head(bytes, layout.data_offset.into());
        if !complete {
            return Ok(rest);
        }
        inbound.layout = None;
        // What follows has its own time.
        inbound.since = None;
        let now = context.shared.controllers.now();
        let header = inbound.head.get(..layout.header_bytes()).unwrap_or_default();
        let received = machine.handle_header(now, &layout, header, &mut outbound.heads);
        let received = received.map_err(|malformed| fail(stream, malformed))?;
        stream.inbound.head.clear();
        let place = self.take_pdu(received, &layout, context)?;
        if layout.data_bytes > 0
            && let Link::Tcp(stream) = &mut self.link
        {
            stream.inbound.state = State::Data(Data::new(&layout, place));
        }
        Ok(rest)
    }

    /// Handles a header; says where its data belong.
    fn take_pdu(
        &mut self,
        received: Received,
        layout: &Layout,
        context: &mut Context<'_>,
    ) -> Result<Place, EndReason> {
        match received {
            Received::Initialized => Ok(Place::Nowhere),
            Received::Terminated(term) => Err(EndReason::Terminated(term)),
            Received::Unsuitable { sqe, status } => {
                self.refuse(&sqe, status, context)?;
                Ok(Place::Nowhere)
            }
            Received::Command { sqe, data } => self.take_command(&sqe, data, context),
            Received::Data { tag, offset, .. } => {
                debug_assert_eq!(layout.kind, PduType::H2C_DATA);
                let offset = offset as usize;
                Ok(match &self.role {
                    _ if tag == AUTHENTICATION_TAG => Place::Authentication { offset },
                    Role::Io(_) => Place::Command { tag, offset },
                    Role::Pending | Role::Admin(_) => Place::Admin { tag, offset },
                })
            }
        }
    }

    /// A command. Says where its data belong.
    pub(super) fn take_command(
        &mut self,
        sqe: &Sqe,
        data: Incoming,
        context: &mut Context<'_>,
    ) -> Result<Place, EndReason> {
        if self.authentication.is_some()
            && let Some(place) = self.authenticate(sqe, data, context)?
        {
            return Ok(place);
        }
        match &self.role {
            Role::Io(_) => self.take_io(sqe, data, context),
            Role::Pending | Role::Admin(_) => self.take_admin(sqe, data, context),
        }
    }

    /// The data of a PDU are complete.
    fn finish_data(&mut self, context: &mut Context<'_>) -> Result<(), EndReason> {
        let Link::Tcp(stream) = &mut self.link else { return Ok(()) };
        let State::Data(data) = std::mem::replace(&mut stream.inbound.state, State::Head) else {
            return Ok(());
        };
        stream.inbound.since = None;
        match &data.place {
            Place::Nowhere => Ok(()),
            Place::Own(memory) => {
                let computed = digest_of(&stream.machine, std::iter::once(&memory[..]));
                let progress = stream.machine.handle_capsule_data(computed, data.received_digest());
                self.finish_capsule(memory, progress, context)
            }
            Place::Command { tag, offset } => {
                let progress = self.finish_io_data(*tag, *offset, &data);
                match progress {
                    Progress::More => Ok(()),
                    Progress::Complete => {
                        self.received(*tag, context);
                        Ok(())
                    }
                    Progress::Failed(status) => {
                        self.complete(*tag, status, context);
                        Ok(())
                    }
                }
            }
            Place::Admin { tag, offset } => self.finish_admin_data(*tag, *offset, &data, context),
            Place::Authentication { offset } => self.finish_authentication_part(*offset, &data, context),
        }
    }

    /// Whether the data of a command follow it in its capsule.
    pub(super) const fn in_capsule(data: Incoming) -> Option<u32> {
        match data {
            Incoming::InCapsule(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Drops what comes until the host has closed.
    fn discard(&mut self, scratch: &mut [u8], context: &mut Context<'_>) {
        let Some(socket) = self.link.socket() else { return };
        match rustix::io::read(socket, scratch) {
            Ok(0) => self.close(context),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.close(context),
        }
    }
}

/// Tells the host which rule it broke.
fn fail(stream: &mut Stream, malformed: Malformed) -> EndReason {
    stream.machine.fail(malformed, &stream.inbound.head, &mut stream.outbound.heads);
    EndReason::Malformed(malformed)
}
