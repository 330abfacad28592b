//! nfs-ganesha and mounts of it, under the names that the tests of `mount/` use for our server: the
//! same tests run on both.

use crate::ganesha::Ganesha;
pub(crate) use crate::mounts::*;
use testkit::{TempDir, temp_dir};

/// nfs-ganesha, and a directory for mount points.
pub(crate) struct Server {
    ganesha: Ganesha,
    directory: TempDir,
}

impl Server {
    /// Starts the server, which has one node, whatever number the test asks for.
    pub(crate) fn start(_nodes: u8) -> Self {
        Self { ganesha: Ganesha::start(), directory: temp_dir("mounts") }
    }

    /// The same: it never locks for version 3.
    #[allow(dead_code, reason = "not every test program has a test for that")]
    pub(crate) fn start_without_locks(nodes: u8) -> Self {
        Self::start(nodes)
    }

    /// Mounts in the foreground, over two connections.
    pub(crate) fn mount(&self, name: &str, options: &str) -> Mounted {
        let directory = self.directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let (port, mount_port) = (self.ganesha.port, self.ganesha.mount_port);
        let options = format!("port={port},mountport={mount_port},nconnect=2,{options}");
        let options = options.trim_end_matches(',');
        Mounted::start(&format!("127.0.0.1:{}", self.ganesha.export_path()), directory, options)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A mount that a failed test leaves behind would wait for this server.
        unmount_all_below(self.directory.path());
    }
}

/// A server and one mount, with local locks.
pub(crate) fn mounted() -> (Server, Mounted) {
    let server = Server::start(1);
    let mount = server.mount("mnt", "nolock");
    (server, mount)
}
