//! Tests the examples for Prometheus and Grafana in docs/examples on a real Prometheus that scrapes
//! a running group and a mount. Needs root and FUSE; `cargo xtask test` runs these tests, plain
//! `cargo test` does not.

#[path = "support/watched_mount.rs"]
mod watched_mount;

use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Deadline, Process, require_program, temp_dir};
use watched_mount::WatchedMount;

const TIMEOUT: Duration = Duration::from_secs(120);

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(name)
}

/// Runs `promtool` with these arguments and this input, which must succeed.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(require_program("promtool"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}\n{input}");
    said
}

/// What a process answers Prometheus.
fn metrics(address: &str) -> Option<String> {
    let answer = ureq::get(format!("http://{address}/metrics")).call();
    answer.ok()?.body_mut().read_to_string().ok()
}

#[test]
fn the_rules_are_rules() {
    let said = promtool(&["check", "rules", example("alerts.yml").to_str().unwrap()], "");
    assert!(said.contains("rules found"), "{said}");
}

/// The checker finds text that is none, and names that are against Prometheus's rules.
#[test]
fn the_metrics_of_a_server_a_mount_and_a_bench_are_as_prometheus_wants_them() {
    let mounted = WatchedMount::start();
    std::fs::write(mounted.directory.join("f"), vec![1; 1 << 20]).unwrap();
    assert_eq!(std::fs::read(mounted.directory.join("f")).unwrap().len(), 1 << 20);
    let directory = temp_dir("prometheus");
    let experiment = "repeats = 1\nwindow_ms = 600_000\ndirect = false\ntarget.nodes = 2\ntarget.mem = \"64MiB\"\n\
         [[route]]\nname = \"group\"\noptions = \"nconnect=2,remoteports=127.0.0.1-127.0.0.2\"\n\
         [[workload]]\nname = \"mix\"\nblock = \"4KiB\"\ndepth = 1\nreaders = 1\nwriters = 1\nfile = \"1MiB\"\n";
    std::fs::write(directory.path().join("mix.toml"), experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["bench", "mix.toml", "--no-report", "--metrics", "127.0.0.1:0"]);
    let mut bench = Process::spawn({
        command.current_dir(directory.path());
        command
    });
    let line = bench.wait_for_line("metrics on http://", TIMEOUT);
    let of_bench = line.trim().trim_start_matches("metrics on http://").trim_end_matches("/metrics");
    for address in [mounted.nodes[0].metrics.as_str(), &mounted.metrics, of_bench] {
        let text = Deadline::wait_until(&format!("operations at {address}"), TIMEOUT, || {
            metrics(address).filter(|text| text.contains("trunkline_operation_duration_seconds_bucket{"))
        });
        promtool(&["check", "metrics"], &text);
    }
    bench.signal(Signal::TERM);
    assert_eq!(bench.wait(TIMEOUT).code(), Some(143), "{}", bench.all_output());
}

/// A Prometheus that scrapes these addresses every second.
struct Prometheus {
    _process: Process,
    address: String,
    _directory: testkit::TempDir,
}

impl Prometheus {
    fn start(targets: &[&str]) -> Self {
        let directory = temp_dir("prometheus");
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{:?}]\n\
             scrape_configs: [{{job_name: trunkline, static_configs: [{{targets: {targets:?}}}]}}]\n",
            example("alerts.yml").canonicalize().unwrap()
        );
        let file = directory.path().join("prometheus.yml");
        std::fs::write(&file, configuration).unwrap();
        let address = format!("127.0.0.1:{}", testkit::free_port());
        let mut command = Command::new(require_program("prometheus"));
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let process = Process::spawn(command);
        process.wait_for_line("ready to receive web requests", TIMEOUT);
        Self { _process: process, address, _directory: directory }
    }

    /// The data of an answer of the API.
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let mut request = ureq::get(format!("http://{}/api/v1/{path}", self.address));
        for (name, value) in query {
            request = request.query(name, value);
        }
        let text = request.call().and_then(|mut answer| answer.body_mut().read_to_string());
        let text = text.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if answer["status"] == "success" { Ok(answer["data"].clone()) } else { Err(text) }
    }

    /// The number of series that a query has.
    fn series(&self, query: &str) -> Result<usize, String> {
        let data = self.get("query", &[("query", query)])?;
        Ok(data["result"].as_array().map_or(0, Vec::len))
    }
}

/// The queries of the board, with a value for each variable.
fn queries() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(example("grafana-trunkline.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let of = |panel: &Value| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().unwrap().clone();
        targets.into_iter().map(move |target| {
            let query = target["expr"].as_str().unwrap();
            (title.clone(), query.replace("$__rate_interval", "20s").replace("$instance", ".*"))
        })
    };
    let variables = board["templating"]["list"].as_array().unwrap().iter();
    // `label_values(SERIES, LABEL)` is Grafana's: the values that a label has.
    let of_variable = |variable: &Value| {
        let query = variable["query"]["query"].as_str()?;
        let inside = query.strip_prefix("label_values(")?.strip_suffix(')')?;
        let (series, label) = inside.rsplit_once(", ")?;
        let name = variable["name"].as_str()?;
        Some((format!("the variable {name}"), format!("group by ({label}) ({series}{{{label}!=\"\"}})")))
    };
    let variables: Vec<_> = variables
        .filter(|one| one["type"] == "query")
        .map(|one| of_variable(one).expect("a query"))
        .collect();
    assert!(!variables.is_empty(), "the board chooses processes");
    panels.iter().flat_map(of).chain(variables).collect()
}

#[test]
fn every_query_of_the_board_has_series_and_a_dead_path_is_an_alert() {
    let mut mounted = WatchedMount::start();
    let stop = Arc::new(AtomicBool::new(false));
    let (ends, directory) = (Arc::clone(&stop), mounted.directory.clone());
    let load = std::thread::spawn(move || {
        for number in 0_u64.. {
            if ends.load(Ordering::Acquire) {
                return;
            }
            let file = directory.join(format!("f{}", number % 8));
            std::fs::write(&file, vec![1; 1 << 18]).unwrap();
            assert_eq!(std::fs::read(&file).unwrap().len(), 1 << 18);
        }
    });
    let targets =
        [mounted.metrics.clone(), mounted.nodes[0].metrics.clone(), mounted.nodes[1].metrics.clone()];
    let prometheus = Prometheus::start(&targets.each_ref().map(String::as_str));
    let queries = queries();
    assert!(queries.len() >= 10, "{queries:?}");
    for (title, query) in &queries {
        Deadline::wait_until(&format!("series of {title}: {query}"), TIMEOUT, || {
            prometheus.series(query).unwrap_or_else(|error| panic!("{title}: {error}")).gt(&0).then_some(())
        });
    }
    let rules = prometheus.get("rules", &[]).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.iter().all(|rule| rule["lastError"].as_str().unwrap_or_default().is_empty()), "{rules:?}");
    let is_alert = |name: &str, alerts: &Value| {
        alerts["alerts"].as_array().unwrap().iter().any(|alert| alert["labels"]["alertname"] == name)
    };
    let before = prometheus.get("alerts", &[]).unwrap();
    assert!(!is_alert("TrunklinePathDead", &before) && !is_alert("TrunklineDown", &before), "{before}");
    mounted.kill_node();
    for name in ["TrunklinePathDead", "TrunklineDown"] {
        Deadline::wait_until(name, TIMEOUT, || {
            is_alert(name, &prometheus.get("alerts", &[]).ok()?).then_some(())
        });
    }
    stop.store(true, Ordering::Release);
    load.join().unwrap();
    mounted.restart_node();
}
