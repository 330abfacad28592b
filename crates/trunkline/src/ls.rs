//! `trunkline ls`: lists a directory of a server, without a mount.

use crate::attributes::{self, mode_text, time_text};
use crate::error::Error;
use crate::human::human;
use crate::remote::{LOCATION_HELP, Location, MountArgs};
use crate::tree::{Entry, Node};
use crate::{names, output};
use clap::{ArgAction, Args};
use fs::{Attributes, FileHandle, FileKind, Time};
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::process::ExitCode;
use std::sync::Arc;

/// List files and directories of an NFS server.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    long_about = format!("List files and directories of an NFS server.\n\n{LOCATION_HELP}"),
    after_help = EXAMPLES
)]
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
    /// List a directory itself instead of what is in it, and a symbolic link instead of its target.
    #[arg(short, long, conflicts_with = "recursive")]
    directory: bool,
    /// With -l, show sizes in powers of 1024 with their unit, such as 1.5G.
    #[arg(short, long)]
    human_readable: bool,
    /// Sort by the time of the last change, newest first.
    #[arg(short = 't', overrides_with = "by_size")]
    by_time: bool,
    /// Sort by size, largest first.
    #[arg(short = 'S', overrides_with = "by_time")]
    by_size: bool,
    /// Reverse the order.
    #[arg(short, long)]
    reverse: bool,
    /// One name per line, as always.
    #[arg(short = '1')]
    one: bool,
    /// Print a JSON object for each name, with all attributes, one per line.
    #[arg(long, conflicts_with_all = ["long", "human_readable"])]
    json: bool,
    /// Print help (-h is --human-readable).
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline ls nas:/data/projects\n  \
    trunkline ls -la 'nfs://10.0.0.1:2050/export?nconnect=4'\n  \
    trunkline ls -lhS nas:/data/images\n  \
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
    let headed = (args.places.len() > 1 || args.recursive) && !args.directory;
    let mut code = ExitCode::SUCCESS;
    for (number, location) in args.places.iter().enumerate() {
        let location = Location::open(location, &args.mount.joined())?;
        if number > 0 && !args.json && !args.directory {
            output::print("\n")?;
        }
        let listing = Listing { args, location: &location, terminal: output::stdout_is_terminal(), headed };
        if !listing.list()? {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

struct Listing<'a> {
    args: &'a LsArgs,
    location: &'a Location,
    terminal: bool,
    /// Whether each directory's name is printed before its content.
    headed: bool,
}

impl Listing<'_> {
    /// `false` says that a directory below the place was left out, and was reported.
    fn list(&self) -> Result<bool, Error> {
        let (mount, cannot) = (&self.location.mount, self.location.cannot("list"));
        let (trail, attributes) =
            mount.resolve_trail(&self.location.path, !self.args.directory).map_err(&cannot)?;
        let handle = trail.last().copied().unwrap_or_else(|| mount.root());
        if attributes.kind != FileKind::Directory || self.args.directory {
            let path = names_last(&self.location.path).to_vec();
            let target = self.target(handle, &attributes)?;
            return self.show(&[Row { name: path.clone(), path, attributes, handle, target }]).map(|()| true);
        }
        // The last entry is next, so that directories are listed in order.
        let mut todo: Vec<Arc<Node<()>>> = vec![Node::root(&self.location.name, &trail, attributes)];
        let mut whole = true;
        while let Some(node) = todo.pop() {
            let is_first = node.parent.is_none();
            if self.headed && !self.args.json {
                self.head(&node.below(), is_first)?;
            }
            let rows = match self.rows(&node) {
                Ok(rows) => rows,
                Err(error) if is_first => return Err(error),
                Err(error) => {
                    error.report_to_user();
                    whole = false;
                    continue;
                }
            };
            self.show(&rows)?;
            if self.args.recursive {
                let below = rows.into_iter().filter(|row| row.attributes.kind == FileKind::Directory);
                let first = todo.len();
                for Row { name, handle, attributes, .. } in below {
                    let entry = Entry { name, handle, attributes };
                    match node.child(&entry) {
                        Ok(child) => todo.push(child),
                        Err(failure) => {
                            let path = names::escaped(&node.path_of(&entry.name));
                            failure.explain(format!("cannot list {path}")).report_to_user();
                            whole = false;
                        }
                    }
                }
                todo.get_mut(first..).unwrap_or_default().reverse();
            }
        }
        Ok(whole)
    }

    /// The target of a symbolic link, if it is to be shown.
    fn target(&self, handle: FileHandle, of: &Attributes) -> Result<Option<Vec<u8>>, Error> {
        let wanted = (self.args.long || self.args.json) && of.kind == FileKind::Symlink;
        let mount = &self.location.mount;
        wanted.then(|| mount.read_link(handle).map_err(self.location.cannot("list"))).transpose()
    }

    fn head(&self, path: &[u8], first: bool) -> Result<(), Error> {
        let mut line = if first { Vec::new() } else { b"\n".to_vec() };
        line.extend_from_slice(self.location.name.trim_end_matches('/').as_bytes());
        if !path.is_empty() {
            line.push(b'/');
            line.extend(names::shown(path, self.terminal));
        }
        line.extend_from_slice(b":\n");
        output::print_bytes(&line)
    }

    /// The names of a directory, sorted.
    fn rows(&self, directory: &Node<()>) -> Result<Vec<Row>, Error> {
        let mount = &self.location.mount;
        let below = directory.below();
        let failed = |cause| Error::Remote {
            sentence: format!("cannot list {}", names::escaped(&directory.path())),
            cause: Box::new(cause),
        };
        let mut rows = Vec::new();
        for page in mount.pages(directory.handle) {
            for found in page.map_err(failed)? {
                if !self.args.all && found.name.starts_with(b".") {
                    continue;
                }
                let entry = Entry::complete(mount, directory.handle, found).map_err(failed)?;
                let Some(Entry { name, handle, attributes }) = entry else { continue };
                let target = self.target(handle, &attributes)?;
                let path =
                    if below.is_empty() { name.clone() } else { [&below, b"/".as_slice(), &name].concat() };
                rows.push(Row { path, name, attributes, handle, target });
            }
        }
        self.sort(&mut rows);
        Ok(rows)
    }

    fn sort(&self, rows: &mut [Row]) {
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        let time = |Time { seconds, nanoseconds }| (seconds, nanoseconds);
        if self.args.by_time {
            rows.sort_by_key(|row| Reverse(time(row.attributes.mtime)));
        } else if self.args.by_size {
            rows.sort_by_key(|row| Reverse(row.attributes.size));
        }
        if self.args.reverse {
            rows.reverse();
        }
    }

    fn show(&self, rows: &[Row]) -> Result<(), Error> {
        let mut out = Vec::new();
        let widths = self.widths(rows);
        for row in rows {
            if self.args.json {
                out.extend(json(row).into_bytes());
            } else {
                if self.args.long {
                    out.extend(self.long(row, widths).into_bytes());
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

    /// The column widths of links, owner, group and size.
    fn widths(&self, rows: &[Row]) -> [usize; 4] {
        let lengths = rows.iter().map(|row| self.columns(row).map(|column| column.len()));
        lengths.fold([1; 4], |mut widest, widths| {
            for (widest, width) in widest.iter_mut().zip(widths) {
                *widest = width.max(*widest);
            }
            widest
        })
    }

    fn columns(&self, row: &Row) -> [String; 4] {
        let of = &row.attributes;
        let size = match of.kind {
            FileKind::BlockDevice | FileKind::CharacterDevice => {
                format!("{},{}", of.rdev.major, of.rdev.minor)
            }
            _ if self.args.human_readable => human(of.size),
            _ => of.size.to_string(),
        };
        [of.nlink.to_string(), of.uid.to_string(), of.gid.to_string(), size]
    }

    fn long(&self, row: &Row, widths: [usize; 4]) -> String {
        let [links_width, uid_width, gid_width, size_width] = widths;
        let [links, uid, gid, size] = self.columns(row);
        let of = &row.attributes;
        format!(
            "{} {links:>links_width$} {uid:>uid_width$} {gid:>gid_width$} {size:>size_width$} {} ",
            mode_text(of.kind, of.mode),
            time_text(of.mtime),
        )
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
