//! Clients and sessions: EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, DESTROY_CLIENTID,
//! BIND_CONN_TO_SESSION, BACKCHANNEL_CTL, RECLAIM_COMPLETE. RFC 8881 s18.33 to s18.37, s18.50,
//! s18.51
//!
//! A session has a back channel as soon as a connection is bound to it for that: by the flag of its
//! CREATE_SESSION, or by BIND_CONN_TO_SESSION, and never by a request alone. RFC 8881 s2.10.3.1

use super::compound::{Compound, Outcome, Replies};
use super::layout;
use super::status::of_state;
use crate::nfs4_state::{SLOTS_MAX, is_usable, keep_security};
use crate::program::IO_BYTES_MAX;
use drc::shared::PreOpState;
use nfs4::op::create_session::{
    Args as CreateArgs, CONN_BACK_CHAN, CONN_RDMA, ChannelAttributes, DestroyArgs, PERSIST,
    Success as Created,
};
use nfs4::op::exchange_id::{Args as ExchangeArgs, DestroyArgs as DestroyClientArgs, Protected, Protection};
use nfs4::op::exchange_id::{Success as Exchanged, flag};
use nfs4::op::reclaim_complete::Args as ReclaimArgs;
use nfs4::op::session_control::{
    BackchannelCtlArgs, BindArgs, BindSuccess, Channels as Directions, WantedChannels,
};
use nfs4::op::{Operation, Reply};
use nfs4::{ClientId, ImplementationId, Opaque, ServerOwner, SessionId, Status, sizes};
use state::{CreateSessionArgs, ExchangeIdArgs, SessionChannels, SessionRefusal};

/// Operations of a compound. Linux asks for 8; test suites send some dozens.
const OPERATIONS_MAX: u32 = 64;

/// What a callback needs: CB_SEQUENCE and one more operation, and their results.
const CALLBACK_OPERATIONS: u32 = 2;
const CALLBACK_REPLY_BYTES: u32 = 128;

/// Who made this server, for people who read traces.
const IMPLEMENTATION: ImplementationId<'static> = ImplementationId {
    domain: b"trunkline",
    name: env!("CARGO_PKG_VERSION").as_bytes(),
    date: fs::Time::from_seconds(0),
};

/// EXCHANGE_ID.
pub(super) fn exchange_id(
    compound: &mut Compound<'_>,
    args: &ExchangeArgs<'_>,
    out: &mut Replies<'_>,
) -> Status {
    let found = match exchange(compound, args) {
        Ok(found) => found,
        Err(status) => return out.fail(Operation::ExchangeId, status),
    };
    let identity = &compound.shared.identity;
    let confirmed = if found.confirmed { flag::CONFIRMED_R } else { 0 };
    // Linux wants both roles of a server that serves its own layouts.
    let has_layouts = layout::are_offered(compound);
    let roles = if has_layouts { flag::USE_PNFS_MDS | flag::USE_PNFS_DS } else { flag::USE_NON_PNFS };
    let scope = Opaque::new(identity);
    let server = ServerOwner { minor: 0, major: Opaque::new(identity).unwrap_or_default() };
    out.push(&Reply::ExchangeId(Ok(Exchanged {
        client: ClientId(found.client.0),
        sequence: found.sequence,
        flags: roles | confirmed,
        protection: Protected::None,
        server,
        scope: scope.unwrap_or_default(),
        implementation: Some(IMPLEMENTATION),
    })))
}

fn exchange(compound: &Compound<'_>, args: &ExchangeArgs<'_>) -> Outcome<state::ExchangeId> {
    // RFC 8881 s18.35.3, RFC 7862 s14.1
    let known =
        if compound.minor >= 2 { flag::REQUEST_MASK } else { flag::REQUEST_MASK & !flag::SUPP_FENCE_OPS };
    if args.flags & !known != 0 {
        return Err(Status::INVAL);
    }
    match args.protection {
        // Without GSS there is no credential of a machine that would differ from any other.
        Protection::None | Protection::MachineCredential(_) => {}
        Protection::Ssv { .. } => return Err(Status::ENCR_ALG_UNSUPP),
    }
    let args = ExchangeIdArgs {
        owner: args.client.owner.as_slice(),
        verifier: u64::from_be_bytes(args.client.verifier),
        principal: compound.request.identity.principal(),
        update: args.flags & flag::UPD_CONFIRMED_REC_A != 0,
        peer: Some(compound.request.client.peer.ip().to_canonical()),
    };
    let found = compound.shared.state.exchange_id(compound.shared.host(), compound.now, args);
    found.map_err(|error| of_state(&error))
}

/// A channel as the state has it.
fn channel(of: &ChannelAttributes) -> state::ChannelAttributes {
    state::ChannelAttributes {
        request_bytes: of.request_max,
        response_bytes: of.reply_max,
        cached_bytes: of.cached_reply_max,
        operations: of.operations_max,
        requests: of.requests_max,
    }
}

/// A channel on the wire: without padding, and without a promise about RDMA Reads.
const fn attributes(of: state::ChannelAttributes) -> ChannelAttributes {
    ChannelAttributes {
        header_pad: 0,
        request_max: of.request_bytes,
        reply_max: of.response_bytes,
        cached_reply_max: of.cached_bytes,
        operations_max: of.operations,
        requests_max: of.requests,
        rdma_ird: None,
    }
}

/// What is wrong with a request whatever the state of its client is. RFC 8881 s18.36.3
fn refusal(args: &CreateArgs<'_>) -> Option<SessionRefusal> {
    let back = &args.back;
    let is_small = back.request_max < sizes::CALLBACK_BYTES
        || back.reply_max < CALLBACK_REPLY_BYTES
        || back.operations_max < CALLBACK_OPERATIONS;
    match args.flags & !(PERSIST | CONN_BACK_CHAN | CONN_RDMA) {
        0 => is_small.then_some(SessionRefusal::TooSmall),
        _ => Some(SessionRefusal::Flags),
    }
}

/// CREATE_SESSION. Whoever allows no credential that this server can send is not called back.
pub(super) fn create(compound: &Compound<'_>, args: &CreateArgs<'_>) -> Outcome<Created> {
    let security = keep_security(compound.minor, args.callback_security);
    let back_channel = args.flags & CONN_BACK_CHAN != 0 && is_usable(&security);
    let asked = SessionChannels { fore: channel(&args.fore), back: channel(&args.back), back_channel };
    let most = sizes::fore_channel(IO_BYTES_MAX, SLOTS_MAX, OPERATIONS_MAX);
    // What the client offers for callbacks is enough for the few that there will be.
    let limits = SessionChannels { fore: channel(&most), ..asked };
    let args = CreateSessionArgs {
        client: state::ClientId(args.client.0),
        sequence: args.sequence,
        principal: compound.request.identity.principal(),
        asked,
        limits,
        callback_program: args.callback_program,
        callback_security: &security,
        refused: refusal(args),
    };
    let created = compound.shared.state.create_session(compound.shared.host(), compound.now, &args);
    let created = created.map_err(|error| of_state(&error))?;
    compound.request.client.sessions.add(created.session);
    // The second try of a request finds what was granted at the first.
    let has_back = created.granted.back_channel && bind_back(compound, created.session).is_ok();
    Ok(Created {
        session: SessionId(created.session.0),
        sequence: created.sequence,
        flags: if has_back { CONN_BACK_CHAN } else { 0 },
        fore: attributes(created.granted.fore),
        back: attributes(created.granted.back),
    })
}

/// Makes the connection a part of the back channel of a session.
fn bind_back(compound: &Compound<'_>, session: state::SessionId) -> Outcome<()> {
    let (shared, connection) = (compound.shared, &compound.request.client.back);
    let bound = shared.bind_back(compound.now, connection, compound.connection, session);
    bound.map_err(|error| of_state(&error))
}

/// Notes that what the operation under way ends is there. Outside of a session nobody goes on with
/// it.
fn note_existing(compound: &Compound<'_>) -> Outcome<()> {
    compound.note(Some(PreOpState::Object(0, 0)))
}

/// DESTROY_SESSION, on a connection that is associated with the session. That of the own session
/// ends the compound. RFC 8881 s18.37.3
pub(super) fn destroy(compound: &Compound<'_>, args: &DestroyArgs, is_last: bool) -> Outcome<()> {
    let is_own = compound.session.as_ref().is_some_and(|session| session.id == args.session);
    if is_own && !is_last {
        return Err(Status::NOT_ONLY_OP);
    }
    let session = state::SessionId(args.session.0);
    let may = compound.shared.state.may_control(session, compound.request.identity.principal());
    if compound.is_in_doubt() && may == Err(state::Error::BadSession) {
        return Ok(());
    }
    may.map_err(|error| of_state(&error))?;
    let sessions = &compound.request.client.sessions;
    if !sessions.has(session) {
        return Err(Status::CONN_NOT_BOUND_TO_SESSION);
    }
    note_existing(compound)?;
    let destroyed = compound.shared.state.destroy_session(compound.shared.host(), compound.now, session);
    destroyed.map_err(|error| of_state(&error))?;
    sessions.remove(session);
    compound.shared.forget_session(session);
    Ok(())
}

/// DESTROY_CLIENTID.
pub(super) fn destroy_client(compound: &Compound<'_>, args: &DestroyClientArgs) -> Outcome<()> {
    let client = state::ClientId(args.client.0);
    let (state, principal) = (&compound.shared.state, compound.request.identity.principal());
    let may = state.may_end_client(compound.shared.host(), compound.now, client, principal);
    if compound.is_in_doubt() && may == Err(state::Error::StaleClientId) {
        return Ok(());
    }
    may.map_err(|error| of_state(&error))?;
    note_existing(compound)?;
    let destroyed = compound.shared.state.destroy_client_id(compound.shared.host(), compound.now, client);
    destroyed.map_err(|error| of_state(&error))
}

/// What a connection is to carry, given what it carries already: the back channel, and the fore
/// channel. A demand to carry less, or the other one instead, is refused. RFC 8881 s18.34.3
fn wanted_channels(wanted: WantedChannels, has_fore: bool, has_back: bool) -> Outcome<Directions> {
    match (wanted, has_fore, has_back) {
        (WantedChannels::Fore, _, false) => Ok(Directions::Fore),
        (WantedChannels::Back, false, _) => Ok(Directions::Back),
        (WantedChannels::ForeOrBoth, false, true) => Err(Status::INVAL),
        (WantedChannels::ForeOrBoth | WantedChannels::BackOrBoth, ..) => Ok(Directions::Both),
        (WantedChannels::Fore, _, true) | (WantedChannels::Back, true, _) => Err(Status::INVAL),
    }
}

/// BIND_CONN_TO_SESSION.
pub(super) fn bind(compound: &Compound<'_>, args: &BindArgs) -> Outcome<BindSuccess> {
    let (session, shared) = (state::SessionId(args.session.0), compound.shared);
    let may = shared.state.may_control(session, compound.request.identity.principal());
    may.map_err(|error| of_state(&error))?;
    let client = compound.request.client;
    let (has_fore, has_back) = (client.sessions.has(session), client.back.has(session));
    let mut channels = wanted_channels(args.channels, has_fore, has_back)?;
    if channels != Directions::Fore {
        let target = shared.state.call_back_target(shared.host(), compound.now, session);
        let target = target.map_err(|error| of_state(&error))?;
        let bound =
            if is_usable(&target.security) { bind_back(compound, session) } else { Err(Status::INVAL) };
        match (bound, args.channels) {
            (Ok(()), _) => {}
            // The server need not agree to both.
            (Err(_), WantedChannels::ForeOrBoth) => channels = Directions::Fore,
            (Err(status), _) => return Err(status),
        }
    }
    if channels != Directions::Back {
        client.sessions.add(session);
    }
    Ok(BindSuccess { session: args.session, channels, rdma_mode: false })
}

/// BACKCHANNEL_CTL.
pub(super) fn backchannel_ctl(compound: &Compound<'_>, args: &BackchannelCtlArgs<'_>) -> Outcome<()> {
    let session = compound.session.as_ref().ok_or(Status::OP_NOT_IN_SESSION)?;
    if args.security.is_empty() {
        return Err(Status::INVAL);
    }
    let security = keep_security(compound.minor, args.security);
    if !is_usable(&security) {
        // No context of GSS is known here. RFC 8881 s18.33.3
        return Err(Status::NOENT);
    }
    let id = state::SessionId(session.id.0);
    let set =
        compound.shared.state.set_callback(compound.shared.host(), compound.now, id, args.program, &security);
    set.map_err(|error| of_state(&error))
}

/// RECLAIM_COMPLETE. State does not move between servers, so there is nothing to do for one file
/// system.
pub(super) fn reclaim_complete(compound: &Compound<'_>, args: &ReclaimArgs) -> Outcome<()> {
    if args.one_file_system {
        return compound.place().map(drop);
    }
    let done =
        compound.shared.state.reclaim_complete(compound.shared.host(), compound.now, compound.ticket()?);
    done.map_err(|error| of_state(&error))?;
    wait_for_record(compound);
    Ok(())
}

/// The client may open once its record is written.
pub(super) fn wait_for_record(compound: &Compound<'_>) {
    compound.shared.settle(compound.now);
    if compound.request.wait.is_allowed()
        && let Ok(client) = compound.client()
    {
        compound.shared.wait_for_record(client);
    }
}
