//! Tests random operations on a mount and on a local directory: the results and the trees must be
//! equal.

use crate::fixture::mounted;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const STEPS: usize = 2500;
const NAMES: u64 = 12;
const DIRECTORIES: u64 = 3;
const FILE_BYTES_MAX: u64 = 300_000;

/// xorshift: the seed determines the whole run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// An operation; its names are relative to the tree.
#[derive(Debug)]
enum Step {
    Write { name: String, offset: u64, len: usize, byte: u8 },
    Append { name: String, len: usize, byte: u8 },
    Truncate { name: String, size: u64 },
    Read { name: String, offset: u64, len: usize },
    CreateNew(String),
    Remove(String),
    MakeDirectory(String),
    RemoveDirectory(String),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    Chmod(String, u32),
    Stat(String),
    List(String),
}

fn draw(random: &mut Random) -> Step {
    let mut name = || {
        let leaf = format!("n{}", random.below(NAMES));
        match random.below(DIRECTORIES + 1) {
            0 => leaf,
            directory => format!("n{directory}/{leaf}"),
        }
    };
    let (one, other) = (name(), name());
    let (offset, len) = (random.below(FILE_BYTES_MAX), random.below(40_000) as usize + 1);
    let byte = random.below(255) as u8 + 1;
    match random.below(20) {
        0..=3 => Step::Write { name: one, offset, len, byte },
        4 => Step::Append { name: one, len, byte },
        5 => Step::Truncate { name: one, size: offset },
        6..=8 => Step::Read { name: one, offset, len },
        9 => Step::CreateNew(one),
        10 => Step::Remove(one),
        11 | 12 => Step::MakeDirectory(format!("n{}", random.below(NAMES))),
        13 => Step::RemoveDirectory(one),
        14 | 15 => Step::Rename(one, other),
        16 => Step::Link(one, other),
        17 => Step::Symlink(one, other),
        18 => Step::Chmod(one, random.below(0o1000) as u32 | 0o600),
        _ if random.below(2) == 0 => Step::Stat(one),
        _ => Step::List(one),
    }
}

/// Runs a step in one tree, and returns its result.
fn act(tree: &Path, step: &Step) -> io::Result<Vec<u8>> {
    let at = |name: &str| tree.join(name);
    let nothing = |()| Vec::new();
    match step {
        Step::Write { name, offset, len, byte } => {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).open(at(name))?;
            file.write_all_at(&vec![*byte; *len], *offset).map(nothing)
        }
        Step::Append { name, len, byte } => {
            let mut file = OpenOptions::new().append(true).open(at(name))?;
            io::Write::write_all(&mut file, &vec![*byte; *len]).map(nothing)
        }
        Step::Truncate { name, size } => {
            OpenOptions::new().write(true).open(at(name))?.set_len(*size).map(nothing)
        }
        Step::Read { name, offset, len } => {
            let mut data = vec![0; *len];
            let count = File::open(at(name))?.read_at(&mut data, *offset)?;
            data.truncate(count);
            Ok(data)
        }
        Step::CreateNew(name) => File::create_new(at(name)).map(|_| Vec::new()),
        Step::Remove(name) => fs::remove_file(at(name)).map(nothing),
        Step::MakeDirectory(name) => fs::create_dir(at(name)).map(nothing),
        Step::RemoveDirectory(name) => fs::remove_dir(at(name)).map(nothing),
        Step::Rename(from, to) => fs::rename(at(from), at(to)).map(nothing),
        Step::Link(from, to) => fs::hard_link(at(from), at(to)).map(nothing),
        Step::Symlink(target, name) => symlink(target, at(name)).map(nothing),
        Step::Chmod(name, mode) => fs::set_permissions(at(name), Permissions::from_mode(*mode)).map(nothing),
        Step::Stat(name) => fs::symlink_metadata(at(name)).map(|seen| facts(&seen).into_bytes()),
        Step::List(name) => {
            let mut names: Vec<String> = fs::read_dir(at(name))?
                .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<_>>()?;
            names.sort();
            Ok(names.join("\n").into_bytes())
        }
    }
}

/// The attributes in which two trees agree. Sizes and link counts of directories depend on the file
/// system.
fn facts(seen: &fs::Metadata) -> String {
    let (size, links) = if seen.is_dir() { (0, 0) } else { (seen.len(), seen.nlink()) };
    format!("{:o} {size} {links} {} {}", seen.mode(), seen.uid(), seen.gid())
}

/// Everything in a tree: paths, attributes, contents.
fn whole(tree: &Path) -> Vec<(PathBuf, String, Vec<u8>)> {
    let (mut all, mut todo) = (Vec::new(), vec![tree.to_owned()]);
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let seen = fs::symlink_metadata(&path).unwrap();
            let data = match () {
                () if seen.is_symlink() => {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                }
                () if seen.is_file() => fs::read(&path).unwrap(),
                () => Vec::new(),
            };
            if seen.is_dir() {
                todo.push(path.clone());
            }
            all.push((path.strip_prefix(tree).unwrap().to_owned(), facts(&seen), data));
        }
    }
    all.sort();
    all
}

#[test]
fn random_operations_have_the_same_results_as_in_a_local_directory() {
    let (_server, mount) = mounted();
    let real = tempfile::tempdir().unwrap();
    let seed = std::env::var("TRUNKLINE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 0x5eed);
    println!("TRUNKLINE_SEED={seed}");
    let mut random = Random(seed);
    for number in 0..STEPS {
        let step = draw(&mut random);
        let (ours, theirs) = (act(&mount.directory, &step), act(real.path(), &step));
        let outcome = |outcome: &io::Result<Vec<u8>>| match outcome {
            Ok(data) => Ok(data.clone()),
            Err(error) => Err(error.raw_os_error()),
        };
        let (ours, theirs) = (outcome(&ours), outcome(&theirs));
        let brief = |outcome: &Result<Vec<u8>, Option<i32>>| match outcome {
            Ok(data) => format!("{} bytes, {:?}", data.len(), data.iter().take(40).collect::<Vec<_>>()),
            Err(errno) => format!("errno {errno:?}"),
        };
        assert!(
            ours == theirs,
            "TRUNKLINE_SEED={seed} step {number} {step:?}: {} here, {} there",
            brief(&ours),
            brief(&theirs)
        );
    }
    assert!(whole(&mount.directory) == whole(real.path()), "TRUNKLINE_SEED={seed}: the trees differ");
}
