//! `trunkline block create`: makes the files of volumes, and the configuration file that serves
//! them. What it made is removed again if it does not succeed.

mod layout;

use super::serve::address::Address;
use super::serve::config::{self, Allow};
use crate::error::Error;
use crate::output;
use clap::Args;
use layout::Planned;
use serde::Serialize;
use server::config::size;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use target::{Node, Nqn};

/// Blocks of volumes have at most this many bytes; a size is a multiple of it.
const BLOCK_BYTES: u64 = 4096;
/// As many as a server serves.
const VOLUMES_MAX: usize = 1024;

/// Make the files of volumes, and a configuration file for `trunkline block serve -c`.
///
/// The volumes are those of a layout (`trunkline plan layout --json`), with their names, sizes and
/// owners, or of --volume. Each gets a file in DIR, or is on a device that --device names. Nothing
/// that exists is overwritten; if something fails, what was made is removed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CreateArgs {
    /// The layout, as `trunkline plan layout --json` prints it; `-` is standard input.
    #[arg(value_name = "LAYOUT.json", required_unless_present = "volume")]
    layout: Option<PathBuf>,
    /// A volume and its size, `vm=100GiB`. May be repeated.
    #[arg(long, value_name = "NAME=SIZE", value_parser = named_size)]
    volume: Vec<(String, u64)>,
    /// Make each volume of the layout this large: a small model of an array.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes, requires = "layout")]
    size: Option<u64>,
    /// Directory of the files, which get the names of the volumes and `.img`.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Put the volume of this name on a block device, such as a logical volume or an array of md,
    /// which is at least as large. May be repeated.
    #[arg(long, value_name = "NAME=DEVICE", value_parser = named_device)]
    device: Vec<(String, PathBuf)>,
    /// Set the space of the files aside now. Without it a file takes space as it is written, and
    /// writes fail when the file system is full.
    #[arg(long)]
    allocate: bool,
    /// The configuration file to write.
    #[arg(short, long, value_name = "FILE.toml")]
    config: PathBuf,
    /// Address on which hosts connect; those of node A and of node B in turn. May be repeated.
    #[arg(long, value_name = "[rdma:]ADDR:PORT")]
    listen: Vec<Address>,
    /// A host that sees the volumes, by its NQN, or `any`. May be repeated.
    #[arg(long, value_name = "HOSTNQN|any")]
    allow: Vec<Allow>,
    /// Name of the subsystem [default: a random one, made at the first start].
    #[arg(long, value_name = "NQN", value_parser = |text: &str| Nqn::new(text))]
    nqn: Option<Nqn>,
    /// State directory of the server [default: that of `trunkline block serve`].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON: the configuration file, and the volumes with their files and sizes in bytes.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline block create --volume vm=100GiB --volume db=1TiB --dir /srv -c block.toml --allow any\n  \
    trunkline plan layout --scheme raid6 --drives 20 --drive-tb 7.68 --json |\n      \
        trunkline block create - --size 10GiB --dir /srv -c block.toml \\\n      \
        --listen 10.0.0.1:4420 --listen 10.0.1.1:4420\n  \
    trunkline block create --volume db=1TiB --device db=/dev/vg/db -c block.toml --allow any";

/// `NAME=SIZE`.
fn named_size(text: &str) -> Result<(String, u64), String> {
    let (name, size) = text.split_once('=').ok_or("not NAME=SIZE, such as vm=100GiB")?;
    Ok((name.to_owned(), size::parse_bytes(size).map_err(|error| error.to_string())?))
}

/// `NAME=DEVICE`.
fn named_device(text: &str) -> Result<(String, PathBuf), String> {
    let (name, device) = text.split_once('=').ok_or("not NAME=DEVICE, such as vm=/dev/vg/vm")?;
    Ok((name.to_owned(), device.into()))
}

/// A volume, and where it is.
#[derive(Debug, Serialize)]
struct Placed {
    name: String,
    source: PathBuf,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<char>,
    /// Whether a file is to be made.
    created: bool,
}

/// Makes the volumes.
pub fn run(args: &CreateArgs) -> Result<ExitCode, Error> {
    let planned = args.planned()?;
    let placed = args.place(planned)?;
    let text = args.text(&placed)?;
    let mut made = Made::default();
    for one in placed.iter().filter(|one| one.created) {
        made.file(&one.source, one.bytes, args.allocate)?;
    }
    made.configuration(&args.config, &text)?;
    let printed = if args.json { args.json(&placed)? } else { args.told(&placed) };
    output::print(&printed)?;
    // Kept only now: if nobody was told, it is as if nothing had happened.
    made.paths.clear();
    Ok(ExitCode::SUCCESS)
}

fn refused(sentence: impl Into<String>, cause: impl Into<String>, advice: impl Into<String>) -> Error {
    Error::Refused { sentence: sentence.into(), cause: cause.into(), advice: advice.into() }
}

impl CreateArgs {
    /// The volumes that are wanted, after a check of what was said of each.
    fn planned(&self) -> Result<Vec<Planned>, Error> {
        let mut planned = match &self.layout {
            Some(layout) => layout::read(layout, self.size)?,
            None => Vec::new(),
        };
        let more = self.volume.iter();
        planned.extend(more.map(|(name, bytes)| Planned { name: name.clone(), bytes: *bytes, owner: None }));
        let sentence = "the volumes cannot be made";
        if planned.is_empty() || planned.len() > VOLUMES_MAX {
            let cause = format!("there are {}, and a server serves 1 to {VOLUMES_MAX}", planned.len());
            return Err(refused(sentence, cause, "another layout, or --volume NAME=SIZE"));
        }
        let mut names = BTreeSet::new();
        for Planned { name, bytes, .. } in &planned {
            let is_name = !name.is_empty()
                && name.len() <= 200
                && !name.starts_with('.')
                && name.chars().all(|one| !one.is_control() && one != '/');
            if !is_name {
                let cause = format!("{name:?} is no name of a file");
                return Err(refused(sentence, cause, "letters, digits, - and _, such as vm1"));
            }
            if !names.insert(name) {
                let cause = format!("two volumes are called {name}");
                return Err(refused(sentence, cause, "a name of its own for each volume"));
            }
            if *bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) || i64::try_from(*bytes).is_err() {
                let cause = format!("{name} has {bytes} bytes, which are not whole blocks of {BLOCK_BYTES}");
                return Err(refused(sentence, cause, "a size in MiB or GiB"));
            }
        }
        if let Some((name, _)) = self.device.iter().find(|(name, _)| !names.contains(name)) {
            let cause = format!("--device names {name}, and no volume is called so");
            let all = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(refused(sentence, cause, format!("one of {all}")));
        }
        Ok(planned)
    }

    /// Says where each volume is.
    fn place(&self, planned: Vec<Planned>) -> Result<Vec<Placed>, Error> {
        let mut used: BTreeSet<&Path> = BTreeSet::new();
        let place = |Planned { name, bytes, owner }: Planned| {
            let sentence = format!("the volume {name} has no place");
            if let Some((_, device)) = self.device.iter().find(|(of, _)| *of == name) {
                if !used.insert(device) {
                    let cause = format!("{} is another volume already", device.display());
                    return Err(refused(sentence, cause, "a device of its own for each volume"));
                }
                let bytes = device_bytes(device, bytes)
                    .map_err(|(cause, advice)| refused(sentence, cause, advice))?;
                let source = std::path::absolute(device).unwrap_or_else(|_| device.clone());
                return Ok(Placed { name, source, bytes, owner, created: false });
            }
            let Some(dir) = &self.dir else {
                let cause = "neither --dir nor a --device for it was given";
                let advice = format!("--dir DIR for files, or --device {name}=/dev/...");
                return Err(refused(sentence, cause, advice));
            };
            if !dir.is_dir() {
                let cause = format!("{} is no directory", dir.display());
                return Err(refused(sentence, cause, "mkdir, or another --dir"));
            }
            let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
            Ok(Placed { source: dir.join(format!("{name}.img")), name, bytes, owner, created: true })
        };
        planned.into_iter().map(place).collect()
    }

    /// The configuration file.
    fn text(&self, placed: &[Placed]) -> Result<String, Error> {
        if self.listen.len() < 2 && placed.iter().any(|one| one.owner == Some('B')) {
            return Err(refused(
                "the nodes of the layout cannot both serve",
                "node B owns volumes and has no address",
                "two addresses: the first --listen is node A's, and the second one B's",
            ));
        }
        let file = Document {
            nqn: self.nqn.as_ref().map(ToString::to_string),
            listen: self.listen.iter().map(Address::to_string).collect(),
            allow: self.allow.iter().map(Allow::to_string).collect(),
            state: self.state.as_deref(),
            volume: placed.iter().map(|one| Section { source: &one.source, owner: one.owner }).collect(),
        };
        let unusable = |cause: String| {
            refused(
                format!("{} cannot be written", self.config.display()),
                cause,
                "paths that are valid UTF-8",
            )
        };
        let body = toml::to_string(&file).map_err(|error| unusable(error.to_string()))?;
        let mut text =
            String::from("# Volumes for `trunkline block serve -c`; docs/BLOCK.md describes this file.\n");
        if self.listen.is_empty() {
            text.push_str("# Without listen it serves at 127.0.0.1:4420 only.\n");
        }
        if self.allow.is_empty() {
            text.push_str("# Without hosts in allow, nobody may connect.\n");
        }
        text.push_str(&body);
        config::parse(&text).map_err(unusable)?;
        Ok(text)
    }

    fn told(&self, placed: &[Placed]) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for Placed { name, source, bytes, owner, created } in placed {
            let owner = owner.map_or_else(String::new, |owner| format!(", node {owner}"));
            let how = if *created { "made" } else { "on" };
            let _ = writeln!(text, "{name}: {how} {}, {}{owner}", source.display(), size::in_words(*bytes));
        }
        let config = self.config.display();
        let _ = writeln!(text, "wrote {config}");
        if self.allow.is_empty() {
            let _ = writeln!(text, "no host may connect yet: name some in `allow` of {config}");
        }
        let _ = writeln!(text, "to serve them: trunkline block serve -c {config}");
        text
    }

    fn json(&self, placed: &[Placed]) -> Result<String, Error> {
        #[derive(Serialize)]
        struct Told<'a> {
            config: &'a Path,
            volumes: &'a [Placed],
        }
        let told = Told { config: &self.config, volumes: placed };
        let text = serde_json::to_string_pretty(&told)
            .map_err(|error| refused("the result is no JSON", error.to_string(), "paths that are UTF-8"))?;
        Ok(text + "\n")
    }
}

/// The configuration file, as it is written.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    nqn: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listen: Vec<String>,
    allow: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a Path>,
    volume: Vec<Section<'a>>,
}

#[derive(Serialize)]
struct Section<'a> {
    source: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<char>,
}

/// The size of a device, which is that of its volume. It must be there, and as large as planned.
/// What is on it, the server checks.
fn device_bytes(device: &Path, planned: u64) -> Result<u64, (String, String)> {
    let advice = || "lsblk, and the name below /dev/disk/by-id or /dev/VG".to_owned();
    let facts = device.metadata().map_err(|error| (format!("{}: {error}", device.display()), advice()))?;
    if !facts.file_type().is_block_device() {
        return Err((format!("{} is no block device", device.display()), advice()));
    }
    let found = File::open(device).and_then(|mut file| io::Seek::seek(&mut file, io::SeekFrom::End(0)));
    let found = found.map_err(|error| (format!("{}: {error}", device.display()), advice()))?;
    if found < planned {
        let cause = format!(
            "{} has {}, and {} were planned",
            device.display(),
            size::in_words(found),
            size::in_words(planned)
        );
        return Err((cause, "a larger device, or a smaller volume".to_owned()));
    }
    Ok(found)
}

/// What was made; removed when this is dropped.
#[derive(Debug, Default)]
struct Made {
    paths: Vec<PathBuf>,
}

impl Made {
    fn file(&mut self, path: &Path, bytes: u64, allocate: bool) -> Result<(), Error> {
        let fill = |file: &File| {
            if allocate {
                let flags = rustix::fs::FallocateFlags::empty();
                rustix::fs::fallocate(file, flags, 0, bytes).map_err(io::Error::from)
            } else {
                file.set_len(bytes)
            }
        };
        // The content of a volume is for its hosts.
        self.make(path, 0o600, fill)
    }

    fn configuration(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        self.make(path, 0o666, |mut file| file.write_all(text.as_bytes()))
    }

    /// Makes a file that was not there, and has it written.
    fn make(
        &mut self,
        path: &Path,
        mode: u32,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), Error> {
        let sentence = format!("cannot make {}", path.display());
        let file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(|error| {
                let advice = if error.kind() == io::ErrorKind::AlreadyExists {
                    "remove it if nobody needs it, or take another name: nothing is overwritten"
                } else {
                    "a directory in which you may make files"
                };
                refused(sentence.clone(), error.to_string(), advice)
            })?;
        self.paths.push(path.to_owned());
        fill(&file).and_then(|()| file.sync_all()).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "more space (df), or smaller volumes"
                }
                io::ErrorKind::FileTooLarge => "a file system with larger files, such as XFS",
                io::ErrorKind::Unsupported => "without --allocate: this file system sets no space aside",
                _ => "another directory",
            };
            refused(sentence, error.to_string(), advice)
        })
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.paths {
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove what was made");
            }
        }
    }
}

/// A node by its letter, as layouts have it.
fn node(letter: char) -> Option<Node> {
    match letter {
        'A' => Some(Node::A),
        'B' => Some(Node::B),
        _ => None,
    }
}
