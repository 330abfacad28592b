//! Opens, locks, delegations and stateids.

use crate::support::{args, reply};
use nfs4::op::*;
use nfs4::types::attributes::number;
use nfs4::{
    Ace, Args, Attributes, Bitmap, ChangeInfo, ClientId, Fattr, OwnerId, Range, Reply, StateOwner, Stateid,
    Status,
};

const STATEID: Stateid = Stateid { seqid: 3, other: *b"abcdefghijkl" };
/// The bytes of [`STATEID`].
const S: &str = "00000003 'abcdefghijkl'";
const RANGE: Range = Range { offset: 16, length: u64::MAX };
/// The bytes of [`RANGE`].
const R: &str = "0000000000000010 ffffffffffffffff";

fn owner() -> StateOwner<'static> {
    StateOwner { client: ClientId(0x0a0b), owner: OwnerId::new(b"owner").unwrap() }
}

/// The bytes of [`owner`].
const O: &str = "0000000000000a0b 00000005 'owner' 000000";

// RFC 8881 s18.16
#[test]
fn open_by_name_and_by_handle() {
    let open = open::Args {
        seqid: 0,
        access: open::access::BOTH | open::access::WANT_NONE,
        deny: open::deny::NONE,
        owner: owner(),
        how: open::How::NoCreate,
        claim: open::Claim::Name(b"file"),
    };
    let head = format!(
        "00000000 # seqid
         00000403 # share_access: BOTH, WANT_NO_DELEG
         00000000 # share_deny
         {O} # owner"
    );
    args(
        Args::Open(open),
        &format!("{head}\n 00000000 # OPEN4_NOCREATE\n 00000000 00000004 'file' # CLAIM_NULL"),
    );
    let claims = [
        (open::Claim::Previous(open::DelegationType::Read), "00000001 00000001 # CLAIM_PREVIOUS".to_owned()),
        (
            open::Claim::DelegatedName { delegation: STATEID, name: b"file" },
            format!("00000002 {S} 00000004 'file' # CLAIM_DELEGATE_CUR"),
        ),
        (
            open::Claim::PreviouslyDelegatedName(b"file"),
            "00000003 00000004 'file' # CLAIM_DELEGATE_PREV".to_owned(),
        ),
        (open::Claim::Current, "00000004 # CLAIM_FH".to_owned()),
        (open::Claim::Delegated(STATEID), format!("00000005 {S} # CLAIM_DELEG_CUR_FH")),
        (open::Claim::PreviouslyDelegated, "00000006 # CLAIM_DELEG_PREV_FH".to_owned()),
    ];
    for (claim, text) in claims {
        args(Args::Open(open::Args { claim, ..open }), &format!("{head}\n 00000000\n {text}"));
    }
}

// RFC 8881 s18.16
#[test]
fn open_that_creates() {
    let values = Attributes { mode: Some(0o644), ..Attributes::default() };
    let fattr = "00000002 00000000 00000002 00000004 000001a4 # createattrs";
    let how = [
        (open::How::Unchecked(Fattr::all(&values)), format!("00000000 {fattr}")),
        (open::How::Guarded(Fattr::all(&values)), format!("00000001 {fattr}")),
        (open::How::Exclusive(*b"verifier"), "00000002 'verifier'".to_owned()),
        (open::How::ExclusiveWith(*b"verifier", Fattr::all(&values)), format!("00000003 'verifier' {fattr}")),
    ];
    for (how, text) in how {
        let claim = open::Claim::Name(b"n");
        let open = open::Args { seqid: 1, access: 2, deny: 3, owner: owner(), how, claim };
        args(
            Args::Open(open),
            &format!(
                "00000001 00000002 00000003 {O} # seqid, access, deny, owner
                 00000001 # OPEN4_CREATE
                 {text}
                 00000000 00000001 'n' 000000 # CLAIM_NULL"
            ),
        );
    }
}

// RFC 8881 s18.16, RFC 9754 s5
#[test]
fn open_results_with_every_kind_of_delegation() {
    let permissions = Ace { kind: 0, flags: 0x40, mask: 1, who: b"EVERYONE@" };
    let ace = "00000000 00000040 00000001 00000009 'EVERYONE@' 000000 # permissions";
    let read =
        |with_times| open::Delegation::Read { stateid: STATEID, recall: true, permissions, with_times };
    let write = |limit, with_times| open::Delegation::Write {
        stateid: STATEID,
        recall: false,
        limit,
        permissions,
        with_times,
    };
    let size = open::SpaceLimit::Size(4096);
    let blocks = open::SpaceLimit::Blocks { count: 2, bytes: 512 };
    let delegations = [
        (open::Delegation::None, "00000000 # OPEN_DELEGATE_NONE".to_owned()),
        (read(false), format!("00000001 {S} 00000001 {ace}")),
        (write(size, false), format!("00000002 {S} 00000000 00000001 0000000000001000 {ace}")),
        (write(blocks, true), format!("00000005 {S} 00000000 00000002 00000002 00000200 {ace}")),
        (read(true), format!("00000004 {S} 00000001 {ace}")),
        (
            open::Delegation::NoneBecause(open::NoDelegation::NOT_WANTED),
            "00000003 00000000 # NONE_EXT, WND4_NOT_WANTED".to_owned(),
        ),
        (
            open::Delegation::NoneBecause(open::NoDelegation::Contention(true)),
            "00000003 00000001 00000001 # WND4_CONTENTION, will push".to_owned(),
        ),
        (
            open::Delegation::NoneBecause(open::NoDelegation::Resource(false)),
            "00000003 00000002 00000000 # WND4_RESOURCE, will not signal".to_owned(),
        ),
    ];
    for (delegation, text) in delegations {
        let success = open::Success {
            stateid: STATEID,
            directory: ChangeInfo { atomic: true, before: 1, after: 2 },
            flags: open::result_flag::LOCKTYPE_POSIX | open::result_flag::PRESERVE_UNLINKED,
            set: Bitmap::of(&[number::MODE]),
            delegation,
        };
        reply(
            Reply::Open(Ok(success)),
            &format!(
                "00000000 # status
                 {S} # stateid
                 00000001 0000000000000001 0000000000000002 # cinfo
                 0000000c # rflags
                 00000002 00000000 00000002 # attrset
                 {text}"
            ),
        );
    }
    reply(Reply::Open(Err(Status::SHARE_DENIED)), "0000271f # NFS4ERR_SHARE_DENIED, 10015");
}

// RFC 8881 s18.2, s18.18
#[test]
fn close_and_downgrade() {
    args(
        Args::Close(close::Args { seqid: 9, open: STATEID }),
        &format!("00000009 {S} # seqid, open_stateid"),
    );
    reply(Reply::Close(Ok(Stateid::INVALID)), "00000000 ffffffff 00*12 # status, open_stateid");
    args(
        Args::OpenDowngrade(close::DowngradeArgs { open: STATEID, seqid: 0, access: 1, deny: 0 }),
        &format!("{S} 00000000 00000001 00000000 # open_stateid, seqid, share_access, share_deny"),
    );
    reply(Reply::OpenDowngrade(Ok(STATEID)), &format!("00000000 {S}"));
}

// RFC 8881 s18.10
#[test]
fn lock() {
    let new = lock::Locker::New { open_seqid: 1, open: STATEID, lock_seqid: 2, owner: owner() };
    let locked = |lock_type, locker| lock::Args { lock_type, reclaim: false, range: RANGE, locker };
    args(
        Args::Lock(locked(lock::LockType::WriteWait, new)),
        &format!(
            "00000004 # locktype: WRITEW_LT
             00000000 # reclaim
             {R} # offset, length
             00000001 00000001 {S} 00000002 {O} # open_to_lock_owner4"
        ),
    );
    let existing = lock::Locker::Existing { lock: STATEID, lock_seqid: 2 };
    args(
        Args::Lock(locked(lock::LockType::Read, existing)),
        &format!("00000001 00000000 {R} 00000000 {S} 00000002 # exist_lock_owner4"),
    );
    reply(Reply::Lock(lock::Outcome::Granted(STATEID)), &format!("00000000 {S} # lock_stateid"));
    let conflict = lock::Conflict { range: RANGE, lock_type: lock::LockType::Write, owner: owner() };
    let denied = format!("0000271a {R} 00000002 {O} # NFS4ERR_DENIED, 10010, and LOCK4denied");
    reply(Reply::Lock(lock::Outcome::Denied(conflict)), &denied);
    reply(Reply::Lock(lock::Outcome::Failed(Status::GRACE)), "0000271d # NFS4ERR_GRACE, 10013");

    // RFC 8881 s18.11
    args(
        Args::LockT(lock::TestArgs { lock_type: lock::LockType::Read, range: RANGE, owner: owner() }),
        &format!("00000001 {R} {O} # locktype, range, owner"),
    );
    reply(Reply::LockT(lock::Outcome::Granted(())), "00000000");
    reply(Reply::LockT(lock::Outcome::Denied(conflict)), &denied);

    // RFC 8881 s18.12
    let unlock = lock::UnlockArgs { lock_type: lock::LockType::Write, seqid: 7, lock: STATEID, range: RANGE };
    args(Args::LockU(unlock), &format!("00000002 00000007 {S} {R} # locktype, seqid, stateid, range"));
    reply(Reply::LockU(Ok(STATEID)), &format!("00000000 {S}"));
}

// RFC 8881 s18.5, s18.6
#[test]
fn delegations() {
    args(Args::DelegPurge(delegation::PurgeArgs { client: ClientId(5) }), "0000000000000005 # clientid");
    reply(Reply::DelegPurge(Err(Status::NOTSUPP)), "00002714 # NFS4ERR_NOTSUPP, 10004");
    args(Args::DelegReturn(delegation::ReturnArgs { delegation: STATEID }), S);
    reply(Reply::DelegReturn(Ok(())), "00000000");
}

// RFC 8881 s18.48, s18.38
#[test]
fn stateids() {
    let stateids = [STATEID, Stateid::ANONYMOUS];
    args(
        Args::TestStateid(stateid::TestArgs { stateids: (&stateids).into() }),
        &format!("00000002 {S} 00*16 # ts_stateids"),
    );
    let statuses = [Status::OK, Status::BAD_STATEID];
    reply(
        Reply::TestStateid(Ok(stateid::TestSuccess { statuses: (&statuses).into() })),
        "00000000 00000002 00000000 00002729 # tsr_status_codes: OK, BAD_STATEID 10025",
    );
    args(Args::FreeStateid(stateid::FreeArgs { stateid: STATEID }), S);
    reply(Reply::FreeStateid(Err(Status::LOCKS_HELD)), "00002735 # NFS4ERR_LOCKS_HELD, 10037");
}
