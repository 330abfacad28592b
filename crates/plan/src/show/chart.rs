//! A curve as SVG: one file without scripts, fonts or external images, readable on paper and
//! without colour.

use crate::limits::{Curve, Direction, Limits};
use askama::Template;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// The approximate number of horizontal lines.
const LINES: f64 = 5.0;
/// The maximum number of labels below.
const NUMBERS_MAX: usize = 12;

#[derive(Template)]
#[template(path = "curve.svg")]
struct Page<'a> {
    name: String,
    over: &'a str,
    /// A description for screen readers.
    words: String,
    rules: Vec<Rule>,
    numbers: Vec<Label>,
    series: Vec<Series>,
}

/// A horizontal line with its number.
struct Rule {
    y: String,
    text: String,
}

/// A text at a position.
struct Label {
    x: String,
    y: String,
    text: String,
}

/// One direction.
struct Series {
    name: &'static str,
    class: &'static str,
    points: String,
    marks: Vec<Label>,
    /// The points where another stage becomes binding.
    turns: Vec<Label>,
    end: Label,
}

/// A curve of a topology's limits.
#[must_use]
pub fn svg(limits: &Limits, curve: &Curve) -> String {
    let most = curve
        .points
        .iter()
        .map(|point| point.read.gbytes_per_s.max(point.write.gbytes_per_s))
        .fold(0.0, f64::max);
    let step = step(most);
    let top = (most / step).ceil().max(1.0) * step;
    let scale = PlotScale { count: curve.points.len(), top };
    let lines = (0..=32).map(|number| f64::from(number) * step).take_while(|value| *value <= top * 1.0001);
    let rules = lines
        .map(|value| Rule { y: format!("{:.1}", scale.y(value)), text: crate::units::trim(value) })
        .collect();
    let every = curve.points.len().div_ceil(NUMBERS_MAX).max(1);
    let numbered = curve.points.iter().enumerate().filter(|(index, _)| index % every == 0);
    let below = format!("{:.1}", HEIGHT - BOTTOM + 18.0);
    let numbers = numbered
        .map(|(index, point)| Label {
            x: format!("{:.1}", scale.x(index)),
            y: below.clone(),
            text: point.count.to_string(),
        })
        .collect();
    let page = Page {
        // Control characters would be invalid in XML.
        name: super::table::printable(&limits.name),
        over: curve.over.name(),
        words: words(curve),
        rules,
        numbers,
        series: vec![series(curve, Direction::Read, &scale), series(curve, Direction::Write, &scale)],
    };
    let mut text = page.render().expect("the template writes to memory and calls nothing that fails");
    text.push('\n');
    text
}

/// A round step: 1, 2 or 5 times a power of ten.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf((most / LINES).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= most / LINES * 0.999).unwrap_or(power * 10.0)
}

struct PlotScale {
    count: usize,
    top: f64,
}

impl PlotScale {
    fn x(&self, index: usize) -> f64 {
        let last = self.count.saturating_sub(1).max(1);
        LEFT + (WIDTH - LEFT - RIGHT - 60.0) * index as f64 / last as f64
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top
    }
}

fn series(curve: &Curve, direction: Direction, scale: &PlotScale) -> Series {
    let bound = |point: &crate::limits::Point| match direction {
        Direction::Read => point.read.clone(),
        Direction::Write => point.write.clone(),
    };
    let (mut points, mut marks, mut turns, mut last) = (Vec::new(), Vec::new(), Vec::new(), None);
    // The words stand above the line for reading and below it for writing, so that they do not
    // overlap.
    let aside = if direction == Direction::Read { -10.0 } else { 20.0 };
    for (index, point) in curve.points.iter().enumerate() {
        let bound = bound(point);
        let (x, y) = (scale.x(index), scale.y(bound.gbytes_per_s));
        points.push(format!("{x:.1},{y:.1}"));
        marks.push(Label {
            x: format!("{x:.1}"),
            y: format!("{y:.1}"),
            text: format!(
                "{} {}: {:.2} GB/s {}, {}",
                point.count,
                curve.over,
                bound.gbytes_per_s,
                direction.name(),
                bound.why
            ),
        });
        let stage = bound.first();
        if stage != last {
            let text = stage.map_or("", crate::limits::StageName::title).to_owned();
            turns.push(Label { x: format!("{x:.1}"), y: format!("{:.1}", y + aside), text });
            last = stage;
        }
    }
    let (x, y) = match curve.points.last() {
        Some(point) => (scale.x(curve.points.len() - 1), scale.y(bound(point).gbytes_per_s)),
        None => (LEFT, HEIGHT - BOTTOM),
    };
    let end = Label {
        x: format!("{:.1}", x + 8.0),
        y: format!("{:.1}", y + 4.0),
        text: direction.name().to_owned(),
    };
    let class = direction.name();
    Series { name: direction.name(), class, points: points.join(" "), marks, turns, end }
}

fn words(curve: &Curve) -> String {
    let label_of = |point: &crate::limits::Point| {
        format!(
            "{} {}: {:.2} read, {:.2} write",
            point.count, curve.over, point.read.gbytes_per_s, point.write.gbytes_per_s
        )
    };
    let ends: Vec<_> =
        [curve.points.first(), curve.points.last()].into_iter().flatten().map(label_of).collect();
    format!("GB/s, {}", ends.join("; "))
}
