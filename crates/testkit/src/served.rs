//! A server of ours as a process of its own: the one fixture of all suites.

use crate::{Process, Stream, free_port};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A busy machine has started a server by then.
const SOON: Duration = Duration::from_secs(120);
/// What a server says whose port is taken.
const TAKEN: &str = "another program listens there";
/// Ports that are tried one after the other: another program may take one between the choice and
/// the use of it.
const PORTS_MAX: usize = 20;

/// A server that accepts calls, and ends when dropped.
#[derive(Debug)]
pub struct Served {
    /// Its process.
    pub process: Process,
    /// Where it listens, in the order in which it says so.
    pub addresses: Vec<SocketAddr>,
}

impl Served {
    /// Runs `PROGRAM serve ARGUMENTS`, and waits until it is ready.
    ///
    /// # Panics
    /// When the server ends instead; the message has its output.
    #[must_use]
    #[track_caller]
    pub fn start(program: Command, arguments: &[impl AsRef<OsStr>]) -> Self {
        match Self::try_start(program, arguments) {
            Ok(served) => served,
            Err(said) => panic!("the server ended:\n{said}"),
        }
    }

    /// The same on a port that nobody else has, of 127.0.0.1 and whatever else `arguments` makes of
    /// it.
    ///
    /// # Panics
    /// As [`Served::start`], and when no port is free.
    #[must_use]
    #[track_caller]
    pub fn start_on_free_port<A: AsRef<OsStr>>(
        program: impl Fn() -> Command,
        arguments: impl Fn(u16) -> Vec<A>,
    ) -> Self {
        for _ in 0..PORTS_MAX {
            match Self::try_start(program(), &arguments(free_port())) {
                Ok(served) => return served,
                Err(said) if said.contains(TAKEN) => {}
                Err(said) => panic!("the server ended:\n{said}"),
            }
        }
        panic!("no free port in {PORTS_MAX} tries");
    }

    fn try_start(mut program: Command, arguments: &[impl AsRef<OsStr>]) -> Result<Self, String> {
        program.arg("serve").args(arguments);
        let process = Process::spawn(program);
        // The whole line: an address that is already in use is not ready.
        process.line("\"ready\"", |line| line == "ready", SOON)?;
        let out = process.output(Stream::Out);
        let said = out.lines().filter_map(|line| line.strip_prefix("listening on ")?.split(' ').next());
        let addresses = said.filter_map(|address| address.parse().ok()).collect();
        Ok(Self { process, addresses })
    }

    /// The port of its first address.
    ///
    /// # Panics
    /// When it listens nowhere.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addresses.first().expect("it listens").port()
    }
}

/// The text of a configuration: nodes on 127.0.0.1 and the next addresses, and exports with the
/// lines that say what is behind each, open to this machine.
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

/// Writes such a text to a file, and gives the arguments that have the server read it.
///
/// # Panics
/// When the file cannot be written.
#[must_use]
pub fn configured(file: &Path, text: &str) -> Vec<String> {
    if let Err(error) = std::fs::write(file, text) {
        panic!("cannot write {}: {error}", file.display());
    }
    vec!["-c".to_owned(), file.display().to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what a server says that finds its port taken twice, and then one that does not.
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
        let served = Served::start_on_free_port(program, |port| vec!["x".to_owned(), port.to_string()]);
        assert_eq!(served.addresses, [SocketAddr::from(([127, 0, 0, 1], served.port()))]);
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
