//! What a person sees of a record: the table in a terminal, a self-contained HTML page, Markdown;
//! and comma-separated values for a spreadsheet.
//!
//! It reads [`record::Record`] alone and measures nothing. Text from a record is somebody else's:
//! it is escaped for HTML, Markdown and spreadsheets, and cannot move the cursor of a terminal.

#![forbid(unsafe_code)]

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
pub use page::html;
