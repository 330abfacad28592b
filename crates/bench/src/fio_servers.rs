//! A job file on many hosts by stock `fio --server`: fio's client sends it to all of them, and its
//! results become a record.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fio::results::{Host, json, read_of};
use record::Record;

use crate::cells;
use crate::clients::{ClientSpec, Place};
use crate::error::{Error, Result};
use crate::fio_program::{self, Finished, first_line};
use crate::machine;
use crate::stop::Stop;

/// The port of `fio --server` where none is named.
const FIO_PORT: u64 = 8765;

/// What fio measured on all hosts.
#[derive(Debug)]
pub struct MeasuredByFio {
    /// The record of it.
    pub record: Record,
    /// fio's own results, as it printed them (json+).
    pub json: String,
}

/// The list of hosts, which fio reads from a file; removed when it is dropped.
struct HostList(PathBuf);

impl HostList {
    fn write(hosts: &[&str]) -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("trunkline-fio-hosts-{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let list = Self(path);
        file.write_all(hosts.join("\n").as_bytes())?;
        file.write_all(b"\n")?;
        Ok(list)
    }
}

impl Drop for HostList {
    fn drop(&mut self) {
        // It is only a list of names.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a job file on all hosts at once, and returns what fio measured.
///
/// # Errors
/// [`Error::Refused`] if fio cannot be run or a host does not answer; [`Error::Stopped`].
pub fn run(clients: &[ClientSpec], job: &Path, stop: &Stop) -> Result<MeasuredByFio> {
    let places: Vec<&str> = clients.iter().filter_map(place).collect();
    let hosts: Vec<Host> = clients.iter().filter_map(host).collect();
    let refuse =
        |cause: String, advice: &str| Error::refused("cannot run the job file by fio", cause, advice);
    let list = HostList::write(&places)
        .map_err(|error| refuse(error.to_string(), "a directory for temporary files: TMPDIR"))?;
    let mut command = Command::new("fio");
    command.arg("--output-format=json+").arg(format!("--client={}", list.0.display())).arg(job);
    let Finished { output, messages, success } = fio_program::run(command, stop)?;
    let hosts_advice =
        "fio --server        on each host; fio:HOST:PORT for another port; the same version here";
    let read = read_of(&output, &hosts).and_then(|imported| Ok((imported.record, json(&output)?)));
    let (mut record, json) = read
        .map_err(|error| refuse(first_line(&messages).unwrap_or_else(|| error.to_string()), hosts_advice))?;
    let is_there = |host: &&Host| record.routes.iter().any(|route| route.name == host.name);
    let missing: Vec<String> =
        hosts.iter().filter(|host| !is_there(host)).map(|host| host.name.clone()).collect();
    if let Some(failure) = failure(&missing, success, first_line(&messages)) {
        record.fail(failure);
    }
    let lost: Vec<(String, String)> =
        missing.into_iter().map(|name| (name, "fio has no results of it".to_owned())).collect();
    let of_all = record.routes.iter_mut().filter(|route| !hosts.iter().any(|host| host.name == route.name));
    of_all.flat_map(|route| &mut route.workloads).for_each(|workload| cells::mark_lost(workload, &lost));
    record.environment = machine::environment();
    record.options.insert("clients".into(), places.join(", "));
    Ok(MeasuredByFio { record, json: json.to_owned() })
}

/// A client as fio writes it.
fn place(client: &ClientSpec) -> Option<&str> {
    match &client.place {
        Place::Fio(place) => Some(place),
        Place::Tcp(..) | Place::Ssh(_) => None,
    }
}

/// A client as its results name it.
fn host(client: &ClientSpec) -> Option<Host> {
    let place = place(client)?;
    let (host, port) = place.split_once(',').unwrap_or((place, ""));
    let port = port.parse().unwrap_or(FIO_PORT);
    Some(Host { name: client.name.clone(), host: host.to_owned(), port })
}

/// Why fio's results are not to be trusted, if so.
fn failure(missing: &[String], success: bool, said: Option<String>) -> Option<String> {
    let what = match missing {
        [] if success => return None,
        [] => "fio has failed".to_owned(),
        missing => format!("fio has no results of {}", missing.join(", ")),
    };
    Some(said.map_or_else(|| what.clone(), |said| format!("{what}: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_hosts_without_results_and_what_fio_said() {
        let said = || Some("fio: connection refused".to_owned());
        assert_eq!(failure(&[], true, said()), None);
        assert_eq!(failure(&[], false, None).unwrap(), "fio has failed");
        assert_eq!(failure(&[], false, said()).unwrap(), "fio has failed: fio: connection refused");
        let of_two = failure(&["h1".to_owned(), "h2,8766".to_owned()], true, said()).unwrap();
        assert_eq!(of_two, "fio has no results of h1, h2,8766: fio: connection refused");
    }
}
