//! The reverse: which layout in how many arrays meets a need, best first, and why the others rank
//! lower.
//!
//! The speed of an array is that of its drives, its code and its controllers (`limits`); hosts and
//! fabric are not considered. Fewest arrays rank first, then fewest drives, then least flash.

use super::{Request, usable_tib};
use crate::Scheme;
use crate::ef600::ef600;
use crate::error::{Result, refuse};
use crate::limits::{self, ArraySpeed};
use crate::units::{Bytes, check_speed, check_tb, check_tib, trim};
use serde::Serialize;

/// A larger number of arrays is not a plan.
const ARRAYS_MAX: f64 = 10_000.0;

/// The need, and restrictions on the answer.
#[derive(Debug, Clone, Default)]
pub struct Need {
    /// The capacity in TiB.
    pub tib: Option<f64>,
    /// The read throughput in GB/s.
    pub read_gbytes_per_s: Option<f64>,
    /// The write throughput in GB/s.
    pub write_gbytes_per_s: Option<f64>,
    /// Only this scheme.
    pub scheme: Option<Scheme>,
    /// Only drives of this capacity, in TB.
    pub drive_tb: Option<f64>,
    /// Only this many drives in each array.
    pub drives: Option<i64>,
    /// The read throughput of one drive, in GB/s; if absent, that of the guide's drive.
    pub drive_read_gbytes_per_s: Option<f64>,
    /// The write throughput of one drive, in GB/s; if absent, that of the guide's drive.
    pub drive_write_gbytes_per_s: Option<f64>,
    /// The share of the capacity that the file system's metadata take.
    pub metadata_percent: Option<f64>,
    /// The share set aside as optimization capacity; if absent, the recommended share.
    pub optimization_percent: Option<f64>,
}

/// One way to meet the need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The number of arrays.
    pub arrays: u32,
    /// The protection scheme of each array.
    pub scheme: Scheme,
    /// The number of drives of each array.
    pub drives: u32,
    /// The capacity of a drive.
    pub drive_tb: f64,
    /// The usable capacity of all arrays.
    pub usable_tb: f64,
    /// The same in TiB.
    pub usable_tib: f64,
    /// The read throughput of all arrays.
    pub read_gbytes_per_s: f64,
    /// The write throughput of all arrays.
    pub write_gbytes_per_s: f64,
    /// The part of the need that determines the number of arrays.
    pub needed_for: String,
    /// Why the candidate ranks first, or why it does not.
    pub why: String,
}

/// The candidates that meet a need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The candidates, best first.
    pub candidates: Vec<Candidate>,
    /// How they are ranked, and assumptions.
    pub notes: Vec<String>,
}

/// Finds which layout in how many arrays meets the need.
///
/// # Errors
/// An impossible need, or a broken rule of the array.
pub fn arrays(need: &Need) -> Result<Answer> {
    check(need)?;
    let (mut found, mut refused) = (Vec::new(), None);
    for scheme in schemes(need) {
        for drives in counts(need, scheme)? {
            for drive_tb in drive_sizes(need) {
                match candidate(need, scheme, drives, drive_tb) {
                    Ok(one) => found.push(one),
                    Err(why) => refused = Some(why),
                }
            }
        }
    }
    if let (true, Some(why)) = (found.is_empty(), refused) {
        return Err(why);
    }
    found.sort_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal));
    let best = found.first().cloned();
    if let Some(best) = &best {
        found.iter_mut().skip(1).for_each(|other| other.why = loses(other, best));
    }
    Ok(Answer { candidates: found, notes: notes(need) })
}

fn check(need: &Need) -> Result<()> {
    if let Some(tib) = need.tib {
        check_tib("--need-tib", tib)?;
    }
    if let Some(speed) = need.read_gbytes_per_s {
        check_speed("--need-read-gbytes", speed)?;
    }
    if let Some(speed) = need.write_gbytes_per_s {
        check_speed("--need-write-gbytes", speed)?;
    }
    if need.tib.or(need.read_gbytes_per_s).or(need.write_gbytes_per_s).is_none() {
        return refuse(
            "cannot count arrays",
            "there is neither a capacity nor a speed that they are to have",
            "the question",
            "--need-tib 500 --need-read-gbytes 80 --need-write-gbytes 30",
        );
    }
    if let Some(scheme @ (Scheme::Raid1 | Scheme::Coded { .. })) = need.scheme {
        return refuse(
            format!("cannot count arrays of {}", scheme.title()),
            "the EF600 guide measures DDP and RAID 6; RAID 1 is for metadata only, and of other codes no speed is known",
            crate::ef600::cite("sections RAID Overhead and EF600 Bandwidth"),
            "--scheme ddp, or raid6",
        );
    }
    Ok(())
}

fn schemes(need: &Need) -> Vec<Scheme> {
    need.scheme.map_or_else(|| vec![Scheme::Raid6, Scheme::Ddp], |scheme| vec![scheme])
}

/// The possible numbers of drives of an array with a scheme.
fn counts(need: &Need, scheme: Scheme) -> Result<Vec<i64>> {
    let array = ef600();
    let all: Vec<i64> = match scheme {
        Scheme::Raid6 => {
            (1..=array.raid6.groups_max).map(|groups| i64::from(groups * array.raid6.group)).collect()
        }
        _ => (array.pool.drives_min_layout..=array.pool.drives_max).step_by(2).map(i64::from).collect(),
    };
    let Some(drives) = need.drives else { return Ok(all) };
    if need.scheme.is_some() {
        return super::check::drives(scheme, drives).map(|_| vec![drives]);
    }
    let fits_somewhere =
        [Scheme::Raid6, Scheme::Ddp].iter().any(|scheme| super::check::drives(*scheme, drives).is_ok());
    if !fits_somewhere {
        super::check::drives(Scheme::Ddp, drives)?;
    }
    Ok(all.into_iter().filter(|count| *count == drives).collect())
}

fn drive_sizes(need: &Need) -> Vec<f64> {
    need.drive_tb.map_or_else(|| ef600().drive.iter().map(|drive| drive.tb).collect(), |tb| vec![tb])
}

fn candidate(need: &Need, scheme: Scheme, drives: i64, drive_tb: f64) -> Result<Candidate> {
    let request = Request {
        metadata_percent: need.metadata_percent,
        optimization_percent: need.optimization_percent,
        ..Request::new(scheme, check_tb("--drive-tb", drive_tb)?, drives)
    };
    let tib = usable_tib(&request)?;
    let count = u32::try_from(drives).unwrap_or_default();
    let speed =
        limits::array_speed(scheme, count, need.drive_read_gbytes_per_s, need.drive_write_gbytes_per_s)?;
    let reasons = reasons(need, tib, &speed);
    let hardest = reasons.iter().max_by(|a, b| a.arrays.total_cmp(&b.arrays));
    let most = hardest.map_or(1.0, |reason| reason.arrays);
    if let Some(hardest) = hardest.filter(|reason| reason.arrays > ARRAYS_MAX) {
        return refuse(
            "cannot meet that need",
            format!("it takes {} arrays, and at most {} are planned", trim(most), trim(ARRAYS_MAX)),
            "the range of the model",
            format!("{} {}", hardest.option, trim((hardest.each * ARRAYS_MAX).floor())),
        );
    }
    let deciding: Vec<_> =
        reasons.iter().filter(|reason| reason.arrays >= most).map(|reason| reason.words.as_str()).collect();
    let capacity = Bytes::from_tib(tib * most);
    Ok(Candidate {
        // The number was checked: it is whole and at most ARRAYS_MAX.
        arrays: most as u32,
        scheme,
        drives: count,
        drive_tb,
        usable_tb: capacity.tb(),
        usable_tib: capacity.tib(),
        read_gbytes_per_s: speed.read * most,
        write_gbytes_per_s: speed.write * most,
        needed_for: deciding.join("; "),
        why: "fewest arrays, then fewest drives, then least flash".to_owned(),
    })
}

/// How many arrays one part of the need takes.
struct Reason {
    /// The option of that part.
    option: &'static str,
    /// What one array provides.
    each: f64,
    /// The number of arrays.
    arrays: f64,
    /// The computation as text.
    words: String,
}

/// How many arrays each part of the need takes.
fn reasons(need: &Need, tib: f64, speed: &ArraySpeed) -> Vec<Reason> {
    let part = |wanted: Option<f64>, each: f64, option: &'static str, what: &str, by: &str| {
        wanted.map(|wanted| Reason {
            option,
            each,
            arrays: (wanted / each).ceil().max(1.0),
            words: format!("{what} at {each:.1} each{by}").replacen("{}", &trim(wanted), 1),
        })
    };
    let (reads, writes) = (format!(" ({})", speed.read_binds), format!(" ({})", speed.write_binds));
    [
        part(need.tib, tib, "--need-tib", "capacity: {} TiB", ""),
        part(need.read_gbytes_per_s, speed.read, "--need-read-gbytes", "read: {} GB/s", &reads),
        part(need.write_gbytes_per_s, speed.write, "--need-write-gbytes", "write: {} GB/s", &writes),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn gross_tb(candidate: &Candidate) -> f64 {
    f64::from(candidate.arrays) * f64::from(candidate.drives) * candidate.drive_tb
}

fn rank(candidate: &Candidate) -> (u32, u32, f64) {
    (candidate.arrays, candidate.arrays * candidate.drives, gross_tb(candidate))
}

fn loses(other: &Candidate, best: &Candidate) -> String {
    let drives = |one: &Candidate| one.arrays * one.drives;
    if other.arrays > best.arrays {
        let more = other.arrays - best.arrays;
        return format!("{more} more array{}: {}", if more == 1 { "" } else { "s" }, other.needed_for);
    }
    if drives(other) > drives(best) {
        return format!("{} more drives", drives(other) - drives(best));
    }
    if gross_tb(other) > gross_tb(best) {
        return format!("{:.1} TB more flash for the same drives", gross_tb(other) - gross_tb(best));
    }
    "as good: choose by rebuild time (DDP) or write speed (RAID 6)".to_owned()
}

fn notes(need: &Need) -> Vec<String> {
    let speed = ef600().drive_speed;
    let mut notes = vec![
        "ranked by arrays, then drives, then flash; arrays alike, as the EF600 guide advises".to_owned(),
    ];
    if need.drive_read_gbytes_per_s.is_none() || need.drive_write_gbytes_per_s.is_none() {
        notes.push(format!(
            "every drive taken as the PM1725b of 1.92 TB that the EF600 guide measured: {} GB/s read, {} GB/s write \
             (--drive-read-gbytes, --drive-write-gbytes)",
            speed.read_gbytes_per_s, speed.write_gbytes_per_s
        ));
    }
    notes.push(
        "RAID 6 writes need full stripes: see `plan layout`; hosts and fabric: see `plan limits`".to_owned(),
    );
    notes
}
