//! UMNTALL: the caller has unmounted everything. RFC 1813 s5.2.4

use crate::client::Client;
use crate::group::Group;

pub fn run(group: &Group, client: &Client) {
    group.mounts.remove_all(client.peer.ip());
}
