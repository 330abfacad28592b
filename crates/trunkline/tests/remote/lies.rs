//! Tests commands on a server that gives false answers.

use super::fixtures::{fails, run};
use super::lying::{Lie, Lying};
use testkit::temp_dir;

#[test]
fn a_file_that_ends_before_its_end_is_never_a_success() {
    let place = temp_dir("lies");
    let copy = place.path().join("copy");
    for (lie, offset) in [(Lie::ReadsNothing, 0), (Lie::EndsEarly, 50)] {
        let server = Lying::start(lie);
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
    let server = Lying::start(Lie::RootIsFile);
    let place = temp_dir("lies");
    let options = format!("port={0},mountport={0}", server.port());
    let err = fails(&["mount", "127.0.0.1:/export", place.path().to_str().unwrap(), "-f", "-o", &options]);
    assert!(err.contains("/export is not a directory but a file"), "{err}");
}
