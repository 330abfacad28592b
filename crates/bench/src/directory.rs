//! Routes to directories of this machine, whatever mounted them: a local file system, our mount, or
//! the kernel's NFS client.
//!
//! The load is made by threads of this process ([`engine`]) or by the installed program fio
//! ([`by_fio`]). Files are made, compared and removed by this process in both cases ([`files`]).

mod by_fio;
pub(crate) mod counts;
mod engine;
pub(crate) mod files;
mod held;
pub(crate) mod kernel_mount;
pub(crate) mod mount_point;
pub(crate) mod transports;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use record::Direction;

use self::counts::DirectoryCounts;
use self::files::LocalFile;
use self::kernel_mount::{Failure, KernelMount};
use crate::binding::steps::Behind;
use crate::error::{Error, Result};
use crate::experiment::{DirectoryLoad, Engine};
use crate::fio_program;
use crate::jobs::Window;
use crate::measure::Sample;
use crate::room::FileSystem;
use crate::stop::Stop;
use crate::watch::Watch;
use crate::workload::PlannedWorkload;

/// The options of an NFS mount that the record has of a directory.
const ROUTE_OPTIONS: [&str; 7] = ["vers", "proto", "nconnect", "rsize", "wsize", "remoteports", "localports"];

/// A directory that is measured.
#[derive(Debug)]
pub struct DirectoryRoute {
    /// The name of the route.
    pub route: String,
    /// The directory.
    pub path: PathBuf,
    /// How it is measured.
    pub load: DirectoryLoad,
    /// The device of its file system.
    device: u64,
    /// Its file system, if the system says.
    mounted: Option<FileSystemOf>,
    /// The directory, held open. It is closed before the mount ends.
    held: OwnedFd,
    /// The mount that was made for the route.
    mount: Option<KernelMount>,
    /// The connections of a mount of the kernel's NFS client; none of other file systems.
    transports: Vec<String>,
    /// Whether it is mounted over RDMA, as far as is known.
    pub is_rdma: bool,
    /// Where operations are counted for whoever watches.
    counts: Option<Arc<DirectoryCounts>>,
}

impl DirectoryRoute {
    /// Looks at the directory, and at fio if it makes the load.
    ///
    /// # Errors
    /// [`Error::Directory`], or [`Error::Refused`] without a usable fio.
    pub(crate) fn open(route: &str, path: &Path, load: DirectoryLoad) -> Result<Self> {
        let wrap = |cause| Error::directory(route, path, "use", cause);
        let held = held::open(path).map_err(wrap)?;
        let found = rustix::fs::fstat(&held).map_err(|error| wrap(error.into()))?;
        if load.engine == Engine::Fio {
            fio_program::check_version()?;
        }
        let device = found.st_dev;
        let (route, path, mounted) = (route.to_owned(), path.to_owned(), mounted(device));
        let transports = mounted.as_ref().map_or_else(Vec::new, |it| transports::at(&it.mount_point));
        let is_rdma = transports.iter().any(|kind| kind == "rdma");
        Ok(Self { route, path, load, device, mounted, held, mount: None, transports, is_rdma, counts: None })
    }

    /// Mounts a server with the kernel's client, and looks at the mount.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) fn mount(
        route: &str,
        server: &str,
        options: &str,
        load: DirectoryLoad,
        stop: &Stop,
    ) -> std::result::Result<Self, Failure> {
        let mount = KernelMount::new(server, options, stop)?;
        let mut opened = Self::open(route, &mount.path(), load).map_err(Failure::Other)?;
        opened.mount = Some(mount);
        // A kernel that does not list the connections has the asked for transport.
        opened.is_rdma |= opened.transports.is_empty() && crate::routes::is_rdma(options);
        Ok(opened)
    }

    /// Has the operations counted for whoever watches the experiment.
    #[must_use]
    pub(crate) fn watched(self, watch: &Watch) -> Self {
        let counts = watch.directory(&self.route);
        Self { counts, ..self }
    }

    /// Where its operations are counted for whoever watches.
    pub(crate) fn counts(&self) -> Option<&DirectoryCounts> {
        self.counts.as_deref()
    }

    /// Where the directory that is held open is, without links: what `path` led to when it was
    /// opened.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn real_path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.held.as_raw_fd()))
    }

    /// The bytes that are free for this user, if the file system says.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let space = rustix::fs::fstatvfs(&self.held).ok()?;
        space.f_bavail.checked_mul(space.f_frsize)
    }

    /// Its file system.
    pub(crate) fn file_system(&self) -> FileSystem {
        let is_network = |it: &&FileSystemOf| it.source.contains(":/") || it.source.starts_with("//");
        let network = self.mounted.as_ref().filter(is_network);
        FileSystem::Mounted {
            machine: String::new(),
            device: self.device,
            // One export may be mounted by versions 3 and 4.
            source: network.map(|it| format!("{} {}", it.kind.trim_end_matches('4'), it.source)),
        }
    }

    /// What is behind the directory: memory of this machine, a server, or what is not known.
    pub(crate) fn behind(&self) -> Behind {
        self.mounted.as_ref().map_or(Behind::Directory, |it| behind(&it.kind, &it.source))
    }

    /// The options of the NFS mount that the directory is on, for the record: which route it is.
    pub(crate) fn nfs_options(&self) -> Option<String> {
        self.mounted.as_ref().and_then(FileSystemOf::nfs_options)
    }

    /// The number of connections of the NFS mount that the directory is on, for the record.
    pub(crate) fn connections(&self) -> Option<u32> {
        u32::try_from(self.transports.len()).ok().filter(|count| *count > 0)
    }

    /// How the directory is accessed, for the record: `O_DIRECT on ext4, by our threads`.
    #[must_use]
    pub fn describe(&self) -> String {
        let io = if self.load.direct { "O_DIRECT" } else { "buffered" };
        let by = match self.load.engine {
            Engine::Ours => "our threads",
            Engine::Fio => "fio",
        };
        let on = match &self.mount {
            Some(_) => "the kernel's NFS client",
            None => self.mounted.as_ref().map_or("an unknown file system", |it| &it.kind),
        };
        format!("{io} on {on}, by {by}")
    }

    /// What a reader must know about the results of a workload: whether its data may never have
    /// left this machine's memory while it was timed.
    #[must_use]
    pub fn note(&self, workload: &PlannedWorkload) -> Option<String> {
        let reads = workload.has(Direction::Read);
        let writes = workload.has(Direction::Write);
        let fits = crate::machine::free_memory_bytes().is_none_or(|free| workload.bytes() < free);
        let what = match (reads && fits, writes) {
            (true, false) => "the files fit into memory, so buffered reads measure the page cache",
            (false, true) => "buffered writes count when they are in the page cache, before they are stable",
            (true, true) => {
                "the files fit into memory, so buffered reads measure the page cache; buffered writes count when \
                 they are there, before they are stable"
            }
            (false, false) => return None,
        };
        (!self.load.direct).then(|| format!("{what}; O_DIRECT measures what is below it"))
    }

    /// Runs a workload once; `None` after a stop.
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn run(
        &self,
        workload: &PlannedWorkload,
        files: &[LocalFile],
        window: Window,
        stop: &Stop,
    ) -> std::result::Result<Option<Sample>, String> {
        self.run_when(&|| true, workload, files, window, stop)
    }

    /// Runs a workload once, from the moment on at which `when` returns true: our engine opens the
    /// files before. Otherwise as [`DirectoryRoute::run`].
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn run_when(
        &self,
        when: &dyn Fn() -> bool,
        workload: &PlannedWorkload,
        files: &[LocalFile],
        window: Window,
        stop: &Stop,
    ) -> std::result::Result<Option<Sample>, String> {
        let sample = match self.load.engine {
            Engine::Ours => {
                let counts = self.counts.as_deref();
                let direct = self.load.direct;
                engine::run_until_stop(direct, counts, when, workload, files, window, stop)
            }
            Engine::Fio if !when() => Ok(None),
            Engine::Fio => by_fio::run_until_stop(self.load.direct, workload, files, window, stop),
        };
        if let (Engine::Fio, Some(counts), Ok(Some(sample))) = (self.load.engine, &self.counts, &sample) {
            let job = counts.job(0);
            for (direction, flow) in [(Direction::Read, &sample.read), (Direction::Write, &sample.write)] {
                flow.iter().for_each(|flow| job.count_all(direction, flow.ops, flow.bytes, &flow.latency));
            }
        }
        if let (Ok(Some(_)), false) = (&sample, self.load.direct) {
            // What is still in memory would be written during the repeat of the next route.
            for file in files.iter().filter(|_| workload.has(Direction::Write)) {
                files::flush(file).map_err(|error| format!("{}: {error}", file.path.display()))?;
            }
        }
        sample
    }
}

/// What is behind a file system of this type and source, as far as they say it.
fn behind(kind: &str, source: &str) -> Behind {
    if matches!(kind, "tmpfs" | "ramfs") {
        return Behind::Seen;
    }
    if !matches!(kind, "nfs" | "nfs4") {
        return Behind::Directory;
    }
    let host = source.split_once(":/").map_or(source, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    if address.is_ok_and(crate::routes::is_of_this_host) { Behind::Seen } else { Behind::Server }
}

/// A file system, as the kernel lists its mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileSystemOf {
    kind: String,
    source: String,
    /// Where it is mounted, as the kernel writes it.
    mount_point: String,
    /// The options that are in effect.
    options: String,
}

impl FileSystemOf {
    /// Those options of a mount of NFS that say which route it is; `None` of other file systems.
    fn nfs_options(&self) -> Option<String> {
        let is_told = |option: &&str| ROUTE_OPTIONS.contains(&option.split('=').next().unwrap_or_default());
        let options = self.options.split(',').filter(is_told).collect::<Vec<_>>().join(",");
        matches!(&*self.kind, "nfs" | "nfs4").then_some(options)
    }
}

/// The file system with this device number.
fn mounted(device: u64) -> Option<FileSystemOf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    file_system(&mounts, &number)
}

/// The file system with this number in a list of mounts. proc_pid_mountinfo(5)
fn file_system(mounts: &str, number: &str) -> Option<FileSystemOf> {
    // Later mounts hide earlier ones of the same device; the type is the same.
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(number))?;
    let (_, after) = line.split_once(" - ")?;
    let mut fields = after.split(' ').map(str::to_owned);
    let (kind, source) = fields.next().zip(fields.next())?;
    let mount_point = line.split(' ').nth(4).unwrap_or_default().to_owned();
    Some(FileSystemOf { kind, source, mount_point, options: fields.next().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::WorkloadSpec;

    fn workload(readers: u32) -> PlannedWorkload {
        let spec = WorkloadSpec {
            name: "w".into(),
            block: 4096,
            depth: 1,
            readers,
            writers: 1 - readers,
            file: 1 << 20,
            ..WorkloadSpec::default()
        };
        PlannedWorkload::from(&spec)
    }

    #[test]
    fn buffered_reads_of_files_that_fit_into_memory_and_buffered_writes_are_doubted() {
        let directory = tempfile::tempdir().unwrap();
        let open = |direct| {
            DirectoryRoute::open("r", directory.path(), DirectoryLoad { engine: Engine::Ours, direct })
        };
        let (buffered, direct) = (open(false).unwrap(), open(true).unwrap());
        assert!(buffered.note(&workload(1)).unwrap().contains("page cache"));
        assert!(buffered.note(&workload(0)).unwrap().contains("before they are stable"));
        assert_eq!((direct.note(&workload(0)), direct.note(&workload(1))), (None, None));
        assert!(direct.describe().starts_with("O_DIRECT on "), "{}", direct.describe());
        assert!(buffered.describe().ends_with(", by our threads"), "{}", buffered.describe());
    }

    #[test]
    fn two_directories_of_one_device_are_in_one_file_system() {
        let parent = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| parent.path().join(name));
        let routes = paths.each_ref().map(|path| {
            std::fs::create_dir(path).unwrap();
            DirectoryRoute::open("r", path, DirectoryLoad::default()).unwrap()
        });
        assert_eq!(routes[0].file_system(), routes[1].file_system());
        let proc = DirectoryRoute::open("r", Path::new("/proc"), DirectoryLoad::default()).unwrap();
        assert_ne!(proc.file_system(), routes[0].file_system());
        let found = proc.mounted.as_ref().unwrap();
        assert_eq!((found.kind.as_str(), found.source.as_str()), ("proc", "proc"));
        assert_eq!(proc.nfs_options(), None);
    }

    #[test]
    fn a_mount_of_nfs_says_which_route_it_is() {
        let mounts = "30 1 0:51 / /mnt/a rw,relatime shared:9 - nfs4 10.0.0.1:/data rw,vers=4.2,rsize=1048576,\
            wsize=1048576,namlen=255,hard,proto=tcp,nconnect=4,timeo=600,clientaddr=10.0.0.9,addr=10.0.0.1\n\
            31 1 8:1 / / rw - ext4 /dev/sda1 rw,errors=remount-ro\n32 1 0:5 / /x rw - nfs broken:/\n";
        let options = |number: &str| file_system(mounts, number).unwrap().nfs_options();
        assert_eq!(options("0:51").unwrap(), "vers=4.2,rsize=1048576,wsize=1048576,proto=tcp,nconnect=4");
        assert_eq!(options("8:1"), None);
        assert_eq!(file_system(mounts, "0:51").unwrap().mount_point, "/mnt/a");
        assert_eq!(options("0:5").unwrap(), "", "a line without options");
        assert_eq!(file_system(mounts, "9:9"), None);
    }

    #[test]
    fn only_memory_and_servers_of_this_host_are_seen() {
        assert_eq!(behind("tmpfs", "tmpfs"), Behind::Seen);
        assert_eq!(behind("nfs", "127.0.0.1:/data"), Behind::Seen);
        assert_eq!(behind("nfs4", "[::1]:/data"), Behind::Seen);
        assert_eq!(behind("nfs", "192.0.2.1:/data"), Behind::Server);
        assert_eq!(behind("nfs4", "nas:/data"), Behind::Server, "names are not looked up");
        assert_eq!(behind("ext4", "/dev/sda1"), Behind::Directory);
        assert_eq!(behind("fuse.trunkline", "10.0.0.1:/data"), Behind::Directory);
    }

    #[test]
    fn a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = DirectoryRoute::open("r", file.path(), DirectoryLoad::default()).unwrap_err();
        let Error::Directory { cause, .. } = error else { panic!("{error}") };
        assert_eq!(cause.kind(), io::ErrorKind::NotADirectory);
    }
}
