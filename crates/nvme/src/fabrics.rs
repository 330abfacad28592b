//! The commands of Fabrics: Connect, Property Get and Set, Disconnect, and the headers of
//! Authentication Send and Receive. NVMe Base 2.0 (NVMe over Fabrics), "Fabrics Command Set".

use crate::command::{AdminOpcode, PSDT_SGL, Sqe};
use crate::layout::{flags, layout, numbers};
use crate::nqn::{HostId, NQN_FIELD_BYTES, Nqn, NqnError};
use crate::sgl::Sgl;

numbers! {
    /// The type of a command of Fabrics (FCTYPE).
    pub struct FabricsType(u8) {
        /// Changes a property.
        PROPERTY_SET = 0x00,
        /// Connects a queue.
        CONNECT = 0x01,
        /// Reads a property.
        PROPERTY_GET = 0x04,
        /// Sends a message of authentication.
        AUTHENTICATION_SEND = 0x05,
        /// Receives a message of authentication.
        AUTHENTICATION_RECEIVE = 0x06,
        /// Ends an I/O queue.
        DISCONNECT = 0x08,
    }
}

impl FabricsType {
    /// The type of a command whose opcode is that of Fabrics.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self(sqe.nsid as u8)
    }
}

/// The controller identifier that asks for any controller: the dynamic controller model.
pub const CNTLID_DYNAMIC: u16 = 0xffff;

/// The largest identifier of a controller; those above are reserved.
pub const CNTLID_MAX: u16 = 0xffef;

flags! {
    /// Attributes of a connection (CATTR). "Connect Command"
    pub struct ConnectAttributes(u8) {
        /// The queue has no flow control by SQHD (DISSQFLOW).
        DISABLE_SQ_FLOW = 1 << 2,
        /// I/O queues may be deleted one by one, by Disconnect.
        INDIVIDUAL_IO_QUEUE_DELETION = 1 << 3,
    }
}

/// Connect: what stands in the command. "Connect Command"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// The format of the record; 0 is the only one.
    pub recfmt: u16,
    /// The queue: 0 is the admin queue.
    pub qid: u16,
    /// The number of entries of the queue, minus one.
    pub sqsize: u16,
    /// Attributes.
    pub attributes: ConnectAttributes,
    /// The keep-alive timeout in milliseconds; 0 for none. Only for the admin queue.
    pub kato_ms: u32,
}

impl Connect {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        Self {
            recfmt: sqe.cdw10 as u16,
            qid: (sqe.cdw10 >> 16) as u16,
            sqsize: sqe.cdw11 as u16,
            attributes: ConnectAttributes((sqe.cdw11 >> 16) as u8),
            kato_ms: sqe.cdw12,
        }
    }

    /// The command.
    #[must_use]
    pub fn command(&self, cid: u16, sgl: Sgl) -> Sqe {
        Sqe {
            sgl,
            cdw10: u32::from(self.recfmt) | u32::from(self.qid) << 16,
            cdw11: u32::from(self.sqsize) | u32::from(self.attributes.0) << 16,
            cdw12: self.kato_ms,
            ..command(FabricsType::CONNECT, cid)
        }
    }
}

layout! {
    /// The data of Connect. "Connect Command – Data"
    pub struct ConnectData[1024] {
        /// The identifier of the host.
        host_id: HostId = 0,
        /// The controller; [`CNTLID_DYNAMIC`] for the admin queue.
        cntlid: u16 = 16,
        /// The name of the subsystem.
        subnqn: [u8; NQN_FIELD_BYTES] = 256,
        /// The name of the host.
        hostnqn: [u8; NQN_FIELD_BYTES] = 512,
    }
}

impl ConnectData {
    /// The data for these names.
    #[must_use]
    pub fn new(host_id: HostId, cntlid: u16, subsystem: &Nqn, host: &Nqn) -> Self {
        Self { host_id, cntlid, subnqn: subsystem.encode(), hostnqn: host.encode() }
    }

    /// The name of the subsystem.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::decode(&self.subnqn)
    }

    /// The name of the host.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn host(&self) -> Result<Nqn, NqnError> {
        Nqn::decode(&self.hostnqn)
    }
}

/// Where the parameter is that Connect refuses as invalid: the result of
/// [`Status::CONNECT_INVALID_PARAMETERS`](crate::Status::CONNECT_INVALID_PARAMETERS) and
/// [`Status::CONNECT_INVALID_HOST`](crate::Status::CONNECT_INVALID_HOST). "Connect Response"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidParameter {
    /// Whether it is in the data (IATTR), else in the command.
    pub in_data: bool,
    /// Its offset in bytes (IPO).
    pub offset: u16,
}

impl InvalidParameter {
    /// RECFMT.
    pub const RECFMT: Self = Self { in_data: false, offset: 40 };
    /// QID.
    pub const QID: Self = Self { in_data: false, offset: 42 };
    /// SQSIZE.
    pub const SQSIZE: Self = Self { in_data: false, offset: 44 };
    /// CATTR.
    pub const ATTRIBUTES: Self = Self { in_data: false, offset: 46 };
    /// KATO.
    pub const KATO: Self = Self { in_data: false, offset: 48 };
    /// HOSTID.
    pub const HOST_ID: Self = Self { in_data: true, offset: 0 };
    /// CNTLID.
    pub const CNTLID: Self = Self { in_data: true, offset: 16 };
    /// SUBNQN.
    pub const SUBNQN: Self = Self { in_data: true, offset: 256 };
    /// HOSTNQN.
    pub const HOSTNQN: Self = Self { in_data: true, offset: 512 };

    /// The result of the completion.
    #[must_use]
    pub fn result(self) -> u64 {
        u64::from(self.offset) | u64::from(self.in_data) << 16
    }

    /// Reads the result of a completion.
    #[must_use]
    pub const fn of(result: u64) -> Self {
        Self { in_data: result >> 16 & 1 != 0, offset: result as u16 }
    }
}

/// What a successful Connect answers. "Connect Response"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// The controller.
    pub cntlid: u16,
    /// Whether the host must authenticate in band before it may do anything else (ATR).
    pub authentication_required: bool,
    /// Whether it must then set up a secure channel too (ASCR).
    pub secure_channel_required: bool,
}

impl Connected {
    const ATR: u32 = 1 << 17;
    const ASCR: u32 = 1 << 18;

    /// The answer of a controller that asks for no authentication.
    #[must_use]
    pub const fn new(cntlid: u16) -> Self {
        Self { cntlid, authentication_required: false, secure_channel_required: false }
    }

    /// The result of the completion.
    #[must_use]
    pub fn result(self) -> u64 {
        let atr = if self.authentication_required { Self::ATR } else { 0 };
        let ascr = if self.secure_channel_required { Self::ASCR } else { 0 };
        u64::from(u32::from(self.cntlid) | atr | ascr)
    }

    /// Reads the result of a completion.
    #[must_use]
    pub const fn of(result: u64) -> Self {
        Self {
            cntlid: result as u16,
            authentication_required: result as u32 & Self::ATR != 0,
            secure_channel_required: result as u32 & Self::ASCR != 0,
        }
    }
}

/// Property Get or Property Set. "Property Get Command", "Property Set Command"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Property {
    /// Whether the property has eight bytes instead of four; `None` for a size that is not defined.
    pub is_8_bytes: Option<bool>,
    /// The offset of the property ([`crate::register`]).
    pub offset: u32,
    /// The value that is set.
    pub value: u64,
}

impl Property {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        let is_8_bytes = match sqe.cdw10 & 7 {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Self { is_8_bytes, offset: sqe.cdw11, value: sqe.cdw12_13() }
    }

    /// The command that reads a property.
    #[must_use]
    pub fn get(cid: u16, offset: u32, is_8_bytes: bool) -> Sqe {
        Sqe { cdw10: is_8_bytes.into(), cdw11: offset, ..command(FabricsType::PROPERTY_GET, cid) }
    }

    /// The command that changes a property of four bytes.
    #[must_use]
    pub fn set(cid: u16, offset: u32, value: u32) -> Sqe {
        Sqe { cdw11: offset, cdw12: value, ..command(FabricsType::PROPERTY_SET, cid) }
    }
}

/// Disconnect, which ends an I/O queue. "Disconnect Command"
#[must_use]
pub fn disconnect(cid: u16) -> Sqe {
    command(FabricsType::DISCONNECT, cid)
}

/// The header of Authentication Send and Receive. "Authentication Send Command and Response"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authentication {
    /// The security protocol; E9h for NVMe.
    pub secp: u8,
    /// Two bytes that belong to the protocol (SPSP0, SPSP1).
    pub spsp: [u8; 2],
    /// The length of the message sent, or of the room for one, in bytes.
    pub length: u32,
}

/// The security protocol of in-band authentication over NVMe.
pub const SECP_NVME: u8 = 0xe9;

impl Authentication {
    /// Reads the fields of a command.
    #[must_use]
    pub const fn of(sqe: &Sqe) -> Self {
        let [_, spsp0, spsp1, secp] = sqe.cdw10.to_le_bytes();
        Self { secp, spsp: [spsp0, spsp1], length: sqe.cdw11 }
    }

    /// The command of this type.
    #[must_use]
    pub fn command(&self, fctype: FabricsType, cid: u16, sgl: Sgl) -> Sqe {
        let [spsp0, spsp1] = self.spsp;
        let cdw10 = u32::from_le_bytes([0, spsp0, spsp1, self.secp]);
        Sqe { sgl, cdw10, cdw11: self.length, ..command(fctype, cid) }
    }
}

fn command(fctype: FabricsType, cid: u16) -> Sqe {
    Sqe { opcode: AdminOpcode::FABRICS.0, flags: PSDT_SGL, cid, nsid: fctype.0.into(), ..Sqe::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register;

    #[test]
    fn connect_as_linux_sends_it() {
        let attributes = ConnectAttributes::DISABLE_SQ_FLOW;
        let connect = Connect { recfmt: 0, qid: 2, sqsize: 127, attributes, kato_ms: 5000 };
        let sqe = connect.command(0x1001, Sgl::InCapsule { offset: 0, length: 1024 });
        let bytes = sqe.encode();
        assert_eq!(bytes[..8], [0x7f, 0x40, 0x01, 0x10, 0x01, 0, 0, 0]);
        assert_eq!(bytes[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0x01]);
        assert_eq!(bytes[40..52], [0, 0, 2, 0, 127, 0, 0x04, 0, 0x88, 0x13, 0, 0]);
        assert_eq!(Connect::of(&sqe), connect);
        assert_eq!(FabricsType::of(&sqe), FabricsType::CONNECT);
    }

    #[test]
    fn the_data_of_connect_have_their_names_at_256_and_512() {
        let (subsystem, host) = (Nqn::new("nqn.2026-11.test:a"), Nqn::new("nqn.2026-11.test:h"));
        let (subsystem, host) = (subsystem.expect("valid"), host.expect("valid"));
        let data = ConnectData::new(HostId([7; 16]), CNTLID_DYNAMIC, &subsystem, &host);
        let bytes = data.encode();
        assert_eq!(bytes[..18], [[7; 16].as_slice(), &[0xff, 0xff]].concat());
        assert_eq!(&bytes[256..275], b"nqn.2026-11.test:a\0");
        assert_eq!(&bytes[512..531], b"nqn.2026-11.test:h\0");
        let read = ConnectData::decode(&bytes).expect("whole");
        assert_eq!((read.subsystem(), read.host()), (Ok(subsystem), Ok(host)));
        assert_eq!(ConnectData::decode(&bytes[..1023]).map_err(|short| short.needed), Err(1024));
    }

    #[test]
    fn a_refused_parameter_is_found_at_the_offset_of_its_bytes() {
        let sqe = Connect {
            recfmt: 0x1111,
            qid: 0x2222,
            sqsize: 0x3333,
            attributes: ConnectAttributes(0x44),
            kato_ms: 0x5555_5555,
        };
        let bytes = sqe.command(0, Sgl::NONE).encode();
        let first = |parameter: InvalidParameter| bytes[usize::from(parameter.offset)];
        let command = [
            InvalidParameter::RECFMT,
            InvalidParameter::QID,
            InvalidParameter::SQSIZE,
            InvalidParameter::ATTRIBUTES,
            InvalidParameter::KATO,
        ];
        assert_eq!(command.map(first), [0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!(InvalidParameter::HOSTNQN.result(), 0x1_0200);
        assert_eq!(InvalidParameter::of(0x1_0200), InvalidParameter::HOSTNQN);
        assert_eq!(InvalidParameter::of(InvalidParameter::QID.result()), InvalidParameter::QID);
    }

    #[test]
    fn the_result_of_connect_says_whether_to_authenticate() {
        let connected = Connected { authentication_required: true, ..Connected::new(0x0102) };
        assert_eq!(connected.result(), 0x0002_0102);
        assert_eq!(Connected::of(0x0002_0102), connected);
        let connected = Connected { secure_channel_required: true, ..Connected::new(0xffef) };
        assert_eq!(connected.result(), 0x0004_ffef);
        assert_eq!(Connected::of(0x0004_ffef), connected);
        assert_eq!(Connected::of(5), Connected::new(5));
    }

    #[test]
    fn properties_have_four_or_eight_bytes() {
        let get = Property::get(1, register::CAP, true);
        assert_eq!(get.encode()[40..48], [1, 0, 0, 0, 0, 0, 0, 0]);
        let set = Property::set(1, register::CC, 0x0046_0001);
        assert_eq!(set.encode()[40..56], [0, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0x46, 0, 0, 0, 0, 0]);
        let read = Property { is_8_bytes: Some(false), offset: register::CC, value: 0x0046_0001 };
        assert_eq!(Property::of(&set), read);
        assert_eq!(Property::of(&Sqe { cdw10: 2, ..set }).is_8_bytes, None);
    }

    #[test]
    fn the_headers_of_authentication() {
        let header = Authentication { secp: SECP_NVME, spsp: [1, 1], length: 76 };
        let sqe = header.command(FabricsType::AUTHENTICATION_SEND, 9, Sgl::Transport { length: 76 });
        assert_eq!(sqe.encode()[40..48], [0, 1, 1, 0xe9, 76, 0, 0, 0]);
        assert_eq!(Authentication::of(&sqe), header);
    }
}
