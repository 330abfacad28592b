//! The controller's end of a connection.

use crate::command::Direction;
use crate::digest::Digest;
use crate::fabrics::FabricsType;
use crate::pdu::{
    Bounds, C2hData, CapsuleResp, Digests, FatalError, H2cData, HEADER_BYTES_MIN, IcReq, IcResp, Layout,
    MAXH2CDATA_MIN, Malformed, Pdu, R2t, Receiver, Sender, TermReq,
};
use crate::{AdminOpcode, Cqe, Sgl, Sqe, Status};
use std::time::Duration;

/// The most data in a capsule of an admin queue or of Connect, in bytes. NVMe/TCP Transport,
/// "Capsules"
pub const ADMIN_CAPSULE_DATA_BYTES: u32 = 8192;

/// How long a host has from the connection to a Connect that succeeds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a target offers on its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The most data in a capsule of an I/O queue, in bytes: as IOCCSZ says.
    pub capsule_data_bytes: u32,
    /// The most data that one R2T asks for, and one H2CData carries, in bytes: a multiple of 4, at
    /// least 4096.
    pub transfer_bytes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { capsule_data_bytes: 8192, transfer_bytes: 1 << 20 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The host has sent nothing.
    Opening,
    /// ICReq came; Connect is next.
    Initialized,
    /// Connect came and was not answered.
    Connecting,
    /// A queue.
    Running,
    /// A TermReq was sent or received.
    Ended,
}

/// Data of a command that the host sends on request.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    cid: u16,
    total: u32,
    received: u32,
    /// Where the data end that were asked for.
    asked: u32,
    /// The header of the data that are being received: where they end.
    expected: Option<u32>,
    /// A digest was wrong.
    spoiled: bool,
}

/// How the data of a command move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// Not at all.
    None,
    /// This many bytes follow in the capsule; call [`TargetConnection::handle_capsule_data`] when
    /// they are there.
    InCapsule(u32),
    /// The host sends this many bytes when it is asked to: [`TargetConnection::ask`].
    OnRequest(u32),
    /// This many bytes go to the host: [`TargetConnection::send_data`].
    ToHost(u32),
}

/// What a PDU means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The host begins; the answer was appended.
    Initialized,
    /// A command. The first one is Connect: answer it by [`TargetConnection::accept`] or
    /// [`TargetConnection::respond`].
    Command {
        /// The command.
        sqe: Sqe,
        /// Its data.
        data: Incoming,
    },
    /// A command whose SGL does not suit it: answer it with this status. Data that follow in the
    /// capsule are dropped.
    Unsuitable {
        /// The command.
        sqe: Sqe,
        /// The status.
        status: Status,
    },
    /// Data for the transfer with this tag: place them, then call
    /// [`TargetConnection::handle_data`].
    Data {
        /// The tag.
        tag: u16,
        /// Where they belong, from the beginning of the command's data.
        offset: u32,
        /// Their length in bytes.
        length: u32,
    },
    /// The host ends the connection.
    Terminated(TermReq),
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More data come; if they have to be asked for, that was appended.
    More,
    /// All data are there.
    Complete,
    /// A digest was wrong: answer the command with this status. Nothing of it is executed.
    Failed(Status),
}

/// Data of a command for the host. They are sent in order; nothing else can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToHost {
    cid: u16,
    total: u32,
    sent: u32,
}

impl ToHost {
    /// All data of a command: this many bytes, at least one.
    #[must_use]
    pub const fn new(cid: u16, bytes: u32) -> Self {
        Self { cid, total: bytes, sent: 0 }
    }

    /// The bytes that were not sent.
    #[must_use]
    pub const fn left(&self) -> u32 {
        self.total - self.sent
    }
}

/// What follows the head of a C2HData.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The first byte of the command's data.
    pub offset: u32,
    /// The number of bytes that follow the head.
    pub length: u32,
    /// Whether the digest of the data follows them.
    pub digest: bool,
    /// Whether the completion has to follow: the data do not imply it.
    pub respond: bool,
}

/// The controller's end of one connection.
#[derive(Debug)]
pub struct TargetConnection {
    settings: Settings,
    state: State,
    sender: Sender,
    bounds: Bounds,
    flow_control: bool,
    deadline: Option<Duration>,
    /// By tag.
    transfers: Vec<Option<Transfer>>,
}

impl TargetConnection {
    /// A connection on which nothing was received.
    #[must_use]
    pub fn new(now: Duration, settings: Settings) -> Self {
        let transfer_bytes = settings.transfer_bytes.max(MAXH2CDATA_MIN) / 4 * 4;
        let settings = Settings { transfer_bytes, ..settings };
        let bounds = Bounds {
            receiver: Receiver::Controller,
            digests: Digests::default(),
            alignment: 4,
            capsule_data_bytes: ADMIN_CAPSULE_DATA_BYTES,
            data_bytes: transfer_bytes,
        };
        Self {
            settings,
            state: State::Opening,
            sender: Sender::default(),
            bounds,
            flow_control: true,
            deadline: Some(now + CONNECT_TIMEOUT),
            transfers: Vec::new(),
        }
    }

    /// When the host has waited too long with its Connect, if it has not connected.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Duration> {
        self.deadline
    }

    /// Whether the connection is to be closed because of the time.
    pub fn handle_timeout(&mut self, now: Duration) -> bool {
        let expired = self.deadline.is_some_and(|deadline| now >= deadline);
        if expired {
            self.deadline = None;
            self.state = State::Ended;
        }
        expired
    }

    /// Whether a TermReq was sent or received: what comes is ignored, and the connection closes
    /// when everything is sent.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The digests of the connection.
    #[must_use]
    pub const fn digests(&self) -> Digests {
        self.sender.digests
    }

    /// How long a PDU is and where its data are, from its first eight bytes.
    ///
    /// # Errors
    /// [`Malformed`]: call [`TargetConnection::fail`] with what was received of it.
    pub fn layout(&self, first: &[u8; HEADER_BYTES_MIN]) -> Result<Layout, Malformed> {
        Layout::of(first, &self.bounds)
    }

    /// The header of a PDU, with its digest.
    ///
    /// # Errors
    /// [`Malformed`]: call [`TargetConnection::fail`] with the header.
    pub fn handle_header(
        &mut self,
        now: Duration,
        layout: &Layout,
        header: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Received, Malformed> {
        let sequence = Malformed::of(FatalError::PDU_SEQUENCE_ERROR);
        match (self.state, Pdu::decode(layout, header)?) {
            (State::Ended, _) => Err(sequence),
            (_, Pdu::H2cTermReq(term)) => {
                self.state = State::Ended;
                Ok(Received::Terminated(term))
            }
            (State::Opening, Pdu::IcReq(request)) => Ok(self.initialize(now, &request, out)),
            (State::Initialized, Pdu::CapsuleCmd(command)) => {
                let is_connect = AdminOpcode(command.sqe.opcode) == AdminOpcode::FABRICS
                    && FabricsType::of(&command.sqe) == FabricsType::CONNECT;
                if !is_connect {
                    return Err(sequence);
                }
                self.state = State::Connecting;
                Ok(suit(command.sqe, layout.data_bytes))
            }
            (State::Running, Pdu::CapsuleCmd(command)) => Ok(suit(command.sqe, layout.data_bytes)),
            (State::Connecting | State::Running, Pdu::H2cData(data)) => self.check_data(&data),
            _ => Err(sequence),
        }
    }

    /// Grants what the host asks for. The digests are mirrored: Linux refuses to have more or
    /// fewer.
    fn initialize(&mut self, now: Duration, request: &IcReq, out: &mut Vec<u8>) -> Received {
        let digests = request.digests;
        let response = IcResp { cpda: 0, digests, maxh2cdata: self.settings.transfer_bytes };
        out.extend_from_slice(&response.encode());
        // At most 31, which was checked.
        self.sender = Sender { digests, alignment: (request.hpda + 1) * 4 };
        self.bounds.digests = digests;
        self.state = State::Initialized;
        self.deadline = Some(now + CONNECT_TIMEOUT);
        Received::Initialized
    }

    /// Connect succeeded: the connection is a queue. Appends its completion.
    pub fn accept(&mut self, is_admin: bool, flow_control: bool, cqe: &Cqe, out: &mut Vec<u8>) {
        if self.state != State::Connecting {
            return;
        }
        if !is_admin {
            self.bounds.capsule_data_bytes = self.settings.capsule_data_bytes;
        }
        self.flow_control = flow_control;
        self.deadline = None;
        self.state = State::Running;
        self.respond(cqe, out);
    }

    /// Whether the data that came in a capsule are what the host sent. `computed` is the digest of
    /// what was placed, and `received` what followed it on the wire, if the connection has digests.
    #[must_use]
    pub fn handle_capsule_data(&self, computed: Option<Digest>, received: &[u8]) -> Progress {
        if self.digest_is_well(computed, received) { Progress::Complete } else { spoiled() }
    }

    /// Asks for the data of a command under a tag that no other transfer has. The memory for them
    /// is there. Appends the R2T.
    pub fn ask(&mut self, tag: u16, cid: u16, bytes: u32, out: &mut Vec<u8>) {
        let at = usize::from(tag);
        if self.transfers.len() <= at {
            self.transfers.resize(at + 1, None);
        }
        let transfer = Transfer { cid, total: bytes, received: 0, asked: 0, expected: None, spoiled: false };
        if let Some(place) = self.transfers.get_mut(at) {
            debug_assert!(place.is_none(), "a tag has one transfer");
            *place = Some(transfer);
        }
        self.ask_more(tag, out);
    }

    /// One R2T at a time for each command: it is what a MAXR2T of 0 allows.
    fn ask_more(&mut self, tag: u16, out: &mut Vec<u8>) {
        let (sender, most) = (self.sender, self.settings.transfer_bytes);
        let Some(transfer) = self.transfer(tag) else { return };
        let (cccid, offset) = (transfer.cid, transfer.asked);
        let length = (transfer.total - offset).min(most);
        transfer.asked += length;
        R2t { cccid, ttag: tag, offset, length }.encode(sender, out);
    }

    fn transfer(&mut self, tag: u16) -> Option<&mut Transfer> {
        self.transfers.get_mut(usize::from(tag))?.as_mut()
    }

    /// Data that nobody asked for, or other than was asked for, end the connection before a byte of
    /// them is placed. NVMe/TCP Transport, "Host To Controller Data Transfer PDU (H2CData)"
    fn check_data(&mut self, data: &H2cData) -> Result<Received, Malformed> {
        let H2cData { cccid, ttag, offset, length, last } = *data;
        let Some(transfer) = self.transfer(ttag) else { return Err(Malformed::header(10)) };
        if transfer.cid != cccid {
            return Err(Malformed::header(8));
        }
        let out_of_range = Malformed::of(FatalError::DATA_OUT_OF_RANGE);
        let end = offset.checked_add(length).ok_or(out_of_range)?;
        if offset != transfer.received || end > transfer.asked || transfer.expected.is_some() {
            return Err(out_of_range);
        }
        if last != (end == transfer.asked) {
            return Err(Malformed::header(1));
        }
        transfer.expected = Some(end);
        Ok(Received::Data { tag: ttag, offset, length })
    }

    /// The data that were announced for this transfer are placed. `computed` is the digest of what
    /// was placed, and `received` what followed it on the wire, if the connection has digests.
    pub fn handle_data(
        &mut self,
        tag: u16,
        computed: Option<Digest>,
        received: &[u8],
        out: &mut Vec<u8>,
    ) -> Progress {
        let well = self.digest_is_well(computed, received);
        let Some(transfer) = self.transfer(tag) else { return Progress::More };
        let Some(end) = transfer.expected.take() else { return Progress::More };
        transfer.received = end;
        transfer.spoiled |= !well;
        if end < transfer.asked {
            return Progress::More;
        }
        let (spoilt, complete) = (transfer.spoiled, end == transfer.total);
        // Once data are spoiled, no more are asked for.
        if !spoilt && !complete {
            self.ask_more(tag, out);
            return Progress::More;
        }
        if let Some(place) = self.transfers.get_mut(usize::from(tag)) {
            *place = None;
        }
        if spoilt { spoiled() } else { Progress::Complete }
    }

    fn digest_is_well(&self, computed: Option<Digest>, received: &[u8]) -> bool {
        !self.sender.digests.data || computed.is_some_and(|computed| computed.matches(received))
    }

    /// Appends the head of the next data of a command, and says what follows. The last data imply
    /// that the command succeeded if nothing is lost by it: the queue has no flow control, and the
    /// completion has no result.
    pub fn send_data(&self, data: &mut ToHost, length: u32, cqe: &Cqe, out: &mut Vec<u8>) -> Sent {
        let offset = data.sent;
        let length = length.min(data.left());
        data.sent += length;
        let last = data.left() == 0;
        let success = last && !self.flow_control && cqe.result == 0 && cqe.status == Status::SUCCESS;
        if length > 0 {
            C2hData { cccid: data.cid, offset, length, last, success }.encode(self.sender, out);
        }
        let digest = length > 0 && self.sender.digests.data;
        Sent { offset, length, digest, respond: last && !(success && length > 0) }
    }

    /// Appends a completion.
    pub fn respond(&self, cqe: &Cqe, out: &mut Vec<u8>) {
        CapsuleResp { cqe: *cqe }.encode(self.sender, out);
    }

    /// The host broke a rule: appends the TermReq, with what was received of the header at fault.
    pub fn fail(&mut self, malformed: Malformed, at_fault: &[u8], out: &mut Vec<u8>) {
        if self.state == State::Ended {
            return;
        }
        self.state = State::Ended;
        out.extend_from_slice(&TermReq::from(malformed).encode(Receiver::Host, at_fault));
    }
}

/// A data digest was wrong: the command fails, and the connection goes on. NVMe/TCP Transport,
/// "Data Digest (DDGST)"
const fn spoiled() -> Progress {
    Progress::Failed(Status::TRANSIENT_TRANSPORT_ERROR)
}

/// Whether the SGL of a command suits its direction and what came in the capsule. NVMe/TCP
/// Transport, "Data Transfer"
fn suit(sqe: Sqe, in_capsule: u32) -> Received {
    let refuse = |status: Status| Received::Unsuitable { sqe, status: status.no_retry() };
    let data = match (sqe.direction(), sqe.sgl) {
        // A descriptor of no bytes is no data, whatever its type.
        (_, sgl) if sgl.length() == Some(0) && in_capsule == 0 => Incoming::None,
        (Direction::ToController, Sgl::InCapsule { offset, length }) => {
            if offset != 0 {
                return refuse(Status::SGL_INVALID_OFFSET);
            }
            if length != in_capsule {
                return refuse(Status::SGL_INVALID_LENGTH);
            }
            Incoming::InCapsule(length)
        }
        (Direction::ToController, Sgl::Transport { length }) if in_capsule == 0 => {
            Incoming::OnRequest(length)
        }
        (Direction::ToHost, Sgl::Transport { length }) if in_capsule == 0 => Incoming::ToHost(length),
        (_, Sgl::Keyed { .. } | Sgl::Other(_)) => return refuse(Status::SGL_INVALID_TYPE),
        _ => return refuse(Status::INVALID_FIELD),
    };
    Received::Command { sqe, data }
}
