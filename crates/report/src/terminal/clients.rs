//! Experiments with many clients, and step tests, as lines below the rows.

use record::steps::{Curve, Unit};
use record::{ClientResult, Half, Record};

use super::INDENT;
use super::canvas::{Canvas, Style};
use crate::number;
use crate::view::Group;

/// More clients are summed up.
const NAMED_MAX: usize = 6;

/// What the clients of each route did: shares, starts and ends, stragglers, and who is lost.
pub(super) fn below(canvas: &mut Canvas, group: &Group<'_>) {
    for row in &group.rows {
        let clients = row.workload.clients.as_slice();
        if clients.is_empty() {
            continue;
        }
        canvas.paragraph(Style::Plain, INDENT, &format!("{} clients: ", row.route.name), &summary(clients));
        for client in clients.iter().filter(|client| client.straggler && client.lost.is_none()) {
            let done = client.last_done_s.map(|done| format!(", done after {}", seconds(done)));
            let text = format!(
                "{}, {} % of the bytes{}",
                client.name,
                percent(client.share),
                done.unwrap_or_default()
            );
            canvas.paragraph(Style::Red, INDENT, "straggler: ", &text);
        }
        for client in clients {
            if let Some(why) = &client.lost {
                canvas.paragraph(Style::Red, INDENT, "lost: ", &format!("{} ({why})", client.name));
            }
        }
    }
}

fn summary(clients: &[ClientResult]) -> String {
    let shares = match clients {
        few if few.len() <= NAMED_MAX => {
            let shares = few.iter().map(|it| format!("{} {} %", it.name, percent(it.share)));
            shares.collect::<Vec<_>>().join(", ")
        }
        many => {
            let (least, greatest) = range(many.iter().map(|client| client.share));
            format!("{} of {} to {} % each", many.len(), percent(least), percent(greatest))
        }
    };
    if clients.len() == 1 {
        return shares;
    }
    let (_, spread) = range(clients.iter().map(|client| client.start_offset_ms));
    let (_, error) = range(clients.iter().map(|client| client.clock_error_ms));
    // Without an error nobody has compared the clocks: fio does not say when a host began.
    let started = (error > 0.0).then(|| {
        format!(
            "; started within {} (+- {})",
            number::duration(spread * 1000.0),
            number::duration(error * 1000.0)
        )
    });
    let (first, _) = range(clients.iter().filter_map(|client| client.first_done_s));
    let (_, last) = range(clients.iter().filter_map(|client| client.last_done_s));
    let done = (last > 0.0).then(|| format!("; first done {}, last done {}", seconds(first), seconds(last)));
    format!("{shares}{}{}", started.unwrap_or_default(), done.unwrap_or_default())
}

/// A share in percent, with a decimal where whole percents would all look alike.
fn percent(share: f64) -> String {
    if share < 0.0995 { format!("{:.1}", share * 100.0) } else { number::percent(share) }
}

fn seconds(value: f64) -> String {
    number::duration(value * 1e6)
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, greatest) = values
        .fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| (least.min(value), greatest.max(value)));
    (if least.is_finite() { least } else { 0.0 }, greatest)
}

/// The curves of all step tests.
pub(super) fn steps(canvas: &mut Canvas, record: &Record) {
    for half in [Half::Raw, Half::Paced] {
        let curves = || {
            record.routes.iter().flat_map(|route| route.curves(half).into_iter().map(move |it| (route, it)))
        };
        let mut told: Vec<&str> = Vec::new();
        for (_, curve) in curves() {
            if told.contains(&curve.series) {
                continue;
            }
            told.push(curve.series);
            canvas.end_line();
            let unit = match curve.unit {
                Unit::Clients => "clients",
                Unit::Depth => "depth",
            };
            let paced = if half == Half::Paced { ", paced" } else { "" };
            canvas.paragraph(Style::Bold, 0, "", &format!("steps of {} by {unit}{paced}", curve.series));
            for (route, same) in curves().filter(|(_, other)| other.series == curve.series) {
                let shows_iops = shows_iops(record, &same);
                canvas.paragraph(
                    Style::Plain,
                    INDENT,
                    &format!("{}: ", route.name),
                    &line(&same, shows_iops),
                );
            }
        }
    }
}

fn shows_iops(record: &Record, curve: &Curve<'_>) -> bool {
    let name = curve.points.first().map(|point| point.workload.name.as_str());
    let shape = record.experiment.workloads.iter().find(|shape| Some(shape.name.as_str()) == name);
    shape.is_some_and(|shape| shape.block_bytes <= crate::view::SMALL_BLOCK_BYTES_MAX)
}

/// `1: 21.0 kIOPS; 2: 42.1 (+21.1 each); 4: 61.0 (+9.50 each); knee at 2 clients`.
fn line(curve: &Curve<'_>, shows_iops: bool) -> String {
    let unit = if shows_iops { " kIOPS" } else { " GB/s" };
    let mut parts: Vec<String> = Vec::new();
    for point in &curve.points {
        // All steps have the same blocks, so operations gain as the speed does.
        let scale = match shows_iops {
            true if point.gbytes_per_s > 0.0 => point.iops / 1000.0 / point.gbytes_per_s,
            _ => 1.0,
        };
        let speed = number::plain(point.gbytes_per_s * scale);
        let sign = if point.gain < 0.0 { "" } else { "+" };
        let gain = format!(" ({sign}{} each)", number::plain(point.gain * scale));
        let (unit, gain) = if parts.is_empty() { (unit, "") } else { ("", gain.as_str()) };
        parts.push(format!("{}: {speed}{unit}{gain}", point.units));
    }
    let knee = curve.knee.and_then(|knee| curve.points.get(knee));
    parts.push(match (knee, curve.unit) {
        (Some(point), Unit::Clients) if point.units == 1 => "knee at 1 client".to_owned(),
        (Some(point), Unit::Clients) => format!("knee at {} clients", point.units),
        (Some(point), Unit::Depth) => format!("knee at depth {}", point.units),
        (None, _) if curve.points.len() < 2 => "one step has no knee".to_owned(),
        (None, _) => "the knee is not reached".to_owned(),
    });
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Cell, Repeat, Route, Shape, Step, Workload};

    fn step(clients: u32, iops: f64) -> Workload {
        let repeats = vec![Repeat { gbytes_per_s: iops * 4096.0 / 1e9, ..Repeat::default() }];
        let client = |index: u32| ClientResult {
            name: format!("vm{index}"),
            share: if index == 0 { 0.07 } else { 0.93 / f64::from(clients.max(2) - 1) },
            start_offset_ms: 0.4,
            clock_error_ms: 0.05,
            last_done_s: Some(1.0),
            straggler: clients > 1 && index == 0,
            lost: (index == 3).then(|| "the connection ended".to_owned()),
            ..ClientResult::default()
        };
        Workload {
            name: format!("read x{clients}"),
            step: Some(Step { series: "read".into(), clients, depth: 1, added: None }),
            read: Some(Cell { repeats, iops, ..Cell::default() }),
            clients: (0..clients).map(client).collect(),
            ..Workload::default()
        }
    }

    fn table(clients: [u32; 3], iops: [f64; 3]) -> String {
        let workloads: Vec<Workload> =
            clients.into_iter().zip(iops).map(|(of, iops)| step(of, iops)).collect();
        let mut record = Record::default();
        record.experiment.workloads = workloads
            .iter()
            .map(|it| Shape { name: it.name.clone(), block_bytes: 4096, ..Shape::default() })
            .collect();
        record.routes = vec![Route { name: "tcp".into(), workloads, ..Route::default() }];
        crate::terminal::render(&record, 200)
    }

    #[test]
    fn steps_show_their_gains_and_the_knee() {
        let text = table([1, 2, 4], [21_000.0, 42_000.0, 61_000.0]);
        assert!(text.contains("steps of read by clients\n"), "{text}");
        let line = "tcp: 1: 21.0 kIOPS; 2: 42.0 (+21.0 each); 4: 61.0 (+9.50 each); knee at 2 clients";
        assert!(text.contains(line), "{text}");
        let text = table([1, 2, 4], [21_000.0, 42_000.0, 84_000.0]);
        assert!(text.contains("the knee is not reached"), "{text}");
        let text = table([1, 2, 4], [21_000.0, 20_000.0, 0.0]);
        assert!(text.contains("2: 20.0 (-1.00 each)") && text.contains("knee at 1 client"), "{text}");
    }

    #[test]
    fn starts_that_nobody_has_compared_are_not_shown() {
        let client = |name: &str| ClientResult {
            name: name.to_owned(),
            share: 0.5,
            first_done_s: Some(1.0),
            last_done_s: Some(2.0),
            ..ClientResult::default()
        };
        let text = summary(&[client("h1"), client("h2")]);
        assert_eq!(text, "h1 50 %, h2 50 %; first done 1.00 s, last done 2.00 s");
    }

    #[test]
    fn stragglers_and_lost_clients_are_named() {
        let text = table([1, 4, 50], [1000.0; 3]);
        assert!(
            text.contains("tcp clients: vm0 7.0 %, vm1 31 %, vm2 31 %, vm3 31 %; started within 400 us"),
            "{text}"
        );
        assert!(text.contains("straggler: vm0, 7.0 % of the bytes, done after 1.00 s"), "{text}");
        assert!(text.contains("lost: vm3 (the connection ended)"), "{text}");
        assert!(text.contains("tcp clients: 50 of 1.9 to 7.0 % each"), "{text}");
    }
}
