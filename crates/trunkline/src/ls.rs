//! `trunkline ls`: lists a directory of a server, without a mount.

use crate::attributes::{self, mode_text, time_text};
use crate::error::Error;
use crate::remote::{MountArgs, PLACES, Place};
use crate::{names, output};
use clap::Args;
use fs::{Attributes, FileHandle, FileKind};
use serde_json::{Map, Value};
use std::process::ExitCode;

/// List files and directories of an NFS server.
#[derive(Debug, Args)]
#[command(long_about = format!("List files and directories of an NFS server.\n\n{PLACES}"), after_help = EXAMPLES)]
pub struct LsArgs {
    /// The places to list: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    #[command(flatten)]
    mount: MountArgs,
    /// Also show mode, links, owner, group, size in bytes, time of the last change (UTC), and the
    /// target of a symbolic link.
    #[arg(short, long)]
    long: bool,
    /// Also show names that begin with a dot.
    #[arg(short, long)]
    all: bool,
    /// Also list the directories below.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print a JSON object for each name, with all attributes, one per line.
    #[arg(long, conflicts_with = "long")]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline ls nas:/data/projects\n  \
    trunkline ls -la 'nfs://10.0.0.1:2050/export?nconnect=4'\n  \
    trunkline ls -R --json nas:/data | jq -r .path";

/// A name to show.
struct Row {
    /// The path below the requested place.
    path: Vec<u8>,
    name: Vec<u8>,
    attributes: Attributes,
    handle: FileHandle,
    /// The target of a symbolic link, if it is shown.
    target: Option<Vec<u8>>,
}

/// Lists each place.
pub fn run(args: &LsArgs) -> Result<ExitCode, Error> {
    let several = args.places.len() > 1 || args.recursive;
    for (number, place) in args.places.iter().enumerate() {
        let place = Place::open(place, &args.mount.joined())?;
        if number > 0 && !args.json {
            output::print("\n")?;
        }
        Listing { args, place: &place, terminal: output::stdout_is_terminal(), headed: several }.list()?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Listing<'a> {
    args: &'a LsArgs,
    place: &'a Place,
    terminal: bool,
    /// Whether each directory's name is printed before its content.
    headed: bool,
}

impl Listing<'_> {
    fn list(&self) -> Result<(), Error> {
        let (mount, cannot) = (&self.place.mount, self.place.cannot("list"));
        let (handle, attributes) = mount.resolve(&self.place.path).map_err(&cannot)?;
        if attributes.kind != FileKind::Directory {
            let path = names_last(&self.place.path).to_vec();
            return self.show(&[Row { name: path.clone(), path, attributes, handle, target: None }]);
        }
        // The last entry is next, so that directories are listed in order.
        let mut todo = vec![(Vec::new(), handle)];
        let mut first = true;
        while let Some((path, directory)) = todo.pop() {
            if self.headed && !self.args.json {
                self.head(&path, first)?;
            }
            first = false;
            let rows = self.rows(&path, directory)?;
            self.show(&rows)?;
            if self.args.recursive {
                let below = rows.into_iter().rev();
                let below = below.filter(|row| row.attributes.kind == FileKind::Directory);
                todo.extend(below.map(|row| (row.path, row.handle)));
            }
        }
        Ok(())
    }

    fn head(&self, path: &[u8], first: bool) -> Result<(), Error> {
        let mut line = if first { Vec::new() } else { b"\n".to_vec() };
        line.extend_from_slice(self.place.name.trim_end_matches('/').as_bytes());
        if !path.is_empty() {
            line.push(b'/');
            line.extend(names::shown(path, self.terminal));
        }
        line.extend_from_slice(b":\n");
        output::print_bytes(&line)
    }

    /// The names of a directory, sorted.
    fn rows(&self, path: &[u8], directory: FileHandle) -> Result<Vec<Row>, Error> {
        let mount = &self.place.mount;
        let cannot = self.place.cannot("list");
        let mut rows = Vec::new();
        for page in mount.pages(directory) {
            for entry in page.map_err(&cannot)? {
                if !self.args.all && entry.name.starts_with(b".") {
                    continue;
                }
                // A server may omit attributes and handles. RFC 1813 s3.3.17
                let found = match (entry.handle, entry.attributes) {
                    (Some(handle), Some(attributes)) => Ok((handle, attributes)),
                    _ => mount.lookup(directory, &entry.name),
                };
                let (handle, attributes) = match found {
                    Ok(found) => found,
                    // The object was removed after the directory was read.
                    Err(error) if error.status() == Some(fs::Status::NotFound) => continue,
                    Err(error) => return Err(cannot(error)),
                };
                let wanted = self.args.long || self.args.json;
                let target = (wanted && attributes.kind == FileKind::Symlink)
                    .then(|| mount.read_link(handle).map_err(&cannot))
                    .transpose()?;
                let mut below = path.to_vec();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(&entry.name);
                rows.push(Row { path: below, name: entry.name, attributes, handle, target });
            }
        }
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(rows)
    }

    fn show(&self, rows: &[Row]) -> Result<(), Error> {
        let mut out = Vec::new();
        let widths = widths(rows);
        for row in rows {
            if self.args.json {
                out.extend(json(row).into_bytes());
            } else {
                if self.args.long {
                    out.extend(long(row, widths).into_bytes());
                }
                out.extend(names::shown(&row.name, self.terminal));
                if let Some(target) = &row.target {
                    out.extend_from_slice(b" -> ");
                    out.extend(names::shown(target, self.terminal));
                }
            }
            out.push(b'\n');
        }
        output::print_bytes(&out)
    }
}

/// The last name of a path.
fn names_last(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty()).unwrap_or(b"/")
}

fn json(row: &Row) -> String {
    let mut object = Map::new();
    names::put(&mut object, "path", &row.path);
    if let Some(target) = &row.target {
        names::put(&mut object, "target", target);
    }
    attributes::put(&mut object, &row.attributes);
    Value::Object(object).to_string()
}

/// The column widths of links, owner, group and size.
fn widths(rows: &[Row]) -> [usize; 4] {
    rows.iter().map(|row| columns(row).map(|column| column.len())).fold([1; 4], |mut widest, widths| {
        for (widest, width) in widest.iter_mut().zip(widths) {
            *widest = width.max(*widest);
        }
        widest
    })
}

fn columns(row: &Row) -> [String; 4] {
    let of = &row.attributes;
    let size = match of.kind {
        FileKind::BlockDevice | FileKind::CharacterDevice => format!("{},{}", of.rdev.major, of.rdev.minor),
        _ => of.size.to_string(),
    };
    [of.nlink.to_string(), of.uid.to_string(), of.gid.to_string(), size]
}

fn long(row: &Row, [links_width, uid_width, gid_width, size_width]: [usize; 4]) -> String {
    let [links, uid, gid, size] = columns(row);
    let of = &row.attributes;
    format!(
        "{} {links:>links_width$} {uid:>uid_width$} {gid:>gid_width$} {size:>size_width$} {} ",
        mode_text(of.kind, of.mode),
        time_text(of.mtime),
    )
}
