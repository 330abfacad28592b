//! Layouts compared with the guide's figures, and refused requests.

use super::*;
use proptest::prelude::*;

fn of(scheme: Scheme, drives: i64) -> Layout {
    layout(&Request::new(scheme, drives)).expect("a valid layout")
}

fn refused(request: &Request) -> String {
    let text = layout(request).expect_err("it breaks a rule").to_string();
    assert!(text.contains("\n  cause: ") && text.contains("\n  try:   "), "{text}");
    text
}

/// The commands of a script: without comments and messages, and with single blanks.
fn commands(text: &str) -> Vec<String> {
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let commands = code.join(" ");
    let commands =
        commands.split(';').map(|command| command.split_whitespace().collect::<Vec<_>>().join(" "));
    // Blanks just inside parentheses have no meaning.
    let plain = commands.map(|command| command.replace("( ", "(").replace(" )", ")"));
    plain.filter(|command| !command.is_empty() && !command.starts_with("show ")).collect()
}

// Deploying NetApp EF600, figure 11.
#[test]
fn the_pool_of_24_is_that_of_figure_11() {
    let request = Request {
        name: "de0704".to_owned(),
        volume: Some(Bytes::new(4096.0 * crate::units::GIB)),
        ..Request::new(Scheme::Ddp, 24)
    };
    let script = layout(&request).and_then(|layout| layout.script()).expect("a script");
    // The figure has `all Volumes` here and `allVolumes` in figure 13; both are the same command.
    let figure = include_str!("../../tests/data/figure-11.smcli").replace("all Volumes", "allVolumes");
    assert_eq!(commands(&script), commands(&figure));
}

// Deploying NetApp EF600, figure 13.
#[test]
fn two_raid_6_groups_are_those_of_figure_13() {
    let request = Request {
        name: "de0704".to_owned(),
        volume: Some(Bytes::new(4992.0 * crate::units::GIB)),
        ..Request::new(Scheme::Raid6, 20)
    };
    let script = layout(&request).and_then(|layout| layout.script()).expect("a script");
    assert_eq!(commands(&script), commands(include_str!("../../tests/data/figure-13.smcli")));
}

#[test]
fn every_group_lies_evenly_on_both_buses_in_either_order() {
    let counts = (12..=24)
        .step_by(2)
        .map(|drives| (Scheme::Ddp, drives))
        .chain([(Scheme::Raid6, 10), (Scheme::Raid6, 20)]);
    for (scheme, drives) in counts {
        for order in [Order::Centre, Order::Ends] {
            let found = layout(&Request { order, ..Request::new(scheme, drives) }).expect("valid");
            for group in &found.groups {
                assert_eq!(group.drives_by_bus[0], group.drives_by_bus[1], "{scheme} {drives} {order:?}");
            }
            let all: Vec<_> = found.groups.iter().flat_map(|group| group.slots.iter().copied()).collect();
            assert_eq!(i64::try_from(all.len()), Ok(drives));
            assert_eq!(i64::try_from(found.free_slots.len()), Ok(24 - drives));
        }
    }
    // Deploying NetApp EF600, section Configuring the EF600 Storage Volumes: from both outer sides
    // inwards.
    let ends = layout(&Request { order: Order::Ends, ..Request::new(Scheme::Raid6, 20) }).expect("valid");
    assert_eq!(ends.groups[0].slots, [0, 1, 2, 3, 4, 19, 20, 21, 22, 23]);
    assert_eq!(of(Scheme::Ddp, 12).groups[0].slots, (6..18).collect::<Vec<_>>());
}

// Deploying NetApp EF600, figure 12: two more pairs in the four slots that are left.
#[test]
fn mirrored_pairs_use_the_slots_that_are_left_one_on_each_bus() {
    let found = layout(&Request { mirrors: 2, ..Request::new(Scheme::Raid6, 20) }).expect("valid");
    assert_eq!(found.free_slots, Vec::<u32>::new());
    assert_eq!(
        (found.groups[2].slots.as_slice(), found.groups[3].slots.as_slice()),
        ([1, 22].as_slice(), [0, 23].as_slice())
    );
    assert!(found.script().expect_err("no commands are known").to_string().contains("--mirrors"));
}

#[test]
fn volumes_come_in_pairs_over_both_controllers() {
    for (request, expected) in [
        (Request::new(Scheme::Ddp, 24), "ABAB"),
        (Request::new(Scheme::Raid6, 20), "ABAB"),
        (Request { volumes: Some(8), ..Request::new(Scheme::Raid6, 20) }, "ABABABAB"),
        (Request { volumes: Some(2), ..Request::new(Scheme::Ddp, 12) }, "AB"),
    ] {
        let found = layout(&request).expect("valid");
        let owners: String =
            found.groups.iter().flat_map(|group| &group.volumes).map(|volume| volume.owner).collect();
        assert_eq!(owners, expected);
    }
}

// Deploying NetApp EF600, figures 13, 25 and 27: 4992GB have 10,468,982,784 sectors and show as
// 5.36 TB.
#[test]
fn gb_of_the_command_line_are_gib() {
    let sectors = 4992.0 * crate::units::GIB / 512.0;
    assert_eq!(sectors, 10_468_982_784.0);
    let request =
        Request { volume: Some(Bytes::new(4992.0 * crate::units::GIB)), ..Request::new(Scheme::Raid6, 20) };
    let volume = layout(&request).expect("valid").groups[0].volumes[0].clone();
    assert_eq!((volume.gib, volume.tb.map(|tb| format!("{tb:.2}"))), (Some(4992), Some("5.36".to_owned())));
    // 5 decimal TB are 4656 GiB, not 5000.
    let decimal = Request { volume: Some(Bytes::from_tb(5.0)), ..Request::new(Scheme::Raid6, 20) };
    assert_eq!(layout(&decimal).expect("valid").groups[0].volumes[0].gib, Some(4656));
}

#[test]
fn volumes_of_nothing_or_beyond_the_largest_drives_are_refused() {
    let of = |volume| Request { volume: Some(volume), ..Request::new(Scheme::Raid6, 20) };
    assert!(refused(&of(Bytes::from_tb(0.001))).contains("--volume 1GiB"));
    assert!(refused(&of(Bytes::from_tb(900_000.0))).contains("with drives of 15.36 TB"));
    let full = Request {
        drive: Some(Bytes::from_tb(1.92)),
        optimization_percent: Some(99.99),
        volumes: Some(256),
        ..Request::new(Scheme::Ddp, 12)
    };
    assert!(refused(&full).contains("fewer --volumes"));
}

#[test]
fn volumes_fill_the_drives_and_never_more() {
    let fitted = Request { drive: Some(Bytes::from_tb(7.68)), ..Request::new(Scheme::Ddp, 24) };
    let found = layout(&fitted).expect("valid");
    let gib: u64 = found.groups[0].volumes.iter().filter_map(|volume| volume.gib).sum();
    let usable =
        size::size(&size::Request::new(Scheme::Ddp, Bytes::from_tb(7.68), 24)).expect("valid").usable_tib
            * 1024.0;
    assert!(gib as f64 <= usable && gib as f64 > usable - 4.0, "{gib} of {usable}");
    // A user who takes 121.56 TB for four volumes of 30390 "GB" would over-commit, because SMcli's
    // GB are GiB.
    let trap = Request { volume: Some(Bytes::new(30_390.0 * crate::units::GIB)), ..fitted.clone() };
    let text = refused(&trap);
    assert!(text.contains("over-commit by 7 %") && text.contains("--volume 28303GiB"), "{text}");
    let honest = Request { volume: Some(Bytes::from_tb(30.39)), ..fitted };
    assert!(layout(&honest).is_ok());
}

// Deploying NetApp EF600, section Configuring Volumes on RAID Volume Groups.
#[test]
fn segments_follow_the_largest_request_and_full_stripes_are_accelerated_up_to_2_mib() {
    let stripe = |request, segment| stripe::stripe(Scheme::Raid6, request, segment).expect("valid");
    assert_eq!((stripe(None, None).segment_kib, stripe(None, None).is_accelerated), (Some(128), true));
    assert_eq!(stripe(Some(2048), None).segment_kib, Some(256));
    assert_eq!(stripe(Some(4096), None).segment_kib, Some(256));
    assert_eq!(stripe(Some(512), None).segment_kib, Some(64));
    let wide = stripe(Some(4096), Some(512));
    assert!(!wide.is_accelerated && wide.why.contains("above 2048 KiB"), "{wide:?}");
    let split = stripe(Some(512), Some(128));
    assert!(!split.is_accelerated && split.why.contains("less than a stripe"), "{split:?}");
    assert!(stripe(Some(128), None).warning.is_some_and(|warning| warning.contains("max_sectors_kb")));
    assert!(stripe(Some(1280), None).warning.is_some_and(|warning| warning.contains("multiple")));
    let pool = stripe::stripe(Scheme::Ddp, None, None).expect("valid");
    assert!(!pool.is_accelerated && pool.why.contains("a pool cannot"), "{pool:?}");
}

#[test]
fn what_is_unbalanced_is_refused_with_the_nearest_balanced() {
    let ddp = |drives| Request::new(Scheme::Ddp, drives);
    let slots = |text: &str, request: Request| Request { slots: Some(text.to_owned()), ..request };
    for (request, nearest) in [
        (ddp(11), "--drives 12"),
        (ddp(13), "--drives 12 or 14"),
        (ddp(26), "--drives 24"),
        (Request::new(Scheme::Raid6, 12), "--drives 10"),
        (Request::new(Scheme::Raid1, 4), "--scheme raid6 --mirrors 2"),
        (slots("0-11", ddp(12)), "--slots 6-17"),
        (slots("0-6,18-22", ddp(12)), "--slots 1-6,12,18-22"),
        (slots("0-24", ddp(24)), "--slots"),
        (slots("", ddp(12)), "--slots"),
        (slots("9-3", ddp(12)), "--slots"),
        (Request { volumes: Some(3), ..ddp(12) }, "--volumes 4"),
        (Request { volumes: Some(6), ..Request::new(Scheme::Raid6, 20) }, "--volumes 8"),
        (Request { volumes: Some(-2), ..ddp(12) }, "--volumes 2"),
        (Request { volumes: Some(i64::MAX), ..ddp(12) }, "--volumes"),
        (Request { mirrors: 3, ..Request::new(Scheme::Raid6, 20) }, "--mirrors 2"),
        (Request { mirrors: 1, ..ddp(12) }, "leave --mirrors out"),
        (Request { segment_kib: Some(100), ..Request::new(Scheme::Raid6, 10) }, "--segment-kib 64"),
        (Request { segment_kib: Some(128), ..ddp(12) }, "leave --segment-kib out"),
        (Request { request_kib: Some(0), ..ddp(12) }, "--request-kib 1024"),
        (Request { name: "a\";clear".to_owned(), ..ddp(12) }, "--name aclear"),
        (Request { name: String::new(), ..ddp(12) }, "--name ef600"),
    ] {
        let text = refused(&request);
        assert!(text.contains(nearest), "{request:?}: {text}");
    }
    let text = of(Scheme::Ddp, 12).script().expect_err("no capacity").to_string();
    assert!(text.contains("--drive-tb"), "{text}");
}

#[test]
fn named_slots_are_taken_when_they_are_balanced() {
    let request = Request { slots: Some("0-5, 18-23".to_owned()), ..Request::new(Scheme::Ddp, 12) };
    let found = layout(&request).expect("balanced");
    assert_eq!(found.groups[0].slots, [0, 1, 2, 3, 4, 5, 18, 19, 20, 21, 22, 23]);
}

proptest! {
    #[test]
    fn no_request_panics(
        drives in 0_i64..30, slots in proptest::option::of("[0-9,-]{0,12}"), mirrors in 0_u32..5, volumes in proptest::option::of(-4_i64..300),
        request_kib in proptest::option::of(any::<u32>()), segment_kib in proptest::option::of(any::<u32>()), tb in proptest::option::of(0.0_f64..20.0),
        is_pool in any::<bool>(), name in "\\PC{0,24}",
    ) {
        let scheme = if is_pool { Scheme::Ddp } else { Scheme::Raid6 };
        let request = Request {
            slots, mirrors, volumes, request_kib, segment_kib, drive: tb.map(Bytes::from_tb), name, ..Request::new(scheme, drives)
        };
        if let Ok(found) = layout(&request) {
            let _ = found.script();
            for group in &found.groups {
                prop_assert_eq!(group.drives_by_bus[0], group.drives_by_bus[1]);
            }
        }
    }
}
