//! Servers with both kinds of stores, for what a store takes part in; and what clients do there.

use super::client::{Client, after_sequence, config_with_4, put, start_with};
use fs::FileHandle;
use nfs4::compound::ReplyReader;
use nfs4::op::{self, Args, Fore, kind};
use nfs4::{Attributes, Bitmap, Fattr, OwnerId, StateOwner, Stateid, Status};
use server::{Config, StoreConfig};
use std::net::SocketAddr;
use std::path::Path;

/// Two exports, "/export" and "/other", which `change` may change.
fn config(change: &impl Fn(&mut Config)) -> Config {
    let mut config = config_with_4();
    config.exports[0].store = StoreConfig::Mem { bytes: 256 << 20, owner_uid: 0, owner_gid: 0 };
    let mut other = config.exports[0].clone();
    other.path = "/other".to_owned();
    other.fsid += 1;
    config.exports.push(other);
    change(&mut config);
    config
}

/// One directory in `home`, beside the state of its server, and the shortest lease that there is.
pub fn restartable(home: &Path) -> Config {
    let mut config = config_with_4();
    config.lease = server::config::LEASE_MIN;
    let (path, state) = (home.join("data"), home.join("state"));
    std::fs::create_dir_all(&path).unwrap();
    config.exports[0].store = StoreConfig::Dir { path, state: Some(state), server_groups: false };
    config
}

/// Runs a test with two exports in memory, and with two directories.
pub fn on_each_with(change: impl Fn(&mut Config), test: impl Fn(SocketAddr)) {
    let (_server, address) = start_with(config(&change));
    test(address);
    let homes: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut config = config(&change);
    for (at, export) in config.exports.iter_mut().enumerate() {
        export.store = StoreConfig::Dir {
            path: homes[2 * at].path().to_owned(),
            state: Some(homes[2 * at + 1].path().to_owned()),
            server_groups: false,
        };
    }
    let (_server, address) = start_with(config);
    test(address);
}

pub fn on_each(test: impl Fn(SocketAddr)) {
    on_each_with(|_| {}, test);
}

/// The results after SEQUENCE and PUTFH.
pub fn after_put(results: &[u8]) -> ReplyReader<'_, Fore> {
    let mut reader = after_sequence(results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    reader
}

pub fn remove(name: &str) -> Args<'_> {
    Args::Remove(op::link::RemoveArgs { name: name.as_bytes() })
}

impl Client {
    /// Runs one operation on an object.
    pub fn on(&mut self, object: FileHandle, args: &Args<'_>) -> Status {
        self.run(|to| _ = to.push(&put(object)).push(args))
    }

    pub fn attributes(&mut self, object: FileHandle, wanted: &[u32]) -> Result<Attributes<'static>, Status> {
        let wanted = Bitmap::of(wanted);
        let results = self.send(|to| {
            to.push(&put(object)).push(&Args::GetAttr(op::getattr::Args { wanted }));
        });
        let mut reader = after_put(&results);
        let got = reader.expect::<kind::GetAttr>().unwrap()?;
        let got = got.attributes.parse().unwrap();
        Ok(Attributes {
            size: got.size,
            change: got.change,
            numlinks: got.numlinks,
            supported_attrs: got.supported_attrs,
            xattr_support: got.xattr_support,
            clone_blksize: got.clone_blksize,
            ..Attributes::default()
        })
    }

    pub fn size(&mut self, file: FileHandle) -> u64 {
        self.attributes(file, &[4]).unwrap().size.unwrap()
    }

    /// Opens a file below the root of an export, which is created if it is missing.
    pub fn open_in(&mut self, export: &str, name: &str, access: u32) -> (FileHandle, Stateid) {
        let root = self.walk(&[export]).unwrap();
        let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
        let how = op::open::How::Unchecked(Fattr::all(&mode));
        let claim = op::open::Claim::Name(name.as_bytes());
        self.open_by(root, access, 0, how, claim).unwrap()
    }

    /// Opens a file that has a handle.
    pub fn open_handle(&mut self, file: FileHandle, access: u32, deny: u32) -> Result<Stateid, Status> {
        let (how, claim) = (op::open::How::NoCreate, op::open::Claim::Current);
        self.open_by(file, access, deny, how, claim).map(|(_, stateid)| stateid)
    }

    fn open_by(
        &mut self,
        object: FileHandle,
        access: u32,
        deny: u32,
        how: op::open::How<'_>,
        claim: op::open::Claim<'_>,
    ) -> Result<(FileHandle, Stateid), Status> {
        let owner = StateOwner { client: self.id, owner: OwnerId::new(b"opener").unwrap() };
        let args = Args::Open(op::open::Args { seqid: 0, access, deny, owner, how, claim });
        let results = self.send(|to| _ = to.push(&put(object)).push(&args).push(&Args::GetFh(())));
        let mut reader = after_put(&results);
        let opened = reader.expect::<kind::Open>().unwrap()?;
        Ok((reader.expect::<kind::GetFh>().unwrap().unwrap().handle, opened.stateid))
    }

    pub fn set_size(&mut self, file: FileHandle, stateid: Stateid, size: u64) -> Status {
        let size = Attributes { size: Some(size), ..Attributes::default() };
        self.on(file, &Args::SetAttr(op::getattr::SetArgs { stateid, attributes: Fattr::all(&size) }))
    }

    pub fn set_mode(&mut self, object: FileHandle, mode: u32) {
        let mode = Attributes { mode: Some(mode), ..Attributes::default() };
        let (stateid, attributes) = (Stateid::ANONYMOUS, Fattr::all(&mode));
        assert_eq!(self.on(object, &Args::SetAttr(op::getattr::SetArgs { stateid, attributes })), Status::OK);
    }
}
