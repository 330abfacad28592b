//! The calls of NLM, and where the server answers them: a server of ours at the port of NFS, others
//! where their rpcbind says. RFC 1813 s6.3

use fs::{FileHandle, Status};
use nlm::proc::{Reply, cancel, lock, test, unlock};
use nlm::{Lock, NetObj, Procedure, Text, Wire};
use rpc::reply::{Accept, Body};
use transport::Address;
use xdr::Reader;

use crate::caller::{Caller, Program};
use crate::error::MountError;
use crate::locks::{Conflict, LockKind, LockOwner, LockRange};
use crate::options::Remote;
use crate::rpcbind::{self, PortError};
use crate::settings::Settings;

const NLM: Program = Program { number: nlm::PROGRAM, version: nlm::VERSION };

/// Who locks, in the names that the server is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub owner: LockOwner,
    /// Many servers tell owners of one host apart by this number alone.
    pub svid: i32,
}

/// A connection to the server's lock manager.
#[derive(Debug)]
pub(super) struct LockManager {
    caller: Caller,
    /// It answers at the port of NFS: what is reclaimed there late is granted if it is held, and
    /// the host has a lease.
    pub is_ours: bool,
    host: Vec<u8>,
    /// Tells owners of this mount from others of this host.
    mount: u64,
    cookie: u32,
}

/// Why there is no lock manager.
#[derive(Debug)]
pub(super) enum Missing {
    /// Nothing answers: it may later.
    Away(String),
    /// The server has none.
    None(String),
}

impl LockManager {
    /// Connects at the first address of the server that answers.
    pub(super) fn find(settings: &Settings, mount: u64) -> Result<Self, Missing> {
        let mut none = None;
        let mut away = "there is no address over IP".to_owned();
        for remote in &settings.remotes {
            match Self::at(settings, remote, mount) {
                Ok(found) => return Ok(found),
                Err(Missing::None(reason)) => none = Some(reason),
                Err(Missing::Away(reason)) => away = reason,
            }
        }
        Err(none.map_or(Missing::Away(away), Missing::None))
    }

    fn at(settings: &Settings, remote: &Remote, mount: u64) -> Result<Self, Missing> {
        let connect = |port| Self::connect(settings, remote.address, port, mount);
        // Over RDMA the port of NFS says nothing about TCP.
        let port =
            if settings.uses_rdma() { settings.mount_port } else { settings.address_of(remote).port() };
        let here = connect(port).and_then(|mut manager| {
            let answer = manager.caller.reply(NLM, Procedure::Null.number(), |_| {})?;
            Ok((manager, answer.0))
        });
        match here {
            Ok((manager, Body::Accepted(Accept::Success))) => {
                return Ok(Self { is_ours: true, ..manager });
            }
            Ok(_) => {}
            Err(error) if error.is_refused() || settings.uses_rdma() => {}
            Err(error) => return Err(Missing::Away(error.to_string())),
        }
        let rpcbind = settings.rpcbind_port.unwrap_or(rpcbind::PORT);
        match rpcbind::port_of(remote.address.with_port(rpcbind), NLM, "NLM") {
            Ok(port) => {
                let manager = connect(port).map_err(|error| Missing::Away(error.to_string()))?;
                Ok(Self { host: host_name(), ..manager })
            }
            Err(PortError::Unregistered(reason) | PortError::Away(reason)) => Err(Missing::None(reason)),
        }
    }

    fn connect(settings: &Settings, address: Address, port: u16, mount: u64) -> Result<Self, MountError> {
        let to = address.with_port(port);
        let credential = crate::mount::credential(settings, mount);
        let caller = Caller::connect(settings.local_for(to.ip()), to, &credential, settings.reserved_port)?;
        Ok(Self { caller, is_ours: false, host: drc::machine_name(mount).to_vec(), mount, cookie: 0 })
    }

    /// The name of an owner on this host.
    fn name(&self, owner: LockOwner) -> Vec<u8> {
        let kind = if owner.of_flock { "flock" } else { "fcntl" };
        format!("{:x} {kind} {:x}", self.mount, owner.number).into_bytes()
    }

    fn next_cookie(&mut self) -> [u8; 4] {
        self.cookie = self.cookie.wrapping_add(1);
        self.cookie.to_be_bytes()
    }

    fn status(&self, results: &[u8], cookie: [u8; 4]) -> Result<nlm::Status, MountError> {
        match Reply::decode(&mut Reader::new(results)) {
            Ok(reply) if reply.cookie.0 == cookie => Ok(reply.status),
            Ok(_) => Err(self.caller.protocol("an answer to another request for a lock".to_owned())),
            Err(error) => Err(self.caller.protocol(error.to_string())),
        }
    }

    pub(super) fn lock(
        &mut self,
        file: FileHandle,
        owner: Owner,
        (range, kind): (LockRange, LockKind),
        reclaim: bool,
    ) -> Result<nlm::Status, MountError> {
        let (cookie, name, host) = (self.next_cookie(), self.name(owner.owner), self.host.clone());
        let args = lock::Args {
            cookie: NetObj(&cookie),
            block: false,
            exclusive: kind == LockKind::Exclusive,
            lock: lock_of(&host, &file, (owner.svid, &name), range),
            reclaim,
            state: 0,
        };
        let results = self.caller.call(NLM, Procedure::Lock.number(), |writer| args.encode(writer))?;
        self.status(&results, cookie)
    }

    pub(super) fn unlock(
        &mut self,
        file: FileHandle,
        owner: Owner,
        range: LockRange,
    ) -> Result<nlm::Status, MountError> {
        let (cookie, name, host) = (self.next_cookie(), self.name(owner.owner), self.host.clone());
        let lock = lock_of(&host, &file, (owner.svid, &name), range);
        let args = unlock::Args { cookie: NetObj(&cookie), lock };
        let results = self.caller.call(NLM, Procedure::Unlock.number(), |writer| args.encode(writer))?;
        self.status(&results, cookie)
    }

    pub(super) fn test(
        &mut self,
        file: FileHandle,
        owner: Owner,
        (range, kind): (LockRange, LockKind),
    ) -> Result<Result<Conflict, nlm::Status>, MountError> {
        let (cookie, name, host) = (self.next_cookie(), self.name(owner.owner), self.host.clone());
        let lock = lock_of(&host, &file, (owner.svid, &name), range);
        let exclusive = kind == LockKind::Exclusive;
        let args = test::Args { cookie: NetObj(&cookie), exclusive, lock };
        let results = self.caller.call(NLM, Procedure::Test.number(), |writer| args.encode(writer))?;
        match test::Reply::decode(&mut Reader::new(&results)) {
            Ok(reply) => Ok(match reply.outcome {
                test::Outcome::Denied(holder) => Ok(conflict(&holder)),
                test::Outcome::Other(status) => Err(status),
            }),
            Err(error) => Err(self.caller.protocol(error.to_string())),
        }
    }

    /// Lets the server know that the mount lives, and finds out whether it does.
    pub(super) fn renew(&mut self, file: FileHandle, owner: Owner) -> Result<(), MountError> {
        if !self.is_ours {
            return self.caller.call(NLM, Procedure::Null.number(), |_| {}).map(drop);
        }
        // A request that does not wait is cancelled, which changes nothing.
        let (cookie, name, host) = (self.next_cookie(), self.name(owner.owner), self.host.clone());
        let lock = lock_of(&host, &file, (owner.svid, &name), LockRange::ALL);
        let args = cancel::Args { cookie: NetObj(&cookie), block: true, exclusive: true, lock };
        let results = self.caller.call(NLM, Procedure::Cancel.number(), |writer| args.encode(writer))?;
        self.status(&results, cookie).map(drop)
    }
}

fn lock_of<'a>(
    host: &'a [u8],
    file: &'a FileHandle,
    (svid, owner): (i32, &'a [u8]),
    range: LockRange,
) -> Lock<'a> {
    Lock {
        caller: Text(host),
        file: NetObj(file.as_slice()),
        owner: NetObj(owner),
        svid,
        offset: range.first,
        // Up to the end of the file, wherever that is.
        length: if range.last == LockRange::END { 0 } else { range.last - range.first + 1 },
    }
}

/// A lock that is in the way. One of no bytes goes on to the end.
fn conflict(holder: &nlm::Holder<'_>) -> Conflict {
    let last = match holder.length {
        0 => LockRange::END,
        length => holder.offset.saturating_add(length - 1),
    };
    let kind = if holder.exclusive { LockKind::Exclusive } else { LockKind::Shared };
    Conflict { range: LockRange { first: holder.offset, last }, kind }
}

/// The name of this host. Servers of others take it for the name by which restarts are told.
fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

/// What a status that ends a request means to a program.
pub(super) const fn status_of(status: nlm::Status) -> Status {
    match status {
        nlm::Status::STALE_FH => Status::Stale,
        nlm::Status::ROFS => Status::ReadOnly,
        nlm::Status::FBIG => Status::FileTooBig,
        // ENOLCK
        _ => Status::NotSupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_to_the_server_and_come_back_as_they_were() {
        let file = FileHandle::new(b"file").unwrap();
        for (first, last, length) in [(0, LockRange::END, 0), (5, 14, 10), (7, 7, 1), (9, LockRange::END, 0)]
        {
            let range = LockRange { first, last };
            let lock = lock_of(b"host", &file, (1, b"owner"), range);
            assert_eq!((lock.offset, lock.length), (first, length));
            let held = nlm::Holder {
                exclusive: true,
                svid: 1,
                owner: lock.owner,
                offset: lock.offset,
                length: lock.length,
            };
            assert_eq!(conflict(&held), Conflict { range, kind: LockKind::Exclusive });
        }
        let nonsense =
            nlm::Holder { exclusive: false, svid: 1, owner: NetObj(b""), offset: u64::MAX, length: u64::MAX };
        assert_eq!(conflict(&nonsense).range.last, u64::MAX);
    }
}
