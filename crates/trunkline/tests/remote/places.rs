//! Tests that every command resolves a path in the same way: what can be mounted can also be
//! listed, read, examined and copied.

use super::fixtures::{TestServer, fails, prints};
use client::Mount;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use testkit::{TempDir, temp_dir};

/// The tree `/one/closed/open/file`, in which the clients, who are squashed, may not search
/// `closed`, and links into the tree.
struct Tree {
    served: TestServer,
    place: TempDir,
}

impl Tree {
    /// `None` if the test does not run as root: then no directory can be closed to clients and open
    /// to the server.
    fn start(listen: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root's server lets MOUNT pass where callers may not");
            return None;
        }
        let place = temp_dir("places");
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("tree/one/closed/open/inner")).unwrap();
        fs::write(at("tree/one/beside"), "beside\n").unwrap();
        fs::write(at("tree/one/closed/hidden"), "hidden\n").unwrap();
        fs::write(at("tree/one/closed/open/file"), "contents\n").unwrap();
        symlink("one/closed/open", at("tree/link")).unwrap();
        symlink("../../beside", at("tree/one/closed/open/out")).unwrap();
        for (name, mode) in
            [("", 0o755), ("tree", 0o755), ("tree/one/closed", 0o700), ("tree/one/closed/open", 0o777)]
        {
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        }
        let (directory, state) = (at("tree"), at("state"));
        let [directory, state] = [&directory, &state].map(|path| path.to_str().unwrap());
        let arguments = ["--dir", directory, "--state", state, "--export", "/export", "--listen", listen];
        Some(Self { served: TestServer::with(&arguments), place })
    }

    fn url(&self, below: &str) -> String {
        self.served.url(below)
    }
}

#[test]
fn every_command_reaches_paths_below_a_closed_directory_as_mount_does() {
    let Some(tree) = Tree::start("127.0.0.1:0") else { return };
    let address = tree.served.addresses()[0];
    let url = |below: &str| tree.url(&format!("/one/closed/open{below}"));
    Mount::connect(&url(""), "").expect("MOUNT gives the directory");
    assert_eq!(prints(&["ls", &url("")]), "file\ninner\nout\n");
    assert_eq!(prints(&["ls", &url("/file")]), "file\n");
    let (source, port) =
        (format!("{}:/export/one/closed/open", address.ip()), format!("port={}", address.port()));
    assert_eq!(prints(&["ls", "-o", &port, &source]), "file\ninner\nout\n");
    assert_eq!(prints(&["cat", &url("/file")]), "contents\n");
    assert!(prints(&["stat", &url("")]).contains("type          directory\n"));
    assert!(prints(&["stat", &url("/file")]).contains("size          9 bytes"));
    let copy = tree.place.path().join("copy");
    prints(&["cp", "-r", &url(""), copy.to_str().unwrap()]);
    assert_eq!(fs::read(copy.join("file")).unwrap(), b"contents\n");
    prints(&["cp", copy.join("file").to_str().unwrap(), &url("/new")]);
    assert_eq!(prints(&["cat", &url("/new")]), "contents\n");
}

#[test]
fn links_and_dots_below_a_closed_directory_resolve_as_usual() {
    let Some(tree) = Tree::start("127.0.0.1:0") else { return };
    let url = |below: &str| tree.url(below);
    assert_eq!(prints(&["cat", &url("/link/file")]), "contents\n");
    assert_eq!(prints(&["ls", &url("/link")]), "file\ninner\nout\n");
    assert!(prints(&["stat", &url("/link")]).contains("points to     one/closed/open\n"));
    assert_eq!(prints(&["cat", &url("/one/closed/open/out")]), "beside\n");
    assert_eq!(prints(&["cat", &url("/one/closed/open/inner/../file")]), "contents\n");
    assert_eq!(prints(&["cat", &url("/one/closed/../beside")]), "beside\n");
    let (from, to) = (url("/one/closed/open"), url("/one/closed/open/inner"));
    let err = fails(&["cp", "-r", &from, &to]);
    assert!(err.contains("a directory cannot be copied into itself"), "{err}");
}

#[test]
fn every_path_to_a_directory_that_ls_accepts_can_be_mounted() {
    let Some(tree) = Tree::start("127.0.0.1:0") else { return };
    for below in ["/link", "/link/inner/..", "/one/closed/open/../open/", "/one/closed/open/inner/../../open"]
    {
        let mounted = Mount::connect(&tree.url(below), "");
        let names = mounted.and_then(|mount| mount.resolve(b"file")).map(|(_, found)| found.size);
        assert_eq!(names.map_err(|error| error.to_string()), Ok(9), "{below}");
    }
    for (below, cause) in [("/one/beside", "NOTDIR"), ("/one/nothing", "no such export")] {
        let error = Mount::connect(&tree.url(below), "").map(|_| ()).expect_err(below);
        let text = format!("{error:?}");
        assert!(text.contains(cause), "{below}: {text}");
    }
}

#[test]
fn a_trailing_slash_requires_a_directory() {
    let Some(tree) = Tree::start("127.0.0.1:0") else { return };
    let url = |below: &str| tree.url(below);
    assert_eq!(prints(&["ls", &url("/one/")]), "beside\nclosed\n");
    assert!(prints(&["stat", &url("/link/")]).contains("type          directory\n"));
    let local = tree.place.path().join("local").display().to_string();
    fs::write(&local, "local\n").unwrap();
    for arguments in [
        &["cat", &url("/one/beside/")][..],
        &["ls", &url("/one/beside/")],
        &["stat", &url("/one/beside/.")],
        &["cp", &url("/one/beside/"), &local],
        &["cp", &local, &url("/one/beside/")],
        &["cp", &local, &url("/one/new/")],
    ] {
        let err = fails(arguments);
        assert!(err.contains("not a directory") || err.contains("no such file"), "{arguments:?}: {err}");
    }
    assert_eq!(prints(&["cat", &url("/one/beside")]), "beside\n");
    assert_eq!(prints(&["ls", &url("/one")]), "beside\nclosed\n");
    assert_eq!(fs::read(&local).unwrap(), b"local\n");
}

#[test]
fn the_error_for_a_path_names_the_component_and_the_call_that_failed() {
    let Some(tree) = Tree::start("127.0.0.1:0") else { return };
    let err = fails(&["cat", &tree.url("/one/closed/hidden")]);
    assert!(err.contains("cause: /export/one/closed/hidden: permission denied (LOOKUP: "), "{err}");
    let err = fails(&["ls", &tree.url("/one/nothing/below/it")]);
    assert!(err.contains("cause: /export/one/nothing: no such file or directory (LOOKUP: "), "{err}");
}

#[test]
fn an_ipv6_address_is_accepted_in_both_forms() {
    let Some(tree) = Tree::start("[::1]:0") else { return };
    assert_eq!(prints(&["ls", &tree.url("/one/closed/open/inner/..")]), "file\ninner\nout\n");
    let port = format!("port={}", tree.served.addresses()[0].port());
    assert_eq!(prints(&["cat", "-o", &port, "[::1]:/export/link/file"]), "contents\n");
}
