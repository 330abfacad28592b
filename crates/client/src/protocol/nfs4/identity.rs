//! Who client and server are to each other, and the sessions between them: EXCHANGE_ID,
//! CREATE_SESSION, BIND_CONN_TO_SESSION, DESTROY_SESSION, DESTROY_CLIENTID, each alone in its
//! compound. RFC 8881 s18.34 to s18.37, s18.50

use ::nfs4::compound::ReplyReader;
use ::nfs4::op::create_session::{self, CallbackSecurity, ChannelAttributes};
use ::nfs4::op::exchange_id::{self, Protection, flag};
use ::nfs4::op::session_control::{BindArgs, Channels, WantedChannels};
use ::nfs4::op::{Args, Fore, kind};
use ::nfs4::table::Kind;
use ::nfs4::{Array, ClientId, ClientOwner as Owner, ImplementationId, OwnerId, SessionId, Status, sizes};
use fs::Time;

use super::compound;
use crate::call_backs;

/// Shorter reads and writes would be useless; Linux uses 512.
pub(crate) const TRANSFER_MIN: u32 = 1024;
/// The least that a server must keep of a reply. All calls that change something ask for that; the
/// longest of them return a handle and attributes with owners.
const CACHED_REPLY_MIN: u32 = 1024;
/// Operations of a compound: no call here has more.
const OPERATIONS: u32 = 8;
/// What call-backs need. Servers check the numbers also where no call-backs are wanted. RFC 8881
/// s18.36.3
const CALLBACKS: ChannelAttributes = ChannelAttributes {
    header_pad: 0,
    request_max: call_backs::BYTES_MAX,
    reply_max: call_backs::BYTES_MAX,
    cached_reply_max: call_backs::BYTES_MAX,
    operations_max: call_backs::OPERATIONS_MAX,
    requests_max: call_backs::SLOTS_MAX,
    rdma_ird: None,
};

const IMPLEMENTATION: ImplementationId<'static> = ImplementationId {
    domain: b"trunkline",
    name: env!("CARGO_PKG_VERSION").as_bytes(),
    date: Time::from_seconds(0),
};

/// What became of such a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked<T> {
    Granted(T),
    Failed(Status),
    Nonsense(String),
}

/// Who this client is to a server. RFC 8881 s2.4
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientOwner {
    /// The same for the life of a mount.
    pub owner: Vec<u8>,
    pub verifier: fs::Verifier,
}

/// Who a server is, and who this client is to it. Where all of it is the same, a session may have
/// connections. RFC 8881 s2.10.5
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub client: ClientId,
    pub major: Vec<u8>,
    pub minor: u64,
    pub scope: Vec<u8>,
    /// The number of the first CREATE_SESSION of a client that has none yet. It is no part of who
    /// anybody is.
    pub sequence: u32,
    /// The client has had a session, so that the number above says nothing. RFC 8881 s18.35.4
    pub is_confirmed: bool,
}

impl Exchanged {
    /// Why connections to the two do not belong to one session; `None` if they do.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.major != other.major || self.minor != other.minor {
            Some("the server's owner")
        } else if self.scope != other.scope {
            Some("the server's scope")
        } else if self.client != other.client {
            Some("the client's number")
        } else {
            None
        }
    }
}

/// What a session is to be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub minor: u32,
    pub slots: u32,
    /// Bytes of data of the longest call.
    pub payload: u32,
    /// The server may call this client back.
    pub call_backs: bool,
}

impl Wanted {
    const fn channel(self) -> ChannelAttributes {
        sizes::fore_channel(self.payload, self.slots, OPERATIONS)
    }
}

/// A session, as the server grants it; nothing is above what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub session: SessionId,
    pub slots: u32,
    pub request_bytes: u32,
    pub reply_bytes: u32,
    pub cached_reply_bytes: u32,
    pub operations: u32,
    /// Slots of the back channel.
    pub back_slots: u32,
}

/// What a session must allow to be of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    pub slots: u32,
    /// Bytes of data of the longest reply, and of the longest request.
    pub read: u32,
    pub write: u32,
}

impl Needs {
    /// What any mount needs: a slot for calls and one for validations, and transfers that get
    /// somewhere.
    pub(crate) const LEAST: Self = Self { slots: 2, read: TRANSFER_MIN, write: TRANSFER_MIN };
}

/// Reads the only result of a compound.
fn only<'a, K, S>(results: &'a [u8]) -> Asked<S>
where
    K: Kind<Family = Fore, Reply<'a> = Result<S, Status>>,
{
    let nonsense = |error: ::nfs4::compound::ReplyError| Asked::Nonsense(error.to_string());
    let mut reader = match ReplyReader::<Fore>::new(results) {
        Ok(reader) => reader,
        Err(error) => return nonsense(error),
    };
    if reader.results == 0 && reader.status != Status::OK {
        return Asked::Failed(reader.status);
    }
    match reader.expect::<K>() {
        Ok(Ok(success)) => match reader.finish() {
            Ok(()) => Asked::Granted(success),
            Err(error) => nonsense(error),
        },
        Ok(Err(status)) => Asked::Failed(status),
        Err(error) => nonsense(error),
    }
}

/// EXCHANGE_ID. RFC 8881 s18.35
pub(crate) fn exchange_id(minor: u32, client: &ClientOwner) -> Vec<u8> {
    let owner = OwnerId::new(&client.owner).unwrap_or_default();
    let args = exchange_id::Args {
        client: Owner { verifier: client.verifier, owner },
        flags: flag::USE_NON_PNFS,
        protection: Protection::None,
        implementation: Some(IMPLEMENTATION),
    };
    compound(minor, |to| _ = to.push(&Args::ExchangeId(args)))
}

pub(crate) fn exchanged(results: &[u8]) -> Asked<Exchanged> {
    match only::<kind::ExchangeId, _>(results) {
        Asked::Granted(told) => Asked::Granted(Exchanged {
            client: told.client,
            major: told.server.major.as_slice().to_vec(),
            minor: told.server.minor,
            scope: told.scope.as_slice().to_vec(),
            sequence: told.sequence,
            is_confirmed: told.flags & flag::CONFIRMED_R != 0,
        }),
        Asked::Failed(status) => Asked::Failed(status),
        Asked::Nonsense(reason) => Asked::Nonsense(reason),
    }
}

/// CREATE_SESSION with this number. The connection that it is made on soon ends. It is offered for
/// call-backs all the same, because some servers only then have a back channel. RFC 8881 s18.36
pub(crate) fn create_session(client: ClientId, sequence: u32, wanted: Wanted) -> Vec<u8> {
    let security = [CallbackSecurity::None];
    let args = create_session::Args {
        client,
        sequence,
        flags: if wanted.call_backs { create_session::CONN_BACK_CHAN } else { 0 },
        fore: wanted.channel(),
        back: CALLBACKS,
        callback_program: call_backs::PROGRAM,
        callback_security: Array::from(&security),
    };
    compound(wanted.minor, |to| _ = to.push(&Args::CreateSession(args)))
}

pub(crate) fn session_created(results: &[u8], wanted: Wanted) -> Asked<Granted> {
    let asked = wanted.channel();
    match only::<kind::CreateSession, _>(results) {
        Asked::Granted(told) => Asked::Granted(Granted {
            session: told.session,
            slots: told.fore.requests_max.min(asked.requests_max),
            request_bytes: told.fore.request_max.min(asked.request_max),
            reply_bytes: told.fore.reply_max.min(asked.reply_max),
            cached_reply_bytes: told.fore.cached_reply_max.min(asked.cached_reply_max),
            operations: told.fore.operations_max.min(asked.operations_max),
            back_slots: told.back.requests_max.min(CALLBACKS.requests_max),
        }),
        Asked::Failed(status) => Asked::Failed(status),
        Asked::Nonsense(reason) => Asked::Nonsense(reason),
    }
}

impl Granted {
    /// Why the session is of no use; `None` if it is.
    pub(crate) fn is_short_of(&self, needs: &Needs) -> Option<String> {
        let (read, write) = self.payload();
        let operations = OPERATIONS - 1;
        [
            (self.operations, operations, "operations in a call"),
            (self.slots, needs.slots, "calls at a time"),
            (write, needs.write, "bytes of data in a request"),
            (read, needs.read, "bytes of data in a reply"),
            (self.cached_reply_bytes, CACHED_REPLY_MIN, "bytes in a reply that is kept"),
        ]
        .into_iter()
        .find(|(granted, needed, _)| granted < needed)
        .map(|(granted, needed, what)| format!("its sessions allow {granted} {what}; {needed} are needed"))
    }

    /// The most bytes of data of a READ and of a WRITE. RFC 8881 s18.36.3
    pub(crate) const fn payload(&self) -> (u32, u32) {
        let read = self.reply_bytes.saturating_sub(sizes::read_reply_bytes(0));
        let write = self.request_bytes.saturating_sub(sizes::write_request_bytes(0));
        (read, write)
    }
}

/// BIND_CONN_TO_SESSION, for a server on which a connection does not belong to the session whose
/// calls it carries by that alone, or to have it carry call-backs besides. The connection stays
/// what it is, over RDMA as well. RFC 8881 s18.34
pub(crate) fn bind(minor: u32, session: SessionId, call_backs: bool) -> Vec<u8> {
    let channels = if call_backs { WantedChannels::ForeOrBoth } else { WantedChannels::Fore };
    let args = BindArgs { session, channels, rdma_mode: false };
    compound(minor, |to| _ = to.push(&Args::BindConnToSession(args)))
}

/// Whether the connection carries call-backs.
pub(crate) fn bound(results: &[u8]) -> Asked<bool> {
    match only::<kind::BindConnToSession, _>(results) {
        Asked::Granted(told) => Asked::Granted(told.channels != Channels::Fore),
        Asked::Failed(status) => Asked::Failed(status),
        Asked::Nonsense(reason) => Asked::Nonsense(reason),
    }
}

pub(crate) fn session_destroyed(results: &[u8]) -> Asked<()> {
    only::<kind::DestroySession, _>(results)
}

pub(crate) fn client_destroyed(results: &[u8]) -> Asked<()> {
    only::<kind::DestroyClientId, _>(results)
}

/// DESTROY_SESSION. RFC 8881 s18.37
pub(crate) fn destroy_session(minor: u32, session: SessionId) -> Vec<u8> {
    compound(minor, |to| _ = to.push(&Args::DestroySession(create_session::DestroyArgs { session })))
}

/// DESTROY_CLIENTID. RFC 8881 s18.50
pub(crate) fn destroy_client(minor: u32, client: ClientId) -> Vec<u8> {
    compound(minor, |to| _ = to.push(&Args::DestroyClientId(exchange_id::DestroyArgs { client })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::nfs4::compound::{ReplyWriter, RequestReader};
    use ::nfs4::op::{Reply, exchange_id::Protected};
    use ::nfs4::{Opaque, ServerOwner};

    const WANTED: Wanted = Wanted { minor: 2, slots: 64, payload: 1 << 20, call_backs: false };

    fn reply(result: &Reply<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
        writer.push(result);
        writer.finish();
        out
    }

    fn told(client: u64, major: &'static [u8], minor: u64, scope: &'static [u8]) -> Vec<u8> {
        reply(&Reply::ExchangeId(Ok(exchange_id::Success {
            client: ClientId(client),
            sequence: 5,
            flags: flag::USE_NON_PNFS | flag::CONFIRMED_R,
            protection: Protected::None,
            server: ServerOwner { minor, major: Opaque::new(major).unwrap() },
            scope: Opaque::new(scope).unwrap(),
            implementation: None,
        })))
    }

    fn exchanged_of(bytes: &[u8]) -> Exchanged {
        match exchanged(bytes) {
            Asked::Granted(exchanged) => exchanged,
            other => panic!("{other:?}"),
        }
    }

    // RFC 8881 s2.10.5
    #[test]
    fn connections_are_of_one_session_only_where_server_scope_and_client_are_the_same() {
        let one = exchanged_of(&told(7, b"server", 1, b"scope"));
        assert_eq!((one.client, one.sequence), (ClientId(7), 5));
        assert_eq!(one.difference(&one.clone()), None);
        for (other, why) in [
            (told(8, b"server", 1, b"scope"), "client"),
            (told(7, b"others", 1, b"scope"), "owner"),
            (told(7, b"server", 2, b"scope"), "owner"),
            (told(7, b"server", 1, b"other"), "scope"),
        ] {
            assert!(one.difference(&exchanged_of(&other)).unwrap().contains(why));
        }
    }

    #[test]
    fn failures_and_nonsense_are_told_apart() {
        let refused = reply(&Reply::ExchangeId(Err(Status::CLID_INUSE)));
        assert_eq!(exchanged(&refused), Asked::Failed(Status::CLID_INUSE));
        let mismatch = [Status::MINOR_VERS_MISMATCH.0, 0, 0].map(u32::to_be_bytes).concat();
        assert_eq!(exchanged(&mismatch), Asked::Failed(Status::MINOR_VERS_MISMATCH));
        let whole = told(7, b"server", 1, b"scope");
        for len in 0..whole.len() {
            assert!(matches!(exchanged(&whole[..len]), Asked::Nonsense(_)), "{len} bytes");
        }
        assert!(matches!(session_created(&whole, WANTED), Asked::Nonsense(_)), "another operation");
    }

    // RFC 8881 s18.35, s18.36
    #[test]
    fn each_call_is_alone_in_its_compound() {
        let owner = ClientOwner { owner: b"owner".to_vec(), verifier: [1; 8] };
        let of = exchanged_of(&told(7, b"server", 1, b"scope"));
        let session = SessionId([3; 16]);
        for call in [
            exchange_id(2, &owner),
            create_session(of.client, 5, WANTED),
            bind(2, session, false),
            destroy_session(2, session),
            destroy_client(2, of.client),
        ] {
            let mut requests = RequestReader::<Fore>::new(&call).unwrap();
            assert_eq!((requests.minor, requests.operations), (2, 1));
            let request = requests.next_operation().unwrap().unwrap();
            match request.args {
                Args::ExchangeId(args) => assert_eq!(args.client.owner.as_slice(), b"owner"),
                Args::CreateSession(args) => {
                    assert_eq!((args.client, args.sequence, args.flags), (ClientId(7), 5, 0));
                    assert_eq!((args.fore.requests_max, args.fore.request_max), (64, (1 << 20) + 4096));
                }
                _ => {}
            }
        }
    }

    const ENOUGH: Granted = Granted {
        session: SessionId([3; 16]),
        slots: 2,
        request_bytes: 1 << 20,
        reply_bytes: 1 << 20,
        cached_reply_bytes: 2048,
        operations: 8,
        back_slots: 1,
    };

    #[test]
    fn a_session_that_cannot_carry_a_mount_is_told() {
        let least = |granted: Granted| granted.is_short_of(&Needs::LEAST);
        assert_eq!(least(ENOUGH), None);
        for (short, why) in [
            (Granted { slots: 1, ..ENOUGH }, "allow 1 calls at a time; 2 are"),
            (Granted { operations: 2, ..ENOUGH }, "allow 2 operations"),
            (Granted { request_bytes: 1024, ..ENOUGH }, "allow 0 bytes of data in a request; 1024 are"),
            (Granted { reply_bytes: 1500, ..ENOUGH }, "bytes of data in a reply"),
            (Granted { cached_reply_bytes: 0, ..ENOUGH }, "allow 0 bytes in a reply that is kept"),
        ] {
            let told = least(short).unwrap();
            assert!(told.contains(why), "{told}");
        }
        let (read, write) = ENOUGH.payload();
        assert!(read < 1 << 20 && write < 1 << 20 && read > (1 << 20) - 4096);
        assert_eq!(Granted { reply_bytes: 5, ..ENOUGH }.payload().0, 0);
    }

    #[test]
    fn a_session_that_allows_less_than_a_mount_uses_is_told() {
        let needs = Needs { slots: 2, read: 64 << 10, write: 128 << 10 };
        assert_eq!(ENOUGH.is_short_of(&needs), None);
        for short in [
            Granted { slots: 1, ..ENOUGH },
            Granted { reply_bytes: 64 << 10, ..ENOUGH },
            Granted { request_bytes: 128 << 10, ..ENOUGH },
        ] {
            assert!(short.is_short_of(&needs).is_some(), "{short:?}");
        }
    }

    // RFC 8881 s18.36.3
    #[test]
    fn nothing_is_granted_above_what_was_asked_for() {
        let all = |value| ChannelAttributes {
            header_pad: 0,
            request_max: value,
            reply_max: value,
            cached_reply_max: value,
            operations_max: value,
            requests_max: value,
            rdma_ird: None,
        };
        let granted = |value| {
            let created = reply(&Reply::CreateSession(Ok(create_session::Success {
                session: SessionId([3; 16]),
                sequence: 1,
                flags: 0,
                fore: all(value),
                back: CALLBACKS,
            })));
            match session_created(&created, WANTED) {
                Asked::Granted(granted) => granted,
                other => panic!("{other:?}"),
            }
        };
        let asked = WANTED.channel();
        let most = granted(u32::MAX);
        assert_eq!((most.slots, most.operations), (64, OPERATIONS));
        assert_eq!((most.request_bytes, most.reply_bytes), (asked.request_max, asked.reply_max));
        assert_eq!(most.cached_reply_bytes, asked.cached_reply_max);
        let few = granted(3);
        assert_eq!((few.slots, few.operations, few.cached_reply_bytes), (3, 3, 3));
    }

    // RFC 8881 s18.35.4
    #[test]
    fn a_client_that_has_had_a_session_is_told_from_a_new_one() {
        assert!(exchanged_of(&told(7, b"server", 1, b"scope")).is_confirmed);
    }
}
