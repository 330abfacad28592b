//! Judges a condition on a record, by intervals or by medians.

use record::{Cell, Direction, Record, Route, Workload, stats};

use super::{Condition, Operator, Quantity, Selector, Side};
use crate::{number, view};

/// A fixed seed, so that the same records always have the same outcome.
const SEED: u64 = 1;

/// A record with the name by which a reader knows it.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    /// The record.
    pub record: &'a Record,
    /// Its name, for example that of its file.
    pub name: &'a str,
}

/// What decides whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// The whole 95 % interval must fulfil the condition.
    #[default]
    Intervals,
    /// The median alone must fulfil it, however few the repeats are.
    Medians,
}

/// The outcome of a condition in one place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The condition holds, so the report fails.
    Holds,
    /// The median fulfils the condition, but not the whole interval: noise may have done it.
    NotShown,
    /// The condition does not hold.
    DoesNotHold,
}

/// A condition in one place: on a route, in a workload and half, in a direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The condition as it was given.
    pub condition: String,
    /// The name of the record.
    pub record: String,
    /// The route.
    pub route: String,
    /// The rest of the place: `read p99 of mix-1m, raw`.
    pub place: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The value found: `0.85 times before.json (95 %: 0.83 to 0.87)`.
    pub finding: String,
}

/// Why a condition cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {cause}")]
pub struct JudgeError {
    /// The column of the value that cannot be had, counted from 1.
    pub column: usize,
    /// The cause.
    pub cause: String,
    /// What to do.
    pub advice: &'static str,
}

impl JudgeError {
    pub(super) fn no_baseline(column: usize) -> Self {
        let cause = "there is no other record to compare with, and a baseline is needed".to_owned();
        fault(column, cause, "--baseline FILE, or a second RECORD")
    }
}

const NAMES_ADVICE: &str = "trunkline report RECORD        to see its routes and workloads";
const SKIPPED_ADVICE: &str =
    "measure again, or name the WORKLOAD and .raw or .paced, so that others are left out";
const NO_CALL_ADVICE: &str = "trunkline bench        with a longer window; see why nothing completed";
const REPEATS_ADVICE: &str =
    "trunkline bench        with more repeats, or --medians        to compare without intervals";

/// Judges a condition in each place of a record that it selects.
///
/// # Errors
/// A name that the record or the baseline lacks, and values that cannot be compared.
pub fn judge(
    condition: &Condition,
    checked: Checked<'_>,
    baseline: Option<Checked<'_>>,
    basis: Basis,
) -> Result<Vec<Judgement>, JudgeError> {
    let (selector, factor, operator, other) = match (&condition.left, &condition.right) {
        (Side::Measured { selector, factor }, other) => (selector, *factor, condition.operator, other),
        (other, Side::Measured { selector, factor }) => {
            (selector, *factor, condition.operator.mirrored(), other)
        }
        _ => return Err(fault(1, "no side is measured".to_owned(), NAMES_ADVICE)),
    };
    let mut selector = selector.clone();
    if let Side::Measured { selector: other, .. } = other {
        // A name that only one side has is meant for both.
        selector.workload = selector.workload.or_else(|| other.workload.clone());
        selector.half = selector.half.or(other.half);
    }
    let judgement = |place: Place<'_>| {
        let (outcome, finding) = match other {
            Side::Number { value, .. } => against_number(&place, operator, *value / factor, basis)?,
            Side::Baseline { factor: times } => {
                let baseline = baseline.ok_or_else(|| JudgeError::no_baseline(selector.column))?;
                let base = same_place(&place, baseline)?;
                against_place(&place, &base, operator, times / factor, basis)?
            }
            Side::Measured { factor: times, selector: other } => {
                let base = partner(&place, other)?;
                against_place(&place, &base, operator, times / factor, basis)?
            }
        };
        Ok(Judgement {
            condition: condition.text.clone(),
            record: checked.name.to_owned(),
            route: place.route.name.clone(),
            place: place.describe(),
            outcome,
            finding,
        })
    };
    let found = places(checked, &selector)?;
    let judged = found.iter().copied().map(judgement).collect::<Result<_, _>>()?;
    if let (Side::Baseline { .. }, Some(baseline)) = (other, baseline) {
        has_all(checked, &found, &places(baseline, &selector)?)?;
    }
    Ok(judged)
}

/// Checks that a record has each place of the baseline: what it has lost must not pass.
fn has_all(checked: Checked<'_>, found: &[Place<'_>], baseline: &[Place<'_>]) -> Result<(), JudgeError> {
    let is_found = |base: &&Place<'_>| {
        found
            .iter()
            .any(|place| place.workload.name == base.workload.name && place.conditions() == base.conditions())
    };
    let Some(lost) = baseline.iter().find(|base| !is_found(base)) else { return Ok(()) };
    let (name, other, route) = (checked.name, lost.within.name, &lost.route.name);
    let cause = format!("{name} has no {} of `{route}`, which {other} has", lost.describe());
    Err(fault(lost.selector.column, cause, SKIPPED_ADVICE))
}

fn fault(column: usize, cause: String, advice: &'static str) -> JudgeError {
    JudgeError { column, cause, advice }
}

/// A cell of a record, and the quantity that is meant.
#[derive(Clone, Copy)]
struct Place<'a> {
    within: Checked<'a>,
    route: &'a Route,
    workload: &'a Workload,
    cell: &'a Cell,
    selector: &'a Selector,
}

impl Place<'_> {
    fn describe(&self) -> String {
        let quantity = match self.selector.quantity {
            Quantity::GbytesPerS => String::new(),
            other => format!(" {}", other.name()),
        };
        let half = self.workload.half();
        format!("{}{quantity} of {}, {half}", self.selector.direction, self.workload.name)
    }

    /// What was measured here under the same name: the shape of the traffic, its files, the route,
    /// and the condition.
    fn conditions(&self) -> Vec<String> {
        let experiment = &self.within.record.experiment;
        let shape = experiment.workloads.iter().find(|shape| shape.name == self.workload.name);
        let title = shape.map(|shape| view::title(shape, None));
        let files = shape.and_then(|shape| shape.file_bytes);
        let files = files.map(|bytes| format!("files of {}", number::bytes(bytes)));
        let route = Some(view::route_conditions(self.route)).filter(|route| !route.is_empty());
        let pace = self.workload.pace.map(|pace| format!("paced at {}", number::pace(pace)));
        let simulated = self.workload.simulated.as_deref().map(|what| format!("simulated: {what}"));
        [title, files, route, pace, simulated].into_iter().flatten().collect()
    }

    fn is_latency(&self) -> bool {
        matches!(self.selector.quantity, Quantity::P50 | Quantity::P99)
    }

    /// The value of each repeat, however few they are.
    fn values(&self) -> Result<Vec<f64>, JudgeError> {
        let value = |repeat: &record::Repeat| match self.selector.quantity {
            Quantity::GbytesPerS => Some(repeat.gbytes_per_s),
            Quantity::Iops => Some(repeat.iops),
            Quantity::P50 => repeat.p50_us,
            Quantity::P99 => repeat.p99_us,
        };
        let (name, quantity) = (self.within.name, self.selector.quantity.name());
        if self.is_latency() && self.cell.repeats.iter().any(|repeat| repeat.ops == 0) {
            let (route, place) = (&self.route.name, self.describe());
            let cause = format!("{name} completed no call in a repeat of {route} {place}");
            return Err(fault(self.selector.column, cause, NO_CALL_ADVICE));
        }
        let values: Option<Vec<f64>> = self.cell.repeats.iter().map(value).collect();
        values.ok_or_else(|| {
            let cause = format!("{name} has no {quantity} of each repeat, as records of older builds");
            fault(self.selector.column, cause, REPEATS_ADVICE)
        })
    }

    /// The value of each repeat; an error if they are too few for an interval.
    fn series(&self) -> Result<Vec<f64>, JudgeError> {
        let values = self.values()?;
        if values.len() < stats::PAIRS_FOR_VERDICT_MIN {
            let (name, route, place) = (self.within.name, &self.route.name, self.describe());
            let (few, least) = (values.len(), stats::PAIRS_FOR_VERDICT_MIN);
            let few = format!("{few} repeat{}", if few == 1 { "" } else { "s" });
            let cause = format!("{name} has {few} of {route} {place}; {least} are needed to tell noise");
            return Err(fault(self.selector.column, cause, REPEATS_ADVICE));
        }
        Ok(values)
    }

    /// The median of the repeats. Records of older builds, and those of one run of fio, have the
    /// latency of all repeats together only.
    fn median(&self) -> Result<f64, JudgeError> {
        let pooled = self.cell.repeats.iter().all(|it| it.p50_us.is_none() && it.p99_us.is_none());
        let latency = &self.cell.latency_us;
        match self.selector.quantity {
            Quantity::GbytesPerS => Ok(self.cell.gbytes_per_s),
            Quantity::Iops => Ok(self.cell.iops),
            Quantity::P50 if pooled && self.cell.ops > 0 => Ok(latency.p50),
            Quantity::P99 if pooled && self.cell.ops > 0 => Ok(latency.p99),
            _ => stats::median(&self.values()?).ok_or_else(|| self.cannot_compare()),
        }
    }

    fn cannot_compare(&self) -> JudgeError {
        let (route, place, name) = (&self.route.name, self.describe(), self.within.name);
        let cause = format!("{route} {place} of {name} is 0, or is 0 in too many repeats");
        fault(self.selector.column, cause, NAMES_ADVICE)
    }

    /// A value with its unit. The report's tables have the latency of all repeats together.
    fn show(&self, value: f64) -> String {
        let shown = self.selector.quantity.show(value);
        match self.is_latency() {
            true => format!("{shown}, the median of the repeats' {}", self.selector.quantity.name()),
            false => shown,
        }
    }

    /// Whether the experiment asked for this; an unknown workload is taken to be wanted.
    fn is_planned(within: Checked<'_>, workload: &Workload, direction: Direction) -> bool {
        let shapes = &within.record.experiment.workloads;
        shapes.iter().find(|shape| shape.name == workload.name).is_none_or(|shape| match direction {
            Direction::Read => shape.readers + shape.mixed > 0 || shape.writers == 0,
            Direction::Write => shape.writers + shape.mixed > 0 || shape.readers == 0,
        })
    }
}

/// The measured places that a selector means; at least one.
fn places<'a>(within: Checked<'a>, selector: &'a Selector) -> Result<Vec<Place<'a>>, JudgeError> {
    let error = |cause: String| fault(selector.column, cause, NAMES_ADVICE);
    let name = within.name;
    let Some(route) = within.record.route(&selector.route) else {
        let has: Vec<&str> = within.record.routes.iter().map(|route| route.name.as_str()).collect();
        let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
        return Err(error(format!("{name} has no route `{}`; it has {has}", selector.route)));
    };
    let of_route = format!("{name} has no");
    if let Some(why) = &route.skipped {
        return Err(error(format!("{of_route} result of `{}`, which was skipped: {why}", route.name)));
    }
    let is_named = |workload: &&Workload| {
        selector.workload.as_ref().is_none_or(|name| *name == workload.name)
            && selector.half.is_none_or(|half| half == workload.half())
    };
    let named: Vec<&Workload> = route.workloads.iter().filter(is_named).collect();
    if named.is_empty() {
        let mut has: Vec<String> =
            route.workloads.iter().map(|it| format!("{} ({})", it.name, it.half())).collect();
        has.dedup();
        let half = selector.half.map_or_else(String::new, |half| format!(" {half}"));
        let wanted = match &selector.workload {
            Some(workload) => format!("workload `{workload}`{half}"),
            None => format!("{half} workload").trim_start().to_owned(),
        };
        return Err(error(format!("{of_route} {wanted} on `{}`; it has {}", route.name, has.join(", "))));
    }
    let mut planned = named.iter().filter(|it| Place::is_planned(within, it, selector.direction));
    if let Some((lost, why)) = planned.find_map(|it| Some((it, it.skipped.as_ref()?))) {
        let (direction, half) = (selector.direction, lost.half());
        let cause = format!("{of_route} {direction} of {}, {half}, on `{}`", lost.name, route.name);
        let cause = format!("{cause}, which was skipped: {why}");
        return Err(fault(selector.column, cause, SKIPPED_ADVICE));
    }
    let found: Vec<Place<'_>> = (named.iter())
        .filter_map(|workload| {
            let cell = workload.cell(selector.direction)?;
            Some(Place { within, route, workload, cell, selector })
        })
        .collect();
    if found.is_empty() {
        return Err(error(format!("{of_route} {} of that on `{}`", selector.direction, route.name)));
    }
    Ok(found)
}

/// The same place in another record, measured under the same conditions.
fn same_place<'a>(place: &Place<'a>, other: Checked<'a>) -> Result<Place<'a>, JudgeError> {
    let selector = place.selector;
    let (workload, half) = (&place.workload.name, place.workload.half());
    let is_same = |other: &&Place<'_>| other.workload.name == *workload && other.workload.half() == half;
    let found = places(other, selector)?;
    let Some(base) = found.iter().find(is_same) else {
        let cause = format!("{} has no {} of `{}`", other.name, place.describe(), place.route.name);
        return Err(fault(selector.column, cause, NAMES_ADVICE));
    };
    let alike = found.iter().filter(is_same).find(|base| base.conditions() == place.conditions());
    alike.copied().ok_or_else(|| {
        let shown = |place: &Place<'_>| place.conditions().join("; ");
        let (here, there) = (shown(place), shown(base));
        let (name, other) = (place.within.name, other.name);
        let cause = format!("{name} and {other} measured something else: {here} and {there}");
        fault(selector.column, cause, "a baseline of the same experiment")
    })
}

/// The place in the same record with which a place is compared.
fn partner<'a>(place: &Place<'a>, other: &'a Selector) -> Result<Place<'a>, JudgeError> {
    let (workload, half) = (&place.workload.name, place.workload.half());
    let is_wanted = |found: &Place<'_>| {
        found.workload.name == *other.workload.as_ref().unwrap_or(workload)
            && found.workload.half() == other.half.unwrap_or(half)
    };
    places(place.within, other)?.into_iter().find(is_wanted).ok_or_else(|| {
        let cause = format!(
            "{} has no {workload} ({half}) {} of `{}`",
            place.within.name, other.direction, other.route
        );
        fault(other.column, cause, NAMES_ADVICE)
    })
}

fn against_number(
    place: &Place<'_>,
    operator: Operator,
    bound: f64,
    basis: Basis,
) -> Result<(Outcome, String), JudgeError> {
    let show = |value| place.selector.quantity.show(value);
    if basis == Basis::Medians {
        let median = place.median()?;
        return Ok((by_median(operator, median, bound), place.show(median)));
    }
    let values = place.series()?;
    let found = stats::median(&values).zip(stats::interval_95(&values, SEED));
    let (median, [low, high]) = found.ok_or_else(|| place.cannot_compare())?;
    let outcome = outcome(operator, median, [low, high], bound);
    Ok((outcome, format!("{} (95 %: {} to {})", place.show(median), show(low), show(high))))
}

fn against_place(
    place: &Place<'_>,
    base: &Place<'_>,
    operator: Operator,
    bound: f64,
    basis: Basis,
) -> Result<(Outcome, String), JudgeError> {
    let is_same_record = std::ptr::eq(place.within.record, base.within.record);
    let of = match is_same_record {
        true => format!("{} {}", base.route.name, base.describe()),
        false => base.within.name.to_owned(),
    };
    if basis == Basis::Medians {
        let (one, other) = (place.median()?, base.median()?);
        if other <= 0.0 {
            return Err(base.cannot_compare());
        }
        let ratio = one / other;
        return Ok((by_median(operator, ratio, bound), format!("{} times {of}", number::ratio(ratio))));
    }
    let (values, others) = (place.series()?, base.series()?);
    // Repeats of one workload in one record ran in turns, so they are compared pair by pair.
    let interleaved = is_same_record
        && place.workload.name == base.workload.name
        && place.workload.half() == base.workload.half();
    let compare = if interleaved { stats::ratio_of_pairs } else { stats::ratio_of_sittings };
    // Pairs whose other value is 0 are left out, and too few of the rest prove nothing.
    let is_enough = |found: &stats::Ratio| found.pairs >= stats::PAIRS_FOR_VERDICT_MIN;
    let found = compare(&values, &others, SEED).filter(is_enough).ok_or_else(|| base.cannot_compare())?;
    let [low, high] = number::interval_of_ratio(found.interval_95);
    let finding = format!("{} times {of} (95 %: {low} to {high})", number::ratio(found.ratio));
    Ok((outcome(operator, found.ratio, found.interval_95, bound), finding))
}

fn by_median(operator: Operator, median: f64, bound: f64) -> Outcome {
    if operator.holds(median, bound) { Outcome::Holds } else { Outcome::DoesNotHold }
}

fn outcome(operator: Operator, median: f64, [low, high]: [f64; 2], bound: f64) -> Outcome {
    if operator.holds(low, bound) && operator.holds(high, bound) {
        Outcome::Holds
    } else if operator.holds(median, bound) {
        Outcome::NotShown
    } else {
        Outcome::DoesNotHold
    }
}

#[cfg(test)]
mod tests;
