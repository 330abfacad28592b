//! Targets as text: what a route leads to, on the command line, in an experiment file and in
//! `--map`.
//!
//! - `nfs://HOST/EXPORT?OPTIONS` or `HOST:/EXPORT`: a server, measured by our client library
//! - `group:NODES?OPTIONS`: an embedded group
//! - `kernel:nfs://HOST/EXPORT?OPTIONS` or `kernel:HOST:/EXPORT`: a server, mounted by the kernel's
//!   client
//! - `nvme-tcp://ADDR:PORT/NQN?OPTIONS`, `nvme-rdma://...`: a block volume of a target, by our host
//! - `volume:?OPTIONS`: a block volume of an embedded target
//! - `/DIRECTORY`: a directory of this machine, whatever file system it is on

use std::path::{Path, PathBuf};

use crate::experiment::{RouteSpec, Target};
use crate::routes::is_rdma;
use crate::volume::options::EMBEDDED;
use crate::volume::{VolumeOptions, VolumeTarget};

/// The nodes of an embedded group unless the target says otherwise.
const GROUP_NODES: u8 = 4;
const GROUP_NODES_MAX: u8 = 16;
/// The memory store of an embedded group, unless its files decide.
const GROUP_BYTES: u64 = 2 << 30;

/// A target and its mount options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) target: Target,
    /// Mount options, as after `-o`.
    pub(crate) options: String,
}

/// Reads a target.
///
/// # Errors
/// Why the text is none.
pub(crate) fn parse(text: &str) -> Result<Parsed, String> {
    if text.starts_with('/') {
        let target = Target::Directory(PathBuf::from(text));
        return Ok(Parsed { target, options: String::new() });
    }
    if let Some(group) = text.strip_prefix("group:") {
        let (nodes, options) = group.split_once('?').unwrap_or((group, ""));
        let nodes = match nodes {
            "" => Some(GROUP_NODES),
            nodes => nodes.parse().ok().filter(|nodes| (1..=GROUP_NODES_MAX).contains(nodes)),
        };
        let nodes = nodes.ok_or("a group has 1 to 16 nodes, as in group:4?nconnect=8")?;
        let target = Target::Embedded { nodes, mem_bytes: GROUP_BYTES, addresses: Vec::new() };
        return Ok(Parsed { target, options: options.replace('&', ",") });
    }
    if let Some(parsed) = volume(text) {
        return parsed;
    }
    let (text, by_kernel) = text.strip_prefix("kernel:").map_or((text, false), |rest| (rest, true));
    let parsed = client::options::Target::parse(text).map_err(|error| error.to_string())?;
    let place = text.split('?').next().unwrap_or(text).to_owned();
    let target = if by_kernel { Target::Kernel(place) } else { Target::Server(place) };
    Ok(Parsed { target, options: parsed.options })
}

/// Reads a block volume; `None` if the text is none.
fn volume(text: &str) -> Option<Result<Parsed, String>> {
    let (place, options) = text.split_once('?').unwrap_or((text, ""));
    let options = options.replace('&', ",");
    let target = match place.strip_prefix(EMBEDDED) {
        None => VolumeTarget::parse(place)?,
        Some("") => Ok(VolumeTarget::Embedded),
        Some(other) => Err(format!("{other}: the options of an embedded volume are behind a ?")),
    };
    let parsed = target.and_then(|target| {
        VolumeOptions::parse(&options, &target)?;
        Ok(Parsed { target: Target::Volume(target), options })
    });
    Some(parsed)
}

/// Whether an argument of `trunkline bench` is a target rather than an experiment or a job file.
#[must_use]
pub fn is_target(text: &str) -> bool {
    let path = Path::new(text);
    let is_named = text.contains("://")
        || text.starts_with("group:")
        || text.starts_with(EMBEDDED)
        || text.contains(":/");
    path.is_dir() || (is_named && !path.is_file())
}

/// Whether an argument is a target where clients make the load: a directory need not be there on
/// this machine.
#[must_use]
pub fn is_target_of_clients(text: &str) -> bool {
    is_target(text) || (text.starts_with('/') && !Path::new(text).is_file())
}

/// The routes of these targets, each named by what tells it apart.
///
/// # Errors
/// The first text that is no target, and why.
pub(crate) fn routes(targets: &[String]) -> Result<Vec<RouteSpec>, (String, String)> {
    let mut routes: Vec<RouteSpec> = Vec::new();
    for text in targets {
        let absolute = match Path::new(text).is_dir() {
            true => std::path::absolute(text).map_err(|error| (text.clone(), error.to_string()))?,
            false => PathBuf::from(text),
        };
        let parsed = parse(&absolute.to_string_lossy()).map_err(|cause| (text.clone(), cause))?;
        let first = name(&parsed);
        let numbered = (2..).map(|number| format!("{first}-{number}"));
        let mut names = std::iter::once(first.clone()).chain(numbered);
        let name = names.find(|name| routes.iter().all(|route| route.name != *name)).unwrap_or(first);
        let target = Some(parsed.target);
        routes.push(RouteSpec { name, options: parsed.options, target, ..RouteSpec::default() });
    }
    Ok(routes)
}

/// The name of a route by its target: the directory's last part, or the host.
fn name(parsed: &Parsed) -> String {
    match &parsed.target {
        Target::Directory(path) => {
            path.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned())
        }
        Target::Embedded { .. } => "group".to_owned(),
        Target::Volume(VolumeTarget::Embedded) => {
            if is_rdma(&parsed.options) { "nvme-rdma" } else { "nvme-tcp" }.to_owned()
        }
        Target::Volume(VolumeTarget::At { address, .. }) => {
            format!("nvme-{} {}", address.transport.name(), address.socket)
        }
        Target::Server(server) | Target::Kernel(server) => {
            let by = if matches!(parsed.target, Target::Kernel(_)) { "kernel " } else { "" };
            let place = server.strip_prefix("nfs://").unwrap_or(server);
            format!("{by}{}", place.split('/').next().unwrap_or(place).trim_end_matches(':'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_target_is_told_by_its_text() {
        let parsed = parse("/mnt/tcp").unwrap();
        assert_eq!((parsed.target, parsed.options.as_str()), (Target::Directory("/mnt/tcp".into()), ""));
        let parsed = parse("group:2?nconnect=4&proto=tcp").unwrap();
        assert!(matches!(parsed.target, Target::Embedded { nodes: 2, .. }), "{parsed:?}");
        assert_eq!(parsed.options, "nconnect=4,proto=tcp");
        let parsed = parse("nfs://10.0.0.1/data?nconnect=8").unwrap();
        assert_eq!(parsed.target, Target::Server("nfs://10.0.0.1/data".into()));
        assert_eq!(parsed.options, "nconnect=8");
        let parsed = parse("kernel:nfs://10.0.0.1/data?nconnect=8&vers=3").unwrap();
        assert_eq!(parsed.target, Target::Kernel("nfs://10.0.0.1/data".into()));
        assert_eq!(parsed.options, "nconnect=8,vers=3");
        for wrong in ["kernel:/mnt", "group:0", "group:17", "group:x", "nfs://", "data"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn routes_have_names_that_tell_them_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tcp");
        std::fs::create_dir(&path).unwrap();
        let path = path.to_string_lossy().into_owned();
        let targets = [
            path.clone(),
            path,
            "nfs://10.0.0.1:2049/data".into(),
            "nas:/data".into(),
            "kernel:nas:/data".into(),
        ];
        let routes = routes(&targets).unwrap();
        let names: Vec<&str> = routes.iter().map(|route| route.name.as_str()).collect();
        assert_eq!(names, ["tcp", "tcp-2", "10.0.0.1:2049", "nas", "kernel nas"]);
    }

    #[test]
    fn files_are_not_targets() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a:/b.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(is_target(&directory.path().to_string_lossy()) && is_target("nfs://h/e"));
        assert!(!is_target("my-nas.toml") && !is_target(&file.to_string_lossy()));
        assert!(is_target_of_clients("/not/there") && !is_target("/not/there"));
        assert!(!is_target_of_clients("not/there") && !is_target_of_clients(&file.to_string_lossy()));
    }
}
