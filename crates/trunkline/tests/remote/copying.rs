//! Tests `cp`: trees in both directions, targets that exist already, and failures.

use super::fixtures::{
    TIMEOUT, TestServer, fails, make_directory, make_file, pattern, prints, run, trunkline,
};
use super::summary::is_summary;
use super::trees::{compare, plant, snapshot};
use ::fs::SetAttributes;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use testkit::{Deadline, Process, Stream, temp_dir};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The names of temporary files that a copy left behind.
fn leftovers(served: &TestServer) -> Vec<String> {
    let listed = prints(&["ls", "-a", "-R", &served.url("")]);
    listed.lines().filter(|line| line.contains(".trunkline-")).map(str::to_owned).collect()
}

#[test]
fn a_tree_with_links_holes_and_odd_names_is_copied_to_the_server_and_back() {
    let served = TestServer::with(&["--mem", "256MiB", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    let place = temp_dir("cp");
    let tree = place.path().join("tree");
    plant(&tree);
    prints(&["cp", "-a", text(&tree), &served.url("/")]);
    prints(&[
        "cp",
        "-a",
        "-o",
        "nconnect=4,rsize=65536",
        &served.url("/tree"),
        text(&place.path().join("back")),
    ]);
    compare(&snapshot(&tree), &snapshot(&place.path().join("back")));
    let (data, hole) =
        (place.path().join("back/sparse"), fs::metadata(place.path().join("back/sparse")).unwrap());
    assert!(hole.blocks() * 512 < 2 << 20, "{} has no holes: {} blocks", data.display(), hole.blocks());
    // Again over the existing tree, and as the content of an existing directory.
    prints(&["cp", "-a", &format!("{}/.", text(&tree)), &served.url("/tree")]);
    prints(&["cp", "-a", "--verify", &served.url("/tree/."), text(&place.path().join("back"))]);
    compare(&snapshot(&tree), &snapshot(&place.path().join("back")));
    assert_eq!(leftovers(&served), [""; 0]);
}

#[test]
fn a_tree_is_copied_between_servers_and_within_a_server() {
    let (one, other) = (TestServer::start(), TestServer::start());
    let place = temp_dir("cp");
    let tree = place.path().join("tree");
    plant(&tree);
    prints(&["cp", "-a", text(&tree), &one.url("/first")]);
    prints(&["cp", "-a", "--verify", &one.url("/first"), &other.url("/second")]);
    prints(&["cp", "-a", &one.url("/first"), &one.url("/third")]);
    prints(&["cp", "-a", &one.url("/third"), text(&place.path().join("back"))]);
    compare(&snapshot(&tree), &snapshot(&place.path().join("back")));
    prints(&["cp", "-a", &other.url("/second"), text(&place.path().join("again"))]);
    compare(&snapshot(&tree), &snapshot(&place.path().join("again")));
}

#[test]
fn targets_follow_the_rules_of_cp() {
    let served = TestServer::start();
    let place = temp_dir("cp");
    let at = |name: &str| place.path().join(name);
    fs::write(at("a"), b"first").unwrap();
    fs::write(at("b"), b"second").unwrap();
    let mount = served.mount();
    make_directory(&mount, mount.root(), b"directory");
    prints(&["cp", text(&at("a")), text(&at("b")), &served.url("/directory")]);
    prints(&["cp", text(&at("a")), &served.url("/new name")]);
    prints(&["cp", text(&at("b")), &served.url("/new%20name")]);
    assert_eq!(prints(&["cat", &served.url("/new name")]), "second\n");
    assert_eq!(
        prints(&["ls", "-R", &served.url("")]).lines().skip(1).collect::<Vec<_>>()[..2],
        ["directory", "new name"]
    );
    assert_eq!(prints(&["ls", &served.url("/directory")]), "a\nb\n");
    let out = prints(&["cp", "-rn", &served.url("/directory"), text(&at("copy"))]);
    assert!(out.contains("/directory/a -> ") && out.contains("copy/a\n"), "{out}");
    assert!(!at("copy").exists());
    // A link that is named itself is followed, without -r.
    std::os::unix::fs::symlink("a", at("link")).unwrap();
    prints(&["cp", text(&at("link")), &served.url("/")]);
    assert_eq!(prints(&["cat", &served.url("/link")]), "first\n");
}

#[test]
fn excluded_names_and_paths_are_left_out_with_all_below_them() {
    let served = TestServer::start();
    let place = temp_dir("cp");
    let at = |name: &str| place.path().join(name);
    for directory in ["tree/build/inner", "tree/src/build", "tree/cache"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for file in ["a.o", "a.c", "build/inner/x", "src/a.o", "src/b.c", "src/build/y", "src/cache", "cache/z"] {
        fs::write(at("tree").join(file), file).unwrap();
    }
    let patterns = ["--exclude", "*.o", "--exclude", "/build", "--exclude=cache/", "--exclude", "src/b.*"];
    let copy =
        |flags: &[&str], from: &str, to: &str| prints(&[&["cp"], flags, &patterns, &[from, to]].concat());
    copy(&["-r"], text(&at("tree")), &served.url("/there"));
    let names = |url: &str| prints(&["ls", "-R", "--json", url]).matches("\"path\":").count();
    assert_eq!(prints(&["ls", &served.url("/there")]), "a.c\nsrc\n");
    assert_eq!(prints(&["ls", &served.url("/there/src")]), "build\ncache\n");
    assert_eq!(names(&served.url("/there")), 5, "src/build/y too");
    let planned = copy(&["-rn"], text(&at("tree")), &served.url("/other"));
    assert_eq!(planned.lines().count(), 6, "{planned}");
    // From the server the same is left out. A source that is named is copied.
    prints(&["cp", "-r", text(&at("tree")), &served.url("/whole")]);
    copy(&["-r"], &served.url("/whole"), text(&at("back")));
    assert!(at("back/src/build/y").exists() && !at("back/build").exists() && !at("back/src/a.o").exists());
    copy(&[], text(&at("tree/a.o")), &served.url("/named.o"));
    assert_eq!(prints(&["cat", &served.url("/named.o")]), "a.o\n");
    let (code, _, err) = run(&["cp", "-r", "--exclude", "[a", text(&at("tree")), &served.url("/other")]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("cause: the pattern \"[a\" is invalid") && err.contains("try: "), "{err}");
}

#[test]
fn a_copy_says_how_much_it_copied_also_without_a_terminal() {
    let served = TestServer::start();
    let place = temp_dir("cp");
    let source = place.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), pattern(2_000_000, 1)).unwrap();
    let said = |arguments: &[&str]| run(&[&["cp", "-r"], arguments].concat()).2;
    let (from, to) = (text(&source), served.url("/copy"));
    let summary = said(&[from, &to]);
    assert!(
        summary.starts_with("2 files and directories, 0.002 GB in ") && is_summary(&summary),
        "{summary}"
    );
    assert_eq!(summary.lines().count(), 1, "{summary}");
    let again = said(&["--resume", &format!("{from}/."), &to]);
    assert!(again.contains(", 1 were there already") && is_summary(&again), "{again}");
    assert_eq!(said(&["-n", from, &to]), "");
    let failed = said(&[&format!("{from}/absent"), &served.url("/other")]);
    assert!(failed.starts_with("error: "), "nothing was copied: {failed}");
}

#[test]
fn conflicts_with_the_target_are_errors_and_the_rest_is_copied() {
    let served = TestServer::start();
    let place = temp_dir("cp");
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("tree/inner")).unwrap();
    fs::write(at("tree/plain"), b"new").unwrap();
    fs::write(at("tree/inner/below"), b"new").unwrap();
    fs::write(at("file"), b"new").unwrap();
    let mount = served.mount();
    let target = make_directory(&mount, mount.root(), b"tree");
    make_directory(&mount, target, b"plain");
    make_file(&mount, "/tree/inner", b"old");
    make_file(&mount, "/taken", b"old");

    let err = fails(&["cp", "-r", text(&at("tree")), &served.url("/")]);
    assert!(err.starts_with("error: cannot copy 2 of "), "{err}");
    assert!(err.contains("a file cannot replace the directory of that name"), "{err}");
    assert!(err.contains("a directory cannot replace a file of that name"), "{err}");
    let err = fails(&["cp", text(&at("tree")), &served.url("/x")]);
    assert!(err.contains("-r was not given"), "{err}");
    let err = fails(&["cp", "-r", text(&at("tree")), &served.url("/taken")]);
    assert!(err.contains("a directory cannot replace a file"), "{err}");
    let err = fails(&["cp", "-r", &served.url("/tree"), &served.url("/tree/inside")]);
    assert!(err.contains("cannot be copied into itself"), "{err}");
    let err = fails(&["cp", &served.url("/taken"), &served.url("/taken")]);
    assert!(err.contains("onto itself"), "{err}");
    let err = fails(&["cp", text(&at("file")), text(&at("tree/plain")), &served.url("/taken")]);
    assert!(err.contains("several sources need an existing directory"), "{err}");
    let err = fails(&["cp", text(&at("file")), &served.url("/no/such/place")]);
    assert!(err.contains("no such file or directory"), "{err}");
    let err = fails(&["cp", &served.url("/nothing"), text(&at("x"))]);
    assert!(err.contains("cannot copy nfs://") && err.contains("no such file"), "{err}");
    // The source that exists is copied nevertheless.
    let err = fails(&["cp", text(&at("nothing")), text(&at("file")), &served.url("/tree")]);
    assert!(err.contains("nothing"), "{err}");
    assert_eq!(prints(&["cat", &served.url("/tree/file")]), "new\n");
    assert_eq!(prints(&["cat", &served.url("/taken")]), "old\n");
    for usage in [vec!["cp"], vec!["cp", "a"], vec!["cp", "a", "b"], vec!["cp", "--preserve=x", "a", "h:/b"]]
    {
        assert_eq!(run(&usage).0, Some(2), "{usage:?}");
    }
    assert_eq!(leftovers(&served), [""; 0]);
}

#[test]
fn a_file_that_does_not_fit_on_the_server_fails_and_leaves_nothing() {
    let served = TestServer::with(&["--mem", "8MiB", "--listen", "127.0.0.1:0"]);
    let place = temp_dir("cp");
    let at = |name: &str| place.path().join(name);
    fs::write(at("large"), pattern(20 << 20, 1)).unwrap();
    fs::write(at("small"), b"fits").unwrap();
    let err = fails(&["cp", text(&at("large")), text(&at("small")), &served.url("/")]);
    assert!(err.contains("no space left on the server"), "{err}");
    assert!(err.contains("trunkline stat --fs"), "{err}");
    assert_eq!(prints(&["ls", "-a", &served.url("")]), "small\n");
}

#[test]
fn the_error_names_what_the_server_forbids() {
    let place = temp_dir("cp");
    let at = |name: &str| place.path().join(name);
    let text_of = |more: &str| {
        format!(
            "[[node]]\nname = \"one\"\nlisten = [\"127.0.0.1:0\"]\n\
            [[export]]\npath = \"/export\"\nmem = \"8MiB\"\nallow = [\"127.0.0.0/8\"]\n{more}"
        )
    };
    fs::write(at("file"), b"data").unwrap();
    // Every user is squashed, and the root directory has another owner.
    for (more, needle) in [
        ("rw = true\nall_squash = true\nowner_uid = 4321\n", "permission denied"),
        ("rw = false\n", "read-only file system"),
    ] {
        fs::write(at("server.toml"), text_of(more)).unwrap();
        let served = TestServer::with(&["-c", text(&at("server.toml"))]);
        let err = fails(&["cp", text(&at("file")), &served.url("/")]);
        assert!(err.contains(needle), "{err}");
        assert!(err.contains("cannot copy ") && err.contains("/file\n"), "{err}");
    }
}

#[test]
fn many_small_files_arrive_with_their_times() {
    let served = TestServer::start();
    let place = temp_dir("cp");
    let tree = place.path().join("many");
    for directory in 0..20 {
        let directory = tree.join(format!("directory {directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..100 {
            fs::write(directory.join(format!("file {file}")), pattern(file * 37, 1)).unwrap();
        }
    }
    prints(&["cp", "-r", "--files", "32", text(&tree), &served.url("/")]);
    prints(&["cp", "-r", "--no-sync", "--verify", &served.url("/many"), text(&place.path().join("back"))]);
    compare(&snapshot(&tree), &snapshot(&place.path().join("back")));
    // Everything is already there.
    let (code, _, err) = run(&["cp", "-v", "-r", "--resume", text(&tree), &served.url("/")]);
    assert_eq!(code, Some(0), "{err}");
}

/// A server that sends at most 40 MB a second, with a file that takes several seconds.
fn slow() -> (TestServer, testkit::TempDir, Vec<u8>) {
    let place = temp_dir("slow");
    let text = "[[node]]\nname = \"slow\"\nlisten = [\"127.0.0.1:0\"]\npace = \"320Mbit\"\n\
        [[export]]\npath = \"/export\"\nmem = \"512MiB\"\nrw = true\nallow = [\"127.0.0.0/8\"]\nroot_squash = false\n";
    let file = place.path().join("slow.toml");
    fs::write(&file, text).unwrap();
    let served = TestServer::with(&["-c", file.to_str().unwrap()]);
    let data = pattern(180 << 20, 7);
    make_file(&served.mount(), "/data", &data);
    (served, place, data)
}

/// The length of the partial file in a directory, if there is one.
fn partial(directory: &Path) -> Option<u64> {
    let mut names = fs::read_dir(directory).unwrap().flatten();
    let part = names.find(|name| name.file_name().to_string_lossy().ends_with(".part"))?;
    part.metadata().ok().map(|metadata| metadata.len())
}

#[test]
fn an_interrupted_copy_leaves_no_file_and_can_be_resumed() {
    let (served, place, data) = slow();
    let at = |name: &str| place.path().join(name);
    let mut first = Process::spawn(trunkline(&["cp", &served.url("/data"), text(&at("copy"))]));
    let enough = || partial(place.path()).filter(|bytes| *bytes > 80 << 20);
    Deadline::wait_until("a good part of the copy", TIMEOUT, enough);
    first.signal(Signal::INT);
    assert_eq!(first.wait(TIMEOUT).code(), Some(130), "{}", first.all_output());
    let said = first.output(Stream::Err);
    assert!(said.contains("error: interrupted\n") && said.contains("--resume"), "{said}");
    assert!(!at("copy").exists());
    let (code, _, err) = run(&["cp", "-v", "--resume", "--verify", &served.url("/data"), text(&at("copy"))]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("taking up a partial copy"), "{err}");
    assert!(fs::read(at("copy")).unwrap() == data);
    assert_eq!(partial(place.path()), None);
}

#[test]
fn a_killed_copy_to_another_server_can_be_resumed() {
    let (served, _place, data) = slow();
    let target = TestServer::with(&["--mem", "512MiB", "--listen", "127.0.0.1:0"]);
    let mount = target.mount();
    let part = || {
        let names = mount.read_directory(mount.root()).unwrap();
        let part = names.into_iter().find(|entry| entry.name.ends_with(b".part"))?;
        part.attributes.map(|attributes| attributes.size)
    };
    let mut first = Process::spawn(trunkline(&["cp", &served.url("/data"), &target.url("/copy")]));
    Deadline::wait_until("a good part of the copy", TIMEOUT, || part().filter(|bytes| *bytes > 80 << 20));
    first.kill();
    assert!(mount.resolve(b"/copy").is_err());
    // The copy continues from the partial file.
    let (code, _, err) = run(&["cp", "-v", "--resume", &served.url("/data"), &target.url("/copy")]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("taking up a partial copy"), "{err}");
    assert_eq!(part(), None);
    let file = mount.open(b"/copy").unwrap();
    let mut found = vec![0; data.len() + 1];
    assert_eq!(file.read_all_at(&mut found, 0).unwrap(), data.len());
    assert!(found[..data.len()] == data);
}

#[test]
fn verify_finds_a_byte_that_changed_on_the_way() {
    let served = TestServer::start();
    let place = temp_dir("cp");
    let file = place.path().join("data");
    let mut data = pattern(3 << 20, 9);
    data[2_000_000..][..super::damage::MARK.len()].copy_from_slice(super::damage::MARK);
    fs::write(&file, &data).unwrap();
    let port = super::damage::flipping_proxy(served.addresses()[0]);
    let url = format!("nfs://127.0.0.1:{port}/export/copy");
    let err = fails(&["cp", "--verify", text(&file), &url]);
    assert!(err.contains("the copy differs from its source"), "{err}");
    assert_eq!(prints(&["ls", "-a", &served.url("")]), "");
    // Without --verify the damage is not noticed; a later run with --verify finds it and repairs
    // the copy.
    prints(&["cp", text(&file), &url]);
    let stored = || trunkline(&["cat", &served.url("/copy")]).output().unwrap().stdout;
    assert!(stored() != data);
    prints(&["cp", "--resume", "--verify", text(&file), &served.url("/copy")]);
    assert!(stored() == data);
}

#[test]
fn the_setuid_bit_is_copied_only_with_the_owner() {
    let served = TestServer::start();
    let mount = served.mount();
    make_file(&mount, "/program", b"#!/bin/sh\n");
    let (program, _) = mount.lookup(mount.root(), b"program").unwrap();
    let special = SetAttributes::mode(0o4755);
    mount.set_attributes(program, special, None).unwrap();
    let place = temp_dir("cp");
    let mode = |name: &str| fs::metadata(place.path().join(name)).unwrap().mode() & 0o7777;
    prints(&["cp", &served.url("/program"), text(&place.path().join("plain"))]);
    prints(&["cp", "-a", &served.url("/program"), text(&place.path().join("archived"))]);
    assert_eq!((mode("plain"), mode("archived")), (0o755, 0o4755));
}

#[test]
fn root_can_write_without_squashing_and_the_error_with_squashing_says_how() {
    let place = temp_dir("cp");
    let (export, state) = (place.path().join("export"), place.path().join("state"));
    fs::create_dir(&export).unwrap();
    let serve = ["--dir", text(&export), "--state", text(&state), "--listen", "127.0.0.1:0"];
    let source = place.path().join("source");
    fs::write(&source, b"data").unwrap();
    let squashing = TestServer::with(&serve);
    if rustix::process::geteuid().is_root() {
        let told = fails(&["cp", text(&source), &squashing.url("/copy")]);
        assert!(told.contains("--no-root-squash"), "{told}");
    } else {
        // A server that an ordinary user started acts as that user.
        prints(&["cp", text(&source), &squashing.url("/copy")]);
    }
    drop(squashing);
    let open = TestServer::with(&[&serve[..], &["--no-root-squash"]].concat());
    prints(&["cp", text(&source), &open.url("/copy")]);
    let copy = fs::metadata(export.join("copy")).unwrap();
    assert_eq!(copy.uid(), rustix::process::geteuid().as_raw());
}
