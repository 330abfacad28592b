//! The project's own rules for files, each a function from files to findings. A finding is a line
//! with the place, the problem, and what to do.

mod markdown;
mod rust;

pub(crate) use rust::is_test_file;

use crate::error::Result;
use crate::workspace::{File, files};

/// All violations of a rule.
pub(crate) fn findings() -> Result<Vec<String>> {
    let (sources, documents) = (files("rs")?, files("md")?);
    let mut findings: Vec<_> = sources.iter().flat_map(rust::findings).collect();
    findings.extend(rust::missing_forbids(&sources));
    findings.extend(upward_uses(&sources));
    let manifests = files("toml")?;
    findings.extend(lints(&manifests));
    findings.extend(dependencies(&manifests, &documents));
    findings.extend(markdown::findings(&documents));
    Ok(findings)
}

/// Modules of the server that only these other modules may use, so that its modules depend
/// downwards only.
const SERVER_MODULES: [(&str, &[&str]); 4] = [
    ("runtime", &["server", "rpcbind", "takeover"]),
    ("dispatch", &["runtime", "server", "rpcbind"]),
    ("nfs3", &["dispatch", "mount"]),
    ("nfs4", &["dispatch"]),
];

/// Each use of a module of the server by a module below it.
fn upward_uses(sources: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in sources {
        let Some(path) = file.path.strip_prefix("crates/server/src/") else { continue };
        let user = path.split(['/', '.']).next().unwrap_or_default();
        for (used, users) in SERVER_MODULES {
            if user != used && !users.contains(&user) && file.text.contains(&format!("crate::{used}::")) {
                let path = &file.path;
                findings.push(format!(
                    "{path}: {user} is below {used}; move what they share down, or hand it in"
                ));
            }
        }
    }
    findings
}

/// Each crate of the workspace must inherit the workspace's lints, which do not apply to it
/// otherwise.
fn lints(manifests: &[File]) -> Vec<String> {
    let careless = manifests.iter().filter(|file| {
        let has = |heading| file.text.lines().any(|line| line == heading);
        let member = file.path.ends_with("Cargo.toml") && has("[package]") && !has("[workspace]");
        member && !file.text.contains("[lints]\nworkspace = true")
    });
    careless.map(|file| format!("{}: add `[lints]` with `workspace = true`", file.path)).collect()
}

/// Every external crate of the workspace must have a line in docs/DEPENDENCIES.md.
fn dependencies(manifests: &[File], documents: &[File]) -> Vec<String> {
    let text = |files: &[File], path: &str| {
        files.iter().find(|file| file.path == path).map(|file| file.text.clone()).unwrap_or_default()
    };
    let reasons = text(documents, "docs/DEPENDENCIES.md");
    let root: toml::Table = text(manifests, "Cargo.toml").parse().unwrap_or_default();
    let named = root.get("workspace").and_then(|workspace| workspace.get("dependencies")?.as_table());
    let others = named.into_iter().flatten().filter(|(_, asked)| asked.get("path").is_none());
    others
        .filter(|(name, _)| !reasons.contains(&format!("| `{name}` |")))
        .map(|(name, _)| format!("docs/DEPENDENCIES.md: say why {name} is here, and what else was weighed"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let text = "[workspace.dependencies]\nours = { path = \"a\" }\nknown = \"1\"\nnew = \"2\"\n";
        let manifests = [file("Cargo.toml", text)];
        let documents = [file("docs/DEPENDENCIES.md", "| `known` | why | what else |\n")];
        let found = dependencies(&manifests, &documents);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("why new is here"), "{found:?}");
    }

    #[test]
    fn a_module_of_the_server_that_names_one_above_it_is_found() {
        let file = |path: &str| File {
            path: format!("crates/server/src/{path}"),
            text: "use crate::runtime::Mailboxes;\n".to_owned(),
        };
        let files = ["reply_cache.rs", "nfs3/read.rs", "server.rs", "runtime/mailbox.rs"].map(file);
        let found = upward_uses(&files);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("reply_cache is below runtime"), "{found:?}");
    }

    #[test]
    fn a_member_without_the_lints_is_found_and_a_workspace_of_its_own_is_not() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let careless = file("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");
        let apart = file("fuzz/Cargo.toml", "[package]\nname = \"b\"\n[workspace]\n");
        assert_eq!(lints(&[careless, apart]).len(), 1);
    }
}
