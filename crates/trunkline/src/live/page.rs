//! The web page of the metrics address: what happened in the last hour, broken down, on one axis of
//! time.
//!
//! The page is made here, in whole sentences of HTML, and works without a script. The script
//! (`page/script.js`) asks for the changing part (`/panels`) again and puts it in place. A sheet
//! that is kept as a file (`page/worksheet.rs`) has the same panels.
//!
//! Names of clients, exports and paths are foreign text: the templates escape them.

pub mod chart;
pub mod picture;
pub mod request;
pub mod worksheet;

use super::collector::Side;
use crate::figures;
use askama::Template;
use chart::Panel;
use metrics::history::{Query, Range, View};
use metrics::{Dimension, History, Kind, Rates, Snapshot, Tally};
use picture::Picture;
use request::{Request, WINDOWS};
use std::time::Duration;

/// The most columns of a panel.
const POINTS_MAX: usize = 120;
/// The most groups besides the rest.
const GROUPS_MAX: usize = chart::COLOURS;

/// The style of the page.
pub const STYLE: &str = include_str!("page/style.css");
/// The script of the page.
pub const SCRIPT: &str = include_str!("page/script.js");
/// The picture that browsers show beside the title.
pub const ICON: &str = include_str!("page/icon.svg");

/// Counters that are older than this are told to be old. The page is made of those of the last
/// second, and a reading may take another one.
pub const OLD_AFTER: Duration = Duration::from_secs(3);

/// The counters that were read last.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    /// The counters.
    pub snapshot: &'a Snapshot,
    /// How old they are.
    pub age: Duration,
    /// Whether the process has an embedded group.
    pub has_group: bool,
}

/// Everything that the page shows for one request.
#[derive(Debug)]
pub struct Sheet {
    /// What was asked for.
    pub request: Request,
    /// The dimension that tells groups apart.
    pub by: Dimension,
    /// The dimensions that there are.
    pub dimensions: Vec<Dimension>,
    /// The time that is shown.
    pub range: Range,
    /// All the time there is.
    pub all: Range,
    /// What happened.
    pub view: View,
    /// The picture of the paths.
    pub picture: Picture,
    /// The process.
    pub process: ProcessLine,
    /// How much of the history there is, and of that by file if it is shown.
    kept: String,
    /// How old the newest figures are, if that is longer than it should be.
    old: String,
    /// What happened by file, if that is asked for.
    files: Option<View>,
    /// Whether the process has an embedded group.
    has_group: bool,
}

/// Who the process is.
#[derive(Debug)]
pub struct ProcessLine {
    /// The kind of process, and its number: `serve 4711`.
    pub title: String,
    /// What it serves or mounts.
    pub name: String,
    /// The rest.
    pub about: String,
    /// Whether it can count by file.
    has_files: bool,
}

impl Sheet {
    /// What a request asks for. `now` has the states of paths at this moment, if they are known.
    /// `None` if nothing has been counted yet.
    pub fn new(history: &History, request: Request, now: Option<Now<'_>>) -> Option<Self> {
        let last = history.last()?;
        let begun = last.taken_unix_ms;
        let all = history.range().unwrap_or(Range { from_ms: begun, until_ms: begun });
        let dimensions = history.dimensions();
        // Files have a history of their own.
        let asked = request.by.filter(|by| *by != Dimension::File);
        let by = asked.or_else(|| request.first_left(&dimensions)).unwrap_or(Dimension::Operation);
        let range = request.range(all);
        let conditions = &request.conditions;
        let query = Query { range, by, conditions, points_max: POINTS_MAX, groups_max: GROUPS_MAX };
        let has_group = now.is_some_and(|now| now.has_group);
        let now = now.filter(|_| request.until_ms.is_none());
        let old = now.map(|now| now.age).filter(|age| *age >= OLD_AFTER);
        Some(Self {
            files: None,
            old: old.map(|age| figures::duration(age.as_secs())).unwrap_or_default(),
            view: history.view(&query),
            picture: picture::picture(history, range, now.map(|now| now.snapshot), last),
            process: ProcessLine::new(last, request.side),
            has_group,
            kept: kept(history),
            request,
            by,
            dimensions,
            range,
            all,
        })
    }

    /// The same by file: operations and bytes, and the table, are those of the history of files.
    /// Latencies and processors are not known by file.
    #[must_use]
    pub fn by_file(self, files: &History) -> Self {
        let conditions = &self.request.conditions;
        let (range, by) = (self.range, Dimension::File);
        let query = Query { range, by, conditions, points_max: POINTS_MAX, groups_max: GROUPS_MAX };
        let megabytes = files.bytes() as f64 / f64::from(1 << 20);
        let kept = format!(
            "{} By file: {} seconds, {megabytes:.2} of at most 16 MiB, counted only while a page shows them.",
            self.kept,
            files.len()
        );
        Self { files: Some(files.view(&query)), kept, ..self }
    }

    /// What the groups are of: all operations, or those by file.
    pub fn shown(&self) -> &View {
        self.files.as_ref().unwrap_or(&self.view)
    }

    /// The picture of the paths alone.
    pub fn picture(history: &History, request: &Request, now: &Snapshot) -> Option<Picture> {
        let (last, all) = (history.last()?, history.range());
        let range = all.map_or(Range { from_ms: 0, until_ms: 0 }, |all| request.range(all));
        let now = Some(now).filter(|_| request.until_ms.is_none());
        Some(picture::picture(history, range, now, last))
    }

    /// The panels, on one axis of time.
    pub fn panels(&self) -> Vec<Panel> {
        let (view, range) = (&self.view, self.range);
        let mut panels = vec![
            chart::operations(self.shown(), range),
            chart::throughput(self.shown(), range),
            chart::latency(view, range),
            chart::processors(view, range),
        ];
        if !view.paths.is_empty() {
            panels.insert(3, chart::path_states(view, range));
        }
        panels
    }

    /// The times below the panels.
    fn times(&self) -> Vec<Time> {
        let length = self.range.until_ms.saturating_sub(self.range.from_ms);
        (0..=4).map(|part| Time::of(self.range.from_ms + length * part / 4)).collect()
    }

    /// The lines of the table, the busiest first, and that of all together.
    pub fn lines(&self) -> (Vec<Line>, Line) {
        let view = self.shown();
        let (total, seconds) = (&view.total, view.ms as f64 / 1e3);
        let lines = view.groups.iter().enumerate().map(|(number, group)| {
            let href = (group.rest_of == 0 && self.files.is_none()).then(|| {
                let value = group.value.as_deref();
                self.request.only(self.by, value, &self.dimensions).href("/")
            });
            let line = Line::new(chart::name(group), &group.total, total, seconds);
            Line { class: chart::colour(number, group), href: href.unwrap_or_default(), ..line }
        });
        let all = Line::new("all".to_owned(), total, total, seconds);
        (lines.collect(), all)
    }

    /// What the lines of the table are.
    pub fn table_by(&self) -> Dimension {
        if self.files.is_some() { Dimension::File } else { self.by }
    }

    /// The time over which the table is, and what else must be said about it.
    fn table_note(&self) -> String {
        match &self.files {
            None => "over the time shown; a click leads into a part".to_owned(),
            Some(files) if files.points.is_empty() => {
                "which are counted only while this page shows them: now they are".to_owned()
            }
            Some(files) => format!(
                "over those {} s of the time shown in which they were counted, without latencies",
                figures::number(files.ms as f64 / 1e3)
            ),
        }
    }
}

/// A line of the table.
#[derive(Debug)]
pub struct Line {
    /// The value.
    pub name: String,
    /// The class of its colour.
    class: String,
    /// Where a click leads; empty for those that lead nowhere.
    href: String,
    /// The columns after the name, in the order of [`COLUMNS`].
    pub cells: [String; 8],
}

/// The columns of the table after the name.
pub const COLUMNS: [&str; 8] = ["ops/s", "in/s", "out/s", "share", "p50", "p99", "max", "errors"];

impl Line {
    fn new(name: String, tally: &Tally, total: &Tally, seconds: f64) -> Self {
        let rates = Rates::of(tally, seconds);
        let cells = [
            figures::number(rates.ops_per_s),
            figures::bytes_per_s(rates.received_bytes_per_s),
            figures::bytes_per_s(rates.sent_bytes_per_s),
            figures::percent(tally.share_of(total)),
            figures::latency(rates.p50_ns),
            figures::latency(rates.p99_ns),
            figures::latency(rates.max_ns),
            figures::percent(rates.errors),
        ];
        Self { name, class: String::new(), href: String::new(), cells }
    }
}

impl ProcessLine {
    fn new(snapshot: &Snapshot, side: Side) -> Self {
        let process = &snapshot.process;
        let up = figures::duration(snapshot.uptime_ms / 1000);
        Self {
            title: format!("{} {}", process.kind.name(), process.pid),
            name: process.name.clone(),
            about: format!("Trunkline {}, up {up}", process.version),
            has_files: process.kind == Kind::Serve && side == Side::Process,
        }
    }
}

fn kept(history: &History) -> String {
    let megabytes = history.bytes() as f64 / f64::from(1 << 20);
    format!("History: {} of 3600 seconds, {megabytes:.2} of at most 64 MiB.", history.len())
}

/// A time, for people and for the script.
#[derive(Debug)]
pub struct Time {
    ms: u64,
    iso: String,
    text: String,
}

impl Time {
    fn of(ms: u64) -> Self {
        Self { ms, iso: figures::date_time(ms), text: figures::time_of_day(ms) }
    }
}

/// A link that may be the current one.
#[derive(Debug)]
struct Link {
    text: String,
    href: String,
    is_current: bool,
}

/// A condition, with the way back to it.
#[derive(Debug)]
struct Crumb {
    dimension: &'static str,
    value: String,
    href: String,
    /// The same without this condition.
    without: String,
}

/// The part of the page that changes.
#[derive(Template)]
#[template(path = "live/panels.html")]
struct PanelsTemplate<'a> {
    sheet: &'a Sheet,
    /// The process and the embedded group within it, if it has one.
    sides: Vec<Link>,
    crumbs: Vec<Crumb>,
    all_href: String,
    dimensions: Vec<Link>,
    windows: Vec<Link>,
    earlier: String,
    later: String,
    pause: String,
    live: String,
    end: Time,
    panels: Vec<Panel>,
    times: Vec<Time>,
    lines: Vec<Line>,
    all: Line,
    columns: [&'static str; 8],
    exports: [(&'static str, String); 3],
    picture: String,
}

/// The picture of the paths, which is asked for on its own more often.
#[derive(Template)]
#[template(path = "live/picture.html")]
struct PictureTemplate<'a> {
    picture: &'a Picture,
    width: f64,
}

#[derive(Template)]
#[template(path = "live/page.html")]
struct PageTemplate<'a> {
    process: &'a ProcessLine,
    panels: String,
}

/// The page that asks for the token.
#[derive(Template)]
#[template(path = "live/login.html")]
struct LoginTemplate<'a> {
    was_wrong: bool,
    next: &'a str,
}

/// The templates write to memory and call nothing that fails.
fn render(template: &impl Template) -> String {
    template.render().unwrap_or_default()
}

/// The form that asks for the token, and leads to `next`.
pub fn login(was_wrong: bool, next: &str) -> String {
    render(&LoginTemplate { was_wrong, next })
}

/// The whole page.
pub fn page(sheet: &Sheet) -> String {
    render(&PageTemplate { process: &sheet.process, panels: panels(sheet) })
}

/// The picture alone.
pub fn picture(picture: &Picture) -> String {
    render(&PictureTemplate { picture, width: picture::WIDTH })
}

/// The part that changes.
pub fn panels(sheet: &Sheet) -> String {
    let request = &sheet.request;
    let half = request.window_s * 500;
    let is_live = request.until_ms.is_none();
    let earliest = (sheet.all.from_ms + request.window_s * 1000).min(sheet.all.until_ms);
    let earlier = sheet.range.until_ms.saturating_sub(half).max(earliest);
    let later = sheet.range.until_ms + half;
    let later = (later < sheet.all.until_ms).then_some(later);
    let go = |request: Request| request.href("/");
    let (lines, all) = sheet.lines();
    let export =
        |format| request.until(Some(sheet.range.until_ms)).href(&format!("/worksheet?format={format}"));
    render(&PanelsTemplate {
        sheet,
        sides: sides(sheet),
        crumbs: crumbs(sheet),
        all_href: go(request.before(0).broken_down_by(None)),
        dimensions: dimensions(sheet),
        windows: windows(sheet),
        earlier: if earlier < sheet.range.until_ms {
            go(request.until(Some(earlier)))
        } else {
            String::new()
        },
        later: if is_live { String::new() } else { go(request.until(later)) },
        pause: if is_live { go(request.until(Some(sheet.range.until_ms))) } else { String::new() },
        live: if is_live { String::new() } else { go(request.until(None)) },
        end: Time::of(sheet.range.until_ms),
        panels: sheet.panels(),
        times: sheet.times(),
        lines,
        all,
        columns: COLUMNS,
        exports: [("HTML", export("html")), ("CSV", export("csv")), ("JSON", export("json"))],
        picture: picture(&sheet.picture),
    })
}

fn sides(sheet: &Sheet) -> Vec<Link> {
    let sides = [(Side::Process, "bench"), (Side::Group, "embedded group")];
    let links = sides.into_iter().filter(|_| sheet.has_group).map(|(side, text)| Link {
        text: text.to_owned(),
        href: sheet.request.whole_of(side).href("/"),
        is_current: side == sheet.request.side,
    });
    links.collect()
}

fn crumbs(sheet: &Sheet) -> Vec<Crumb> {
    let request = &sheet.request;
    let crumbs = request.conditions.iter().enumerate().map(|(number, (dimension, value))| {
        let mut until = request.before(number + 1);
        until.by = until.first_left(&sheet.dimensions);
        let mut without = request.clone();
        without.conditions.remove(number);
        Crumb {
            dimension: dimension.name(),
            value: value.clone().unwrap_or_else(|| "(none)".to_owned()),
            href: until.href("/"),
            without: without.href("/"),
        }
    });
    crumbs.collect()
}

fn dimensions(sheet: &Sheet) -> Vec<Link> {
    let current = sheet.table_by();
    let left = sheet.dimensions.iter().filter(|one| !sheet.request.fixes(**one) || **one == current);
    let files = sheet.process.has_files.then_some(&Dimension::File);
    let links = left.chain(files).map(|dimension| Link {
        text: dimension.name().to_owned(),
        href: sheet.request.broken_down_by(Some(*dimension)).href("/"),
        is_current: *dimension == current,
    });
    links.collect()
}

fn windows(sheet: &Sheet) -> Vec<Link> {
    let links = WINDOWS.into_iter().map(|(seconds, text)| Link {
        text: text.to_owned(),
        href: sheet.request.over(seconds).href("/"),
        is_current: seconds == sheet.request.window_s,
    });
    links.collect()
}

#[cfg(test)]
mod tests;
