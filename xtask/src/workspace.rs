//! The workspace: its files, and its crates as reported by cargo.

use crate::error::{Error, Result};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories whose content is generated.
const MADE: [&str; 4] = ["target", ".git", "trunkline-results", "corpus"];

/// The directory with the workspace's Cargo.toml.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// A text file of the project.
#[derive(Debug)]
pub(crate) struct File {
    /// The path from the root, with slashes.
    pub(crate) path: String,
    /// The content of the file.
    pub(crate) text: String,
}

/// All files with this extension, sorted by path.
pub(crate) fn files(extension: &str) -> Result<Vec<File>> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, extension, &mut found)?;
    found.sort();
    let read = |file: PathBuf| {
        let text = fs::read(&file).map_err(|source| Error::Read { file: file.clone(), source })?;
        let path = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().into_owned();
        Ok(File { path, text: String::from_utf8_lossy(&text).into_owned() })
    };
    found.into_iter().map(read).collect()
}

fn walk(place: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |source| Error::Read { file: place.to_owned(), source };
    for entry in fs::read_dir(place).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let made = path.file_name().is_some_and(|name| MADE.iter().any(|made| name == *made));
        if path.is_dir() && !path.is_symlink() {
            if !made {
                walk(&path, extension, found)?;
            }
        } else if path.extension().is_some_and(|its| its == extension) {
            found.push(path);
        }
    }
    Ok(())
}

/// The part of `cargo metadata` that is used.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    /// The crates of the workspace.
    pub(crate) packages: Vec<Package>,
}

/// One crate.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// The name of the package.
    pub(crate) name: String,
    /// The dependencies in its Cargo.toml.
    pub(crate) dependencies: Vec<Dependency>,
    /// The targets of the crate.
    pub(crate) targets: Vec<Target>,
}

/// A dependency.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// The name of the package.
    pub(crate) name: String,
    /// Absent, `dev` or `build`.
    pub(crate) kind: Option<String>,
}

/// A library, binary or test program.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    /// The name of the target.
    pub(crate) name: String,
    /// `lib`, `bin`, `test` and so on.
    pub(crate) kind: Vec<String>,
    /// Whether a plain `cargo test` runs it.
    pub(crate) test: bool,
}

impl Package {
    /// Test programs that plain `cargo test` leaves out, because they need more than a compiler.
    pub(crate) fn suites(&self) -> impl Iterator<Item = &str> {
        let apart = |target: &&Target| !target.test && target.kind.iter().any(|kind| kind == "test");
        self.targets.iter().filter(apart).map(|target| target.name.as_str())
    }
}

/// Asks cargo what the workspace consists of.
pub(crate) fn metadata() -> Result<Metadata> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps", "--quiet"]);
    let output = command.output().map_err(|source| Error::Run { program: "cargo".to_owned(), source })?;
    if !output.status.success() {
        return Err(Error::Metadata(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| Error::Metadata(error.to_string()))
}

/// A command that runs the same cargo as the one that runs this program, in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
