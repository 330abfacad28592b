//! The small drawings of the page, as numbers for inline SVG, without scripts or external images.

use record::Cell;

use crate::number;

/// The width of a bar's drawing. The height is in the template.
const BAR_WIDTH: f64 = 240.0;
/// More nodes than this cannot be told apart.
const COLUMNS_MAX: usize = 32;
const COLUMN_HEIGHT: f64 = 18.0;

/// A speed as a bar with its limit, its interval and its repeats.
pub(crate) struct Bar {
    pub(crate) value: String,
    pub(crate) limit: Option<String>,
    pub(crate) interval: [String; 2],
    pub(crate) repeats: Vec<String>,
    /// A description for screen readers.
    pub(crate) words: String,
}

impl Bar {
    /// The bar of a cell; `scale` GB/s have the full length.
    pub(crate) fn of(cell: &Cell, scale: f64) -> Self {
        let at = |value: f64| {
            if scale > 0.0 { format!("{:.1}", value / scale * BAR_WIDTH) } else { "0".to_owned() }
        };
        let [low, high] = cell.interval_95.map(number::fine);
        let limit = cell.limit_gbytes_per_s.map(|limit| format!(", limit {} GB/s", number::fine(limit)));
        Self {
            value: at(cell.gbytes_per_s),
            limit: cell.limit_gbytes_per_s.map(at),
            interval: cell.interval_95.map(at),
            repeats: cell.repeats.iter().map(|repeat| at(repeat.gbytes_per_s)).collect(),
            words: format!(
                "{} GB/s, 95 %: {low} to {high}{}",
                number::fine(cell.gbytes_per_s),
                limit.unwrap_or_default()
            ),
        }
    }

    /// The greatest value that the bar must show.
    pub(crate) fn reach(cell: &Cell) -> f64 {
        let [_, high] = cell.interval_95;
        let repeats = cell.repeats.iter().map(|repeat| repeat.gbytes_per_s);
        repeats
            .chain([cell.gbytes_per_s, high, cell.limit_gbytes_per_s.unwrap_or_default()])
            .fold(0.0, f64::max)
    }
}

/// One column of a drawing of shares.
pub(crate) struct Column {
    pub(crate) x: usize,
    pub(crate) y: String,
    pub(crate) height: String,
}

/// Shares as columns, the greatest with the full height. There are no columns for too many nodes or
/// for zero shares.
pub(crate) fn columns(shares: &[f64]) -> Vec<Column> {
    let greatest = shares.iter().copied().fold(0.0, f64::max);
    if shares.len() > COLUMNS_MAX || greatest <= 0.0 {
        return Vec::new();
    }
    let column = |(index, share): (usize, &f64)| {
        let height = (share / greatest * COLUMN_HEIGHT).max(1.0);
        Column { x: index * 8, y: format!("{:.1}", COLUMN_HEIGHT - height), height: format!("{height:.1}") }
    };
    shares.iter().enumerate().map(column).collect()
}
