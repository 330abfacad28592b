//! Tests of the table of operations.

use super::*;
use crate::{Class, Effect};

#[test]
fn numbers_and_names_are_those_of_the_standards() {
    // RFC 8881 s16.2.4 and RFC 7863: 3 to 75 without a gap.
    let mut numbers: Vec<_> = Operation::ALL.iter().map(|operation| operation.number()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (3..=75).collect::<Vec<_>>());
    for (number, name) in [
        (18, "OPEN"),
        (42, "EXCHANGE_ID"),
        (53, "SEQUENCE"),
        (59, "ALLOCATE"),
        (71, "CLONE"),
        (75, "REMOVEXATTR"),
    ] {
        assert_eq!(Operation::of(number, 2).map(Operation::name), Some(name));
    }
}

#[test]
fn a_minor_version_has_its_operations_and_those_before() {
    // RFC 7862 s15, RFC 8276 s8.4: 59 and above are of version 4.2.
    assert!((3..=58).all(|number| Operation::of(number, 1).is_some()));
    assert!((59..=75).all(|number| Operation::of(number, 1).is_none()));
    assert!((59..=75).all(|number| Operation::of(number, 2).is_some()));
    assert!([0, 1, 2, 76, 10_044].iter().all(|number| Operation::of(*number, 2).is_none()));
}

#[test]
fn what_changes_state_must_run_once_and_data_may_be_written_twice() {
    let named = |effect| {
        let of = Operation::ALL.iter().filter(move |one| one.description().effect == effect);
        let mut names: Vec<_> = of.map(|operation| operation.name()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(
        named(Effect::Repeatable),
        [
            "ALLOCATE",
            "BACKCHANNEL_CTL",
            "BIND_CONN_TO_SESSION",
            "CLONE",
            "COPY",
            "DEALLOCATE",
            "DELEGPURGE",
            "EXCHANGE_ID",
            "LAYOUTCOMMIT",
            "RENEW",
            "SETATTR",
            "WRITE",
            "WRITE_SAME",
        ]
    );
    let once = named(Effect::Changes);
    for name in ["OPEN", "CLOSE", "CREATE", "REMOVE", "RENAME", "LINK", "LOCK", "LOCKU", "SETXATTR"] {
        assert!(once.contains(&name), "{name}");
    }
    assert!(Effect::Nothing < Effect::Repeatable && Effect::Repeatable < Effect::Changes);
}

#[test]
fn payload_belongs_to_reads_and_writes() {
    let of = |class| {
        let of = Operation::ALL.iter().filter(move |one| one.description().class == class);
        of.map(|operation| operation.name()).collect::<Vec<_>>()
    };
    assert_eq!(of(Class::Read), ["READ", "READ_PLUS"]);
    assert_eq!(of(Class::Write), ["COMMIT", "WRITE", "LAYOUTCOMMIT", "WRITE_SAME"]);
}
