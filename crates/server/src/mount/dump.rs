//! DUMP: the clients and the paths they mounted, as far as the server was told. RFC 1813 s5.2.2

use crate::client::Client;
use crate::group::Group;
use nfs3::List;
use nfs3::mount::dump::Entry;
use xdr::Writer;

/// Clients without any export get an empty list.
pub fn run(group: &Group, client: &Client, writer: &mut Writer<'_>) {
    let mounts = if client.admitted.is_empty() { Vec::new() } else { group.mounts.list() };
    let mounts: Vec<_> =
        mounts.into_iter().map(|mounted| (mounted.client.to_string(), mounted.path)).collect();
    let entries =
        mounts.iter().map(|(host, path)| Entry { host: host.as_bytes(), directory: path.as_bytes() });
    List::encode_items(entries, writer);
}
