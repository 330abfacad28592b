//! `cargo xtask bench`: builds and runs the acceptance benchmark.
//!
//! Builds the programs to measure, and the load through libnfs if a C compiler and the headers are
//! installed, then runs the program of crates/acceptance. What this machine lacks is noted in the
//! record.

use crate::error::{Error, Result};
use crate::workspace;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The options of the benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure only the table, within three minutes once everything is built.
    #[arg(long)]
    quick: bool,
    /// Also measure the server that this shell command starts. The server must serve $EXPORT by
    /// NFS version 3 on port $PORT of 127.0.0.1, and MOUNT on port $MOUNT_PORT, until it is
    /// terminated. nfs-ganesha is measured if it is installed.
    #[arg(long, value_name = "NAME=COMMAND", value_parser = peer)]
    peer: Vec<String>,
    /// Measure only this row, by its name in the record; may be given several times.
    #[arg(long, value_name = "ROW")]
    row: Vec<String>,
    /// End after this many minutes, with as many repetitions as fitted.
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    minutes: Option<f64>,
    /// Write the record to this file [default: a new file in docs/results].
    #[arg(long, value_name = "FILE.json")]
    record: Option<PathBuf>,
}

fn peer(text: &str) -> std::result::Result<String, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.trim().is_empty() && !command.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("write NAME=COMMAND, as in my-server='exec my-server --port $PORT'".to_owned()),
    }
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| (0.1..=600.0).contains(minutes));
    minutes.ok_or_else(|| "write a number of minutes, 0.1 to 600".to_owned())
}

/// Builds and measures. Returns false if either failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = workspace::root();
    if !build(&root)? {
        return Ok(false);
    }
    let made = target(&root).join("release");
    let mut command = Command::new(made.join("acceptance"));
    command.current_dir(&root).arg("--program").arg(made.join("trunkline")).args(arguments(options));
    match build_libnfs_load(&root, &made) {
        Ok(program) => command.arg("--libnfs").arg(program),
        Err(reason) => command.args(["--note", &format!("no pairing with libnfs: {reason}")]),
    };
    match ganesha(&root) {
        Ok(peer) => command.args(["--peer", &peer]),
        Err(reason) => command.args(["--note", &format!("nfs-ganesha was left out: {reason}")]),
    };
    succeeds(&mut command)
}

/// Returns the arguments for the program.
fn arguments(options: &Options) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut typed = String::from("cargo xtask bench");
    if options.quick {
        arguments.push("--quick".into());
        typed.push_str(" --quick");
    }
    for row in &options.row {
        arguments.extend(["--row".into(), row.clone()]);
        typed.push_str(&format!(" --row {row}"));
    }
    if let Some(minutes) = options.minutes {
        arguments.extend(["--minutes".into(), minutes.to_string()]);
        typed.push_str(&format!(" --minutes {minutes}"));
    }
    for peer in &options.peer {
        arguments.extend(["--peer".into(), peer.clone()]);
        // The record must contain no path of this machine.
        typed.push_str(&format!(" --peer {}=...", peer.split('=').next().unwrap_or_default()));
    }
    match &options.record {
        Some(record) => arguments.extend(["--record".into(), record.display().to_string()]),
        None => arguments.extend(["--into".into(), "docs/results".into()]),
    }
    arguments.extend(["--command".into(), typed]);
    arguments
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|source| Error::Run { program, source })?;
    Ok(status.success())
}

fn build(root: &Path) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages = ["--package", "trunkline", "--package", "acceptance"];
    let programs = ["--bin", "trunkline", "--bin", "acceptance"];
    succeeds(Command::new(cargo).current_dir(root).args(["build", "--release"]).args(packages).args(programs))
}

/// Builds the load through libnfs. The error says why that is impossible.
fn build_libnfs_load(root: &Path, made: &Path) -> std::result::Result<PathBuf, String> {
    let program = made.join("load-libnfs");
    let built = Command::new("cc")
        .arg("-O2")
        .arg(root.join("crates/trunkline/tests/peers/load.c"))
        .args(["-lnfs", "-lpthread", "-o"])
        .arg(&program)
        .stderr(Stdio::null())
        .status();
    match built {
        Ok(status) if status.success() => Ok(program),
        Ok(_) => Err("its load does not compile (Debian package libnfs-dev)".into()),
        Err(error) => Err(format!("no C compiler (cc): {error}")),
    }
}

/// Returns nfs-ganesha as a peer. The error says why it cannot be measured.
fn ganesha(root: &Path) -> std::result::Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).any(|directory| directory.join("ganesha.nfsd").exists());
    if !installed {
        return Err("it is not installed (Debian packages nfs-ganesha, nfs-ganesha-vfs, rpcbind)".into());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root, for a memory file system of its own".into());
    }
    let script = root.join("docs/results/ganesha.sh").display().to_string().replace('\'', "'\\''");
    Ok(format!("nfs-ganesha=exec '{script}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn what_is_typed_is_passed_on_and_noted_without_paths() {
        let typed = ["bench", "--quick", "--row", "read-1m-1", "--peer", "mine=exec /home/me/mine $PORT"];
        let passed = arguments(&Line::try_parse_from(typed).unwrap().options);
        let command = passed.last().unwrap();
        assert_eq!(command, "cargo xtask bench --quick --row read-1m-1 --peer mine=...");
        assert!(
            passed.windows(2).any(|two| two == ["--peer", "mine=exec /home/me/mine $PORT"]),
            "{passed:?}"
        );
        assert!(passed.windows(2).any(|two| two == ["--into", "docs/results"]), "{passed:?}");
    }

    #[test]
    fn a_peer_without_a_command_and_minutes_without_a_number_are_refused() {
        for wrong in [["bench", "--peer", "mine"], ["bench", "--minutes", "-1"], ["bench", "--minutes", "x"]]
        {
            assert!(Line::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
