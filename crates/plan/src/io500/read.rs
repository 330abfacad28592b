//! Reads `result_summary.txt` (the same text that the benchmark prints) and `result.txt`.
//!
//! Before SC20 the benchmark was a shell script. Its summary has another form:
//! `[RESULT] BW   phase 1   ior_easy_write   8.581 GB/s : time 58.27 seconds`. The script divided
//! the MiB/s of `ior` by 1024, so its "GB/s" are GiB/s.

use super::{Format, PHASES, Phase, Run, Score, UNSCORED, Unit, agrees, score};
use crate::error::{Error, Result};

/// The minimum duration of a phase that writes or creates in a valid run: both `ior` and both
/// `mdtest` write phases. io500.org, rules.
const WRITE_SECONDS_MIN: f64 = 300.0;
/// No result has more lines. This bounds the time spent on a wrong file.
const LINES_MAX: usize = 100_000;
/// Further phases that are not scored are only counted, so that a wrong file is not repeated line
/// by line.
const UNKNOWN_REPORTED_MAX: usize = 32;

/// Reads a run.
///
/// # Errors
/// If the text has no phases, or invalid numbers.
pub fn read(name: &str, text: &str) -> Result<Run> {
    let mut parser = Parser::default();
    if text.lines().take(LINES_MAX).any(|line| line.trim_start().starts_with("[RESULT")) {
        text.lines()
            .take(LINES_MAX)
            .enumerate()
            .try_for_each(|(number, line)| parser.summary_line(number + 1, line))?;
    } else {
        let mut section = String::new();
        for (number, line) in text.lines().take(LINES_MAX).enumerate() {
            parser.ini_line(number + 1, line.trim(), &mut section)?;
        }
    }
    parser.finish(name)
}

/// What has been read so far.
#[derive(Debug, Default)]
struct Parser {
    version: Option<String>,
    format: Format,
    phases: Vec<Phase>,
    unscored: Vec<String>,
    unknown: usize,
    stated: [Option<f64>; 3],
    warnings: Vec<String>,
}

fn line_error(line: usize, what: impl std::fmt::Display) -> Error {
    Error::Results { cause: format!("line {line}: {what}") }
}

/// Parses the result of a phase.
fn parse_value(line: usize, text: &str) -> Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && (0.0..1e15).contains(&value) => Ok(value),
        _ => Err(line_error(line, format!("{:?} is no result: a number, 0 or more", clip(text)))),
    }
}

/// A part of a foreign text, short enough for a sentence.
fn clip(text: &str) -> String {
    text.trim().chars().take(40).collect()
}

impl Parser {
    /// Parses `[RESULT]  ior-easy-write  11.999765 GiB/s : time 330.250 seconds`.
    fn summary_line(&mut self, number: usize, line: &str) -> Result<()> {
        let line = line.trim();
        let is_invalid = line.to_ascii_lowercase().contains("invalid");
        if let Some(version) = line.strip_prefix("IO500 version ") {
            self.version = Some(clip(version));
        } else if line.starts_with("[RESULT") {
            let words: Vec<_> = after_tag(line).split_whitespace().collect();
            let (name, value, unit) = match words.as_slice() {
                ["BW" | "IOPS", "phase", _, name, value, unit, ..] => {
                    self.set_format(number, Format::BeforeSc20)?;
                    // The script divided MiB/s by 1024 and called the result GB/s.
                    let unit = if *unit == "GB/s" { Unit::GibPerS.name() } else { unit };
                    (name.replace('_', "-"), *value, unit)
                }
                ["BW" | "IOPS", "phase", ..] | [] | [_] | [_, _] => {
                    return Err(line_error(number, "a result has a phase, a figure and a unit"));
                }
                [name, value, unit, ..] => {
                    self.set_format(number, Format::SinceSc20)?;
                    ((*name).to_owned(), *value, *unit)
                }
            };
            let seconds =
                line.split_once("time ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
            self.phase(number, &name, parse_value(number, value)?, Some(unit), seconds, is_invalid)?;
        } else if line.starts_with("[SCORE") && !line.starts_with("[SCOREX") {
            for part in after_tag(line).split(':') {
                let words: Vec<_> = part.split_whitespace().collect();
                if let [what, value, ..] = words.as_slice() {
                    self.state(number, what, value)?;
                }
            }
            self.mark(is_invalid);
        } else if line.to_ascii_lowercase().contains("not valid for io-500 submission") {
            // The script's verdict, even where the next line is `[SCORE-valid]`.
            self.mark(true);
        }
        Ok(())
    }

    fn set_format(&mut self, number: usize, format: Format) -> Result<()> {
        if !self.phases.is_empty() && self.format != format {
            return Err(line_error(
                number,
                "this result has another form than those before; one file is one run",
            ));
        }
        self.format = format;
        Ok(())
    }

    /// Parses `[ior-easy-write]`, then `score = 11.99`.
    fn ini_line(&mut self, number: usize, line: &str, section: &mut String) -> Result<()> {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name)
        {
            section.clear();
            section.push_str(name.trim());
            return Ok(());
        }
        let Some((key, value)) = line.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
            return Ok(());
        };
        let is_invalid = value.to_ascii_lowercase().contains("invalid");
        let first = value.split_whitespace().next().unwrap_or_default();
        match (section.as_str(), key) {
            ("run" | "", "version") => self.version = Some(clip(value)),
            ("SCORE", "MD" | "BW" | "SCORE") => {
                self.state(number, key, first)?;
                self.mark(is_invalid);
            }
            ("SCORE" | "SCOREX", _) => {}
            (phase, "score") => {
                let phase = phase.to_owned();
                self.phase(number, &phase, parse_value(number, first)?, None, None, is_invalid)?;
            }
            (phase, "t_delta") => {
                if let Some(last) = self.phases.last_mut().filter(|last| last.name == phase) {
                    last.seconds = value.parse().ok();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn mark(&mut self, is_invalid: bool) {
        let warning = "the run marks its score as invalid".to_owned();
        if is_invalid && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn state(&mut self, number: usize, what: &str, value: &str) -> Result<()> {
        let place = match what.to_ascii_lowercase().as_str() {
            "bandwidth" | "bw" => 0,
            "iops" | "md" => 1,
            "total" | "score" => 2,
            _ => return Ok(()),
        };
        let value = parse_value(number, value)?;
        if let Some(stated) = self.stated.get_mut(place) {
            *stated = Some(value);
        }
        Ok(())
    }

    fn phase(
        &mut self,
        number: usize,
        name: &str,
        value: f64,
        unit: Option<&str>,
        seconds: Option<f64>,
        is_invalid: bool,
    ) -> Result<()> {
        let Some((known, expected)) = PHASES.iter().find(|(phase, _)| *phase == name) else {
            if UNSCORED.iter().any(|beginning| name.starts_with(beginning)) {
                let name = clip(name);
                if self.unscored.len() < UNKNOWN_REPORTED_MAX && !self.unscored.contains(&name) {
                    self.unscored.push(name);
                }
                return Ok(());
            }
            let plain = name.replace('_', "-");
            if let Some((phase, _)) = PHASES.iter().find(|(phase, _)| *phase == plain) {
                return Err(line_error(
                    number,
                    format!(
                        "{:?} is {phase} since SC20; results from before have \"BW phase 1\" or the like in front",
                        clip(name)
                    ),
                ));
            }
            self.unknown += 1;
            if self.unknown <= UNKNOWN_REPORTED_MAX {
                let name = clip(name);
                self.warnings
                    .push(format!("{name:?} is no phase of IO500 that is known here, and is not scored"));
            }
            return Ok(());
        };
        if unit.is_some_and(|unit| !unit.eq_ignore_ascii_case(expected.name())) {
            let unit = clip(unit.unwrap_or_default());
            return Err(line_error(
                number,
                format!("{known} is in {unit}, and IO500 prints it in {}", expected.name()),
            ));
        }
        if self.phases.iter().any(|phase| phase.name == *known) {
            return Err(line_error(number, format!("{known} stands here twice; one file is one run")));
        }
        self.phases.push(Phase { name: known, value, unit: *expected, seconds, is_invalid });
        Ok(())
    }

    fn finish(mut self, name: &str) -> Result<Run> {
        if self.phases.is_empty() {
            return Err(Error::Results { cause: "there is no phase with a result in it".to_owned() });
        }
        self.warn();
        let stated = match self.stated {
            [Some(bandwidth_gib_s), Some(iops_kiops), Some(total)] => {
                Some(Score { bandwidth_gib_s, iops_kiops, total })
            }
            _ => None,
        };
        let score = score(&self.phases);
        let mut run = Run {
            name: clip(name.rsplit('/').next().unwrap_or(name)),
            version: self.version,
            format: self.format,
            phases: self.phases,
            unscored: self.unscored,
            stated,
            score,
            warnings: self.warnings,
        };
        if agrees(&run) == Some(false) {
            run.warnings.push("the score that the file states is not that of its phases".to_owned());
        }
        Ok(run)
    }

    fn warn(&mut self) {
        if let Some(more) = self.unknown.checked_sub(UNKNOWN_REPORTED_MAX).filter(|more| *more > 0) {
            self.warnings.push(format!("{more} more phases are not known here, and are not scored"));
        }
        let has = |phase: &str| self.phases.iter().any(|parser| parser.name == phase && parser.value > 0.0);
        let without: Vec<_> = PHASES.iter().map(|(phase, _)| *phase).filter(|phase| !has(phase)).collect();
        if !without.is_empty() {
            self.warnings.push(format!("left out of the score, as absent or 0: {}", without.join(", ")));
        }
        for phase in self.phases.iter().filter(|phase| phase.is_invalid) {
            self.warnings.push(format!("{} is marked as invalid", phase.name));
        }
        let short = self.phases.iter().filter(|phase| {
            phase.name.ends_with("-write") && phase.seconds.is_some_and(|seconds| seconds < WRITE_SECONDS_MIN)
        });
        let short: Vec<_> = short.map(|phase| format!("{} wrote for less than 300 s", phase.name)).collect();
        self.warnings.extend(short);
    }
}

/// The text after `[RESULT]` or `[SCORE-invalid]`.
fn after_tag(line: &str) -> &str {
    line.split_once(']').map_or("", |(_, rest)| rest)
}
