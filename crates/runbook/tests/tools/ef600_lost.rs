//! `rest.sh` of an EF600 where a connection breaks before the answer has come: nobody knows then
//! whether the array has done what it was asked for.

use crate::ef600_rest::{ALL_CONSENTS, Site};

/// Each kind of request loses an answer once. `do` goes on where it was, makes nothing twice, and
/// `undo` then takes back everything.
#[test]
fn a_request_whose_answer_is_lost_is_found_done_or_sent_again() {
    let site = Site::new();
    let before = site.array().objects.clone();
    let mut changes = Vec::new();
    let losses = [
        ("POST", "/configuration", true),
        ("POST", "/nvmeof/interfaces", true),
        ("POST", "/storage-pools", true),
        ("POST", "/volumes", true),
        ("POST", "/volumes/", true),
        ("POST", "/hosts", false),
        ("POST", "/hosts", true),
        ("POST", "/host-groups", true),
        ("POST", "/volume-mappings", false),
        ("POST", "/volume-mappings", true),
    ];
    for loss in losses {
        site.array().loss = Some(loss);
        let (worked, said) = site.rest("do");
        assert!(
            !worked && said.contains("no answer; it may have been done: run this again"),
            "{loss:?}: {said}"
        );
        assert!(said.contains("(52)"), "curl's reason: {said}");
        assert!(site.array().loss.is_none(), "{loss:?}");
        changes.extend(site.changes());
    }
    let (worked, said) = site.rest("do");
    assert!(worked, "{said}");
    changes.extend(site.changes());
    // As many as without a loss: nothing was made or set twice.
    assert_eq!(changes.len(), 5 + 8 + 2 + 4 + 4 + 3 + 1 + 4, "{changes:#?}");
    assert_eq!(site.rest("verify"), (true, "settings, volumes, hosts, mappings: as planned\n".to_owned()));
    assert_eq!(site.rest("do"), (true, String::new()));
    for loss in [
        ("DELETE", "/volume-mappings", true),
        ("DELETE", "/host-groups", true),
        ("DELETE", "/hosts", false),
        ("DELETE", "/hosts", true),
        ("DELETE", "/volumes", true),
        ("DELETE", "/storage-pools", true),
        ("POST", "/configuration", true),
    ] {
        site.array().loss = Some(loss);
        let (worked, said) = site.rest_with("undo", "s3cret", &ALL_CONSENTS);
        assert!(!worked && said.contains("no answer; it may have been done"), "{loss:?}: {said}");
    }
    let (worked, said) = site.rest_with("undo", "s3cret", &ALL_CONSENTS);
    assert!(worked, "{said}");
    assert_eq!(site.array().objects, before);
    assert!(!site.folder.path().join("array-de0704/rest-made").exists());
}

/// An object of that name may also be somebody else's.
#[test]
fn undo_does_not_remove_what_it_cannot_tell_from_somebody_elses() {
    let site = Site::new();
    site.array().loss = Some(("POST", "/hosts", true));
    let (worked, said) = site.rest("do hosts");
    assert!(!worked && said.contains("no answer"), "{said}");
    site.changes();
    let (worked, said) = site.rest("undo hosts");
    assert!(!worked && said.contains("whether this has made the host cmp01 is not known"), "{said}");
    assert!(said.contains("./rest.sh do hosts takes it as made") && site.changes().is_empty(), "{said}");
    let (worked, said) = site.rest("do hosts");
    assert!(worked, "{said}");
    let (worked, said) = site.rest("undo hosts");
    assert!(worked && said.contains("delete the host cmp01\n"), "{said}");
}

/// A question may be asked again, and of the other controller.
#[test]
fn an_answer_to_a_question_that_is_lost_changes_nothing() {
    let site = Site::new();
    site.array().loss = Some(("GET", "/storage-pools", true));
    let (worked, said) = site.rest("do volumes");
    assert!(!worked && said.contains("no controller answers") && said.contains("(52)"), "{said}");
    assert!(site.changes().is_empty());
    let (worked, said) = site.rest("do volumes");
    assert!(worked && said.contains("create de0704a01v1\n"), "{said}");
}
