//! Tests the pages of `trunkline report` as people see them: wide and narrow, light, dark and on
//! paper, with a mouse, with a keyboard alone, and by what a screen reader is told.

use crate::look::{look, tab_reaches_all};
use record::{Record, Route, Step, Workload};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::{Browser, Process, TempDir, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(120);
const WIDE: (u32, u32) = (1400, 900);
const NARROW: (u32, u32) = (360, 740);

/// The record of RECORD.md, which has every field.
fn example() -> Record {
    let document = include_str!("../../../../docs/RECORD.md");
    let (_, after) = document.split_once("```json\n").expect("the document has an example");
    Record::read(after.split_once("\n```").expect("the example ends").0).expect("a record")
}

/// The example with two routes, of which one failed over, and with a step test of clients.
fn rich() -> Record {
    let mut record = example();
    record.failed.clear();
    let mut one = record.routes[0].clone();
    one.name = "tcp".into();
    one.workloads[0].paths[0].failovers = 14;
    one.workloads[0].paths[0].state = "down".into();
    record.routes.insert(0, one);
    for route in record.routes.iter_mut().filter(|route| route.skipped.is_none()) {
        let plain = Workload { step: None, clients: Vec::new(), ..route.workloads[0].clone() };
        route.workloads = [1, 2, 4].map(|clients| step(&plain, clients, &example())).into();
        route.workloads.push(plain);
    }
    record
}

/// A step whose speed hardly grows with the clients.
fn step(plain: &Workload, clients: u32, example: &Record) -> Workload {
    let mut workload = plain.clone();
    workload.step = Some(Step { series: "mix-1m".into(), clients, depth: 16, added: None });
    workload.name = format!("mix-1m x{clients}");
    workload.write = None;
    workload.clients = example.routes[0].workloads[0].clients.clone();
    if let Some(cell) = &mut workload.read {
        cell.repeats.iter_mut().for_each(|repeat| repeat.gbytes_per_s *= 1.0 + 0.1 * f64::from(clients));
    }
    workload
}

/// A record in which every text is long, or tries to be markup.
fn hostile() -> Record {
    let mut record = rich();
    let evil = format!("<script>console.error('run')</script><img src=x>`{}", "very-long-".repeat(40));
    record.fail(&evil);
    record.experiment.target.clone_from(&evil);
    record.options.insert(evil.clone(), evil.clone());
    for route in &mut record.routes {
        route.name = format!("{}{evil}", route.name);
        for workload in &mut route.workloads {
            workload.simulated = Some(evil.clone());
            workload.clients.iter_mut().for_each(|client| client.name.clone_from(&evil));
            workload.paths.iter_mut().for_each(|path| path.path.clone_from(&evil));
            workload.step.iter_mut().for_each(|step| step.series.clone_from(&evil));
        }
    }
    record.routes.push(Route::skipped("skipped", &evil));
    record
}

/// The pages that are looked at, each with its name.
struct Pages {
    directory: TempDir,
    files: Vec<PathBuf>,
}

impl Pages {
    /// Writes the pages with the program.
    fn write() -> Self {
        let directory = temp_dir("report-pages");
        let mut pages = Self { directory, files: Vec::new() };
        let mut old = example();
        for cell in old.routes[0].workloads.iter_mut().flat_map(|it| [&mut it.read, &mut it.write]).flatten()
        {
            (cell.latency_over_time, cell.throughput) = (None, None);
        }
        let before = pages.record("before", &rich());
        pages.page("rich", &[&before, "--published", "powerscale-f210", "--published", "sun-7410"]);
        let old = pages.record("old", &old);
        pages.page("failed-and-skipped", &[&old]);
        let hostile = pages.record("hostile", &hostile());
        pages.page("hostile", &[&hostile]);
        let after = pages.record("after", &rich());
        let condition = ["--medians", "--fail-if", "tcp.mix-1m.read < 0.9 * baseline"];
        pages.page("compared", &[&[before.as_str(), &after], &condition[..]].concat());
        pages.page("explained", &[&before, "--explain"]);
        pages
    }

    fn record(&self, name: &str, record: &Record) -> String {
        let file = self.directory.path().join(name).with_extension("json");
        std::fs::write(&file, record.write()).expect("a record");
        file.to_str().expect("UTF-8").to_owned()
    }

    fn page(&mut self, name: &str, arguments: &[&str]) {
        let file = self.directory.path().join(name).with_extension("html");
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.arg("report").arg("--html").arg(&file).args(arguments);
        let status = Process::spawn(command).wait(TIMEOUT);
        assert_eq!(status.code(), Some(0), "{name}");
        self.files.push(file);
    }
}

/// Opens every page in one way, and collects what is wrong with any.
fn look_at_all(size: (u32, u32), prepare: impl Fn(&mut Browser)) {
    let pages = Pages::write();
    let mut browser = Browser::start(size.0, size.1);
    let mut wrong = Vec::new();
    for file in &pages.files {
        prepare(&mut browser);
        let requested = browser.requests().len();
        browser.open_file(file);
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        wrong.extend(look(&mut browser).into_iter().map(|it| format!("{name}: {it}")));
        wrong.extend(browser.problems().iter().map(|it| format!("{name}: {it}")));
        let of_page = |url: &&String| !url.ends_with(&format!("{name}.html"));
        let requests = browser.requests().iter().skip(requested);
        wrong.extend(requests.filter(of_page).map(|url| format!("{name} asks for {url}")));
        browser.forget_problems();
    }
    assert!(wrong.is_empty(), "{size:?}: {wrong:#?}");
}

#[test]
fn wide_and_light_every_text_can_be_read_and_every_drawing_has_a_label() {
    look_at_all(WIDE, |browser| browser.prefer_dark(false));
}

#[test]
fn wide_and_dark_every_text_can_be_read() {
    look_at_all(WIDE, |browser| browser.prefer_dark(true));
}

#[test]
fn narrow_and_light_nothing_is_cut_off() {
    look_at_all(NARROW, |browser| browser.prefer_dark(false));
}

#[test]
fn narrow_and_dark_nothing_is_cut_off() {
    look_at_all(NARROW, |browser| browser.prefer_dark(true));
}

#[test]
fn on_paper_everything_is_unfolded_and_can_be_read() {
    let print = |browser: &mut Browser| {
        browser.call("Emulation.setEmulatedMedia", serde_json::json!({"media": "print"}));
    };
    look_at_all((794, 1123), print);
}

#[test]
fn every_control_is_reached_and_used_by_the_keyboard_alone() {
    let pages = Pages::write();
    let mut browser = Browser::start(WIDE.0, WIDE.1);
    browser.open_file(&pages.files[0]);
    // Those in closed details are not shown, and not reached.
    browser.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true; })");
    let count = tab_reaches_all(&mut browser);
    assert!(count > 20, "{count} controls");
    // A summary opens and closes by Enter.
    browser.evaluate("document.querySelector('nav summary').focus()");
    let is_open = "document.querySelector('nav details').open";
    assert_eq!(browser.evaluate(is_open), Value::Bool(true));
    browser.press("Enter");
    browser.wait_for("the contents to be closed", &format!("!{is_open}"));
    assert!(browser.problems().is_empty(), "{:#?}", browser.problems());
}

#[test]
fn the_checks_of_these_tests_find_what_is_wrong() {
    let directory = temp_dir("report-pages");
    let file = directory.path().join("wrong.html");
    let page = "<!doctype html><html><body style='background:#fff'><main>\
        <p style='color:#ccc'>pale</p><div style='width:3000px'>wide</div>\
        <svg role=img width=9 height=9></svg><svg width=9 height=9></svg>\
        <a href='#nowhere'>lost</a><b id=two>1</b><b id=two>2</b>\
        <div style='overflow:auto;width:50px'><div style='width:90px'>x</div></div>\
        <a href='#two'></a><input id=unnamed><label for=named>n</label><input id=named><h3>deep</h3>\
        <table><tr><td>no head</td></tr></table></main></body></html>";
    std::fs::write(&file, page).expect("a page");
    let mut browser = Browser::start(WIDE.0, WIDE.1);
    browser.open_file(Path::new(&file));
    let wrong = look(&mut browser).join("\n");
    for part in [
        "contrast 1.6",
        "wider than the window",
        "a drawing without a label",
        "a drawing that is neither labelled nor hidden",
        "#nowhere leads nowhere",
        "the id two is there 2 times",
        "cannot be scrolled by the keyboard",
        "a table without headings",
        "no name of <a ",
        "no name of <input ",
        "a heading of level 3 after level 0",
        "no heading of level 1",
        "no language",
        "no title",
    ] {
        assert!(wrong.contains(part), "{part} is not in\n{wrong}");
    }
    assert_eq!(wrong.matches("no name of <input ").count(), 1, "the other one has a label");
}
