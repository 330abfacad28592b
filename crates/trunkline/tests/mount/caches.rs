//! Tests how long attributes and names are cached, and how directories are read, by the calls that
//! reach the server.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, names_in, shell};
use crate::semantics::flags;
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use testkit::Deadline;

/// How many times each test asks: so many that a chance call, such as one after a second has
/// passed, does not matter.
const TURNS: u64 = 50;
const CHANCE_MAX: u64 = 5;

/// The number of calls of these procedures that `work` causes.
fn cost(server: &Server, procedures: &[&str], work: impl FnOnce()) -> u64 {
    let calls = || procedures.iter().map(|procedure| server.calls(procedure)).sum::<u64>();
    let before = calls();
    work();
    calls() - before
}

fn exists_each_time(path: &Path, exists: bool) {
    (0..TURNS).for_each(|_| assert_eq!(path.exists(), exists));
}

#[test]
fn attributes_are_cached_as_long_as_the_options_say() {
    let server = Server::start_version_3(1);
    let other = server.mount("other", "");
    fs::write(other.path("f"), b"1").unwrap();
    let sizes = |mount: &Mounted| {
        (0..TURNS).for_each(|_| assert!(fs::metadata(mount.path("f")).unwrap().len() > 0));
    };
    let believed = server.mount("believed", "actimeo=3600");
    assert_eq!(fs::metadata(believed.path("f")).unwrap().len(), 1);
    assert_eq!(cost(&server, &["GETATTR"], || sizes(&believed)), 0);
    fs::write(other.path("f"), b"12").unwrap();
    assert_eq!(fs::metadata(believed.path("f")).unwrap().len(), 1, "cached for an hour");
    let asks = cost(&server, &["GETATTR"], || assert!(!fs::read(believed.path("f")).unwrap().is_empty()));
    assert!(asks > 0, "an open asks nevertheless");
    assert_eq!(fs::metadata(believed.path("f")).unwrap().len(), 2, "stat(2) sees what the open was told");

    for options in ["noac", "actimeo=0"] {
        let asked = server.mount(options, options);
        assert!(cost(&server, &["GETATTR", "LOOKUP"], || sizes(&asked)) >= TURNS, "{options}");
    }
    let short = server.mount("short", "actimeo=1");
    assert_eq!(fs::metadata(short.path("f")).unwrap().len(), 2);
    fs::write(other.path("f"), b"123").unwrap();
    Deadline::wait_until("the second to end", MOUNT_TIMEOUT, || {
        (fs::metadata(short.path("f")).unwrap().len() == 3).then_some(())
    });
}

#[test]
fn a_write_that_clears_set_id_bits_is_seen_by_a_program_that_asks_for_the_mode_alone() {
    let server = Server::start_version_3(1);
    let mount = server.mount("mnt", "nolock,actimeo=3600");
    let direct = "dd if=/dev/zero bs=4096 count=1 conv=notrunc oflag=direct status=none >&3";
    for write in ["printf data >&3", direct] {
        // Opened before the mode is set: an open would make the kernel ask for the attributes.
        let owner = format!("exec 3<> f; chmod 6755 f; stat f > /dev/null; {write}");
        let script = format!(
            "> f; chown 1000:1000 f
             setpriv --reuid 1000 --regid 1000 --clear-groups sh -euc '{owner}'"
        );
        shell(&mount.directory, &script);
        let asked = rustix::fs::statx(CWD, mount.path("f"), AtFlags::empty(), StatxFlags::MODE).unwrap();
        assert_eq!(asked.stx_mode & 0o7777, 0o755, "{write}");
    }
}

#[test]
fn names_are_cached_as_the_option_lookupcache_says() {
    let server = Server::start_version_3(1);
    for (options, present_asks, absent_asks) in [
        ("lookupcache=all", false, false),
        ("lookupcache=pos", false, true),
        ("lookupcache=none", true, true),
    ] {
        let mount = server.mount(options, &format!("actimeo=3600,{options}"));
        let name = format!("f-{options}");
        fs::write(mount.path(&name), b"").unwrap();
        for (path, exists, asks) in
            [(mount.path(&name), true, present_asks), (mount.path("absent"), false, absent_asks)]
        {
            let lookups = cost(&server, &["LOOKUP"], || exists_each_time(&path, exists));
            let right = if asks { lookups >= TURNS } else { lookups <= CHANCE_MAX };
            assert!(right, "{options}: {lookups} lookups of a name that exists: {exists}");
        }
    }
}

#[test]
fn a_listing_returns_attributes_with_names_if_the_options_permit_it() {
    const NAMES: u64 = 300;
    let server = Server::start_version_3(1);
    let one = server.mount("one", "");
    fs::create_dir(one.path("d")).unwrap();
    (0..NAMES).for_each(|at| drop(File::create(one.path(&format!("d/{at}"))).unwrap()));
    for (options, plus) in [("", true), ("forcerdirplus", true), ("nordirplus", false)] {
        let mount = server.mount(&format!("mnt{options}"), &format!("actimeo=3600,{options}"));
        let directory = mount.path("d");
        let mut asked = 0;
        let with_attributes = cost(&server, &["READDIRPLUS"], || {
            let without = cost(&server, &["READDIR"], || {
                asked = cost(&server, &["LOOKUP", "GETATTR"], || {
                    assert_eq!(shell(&directory, "ls -l | wc -l").trim(), (NAMES + 1).to_string());
                });
            });
            assert_eq!(without > 0, !plus, "{options}: {without} pages of names alone");
        });
        assert_eq!(with_attributes > 0, plus, "{options}: {with_attributes} pages with attributes");
        assert_eq!(asked < NAMES / 2, plus, "{options}: {asked} calls besides");
        // Programs that need the kinds of files and those that do not see the same names.
        assert_eq!(names_in(&directory).len() as u64, NAMES);
        assert_eq!(shell(&directory, "find . -type f | wc -l").trim(), NAMES.to_string());
    }
}

#[test]
fn an_open_asks_for_attributes_unless_nocto_is_set() {
    let server = Server::start_version_3(1);
    let one = server.mount("one", "");
    fs::write(one.path("f"), b"1").unwrap();
    for (options, asks) in [("", true), ("nocto", false)] {
        let mount = server.mount(&format!("mnt{options}"), &format!("actimeo=3600,{options}"));
        let open = || (0..TURNS).for_each(|_| drop(File::open(mount.path("f")).unwrap()));
        let asked = cost(&server, &["GETATTR"], open);
        let right = if asks { asked >= TURNS } else { asked <= CHANCE_MAX };
        assert!(right, "{options}: {asked} GETATTRs of {TURNS} opens");
    }
}

/// Tests the READs, of a MiB each, for a program that has read the first three MiB of a file.
#[test]
fn sequential_reads_are_read_ahead_unless_noac_is_set() {
    const READ_MIB: usize = 3;
    let server = Server::start_version_3(1);
    let one = server.mount("one", "");
    fs::write(one.path("f"), vec![1; 32 << 20]).unwrap();
    let begun = |mount: &Mounted| {
        let file = File::open(mount.path("f")).unwrap();
        let mut piece = vec![0; 64 << 10];
        for at in 0..READ_MIB * 16 {
            file.read_exact_at(&mut piece, at as u64 * (64 << 10)).unwrap();
        }
        file
    };
    let before = server.calls("READ");
    let _open = begun(&server.mount("mnt", ""));
    Deadline::wait_until("READs ahead", MOUNT_TIMEOUT, || {
        (server.calls("READ") - before > READ_MIB as u64 + 2).then_some(())
    });
    // The kernel itself reads ahead up to a MiB.
    let with_noac = cost(&server, &["READ"], || drop(begun(&server.mount("noac", "noac"))));
    assert!(with_noac <= READ_MIB as u64 * 2 + 2, "{with_noac} READs");
}

#[test]
fn a_file_removed_by_another_client_is_stale_to_programs_that_have_it_open() {
    let server = Server::start_version_3(1);
    let (one, other) = (server.mount("one", ""), server.mount("other", ""));
    fs::write(one.path("f"), b"first").unwrap();
    let direct = flags(OFlags::DIRECT).open(one.path("f")).unwrap();
    fs::remove_file(other.path("f")).unwrap();
    const STALE: Option<i32> = Some(116);
    assert_eq!(direct.read_at(&mut [0; 5], 0).unwrap_err().raw_os_error(), STALE);
    assert_eq!(direct.write_at(&[0; 5], 0).unwrap_err().raw_os_error(), STALE);
}
