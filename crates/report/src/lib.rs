//! Presents a record: as a table in a terminal, a self-contained HTML page, Markdown, or
//! comma-separated values for a spreadsheet.
//!
//! The crate only reads [`record::Record`] and measures nothing. Text from a record is untrusted:
//! it is escaped for HTML, Markdown and spreadsheets, and cannot control a terminal.

#![forbid(unsafe_code)]

mod chart;
mod comparison;
mod condition;
mod csv;
mod explain;
mod heat;
mod junit;
mod markdown;
mod number;
mod page;
mod plot;
mod published;
mod route_class;
#[cfg(test)]
mod sample;
mod steps;
pub mod terminal;
mod view;

pub use condition::{
    Basis, Checked, Condition, JudgeError, Judgement, Outcome, ParseError, RecordChecks, check,
};
pub use csv::csv;
pub use explain::explain;
pub use junit::junit;
pub use markdown::{markdown, markdown_with};
pub use page::{Additions, PAGE_MARK, html, html_with};
pub use published::{Published, published, published_list};
