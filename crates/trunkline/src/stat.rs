//! `trunkline stat`: everything that a server says of a file, or of the file system that it is in.

use crate::attributes::{self, exact_time_text, mode_text, type_name};
use crate::error::Error;
use crate::remote::{MountArgs, PLACES, Place};
use crate::{names, output};
use clap::Args;
use nfs3::proc::{fsinfo, fsstat, pathconf};
use nfs3::{Fattr3, FileHandle, FileType};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Show the attributes of files of an NFS server, or of its file system.
#[derive(Debug, Args)]
#[command(
    long_about = format!("Show the attributes of files of an NFS server, or of its file system.\n\n{PLACES}"),
    after_help = EXAMPLES
)]
pub struct StatArgs {
    /// Which files: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    #[command(flatten)]
    mount: MountArgs,
    /// The file system instead: space and objects, sizes of transfers, limits of names and links.
    #[arg(long)]
    fs: bool,
    /// Follow a symbolic link instead of showing it.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// A JSON object for each, on a line of its own.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline stat nas:/data/disk.img\n  \
    trunkline stat --fs nas:/data\n  \
    trunkline stat --json nas:/data/disk.img | jq .size_bytes";

/// Shows each place.
pub fn run(args: &StatArgs) -> Result<ExitCode, Error> {
    for (number, place) in args.places.iter().enumerate() {
        let place = Place::open(place, &args.mount.joined())?;
        let cannot = place.cannot("examine");
        let (trail, attributes) =
            place.mount.resolve_trail(&place.path, args.dereference || args.fs).map_err(&cannot)?;
        let handle = trail.last().copied().unwrap_or_else(|| place.mount.root());
        let (text, object) = if args.fs {
            let space = place.mount.space().map_err(&cannot)?;
            let limits = place.mount.limits(handle).map_err(&cannot)?;
            let system = FileSystem { fsid: attributes.fsid, space, info: *place.mount.info(), limits };
            (system.text(&place), system.json())
        } else {
            let target = (attributes.file_type == FileType::Symlink)
                .then(|| place.mount.read_link(handle).map_err(&cannot))
                .transpose()?;
            (
                file_text(&place, handle, &attributes, target.as_deref()),
                file_json(&attributes, target.as_deref()),
            )
        };
        if args.json {
            let mut whole = Map::new();
            whole.insert("place".to_owned(), json!(place.name));
            whole.insert("export".to_owned(), json!(place.mount.name()));
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

fn file_text(place: &Place, handle: FileHandle, of: &Fattr3, target: Option<&[u8]>) -> String {
    let hex: String = handle.as_slice().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut rows = vec![
        ("place", place.name.clone()),
        ("export", place.mount.name()),
        ("type", type_name(of.file_type).to_owned()),
        ("mode", format!("{:04o} {}", of.mode & 0o7777, mode_text(of.file_type, of.mode))),
        ("owner", format!("{} group {}", of.uid, of.gid)),
        ("size", format!("{} bytes, {} used", of.size, of.used)),
        ("links", of.nlink.to_string()),
        ("file", format!("{} of file system {:#x}", of.fileid, of.fsid)),
    ];
    if matches!(of.file_type, FileType::BlockDevice | FileType::CharacterDevice) {
        rows.push(("device", format!("major {} minor {}", of.rdev.major, of.rdev.minor)));
    }
    if let Some(target) = target {
        rows.push(("points to", names::escaped(target)));
    }
    rows.push(("accessed", exact_time_text(of.atime)));
    rows.push(("modified", exact_time_text(of.mtime)));
    rows.push(("changed", exact_time_text(of.ctime)));
    rows.push(("handle", hex));
    lines(&rows)
}

fn file_json(attributes: &Fattr3, target: Option<&[u8]>) -> Map<String, Value> {
    let mut object = Map::new();
    if let Some(target) = target {
        names::put(&mut object, "target", target);
    }
    attributes::put(&mut object, attributes);
    object
}

/// What FSSTAT, FSINFO and PATHCONF say.
struct FileSystem {
    fsid: u64,
    space: fsstat::Success,
    info: fsinfo::Success,
    limits: pathconf::Success,
}

impl FileSystem {
    fn text(&self, place: &Place) -> String {
        let Self { fsid, space, info, limits } = self;
        let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        let delta = f64::from(info.time_delta.seconds) + f64::from(info.time_delta.nanoseconds) / 1e9;
        lines(&[
            ("place", place.name.clone()),
            ("export", place.mount.name()),
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
            ("READ", transfer(info.read_max, info.read_preferred, info.read_multiple)),
            ("WRITE", transfer(info.write_max, info.write_preferred, info.write_multiple)),
            ("READDIR", format!("{} bytes preferred", info.directory_preferred)),
            ("largest file", format!("{} bytes", info.file_bytes_max)),
            ("time steps", format!("{delta} s")),
            (
                "supports",
                format!(
                    "hard links {}, symbolic links {}, setting times {}, same limits everywhere {}",
                    yes(info.properties & fsinfo::LINK != 0),
                    yes(info.properties & fsinfo::SYMLINK != 0),
                    yes(info.properties & fsinfo::CAN_SET_TIME != 0),
                    yes(info.properties & fsinfo::HOMOGENEOUS != 0),
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
            "read_max_bytes": info.read_max,
            "read_preferred_bytes": info.read_preferred,
            "read_multiple_bytes": info.read_multiple,
            "write_max_bytes": info.write_max,
            "write_preferred_bytes": info.write_preferred,
            "write_multiple_bytes": info.write_multiple,
            "directory_preferred_bytes": info.directory_preferred,
            "file_max_bytes": info.file_bytes_max,
            "time_delta_ns": u64::from(info.time_delta.seconds) * 1_000_000_000 + u64::from(info.time_delta.nanoseconds),
            "hard_links": info.properties & fsinfo::LINK != 0,
            "symbolic_links": info.properties & fsinfo::SYMLINK != 0,
            "can_set_time": info.properties & fsinfo::CAN_SET_TIME != 0,
            "homogeneous": info.properties & fsinfo::HOMOGENEOUS != 0,
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

fn transfer(max: u32, preferred: u32, multiple: u32) -> String {
    format!("up to {max} bytes, {preferred} preferred, in multiples of {multiple}")
}
