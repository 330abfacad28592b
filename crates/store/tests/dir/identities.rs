//! Tests the rights of callers: where root serves, each caller acts with its own identity; where
//! another user serves, all callers act as that user.

use crate::again::{as_root, with_own_mounts};
use crate::fixture::{Home, ROOT, directory, file, list, mode, open_to_all, read, size, write};
use std::os::unix::fs::MetadataExt;
use store::{
    Caller, CreateMode, Device, DirOptions, DirStore, FileKind, NewObject, Rights, SetAttributes, SetTime,
    Special, Stability, Status, Store, Time, Wait,
};

const ANN: Caller<'static> = Caller { uid: 1001, gid: 1001, gids: &[] };
const BEN: Caller<'static> = Caller { uid: 1002, gid: 1002, gids: &[] };
const BEN_IN_GROUP: Caller<'static> = Caller { uid: 1002, gid: 1002, gids: &[7, 1001] };

/// The users and groups of this thread; the fourth of each is that of the file system.
fn identity() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let of_interest = |line: &&str| {
        line.starts_with("Uid:")
            || line.starts_with("Gid:")
            || line.starts_with("Groups:")
            || line.starts_with("CapPrm:")
    };
    status.lines().filter(of_interest).map(str::to_owned).collect()
}

#[test]
fn two_users_cannot_access_each_others_files() {
    as_root(|| {
        let home = Home::new();
        let store = open_to_all(&home);
        let root = store.root();
        let before = identity();
        let own = file(&store, ANN, root, "own", 0o600);
        let shared = file(&store, ANN, root, "shared", 0o640);
        let private = directory(&store, ANN, root, "private", 0o700);
        let within = file(&store, ANN, private, "within", 0o666);
        assert_eq!(
            (
                std::fs::metadata(home.path("own")).unwrap().uid(),
                std::fs::metadata(home.path("own")).unwrap().gid()
            ),
            (1001, 1001)
        );
        for object in [own, shared] {
            assert_eq!(write(&store, ANN, object, b"hers"), Ok(4));
            assert_eq!(read(&store, BEN, object), Err(Status::Access));
            assert_eq!(write(&store, BEN, object, b"his"), Err(Status::Access));
            assert_eq!(store.set_attributes(BEN, object, &size(0), None).1, Err(Status::Access));
            assert_eq!(store.set_attributes(BEN, object, &mode(0o777), None).1, Err(Status::NotPermitted));
        }
        assert_eq!(read(&store, BEN_IN_GROUP, shared).unwrap(), b"hers", "by a supplementary group");
        assert_eq!(write(&store, BEN_IN_GROUP, shared, b"his"), Err(Status::Access));
        assert_eq!(store.lookup(BEN, private, b"within", Wait::Allowed).unwrap().1, Err(Status::Access));
        let listed = store.read_directory(BEN, private, 0, &mut |_| true);
        assert_eq!(listed.err(), Some(Status::Access));
        let made = store.create(BEN, private, b"x", NewObject::File(CreateMode::Guarded(mode(0o600)))).1;
        assert_eq!(made, Err(Status::Access));
        assert_eq!(store.remove(BEN, private, b"within").1, Err(Status::Access));
        assert_eq!(store.rename(BEN, (private, b"within"), (root, b"mine")).2, Err(Status::Access));
        assert_eq!(store.access(BEN, own, Rights(0x3f), Wait::Allowed).unwrap().unwrap().0, Rights(0));
        assert_eq!(
            store.access(ANN, own, Rights(0x3f), Wait::Allowed).unwrap().unwrap().0,
            Rights(0x01 | 0x04 | 0x08)
        );
        assert!(read(&store, ROOT, own).is_ok() && read(&store, ROOT, within).is_ok());
        assert_eq!(identity(), before, "the thread has its own identity again");
    });
}

#[test]
fn an_exclusive_create_reports_a_taken_name_only_to_callers_that_may_look_it_up() {
    as_root(|| {
        let home = Home::new();
        let store = open_to_all(&home);
        for (name, permissions, taken) in
            [("readable", 0o755, Status::Exists), ("private", 0o700, Status::Access)]
        {
            let within = directory(&store, ANN, store.root(), name, permissions);
            file(&store, ANN, within, "taken", 0o644);
            let create = |name: &[u8]| {
                store.create(BEN, within, name, NewObject::File(CreateMode::Exclusive([7; 8]))).1
            };
            assert_eq!(create(b"taken"), Err(taken), "{name}");
            assert_eq!(create(b"free"), Err(Status::Access), "{name}");
        }
    });
}

#[test]
fn sticky_directories_and_groups_follow_the_rules_of_the_kernel() {
    as_root(|| {
        let home = Home::new();
        let store = open_to_all(&home);
        let root = store.root();
        let sticky = directory(&store, ROOT, root, "tmp", 0o1777);
        file(&store, ANN, sticky, "hers", 0o666);
        assert_eq!(store.remove(BEN, sticky, b"hers").1, Err(Status::NotPermitted));
        assert_eq!(store.remove(ANN, sticky, b"hers").1, Ok(()));
        let group = directory(&store, ROOT, root, "group", 0o2777);
        let gid = SetAttributes { gid: Some(77), ..SetAttributes::default() };
        store.set_attributes(ROOT, group, &gid, None).1.unwrap();
        let within =
            store.create(ANN, group, b"f", NewObject::File(CreateMode::Unchecked(mode(0o664)))).1.unwrap();
        assert_eq!((within.attributes.uid, within.attributes.gid), (1001, 77));
        let below = store.create(ANN, group, b"d", NewObject::Directory(mode(0o755))).1.unwrap();
        let below = below.attributes;
        assert_eq!((below.gid, below.mode), (77, 0o2755));
        let linked = file(&store, ANN, root, "f", 0o644);
        assert_eq!(store.link(ANN, linked, root, b"g").2, Ok(()));
        assert_eq!(store.rename(ANN, (root, b"g"), (root, b"h")).2, Ok(()));
        assert_eq!(store.attributes(linked, Wait::Allowed).unwrap().unwrap().nlink, 2);
        let number = Device { major: 1, minor: 3 };
        let device = NewObject::Special(mode(0o600), Special::CharacterDevice(number));
        assert_eq!(store.create(ANN, root, b"null", device).1, Err(Status::NotPermitted));
        let made = store.create(ROOT, root, b"null", device).1.unwrap();
        assert_eq!((made.attributes.kind, made.attributes.rdev), (FileKind::CharacterDevice, number));
        let nobody = Caller { uid: u32::MAX, gid: u32::MAX, gids: &[] };
        let as_none = store.create(nobody, root, b"x", NewObject::File(CreateMode::Unchecked(mode(0o600)))).1;
        assert_eq!(as_none, Err(Status::Access), "the number that means no user gives no rights");
    });
}

#[test]
fn set_id_bits_are_cleared_when_a_file_is_written() {
    as_root(|| {
        let home = Home::new();
        let store = open_to_all(&home);
        let made = file(&store, ANN, store.root(), "program", 0o755);
        let bits = |store: &DirStore| store.attributes(made, Wait::Allowed).unwrap().unwrap().mode;
        store.set_attributes(ANN, made, &mode(0o6777), None).1.unwrap();
        assert_eq!(bits(&store), 0o6777);
        write(&store, BEN, made, b"#!").unwrap();
        assert_eq!(bits(&store), 0o777);
        store.set_attributes(ANN, made, &mode(0o4755), None).1.unwrap();
        store.set_attributes(ANN, made, &size(1), None).1.unwrap();
        assert_eq!(bits(&store), 0o755);
        store.set_attributes(ANN, made, &mode(0o4755), None).1.unwrap();
        let given = SetAttributes { uid: Some(1002), ..SetAttributes::default() };
        assert_eq!(store.set_attributes(ANN, made, &given, None).1, Err(Status::NotPermitted));
        store.set_attributes(ROOT, made, &given, None).1.unwrap();
        assert_eq!(bits(&store), 0o755);
    });
}

#[test]
fn set_group_id_without_group_execute_stays_when_a_member_of_the_group_changes_the_file() {
    as_root(|| {
        for home in [Home::new(), Home::in_place(std::env::temp_dir())] {
            let store = open_to_all(&home);
            let made = file(&store, ANN, store.root(), "f", 0o666);
            let cases = [
                (ANN, 0o2644, 0o2644),
                (ANN, 0o6744, 0o2744),
                (ANN, 0o2755, 0o755),
                (BEN_IN_GROUP, 0o2666, 0o2666),
                (BEN, 0o2666, 0o666),
                (ROOT, 0o6755, 0o6755),
            ];
            for (caller, before, after) in cases {
                let bits = || store.attributes(made, Wait::Allowed).unwrap().unwrap().mode;
                store.set_attributes(ANN, made, &mode(before), None).1.unwrap();
                store.set_attributes(caller, made, &size(1), None).1.unwrap();
                assert_eq!(bits(), after, "{caller:?} truncates {before:o}");
                for wait in [Wait::Allowed, Wait::Refused(None)] {
                    store.set_attributes(ANN, made, &mode(before), None).1.unwrap();
                    // Where waiting is refused, the store may leave the write to a later attempt.
                    let stability = Stability::Unstable;
                    match store.write(caller, made, 0, b"data", stability, wait) {
                        Ok((_, written)) => written.map(drop).unwrap(),
                        Err(_) => drop(write(&store, caller, made, b"data").unwrap()),
                    }
                    assert_eq!(bits(), after, "{caller:?} writes {before:o}");
                }
            }
        }
    });
}

#[test]
fn times_are_set_by_the_owner_and_touched_by_callers_that_may_write() {
    as_root(|| {
        let home = Home::new();
        let store = open_to_all(&home);
        let made = file(&store, ANN, store.root(), "f", 0o666);
        let to = Time { seconds: 1_000_000, nanoseconds: 42 };
        let set =
            SetAttributes { atime: SetTime::To(to), mtime: SetTime::To(to), ..SetAttributes::default() };
        assert_eq!(store.set_attributes(BEN, made, &set, None).1, Err(Status::NotPermitted));
        store.set_attributes(ANN, made, &set, None).1.unwrap();
        let found = store.attributes(made, Wait::Allowed).unwrap().unwrap();
        assert_eq!((found.atime, found.mtime), (to, to));
        let touch = SetAttributes { mtime: SetTime::Now, atime: SetTime::Now, ..SetAttributes::default() };
        store.set_attributes(BEN, made, &touch, None).1.unwrap();
        assert!(store.attributes(made, Wait::Allowed).unwrap().unwrap().mtime > to);
    });
}

#[test]
fn a_caller_with_sixteen_groups_gets_those_of_the_database() {
    with_own_mounts("identities::a_caller_with_sixteen_groups_gets_those_of_the_database", || {
        let home = Home::new();
        let mut groups = String::from("root:x:0:\nann:x:1001:\n");
        (0..40).for_each(|number| groups.push_str(&format!("team{number}:x:{}:ann\n", 5000 + number)));
        let users = "root:x:0:0::/:/bin/sh\nann:x:1001:1001::/:/bin/sh\n";
        for (name, text) in [("passwd", users), ("group", &groups)] {
            std::fs::write(home.beside(name), text).unwrap();
            let mut mount = std::process::Command::new("mount");
            mount.arg("--bind").arg(home.beside(name)).arg(format!("/etc/{name}"));
            assert!(mount.status().unwrap().success());
        }
        let options = DirOptions { path: home.path(""), state: Some(home.state()), server_groups: true };
        let store = DirStore::open(&options).unwrap();
        let made = file(&store, ROOT, store.root(), "f", 0o640);
        let group = SetAttributes { gid: Some(5039), ..SetAttributes::default() };
        store.set_attributes(ROOT, made, &group, None).1.unwrap();
        let brought: Vec<u32> = (5000..5016).collect();
        let ann = Caller { gids: &brought, ..ANN };
        assert!(read(&store, ann, made).is_ok(), "the fortieth group of the database counts");
        assert_eq!(read(&store, Caller { gids: &brought[..15], ..ANN }, made), Err(Status::Access));
        let unknown = Caller { gids: &brought, ..BEN };
        assert_eq!(
            read(&store, unknown, made),
            Err(Status::Access),
            "an unknown user has the groups of the call"
        );
        assert_eq!(
            read(&home.open(), ann, made),
            Err(Status::Access),
            "without `server_groups` the groups of the call count"
        );
    });
}

#[test]
fn threads_that_act_for_different_users_never_mix_them_up() {
    const USERS: u32 = 4;
    const ROUNDS: usize = 150;
    as_root(|| {
        let home = Home::new();
        let store = open_to_all(&home);
        let root = store.root();
        std::thread::scope(|scope| {
            for thread in 0..2 * USERS {
                let store = &store;
                scope.spawn(move || {
                    let before = identity();
                    let (uid, gids) = (2000 + thread % USERS, [3000 + thread % USERS]);
                    let caller = Caller { uid, gid: uid, gids: &gids };
                    let other = Caller { uid: 2000 + (thread + 1) % USERS, gid: 1, gids: &[] };
                    for round in 0..ROUNDS {
                        let name = format!("{thread}-{round}");
                        let made = file(store, caller, root, &name, 0o600);
                        let found = store.attributes(made, Wait::Allowed).unwrap().unwrap();
                        assert_eq!((found.uid, found.gid), (uid, uid));
                        assert_eq!(write(store, caller, made, name.as_bytes()), Ok(name.len() as u32));
                        assert_eq!(read(store, other, made), Err(Status::Access));
                        assert_eq!(read(store, caller, made).unwrap(), name.as_bytes());
                        let group = SetAttributes { gid: Some(gids[0]), ..SetAttributes::default() };
                        assert_eq!(store.set_attributes(caller, made, &group, None).1, Ok(()));
                        let not_ours = SetAttributes { gid: Some(9), ..SetAttributes::default() };
                        let refused = store.set_attributes(caller, made, &not_ours, None).1;
                        assert_eq!(refused, Err(Status::NotPermitted));
                        let renamed = format!("{name}-moved");
                        store.rename(caller, (root, name.as_bytes()), (root, renamed.as_bytes())).2.unwrap();
                        store.remove(caller, root, renamed.as_bytes()).1.unwrap();
                    }
                    assert_eq!(identity(), before);
                });
            }
        });
        assert_eq!(list(&store, root, 10).unwrap().len(), 2);
    });
}
