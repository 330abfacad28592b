//! The places where histories are made: mounts of our server with its files in memory or in a
//! directory, mounts of nfs-ganesha, and a local directory, which shows that the checker finds no
//! errors where there are none.

use crate::ganesha::Ganesha;
use crate::mounts::{Mounted, unmount_all_below};
use crate::plan::Abilities;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::server_process::{configuration, write_configuration};
use testkit::{ServerProcess, TempDir, temp_dir};

/// The server of a place, if any.
enum Server {
    Ours(ServerProcess),
    Ganesha(Box<Ganesha>),
    None,
}

/// See the module's documentation.
pub struct TestTarget {
    pub name: &'static str,
    server: Server,
    /// The directory for mounts and other files of the place.
    directory: TempDir,
    mounts: u32,
}

impl TestTarget {
    pub fn of_memory() -> Self {
        Self::ours("mem", |_| "mem = \"1GiB\"".to_owned())
    }

    pub fn of_a_directory() -> Self {
        Self::ours("dir", |directory| {
            let [served, state] = ["served", "state"].map(|name| directory.join(name));
            std::fs::create_dir(&served).expect("made");
            format!("dir = \"{}\"\nstate = \"{}\"", served.display(), state.display())
        })
    }

    pub fn of_ganesha() -> Self {
        let server = Server::Ganesha(Box::new(Ganesha::start()));
        Self { name: "nfs-ganesha", server, directory: temp_dir("history"), mounts: 0 }
    }

    pub fn local() -> Self {
        Self { name: "a local directory", server: Server::None, directory: temp_dir("history"), mounts: 0 }
    }

    fn ours(name: &'static str, store: impl Fn(&Path) -> String) -> Self {
        let directory = temp_dir("history");
        let store = store(directory.path());
        let file = directory.path().join("server.toml");
        let program = || Command::new(env!("CARGO_BIN_EXE_trunkline"));
        let arguments = |port| write_configuration(&file, &configuration(1, port, &[("/export", &store)]));
        let server = Server::Ours(ServerProcess::start_on_free_port(program, arguments));
        Self { name, server, directory, mounts: 0 }
    }

    /// What the place supports, and the options that the user asked for.
    pub fn abilities(&self, options: Option<String>, known_limits: bool) -> Abilities {
        match self.server {
            Server::None => {
                Abilities { direct_anywhere: false, options: Some(String::new()), known_limits: true }
            }
            _ => Abilities { direct_anywhere: true, options, known_limits },
        }
    }

    /// Adds a mount, in the foreground; none in a local directory.
    pub fn mount(&mut self, options: &str) -> Option<Mounted> {
        let (source, ports) = match &self.server {
            Server::Ours(served) => ("127.0.0.1:/export".to_owned(), format!("port={}", served.port())),
            Server::Ganesha(ganesha) => {
                let ports = format!("port={},mountport={}", ganesha.port, ganesha.mount_port);
                (format!("127.0.0.1:{}", ganesha.export_path()), ports)
            }
            Server::None => return None,
        };
        self.mounts += 1;
        let at = self.directory.path().join(format!("mount-{}", self.mounts));
        std::fs::create_dir(&at).expect("made");
        Some(Mounted::start(&source, at, &format!("{ports},{options}")))
    }

    /// The directory itself, if nothing is mounted.
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }
}

impl Drop for TestTarget {
    fn drop(&mut self) {
        // A mount that a failed test leaves behind would wait for this server.
        unmount_all_below(self.directory.path());
    }
}
