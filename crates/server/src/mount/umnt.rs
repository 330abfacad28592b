//! UMNT: the caller has unmounted a path. RFC 1813 s5.2.3

use crate::client::Client;
use crate::group::Group;
use nfs3::mount::umnt::Args;

pub fn run(group: &Group, client: &Client, args: &Args<'_>) {
    tracing::info!(peer = %client.peer, path = %super::logged_path(args.path), "unmounted");
    group.mounts.remove(client.peer.ip(), args.path);
}
