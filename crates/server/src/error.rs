//! Why a server does not start or a node does not listen, each with what to do about it.
//!
//! A setting is named by its key in a configuration file, in backquotes, so that a program whose
//! user gave the setting otherwise can find and replace the name.

use crate::config::{ConfigError, ListenAddress};
use crate::nfs4_state::RecoveryError;
use crate::shared_reply_cache::GroupError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server does not start. It displays as a sentence, a cause and what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Misuse: the configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be listened on.
    #[error("{}", Listen { address, error })]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// Another process of the group listens on an address in the place of this one, and does not
    /// leave it.
    #[error(
        "cannot listen on {address}\n  cause: another process of the group took the address over, and does not \
         give it back: it is stopped, or hangs\n  try:   ss -ltnp 'sport = :{}'        to see which; kill -CONT or \
         kill -KILL it",
        address.socket().port()
    )]
    HeldByGroup {
        /// The address.
        address: ListenAddress,
    },
    /// An address cannot be listened on over RDMA.
    #[error("cannot listen on {address} over RDMA\n  cause: {error}\n  try:   {}", rdma_advice(error))]
    ListenRdma {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        error: transport::rdma::Error,
    },
    /// The congestion control is not on offer here.
    #[error(
        "cannot use the congestion control \"{name}\"\n  cause: {}; on offer here: {offered}\n  \
         try:   one of these, or leave `congestion` out",
        congestion_cause(error)
    )]
    Congestion {
        /// Its name.
        name: String,
        /// Those on offer.
        offered: String,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A directory cannot be exported.
    #[error("{}", Directory { export, error })]
    Store {
        /// The export's path.
        export: String,
        /// Why.
        #[source]
        error: store::OpenError,
    },
    /// The process cannot be part of a group of them.
    #[error(
        "cannot serve as part of the group in {}\n  cause: {error}\n  try:   {}",
        directory.display(),
        error.advice()
    )]
    Group {
        /// The group's directory.
        directory: PathBuf,
        /// Why.
        #[source]
        error: GroupError,
    },
    /// What clients of version 4 may reclaim after a restart cannot be kept.
    #[error("cannot keep what clients have open and locked\n  cause: {0}\n  try:   {advice}", advice = .0.advice())]
    Recovery(#[from] RecoveryError),
    /// The system refused a thread, descriptor or random bytes.
    #[error(
        "cannot start the server\n  cause: {what}: {error}\n  try:   fewer `loops`, or a higher `ulimit -n`"
    )]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The host's rpcbind does not take our programs.
    #[error(
        "cannot register with this host's rpcbind\n  cause: {error}\n  try:   stop that server or rpcbind, or serve \
         without `rpcbind` and mount with port= and mountport="
    )]
    Rpcbind {
        /// What it said, or the system.
        #[source]
        error: io::Error,
    },
    /// Misuse: a socket was passed on for an address that no node has.
    #[error(
        "cannot use the socket on {address} that was passed on\n  cause: no node of the configuration listens \
         there\n  try:   `listen` on {address} in a node, or another ListenStream= in the socket unit"
    )]
    Unclaimed {
        /// Its address.
        address: SocketAddr,
    },
    /// Misuse: there is no such node.
    #[error("there is no node {0}\n  cause: nodes are numbered from 0\n  try:   Server::addresses")]
    NoSuchNode(usize),
}

/// The system calls a congestion control that it does not have a missing file.
fn congestion_cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "this system has none of that name".to_owned(),
        io::ErrorKind::PermissionDenied => "this system keeps it for privileged programs".to_owned(),
        _ => error.to_string(),
    }
}

/// How a directory that cannot be exported is explained.
struct Directory<'a> {
    export: &'a str,
    error: &'a store::OpenError,
}

impl fmt::Display for Directory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { export, error } = self;
        let advice = match error {
            store::OpenError::Root { path, .. } => format!("ls -ld {}", path.display()),
            store::OpenError::NoStatePlace => "say where with `state`".to_owned(),
            store::OpenError::State { .. } => {
                "a directory of this user's own as `state`, which nobody else can write to".to_owned()
            }
            store::OpenError::StateInside { .. } => "a directory that is not exported as `state`".to_owned(),
        };
        write!(f, "cannot export a directory as {export}\n  cause: {error}\n  try:   {advice}")
    }
}

/// What brings RDMA about, here.
fn rdma_advice(error: &transport::rdma::Error) -> &'static str {
    use transport::rdma::{Error, VerbsError};
    match error {
        Error::Verbs(VerbsError::Missing { .. }) => {
            "apt-get install libibverbs1 librdmacm1 ibverbs-providers rdma-core"
        }
        Error::Verbs(VerbsError::NoDevice) => {
            "rdma link add rxe0 type rxe netdev INTERFACE        as root, for RDMA in software"
        }
        Error::Verbs(VerbsError::NoRoute(_)) => {
            "rdma link; ip address        to see the devices and their addresses"
        }
        Error::Verbs(VerbsError::Register { .. }) => "ulimit -l unlimited",
        Error::Verbs(VerbsError::Io { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
            "rdma resource show cm_id        to see who listens there; or another port"
        }
        _ => "dmesg        to see what the device says",
    }
}

/// How a failure to listen is explained.
struct Listen<'a> {
    address: &'a SocketAddr,
    error: &'a io::Error,
}

impl fmt::Display for Listen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, error } = self;
        let port = address.port();
        let (cause, advice) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                "another program listens there".to_owned(),
                format!("ss -ltnp 'sport = :{port}'        to see which, or another port"),
            ),
            io::ErrorKind::AddrNotAvailable => (
                "no interface of this host has that address".to_owned(),
                "ip address        to see those it has".to_owned(),
            ),
            io::ErrorKind::PermissionDenied => (
                format!("port {port} is privileged (below 1024)"),
                "a port from 1024 up, or CAP_NET_BIND_SERVICE".to_owned(),
            ),
            _ => (error.to_string(), "another address or port".to_owned()),
        };
        write!(f, "cannot listen on {address}\n  cause: {cause}\n  try:   {advice}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_explained_with_what_to_do() {
        let address = "127.0.0.1:2049".parse().unwrap();
        let text = Error::Listen { address, error: io::ErrorKind::AddrInUse.into() }.to_string();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.starts_with("cannot listen on 127.0.0.1:2049\n  cause: another program"), "{text}");
        assert!(text.contains("  try:   ss -ltnp 'sport = :2049'"), "{text}");
    }
}
