//! HTML and Markdown from records.
