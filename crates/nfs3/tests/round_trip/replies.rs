//! Results of every procedure, made of arbitrary parts.

use crate::parts::{Parts, parts};
use crate::round_trip;
use nfs3::fuzzing::Which::{Mount, Nfs};
use nfs3::proc::{
    access, commit, create, fsinfo, fsstat, getattr, link, lookup, mkdir, mknod, pathconf, read, readdir,
    readdirplus, readlink, remove, rename, rmdir, setattr, symlink, write,
};
use nfs3::{List, Outcome, Procedure, Wire, mount};
use proptest::prelude::*;
use xdr::{Reader, Writer};

proptest! {
    #[test]
    fn results_of_queries_round_trip(parts in parts()) {
        telling(&parts);
        describing(&parts);
    }

    #[test]
    fn results_of_changes_round_trip(parts in parts()) {
        changing(&parts);
    }

    #[test]
    fn failures_round_trip_with_their_attributes(parts in parts()) {
        failing(&parts);
    }

    #[test]
    fn lists_round_trip(parts in parts(), entries in 0_u64..5) {
        listing(&parts, entries);
        mounting(&parts, entries);
    }
}

fn telling(parts: &Parts) {
    let (object, [attributes, directory]) = (parts.handles[0], parts.attributes);
    let (count, eof) = (parts.short[0], parts.flags[0]);
    let success = Outcome::Ok(getattr::Success { attributes: parts.full });
    round_trip!(Nfs(Procedure::GetAttr), reply, getattr::Reply, success);
    let success = Outcome::Ok(lookup::Success { object, attributes, directory });
    round_trip!(Nfs(Procedure::Lookup), reply, lookup::Reply, success);
    let success = Outcome::Ok(access::Success { attributes, access: count });
    round_trip!(Nfs(Procedure::Access), reply, access::Reply, success);
    let success = Outcome::Ok(readlink::Success { attributes, target: &parts.target });
    round_trip!(Nfs(Procedure::ReadLink), reply, readlink::Reply<'_>, success);
    let success = Outcome::Ok(read::ReplyHead { attributes, count, eof });
    round_trip!(Nfs(Procedure::Read), reply, read::Reply, success);
}

fn describing(parts: &Parts) {
    let attributes = parts.attributes[0];
    let [total_bytes, free_bytes, available_bytes, total_files, free_files, available_files] = parts.long;
    let success = Outcome::Ok(fsstat::Success {
        attributes,
        total_bytes,
        free_bytes,
        available_bytes,
        total_files,
        free_files,
        available_files,
        invariant_seconds: parts.short[0],
    });
    round_trip!(Nfs(Procedure::FsStat), reply, fsstat::Reply, success);
    let success = Outcome::Ok(fsinfo::Success {
        attributes,
        read_max: parts.short[0],
        read_preferred: parts.short[1],
        read_multiple: parts.short[2],
        write_max: parts.short[3],
        write_preferred: parts.short[4],
        write_multiple: parts.short[5],
        directory_preferred: parts.short[6],
        file_bytes_max: total_bytes,
        time_delta: parts.time,
        properties: parts.short[7],
    });
    round_trip!(Nfs(Procedure::FsInfo), reply, fsinfo::Reply, success);
    let [no_truncation, chown_restricted, case_insensitive, case_preserving] = parts.flags;
    let success = Outcome::Ok(pathconf::Success {
        attributes,
        links_max: parts.short[0],
        name_bytes_max: parts.short[1],
        no_truncation,
        chown_restricted,
        case_insensitive,
        case_preserving,
    });
    round_trip!(Nfs(Procedure::PathConf), reply, pathconf::Reply, success);
}

fn changing(parts: &Parts) {
    let (created, [from, to], verifier) = (parts.created(), parts.wcc, parts.verifier);
    round_trip!(Nfs(Procedure::SetAttr), reply, setattr::Reply, Outcome::Ok(from));
    let success =
        Outcome::Ok(write::Success { file: from, count: parts.short[0], committed: parts.stable, verifier });
    round_trip!(Nfs(Procedure::Write), reply, write::Reply, success);
    round_trip!(Nfs(Procedure::Create), reply, create::Reply, Outcome::Ok(created));
    round_trip!(Nfs(Procedure::MkDir), reply, mkdir::Reply, Outcome::Ok(created));
    round_trip!(Nfs(Procedure::SymLink), reply, symlink::Reply, Outcome::Ok(created));
    round_trip!(Nfs(Procedure::MkNod), reply, mknod::Reply, Outcome::Ok(created));
    round_trip!(Nfs(Procedure::Remove), reply, remove::Reply, Outcome::Ok(from));
    round_trip!(Nfs(Procedure::RmDir), reply, rmdir::Reply, Outcome::Ok(from));
    round_trip!(Nfs(Procedure::Rename), reply, rename::Reply, Outcome::Ok(rename::Success { from, to }));
    let success = Outcome::Ok(link::Success { attributes: parts.attributes[0], directory: to });
    round_trip!(Nfs(Procedure::Link), reply, link::Reply, success);
    round_trip!(
        Nfs(Procedure::Commit),
        reply,
        commit::Reply,
        Outcome::Ok(commit::Success { file: from, verifier })
    );
}

fn failing(parts: &Parts) {
    let (status, attributes, [from, to]) = (parts.failure, parts.attributes[0], parts.wcc);
    round_trip!(Nfs(Procedure::GetAttr), reply, getattr::Reply, Outcome::Fail(status, ()));
    round_trip!(Nfs(Procedure::SetAttr), reply, setattr::Reply, Outcome::Fail(status, from));
    round_trip!(Nfs(Procedure::Lookup), reply, lookup::Reply, Outcome::Fail(status, attributes));
    round_trip!(Nfs(Procedure::Access), reply, access::Reply, Outcome::Fail(status, attributes));
    round_trip!(Nfs(Procedure::ReadLink), reply, readlink::Reply<'_>, Outcome::Fail(status, attributes));
    round_trip!(Nfs(Procedure::Read), reply, read::Reply, Outcome::Fail(status, attributes));
    round_trip!(Nfs(Procedure::Write), reply, write::Reply, Outcome::Fail(status, from));
    round_trip!(Nfs(Procedure::Create), reply, create::Reply, Outcome::Fail(status, from));
    round_trip!(Nfs(Procedure::MkDir), reply, mkdir::Reply, Outcome::Fail(status, from));
    round_trip!(Nfs(Procedure::SymLink), reply, symlink::Reply, Outcome::Fail(status, from));
    round_trip!(Nfs(Procedure::MkNod), reply, mknod::Reply, Outcome::Fail(status, from));
    round_trip!(Nfs(Procedure::Remove), reply, remove::Reply, Outcome::Fail(status, from));
    round_trip!(Nfs(Procedure::RmDir), reply, rmdir::Reply, Outcome::Fail(status, from));
    round_trip!(
        Nfs(Procedure::Rename),
        reply,
        rename::Reply,
        Outcome::Fail(status, rename::Success { from, to })
    );
    let carried = link::Success { attributes, directory: to };
    round_trip!(Nfs(Procedure::Link), reply, link::Reply, Outcome::Fail(status, carried));
    round_trip!(Nfs(Procedure::ReadDir), reply, readdir::Reply<'_>, Outcome::Fail(status, attributes));
    round_trip!(
        Nfs(Procedure::ReadDirPlus),
        reply,
        readdirplus::Reply<'_>,
        Outcome::Fail(status, attributes)
    );
    round_trip!(Nfs(Procedure::FsStat), reply, fsstat::Reply, Outcome::Fail(status, attributes));
    round_trip!(Nfs(Procedure::FsInfo), reply, fsinfo::Reply, Outcome::Fail(status, attributes));
    round_trip!(Nfs(Procedure::PathConf), reply, pathconf::Reply, Outcome::Fail(status, attributes));
    round_trip!(Nfs(Procedure::Commit), reply, commit::Reply, Outcome::Fail(status, from));
    round_trip!(Mount(mount::Procedure::Mnt), reply, mount::mnt::Reply, Outcome::Fail(status, ()));
}

fn listing(parts: &Parts, entries: u64) {
    let [attributes, directory] = parts.attributes;
    let (name, verifier, eof) = (&parts.names[0][..], parts.verifier, parts.flags[0]);
    let plain = (0..entries).map(|fileid| readdir::Entry { fileid, name, cookie: parts.long[0] });
    let mut bytes = Vec::new();
    List::encode_items(plain, &mut Writer::new(&mut bytes));
    let entries_read = List::decode(&mut Reader::new(&bytes)).unwrap();
    let success =
        Outcome::Ok(readdir::Success { attributes: directory, verifier, entries: entries_read, eof });
    round_trip!(Nfs(Procedure::ReadDir), reply, readdir::Reply<'_>, success);
    let handle = parts.flags[1].then_some(parts.handles[0]);
    let plus = |fileid| readdirplus::Entry { fileid, name, cookie: parts.long[0], attributes, handle };
    let mut bytes = Vec::new();
    List::encode_items((0..entries).map(plus), &mut Writer::new(&mut bytes));
    let entries_read = List::decode(&mut Reader::new(&bytes)).unwrap();
    let success =
        Outcome::Ok(readdirplus::Success { attributes: directory, verifier, entries: entries_read, eof });
    round_trip!(Nfs(Procedure::ReadDirPlus), reply, readdirplus::Reply<'_>, success);
}

fn mounting(parts: &Parts, entries: u64) {
    let flavors = (0..entries).map(|_| parts.short[0]).collect();
    let success = Outcome::Ok(mount::mnt::Success { root: parts.handles[0], flavors });
    round_trip!(Mount(mount::Procedure::Mnt), reply, mount::mnt::Reply, success);
    let host = parts.names[0].get(..255).unwrap_or(&parts.names[0]);
    let mut bytes = Vec::new();
    let mounts = (0..entries).map(|_| mount::dump::Entry { host, directory: &parts.target });
    List::encode_items(mounts, &mut Writer::new(&mut bytes));
    let list = mount::dump::Reply::decode(&mut Reader::new(&bytes)).unwrap();
    round_trip!(Mount(mount::Procedure::Dump), reply, mount::dump::Reply<'_>, list);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    let mut exports = mount::export::ReplyWriter::new(&mut writer);
    (0..entries).for_each(|_| exports.add(&parts.target, [host, b"192.0.2.0/24"]));
    exports.finish();
    let list = mount::export::Reply::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!(list.iter().count() as u64, entries);
    assert!(
        list.iter().all(|entry| entry
            .groups
            .iter()
            .last()
            .is_some_and(|group| group.name == b"192.0.2.0/24"))
    );
    round_trip!(Mount(mount::Procedure::Export), reply, mount::export::Reply<'_>, list);
    for void in [mount::Procedure::Null, mount::Procedure::Umnt, mount::Procedure::UmntAll] {
        round_trip!(Mount(void), reply, (), ());
    }
    round_trip!(Nfs(Procedure::Null), reply, (), ());
}
