//! EXPORT: what is exported, and to whom. RFC 1813 s5.2.5

use crate::client::Client;
use nfs3::mount::export::ReplyWriter;
use xdr::Writer;

/// Shows the exports that the client may use, and no others.
pub fn run(client: &Client, writer: &mut Writer<'_>) {
    let mut reply = ReplyWriter::new(writer);
    for (index, export) in client.exports.iter() {
        if client.admitted.contains(index) {
            let allowed: Vec<_> = export.config.allow.iter().map(ToString::to_string).collect();
            reply.add(export.config.path.as_bytes(), allowed.iter().map(String::as_bytes));
        }
    }
    reply.finish();
}
