//! What every system contributes: files, and steps that say in which order they are used.

use crate::Artifact;

/// The part of a runbook that is for one system.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// The heading in the index.
    pub(crate) title: String,
    /// The machine that has the files.
    pub(crate) machine: String,
    /// What to know before the first step; each a sentence or two.
    pub(crate) notes: Vec<String>,
    /// The steps in their order.
    pub(crate) steps: Vec<Step>,
    /// The files.
    pub(crate) files: Vec<Artifact>,
}

/// A step.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// What the step does.
    pub(crate) title: String,
    /// The machine on which it runs.
    pub(crate) machine: String,
    /// How it is run: a command between backticks, or a sentence.
    pub(crate) run: String,
    /// What shows whether it has succeeded.
    pub(crate) verify: String,
    /// What takes it back.
    pub(crate) undo: String,
}

impl Step {
    pub(crate) fn new(title: &str, machine: &str, run: &str, verify: &str, undo: &str) -> Self {
        let [title, machine, run, verify, undo] = [title, machine, run, verify, undo].map(str::to_owned);
        Self { title, machine, run, verify, undo }
    }

    /// A step whose script has the three verbs `do`, `verify` and `undo`.
    pub(crate) fn script(title: &str, machine: &str, script: &str) -> Self {
        let with = |verb: &str| format!("`{script} {verb}`");
        Self::new(title, machine, &with("do"), &with("verify"), &with("undo"))
    }
}

/// A file that is read.
pub(crate) fn text(path: impl Into<String>, text: String) -> Artifact {
    Artifact { path: path.into(), mode: 0o644, text: one_newline(text) }
}

/// A file that is run.
pub(crate) fn program(path: impl Into<String>, text: String) -> Artifact {
    Artifact { path: path.into(), mode: 0o755, text: one_newline(text) }
}

/// The text of a template, which has everything that it names.
pub(crate) fn render(template: &impl askama::Template) -> String {
    template.render().expect("a template renders into memory")
}

/// Ends a text with one newline.
fn one_newline(mut text: String) -> String {
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
