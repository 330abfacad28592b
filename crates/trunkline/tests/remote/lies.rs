//! Tests commands on a server that gives false answers.

use super::fixtures::{fails, run};
use super::lying::{Lie, LyingServer};
use testkit::temp_dir;

#[test]
fn a_file_that_ends_before_its_end_is_never_a_success() {
    let place = temp_dir("lies");
    let copy = place.path().join("copy");
    for (lie, offset) in [(Lie::ReadsNothing, 0), (Lie::EndsEarly, 50)] {
        let server = LyingServer::start(lie);
        let (code, _, err) = run(&["cat", &server.url("/f")]);
        assert_eq!(code, Some(1), "{lie:?}: {err}");
        assert!(err.contains(&server.url("/f")), "{lie:?}: {err}");
        assert!(err.contains(&format!("no bytes at offset {offset},")), "{lie:?}: {err}");
        let err = fails(&["cp", &server.url("/f"), copy.to_str().unwrap()]);
        assert!(err.contains(&format!("no bytes at offset {offset},")), "{lie:?}: {err}");
        let err = fails(&["cp", "-r", &server.url(""), copy.to_str().unwrap()]);
        assert!(err.contains(&format!("{}: READ: ", server.url("/sub/g"))), "{lie:?}: {err}");
        assert!(err.contains(&format!("no bytes at offset {offset},")), "{lie:?}: {err}");
        assert!(!copy.join("f").exists() && !copy.join("sub/g").exists(), "{lie:?}");
    }
}

#[test]
fn an_export_that_is_a_file_cannot_be_mounted() {
    let server = LyingServer::start(Lie::RootIsFile);
    let place = temp_dir("lies");
    let options = format!("port={0},mountport={0}", server.port());
    let err = fails(&["mount", "127.0.0.1:/export", place.path().to_str().unwrap(), "-f", "-o", &options]);
    assert!(err.contains("/export is not a directory but a file"), "{err}");
}

#[test]
fn a_tree_that_contains_itself_is_walked_once_by_every_command() {
    let place = temp_dir("lies");
    for (lie, name, above) in [(Lie::ContainsParent, "up", ""), (Lie::ContainsItself, "me", "/sub")] {
        let server = LyingServer::start(lie);
        let (cycle, above) = (server.url(&format!("/sub/{name}")), server.url(above));
        for (verb, arguments) in
            [("list", &["ls", "-R"][..]), ("measure", &["du"]), ("list", &["ls", "-R", "--json"])]
        {
            let (code, out, err) = run(&[arguments, &[&server.url("")]].concat());
            assert_eq!(code, Some(1), "{arguments:?}: {err}");
            assert!(err.starts_with(&format!("error: cannot {verb} {cycle}\n")), "{arguments:?}: {err}");
            assert!(err.contains(&format!("it is the same directory as {above},")), "{arguments:?}: {err}");
            assert_eq!(err.matches("error: ").count(), 1, "{arguments:?}: {err}");
            assert!(out.lines().count() >= 2 && out.contains("sub"), "{arguments:?}: {out}");
        }
        let copy = place.path().join(name);
        let err = fails(&["cp", "-r", &server.url(""), copy.to_str().unwrap()]);
        assert!(err.contains(&cycle) && err.contains("it contains itself"), "{err}");
        assert!(copy.join("f").exists() && copy.join("sub/g").exists());
        let (code, out, err) = run(&["cp", "-rn", &server.url(""), copy.to_str().unwrap()]);
        assert_eq!((code, out.lines().count()), (Some(1), 4), "{out}");
        assert!(err.contains("it contains itself"), "{err}");
        assert_eq!(server.removed(), 0);
        // The same if the cycle leads to a directory above the place.
        let err = fails(&["rm", "-r", &server.url("/sub")]);
        assert!(err.starts_with(&format!("error: cannot remove {cycle}\n")), "{err}");
        assert!(err.contains("it contains itself"), "{err}");
        // The file in the directory, and nothing that contains the cycle.
        assert_eq!(server.removed(), 1);
    }
}

#[test]
fn a_tree_without_an_end_is_left_at_the_longest_path() {
    let place = temp_dir("lies");
    let server = LyingServer::start(Lie::Endless);
    for arguments in [&["ls", "-R"][..], &["du", "-s"], &["rm", "-r"]] {
        let (code, _, err) = run(&[arguments, &[&server.url("/sub")]].concat());
        assert_eq!(code, Some(1), "{arguments:?}: {err}");
        assert!(err.contains("is longer than 4096 bytes"), "{arguments:?}: {err}");
        assert_eq!(err.matches("error: ").count(), 1, "{arguments:?}: {err}");
    }
    let copy = place.path().join("copy");
    let err = fails(&["cp", "-r", "--no-sync", &server.url("/sub"), copy.to_str().unwrap()]);
    assert!(err.contains("is longer than 4096 bytes"), "{err}");
}
