//! `rm` and `mkdir`.

use super::fixtures::{TestServer, fails, make_directory, make_file, prints, run};
use client::Mount;
use fs::{SetAttributes, Special};

/// A tree with one of each, and more names than fit into a page.
fn tree(mount: &Mount) {
    let top = make_directory(mount, mount.root(), b"tree");
    let deep = make_directory(mount, top, b"deep");
    make_directory(mount, deep, b"empty");
    make_file(mount, "/tree/deep/file", b"contents");
    let file = mount.resolve(b"/tree/deep/file").unwrap().0;
    mount.link(file, top, b"second name").unwrap();
    mount.make_symlink(top, b"out", b"/kept").unwrap();
    mount.make_symlink(top, b"dangling", b"nowhere").unwrap();
    mount.make_special(top, b"pipe", Special::Fifo, SetAttributes::mode(0o600)).unwrap();
    let many = make_directory(mount, top, b"many");
    for number in 0..600 {
        let name = format!("a rather long name, so that few of them fit into a page: {number}");
        mount.make_symlink(many, name.as_bytes(), b"x").unwrap();
    }
    make_directory(mount, mount.root(), b"kept");
    make_file(mount, "/kept/file", b"kept");
}

#[test]
fn a_tree_is_removed_and_no_link_is_followed() {
    let served = TestServer::start();
    let mount = served.mount();
    tree(&mount);
    mount.make_symlink(mount.root(), b"link", b"kept").unwrap();
    assert_eq!(prints(&["rm", "-r", &served.url("/tree"), &served.url("/link")]), "");
    assert_eq!(prints(&["ls", "-R", &served.url("")]).lines().nth(1), Some("kept"));
    assert_eq!(prints(&["cat", &served.url("/kept/file")]), "kept\n");
    // A slash at the end asks for a directory, which the link is not.
    mount.make_symlink(mount.root(), b"link", b"kept").unwrap();
    let err = fails(&["rm", "-r", &served.url("/link/")]);
    assert!(err.contains("not a directory"), "{err}");
    prints(&["rm", &served.url("/kept/file"), &served.url("/link")]);
    assert_eq!(prints(&["ls", "-R", &served.url("/kept")]).lines().count(), 1);
}

#[test]
fn directories_are_removed_only_on_request() {
    let served = TestServer::start();
    let mount = served.mount();
    tree(&mount);
    let err = fails(&["rm", &served.url("/kept")]);
    assert!(err.starts_with(&format!("error: cannot remove {}\n", served.url("/kept"))), "{err}");
    assert!(err.contains("it is a directory"), "{err}");
    let err = fails(&["rm", "-d", &served.url("/kept")]);
    assert!(err.contains("directory not empty"), "{err}");
    prints(&["rm", "-d", &served.url("/tree/deep/empty")]);
    assert_eq!(prints(&["ls", &served.url("/tree/deep")]), "file\n");
}

#[test]
fn what_must_not_be_removed_is_refused() {
    let served = TestServer::start();
    let mount = served.mount();
    tree(&mount);
    for path in ["", "/", "//", "/tree/..", "/tree/.", "/tree/../", "/.", "/tree/deep/..//"] {
        for flags in ["-r", "-rf", "-d"] {
            let err = fails(&["rm", flags, &served.url(path)]);
            let told = err.contains("cause: it is the root of") || err.contains("its last name is . or ..");
            assert!(told, "{path}: {err}");
        }
    }
    assert_eq!(prints(&["ls", &served.url("")]), "kept\ntree\n");
}

#[test]
fn each_failure_of_rm_is_told_and_the_rest_is_removed() {
    let served = TestServer::start();
    let mount = served.mount();
    tree(&mount);
    let absent = served.url("/absent");
    let (code, _, err) = run(&["rm", &absent, &served.url("/tree"), &served.url("/kept/file")]);
    assert_eq!((code, err.matches("error: cannot remove ").count()), (Some(1), 2), "{err}");
    assert!(err.contains("no such file or directory") && err.contains("it is a directory"), "{err}");
    assert_eq!(prints(&["ls", &served.url("/kept")]), "");
    prints(&["rm", "-f", &absent, &served.url("/absent/below"), &served.url("/tree/pipe")]);
    prints(&["rm", "-f"]);
    let (code, ..) = run(&["rm"]);
    assert_eq!(code, Some(2));
}

#[test]
fn directories_are_made_with_their_modes_and_those_above_on_request() {
    let served = TestServer::start();
    let mount = served.mount();
    prints(&["mkdir", &served.url("/one"), &served.url("/two/")]);
    prints(&["mkdir", "-m", "3750", &served.url("/special")]);
    assert_eq!(mount.resolve(b"/special").unwrap().1.mode, 0o3750);
    let err = fails(&["mkdir", &served.url("/one")]);
    assert!(err.starts_with(&format!("error: cannot make {}\n", served.url("/one"))), "{err}");
    assert!(err.contains("it exists already"), "{err}");
    let err = fails(&["mkdir", &served.url("/no/such")]);
    assert!(err.contains("/export/no: no such file or directory"), "{err}");
    prints(&[
        "mkdir",
        "-p",
        &served.url("/a/b//c/"),
        &served.url("/a/b"),
        &served.url("/a/x/../y"),
        &served.url(""),
    ]);
    assert_eq!(prints(&["ls", &served.url("/a")]), "b\nx\ny\n");
    make_file(&mount, "/file", b"");
    let err = fails(&["mkdir", "-p", &served.url("/file/below")]);
    assert!(err.contains("not a directory"), "{err}");
    let err = fails(&["mkdir", "-p", &served.url("/file")]);
    assert!(err.contains("it exists already"), "{err}");
    let (code, ..) = run(&["mkdir", "-m", "u+w", &served.url("/three")]);
    assert_eq!(code, Some(2));
    let (code, _, err) = run(&["mkdir", &served.url("/one"), &served.url("/three")]);
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(prints(&["ls", &served.url("/three")]), "");
}
