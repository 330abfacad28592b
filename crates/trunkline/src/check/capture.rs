//! Makes the captures of this host, reads them from a directory, and saves them.

use super::program;
use crate::error::Error;
use ::check::{CAPTURES, Capture, Captured, Cluster, Evidence, How, planned_accounts, tree_line};
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// No capture is larger; this keeps a wrong file out of memory.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The capture of the accounts, of which only the planned ones are kept.
const ACCOUNTS: &str = "passwd.txt";

/// The name of a capture's command or files for people.
pub(super) fn source(capture: &Capture) -> String {
    match capture.how {
        How::Command(words) => words.join(" "),
        How::File(path) => path.to_owned(),
        How::Tree(forms) => format!("grep -r . {}", forms.join(" ")),
        How::OnArray(command) => command.to_owned(),
    }
}

/// Captures what this host shows. All at once: a program may have to wait for a device that hangs.
/// Accounts are looked at only for a client of a planned cluster.
pub(super) fn of_this_host(planned: Option<&Cluster>) -> Evidence {
    let captured = std::thread::scope(|scope| {
        let threads: Vec<_> = CAPTURES
            .iter()
            .map(|capture| (capture.name, scope.spawn(move || one_of_this_host(capture, planned))))
            .collect();
        // A capture without a result is one of another host, or of a thread that panicked.
        let found = threads.into_iter().filter_map(|(name, thread)| Some((name, thread.join().ok()??)));
        found.collect()
    });
    Evidence(captured)
}

fn one_of_this_host(capture: &Capture, planned: Option<&Cluster>) -> Option<Captured> {
    let text = match capture.how {
        How::Command(words) if capture.name == ACCOUNTS => match planned {
            Some(cluster) => command(words).map(|text| planned_accounts(&text, cluster)),
            None => Err("looked at only with --plan, on a client of a PowerScale cluster".to_owned()),
        },
        How::Command(words) => command(words),
        How::File(path) => read_file(Path::new(path)),
        How::Tree(forms) => tree(forms),
        How::OnArray(_) => return None,
    };
    // What shows a value of many small files is the file, which each finding names.
    let source = match capture.how {
        How::Tree(forms) => directory_of(forms).to_owned(),
        _ => source(capture),
    };
    Some(Captured { source, text })
}

/// The output of a command. `multipath` would load device mapper, so it runs only where that is in
/// use; without it there is nothing that it could show.
fn command(words: &[&str]) -> Result<String, String> {
    if words.first() == Some(&"multipath") && !Path::new("/sys/module/dm_multipath").exists() {
        return Err("the module dm_multipath is not loaded".to_owned());
    }
    program::run(words).and_then(|output| match output.succeeded {
        true => Ok(output.stdout),
        false => Err(first_line(&output.stderr, words)),
    })
}

fn first_line(stderr: &str, words: &[&str]) -> String {
    let line = stderr.lines().find(|line| !line.trim().is_empty());
    line.map_or_else(|| format!("{} fails", words.join(" ")), str::to_owned)
}

fn read_file(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let opened = fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    opened.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The values of all files of these forms.
fn tree(forms: &[&str]) -> Result<String, String> {
    let mut text = String::new();
    for form in forms {
        for path in expand(form) {
            // A file may be gone by now, or refuse to be read while its device is down.
            if let Ok(value) = read_file(&path) {
                let value = value.replace('\n', " ");
                text.push_str(&tree_line(&path.to_string_lossy(), &value));
            }
        }
    }
    if text.is_empty() { Err("nothing there".to_owned()) } else { Ok(text) }
}

/// What stands before the first name of forms that may be any.
fn directory_of<'a>(forms: &[&'a str]) -> &'a str {
    let form = forms.first().copied().unwrap_or_default();
    let before = form.split_once('*').map_or(form, |(before, _)| before);
    before.rsplit_once('/').map_or(before, |(directory, _)| directory)
}

/// The paths of a form, in order. A `*` stands for the rest of one name.
fn expand(form: &str) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/")];
    for name in form.split('/').filter(|name| !name.is_empty()) {
        paths = match name.split_once('*') {
            None => paths.into_iter().map(|path| path.join(name)).collect(),
            Some((before, after)) => paths.iter().flat_map(|path| matching(path, before, after)).collect(),
        };
    }
    paths.retain(|path| path.exists());
    paths
}

fn matching(directory: &Path, before: &str, after: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let fits = |name: &str| name.starts_with(before) && name.ends_with(after);
    let named = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(fits));
    let mut found: Vec<_> = named.map(|entry| entry.path()).collect();
    found.sort_unstable();
    found
}

/// Reads captures from a directory.
pub(super) fn read(directory: &Path) -> Result<Evidence, Error> {
    let mut evidence = Evidence::default();
    let entries = fs::read_dir(directory);
    let entries = entries.map_err(|cause| Error::Read { file: directory.display().to_string(), cause })?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let capture = CAPTURES.iter().find(|capture| name.to_str() == Some(capture.name));
        let Some(capture) = capture else { continue };
        let path = entry.path();
        let text = read_file(&path).map_err(|cause| Error::Refused {
            sentence: "a capture cannot be read".to_owned(),
            cause,
            advice: format!("another directory than {}", directory.display()),
        })?;
        evidence.0.insert(capture.name, Captured { source: path.display().to_string(), text: Ok(text) });
    }
    if evidence.0.is_empty() {
        return Err(Error::Refused {
            sentence: format!("{} has no captures", directory.display()),
            cause: "none of its files has the name of a capture".to_owned(),
            advice: "trunkline check --captures    lists the names".to_owned(),
        });
    }
    Ok(evidence)
}

/// Saves captures in a new directory.
pub(super) fn save(evidence: &Evidence, directory: &Path) -> Result<(), Error> {
    let wrap = |path: &Path| {
        let file = path.display().to_string();
        move |cause| Error::Write { file, cause }
    };
    // What a host shows is nobody's but the user's.
    fs::DirBuilder::new().mode(0o700).create(directory).map_err(wrap(directory))?;
    for (name, captured) in &evidence.0 {
        let path = directory.join(name);
        // What shows nothing is kept too: that there is no device is a fact.
        fs::write(&path, captured.text.as_deref().unwrap_or_default()).map_err(wrap(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_captures_is_the_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("host7");
        save(&Evidence::default(), &directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o7777, 0o700);
        assert!(save(&Evidence::default(), &directory).is_err(), "it is there already");
    }

    #[test]
    fn accounts_are_looked_at_only_for_a_planned_cluster() {
        let capture = CAPTURES.iter().find(|capture| capture.name == ACCOUNTS).unwrap();
        let captured = one_of_this_host(capture, None).unwrap();
        assert!(captured.text.unwrap_err().contains("--plan"));
        let planned = Cluster {
            name: "nas".to_owned(),
            pool: String::new(),
            zone: String::new(),
            nodes: Vec::new(),
            export: String::new(),
            clients: Vec::new(),
            user: ("root".to_owned(), 0),
        };
        let text = one_of_this_host(capture, Some(&planned)).unwrap().text.unwrap();
        assert!(text.contains("\nroot:0\n") && !text.contains('/'), "{text}");
    }

    #[test]
    fn forms_stand_for_all_paths_that_exist() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["a1/x", "a2/x", "b1/x", "a3"] {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "one\ntwo\n").unwrap();
        }
        let at = |name: &str| format!("{}/{name}", directory.path().display());
        let (form, missing) = (at("a*/x"), at("*/y"));
        assert_eq!(tree(&[&form]).unwrap(), format!("{}:one two\n{}:one two\n", at("a1/x"), at("a2/x")));
        assert_eq!(tree(&[&missing]), Err("nothing there".to_owned()));
        assert_eq!(directory_of(&["/sys/devices/node*/x", "/sys/y"]), "/sys/devices");
    }
}
