//! The host's end of a connection.
//!
//! Everything that the controller says is checked as strictly as the controller's end checks the
//! host: a header's length, the command that data belong to, where they belong, that a command
//! succeeds only with all of its data. Only a message of authentication may be shorter than its
//! room.

use super::target::Sent;
use crate::command::SQHD_NO_FLOW_CONTROL;
use crate::digest::Digest;
use crate::fabrics::FabricsType;
use crate::host::{HostData, HostMisuse, Outstanding};
use crate::pdu::{
    ALIGNMENT_MAX, Bounds, C2hData, CapsuleCmd, Digests, FatalError, H2cData, HEADER_BYTES_MIN, IcReq,
    IcResp, Layout, Malformed, Pdu, R2t, Receiver, Sender, TermReq,
};
use crate::{AdminOpcode, Cqe, Sgl, Sqe, Status};

/// What a host asks for on its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSettings {
    /// The digests; a controller that has others is refused.
    pub digests: Digests,
    /// The entries of the queue, at most [`ENTRIES_MAX`](crate::host::ENTRIES_MAX); one fewer may
    /// be outstanding.
    pub entries: u16,
    /// The most data of one command, in bytes.
    pub transfer_bytes: u32,
}

/// A command that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Its identifier.
    pub cid: u16,
    /// How many bytes of its data follow in the capsule, from the first one on.
    pub in_capsule: u32,
    /// Whether their digest follows them.
    pub digest: bool,
}

/// What a PDU means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostReceived {
    /// The connection takes commands.
    Ready,
    /// Data of this command: place them, then call [`HostConnection::handle_data`].
    Data {
        /// The command.
        cid: u16,
        /// Where they belong, from the beginning of the command's data.
        offset: u32,
        /// Their length in bytes.
        length: u32,
    },
    /// The controller asks for data of this command: call [`HostConnection::send_data`] until there
    /// are no more.
    Asked {
        /// The command.
        cid: u16,
    },
    /// A command ended. Its memory is the caller's again once the socket has no byte of it left.
    Completed(Cqe),
    /// The controller ends the connection.
    Terminated(TermReq),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// ICReq was sent.
    Opening,
    Running,
    Ended,
}

/// Data that an R2T asks for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    ttag: u16,
    end: u32,
}

#[derive(Debug, Clone, Copy)]
struct Command {
    data: HostData,
    /// Success does not need all data.
    may_be_short: bool,
    /// How many bytes were sent or received.
    moved: u32,
    asked: Option<Asked>,
    /// Data that are being received: where they end, and the flag SUCCESS.
    expected: Option<(u32, bool)>,
    /// A digest was wrong.
    spoiled: bool,
}

/// Whether a controller may send fewer data than the command has room for. The room of
/// Authentication Receive (AL) is the most that the host takes: SPDK sends the message alone, Linux
/// fills the room. NVMe Base, "Authentication Receive Command and Response"
fn may_be_short(sqe: &Sqe) -> bool {
    let is_fabrics = sqe.opcode == AdminOpcode::FABRICS.0;
    is_fabrics && FabricsType::of(sqe) == FabricsType::AUTHENTICATION_RECEIVE
}

/// The host's end of one connection.
#[derive(Debug)]
pub struct HostConnection {
    settings: HostSettings,
    state: State,
    sender: Sender,
    bounds: Bounds,
    capsule_data_bytes: u32,
    maxh2cdata: u32,
    commands: Outstanding<Command>,
}

impl HostConnection {
    /// Begins a connection: appends ICReq.
    #[must_use]
    pub fn new(settings: HostSettings, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&IcReq { hpda: 0, digests: settings.digests, maxr2t: 0 }.encode());
        let bounds = Bounds {
            receiver: Receiver::Host,
            digests: settings.digests,
            alignment: 4,
            capsule_data_bytes: 0,
            data_bytes: settings.transfer_bytes,
        };
        Self {
            settings,
            state: State::Opening,
            sender: Sender { digests: settings.digests, alignment: 4 },
            bounds,
            capsule_data_bytes: super::ADMIN_CAPSULE_DATA_BYTES,
            maxh2cdata: 0,
            commands: Outstanding::new(settings.entries),
        }
    }

    /// The most data that go into a capsule: 8192 bytes on an admin queue and for Connect, else
    /// what IOCCSZ says.
    pub const fn set_capsule_data_bytes(&mut self, bytes: u32) {
        self.capsule_data_bytes = bytes;
    }

    /// Whether a TermReq was sent or received.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The number of commands that were not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.commands.len()
    }

    /// Appends a command; its identifier and its SGL are set here.
    ///
    /// # Errors
    /// [`HostMisuse`]; nothing was appended.
    pub fn submit(&mut self, sqe: &Sqe, data: HostData, out: &mut Vec<u8>) -> Result<Submitted, HostMisuse> {
        if self.state != State::Running {
            return Err(HostMisuse::NotReady);
        }
        let (sgl, in_capsule) = match data {
            HostData::ToController(bytes) if bytes <= self.capsule_data_bytes => {
                (Sgl::InCapsule { offset: 0, length: bytes }, bytes)
            }
            HostData::ToController(bytes) | HostData::FromController(bytes) => {
                (Sgl::Transport { length: bytes }, 0)
            }
            HostData::None => (Sgl::Transport { length: 0 }, 0),
        };
        let bytes = sgl.length().unwrap_or_default();
        if bytes > self.settings.transfer_bytes {
            return Err(HostMisuse::TooLong(bytes));
        }
        let may_be_short = may_be_short(sqe);
        let command =
            Command { data, may_be_short, moved: in_capsule, asked: None, expected: None, spoiled: false };
        let cid = self.commands.insert(command).ok_or(HostMisuse::Full)?;
        CapsuleCmd { sqe: Sqe { cid, sgl, ..*sqe } }.encode(self.sender, in_capsule, out);
        Ok(Submitted { cid, in_capsule, digest: in_capsule > 0 && self.sender.digests.data })
    }

    /// How long a PDU is and where its data are, from its first eight bytes.
    ///
    /// # Errors
    /// [`Malformed`]: call [`HostConnection::fail`] with what was received of it.
    pub fn layout(&self, first: &[u8; HEADER_BYTES_MIN]) -> Result<Layout, Malformed> {
        Layout::of(first, &self.bounds)
    }

    /// The header of a PDU, with its digest.
    ///
    /// # Errors
    /// [`Malformed`]: call [`HostConnection::fail`] with the header.
    pub fn handle_header(&mut self, layout: &Layout, header: &[u8]) -> Result<HostReceived, Malformed> {
        match (self.state, Pdu::decode(layout, header)?) {
            (State::Opening | State::Running, Pdu::C2hTermReq(term)) => {
                self.state = State::Ended;
                Ok(HostReceived::Terminated(term))
            }
            (State::Opening, Pdu::IcResp(response)) => self.initialized(&response),
            (State::Running, Pdu::CapsuleResp(response)) => self.completed(&response.cqe),
            (State::Running, Pdu::C2hData(data)) => self.check_data(&data),
            (State::Running, Pdu::R2t(r2t)) => self.asked(&r2t),
            _ => Err(Malformed::of(FatalError::PDU_SEQUENCE_ERROR)),
        }
    }

    fn initialized(&mut self, response: &IcResp) -> Result<HostReceived, Malformed> {
        if response.digests != self.settings.digests {
            return Err(Malformed::unsupported(11));
        }
        // At most 31, which was checked.
        debug_assert!(response.cpda <= ALIGNMENT_MAX);
        self.sender.alignment = (response.cpda + 1) * 4;
        self.maxh2cdata = response.maxh2cdata;
        self.state = State::Running;
        Ok(HostReceived::Ready)
    }

    /// A completion. One that says success before all data have moved is none.
    fn completed(&mut self, cqe: &Cqe) -> Result<HostReceived, Malformed> {
        let sequence = Malformed::of(FatalError::PDU_SEQUENCE_ERROR);
        let command = *self.commands.get_mut(cqe.cid).ok_or(Malformed::header(20))?;
        let total = match command.data {
            HostData::None => 0,
            HostData::ToController(total) | HostData::FromController(total) => total,
        };
        let is_short = command.moved < total && !command.may_be_short;
        if cqe.status.is_success() && (is_short || command.expected.is_some()) {
            return Err(sequence);
        }
        self.commands.remove(cqe.cid);
        let status = if command.spoiled { Status::TRANSIENT_TRANSPORT_ERROR } else { cqe.status };
        Ok(HostReceived::Completed(Cqe { status, ..*cqe }))
    }

    /// Data from the controller come in order, for a command that reads, and never more than it has
    /// room for.
    fn check_data(&mut self, data: &C2hData) -> Result<HostReceived, Malformed> {
        let C2hData { cccid, offset, length, last, success } = *data;
        let command = self.commands.get_mut(cccid).ok_or(Malformed::header(8))?;
        let HostData::FromController(total) = command.data else { return Err(Malformed::header(8)) };
        let out_of_range = Malformed::of(FatalError::DATA_OUT_OF_RANGE);
        let end = offset.checked_add(length).ok_or(out_of_range)?;
        if offset != command.moved || end > total || command.expected.is_some() {
            return Err(out_of_range);
        }
        // Data that end too early can only be followed by a failure.
        if success && end != total && !command.may_be_short {
            return Err(out_of_range);
        }
        if end == total && !last {
            return Err(Malformed::header(1));
        }
        command.expected = Some((end, success));
        Ok(HostReceived::Data { cid: cccid, offset, length })
    }

    /// The data that were announced for this command are placed. `computed` is the digest of what
    /// was placed, and `received` what followed it on the wire, if the connection has digests.
    /// Returns the completion if the data imply it.
    pub fn handle_data(&mut self, cid: u16, computed: Option<Digest>, received: &[u8]) -> Option<Cqe> {
        let digests = self.sender.digests.data;
        let command = self.commands.get_mut(cid)?;
        let (end, success) = command.expected.take()?;
        command.moved = end;
        if digests && !computed.is_some_and(|computed| computed.matches(received)) {
            command.spoiled = true;
        }
        if !success {
            return None;
        }
        let command = self.commands.remove(cid)?;
        let status = if command.spoiled { Status::TRANSIENT_TRANSPORT_ERROR } else { Status::SUCCESS };
        Some(Cqe { result: 0, sqhd: SQHD_NO_FLOW_CONTROL, sqid: 0, cid, status })
    }

    /// The controller asks for the next data of a command that has them, one R2T at a time.
    fn asked(&mut self, r2t: &R2t) -> Result<HostReceived, Malformed> {
        let R2t { cccid, ttag, offset, length } = *r2t;
        let command = self.commands.get_mut(cccid).ok_or(Malformed::header(8))?;
        let HostData::ToController(total) = command.data else { return Err(Malformed::header(8)) };
        if command.asked.is_some() {
            return Err(Malformed::of(FatalError::DATA_TRANSFER_LIMIT_EXCEEDED));
        }
        let out_of_range = Malformed::of(FatalError::DATA_OUT_OF_RANGE);
        let end = offset.checked_add(length).ok_or(out_of_range)?;
        if offset != command.moved || length == 0 || end > total {
            return Err(out_of_range);
        }
        command.asked = Some(Asked { ttag, end });
        Ok(HostReceived::Asked { cid: cccid })
    }

    /// Appends the head of the next data that the controller has asked for, at most MAXH2CDATA, and
    /// says what follows; `None` when all of them were sent.
    pub fn send_data(&mut self, cid: u16, out: &mut Vec<u8>) -> Option<Sent> {
        let (sender, most) = (self.sender, self.maxh2cdata);
        let command = self.commands.get_mut(cid)?;
        let asked = command.asked?;
        let offset = command.moved;
        let length = (asked.end - offset).min(most);
        let last = offset + length == asked.end;
        command.moved += length;
        if last {
            command.asked = None;
        }
        H2cData { cccid: cid, ttag: asked.ttag, offset, length, last }.encode(sender, out);
        Some(Sent { offset, length, digest: sender.digests.data, respond: false })
    }

    /// The controller broke a rule: appends the TermReq, with what was received of the header at
    /// fault.
    pub fn fail(&mut self, malformed: Malformed, at_fault: &[u8], out: &mut Vec<u8>) {
        if self.state == State::Ended {
            return;
        }
        self.state = State::Ended;
        out.extend_from_slice(&TermReq::from(malformed).encode(Receiver::Controller, at_fault));
    }
}
