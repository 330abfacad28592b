//! The record of the acceptance benchmark, and the verdict on each mark.

use bench::machine::OTHERS_MAX;
use record::Environment;
use serde::{Deserialize, Serialize};

use super::rows::{Cpu, Row};

/// The version of the format.
pub const VERSION: u32 = 1;
/// The name of the limit among the contestants.
pub const LIMIT: &str = "limit";
/// The name of our server with our client.
pub const OURS: &str = "trunkline";

/// The server whose rate the table's factors refer to.
pub const GANESHA: &str = "nfs-ganesha";
/// A share of the limit above this shows that the calibrator did not find the limit: it is more
/// than the variation between runs.
const ABOVE_LIMIT: f64 = 1.05;
/// A peer above this share of the limit leaves no room to be faster.
const NEAR_LIMIT: f64 = 0.95;

/// One measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Operations, blocks or names per second.
    pub per_s: f64,
    /// Median latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    /// The 99th percentile of the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Processor time of the server for each operation; for the limit, that of the server's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_us: Option<f64>,
    /// Processor time of the client for each operation; for the limit, that of the client's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_us: Option<f64>,
    /// The share of processor time that other programs used.
    pub others: f64,
}

impl Sample {
    /// Whether other programs left it the processors. A disturbed sample stays in the record, and
    /// counts only if the series has no other.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        self.others <= OTHERS_MAX
    }
}

/// The samples of one contestant in a row, one for each repetition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The name of the contestant.
    pub who: String,
    /// For the limit, the mode and the congestion control that carried most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// One sample for each repetition; absent if none was measured.
    pub samples: Vec<Option<Sample>>,
    /// Why the contestant failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A mark and the value that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// What is compared, as text.
    pub what: String,
    /// The value to reach.
    pub asked: f64,
    /// Whether the value is a maximum (a time) or a minimum (a speed).
    pub at_most: bool,
    /// The median over the repetitions; absent if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<f64>,
    /// Why the value found proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

impl Mark {
    /// Creates a mark without doubt.
    #[must_use]
    pub fn new(what: impl Into<String>, asked: f64, at_most: bool, found: Option<f64>) -> Self {
        Self { what: what.into(), asked, at_most, found, doubt: None }
    }

    /// Adds a doubt if one of these series has only disturbed samples.
    pub(super) fn with_doubt_if_disturbed(mut self, series: &[Option<&Series>]) -> Self {
        if series.iter().flatten().any(|series| series.counts().0 == 0) {
            self.doubt = Some("others were busy".into());
        }
        self
    }

    /// Whether the mark is reached; `None` if the value is absent or doubtful.
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
    /// The name of the row, as `--row` takes it.
    pub id: String,
    /// What was measured.
    pub title: String,
    /// The size of a block in bytes, if the result is a speed of data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// The series of all contestants, the limit first if there is one.
    pub series: Vec<Series>,
    /// The marks of the row.
    pub marks: Vec<Mark>,
}

/// The whole record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceRecord {
    /// The version of the format.
    pub version: u32,
    /// The time of the run.
    pub made_at: String,
    /// The version of Trunkline.
    pub build: String,
    /// The machine and its system.
    pub environment: Environment,
    /// The duration of the run in seconds.
    pub took_s: f64,
    /// The intended number of repetitions.
    pub repeats: u32,
    /// What was left out, and the reason.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The lines of the table.
    pub lines: Vec<Line>,
}

/// Returns the median, which is the mean of the middle two values if their number is even.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

impl Series {
    /// Creates a series without samples.
    #[must_use]
    pub fn new(who: impl Into<String>) -> Self {
        Self { who: who.into(), ..Self::default() }
    }

    /// Returns the median of the undisturbed samples; of all samples if every one was disturbed.
    #[must_use]
    pub fn median_of(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let of_calm =
            self.samples.iter().flatten().filter(|sample| sample.is_undisturbed()).filter_map(&of).collect();
        median(of_calm).or_else(|| median(self.samples.iter().flatten().filter_map(&of).collect()))
    }

    /// Returns the number of samples that count and the number of all samples.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let all = || self.samples.iter().flatten();
        (all().filter(|sample| sample.is_undisturbed()).count(), all().count())
    }

    /// Returns the median of the ratios to the other series' sample of the same repetition. If no
    /// repetition has two samples that count, returns the ratio of the medians.
    #[must_use]
    pub fn ratio(&self, to: &Self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let pairs = self.samples.iter().zip(&to.samples).filter_map(|pair| match pair {
            (Some(one), Some(other)) if one.is_undisturbed() && other.is_undisturbed() => {
                Some(of(one)? / of(other)?)
            }
            _ => None,
        });
        let pairs: Vec<f64> = pairs.filter(|ratio| ratio.is_finite()).collect();
        median(pairs).or_else(|| {
            let ratio = self.median_of(&of)? / to.median_of(&of)?;
            ratio.is_finite().then_some(ratio)
        })
    }
}

impl Line {
    /// Creates a line without samples.
    #[must_use]
    pub fn of(row: &Row, names: u32) -> Self {
        Self { id: row.id.into(), title: row.title(names), block: row.block(), ..Self::default() }
    }

    /// Returns the series of a contestant.
    #[must_use]
    pub fn series(&self, who: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.who == who)
    }

    /// Compares the results with the marks of the row. `rival` is the contestant for the factor of
    /// speed, `server` the contestant for the share of the server's processor time.
    pub fn judge(&mut self, row: &Row, rival: Option<&str>, server: Option<&str>) {
        let mut marks = Vec::new();
        let speed = |sample: &Sample| Some(sample.per_s);
        let ours = self.series(OURS);
        let limit = self.series(LIMIT);
        let against = |who: Option<&str>| self.series(who?);
        if let Some(asked) = row.of_limit {
            let found = ours.zip(limit).and_then(|(ours, limit)| ours.ratio(limit, speed));
            let mut mark =
                Mark::new("of the limit", asked, false, found).with_doubt_if_disturbed(&[ours, limit]);
            if mark.doubt.is_none() && found.is_some_and(|share| share > ABOVE_LIMIT) {
                mark.doubt = Some("more than the limit, which was not found then".into());
            }
            marks.push(mark);
        }
        if let (Some(asked), Some(rival)) = (row.of_peer, against(rival)) {
            let found = ours.and_then(|ours| ours.ratio(rival, speed));
            let mark = Mark::new(format!("times {}", rival.who), asked, false, found);
            marks.push(mark.with_doubt_if_disturbed(&[ours, Some(rival)]));
        }
        if let Some(asked) = row.latency {
            // The limit does one call at a time, so the time for a call is the inverse of its rate.
            let found = ours.zip(limit).and_then(|(ours, limit)| {
                ours.ratio(limit, |sample| Some(sample.median_us.unwrap_or(1e6 / sample.per_s)))
            });
            let what = "of the limit's time for a call (median latency)";
            marks.push(Mark::new(what, asked, true, found).with_doubt_if_disturbed(&[ours, limit]));
        }
        if let Some(asked) = row.p99 {
            let found = ours.zip(limit).and_then(|(ours, limit)| ours.ratio(limit, |sample| sample.p99_us));
            let what = "of the limit's 99th percentile of latency";
            marks.push(Mark::new(what, asked, true, found).with_doubt_if_disturbed(&[ours, limit]));
        }
        if let Some(cpu) = row.cpu {
            marks.extend(judge_cpu(cpu, ours, limit, against(server)));
        }
        self.marks = marks;
    }

    /// Compares our speed with the best result on another server. Ours must be faster, unless the
    /// other is so near the limit that no room is left.
    pub fn judge_against_peer(&mut self, server: &str) {
        let speed = |sample: &Sample| Some(sample.per_s);
        let of_server = |series: &&Series| {
            series.who.strip_prefix(server).is_some_and(|client| client.starts_with(" + "))
                && series.median_of(speed).is_some()
        };
        let pace = |series: &&Series| series.median_of(speed).unwrap_or_default();
        let best =
            self.series.iter().filter(of_server).max_by(|one, other| pace(one).total_cmp(&pace(other)));
        let Some(best) = best else { return };
        let ours = self.series(OURS);
        let found = ours.and_then(|ours| ours.ratio(best, speed));
        let mut mark = Mark::new(format!("times {}", best.who), 1.0, false, found)
            .with_doubt_if_disturbed(&[ours, Some(best)]);
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
        let found = ours.and_then(|ours| ours.median_of(server));
        marks.push(
            Mark::new("us of server CPU for each", asked, true, found).with_doubt_if_disturbed(&[ours]),
        );
    }
    if let Some(asked) = cpu.of_limit {
        let found = ours.zip(limit).and_then(|(ours, limit)| ours.ratio(limit, server));
        let mark = Mark::new("of the serving end's CPU at the limit", asked, true, found);
        marks.push(mark.with_doubt_if_disturbed(&[ours, limit]));
    }
    if let Some(peer) = peer {
        let found = ours.and_then(|ours| ours.ratio(peer, server));
        let what = format!("of the server CPU of {}", peer.who);
        marks.push(Mark::new(what, cpu.of_peer, true, found).with_doubt_if_disturbed(&[ours, Some(peer)]));
    }
    marks
}

impl AcceptanceRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// If the text is no record, or a record of another version.
    pub fn read(text: &str) -> Result<Self, String> {
        let figures: Self =
            serde_json::from_str(text).map_err(|error| format!("no record of figures: {error}"))?;
        match figures.version {
            VERSION => Ok(figures),
            other => Err(format!("a record of figures of version {other}, and this build reads {VERSION}")),
        }
    }

    /// Returns the record as text.
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
        assert_eq!(ours.median_of(speed), Some(75.0));
        assert_eq!(ours.counts(), (2, 3));
    }

    #[test]
    fn where_nothing_was_calm_all_samples_count() {
        let ours = series("a", &[(50.0, 0.3), (70.0, 0.5)]);
        let speed = |sample: &Sample| Some(sample.per_s);
        assert_eq!(ours.median_of(speed), Some(60.0));
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
        let fairness = |ours: f64, theirs: f64| {
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
            line.judge_against_peer("other");
            assert_eq!(line.marks[0].what, "times other + libnfs");
            (line.marks[0].found.unwrap(), line.marks[0].reached())
        };
        assert_eq!(fairness(60.0, 50.0), (1.2, Some(true)));
        assert_eq!(fairness(40.0, 80.0), (0.5, Some(false)));
        assert_eq!(fairness(48.0, 96.0), (0.5, None), "nothing is left to be ahead by");
        let mut line = Line { series: vec![series(OURS, &[(1.0, 0.0)])], ..Line::default() };
        line.judge_against_peer("other");
        assert!(line.marks.is_empty());
    }

    #[test]
    fn a_record_can_be_read_again_and_another_version_is_refused() {
        let figures =
            AcceptanceRecord { version: VERSION, made_at: "now".into(), ..AcceptanceRecord::default() };
        assert_eq!(AcceptanceRecord::read(&figures.write()).unwrap(), figures);
        let other = AcceptanceRecord { version: 99, ..figures }.write();
        assert!(AcceptanceRecord::read(&other).unwrap_err().contains("99"));
        assert!(AcceptanceRecord::read("[]").is_err());
    }
}
