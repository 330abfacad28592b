//! The table of the operations that clients ask of servers, RFC 8881 s18 and s16.2, RFC 7862 s15,
//! RFC 8276 s8.4; and one module for each operation or small family of them.
//!
//! Operations that the table only knows have no types here. A server answers them with
//! NFS4ERR_NOTSUPP, and the compound ends there, so their arguments need not be parsed. They are
//! the operations of version 4.0 that version 4.1 must not have (RFC 8881 s17), named attributes,
//! directory delegations, device lists, shared secrets, delegations without an open, copies between
//! servers, WRITE_SAME, and what only the layout type of flexible files reports.

use crate::table::{Outcome, operations};

pub mod access;
pub mod allocate;
pub mod close;
pub mod commit;
pub mod copy;
pub mod create;
pub mod create_session;
pub mod delegation;
pub mod exchange_id;
pub mod getattr;
pub mod handles;
pub mod io_advise;
pub mod layout;
pub mod link;
pub mod lock;
pub mod lookup;
pub mod offload;
pub mod open;
pub mod read;
pub mod read_plus;
pub mod readdir;
pub mod readlink;
pub mod reclaim_complete;
pub mod secinfo;
pub mod seek;
pub mod sequence;
pub mod session_control;
pub mod stateid;
pub mod verify;
pub mod write;
pub mod xattr;

operations! {
    /// `nfs_opnum4`: an operation of version 4.1 or 4.2. RFC 8881 s16.2.4, RFC 7862 s15,
    /// RFC 8276 s8.4
    Operation of Fore;
    decoded {
        /// Returns what the caller may do.
        Access = 3, "ACCESS", 0, Metadata, Nothing, [access::Args], [access::Reply];
        /// Ends an open.
        Close = 4, "CLOSE", 0, Metadata, Changes, [close::Args], [close::Reply];
        /// Makes written data stable.
        Commit = 5, "COMMIT", 0, Write, Nothing, [commit::Args], [commit::Reply];
        /// Creates an object that is not a regular file.
        Create = 6, "CREATE", 0, Metadata, Changes, [create::Args<'a>], [create::Reply];
        /// Gives up delegations of an earlier life.
        DelegPurge = 7, "DELEGPURGE", 0, Metadata, Repeatable, [delegation::PurgeArgs], [delegation::PurgeReply];
        /// Gives up a delegation.
        DelegReturn = 8, "DELEGRETURN", 0, Metadata, Changes, [delegation::ReturnArgs], [delegation::ReturnReply];
        /// Returns attributes.
        GetAttr = 9, "GETATTR", 0, Metadata, Nothing, [getattr::Args], [getattr::Reply<'a>];
        /// Returns the current handle.
        GetFh = 10, "GETFH", 0, Metadata, Nothing, [()], [handles::GetReply];
        /// Creates a hard link.
        Link = 11, "LINK", 0, Metadata, Changes, [link::LinkArgs<'a>], [link::LinkReply];
        /// Locks a range.
        Lock = 12, "LOCK", 0, Metadata, Changes, [lock::Args<'a>], [lock::Reply<'a>];
        /// Looks for a lock that would be in the way.
        LockT = 13, "LOCKT", 0, Metadata, Nothing, [lock::TestArgs<'a>], [lock::TestReply<'a>];
        /// Unlocks a range.
        LockU = 14, "LOCKU", 0, Metadata, Changes, [lock::UnlockArgs], [lock::UnlockReply];
        /// Finds the object of a name.
        Lookup = 15, "LOOKUP", 0, Metadata, Nothing, [lookup::Args<'a>], [lookup::Reply];
        /// Finds the parent of a directory.
        LookupP = 16, "LOOKUPP", 0, Metadata, Nothing, [()], [lookup::Reply];
        /// Goes on if attributes differ.
        NVerify = 17, "NVERIFY", 0, Metadata, Nothing, [verify::NotArgs<'a>], [verify::Reply];
        /// Opens a file, and creates it.
        Open = 18, "OPEN", 0, Metadata, Changes, [open::Args<'a>], [open::Reply<'a>];
        /// Gives up some access of an open.
        OpenDowngrade = 21, "OPEN_DOWNGRADE", 0, Metadata, Changes, [close::DowngradeArgs], [close::DowngradeReply];
        /// Sets the current handle.
        PutFh = 22, "PUTFH", 0, Metadata, Nothing, [handles::PutArgs], [handles::Reply];
        /// Makes the public handle the current one.
        PutPubFh = 23, "PUTPUBFH", 0, Metadata, Nothing, [()], [handles::Reply];
        /// Makes the root the current object.
        PutRootFh = 24, "PUTROOTFH", 0, Metadata, Nothing, [()], [handles::Reply];
        /// Reads data of a file.
        Read = 25, "READ", 0, Read, Nothing, [read::Args], [read::Reply];
        /// Lists a directory.
        ReadDir = 26, "READDIR", 0, Metadata, Nothing, [readdir::Args], [readdir::Reply<'a>];
        /// Returns the text of a symbolic link.
        ReadLink = 27, "READLINK", 0, Metadata, Nothing, [()], [readlink::Reply<'a>];
        /// Removes a name.
        Remove = 28, "REMOVE", 0, Metadata, Changes, [link::RemoveArgs<'a>], [link::RemoveReply];
        /// Renames an object.
        Rename = 29, "RENAME", 0, Metadata, Changes, [link::RenameArgs<'a>], [link::RenameReply];
        /// Makes the saved handle the current one.
        RestoreFh = 31, "RESTOREFH", 0, Metadata, Nothing, [()], [handles::Reply];
        /// Saves the current handle.
        SaveFh = 32, "SAVEFH", 0, Metadata, Nothing, [()], [handles::Reply];
        /// Returns the security flavors of a name.
        SecInfo = 33, "SECINFO", 0, Metadata, Nothing, [secinfo::Args<'a>], [secinfo::Reply<'a>];
        /// Sets attributes.
        SetAttr = 34, "SETATTR", 0, Metadata, Repeatable, [getattr::SetArgs<'a>], [getattr::SetReply];
        /// Goes on if attributes are the same.
        Verify = 37, "VERIFY", 0, Metadata, Nothing, [verify::Args<'a>], [verify::Reply];
        /// Writes data of a file.
        Write = 38, "WRITE", 0, Write, Repeatable, [write::ArgsHead], [write::Reply];
        /// Changes what callbacks use.
        BackchannelCtl = 40, "BACKCHANNEL_CTL", 1, Metadata, Repeatable,
            [session_control::BackchannelCtlArgs<'a>], [session_control::BackchannelCtlReply];
        /// Binds the connection to a session.
        BindConnToSession = 41, "BIND_CONN_TO_SESSION", 1, Metadata, Repeatable,
            [session_control::BindArgs], [session_control::BindReply];
        /// Tells who client and server are.
        ExchangeId = 42, "EXCHANGE_ID", 1, Metadata, Repeatable, [exchange_id::Args<'a>], [exchange_id::Reply<'a>];
        /// Creates a session.
        CreateSession = 43, "CREATE_SESSION", 1, Metadata, Changes,
            [create_session::Args<'a>], [create_session::Reply];
        /// Destroys a session.
        DestroySession = 44, "DESTROY_SESSION", 1, Metadata, Changes,
            [create_session::DestroyArgs], [create_session::DestroyReply];
        /// Frees a stateid.
        FreeStateid = 45, "FREE_STATEID", 1, Metadata, Changes, [stateid::FreeArgs], [stateid::FreeReply];
        /// Returns the addresses of a device.
        GetDeviceInfo = 47, "GETDEVICEINFO", 1, Metadata, Nothing, [layout::DeviceArgs], [layout::DeviceReply<'a>];
        /// Commits what was written by a layout.
        LayoutCommit = 49, "LAYOUTCOMMIT", 1, Write, Repeatable, [layout::CommitArgs<'a>], [layout::CommitReply];
        /// Returns where the data of a file are.
        LayoutGet = 50, "LAYOUTGET", 1, Metadata, Changes, [layout::GetArgs], [layout::GetReply<'a>];
        /// Gives up layouts.
        LayoutReturn = 51, "LAYOUTRETURN", 1, Metadata, Changes, [layout::ReturnArgs<'a>], [layout::ReturnReply];
        /// Returns the security flavors of an object.
        SecInfoNoName = 52, "SECINFO_NO_NAME", 1, Metadata, Nothing, [secinfo::NoNameArgs], [secinfo::Reply<'a>];
        /// Takes a slot of a session.
        Sequence = 53, "SEQUENCE", 1, Metadata, Nothing, [sequence::Args], [sequence::Reply];
        /// Returns what stateids are worth.
        TestStateid = 55, "TEST_STATEID", 1, Metadata, Nothing, [stateid::TestArgs<'a>], [stateid::TestReply<'a>];
        /// Destroys a client id.
        DestroyClientId = 57, "DESTROY_CLIENTID", 1, Metadata, Changes,
            [exchange_id::DestroyArgs], [exchange_id::DestroyReply];
        /// Ends reclaiming.
        ReclaimComplete = 58, "RECLAIM_COMPLETE", 1, Metadata, Changes,
            [reclaim_complete::Args], [reclaim_complete::Reply];
        /// Reserves storage.
        Allocate = 59, "ALLOCATE", 2, Metadata, Repeatable, [allocate::Args], [allocate::Reply];
        /// Copies a range to another file.
        Copy = 60, "COPY", 2, Metadata, Repeatable, [copy::Args<'a>], [copy::Reply];
        /// Makes a range a hole.
        Deallocate = 62, "DEALLOCATE", 2, Metadata, Repeatable, [allocate::Args], [allocate::Reply];
        /// Says how a file will be used.
        IoAdvise = 63, "IO_ADVISE", 2, Metadata, Nothing, [io_advise::Args], [io_advise::Reply];
        /// Cancels a copy.
        OffloadCancel = 66, "OFFLOAD_CANCEL", 2, Metadata, Changes, [offload::CancelArgs], [offload::CancelReply];
        /// Returns how far a copy is.
        OffloadStatus = 67, "OFFLOAD_STATUS", 2, Metadata, Nothing, [offload::StatusArgs], [offload::StatusReply];
        /// Reads data and holes of a file.
        ReadPlus = 68, "READ_PLUS", 2, Read, Nothing, [read_plus::Args], [read_plus::Reply<'a>];
        /// Finds the next data or hole.
        Seek = 69, "SEEK", 2, Metadata, Nothing, [seek::Args], [seek::Reply];
        /// Shares the storage of a range with another file.
        Clone = 71, "CLONE", 2, Metadata, Repeatable, [copy::CloneArgs], [copy::CloneReply];
        /// Returns an extended attribute.
        GetXattr = 72, "GETXATTR", 2, Metadata, Nothing, [xattr::GetArgs<'a>], [xattr::GetReply<'a>];
        /// Sets an extended attribute.
        SetXattr = 73, "SETXATTR", 2, Metadata, Changes, [xattr::SetArgs<'a>], [xattr::SetReply];
        /// Lists extended attributes.
        ListXattrs = 74, "LISTXATTRS", 2, Metadata, Nothing, [xattr::ListArgs], [xattr::ListReply<'a>];
        /// Removes an extended attribute.
        RemoveXattr = 75, "REMOVEXATTR", 2, Metadata, Changes, [xattr::RemoveArgs<'a>], [xattr::RemoveReply];
    }
    known {
        /// Opens the directory of named attributes. RFC 8881 s18.17
        OpenAttr = 19, "OPENATTR", 0, Metadata, Changes;
        /// Of version 4.0 only.
        OpenConfirm = 20, "OPEN_CONFIRM", 0, Metadata, Changes;
        /// Of version 4.0 only.
        Renew = 30, "RENEW", 0, Metadata, Repeatable;
        /// Of version 4.0 only.
        SetClientId = 35, "SETCLIENTID", 0, Metadata, Changes;
        /// Of version 4.0 only.
        SetClientIdConfirm = 36, "SETCLIENTID_CONFIRM", 0, Metadata, Changes;
        /// Of version 4.0 only.
        ReleaseLockOwner = 39, "RELEASE_LOCKOWNER", 0, Metadata, Changes;
        /// Gets a delegation of a directory. RFC 8881 s18.39
        GetDirDelegation = 46, "GET_DIR_DELEGATION", 1, Metadata, Changes;
        /// Lists devices. RFC 8881 s18.41
        GetDeviceList = 48, "GETDEVICELIST", 1, Metadata, Nothing;
        /// Changes a shared secret. RFC 8881 s18.47
        SetSsv = 54, "SET_SSV", 1, Metadata, Changes;
        /// Gets a delegation without an open. RFC 8881 s18.49
        WantDelegation = 56, "WANT_DELEGATION", 1, Metadata, Changes;
        /// Announces a copy to another server. RFC 7862 s15.3
        CopyNotify = 61, "COPY_NOTIFY", 2, Metadata, Changes;
        /// Reports errors of data servers. RFC 7862 s15.6
        LayoutError = 64, "LAYOUTERROR", 2, Metadata, Nothing;
        /// Reports statistics of data servers. RFC 7862 s15.7
        LayoutStats = 65, "LAYOUTSTATS", 2, Metadata, Nothing;
        /// Writes a pattern. RFC 7862 s15.12
        WriteSame = 70, "WRITE_SAME", 2, Write, Repeatable;
    }
    helpers { args_payload: args_payload, reply_payload: reply_payload, is_callback: false }
}

/// The length of the data of a WRITE.
const fn args_payload(args: &Args<'_>) -> Option<u32> {
    match args {
        Args::Write(head) => Some(head.count),
        _ => None,
    }
}

/// The length of the data of a READ.
const fn reply_payload(reply: &Reply<'_>) -> Option<u32> {
    match reply {
        Reply::Read(Ok(head)) => Some(head.count),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
