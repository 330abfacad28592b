//! `cargo xtask package`: makes a Debian package, target/debian/trunkline_VERSION_ARCH.deb.
//!
//! cargo-deb makes the package as crates/trunkline/Cargo.toml says (`[package.metadata.deb]`). This
//! command installs cargo-deb if it is missing, and prepares target/package: the stripped program,
//! the man pages and completions that the program itself writes, and the changelog.

use crate::error::{Error, Result};
use crate::workspace::{cargo, root};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of cargo-deb, so that the same sources make the same package.
const CARGO_DEB: &str = "3.8.0";
/// Where cargo-deb is installed, from the root.
const TOOLS: &str = "target/tools";
/// What crates/trunkline/Cargo.toml packs, from the root.
const STAGE: &str = "target/package";
/// The Debian revision that cargo-deb gives by default.
const REVISION: u32 = 1;

/// How the program is built.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The profile of the build. With dev the package is made sooner, for trials of the packaging.
    #[arg(long, value_name = "PROFILE", default_value = "release")]
    profile: String,
}

/// Builds, prepares and packs. The last line of the output is the path of the package.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let tool = cargo_deb()?;
    let program = build(&options.profile)?;
    let stage = root().join(STAGE);
    // What an earlier version of the program wrote must not stay.
    let _ = fs::remove_dir_all(&stage);
    fs::create_dir_all(&stage).map_err(|source| Error::Make { directory: stage.clone(), source })?;
    let stripped = stage.join("trunkline");
    succeed(Command::new("strip").arg("-o").args([&stripped, &program]))?;
    succeed(Command::new(&stripped).arg("generate").arg(stage.join("share")))?;
    write(&stage.join("changelog"), &changelog()?)?;
    let manifest = root().join("crates/trunkline/Cargo.toml");
    let mut pack = Command::new(tool);
    // The program is built and stripped already.
    pack.args(["--no-build", "--no-strip", "--compress-system", "--manifest-path"]).arg(manifest);
    succeed(pack.current_dir(root()))?;
    Ok(true)
}

/// The path of cargo-deb, which is installed if it is missing.
fn cargo_deb() -> Result<PathBuf> {
    let tools = root().join(TOOLS);
    let program = tools.join("bin/cargo-deb");
    let version = Command::new(&program).arg("--version").stderr(Stdio::null()).output();
    let is_there = version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(CARGO_DEB));
    if !is_there {
        let mut install = cargo();
        // Without optimisation it is built sooner. xz, another process, does the work that takes
        // long.
        install.args(["install", "--locked", "--debug", "--no-default-features", "--force", "--root"]);
        install.arg(&tools).arg(format!("cargo-deb@{CARGO_DEB}"));
        succeed(&mut install)?;
    }
    Ok(program)
}

/// Builds the program and returns its path.
fn build(profile: &str) -> Result<PathBuf> {
    succeed(cargo().args(["build", "--locked", "--package", "trunkline", "--profile", profile]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let directory = if profile == "dev" { "debug" } else { profile };
    Ok(root().join(target).join(directory).join("trunkline"))
}

/// Debian's changelog with one entry, which names the upstream changelog. The date is that of the
/// last commit, so that the same commit makes the same file.
fn changelog() -> Result<String> {
    let manifest = root().join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|source| Error::Read { file: manifest, source })?;
    let manifest: toml::Table = text.parse().unwrap_or_default();
    let version = manifest.get("workspace").and_then(|all| all.get("package")?.get("version")?.as_str());
    let version = version.ok_or_else(|| Error::Metadata("no workspace.package.version".to_owned()))?;
    let git = ["log", "-1", "--format=%cD"];
    let date = output("git", &git).or_else(|_| output("date", &["--rfc-email"]))?;
    Ok(entry(version, date.trim()))
}

fn entry(version: &str, date: &str) -> String {
    format!(
        "trunkline ({version}-{REVISION}) unstable; urgency=medium\n\n  \
         * /usr/share/doc/trunkline/changelog.gz says what changed.\n\n \
         -- The Trunkline authors <trunkline@example.org>  {date}\n"
    )
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|source| Error::Make { directory: file.to_owned(), source })
}

/// Runs a program, which prints by itself.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|source| Error::Run { program: name(command), source })?;
    if status.success() { Ok(()) } else { Err(Error::Failed(name(command))) }
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(root()).stderr(Stdio::null()).output();
    let output = output.map_err(|source| Error::Run { program: program.to_owned(), source })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(Error::Failed(program.to_owned())) }
}

/// The program of a command and its first argument.
fn name(command: &Command) -> String {
    let words = [Some(command.get_program()), command.get_args().next()];
    words.into_iter().flatten().map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_has_the_form_of_debian() {
        let entry = entry("1.2.3", "Tue, 24 Nov 2026 10:00:00 +0000");
        let lines: Vec<&str> = entry.lines().collect();
        assert_eq!(lines[0], "trunkline (1.2.3-1) unstable; urgency=medium");
        assert!(lines[2].starts_with("  * "), "{entry}");
        assert!(lines[4].starts_with(" -- ") && lines[4].ends_with(">  Tue, 24 Nov 2026 10:00:00 +0000"));
    }

    #[test]
    fn the_maintainer_of_the_changelog_is_that_of_the_package() {
        let manifest = fs::read_to_string(root().join("crates/trunkline/Cargo.toml")).expect("a manifest");
        let line =
            manifest.lines().find_map(|line| line.strip_prefix("maintainer = ")).expect("a maintainer");
        assert!(entry("1", "").contains(line.trim_matches('"')), "{line}");
    }
}
