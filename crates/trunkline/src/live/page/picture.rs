//! The picture of the paths: who is joined to whom, by what share, in which state.

use crate::figures;
use metrics::history::{NotUp, Range};
use metrics::{Dimension, History, Kind, Snapshot, Tally};

/// The time before the end over which shares are taken, in milliseconds.
const SHARE_MS: u64 = 5_000;
/// The most clients that are drawn.
const CLIENTS_MAX: usize = 12;
/// The height of a row, the widths of the boxes and of the whole.
const ROW: f64 = 44.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 610.0;
/// The width of the picture in the units of its shapes.
pub const WIDTH: f64 = 800.0;
/// The longest text in a box; the whole is beside it.
const TEXT_MAX: usize = 23;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Picture {
    /// Paths or clients.
    pub title: &'static str,
    /// The height in the units of the shapes.
    pub height: f64,
    /// Those on the left and on the right.
    pub boxes: Vec<NameBox>,
    /// What joins them.
    pub edges: Vec<Edge>,
}

/// A box with a name.
#[derive(Debug)]
pub struct NameBox {
    /// Where it is.
    pub x: f64,
    /// The upper edge.
    pub y: f64,
    /// How wide it is.
    pub width: f64,
    /// How high it is.
    pub height: f64,
    /// The name, shortened to fit.
    pub text: String,
    /// The whole name.
    pub name: String,
}

impl NameBox {
    /// The middle of the text.
    pub fn text_x(&self) -> f64 {
        self.x + self.width / 2.0
    }

    /// The line of the text.
    pub fn text_y(&self) -> f64 {
        self.y + self.height / 2.0 + 4.0
    }
}

/// A path, or what a client does on a node.
#[derive(Debug)]
pub struct Edge {
    /// Its line.
    pub d: String,
    /// How thick it is: by its share.
    pub width: f64,
    /// The middle.
    pub text_y: f64,
    /// The state of a path; of others, that they work.
    pub state: String,
    /// The whole name: who is joined to whom.
    pub name: String,
    /// What is written at the line.
    pub text: String,
    /// How long a path has been in its state; empty if that is not known.
    pub since: String,
    /// Calls that were moved off the path, since the start.
    pub moved_calls: Option<u64>,
}

/// What is drawn: names at the left and right, and what is between them.
struct Row {
    left: String,
    right: String,
    edge: Edge,
    share: f64,
}

/// The picture at the end of a time. `now` has the states of a mount's paths at this moment, if the
/// end is now; otherwise they are taken from the history.
pub fn picture(history: &History, range: Range, now: Option<&Snapshot>, snapshot: &Snapshot) -> Picture {
    let recent = Range { from_ms: range.until_ms.saturating_sub(SHARE_MS), ..range };
    match snapshot.process.kind {
        Kind::Serve => of_clients(history, recent),
        // Its clients are on other machines.
        Kind::Bench if snapshot.operations.dimensions().contains(&Dimension::Client) => {
            of_clients(history, recent)
        }
        Kind::Block => of_volumes(history, recent),
        Kind::Mount | Kind::Bench | Kind::Agent => of_paths(history, recent, now, snapshot),
    }
}

fn of_paths(history: &History, recent: Range, now: Option<&Snapshot>, snapshot: &Snapshot) -> Picture {
    let (operations, ms) = history.totals(recent, &[Dimension::Path], &[]);
    let total = operations.total();
    let by_path = |name: &str| {
        let found = operations.iter().find(|(key, _)| key.path.as_deref() == Some(name));
        found.map(|(_, tally)| tally.clone()).unwrap_or_default()
    };
    let past = history.path_states(recent.until_ms);
    let rows = snapshot.paths.iter().map(|path| {
        let tally = by_path(&path.name);
        let current = now.and_then(|now| now.paths.iter().find(|one| one.name == path.name));
        let state = match current {
            Some(current) => current.state.clone(),
            None => {
                past.iter().find(|(name, _)| **name == *path.name).map_or("unused", |one| one.1).to_owned()
            }
        };
        let share = tally.share_of(&total);
        let edge = Edge {
            text: format!("{state}, {}, {}", figures::percent(share), rate(&tally, ms)),
            since: since(history, recent, &path.name, &state, current.map(|path| path.since_ms)),
            moved_calls: current.map(|path| path.moved_calls),
            ..edge(path.name.clone(), state)
        };
        Row { left: snapshot.process.kind.name().to_owned(), right: path.node.clone(), edge, share }
    });
    lay_out("Paths", rows.collect())
}

/// How long a path has been in its state, or has not been up: a dead one is tried again and again.
/// The mount knows it now; of a time in the past the history may know the least only.
fn since(history: &History, recent: Range, name: &str, state: &str, since_ms: Option<u64>) -> String {
    let duration = |ms: u64| figures::duration(ms / 1000);
    match since_ms {
        Some(ms) => duration(ms),
        None if state == "up" => String::new(),
        None => match history.not_up(name, recent.until_ms) {
            Some(NotUp::For(ms)) => duration(ms),
            Some(NotUp::AtLeast(ms)) => format!("more than {}", duration(ms)),
            None => String::new(),
        },
    }
}

/// Which volume the hosts use. Commands are not counted by host.
fn of_volumes(history: &History, recent: Range) -> Picture {
    let (operations, ms) = history.totals(recent, &[Dimension::Export], &[]);
    let total = operations.total();
    let rows = operations.iter().map(|(key, tally)| {
        let volume = key.export.as_deref().unwrap_or("-");
        let share = tally.share_of(&total);
        let edge = Edge {
            text: format!("{}, {}", figures::percent(share), rate(tally, ms)),
            ..edge(volume.to_owned(), "up".to_owned())
        };
        Row { left: "hosts".to_owned(), right: volume.to_owned(), edge, share }
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows.truncate(CLIENTS_MAX);
    lay_out("Volumes", rows)
}

fn of_clients(history: &History, recent: Range) -> Picture {
    let (operations, ms) = history.totals(recent, &[Dimension::Client, Dimension::Node], &[]);
    let total = operations.total();
    let mut rows: Vec<_> = operations
        .iter()
        .map(|(key, tally)| {
            let (client, node) = (key.client.as_deref().unwrap_or("-"), key.node.as_deref().unwrap_or("-"));
            let share = tally.share_of(&total);
            let edge = Edge {
                text: format!("{}, {}", figures::percent(share), rate(tally, ms)),
                ..edge(format!("{client} to {node}"), "up".to_owned())
            };
            Row { left: client.to_owned(), right: node.to_owned(), edge, share }
        })
        .collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows.truncate(CLIENTS_MAX);
    // Those of one client stay together.
    rows.sort_by(|a, b| a.left.cmp(&b.left));
    lay_out("Clients and nodes", rows)
}

fn edge(name: String, state: String) -> Edge {
    Edge {
        d: String::new(),
        width: 0.0,
        text_y: 0.0,
        state,
        name,
        text: String::new(),
        since: String::new(),
        moved_calls: None,
    }
}

fn rate(tally: &Tally, ms: u64) -> String {
    let seconds = ms.max(1) as f64 / 1e3;
    let (operations, bytes) = (tally.count as f64 / seconds, tally.bytes() as f64 / seconds);
    format!("{} ops/s, {}", figures::number(operations), figures::bytes_per_s(bytes))
}

fn lay_out(title: &'static str, rows: Vec<Row>) -> Picture {
    let middle = |row: usize| (row as f64 + 0.5) * ROW;
    let mut picture = Picture { title, height: rows.len() as f64 * ROW, ..Picture::default() };
    let lefts = boxes(rows.iter().map(|row| row.left.as_str()), 0.0, LEFT);
    let rights = boxes(rows.iter().map(|row| row.right.as_str()), RIGHT, WIDTH - RIGHT);
    let centre = |boxes: &[NameBox], name: &str, y: f64| {
        let found = boxes.iter().find(|one| one.name == name);
        found.map_or(y, |one| y.clamp(one.y + 8.0, (one.y + one.height - 8.0).max(one.y + 8.0)))
    };
    for (row, number) in rows.into_iter().zip(0..) {
        let y = middle(number);
        let (from, to) = (centre(&lefts, &row.left, y), centre(&rights, &row.right, y));
        let (a, b) = (LEFT + 60.0, RIGHT - 60.0);
        picture.edges.push(Edge {
            d: format!("M{LEFT} {from:.1}C{a} {from:.1} {a} {y:.1} {a} {y:.1}H{b}C{b} {y:.1} {b} {to:.1} {RIGHT} {to:.1}"),
            width: 2.0 + row.share * 12.0,
            text_y: y - 4.0 - row.share * 6.0,
            ..row.edge
        });
    }
    picture.boxes = lefts.into_iter().chain(rights).collect();
    picture
}

/// A box for each name, as high as the rows that have it.
fn boxes<'a>(names: impl Iterator<Item = &'a str>, x: f64, width: f64) -> Vec<NameBox> {
    let mut boxes: Vec<NameBox> = Vec::new();
    for (name, row) in names.zip(0_u32..) {
        let (y, end) = (f64::from(row) * ROW + 4.0, f64::from(row + 1) * ROW - 4.0);
        match boxes.iter_mut().find(|one| one.name == name) {
            // Rows of one name that others lie between keep the box of the first.
            Some(same) if same.y + same.height + 8.0 >= y => same.height = end - same.y,
            Some(_) => {}
            None => {
                let text = shortened(name);
                boxes.push(NameBox { x, y, width, height: end - y, text, name: name.to_owned() });
            }
        }
    }
    boxes
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= TEXT_MAX {
        return name.to_owned();
    }
    name.chars().take(TEXT_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(left: &str, right: &str, share: f64) -> Row {
        Row {
            left: left.into(),
            right: right.into(),
            edge: edge(format!("{left} {right}"), "up".into()),
            share,
        }
    }

    #[test]
    fn paths_of_one_node_share_its_box() {
        let rows = vec![row("mount", "n1", 0.5), row("mount", "n1", 0.25), row("mount", "n2", 0.25)];
        let picture = lay_out("Paths", rows);
        let boxes: Vec<_> = picture.boxes.iter().map(|one| (one.name.as_str(), one.y, one.height)).collect();
        assert_eq!(boxes, [("mount", 4.0, 124.0), ("n1", 4.0, 80.0), ("n2", 92.0, 36.0)]);
        assert_eq!((picture.edges.len(), picture.height), (3, 132.0));
        assert!(picture.edges[0].width > picture.edges[1].width);
        assert!(lay_out("Paths", Vec::new()).edges.is_empty());
    }

    #[test]
    fn long_names_are_shortened_and_kept_whole_beside() {
        let name = "é".repeat(40);
        let picture = lay_out("Paths", vec![row(&name, "n", 1.0)]);
        assert_eq!(picture.boxes[0].text.chars().count(), TEXT_MAX);
        assert_eq!(picture.boxes[0].name, name);
    }
}
