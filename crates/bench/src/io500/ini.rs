//! The settings of io500: those of the user, with the directories and the time of this run.

use std::fmt::Write as _;
use std::path::Path;

use super::SECONDS_VALID;

/// Settings that this program makes.
const OWN: [(&str, &str); 5] = [
    ("global", "datadir"),
    ("global", "resultdir"),
    ("global", "timestamp-datadir"),
    ("global", "timestamp-resultdir"),
    ("debug", "stonewall-time"),
];

/// The text of the ini file. io500 refuses a section that stands there twice, so the sections of
/// the user are completed.
///
/// # Errors
/// The line of the user's text that cannot be used, and why.
pub(super) fn write(user: &str, data: &Path, results: &Path, seconds: u32) -> Result<String, String> {
    let text = |path: &Path| {
        let text = path.to_str().filter(|text| !text.contains(['\n', ';', '#']));
        text.map(str::to_owned).ok_or_else(|| format!("{} cannot stand in an ini file", path.display()))
    };
    let mut sections: Vec<(String, Vec<String>)> = vec![(
        "global".into(),
        vec![
            format!("datadir = {}", text(data)?),
            format!("resultdir = {}", text(results)?),
            "timestamp-datadir = FALSE".into(),
            "timestamp-resultdir = FALSE".into(),
        ],
    )];
    if seconds != SECONDS_VALID {
        sections.push(("debug".into(), vec![format!("stonewall-time = {seconds}")]));
    }
    let mut section = "global".to_owned();
    for (number, line) in user.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_owned();
            continue;
        }
        let Some((key, _)) = line.split_once('=') else {
            return Err(format!("line {}: {line:?} is neither [section] nor name = value", number + 1));
        };
        let key = key.trim();
        if OWN.iter().any(|(of, name)| *of == section && name.eq_ignore_ascii_case(key)) {
            return Err(format!(
                "line {}: {key} is set by this program; --io500-seconds is the stonewall-time",
                number + 1
            ));
        }
        match sections.iter_mut().find(|(name, _)| *name == section) {
            Some((_, lines)) => lines.push(line.to_owned()),
            None => sections.push((section.clone(), vec![line.to_owned()])),
        }
    }
    let mut out = String::new();
    for (name, lines) in sections {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "[{name}]\n{}\n", lines.join("\n"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_sections_are_completed_and_none_stands_there_twice() {
        let user = "# sizes\n[ior-easy]\nblockSize = 1g\n[global]\nverbosity = 2\n[debug]\npause-dir = x\n";
        let text = write(user, Path::new("/mnt/d"), Path::new("/r"), 5).unwrap();
        assert_eq!(
            text,
            "[global]\ndatadir = /mnt/d\nresultdir = /r\ntimestamp-datadir = FALSE\n\
             timestamp-resultdir = FALSE\nverbosity = 2\n\n[debug]\nstonewall-time = 5\npause-dir = x\n\n\
             [ior-easy]\nblockSize = 1g\n\n"
        );
        let valid = write("", Path::new("/d"), Path::new("/r"), SECONDS_VALID).unwrap();
        assert!(!valid.contains("[debug]"), "io500's own time is that of a valid run");
    }

    #[test]
    fn what_this_program_sets_and_what_is_no_setting_is_refused_with_its_line() {
        let refused = |user: &str| write(user, Path::new("/d"), Path::new("/r"), 5).unwrap_err();
        assert!(refused("\n[global]\ndatadir = /x").starts_with("line 3: datadir"));
        assert!(refused("[debug]\nstonewall-time = 1").contains("--io500-seconds"));
        assert!(refused("[ior-easy]\nblockSize 1g").starts_with("line 2"));
        assert!(write("", Path::new("/a;b"), Path::new("/r"), 5).unwrap_err().contains("/a;b"));
    }
}
