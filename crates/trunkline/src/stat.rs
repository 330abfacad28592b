//! `trunkline stat`: shows the attributes of a file, or the properties of its file system.

use crate::attributes::{self, exact_time_text, mode_text, type_name};
use crate::error::Error;
use crate::remote::{LOCATION_HELP, Location, MountArgs};
use crate::{names, output};
use clap::Args;
use fs::{Attributes, FileHandle, FileKind, FileSystemInfo, Limits, Space, TransferSizes};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Show the attributes of files of an NFS server, or of its file system.
#[derive(Debug, Args)]
#[command(
    long_about = format!("Show the attributes of files of an NFS server, or of its file system.\n\n{LOCATION_HELP}"),
    after_help = EXAMPLES
)]
pub struct StatArgs {
    /// The places to show: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    #[command(flatten)]
    mount: MountArgs,
    /// Show the file system instead: space and objects, transfer sizes, limits of names and links.
    #[arg(long)]
    fs: bool,
    /// Follow symbolic links.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print a JSON object for each place, one per line.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline stat nas:/data/disk.img\n  \
    trunkline stat --fs nas:/data\n  \
    trunkline stat --json nas:/data/disk.img | jq .size_bytes";

/// Shows each place.
pub fn run(args: &StatArgs) -> Result<ExitCode, Error> {
    for (number, location) in args.places.iter().enumerate() {
        let location = Location::open(location, &args.mount.joined())?;
        let cannot = location.cannot("examine");
        let (trail, attributes) =
            location.mount.resolve_trail(&location.path, args.dereference || args.fs).map_err(&cannot)?;
        let handle = trail.last().copied().unwrap_or_else(|| location.mount.root());
        let (text, object) = if args.fs {
            let space = location.mount.space().map_err(&cannot)?;
            let limits = location.mount.limits(handle).map_err(&cannot)?;
            let system = FileSystem { fsid: attributes.fsid, space, info: *location.mount.info(), limits };
            (system.text(&location), system.json())
        } else {
            let target = (attributes.kind == FileKind::Symlink)
                .then(|| location.mount.read_link(handle).map_err(&cannot))
                .transpose()?;
            (
                file_text(&location, handle, &attributes, target.as_deref()),
                file_json(&attributes, target.as_deref()),
            )
        };
        if args.json {
            let mut whole = Map::new();
            whole.insert("place".to_owned(), json!(location.name));
            whole.insert("export".to_owned(), json!(location.mount.name()));
            whole.extend(object);
            output::print(&format!("{}\n", Value::Object(whole)))?;
        } else {
            let gap = if number == 0 { "" } else { "\n" };
            output::print(&format!("{gap}{text}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{name:<14}{value}\n")).collect()
}

fn file_text(location: &Location, handle: FileHandle, of: &Attributes, target: Option<&[u8]>) -> String {
    let mut rows = vec![
        ("place", location.name.clone()),
        ("export", location.mount.name()),
        ("type", type_name(of.kind).to_owned()),
        ("mode", format!("{:04o} {}", of.mode & 0o7777, mode_text(of.kind, of.mode))),
        ("owner", format!("{} group {}", of.uid, of.gid)),
        ("size", format!("{} bytes, {} used", of.size, of.used)),
        ("links", of.nlink.to_string()),
        ("file", format!("{} of file system {:#x}", of.fileid, of.fsid)),
    ];
    if matches!(of.kind, FileKind::BlockDevice | FileKind::CharacterDevice) {
        rows.push(("device", format!("major {} minor {}", of.rdev.major, of.rdev.minor)));
    }
    if let Some(target) = target {
        rows.push(("points to", names::escaped(target)));
    }
    rows.push(("accessed", exact_time_text(of.atime)));
    rows.push(("modified", exact_time_text(of.mtime)));
    rows.push(("changed", exact_time_text(of.ctime)));
    rows.push(("handle", handle.to_string()));
    lines(&rows)
}

fn file_json(attributes: &Attributes, target: Option<&[u8]>) -> Map<String, Value> {
    let mut object = Map::new();
    if let Some(target) = target {
        names::put(&mut object, "target", target);
    }
    attributes::put(&mut object, attributes);
    object
}

/// The properties of a file system, as reported by the server.
struct FileSystem {
    fsid: u64,
    space: Space,
    info: FileSystemInfo,
    limits: Limits,
}

impl FileSystem {
    fn text(&self, location: &Location) -> String {
        let Self { fsid, space, info, limits } = self;
        let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        let delta = info.time_delta.as_secs_f64();
        lines(&[
            ("place", location.name.clone()),
            ("export", location.mount.name()),
            ("file system", format!("{fsid:#x}")),
            (
                "space",
                format!(
                    "{}, {} free, {} for you",
                    gib(space.total_bytes),
                    gib(space.free_bytes),
                    gib(space.available_bytes)
                ),
            ),
            (
                "files",
                format!(
                    "{}, {} free, {} for you",
                    space.total_files, space.free_files, space.available_files
                ),
            ),
            ("READ", transfer(info.read)),
            ("WRITE", transfer(info.write)),
            ("READDIR", format!("{} bytes preferred", info.directory_preferred)),
            ("largest file", format!("{} bytes", info.file_bytes_max)),
            ("time steps", format!("{delta} s")),
            (
                "supports",
                format!(
                    "hard links {}, symbolic links {}, setting times {}, same limits everywhere {}",
                    yes(info.has_links),
                    yes(info.has_symlinks),
                    yes(info.can_set_time),
                    yes(info.is_homogeneous),
                ),
            ),
            (
                "names",
                format!(
                    "up to {} bytes, longer ones refused {}, case ignored {}, case kept {}",
                    limits.name_bytes_max,
                    yes(limits.no_truncation),
                    yes(limits.case_insensitive),
                    yes(limits.case_preserving)
                ),
            ),
            ("hard links", format!("up to {} of a file", limits.links_max)),
            ("chown", format!("for root only {}", yes(limits.chown_restricted))),
        ])
    }

    fn json(&self) -> Map<String, Value> {
        let Self { fsid, space, info, limits } = self;
        let value = json!({
            "fsid": fsid,
            "total_bytes": space.total_bytes,
            "free_bytes": space.free_bytes,
            "available_bytes": space.available_bytes,
            "total_files": space.total_files,
            "free_files": space.free_files,
            "available_files": space.available_files,
            "read_max_bytes": info.read.max,
            "read_preferred_bytes": info.read.preferred,
            "read_multiple_bytes": info.read.multiple,
            "write_max_bytes": info.write.max,
            "write_preferred_bytes": info.write.preferred,
            "write_multiple_bytes": info.write.multiple,
            "directory_preferred_bytes": info.directory_preferred,
            "file_max_bytes": info.file_bytes_max,
            "time_delta_ns": u64::try_from(info.time_delta.as_nanos()).unwrap_or(u64::MAX),
            "hard_links": info.has_links,
            "symbolic_links": info.has_symlinks,
            "can_set_time": info.can_set_time,
            "homogeneous": info.is_homogeneous,
            "links_max": limits.links_max,
            "name_max_bytes": limits.name_bytes_max,
            "no_truncation": limits.no_truncation,
            "chown_restricted": limits.chown_restricted,
            "case_insensitive": limits.case_insensitive,
            "case_preserving": limits.case_preserving,
        });
        if let Value::Object(object) = value { object } else { Map::new() }
    }
}

fn transfer(TransferSizes { max, preferred, multiple }: TransferSizes) -> String {
    format!("up to {max} bytes, {preferred} preferred, in multiples of {multiple}")
}
