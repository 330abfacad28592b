//! `trunkline status`: the mounts of this host, those that still wait for their server too.

use crate::error::Error;
use crate::mount::registry::{self, MountState, Phase};
use crate::table::lay_out;
use crate::{names, output};
use clap::Args;
use mount::ListedMount;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a mount that no process reports is asked whether it is dead.
const DEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Show the mounts of this host, and those that still wait for their server.
///
/// Up to four mounts are shown each with the options in effect, paths, calls and latencies; of more
/// there is only the table, and DIR shows one. Of other users' mounts only the source and the
/// directory are known. A mount that waits for its server (options bg and retry) is ended by
/// `trunkline umount DIR`, as any other mount.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    /// Only the mount on this directory, with the options in effect, its paths, calls and
    /// latencies.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print JSON: an array with one object for each mount.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline status\n  \
    trunkline status /mnt\n  \
    trunkline status --json | jq -r '.[] | select(.state != \"mounted\") | .directory'";

/// The mounts that are all shown whole.
const PAGES_MAX: usize = 4;

const HEAD: [&str; 6] = ["SOURCE", "DIR", "STATE", "PATHS UP", "PID", "OPTIONS"];

/// Prints the mounts. The status is 1 if there is none on the directory that was named.
pub fn run(args: &StatusArgs) -> Result<ExitCode, Error> {
    let mut states = all();
    if let Some(directory) = &args.directory {
        let place = mount::resolved_path(directory);
        states.retain(|state| state.directory == place || state.directory == *directory);
        if states.is_empty() {
            return Err(Error::Refused {
                sentence: format!("{} is not mounted by trunkline", directory.display()),
                cause: "no mount on that directory is known, and none waits for its server".to_owned(),
                advice: "trunkline status        to see all mounts".to_owned(),
            });
        }
    }
    if args.json {
        states.iter_mut().for_each(|state| state.details.clear());
        let text = serde_json::to_string_pretty(&states).unwrap_or_default();
        output::print(&format!("{text}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    if !states.is_empty() {
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(states.iter().map(row));
        lay_out(&mut text, &rows, HEAD.len());
    }
    for state in &states {
        if let Some(error) = &state.error {
            let directory = names::escaped(state.directory.as_os_str().as_bytes());
            let error = names::escaped(error.as_bytes());
            text.push_str(&format!("{directory}: waiting for {}: {error}\n", age(state.since)));
        }
    }
    match &args.directory {
        Some(_) => states.iter().for_each(|state| text.push_str(&page(state))),
        None => text.push_str(&pages(&states)),
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The pages of all mounts that report something, if these are few; else how to see one.
fn pages(states: &[MountState]) -> String {
    let reported: Vec<&MountState> = states.iter().filter(|state| !page(state).is_empty()).collect();
    if reported.len() > PAGES_MAX {
        return "\ntrunkline status DIR        shows one with the options in effect, paths and calls\n"
            .to_owned();
    }
    let titled = reported.into_iter().map(|state| {
        let [directory, source] = [state.directory.as_os_str().as_bytes(), state.source.as_bytes()];
        format!("\n{} on {}\n{}", names::escaped(source), names::escaped(directory), page(state))
    });
    titled.collect()
}

/// The options in effect, and what the mount has counted. Empty if its process reports nothing.
fn page(state: &MountState) -> String {
    let details = if state.details.is_empty() { String::new() } else { format!("\n{}", state.details) };
    in_effect(state) + &details
}

/// The mounts whose processes report them, then those that are only in the table of mounts.
fn all() -> Vec<MountState> {
    let mut states = registry::query_all();
    // Without proc(5), the reported ones are listed.
    for listed in mount::list_mounts().unwrap_or_default() {
        let is_it = |state: &MountState| state.state == Phase::Mounted && state.directory == listed.directory;
        if !states.iter().any(is_it) {
            states.push(unreported(listed));
        }
    }
    states
}

/// A mount that no process reports: its process was killed, or is another user's.
fn unreported(listed: ListedMount) -> MountState {
    let (source, directory) = (listed.source.clone(), listed.directory.clone());
    let (sender, receiver) = channel();
    // The process behind it may itself wait for a server.
    std::thread::spawn(move || {
        let _ = sender.send(listed.is_dead());
    });
    let is_dead = receiver.recv_timeout(DEAD_TIMEOUT).unwrap_or(false);
    MountState {
        source,
        directory,
        options: String::new(),
        in_effect: String::new(),
        without_effect: Vec::new(),
        pid: None,
        since: 0,
        state: if is_dead { Phase::Dead } else { Phase::Unknown },
        error: None,
        paths: Vec::new(),
        details: String::new(),
    }
}

fn row(state: &MountState) -> [String; 6] {
    let up = state.paths.iter().filter(|path| path.state == "up").count();
    let unused = state.paths.iter().filter(|path| path.state == "unused").count();
    let paths = match state.paths.len() {
        0 => "-".to_owned(),
        count => format!("{up} of {}", count - unused),
    };
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        names::escaped(state.source.as_bytes()),
        names::escaped(state.directory.as_os_str().as_bytes()),
        words(state.state).to_owned(),
        paths,
        or_dash(state.pid.map(|pid| pid.to_string()).unwrap_or_default()),
        or_dash(names::escaped(state.options.as_bytes())),
    ]
}

/// The options in effect, and those without effect, as lines.
fn in_effect(state: &MountState) -> String {
    let ignored = state.without_effect.join(",");
    let lines = [("in effect:", &state.in_effect), ("without effect:", &ignored)];
    let told = lines.iter().filter(|(_, options)| !options.is_empty());
    told.map(|(what, options)| format!("{what} {}\n", names::escaped(options.as_bytes()))).collect()
}

const fn words(phase: Phase) -> &'static str {
    match phase {
        Phase::Mounted => "mounted",
        Phase::Trying => "trying",
        Phase::Dead => "dead",
        Phase::Unknown => "unknown",
    }
}

fn age(since: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match now.saturating_sub(since) {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(number: usize) -> MountState {
        MountState {
            source: "nas:/data".to_owned(),
            directory: format!("/mnt/{number}").into(),
            options: String::new(),
            in_effect: "rw,vers=3".to_owned(),
            without_effect: Vec::new(),
            pid: Some(7),
            since: 0,
            state: Phase::Mounted,
            error: None,
            paths: Vec::new(),
            details: "path state\n".to_owned(),
        }
    }

    #[test]
    fn a_few_mounts_are_shown_whole_and_of_many_it_is_said_how_to_see_one() {
        let mut states: Vec<MountState> = (0..PAGES_MAX).map(mounted).collect();
        // Another user's mount has no page, and does not count.
        states.push(MountState { in_effect: String::new(), details: String::new(), ..mounted(9) });
        let text = pages(&states);
        let page = |number| format!("\nnas:/data on /mnt/{number}\nin effect: rw,vers=3\n\npath state\n");
        assert_eq!(text, (0..PAGES_MAX).map(page).collect::<String>());
        states.push(mounted(5));
        let text = pages(&states);
        assert!(text.contains("trunkline status DIR") && !text.contains("in effect:"), "{text}");
        assert_eq!(pages(&states[PAGES_MAX..=PAGES_MAX]), "");
    }

    #[test]
    fn what_another_user_mounted_cannot_move_the_cursor() {
        let state = MountState {
            source: "nas:/\u{1b}[2J".to_owned(),
            directory: "/mnt/a\nb".into(),
            options: "\r".to_owned(),
            in_effect: "\r".to_owned(),
            without_effect: vec!["\n".to_owned()],
            pid: Some(7),
            since: 0,
            state: Phase::Unknown,
            error: None,
            paths: Vec::new(),
            details: String::new(),
        };
        let row = row(&state);
        assert!(row.iter().flat_map(|cell| cell.chars()).all(|c| !c.is_control()), "{row:?}");
        let lines = in_effect(&state);
        assert_eq!(lines.matches('\n').count(), 2, "{lines:?}");
        assert!(lines.lines().all(|line| line.chars().all(|c| !c.is_control())), "{lines:?}");
    }
}
