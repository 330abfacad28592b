//! Rules for documents: links have a target, and the architecture names every decision.

use crate::workspace::{self, File};
use std::path::Path;

/// All violations in the documents.
pub(super) fn findings(documents: &[File]) -> Vec<String> {
    let root = workspace::root();
    let mut found: Vec<_> = documents.iter().flat_map(|file| broken_links(&root, file)).collect();
    found.extend(unlisted_decisions(documents));
    found
}

fn broken_links(root: &Path, file: &File) -> Vec<String> {
    let place = root.join(&file.path);
    let place = place.parent().unwrap_or(root);
    links(&file.text)
        .filter(|(_, target)| !place.join(target).exists())
        .map(|(line, target)| format!("{}:{line}: the link to {target} leads nowhere", file.path))
        .collect()
}

/// The line and target of every link to a file of the project; code blocks have no links.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !fence && !in_code
    });
    prose.flat_map(|(number, line)| {
        let targets =
            line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
        targets
            .filter_map(|target| target.split('#').next())
            .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
            .map(move |target| (number + 1, target))
    })
}

fn unlisted_decisions(documents: &[File]) -> Vec<String> {
    let architecture = documents.iter().find(|file| file.path == "ARCHITECTURE.md");
    let listed = architecture.map_or("", |file| file.text.as_str());
    let decisions = documents.iter().filter(|file| file.path.starts_with("docs/decisions/"));
    decisions
        .filter(|file| !listed.contains(&file.path))
        .map(|file| {
            format!("ARCHITECTURE.md: list the decision {} with a line on what it decides", file.path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "a [b](c.md#d) [e](https://f) [g](#h)\n```\n[i](j)\n```\n[k](l/m.md)\n";
        assert_eq!(links(text).collect::<Vec<_>>(), [(1, "c.md"), (5, "l/m.md")]);
    }

    #[test]
    fn a_decision_that_the_architecture_leaves_out_is_found() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let documents = [
            file("ARCHITECTURE.md", "docs/decisions/0001-a.md"),
            file("docs/decisions/0001-a.md", ""),
            file("docs/decisions/0002-b.md", ""),
        ];
        let found = unlisted_decisions(&documents);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("0002-b.md"));
    }
}
