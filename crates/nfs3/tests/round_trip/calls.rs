//! Arguments of every procedure, made of arbitrary parts.

use crate::parts::{Parts, parts};
use crate::round_trip;
use nfs3::fuzzing::Which::{self, Mount, Nfs};
use nfs3::proc::{
    access, commit, create, fsinfo, fsstat, getattr, link, lookup, mkdir, mknod, pathconf, read, readdir,
    readdirplus, readlink, remove, rename, rmdir, setattr, symlink, write,
};
use nfs3::{FileType, Procedure, mount};
use proptest::prelude::*;

proptest! {
    #[test]
    fn arguments_of_queries_round_trip(parts in parts()) {
        asking(&parts);
    }

    #[test]
    fn arguments_of_changes_round_trip(parts in parts()) {
        changing(&parts);
        making(&parts);
    }
}

fn asking(parts: &Parts) {
    let object = parts.handles[0];
    let [offset, cookie, ..] = parts.long;
    let [count, dircount, maxcount, ..] = parts.short;
    let verifier = parts.verifier;
    round_trip!(Nfs(Procedure::Null), call, (), ());
    round_trip!(Nfs(Procedure::GetAttr), call, getattr::Args, getattr::Args { object });
    round_trip!(Nfs(Procedure::Lookup), call, lookup::Args<'_>, lookup::Args { what: parts.at(0) });
    round_trip!(Nfs(Procedure::Access), call, access::Args, access::Args { object, access: count });
    round_trip!(Nfs(Procedure::ReadLink), call, readlink::Args, readlink::Args { symlink: object });
    round_trip!(Nfs(Procedure::Read), call, read::Args, read::Args { file: object, offset, count });
    let listing = readdir::Args { directory: object, cookie, verifier, count };
    round_trip!(Nfs(Procedure::ReadDir), call, readdir::Args, listing);
    let listing = readdirplus::Args { directory: object, cookie, verifier, dircount, maxcount };
    round_trip!(Nfs(Procedure::ReadDirPlus), call, readdirplus::Args, listing);
    round_trip!(Nfs(Procedure::FsStat), call, fsstat::Args, fsstat::Args { root: object });
    round_trip!(Nfs(Procedure::FsInfo), call, fsinfo::Args, fsinfo::Args { root: object });
    round_trip!(Nfs(Procedure::PathConf), call, pathconf::Args, pathconf::Args { object });
    round_trip!(Nfs(Procedure::Commit), call, commit::Args, commit::Args { file: object, offset, count });
    let path = mount::mnt::Args { path: &parts.target };
    round_trip!(Mount(mount::Procedure::Mnt), call, mount::mnt::Args<'_>, path);
    round_trip!(Mount(mount::Procedure::Umnt), call, mount::umnt::Args<'_>, path);
    for void in
        [mount::Procedure::Null, mount::Procedure::Dump, mount::Procedure::UmntAll, mount::Procedure::Export]
    {
        round_trip!(Mount(void), call, (), ());
    }
}

fn changing(parts: &Parts) {
    let (object, new_attributes, guard) = (parts.handles[0], parts.set, parts.guard);
    let set = setattr::Args { object, new_attributes, guard };
    round_trip!(Nfs(Procedure::SetAttr), call, setattr::Args, set);
    let (offset, count, stable) = (parts.long[0], parts.short[0], parts.stable);
    let head = write::ArgsHead { file: object, offset, count, stable, data_len: count };
    round_trip!(Nfs(Procedure::Write), call, write::Args, head);
    round_trip!(Nfs(Procedure::Remove), call, remove::Args<'_>, remove::Args { object: parts.at(0) });
    round_trip!(Nfs(Procedure::RmDir), call, rmdir::Args<'_>, rmdir::Args { object: parts.at(0) });
    let renaming = rename::Args { from: parts.at(0), to: parts.at(1) };
    round_trip!(Nfs(Procedure::Rename), call, rename::Args<'_>, renaming);
    let linking = link::Args { file: object, link: parts.at(1) };
    round_trip!(Nfs(Procedure::Link), call, link::Args<'_>, linking);
}

fn making(parts: &Parts) {
    let (location, attributes) = (parts.at(0), parts.set);
    let hows = [
        create::How::Unchecked(attributes),
        create::How::Guarded(attributes),
        create::How::Exclusive(parts.verifier),
    ];
    for how in hows {
        round_trip!(Nfs(Procedure::Create), call, create::Args<'_>, create::Args { location, how });
    }
    round_trip!(Nfs(Procedure::MkDir), call, mkdir::Args<'_>, mkdir::Args { location, attributes });
    let linking = symlink::Args { location, attributes, target: &parts.target };
    round_trip!(Nfs(Procedure::SymLink), call, symlink::Args<'_>, linking);
    let special: Which = Nfs(Procedure::MkNod);
    for what in [
        mknod::What::CharacterDevice(attributes, parts.device),
        mknod::What::BlockDevice(attributes, parts.device),
        mknod::What::Socket(attributes),
        mknod::What::Fifo(attributes),
        mknod::What::Other(FileType::Regular),
        mknod::What::Other(FileType::Directory),
        mknod::What::Other(FileType::Symlink),
    ] {
        round_trip!(special, call, mknod::Args<'_>, mknod::Args { location, what });
    }
}
