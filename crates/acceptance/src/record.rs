//! What `cargo xtask bench` measured, as it is kept, and how each figure is judged.

use bench::machine::OTHERS_MAX;
use record::Environment;
use serde::{Deserialize, Serialize};

use super::rows::{Cpu, Row};

/// The version of the format.
pub const VERSION: u32 = 1;
/// Who the limit is, among the contestants.
pub const LIMIT: &str = "limit";
/// Our server with our client.
pub const OURS: &str = "trunkline";

/// The server that users have today, which the table asks to be so many times ahead of.
pub const GANESHA: &str = "nfs-ganesha";
/// What exceeds the limit by more than runs differ shows that it was not the limit.
const ABOVE_LIMIT: f64 = 1.05;
/// A server that reaches more of the limit than this leaves no room to be ahead of it.
const NEAR_LIMIT: f64 = 0.95;

/// One measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Operations, blocks or names a second.
    pub per_s: f64,
    /// Median latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    /// The latency that one in a hundred exceeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Processor time of the server for an operation; of the limit, that of its serving end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_us: Option<f64>,
    /// Processor time of the client for an operation; of the limit, that of its asking end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_us: Option<f64>,
    /// The share of the processors' time that others had.
    pub others: f64,
}

impl Sample {
    /// Whether it had all processors. What had not is kept in the record, and counts only where
    /// nothing else is left.
    #[must_use]
    pub fn calm(&self) -> bool {
        self.others <= OTHERS_MAX
    }
}

/// What one contestant did in a row, by repetition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Who: the limit, us, or a pairing of others.
    pub who: String,
    /// Of the limit: the mode and the congestion control that carried most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// A sample for each repetition; absent where none was measured.
    pub samples: Vec<Option<Sample>>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Something that is asked for, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// What is compared.
    pub what: String,
    /// What is asked.
    pub asked: f64,
    /// Whether the found value may be less (a time) or more (a speed).
    pub at_most: bool,
    /// The median over the repetitions; absent where it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<f64>,
    /// Why that proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

impl Mark {
    /// A mark without doubts.
    #[must_use]
    pub fn new(what: impl Into<String>, asked: f64, at_most: bool, found: Option<f64>) -> Self {
        Self { what: what.into(), asked, at_most, found, doubt: None }
    }

    /// The same, with a doubt where others were busy during all that it rests on.
    pub(super) fn resting_on(mut self, series: &[Option<&Series>]) -> Self {
        if series.iter().flatten().any(|series| series.counts().0 == 0) {
            self.doubt = Some("others were busy".into());
        }
        self
    }

    /// Whether it is reached, as far as that is known.
    #[must_use]
    pub fn reached(&self) -> Option<bool> {
        self.found
            .filter(|_| self.doubt.is_none())
            .map(|found| if self.at_most { found <= self.asked } else { found >= self.asked })
    }
}

/// One line of the table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name, as `--row` takes it.
    pub id: String,
    /// What was measured.
    pub title: String,
    /// Bytes of a block, where the figure is a speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// All contestants, the limit first where there is one.
    pub series: Vec<Series>,
    /// What is asked of it.
    pub marks: Vec<Mark>,
}

/// A whole record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The format.
    pub version: u32,
    /// When it was made.
    pub made_at: String,
    /// The version of Trunkline.
    pub build: String,
    /// The machine.
    pub environment: Environment,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Repetitions that were meant to be.
    pub repeats: u32,
    /// What was left out, and why.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The table.
    pub lines: Vec<Line>,
}

/// The middle of some values, the mean of the middle two where they are even in number.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

impl Series {
    /// An empty one.
    #[must_use]
    pub fn new(who: impl Into<String>) -> Self {
        Self { who: who.into(), ..Self::default() }
    }

    /// The median of what had all processors, and of everything where nothing had.
    #[must_use]
    pub fn middle(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let of_calm = self.samples.iter().flatten().filter(|sample| sample.calm()).filter_map(&of).collect();
        median(of_calm).or_else(|| median(self.samples.iter().flatten().filter_map(&of).collect()))
    }

    /// How many samples count, and how many there are.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let all = || self.samples.iter().flatten();
        (all().filter(|sample| sample.calm()).count(), all().count())
    }

    /// The median of the ratios to another's sample of the same repetition; where no repetition has
    /// two that count, the ratio of the medians.
    #[must_use]
    pub fn ratio(&self, to: &Self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let pairs = self.samples.iter().zip(&to.samples).filter_map(|pair| match pair {
            (Some(one), Some(other)) if one.calm() && other.calm() => Some(of(one)? / of(other)?),
            _ => None,
        });
        let pairs: Vec<f64> = pairs.filter(|ratio| ratio.is_finite()).collect();
        median(pairs).or_else(|| {
            let ratio = self.middle(&of)? / to.middle(&of)?;
            ratio.is_finite().then_some(ratio)
        })
    }
}

impl Line {
    /// A line with nothing measured.
    #[must_use]
    pub fn of(row: &Row, names: u32) -> Self {
        Self { id: row.id.into(), title: row.title(names), block: row.block(), ..Self::default() }
    }

    /// A contestant's series.
    #[must_use]
    pub fn series(&self, who: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.who == who)
    }

    /// Holds what was measured against what is asked. `rival` is the pairing that the table
    /// compares with, and `server` the pairing whose server's processor time it does.
    pub fn judge(&mut self, row: &Row, rival: Option<&str>, server: Option<&str>) {
        let mut marks = Vec::new();
        let speed = |sample: &Sample| Some(sample.per_s);
        let ours = self.series(OURS);
        let limit = self.series(LIMIT);
        let against = |who: Option<&str>| self.series(who?);
        if let Some(asked) = row.of_limit {
            let found = ours.zip(limit).and_then(|(ours, limit)| ours.ratio(limit, speed));
            let mut mark = Mark::new("of the limit", asked, false, found).resting_on(&[ours, limit]);
            if mark.doubt.is_none() && found.is_some_and(|share| share > ABOVE_LIMIT) {
                mark.doubt = Some("more than the limit, which was not found then".into());
            }
            marks.push(mark);
        }
        if let (Some(asked), Some(rival)) = (row.of_peer, against(rival)) {
            let found = ours.and_then(|ours| ours.ratio(rival, speed));
            let mark = Mark::new(format!("times {}", rival.who), asked, false, found);
            marks.push(mark.resting_on(&[ours, Some(rival)]));
        }
        if let Some(asked) = row.latency {
            // The limit's calls follow each other, so its time for a call is what a second is
            // divided into.
            let found = ours.zip(limit).and_then(|(ours, limit)| {
                ours.ratio(limit, |sample| Some(sample.median_us.unwrap_or(1e6 / sample.per_s)))
            });
            let what = "of the limit's time for a call (median latency)";
            marks.push(Mark::new(what, asked, true, found).resting_on(&[ours, limit]));
        }
        if let Some(asked) = row.p99 {
            let found = ours.zip(limit).and_then(|(ours, limit)| ours.ratio(limit, |sample| sample.p99_us));
            let what = "of the limit's 99th percentile of latency";
            marks.push(Mark::new(what, asked, true, found).resting_on(&[ours, limit]));
        }
        if let Some(cpu) = row.cpu {
            marks.extend(judge_cpu(cpu, ours, limit, against(server)));
        }
        self.marks = marks;
    }

    /// Holds what was measured against the best that was with another server: ours is to be ahead,
    /// unless that stands so near to the limit that nothing is left to be ahead by.
    pub fn judge_beside(&mut self, server: &str) {
        let speed = |sample: &Sample| Some(sample.per_s);
        let of_server = |series: &&Series| {
            series.who.strip_prefix(server).is_some_and(|client| client.starts_with(" + "))
                && series.middle(speed).is_some()
        };
        let pace = |series: &&Series| series.middle(speed).unwrap_or_default();
        let best =
            self.series.iter().filter(of_server).max_by(|one, other| pace(one).total_cmp(&pace(other)));
        let Some(best) = best else { return };
        let ours = self.series(OURS);
        let found = ours.and_then(|ours| ours.ratio(best, speed));
        let mut mark =
            Mark::new(format!("times {}", best.who), 1.0, false, found).resting_on(&[ours, Some(best)]);
        let of_limit = self.series(LIMIT).and_then(|limit| best.ratio(limit, speed));
        if mark.reached() == Some(false) && of_limit.is_some_and(|share| share > NEAR_LIMIT) {
            mark.doubt = Some(format!("that is {:.2} of the limit", of_limit.unwrap_or_default()));
        }
        self.marks.push(mark);
    }
}

fn judge_cpu(cpu: Cpu, ours: Option<&Series>, limit: Option<&Series>, peer: Option<&Series>) -> Vec<Mark> {
    let server = |sample: &Sample| sample.server_us;
    let mut marks = Vec::new();
    if let Some(asked) = cpu.us_max {
        let found = ours.and_then(|ours| ours.middle(server));
        marks.push(Mark::new("us of server CPU for each", asked, true, found).resting_on(&[ours]));
    }
    if let Some(asked) = cpu.of_limit {
        let found = ours.zip(limit).and_then(|(ours, limit)| ours.ratio(limit, server));
        let mark = Mark::new("of the serving end's CPU at the limit", asked, true, found);
        marks.push(mark.resting_on(&[ours, limit]));
    }
    if let Some(peer) = peer {
        let found = ours.and_then(|ours| ours.ratio(peer, server));
        let what = format!("of the server CPU of {}", peer.who);
        marks.push(Mark::new(what, cpu.of_peer, true, found).resting_on(&[ours, Some(peer)]));
    }
    marks
}

impl Figures {
    /// Reads a record.
    ///
    /// # Errors
    /// It is none, or of another version.
    pub fn read(text: &str) -> Result<Self, String> {
        let figures: Self =
            serde_json::from_str(text).map_err(|error| format!("no record of figures: {error}"))?;
        match figures.version {
            VERSION => Ok(figures),
            other => Err(format!("a record of figures of version {other}, and this build reads {VERSION}")),
        }
    }

    /// The record as text.
    #[must_use]
    pub fn write(&self) -> String {
        serde_json::to_string_pretty(self).map_or_else(|error| error.to_string(), |text| text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(who: &str, samples: &[(f64, f64)]) -> Series {
        let samples =
            samples.iter().map(|&(per_s, others)| Some(Sample { per_s, others, ..Sample::default() }));
        Series { samples: samples.collect(), ..Series::new(who) }
    }

    #[test]
    fn ratios_are_taken_within_a_repetition_and_leave_out_disturbed_ones() {
        let ours = series("a", &[(50.0, 0.0), (10.0, 0.5), (100.0, 0.02)]);
        let limit = series("b", &[(100.0, 0.0), (100.0, 0.0), (125.0, 0.0)]);
        let speed = |sample: &Sample| Some(sample.per_s);
        assert_eq!(ours.ratio(&limit, speed), Some(0.65));
        assert_eq!(ours.middle(speed), Some(75.0));
        assert_eq!(ours.counts(), (2, 3));
    }

    #[test]
    fn where_nothing_was_calm_all_samples_count() {
        let ours = series("a", &[(50.0, 0.3), (70.0, 0.5)]);
        let speed = |sample: &Sample| Some(sample.per_s);
        assert_eq!(ours.middle(speed), Some(60.0));
        assert_eq!(ours.ratio(&series("b", &[(100.0, 0.0), (140.0, 0.0)]), speed), Some(0.5));
        assert_eq!(ours.ratio(&Series::new("none"), speed), None);
    }

    #[test]
    fn what_rests_on_disturbed_runs_or_exceeds_the_limit_is_not_reached() {
        let row = &crate::ROWS[0];
        let judged = |ours: Series, limit: Series| {
            let mut line = Line { series: vec![limit, ours], ..Line::default() };
            line.judge(row, None, None);
            line.marks[0].clone()
        };
        let limit = || series(LIMIT, &[(100.0, 0.0)]);
        assert_eq!(judged(series(OURS, &[(95.0, 0.0)]), limit()).reached(), Some(true));
        assert_eq!(judged(series(OURS, &[(50.0, 0.0)]), limit()).reached(), Some(false));
        let busy = judged(series(OURS, &[(95.0, 0.4)]), limit());
        assert_eq!((busy.found, busy.reached()), (Some(0.95), None));
        let above = judged(series(OURS, &[(120.0, 0.0)]), limit());
        assert_eq!((above.found, above.reached()), (Some(1.2), None));
    }

    #[test]
    fn another_server_is_to_be_beaten_with_its_better_client_unless_it_is_near_the_limit() {
        let beside = |ours: f64, theirs: f64| {
            let mut line = Line {
                series: vec![
                    series(LIMIT, &[(100.0, 0.0)]),
                    series(OURS, &[(ours, 0.0)]),
                    series("other + our client", &[(theirs / 2.0, 0.0)]),
                    series("other + libnfs", &[(theirs, 0.0)]),
                    series("others + libnfs", &[(200.0, 0.0)]),
                ],
                ..Line::default()
            };
            line.judge_beside("other");
            assert_eq!(line.marks[0].what, "times other + libnfs");
            (line.marks[0].found.unwrap(), line.marks[0].reached())
        };
        assert_eq!(beside(60.0, 50.0), (1.2, Some(true)));
        assert_eq!(beside(40.0, 80.0), (0.5, Some(false)));
        assert_eq!(beside(48.0, 96.0), (0.5, None), "nothing is left to be ahead by");
        let mut line = Line { series: vec![series(OURS, &[(1.0, 0.0)])], ..Line::default() };
        line.judge_beside("other");
        assert!(line.marks.is_empty());
    }

    #[test]
    fn a_record_can_be_read_again_and_another_version_is_refused() {
        let figures = Figures { version: VERSION, made_at: "now".into(), ..Figures::default() };
        assert_eq!(Figures::read(&figures.write()).unwrap(), figures);
        let other = Figures { version: 99, ..figures }.write();
        assert!(Figures::read(&other).unwrap_err().contains("99"));
        assert!(Figures::read("[]").is_err());
    }
}
