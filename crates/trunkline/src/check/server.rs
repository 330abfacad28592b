//! Asks a server: versions, full frames, the export, the rights of this user, its clock.

mod frames;
mod version;
mod write;

use crate::error::Error;
use ::check::{Expected, Finding};
use client::options::{Proto, Version};
use client::{Mount, Offer, Settings, mount_service, offers};
use fs::{FileKind, Rights};
use std::net::{IpAddr, SocketAddr};

/// Everything that is found out about an export.
pub(super) fn check(
    target: &str,
    options: &str,
    expected: &Expected,
    write: bool,
) -> Result<Vec<Finding>, Error> {
    let settings = Settings::from_options(target, options)?;
    let mut findings = Vec::new();
    let offers = offers(&settings);
    for offer in &offers {
        findings.push(version::offered(offer, settings.version));
        findings.extend(version::minors(offer));
    }
    let mut addresses: Vec<IpAddr> = offers.iter().map(|offer| offer.address.ip()).collect();
    addresses.dedup();
    let locals = frames::locals(&settings, expected);
    for address in addresses {
        findings.extend(frames::check(address, &locals, expected.mtu));
    }
    let mount_program = |is_mounted| match settings.version {
        Version::V3 => Some(mount_program(&settings, mount_service(&settings), is_mounted)),
        // Version 4 needs no such program.
        Version::V4(_) => None,
    };
    match Mount::with_settings(settings.clone()) {
        Ok(mount) => {
            findings.extend(mount_program(true));
            findings.push(mounted(&mount, &settings, target));
            findings.push(rights(&mount, &settings, target));
            if write {
                findings.extend(write::check(&mount, target));
            } else {
                findings.push(write::not_looked_at(target));
            }
        }
        Err(error) => {
            findings.extend(mount_program(false));
            findings.push(not_mounted(&error, target, offers.first()));
        }
    }
    Ok(findings)
}

fn proto_name(proto: Proto) -> &'static str {
    match proto {
        Proto::Tcp => "TCP",
        Proto::Rdma => "RDMA",
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text.replace('\n', " ")
}

/// Whether the MOUNT program answers. A mount that came about by another address needs no more.
fn mount_program(
    settings: &Settings,
    service: Result<SocketAddr, client::MountError>,
    is_mounted: bool,
) -> Finding {
    let server = settings.server;
    let finding = |seen| Finding::ok("server.mount", format!("NULL call of MOUNT to {server}"), seen);
    match service {
        Ok(address) => finding(format!("MOUNT version 3 over TCP at {address}: offered")),
        Err(error) if is_mounted => finding(format!("MOUNT at {server}: {}", chain(&error))),
        Err(error) => finding(format!("MOUNT at {server}: {}", chain(&error))).fail(
            "MOUNT gives the handle of the export, without which version 3 cannot be mounted",
            format!("rpcinfo -p {server}    # is mountd there, and does a firewall pass its port? then: -o mountport=N"),
        ),
    }
}

fn mounted(mount: &Mount, settings: &Settings, target: &str) -> Finding {
    let (read, write) = mount.transfer_sizes();
    let proto = proto_name(settings.proto);
    let seen = format!("{} over {proto}: READ of {read} bytes, WRITE of {write}", mount.name());
    let finding = Finding::ok("server.export", target, seen);
    const WANTED: u32 = 1 << 20;
    if read.min(write) >= WANTED.min(settings.rsize).min(settings.wsize) {
        return finding;
    }
    finding.warn(
        "the server allows only shorter transfers, which cost more calls for the same bytes",
        "raise the server's limit (knfsd: /proc/fs/nfsd/max_block_size before nfsd starts)",
    )
}

fn not_mounted(error: &client::Error, target: &str, offer: Option<&Offer>) -> Finding {
    let seen = chain(error);
    let server = offer.map_or_else(|| "SERVER".to_owned(), |offer| offer.address.ip().to_string());
    let mend =
        format!("showmount -e {server}    # is the export there, and does it admit this host's address?");
    Finding::ok("server.export", target, seen).fail("the export cannot be used from this host", mend)
}

/// What this user may do in the root of the export, by ACCESS. RFC 1813 s3.3.4
fn rights(mount: &Mount, settings: &Settings, target: &str) -> Finding {
    const RULE: &str = "server.rights";
    let root = mount.root();
    let wished = [
        (Rights::READ, "list"),
        (Rights::LOOKUP, "enter"),
        (Rights::EXTEND, "create"),
        (Rights::DELETE, "delete"),
    ];
    let all = Rights(wished.iter().fold(0, |all, (right, _)| all | right.0));
    let found = mount.access(root, all).and_then(|rights| Ok((rights, mount.attributes(root)?)));
    let (rights, attributes) = match found {
        Ok(found) => found,
        Err(error) => {
            let mend = "does the server's log say why?";
            return Finding::unknown(RULE, target, chain(&error), mend);
        }
    };
    let words = |may: bool| {
        let having = wished.iter().filter(|(right, _)| (rights.0 & right.0 != 0) == may);
        having.map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    };
    let (uid, gid) = (settings.uid, settings.gid);
    let seen = format!(
        "user {uid}, group {gid} may {}; the root of the export belongs to {}:{}, mode {:o}",
        if words(true).is_empty() { "do nothing".to_owned() } else { words(true) },
        attributes.uid,
        attributes.gid,
        attributes.mode & 0o7777
    );
    let finding = Finding::ok(RULE, target, seen);
    let may_look = [Rights::READ, Rights::LOOKUP].iter().all(|right| rights.0 & right.0 != 0);
    if attributes.kind != FileKind::Directory || words(false).is_empty() || settings.read_only && may_look {
        return finding;
    }
    let why = format!(
        "the server refuses to {} here; it knows users by their numbers, which must be the same on both sides, \
         and maps root to nobody unless the export says otherwise",
        words(false)
    );
    let squash = match uid {
        0 => ", or no_root_squash (PowerScale: --root-clients)",
        _ => ", or the same number there (PowerScale: isi auth users view)",
    };
    let mend = format!("at the server: chown {uid}:{gid} of the directory{squash}");
    if may_look { finding.warn(why, mend) } else { finding.fail(why, mend) }
}
