//! Clients and sessions.

use crate::support::{args, reply};
use fs::Time;
use nfs4::op::create_session::{CallbackSecurity, ChannelAttributes, GssService};
use nfs4::op::session_control::{BackchannelCtlArgs, BindArgs, BindSuccess, Channels, WantedChannels};
use nfs4::op::*;
use nfs4::{
    Args, Bitmap, ClientId, ClientOwner, ImplementationId, Opaque, OwnerId, Reply, ServerOwner, SessionId,
    Status,
};

const SESSION: SessionId = SessionId(*b"session-id-0123.");
/// The bytes of [`SESSION`].
const S: &str = "'session-id-0123.'";

fn client() -> ClientOwner<'static> {
    ClientOwner { verifier: *b"verifier", owner: OwnerId::new(b"Linux NFSv4.1").unwrap() }
}

/// The bytes of [`client`], whose blank cannot stand within quotes.
const CLIENT: &str = "'verifier' 0000000d 'Linux' 20 'NFSv4.1' 000000";

const IMPLEMENTATION: ImplementationId<'static> =
    ImplementationId { domain: b"a.org", name: b"nfs", date: Time { seconds: 1, nanoseconds: 2 } };
/// The bytes of [`IMPLEMENTATION`].
const IMPL: &str = "00000001 00000005 'a.org' 000000 00000003 'nfs' 00 0000000000000001 00000002";

const OPERATIONS: exchange_id::ProtectedOperations =
    exchange_id::ProtectedOperations { must_enforce: Bitmap::of(&[42]), must_allow: Bitmap::of(&[4]) };
/// The bytes of [`OPERATIONS`].
const OPS: &str = "00000002 00000000 00000400 00000001 00000010";

// RFC 8881 s18.35
#[test]
fn exchange_id() {
    let plain = exchange_id::Args {
        client: client(),
        flags: exchange_id::flag::SUPP_MOVED_REFER | exchange_id::flag::BIND_PRINC_STATEID,
        protection: exchange_id::Protection::None,
        implementation: Some(IMPLEMENTATION),
    };
    args(
        Args::ExchangeId(plain),
        &format!(
            "{CLIENT} # eia_clientowner
             00000101 # eia_flags
             00000000 # SP4_NONE
             {IMPL} # eia_client_impl_id"
        ),
    );
    let machine = exchange_id::Protection::MachineCredential(OPERATIONS);
    args(
        Args::ExchangeId(exchange_id::Args { protection: machine, implementation: None, ..plain }),
        &format!("{CLIENT} 00000101 00000001 {OPS} 00000000 # SP4_MACH_CRED"),
    );
    let hash: [&[u8]; 1] = [b"hash"];
    let encryption: [&[u8]; 2] = [b"e", b"f"];
    let shared = exchange_id::Protection::Ssv {
        operations: OPERATIONS,
        hash_algorithms: (&hash).into(),
        encryption_algorithms: (&encryption).into(),
        window: 3,
        handles: 1,
    };
    args(
        Args::ExchangeId(exchange_id::Args { protection: shared, implementation: None, ..plain }),
        &format!(
            "{CLIENT} 00000101
             00000002 {OPS} # SP4_SSV, ssp_ops
             00000001 00000004 'hash' # ssp_hash_algs
             00000002 00000001 'e' 000000 00000001 'f' 000000 # ssp_encr_algs
             00000003 00000001 # ssp_window, ssp_num_gss_handles
             00000000 # no eia_client_impl_id"
        ),
    );
}

// RFC 8881 s18.35
#[test]
fn exchange_id_results() {
    let handles: [&[u8]; 1] = [b"handle"];
    let shared = exchange_id::Protected::Ssv {
        operations: OPERATIONS,
        hash_algorithm: 1,
        encryption_algorithm: 2,
        secret_bytes: 32,
        window: 4,
        handles: (&handles).into(),
    };
    let protected = [
        (exchange_id::Protected::None, "00000000 # SP4_NONE".to_owned()),
        (exchange_id::Protected::MachineCredential(OPERATIONS), format!("00000001 {OPS}")),
        (
            shared,
            format!("00000002 {OPS} 00000001 00000002 00000020 00000004 00000001 00000006 'handle' 0000"),
        ),
    ];
    for (protection, text) in protected {
        let success = exchange_id::Success {
            client: ClientId(0x0102_0304_0506_0708),
            sequence: 1,
            flags: exchange_id::flag::USE_NON_PNFS | exchange_id::flag::CONFIRMED_R,
            protection,
            server: ServerOwner { minor: 7, major: OwnerId::new(b"major").unwrap() },
            scope: Opaque::new(b"scope").unwrap(),
            implementation: None,
        };
        reply(
            Reply::ExchangeId(Ok(success)),
            &format!(
                "00000000 # status
                 0102030405060708 # eir_clientid
                 00000001 # eir_sequenceid
                 80010000 # eir_flags
                 {text}
                 0000000000000007 00000005 'major' 000000 # eir_server_owner
                 00000005 'scope' 000000 # eir_server_scope
                 00000000 # no eir_server_impl_id"
            ),
        );
    }
    reply(Reply::ExchangeId(Err(Status::CLID_INUSE)), "00002721 # NFS4ERR_CLID_INUSE, 10017");
}

// RFC 8881 s18.36
#[test]
fn create_session() {
    let fore = ChannelAttributes {
        header_pad: 0,
        request_max: 0x0010_1000,
        reply_max: 0x0010_1001,
        cached_reply_max: 0x800,
        operations_max: 8,
        requests_max: 64,
        rdma_ird: None,
    };
    let back = ChannelAttributes { operations_max: 2, rdma_ird: Some(5), ..fore };
    let channels = "00000000 00101000 00101001 00000800 00000008 00000040 00000000 # csa_fore_chan_attrs
         00000000 00101000 00101001 00000800 00000002 00000040 00000001 00000005 # csa_back_chan_attrs";
    let gids = [10, 20];
    let security = [
        CallbackSecurity::None,
        CallbackSecurity::Sys {
            stamp: 9,
            machine: Opaque::new(b"host").unwrap(),
            uid: 1,
            gid: 2,
            gids: (&gids).into(),
        },
        CallbackSecurity::Gss { service: GssService::Integrity, from_server: b"srv1", from_client: b"cli1" },
    ];
    let parms = "00000003 # csa_sec_parms
         00000000 # AUTH_NONE
         00000001 00000009 00000004 'host' 00000001 00000002 00000002 0000000a 00000014 # AUTH_SYS
         00000006 00000002 00000004 'srv1' 00000004 'cli1' # RPCSEC_GSS";
    args(
        Args::CreateSession(create_session::Args {
            client: ClientId(0x11),
            sequence: 1,
            flags: create_session::PERSIST | create_session::CONN_BACK_CHAN,
            fore,
            back,
            callback_program: 0x4000_0000,
            callback_security: (&security).into(),
        }),
        &format!(
            "0000000000000011 # csa_clientid
             00000001 # csa_sequence
             00000003 # csa_flags
             {channels}
             40000000 # csa_cb_program
             {parms}"
        ),
    );
    let success = create_session::Success { session: SESSION, sequence: 1, flags: 2, fore, back };
    reply(
        Reply::CreateSession(Ok(success)),
        &format!(
            "00000000 {S} 00000001 00000002 # status, csr_sessionid, csr_sequence, csr_flags\n{channels}"
        ),
    );

    // RFC 8881 s18.33
    args(
        Args::BackchannelCtl(BackchannelCtlArgs { program: 0x4000_0001, security: (&security).into() }),
        &format!("40000001 # bca_cb_program\n{parms}"),
    );
    reply(Reply::BackchannelCtl(Ok(())), "00000000");
}

// RFC 8881 s18.34, s18.37, s18.50, s18.51
#[test]
fn bind_destroy_and_reclaim() {
    for (channels, number) in [
        (WantedChannels::Fore, 1),
        (WantedChannels::Back, 2),
        (WantedChannels::ForeOrBoth, 3),
        (WantedChannels::BackOrBoth, 7),
    ] {
        args(
            Args::BindConnToSession(BindArgs { session: SESSION, channels, rdma_mode: false }),
            &format!("{S} 0000000{number} 00000000 # bctsa_sessid, bctsa_dir, rdma mode"),
        );
    }
    let bound = BindSuccess { session: SESSION, channels: Channels::Both, rdma_mode: true };
    reply(Reply::BindConnToSession(Ok(bound)), &format!("00000000 {S} 00000003 00000001"));
    args(Args::DestroySession(create_session::DestroyArgs { session: SESSION }), S);
    reply(Reply::DestroySession(Err(Status::BADSESSION)), "00002744 # NFS4ERR_BADSESSION, 10052");
    args(Args::DestroyClientId(exchange_id::DestroyArgs { client: ClientId(1) }), "0000000000000001");
    reply(Reply::DestroyClientId(Err(Status::CLIENTID_BUSY)), "0000275a # NFS4ERR_CLIENTID_BUSY, 10074");
    args(Args::ReclaimComplete(reclaim_complete::Args { one_file_system: true }), "00000001 # rca_one_fs");
    reply(Reply::ReclaimComplete(Err(Status::COMPLETE_ALREADY)), "00002746 # 10054");
}

// RFC 8881 s18.46
#[test]
fn sequence() {
    args(
        Args::Sequence(sequence::Args {
            session: SESSION,
            sequence: 5,
            slot: 6,
            highest_slot: 7,
            cache: true,
        }),
        &format!(
            "{S} # sa_sessionid
             00000005 # sa_sequenceid
             00000006 # sa_slotid
             00000007 # sa_highest_slotid
             00000001 # sa_cachethis"
        ),
    );
    let success = sequence::Success {
        session: SESSION,
        sequence: 5,
        slot: 6,
        highest_slot: 63,
        target_highest_slot: 31,
        flags: sequence::flag::CB_PATH_DOWN | sequence::flag::RESTART_RECLAIM_NEEDED,
    };
    reply(
        Reply::Sequence(Ok(success)),
        &format!(
            "00000000 # status
             {S} # sr_sessionid
             00000005 # sr_sequenceid
             00000006 # sr_slotid
             0000003f # sr_highest_slotid
             0000001f # sr_target_highest_slotid
             00000101 # sr_status_flags"
        ),
    );
    reply(Reply::Sequence(Err(Status::SEQ_MISORDERED)), "0000274f # NFS4ERR_SEQ_MISORDERED, 10063");
}
