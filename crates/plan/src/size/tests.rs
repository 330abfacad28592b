//! Capacities compared with the guide's tables, and refused requests.

use super::*;
use crate::error::Error;
use proptest::prelude::*;

const TABLES: &str = include_str!("../../tests/data/ef600-capacity.csv");

fn tb(tb: f64) -> Bytes {
    Bytes::from_tb(tb)
}

fn sized(scheme: Scheme, drive_tb: f64, drives: i64) -> Sizing {
    size(&Request::new(scheme, tb(drive_tb), drives)).expect("a valid array")
}

/// The refusal of a request. It must have a cause with a source, and a proposal.
fn refused(request: &Request) -> String {
    let error = size(request).expect_err("it breaks a rule");
    assert!(matches!(error, Error::Refused(_)));
    let text = error.to_string();
    assert!(text.contains("\n  cause: ") && text.contains(')') && text.contains("\n  try:   "), "{text}");
    text
}

// Deploying NetApp EF600, Lenovo Press 2021, tables 1 and 2: all 24 rows.
#[test]
fn every_row_of_tables_1_and_2_comes_out_to_the_printed_digit() {
    let rows: Vec<Vec<&str>> =
        TABLES.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 24);
    for row in rows {
        let [scheme, drive, drives, printed @ ..] = row.as_slice() else { panic!("{row:?}") };
        let found = sized(
            scheme.parse().expect("a scheme"),
            drive.parse().expect("a number"),
            drives.parse().expect("a number"),
        );
        let found = [
            format!("{:.1}", found.gross_tb),
            format!("{:.1}", found.gross_tib),
            format!("{:.0}", found.spare_drives),
            format!("{:.0}", found.optimization_percent),
            format!("{:.1}", found.usable_tb),
            format!("{:.1}", found.usable_tib),
        ];
        assert_eq!(found.as_slice(), printed, "{scheme} {drives} x {drive} TB");
    }
}

#[test]
fn the_reckoning_ends_in_the_answer() {
    let found = sized(Scheme::Ddp, 7.68, 24);
    assert!((found.usable_tb - 121.564_08).abs() < 1e-9, "{}", found.usable_tb);
    let last = found.steps.last().expect("steps");
    assert_eq!((last.tb, last.tib), (found.usable_tb, found.usable_tib));
    let tibs: Vec<_> = found.steps.iter().map(|step| step.tib).collect();
    assert!(tibs.windows(2).all(|pair| pair[1] <= pair[0]), "{tibs:?}");
}

// Deploying NetApp EF600, section Preservation Capacity for DDP: 1 drive in a pool of 11, 2 from
// 12.
#[test]
fn a_pool_of_11_is_sized_with_a_warning_and_holds_as_much_as_one_of_12() {
    let eleven = sized(Scheme::Ddp, 7.68, 11);
    assert_eq!(eleven.spare_drives, 1.0);
    assert_eq!(eleven.usable_tb, sized(Scheme::Ddp, 7.68, 12).usable_tb);
    assert!(eleven.warnings[0].contains("both 11 and 12 as the least"), "{:?}", eleven.warnings);
    let twelve = sized(Scheme::Ddp, 7.68, 12);
    assert!(!twelve.warnings.iter().any(|warning| warning.contains("11")), "{:?}", twelve.warnings);
}

// Deploying NetApp EF600, section RAID Overhead: 50 % for RAID 1.
#[test]
fn mirrors_hold_half_and_want_a_hot_spare() {
    let pair = sized(Scheme::Raid1, 1.92, 2);
    let expected = (1.92 - 0.0055) * 0.72;
    assert!((pair.usable_tb - expected).abs() < 1e-12);
    assert!(pair.warnings.iter().any(|warning| warning.contains("hot spare")));
    let spared =
        size(&Request { hot_spares: 1, ..Request::new(Scheme::Raid1, tb(1.92), 2) }).expect("it fits");
    assert_eq!((spared.hot_spares, spared.usable_tb), (1, pair.usable_tb));
    assert!(!spared.warnings.iter().any(|warning| warning.contains("second failure")));
}

// The first line also states what is left for files; otherwise a reader would take the larger
// number.
#[test]
fn the_first_line_tells_what_volumes_hold_from_what_files_may_take() {
    let request = Request { metadata_percent: Some(5.0), ..Request::new(Scheme::Ddp, tb(7.68), 24) };
    let text = crate::show::sizing(&size(&request).expect("valid"), 100);
    assert!(
        text.starts_with("121.6 TB = 110.6 TiB usable, 115.5 TB = 105.0 TiB of it for files: 24"),
        "{text}"
    );
    let spared =
        size(&Request { spares: Some(0.0), ..Request::new(Scheme::Ddp, tb(7.68), 11) }).expect("valid");
    assert!(!spared.warnings[0].contains("same capacity"), "{:?}", spared.warnings);
}

#[test]
fn k_and_m_with_spares_are_the_pool_in_general() {
    let pool = sized(Scheme::Ddp, 3.84, 16);
    let coded = Request { spares: Some(2.0), ..Request::new("8+2".parse().expect("a code"), tb(3.84), 16) };
    assert_eq!(size(&coded).expect("valid").usable_tb, pool.usable_tb);
    let other = Request {
        spares: Some(1.5),
        optimization_percent: Some(0.0),
        config_gb: Some(0.0),
        ..Request::new("16+3".parse().expect("a code"), tb(18.0), 60)
    };
    let expected = 18.0 * 58.5 * 16.0 / 19.0;
    assert!((size(&other).expect("valid").usable_tb - expected).abs() < 1e-9);
}

#[test]
fn the_metadata_of_the_file_system_come_off_where_they_are_given() {
    let found = size(&Request { metadata_percent: Some(5.0), ..Request::new(Scheme::Raid6, tb(7.68), 20) });
    let found = found.expect("valid");
    assert!((found.files_tb.expect("given") - found.usable_tb * 0.95).abs() < 1e-9);
    assert_eq!(sized(Scheme::Raid6, 7.68, 20).files_tb, None);
}

#[test]
fn what_breaks_a_rule_is_refused_with_the_nearest_choice() {
    let raid6 = |drives| Request::new(Scheme::Raid6, tb(7.68), drives);
    let ddp = |drives| Request::new(Scheme::Ddp, tb(7.68), drives);
    let coded: Scheme = "8+2".parse().expect("a code");
    for (request, nearest) in [
        (ddp(13), "--drives 12 or 14"),
        (ddp(23), "--drives 22 or 24"),
        (ddp(10), "--drives 12"),
        (ddp(25), "--drives 24"),
        (ddp(-4), "--drives 12"),
        (ddp(i64::MAX), "--drives 24"),
        (raid6(12), "--drives 10"),
        (raid6(18), "--drives 20"),
        (raid6(0), "--drives 10"),
        (Request::new(Scheme::Raid1, tb(1.92), 3), "--drives 4"),
        (Request::new(Scheme::Raid1, tb(1.92), 0), "--drives 2"),
        (Request::new(coded, tb(7.68), 9), "--drives 10"),
        (Request::new(Scheme::Ddp, tb(8.0), 12), "--drive-tb 7.68"),
        (Request::new(Scheme::Ddp, tb(0.000_001), 12), "--drive-tb 1.92"),
        (Request::new(coded, tb(18.0), 12), "--optimization-percent"),
        (Request { hot_spares: 1, ..ddp(12) }, "--spares N"),
        (Request { hot_spares: 5, ..raid6(20) }, "--hot-spares 4"),
        (Request { hot_spares: -1, ..raid6(20) }, "--hot-spares 4"),
        (Request { spares: Some(1.0), ..raid6(20) }, "--hot-spares N"),
        (Request { spares: Some(3.0), ..ddp(12) }, "--spares 2"),
        (Request { spares: Some(-1.0), ..ddp(12) }, "--spares 2"),
        (Request { spares: Some(f64::NAN), ..ddp(12) }, "--spares 2"),
        (Request { config_gb: Some(8000.0), ..ddp(12) }, "--config-gb 5.5"),
        (Request { config_gb: Some(-1.0), ..ddp(12) }, "--config-gb 5.5"),
        (Request { optimization_percent: Some(100.0), ..ddp(12) }, "--optimization-percent 99"),
        (Request { metadata_percent: Some(-3.0), ..ddp(12) }, "--metadata-percent 0"),
    ] {
        let text = refused(&request);
        assert!(text.contains(nearest), "{request:?}: {text}");
    }
}

#[test]
fn a_need_is_met_best_first_and_the_others_say_why_they_lose() {
    let need = Need {
        tib: Some(500.0),
        read_gbytes_per_s: Some(80.0),
        write_gbytes_per_s: Some(30.0),
        ..Need::default()
    };
    let answer = arrays(&need).expect("it can be met");
    let best = &answer.candidates[0];
    // A pool of 18 drives of 15.36 TB holds 171.6 TiB and writes 12.5 GB/s, so three arrays are
    // needed, with fewer drives than the alternatives.
    assert_eq!((best.arrays, best.scheme, best.drives, best.drive_tb), (3, Scheme::Ddp, 18, 15.36));
    assert!(best.needed_for.contains("capacity"), "{}", best.needed_for);
    let ranks: Vec<_> = answer.candidates.iter().map(|one| one.arrays).collect();
    assert!(ranks.is_sorted(), "{ranks:?}");
    for one in &answer.candidates {
        assert!(
            one.usable_tib >= 500.0 && one.read_gbytes_per_s >= 80.0 && one.write_gbytes_per_s >= 30.0,
            "{one:?}"
        );
    }
    let why = |scheme, drives, drive_tb| {
        let one = answer
            .candidates
            .iter()
            .find(|one| (one.scheme, one.drives, one.drive_tb) == (scheme, drives, drive_tb));
        one.map(|one| (one.arrays, one.why.clone())).expect("it was weighed")
    };
    // Table 1: 214.5 TiB, so three arrays are needed as well.
    assert_eq!(why(Scheme::Raid6, 20, 15.36), (3, "6 more drives".to_owned()));
    let (arrays, reason) = why(Scheme::Ddp, 24, 7.68);
    assert!(arrays == 5 && reason.starts_with("2 more arrays: capacity"), "{arrays} {reason}");
    assert_eq!(answer.candidates.len(), 9 * 4);
}

#[test]
fn a_need_to_write_chooses_raid_6_and_a_need_to_hold_chooses_large_drives() {
    // Deploying NetApp EF600, section EF600 Bandwidth: 12.5 GB/s for DDP, 24 for two RAID 6 groups.
    let writes = arrays(&Need { write_gbytes_per_s: Some(24.0), ..Need::default() }).expect("it can be met");
    assert_eq!((writes.candidates[0].arrays, writes.candidates[0].scheme), (1, Scheme::Raid6));
    let held = arrays(&Need { tib: Some(230.0), ..Need::default() }).expect("it can be met");
    let best = &held.candidates[0];
    assert_eq!((best.arrays, best.scheme, best.drives, best.drive_tb), (1, Scheme::Ddp, 24, 15.36));
}

#[test]
fn needs_that_are_none_are_refused() {
    let none = Need::default();
    for (need, nearest) in [
        (none.clone(), "--need-tib 500"),
        (Need { tib: Some(-1.0), ..none.clone() }, "--need-tib 500        in TiB"),
        (Need { tib: Some(f64::NAN), ..none.clone() }, "--need-tib 500        in TiB"),
        (Need { read_gbytes_per_s: Some(1e6), ..none.clone() }, "--need-read-gbytes 440000"),
        (Need { read_gbytes_per_s: Some(0.0), ..none.clone() }, "--need-read-gbytes 3.5"),
        (Need { write_gbytes_per_s: Some(f64::INFINITY), ..none.clone() }, "--need-write-gbytes 3.5"),
        (Need { tib: Some(1.0), scheme: Some(Scheme::Raid1), ..none.clone() }, "--scheme ddp"),
        (Need { tib: Some(1.0), drive_tb: Some(8.0), ..none.clone() }, "--drive-tb 7.68"),
        (Need { tib: Some(1.0), drives: Some(13), ..none.clone() }, "--drives 12 or 14"),
        (Need { tib: Some(1e8), ..none.clone() }, "--need-tib"),
        (Need { tib: Some(1.0), drive_read_gbytes_per_s: Some(-1.0), ..none }, "--drive-read-gbytes"),
    ] {
        let text = arrays(&need).expect_err("no need").to_string();
        assert!(text.contains(nearest), "{need:?}: {text}");
    }
}

proptest! {
    #[test]
    fn more_drives_never_hold_less(size_index in 0_usize..4, spares in proptest::option::of(0.0_f64..1.0)) {
        let drive = crate::ef600::ef600().drive[size_index];
        let request = |scheme, drives| Request { spares, ..Request::new(scheme, tb(drive.tb), drives) };
        for (scheme, counts) in [
            (Scheme::Ddp, (11..=24).collect::<Vec<i64>>()),
            (Scheme::Coded { data: 6, parity: 2 }, (9..=64).collect()),
        ] {
            let held: Vec<_> =
                counts.into_iter().filter_map(|drives| size(&request(scheme, drives)).ok()).map(|one| one.usable_tib).collect();
            prop_assert!(held.len() > 6 && held.is_sorted(), "{scheme}: {held:?}");
        }
    }

    #[test]
    fn larger_drives_never_hold_less(data in 1_u32..20, parity in 0_u32..4, tb_small in 0.1_f64..50.0, more in 0.0_f64..50.0) {
        let sized = |tb: f64| size(&Request {
            optimization_percent: Some(7.0),
            ..Request::new(Scheme::Coded { data, parity }, Bytes::from_tb(tb), i64::from(data + parity))
        });
        prop_assert!(sized(tb_small + more).expect("valid").usable_tb >= sized(tb_small).expect("valid").usable_tb);
    }

    #[test]
    fn no_request_panics_and_usable_is_never_more_than_gross(
        scheme in prop_oneof![
            Just(Scheme::Ddp), Just(Scheme::Raid6), Just(Scheme::Raid1),
            (1_u32..300, 0_u32..300).prop_map(|(data, parity)| Scheme::Coded { data, parity }),
        ],
        drives in any::<i64>(), hot_spares in any::<i64>(), tb in any::<f64>(),
        spares in proptest::option::of(any::<f64>()), config_gb in proptest::option::of(any::<f64>()),
        optimization_percent in proptest::option::of(any::<f64>()), metadata_percent in proptest::option::of(any::<f64>()),
    ) {
        let Ok(drive) = drive("--drive-tb", tb) else { return Ok(()) };
        let request = Request { scheme, drive, drives: drives % 40, spares, hot_spares, config_gb, optimization_percent, metadata_percent };
        for request in [Request { drives, ..request.clone() }, request] {
            if let Ok(sizing) = size(&request) {
                prop_assert!(sizing.usable_tb.is_finite() && (0.0..=sizing.gross_tb).contains(&sizing.usable_tb));
            }
        }
    }

    #[test]
    fn no_need_panics(tib in proptest::option::of(any::<f64>()), read in proptest::option::of(any::<f64>()), drives in proptest::option::of(any::<i64>())) {
        let need = Need { tib, read_gbytes_per_s: read, drives, ..Need::default() };
        let _ = arrays(&need);
    }
}
