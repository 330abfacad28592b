//! Makes the pictures of the documents: a report, `trunkline top` and the web page, of an embedded
//! group under load, and the steps of kept records. `cargo xtask pictures` puts them into
//! docs/pictures; without a directory they are made and thrown away.

#[path = "pictures/terminal.rs"]
mod terminal;

use client::Mount;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use terminal::Terminal;
use testkit::server_process::{configuration, write_configuration};
use testkit::{Browser, Process, ServerProcess, Stream, TempDir, temp_dir};

/// The variable with the directory for the pictures.
const DIRECTORY: &str = "TRUNKLINE_PICTURES";
/// A page of the project shows all of them: they must load fast.
const PICTURE_BYTES_MAX: u64 = 200_000;
const TIMEOUT: Duration = Duration::from_secs(120);

/// Where a picture goes: a directory that was asked for, or one that is removed.
struct Place {
    directory: PathBuf,
    _temporary: Option<TempDir>,
}

impl Place {
    fn new() -> Self {
        match std::env::var_os(DIRECTORY) {
            Some(directory) => Self { directory: directory.into(), _temporary: None },
            None => {
                let temporary = temp_dir("pictures");
                Self { directory: temporary.path().to_owned(), _temporary: Some(temporary) }
            }
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Checks a picture that has been made.
    fn check(&self, name: &str, begin: &[u8]) {
        let bytes = std::fs::read(self.file(name)).unwrap();
        assert!(bytes.starts_with(begin), "{name}");
        assert!(bytes.len() as u64 <= PICTURE_BYTES_MAX, "{name} has {} bytes", bytes.len());
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_trunkline"))
}

/// Clients that read and write through both nodes until this is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number: u32| {
            let ends = Arc::clone(&stop);
            std::thread::spawn(move || work(port, number, &ends))
        };
        Self { threads: (0..3).map(client).collect(), stop: Arc::clone(&stop) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A client that has failed is seen in the picture.
            let _ = thread.join();
        }
    }
}

/// One client: it reads and writes blocks of several sizes, now more and now less.
fn work(port: u16, number: u32, ends: &AtomicBool) {
    let node = 1 + number % 2;
    let url = format!("nfs://127.0.0.{node}:{port}/projects");
    let options = format!("nolock,localports=127.0.0.{}", 11 + number);
    let mount = Mount::connect(&url, &options).unwrap();
    let file = mount.create_file(format!("/result-{number}").as_bytes(), 0o644).unwrap();
    let sizes = [4 << 10, 64 << 10, 256 << 10];
    file.write_at(vec![7; 256 << 10], 0).wait().result.unwrap();
    for round in 0_usize.. {
        if ends.load(Ordering::Acquire) {
            return;
        }
        let size = sizes[(round / 16 + number as usize) % sizes.len()];
        let operation = match round % 4 {
            0 => file.write_at(vec![7; size], 0),
            _ => file.read_at(vec![0; size], 0),
        };
        operation.wait().result.unwrap();
        // A steady load is a dull picture.
        std::thread::sleep(Duration::from_micros(200 + (round as u64 / 400 % 5) * 400));
    }
}

#[test]
fn the_page_and_top_show_a_group_under_load() {
    let (place, files) = (Place::new(), temp_dir("pictures"));
    let config = files.path().join("group.toml");
    let data = files.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let store = format!("dir = {:?}\nstate = {:?}", data, files.path());
    let exports = [("/projects", store.as_str()), ("/scratch", "mem = \"64MiB\"")];
    let server = ServerProcess::start_on_free_port(program, |port| {
        let mut arguments = write_configuration(&config, &configuration(2, port, &exports));
        arguments.extend(["--metrics".to_owned(), "127.0.0.1:0".to_owned()]);
        arguments
    });
    let _load = Load::start(server.port());
    let page = metrics_address(&server.process);
    let mut browser = Browser::start(1280, 1260);
    browser.open(&format!("{page}/?by=client"));
    let columns = "document.querySelectorAll('#operations .column').length > 60";
    browser.wait_for("a minute of history", columns);
    browser.wait_for("the clients", "document.querySelectorAll('#groups tbody tr').length >= 3");
    browser.screenshot_of_window(&place.file("page.png"));
    place.check("page.png", b"\x89PNG");
    let mut top = program();
    top.args(["top", &server.process.id().to_string(), "--by", "client,operation"]);
    let mut terminal = Terminal::start(&top, 24, 110);
    let is_curve = |character: &char| ('▁'..='█').contains(character);
    terminal.wait_for("half a minute of load", TIMEOUT, |screen| {
        screen.contains("READ") && screen.chars().filter(is_curve).count() > 30
    });
    std::fs::write(place.file("top.svg"), terminal.svg()).unwrap();
    place.check("top.svg", b"<svg");
}

/// The metrics address that a process has printed.
fn metrics_address(process: &Process) -> String {
    let out = process.output(Stream::Out);
    let line = out.lines().find_map(|line| line.strip_prefix("metrics on ")).expect("it has one");
    line.trim_end_matches("/metrics").to_owned()
}

#[test]
fn the_report_shows_routes_side_by_side() {
    let (place, files) = (Place::new(), temp_dir("pictures"));
    let experiment = files.path().join("experiment.toml");
    let text = "repeats = 8\nwindow_ms = 300\npace = \"1Gbit/s\"\n[target]\nnodes = 4\n\
        [[route]]\nname = \"tcp\"\noptions = \"nconnect=8\"\n\
        [[route]]\nname = \"tcp-mp\"\noptions = \"nconnect=8,remoteports=127.0.0.1-127.0.0.4\"\n\
        [[workload]]\nname = \"mix-1m\"\nblock = \"1MiB\"\ndepth = 2\nreaders = 8\nwriters = 8\nfile = \"8MiB\"\n";
    std::fs::write(&experiment, text).unwrap();
    let record = files.path().join("record.json");
    let mut bench = program();
    bench.arg("bench").args([&experiment, Path::new("--record"), &record]);
    let mut bench = Process::spawn(bench);
    bench.wait(TIMEOUT);
    let mut browser = Browser::start(1280, 1000);
    browser.open_file(&record.with_extension("html"));
    browser.evaluate("document.querySelector('details').open = false; scrollTo(0, 0)");
    browser.screenshot_of_window(&place.file("report.png"));
    place.check("report.png", b"\x89PNG");
}

/// What is seen of a report.
enum Shown {
    /// What is below the last heading with this in its id.
    Below(&'static str),
    /// The same without the evidence, which is longer than all figures.
    Figures(&'static str),
    /// The charts of all step tests, of which there are this many.
    Steps(u64),
}

/// The records of docs/results that EXPERIMENTS.md shows, what of their reports is seen, and the
/// names of their pictures.
const RECORDS: [(&str, Shown, &str); 4] = [
    ("2026-11-28-lab-clients.json", Shown::Steps(4), "clients.png"),
    ("2026-11-26-lab-step-test.json", Shown::Below("steps"), "step-test.png"),
    ("2026-11-27-lab-rdma.json", Shown::Steps(4), "tcp-against-rdma.png"),
    ("2026-11-27-lab-four-routes.json", Shown::Figures("-workload-1"), "four-routes.png"),
];

/// Takes the evidence away from what binds.
const WITHOUT_EVIDENCE: &str =
    "document.querySelectorAll('[data-label=\"binds\"] small').forEach(it => it.remove())";

/// Leaves only the charts of the step tests, two beside each other; the number of charts.
const ONLY_STEPS: &str = "(() => { \
    const sections = [...document.querySelectorAll('h2[id*=\"-steps-\"]')].map(it => it.closest('section')); \
    const main = document.querySelector('main'); \
    main.replaceChildren(); \
    main.style.cssText = 'display: grid; grid-template-columns: 1fr 1fr; gap: 1rem 2rem; padding: 1rem'; \
    for (const section of sections) { \
        const [cell, heading] = [document.createElement('section'), section.querySelector('h2')]; \
        heading.style.margin = '0 0 0.3rem'; \
        cell.append(heading, section.querySelector('.chart')); \
        main.append(cell); \
    } \
    return main.querySelectorAll('section > .chart > svg').length; })()";

#[test]
fn kept_records_are_shown_by_reports() {
    let (place, files) = (Place::new(), temp_dir("pictures"));
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    for (record, shown, name) in RECORDS {
        let page = files.path().join(record).with_extension("html");
        let mut report = program();
        report.arg("report").arg(results.join(record)).arg("--html").arg(&page);
        let output = report.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let height = if matches!(shown, Shown::Figures(_)) { 940 } else { 640 };
        let mut browser = Browser::start(1280, height);
        browser.open_file(&page);
        match shown {
            Shown::Below(heading) | Shown::Figures(heading) => {
                let last = format!("[...document.querySelectorAll('[id*=\"{heading}\"]')].at(-1)");
                browser.wait_for(heading, &format!("{last} != null"));
                if matches!(shown, Shown::Figures(_)) {
                    browser.evaluate(WITHOUT_EVIDENCE);
                }
                browser.evaluate(&format!("{last}.scrollIntoView()"));
                browser.screenshot_of_window(&place.file(name));
            }
            Shown::Steps(count) => {
                assert_eq!(browser.evaluate(ONLY_STEPS), count, "{record}");
                browser.screenshot(&place.file(name));
            }
        }
        place.check(name, b"\x89PNG");
    }
}
