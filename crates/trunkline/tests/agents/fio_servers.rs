//! A job file on stock `fio --server`s.

use super::TIMEOUT;
use super::fixture::trunkline;
use record::{Half, Record};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use testkit::{Deadline, Process, free_port, require_program, temp_dir};

fn server(port: u16) -> Process {
    let mut command = Command::new(require_program("fio"));
    command.arg(format!("--server=127.0.0.1,{port}"));
    let server = Process::spawn(command);
    Deadline::wait_until("fio to listen", TIMEOUT, || TcpStream::connect(("127.0.0.1", port)).ok().map(drop));
    server
}

fn bench(directory: &Path, clients: &str, options: &[&str]) -> Output {
    let text = format!(
        "[global]\nioengine=psync\nbs=4k\nsize=64k\nrw=randread\nruntime=1\ntime_based\ndirectory={}\n[small]\n",
        directory.display()
    );
    fs::write(directory.join("job.fio"), text).unwrap();
    let mut command = trunkline();
    command.args(["bench", "job.fio", "--no-report", "--record", "record.json", "--client", clients]);
    command.args(options).current_dir(directory).output().unwrap()
}

#[test]
fn a_job_file_runs_on_each_fio_server_and_becomes_a_record() {
    let directory = temp_dir("fio-servers");
    let ports = [free_port(), free_port()];
    let _servers = ports.map(server);
    let clients = format!("fio:127.0.0.1:{},second=fio:127.0.0.1:{}", ports[0], ports[1]);
    let output = bench(directory.path(), &clients, &["--fio-json", "fio.json"]);
    assert!(output.status.success(), "{output:?}");
    let record = Record::read(&fs::read_to_string(directory.path().join("record.json")).unwrap()).unwrap();
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    let names: Vec<&str> = record.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, [&format!("127.0.0.1,{}", ports[0]), "second", "all clients"]);
    let all = record.route("all clients").expect("the sum of both");
    let parts = &all.workloads[0].clients;
    assert_eq!(parts.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), names[..2]);
    assert!(parts.iter().all(|it| it.ops > 0 && it.last_done_s.is_some() && it.lost.is_none()), "{parts:?}");
    assert!((parts.iter().map(|it| it.share).sum::<f64>() - 1.0).abs() < 1e-9, "{parts:?}");
    let ops = |route: &record::Route| -> u64 {
        let cells = route.workloads.iter().filter(|it| it.half() == Half::Raw).flat_map(|it| it.cells());
        cells.map(|(_, cell)| cell.ops).sum()
    };
    let each: u64 = record.routes.iter().filter(|route| route.name != "all clients").map(ops).sum();
    assert!(each > 0 && ops(all) == each, "{each} of all {}", ops(all));
    assert_eq!(parts.iter().map(|it| it.ops).sum::<u64>(), each);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("all clients clients: ") && table.contains("last done"), "{table}");
    // What fio printed is read again, and not overwritten.
    let shown = trunkline().args(["report", "fio.json"]).current_dir(directory.path()).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("all clients"), "{shown:?}");
    fs::remove_file(directory.path().join("record.json")).unwrap();
    let again = bench(directory.path(), &clients, &["--fio-json", "fio.json"]);
    let message = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && message.contains("fio.json"), "{message}");
}

#[test]
fn a_fio_server_that_is_not_there_and_options_that_fio_lacks_are_refused() {
    let directory = temp_dir("fio-servers");
    let missing = format!("fio:127.0.0.1:{}", free_port());
    let output = bench(directory.path(), &missing, &[]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("cannot run the job file by fio") && message.contains("fio --server"),
        "{message}"
    );
    assert!(!directory.path().join("record.json").exists(), "nothing half-written");
    for (clients, options, needle) in [
        (missing.as_str(), &["--runtime", "1s"][..], "--runtime does not go with fio:HOST"),
        (&missing, &["--metrics", "127.0.0.1:0"], "--metrics or --metrics-file does not go with fio:HOST"),
        (&missing, &["--quick"], "--quick does not go with fio:HOST"),
        (&missing, &["--engine", "ours"], "--engine does not go with fio:HOST"),
        (&missing, &["--client-key", "key"], "--client-key does not go with fio:HOST"),
        (&missing, &["--ssh", "ssh -p 2222"], "--ssh does not go with fio:HOST"),
        (&format!("{missing},host1"), &[], "other clients are not fio's"),
    ] {
        let output = bench(directory.path(), clients, options);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(needle), "{message}");
    }
}
