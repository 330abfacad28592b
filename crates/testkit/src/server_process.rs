//! A Trunkline server as a separate process; the only server fixture of all suites.

use crate::{Process, Stream, free_port};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long the start of a server may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The message of a server whose port is taken.
const PORT_TAKEN_MESSAGE: &str = "another program listens there";
/// The number of ports to try: another program may take a port between the choice and its use.
const PORTS_MAX: usize = 20;

/// A running server, which ends when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    /// The process of the server.
    pub process: Process,
    /// The addresses that the server listens on, in the order in which it prints them.
    pub addresses: Vec<SocketAddr>,
}

impl ServerProcess {
    /// Runs `PROGRAM serve ARGUMENTS`, and waits until the server is ready.
    ///
    /// # Panics
    /// If the server ends instead; the message has its output.
    #[must_use]
    #[track_caller]
    pub fn start(program: Command, arguments: &[impl AsRef<OsStr>]) -> Self {
        match Self::try_start(program, arguments) {
            Ok(server) => server,
            Err(output) => panic!("the server ended:\n{output}"),
        }
    }

    /// Starts a server on a free port of 127.0.0.1; `arguments` may use the port for other
    /// addresses too.
    ///
    /// # Panics
    /// Like [`ServerProcess::start`], and if no port is free.
    #[must_use]
    #[track_caller]
    pub fn start_on_free_port<A: AsRef<OsStr>>(
        program: impl Fn() -> Command,
        arguments: impl Fn(u16) -> Vec<A>,
    ) -> Self {
        for _ in 0..PORTS_MAX {
            match Self::try_start(program(), &arguments(free_port())) {
                Ok(server) => return server,
                Err(output) if output.contains(PORT_TAKEN_MESSAGE) => {}
                Err(output) => panic!("the server ended:\n{output}"),
            }
        }
        panic!("no free port in {PORTS_MAX} tries");
    }

    fn try_start(mut program: Command, arguments: &[impl AsRef<OsStr>]) -> Result<Self, String> {
        program.arg("serve").args(arguments);
        let process = Process::spawn(program);
        // The whole line must match, because the message about an address in use contains
        // "already".
        process.line("\"ready\"", |line| line == "ready", TIMEOUT)?;
        let out = process.output(Stream::Out);
        let listening = out.lines().filter_map(|line| line.strip_prefix("listening on ")?.split(' ').next());
        let addresses = listening.filter_map(|address| address.parse().ok()).collect();
        Ok(Self { process, addresses })
    }

    /// The port of the server's first address.
    ///
    /// # Panics
    /// If the server has no address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addresses.first().expect("it listens").port()
    }
}

/// The text of a configuration file: nodes on 127.0.0.1 and the following addresses, and exports
/// for this machine, each with the lines that name its store.
#[must_use]
pub fn configuration(nodes: u8, port: u16, exports: &[(&str, &str)]) -> String {
    let node = |node| format!("[[node]]\nname = \"node{node}\"\nlisten = [\"127.0.0.{node}:{port}\"]\n");
    let export = |(path, store): &(&str, &str)| {
        format!(
            "[[export]]\npath = \"{path}\"\n{store}\nallow = [\"127.0.0.0/8\"]\nrw = true\nroot_squash = false\n"
        )
    };
    (1..=nodes).map(node).chain(exports.iter().map(export)).collect()
}

/// Writes such a text to a file, and returns the arguments with which the server reads it.
///
/// # Panics
/// If the file cannot be written.
#[must_use]
pub fn write_configuration(file: &Path, text: &str) -> Vec<String> {
    if let Err(error) = std::fs::write(file, text) {
        panic!("cannot write {}: {error}", file.display());
    }
    vec!["-c".to_owned(), file.display().to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script that behaves like a server: its port is taken twice, and then free.
    const SERVER: &str = "n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count; \
         [ $n -lt 2 ] && { echo 'already taken: another program listens there'; exit 1; }; \
         echo \"listening on 127.0.0.1:$2 (node one)\"; echo ready; exec sleep 1000";

    fn program(directory: &Path) -> Command {
        let mut program = Command::new("sh");
        program.args(["-c", SERVER]).current_dir(directory);
        program
    }

    #[test]
    fn a_port_that_is_taken_is_left_for_another() {
        let directory = crate::temp_dir("served");
        let program = || program(directory.path());
        let server =
            ServerProcess::start_on_free_port(program, |port| vec!["x".to_owned(), port.to_string()]);
        assert_eq!(server.addresses, [SocketAddr::from(([127, 0, 0, 1], server.port()))]);
        let count = std::fs::read_to_string(directory.path().join("count")).expect("written");
        assert_eq!(count.trim(), "3");
    }

    #[test]
    fn a_configuration_has_its_nodes_and_exports() {
        let text = configuration(2, 2049, &[("/a", "mem = \"1MiB\"")]);
        assert!(
            text.contains("listen = [\"127.0.0.2:2049\"]")
                && text.contains("path = \"/a\"\nmem = \"1MiB\"\n")
        );
    }
}
