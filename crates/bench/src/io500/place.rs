//! The directory in which IO500 runs on a route, and the mount that was made for it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::child::{self, Ended};
use crate::directory::kernel_mount::{Failure, KernelMount};
use crate::directory::mount_point::MountPoint;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, RouteSpec, Target};
use crate::group::{Group, GroupPlan};
use crate::routes;
use crate::stop::Stop;

/// Where the data of a run are.
pub(super) enum Place {
    /// A directory that was there already.
    Directory(PathBuf),
    /// A mount of the kernel's client.
    Kernel(KernelMount),
    /// A mount of ours.
    Ours(Box<OwnMount>),
}

/// A mount by `trunkline mount`, which another process serves.
pub(super) struct OwnMount {
    program: PathBuf,
    point: MountPoint,
    /// The group that is mounted, if it is embedded. It ends after the mount.
    _group: Option<Group>,
}

impl Place {
    /// Makes the mount of a route, if it needs one.
    pub(super) fn open(
        route: &RouteSpec,
        experiment: &Experiment,
        program: &Path,
        stop: &Stop,
    ) -> Result<Self> {
        match route.target(experiment) {
            Target::Directory(path) => Ok(Self::Directory(path.clone())),
            Target::Kernel(server) => KernelMount::new(server, &route.options, stop)
                .map(Self::Kernel)
                .map_err(|failure| match failure {
                    Failure::NoMultipath(reason) => {
                        Error::refused(format!("cannot mount {server}"), reason, "one path, or our own mount")
                    }
                    Failure::Other(error) => error,
                }),
            Target::Volume(volume) => Err(Error::refused(
                format!("cannot run IO500 on {volume}"),
                "it needs a directory, and a volume has no files",
                "a file system on the volume, mounted, and its directory",
            )),
            Target::Server(server) => {
                OwnMount::new(program, server, &route.options, None, stop).map(Self::ours)
            }
            Target::Embedded { nodes, mem_bytes, addresses } => {
                if routes::is_rdma(&route.options) {
                    return Err(Error::refused(
                        "cannot mount an embedded group over RDMA",
                        "IO500 mounts it by its TCP addresses",
                        "trunkline serve, and nfs://HOST/EXPORT?proto=rdma",
                    ));
                }
                let group = Group::start(&GroupPlan {
                    nodes: *nodes,
                    addresses,
                    clients: &[],
                    mem_bytes: *mem_bytes,
                    pace_bytes_per_s: None,
                    congestion: None,
                    rdma: &[],
                    version_4: routes::is_version_4(&route.options),
                })?;
                let first = group.at.nodes.first().map(ToString::to_string).unwrap_or_default();
                let port = group.at.port;
                let options =
                    format!("noresvport,{},{}", routes::port_options(port, &route.options), route.options);
                let options = options.trim_end_matches(',').to_owned();
                OwnMount::new(program, &format!("{first}:/bench"), &options, Some(group), stop)
                    .map(Self::ours)
            }
        }
    }

    fn ours(mount: OwnMount) -> Self {
        Self::Ours(Box::new(mount))
    }

    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Directory(path) => path.clone(),
            Self::Kernel(mount) => mount.path(),
            Self::Ours(mount) => mount.point.path().to_owned(),
        }
    }

    /// Ends the mount that was made.
    pub(super) fn close(self) -> io::Result<()> {
        match self {
            Self::Directory(_) | Self::Kernel(_) => Ok(()),
            Self::Ours(mount) => mount.unmount(),
        }
    }
}

impl OwnMount {
    fn new(program: &Path, target: &str, options: &str, group: Option<Group>, stop: &Stop) -> Result<Self> {
        let refuse = |cause: String, advice: &str| {
            Error::refused(format!("cannot mount {target} for IO500"), cause, advice)
        };
        let point = MountPoint::new("trunkline-bench-mount-", stop.remains())
            .map_err(|error| refuse(error.to_string(), "a directory for temporary files: TMPDIR"))?;
        // From here on, whatever is mounted is unmounted: a mount that fails may come later.
        let mount = Self { program: program.to_owned(), point, _group: group };
        let mut command = Command::new(program);
        command.arg("mount").arg(target).arg(mount.point.path());
        if !options.is_empty() {
            command.arg("-o").arg(options);
        }
        // The serving process must not keep a pipe of ours open, so that errors go to a file.
        let (mut said, errors) = tempfile::tempfile()
            .and_then(|file| Ok((file.try_clone()?, file)))
            .map_err(|error| refuse(error.to_string(), "a directory for temporary files: TMPDIR"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let failed = |error: io::Error| refuse(error.to_string(), "the same again");
        let mut child = command.spawn().map_err(failed)?;
        // A mount waits for a server that does not answer.
        let status = match child::wait(&mut child, stop, None, Signal::TERM).map_err(failed)? {
            Ended::Itself(status) => status,
            Ended::Stopped | Ended::TimedOut => return Err(Error::Stopped),
        };
        if !status.success() {
            let mut text = String::new();
            let read =
                io::Seek::rewind(&mut said).and_then(|()| io::Read::read_to_string(&mut said, &mut text));
            let text = read.map_or_else(|error| error.to_string(), |_| text);
            let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            return Err(refuse(lines.join("; "), "trunkline mount        by hand, to see what it says"));
        }
        if mount.point.mounted().is_none_or(|it| !it.kind.starts_with("fuse")) {
            let cause = "it is not mounted yet, because of the option bg".to_owned();
            return Err(refuse(cause, "without bg"));
        }
        Ok(mount)
    }

    /// Ends the mount, or the attempt to make it.
    fn unmount(&self) -> io::Result<()> {
        let directory = self.point.path();
        let mut ended = Ok(());
        for lazy in [false, true] {
            let mut command = Command::new(&self.program);
            command.arg("umount").arg(directory).args(lazy.then_some("--lazy"));
            let output = command.stdin(Stdio::null()).output()?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', ";");
            if self.point.mounted().is_none() {
                return Ok(());
            }
            ended = Err(io::Error::other(format!("{}: {said}", directory.display())));
        }
        ended
    }
}

impl Drop for OwnMount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::error!(%error, "a mount remains");
        }
    }
}
