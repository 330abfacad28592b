//! Presents a record: as a table in a terminal, a self-contained HTML page, Markdown, or
//! comma-separated values for a spreadsheet.
//!
//! The crate only reads [`record::Record`] and measures nothing. Text from a record is untrusted:
//! it is escaped for HTML, Markdown and spreadsheets, and cannot control a terminal.

#![forbid(unsafe_code)]

mod chart;
mod comparison;
mod csv;
mod explain;
mod markdown;
mod number;
mod page;
mod plot;
#[cfg(test)]
mod sample;
pub mod terminal;
mod view;

pub use csv::csv;
pub use explain::explain;
pub use markdown::markdown;
pub use page::{PAGE_MARK, html};
