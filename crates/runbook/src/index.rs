//! The index of a runbook: which step runs where and in which order, how it is verified and undone,
//! and which files there are.

use crate::model::Model;
use crate::section::{Section, render, text};
use crate::{Artifact, INDEX, MARK};
use askama::Template;

/// Makes the index.
pub(crate) fn index(model: &Model, sections: &[Section]) -> Artifact {
    let files: Vec<_> = sections.iter().flat_map(|section| &section.files).collect();
    text(INDEX, render(&Page { mark: MARK, name: &model.name, sections, files: &files }))
}

#[derive(Template)]
#[template(path = "index", escape = "none")]
struct Page<'a> {
    mark: &'a str,
    name: &'a str,
    sections: &'a [Section],
    files: &'a [&'a Artifact],
}
