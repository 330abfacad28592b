//! Captures of which nothing is understood.

use super::*;

#[test]
fn a_capture_that_is_not_understood_is_told_with_the_command_that_makes_it() {
    for capture in CAPTURES {
        let findings = all(&evidence(&[(capture.name, "x\n")]), &Expected::default());
        let [unread] = &findings[..] else { panic!("{}: {findings:#?}", capture.name) };
        assert_eq!((unread.rule, unread.status), ("capture.unread", Status::Unknown), "{}", capture.name);
        assert_eq!(unread.source, capture.name);
        assert!(unread.seen.starts_with(capture.name), "{unread:?}");
        assert!(unread.mend.starts_with(&format!("{} > ", capture.command())), "{unread:?}");
    }
}

#[test]
fn an_empty_capture_and_one_that_could_not_be_made_are_not_unread() {
    for capture in CAPTURES {
        for text in [Ok("\n".to_owned()), Err("no such program".to_owned())] {
            let mut evidence = evidence(&[(capture.name, "")]);
            evidence.0.get_mut(capture.name).unwrap().text = text;
            let findings = all(&evidence, &Expected::default());
            assert!(findings.iter().all(|of| of.rule != "capture.unread"), "{findings:#?}");
        }
    }
}

#[test]
fn no_absence_of_devices_is_told_of_captures_that_are_not_understood() {
    let rules = |captures: &[(&str, &str)]| {
        let findings = all(&evidence(captures), &Expected::default());
        findings.into_iter().map(|of| of.rule).collect::<Vec<_>>()
    };
    assert_eq!(rules(&[("ibv_devinfo.txt", "No IB devices found\n")]), ["rdma.devices"]);
    let both = [("ibv_devinfo.txt", "ibv_devinfo: cannot open\n"), ("sys-infiniband.txt", "")];
    assert_eq!(rules(&both), ["capture.unread"]);
    let links = [("rdma-link.txt", "mlx5_0 is up\n"), ("sys-infiniband.txt", "")];
    assert_eq!(rules(&links), ["capture.unread"]);
}
