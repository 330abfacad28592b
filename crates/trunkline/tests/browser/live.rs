//! Tests the page of the metrics address, as a person uses it under load.

use crate::look::{look, tab_reaches_all};
use crate::watched_mount::{NODE, WatchedMount};
use client::Mount;
use lab::net::{Net, Spec};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::server_process::{configuration, write_configuration};
use testkit::{Browser, Deadline, Process, ServerProcess, Stream, TempDir, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(120);
const BLOCK: usize = 64 << 10;
/// An export whose name would run a script if the page took it for HTML.
const HOSTILE: &str = "/<img src=x onerror=alert(1)>";
/// The second client.
const CLIENT: &str = "127.0.0.7";

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_trunkline"))
}

/// The metrics address that a process has printed.
fn metrics_address(process: &Process) -> String {
    let out = process.output(Stream::Out);
    let line = out.lines().find_map(|line| line.strip_prefix("metrics on ")).expect("it has one");
    line.trim_end_matches("/metrics").to_owned()
}

/// Two nodes in one process, with a metrics address.
struct Served {
    server: ServerProcess,
    page: String,
    _directory: TempDir,
}

impl Served {
    fn start() -> Self {
        let directory = temp_dir("page");
        let file = directory.path().join("group.toml");
        let exports = [("/export", "mem = \"256MiB\""), (HOSTILE, "mem = \"16MiB\"")];
        let arguments = |port| {
            let mut arguments = write_configuration(&file, &configuration(2, port, &exports));
            arguments.extend(["--metrics".to_owned(), "127.0.0.1:0".to_owned()]);
            arguments
        };
        let server = ServerProcess::start_on_free_port(program, arguments);
        let page = metrics_address(&server.process);
        Self { server, page, _directory: directory }
    }

    fn url(&self, node: &str, export: &str) -> String {
        format!("nfs://{node}:{}{export}", self.server.port())
    }
}

/// A client that reads or writes one block after the other until it is dropped.
struct Load {
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn start(url: String, options: String, is_reader: bool) -> Self {
        let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, ends) = (Arc::clone(&done), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mount = Mount::connect(&url, &options).unwrap();
            let file = mount.create_file(if is_reader { b"/read" } else { b"/write" }, 0o644).unwrap();
            file.write_at(vec![7; BLOCK], 0).wait().result.unwrap();
            while !ends.load(Ordering::Acquire) {
                if is_reader {
                    file.read_at(vec![0; BLOCK], 0).wait().result.unwrap();
                } else {
                    file.write_at(vec![7; BLOCK], 0).wait().result.unwrap();
                }
                count.fetch_add(1, Ordering::Release);
            }
        });
        Self { done, stop, thread: Some(thread) }
    }

    /// Ends the load, and returns how many blocks were read or written.
    fn finish(&mut self) -> u64 {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.done.load(Ordering::Acquire)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn no_problems(browser: &Browser) {
    assert!(browser.problems().is_empty(), "{:#?}", browser.problems());
}

/// The end of the time that is shown, in milliseconds since 1970.
fn end(browser: &mut Browser) -> u64 {
    let end = browser.text("document.querySelector('.end time').dataset.ms");
    end.parse().unwrap_or_else(|_| panic!("{end:?}"))
}

/// Whether the page shows the time until this one.
fn ends_after(ms: &Value) -> String {
    format!("Number(document.querySelector('.end time').dataset.ms) >= {ms}")
}

/// A file that a click on a link of the page saves.
fn export(browser: &mut Browser, directory: &Path, format: &str) -> String {
    browser.click(&format!("a[download][href*='format={format}']"));
    browser.wait_for_download();
    let mut files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|file| file.extension().is_some_and(|ending| ending == format)).unwrap();
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.starts_with("trunkline-serve-"), "{name}");
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn clicks_lead_to_the_reads_of_one_client_on_one_node_and_the_figures_are_those_of_the_load() {
    let served = Served::start();
    let options = format!("nolock,localports={CLIENT}");
    let mut reads = Load::start(served.url(NODE, "/export"), options, true);
    let mut writes = Load::start(served.url("127.0.0.1", "/export"), "nolock".to_owned(), false);
    let mut browser = Browser::start(1400, 1000);
    let downloads = temp_dir("downloads");
    browser.save_downloads(downloads.path());
    browser.open(&served.page);
    // The script brings the second that has the load.
    for (link, next) in
        [("/?by=client&node=node2", "client"), ("/?by=operation&node=node2&client=127.0.0.7", "operation")]
    {
        browser.click(&format!("#groups a[href='{link}']"));
        let by = format!("document.querySelector('#groups thead th').textContent === '{next}'");
        browser.wait_for(link, &by);
        assert!(browser.text("location.search").ends_with(link.trim_start_matches('/')));
    }
    browser.click("#groups a[href*='operation=READ']");
    browser.wait_for("the reads", "document.querySelectorAll('.crumbs li').length === 4");
    let median = browser.text("document.querySelector('#groups tfoot td:nth-of-type(5)').textContent");
    assert!(median.ends_with("us") || median.ends_with("ms"), "{median}");
    browser.wait_for("a heat map", "document.querySelector('#latency .h8').getBBox().width > 0");
    let (read, written) = (reads.finish(), writes.finish());
    assert!(read > 0 && written > 0, "{read} {written}");
    // The last second with reads has to be over, and on the page.
    let whole = format!(
        "fetch('/history' + location.search).then(answer => answer.json()).then(history => \
         history.groups.reduce((sum, group) => sum + group.total.count, 0) >= {read} && history.until_unix_ms)"
    );
    let complete = browser.wait_for("all reads", &whole);
    browser.wait_for("them on the page", &ends_after(&complete));
    browser.click("#pause");
    browser.wait_for("the pause", "document.getElementById('live') !== null");
    let json: Value = serde_json::from_str(&export(&mut browser, downloads.path(), "json")).unwrap();
    assert_eq!(json["groups"][0]["total"]["count"], read);
    let points = json["groups"][0]["count"].as_array().unwrap().iter().filter_map(Value::as_u64);
    assert_eq!(points.sum::<u64>(), read);
    let csv = export(&mut browser, downloads.path(), "csv");
    let sum: f64 = csv.lines().skip(1).filter(|line| line.contains(",all,")).map(of_csv).sum();
    assert!((sum - read as f64).abs() < 1.0, "{sum} of {read}:\n{csv}");
    let html = export(&mut browser, downloads.path(), "html");
    assert!(html.contains("node node2, client 127.0.0.7, operation READ"), "{html}");
    // Back to all by the first crumb.
    browser.click(".crumbs li:first-child a");
    browser.wait_for("all nodes", "document.querySelectorAll('#groups tbody tr').length === 2");
    no_problems(&browser);
    let file = downloads.path().join("kept.html");
    std::fs::write(&file, html).unwrap();
    let before = browser.requests().len();
    browser.open_file(&file);
    assert_eq!(browser.requests().len(), before + 1, "the file needs nothing else");
    no_problems(&browser);
}

/// Operations of a line: per second, times seconds.
fn of_csv(line: &str) -> f64 {
    let fields: Vec<_> = line.split(',').collect();
    let number = |index: usize| fields[index].parse::<f64>().unwrap();
    number(2) * number(4)
}

#[test]
fn time_is_paused_scrolled_and_live_again_also_by_keys() {
    let served = Served::start();
    let _load = Load::start(served.url(NODE, "/export"), "nolock".to_owned(), true);
    let mut browser = Browser::start(1000, 800);
    browser.open(&served.page);
    let first = end(&mut browser);
    let moved = |at| format!("Number(document.querySelector('.end time').dataset.ms) > {at}");
    browser.wait_for("the next seconds", &moved(first + 3_000));
    // The first page may be older than the first second that is kept, and the first seconds older
    // than the load. A step of the slider may leave out two seconds, as seconds are not that exact.
    let with_load = "[...document.querySelectorAll('#operations .column title')]\
        .filter(title => title.textContent.includes('node2')).length";
    browser.wait_for("some seconds with load", &format!("{with_load} > 5"));
    browser.click("#pause");
    browser.wait_for("the pause", "document.getElementById('status').textContent === 'Paused'");
    let paused = end(&mut browser);
    // The process goes on, and the page does not.
    let newest = "fetch('/history').then(answer => answer.json()).then(it => it.until_unix_ms)";
    browser.wait_for("two more seconds", &format!("{newest}.then(ms => ms > {})", paused + 2_000));
    assert_eq!(end(&mut browser), paused);
    // The slider goes back a second with each key.
    browser.evaluate("document.getElementById('scroll').focus()");
    browser.press("ArrowLeft");
    let earlier = format!("Number(document.querySelector('.end time').dataset.ms) < {paused}");
    browser.wait_for("an earlier time", &earlier);
    assert_eq!(browser.text("document.activeElement.id"), "scroll");
    // A panel is read second by second. The mouse must not point at one meanwhile.
    let away = serde_json::json!({"type": "mouseMoved", "x": 0, "y": 0});
    browser.call("Input.dispatchMouseEvent", away);
    browser.evaluate("document.querySelector('#operations .plot').focus()");
    browser.press("End");
    let said = browser.text("document.getElementById('readout').textContent");
    let column = browser.text("[...document.querySelectorAll('#operations .column')].at(-1).textContent");
    // The time is local.
    let (_, figures) = column.split_once(" UTC: ").unwrap_or_else(|| panic!("{column:?}"));
    assert!(said.ends_with(figures), "{said:?}, and the last second was {column:?}");
    let at = |panel: &str| format!("Number(document.querySelector('#{panel} .column.at').dataset.ms)");
    let last = browser.evaluate(&at("operations"));
    browser.press("ArrowLeft");
    let before = browser.evaluate(&at("operations"));
    let all = "[...document.querySelectorAll('#operations .column')].map(one => one.dataset.ms).join(' ')";
    let (all, focus) = (browser.text(all), browser.text("document.activeElement.outerHTML.slice(0, 200)"));
    assert!(before.as_u64() < last.as_u64(), "{before} {last} of {all}; the focus is on {focus}");
    assert_eq!(browser.evaluate(&at("latency")), before);
    browser.press("p");
    browser.wait_for("live again", &moved(paused + 1_000));
    no_problems(&browser);
}

/// Looks at the page that is open, wide and narrow, light and dark.
fn look_in_all_ways(browser: &mut Browser) {
    for (width, is_dark) in [(1600, false), (1600, true), (360, false), (360, true)] {
        browser.resize(width, 900);
        browser.prefer_dark(is_dark);
        let wrong = look(browser);
        assert!(wrong.is_empty(), "{width} pixels, dark: {is_dark}: {wrong:#?}");
    }
    browser.prefer_dark(false);
    browser.resize(1600, 900);
}

#[test]
fn every_text_can_be_read_every_control_has_a_name_and_is_reached_by_the_keyboard() {
    let served = Served::start();
    let _load = Load::start(served.url(NODE, "/export"), "nolock".to_owned(), true);
    let mut browser = Browser::start(1600, 900);
    for by in ["operation", "client", "file"] {
        browser.open(&format!("{}/?by={by}", served.page));
        browser.wait_for("some lines", "document.querySelectorAll('#groups tbody tr').length > 0");
        look_in_all_ways(&mut browser);
    }
    browser.open(&format!("{}/?by=client&node=node2", served.page));
    browser.wait_for("some seconds", "document.querySelectorAll('#operations .column').length > 3");
    browser.click("#pause");
    browser.wait_for("the pause", "document.getElementById('status').textContent === 'Paused'");
    // A page that stands still keeps its elements, and with them what is marked on them.
    browser.wait_for("the paused page", "document.getElementById('live') !== null");
    look_in_all_ways(&mut browser);
    // From the top of the page on, wherever the click has left the focus.
    browser.evaluate("document.body.tabIndex = -1; document.body.focus(); scrollTo(0, 0)");
    let count = tab_reaches_all(&mut browser);
    assert!(count > 20, "{count} controls");
    no_problems(&browser);
}

#[test]
fn the_paths_of_a_mount_can_be_read_and_keep_the_focus() {
    let mounted = WatchedMount::start();
    let writes = Writes::start(mounted.directory.clone());
    let mut browser = Browser::start(1600, 900);
    browser.open(&format!("http://{}/", mounted.metrics));
    wait_for_both_paths(&mut browser);
    look_in_all_ways(&mut browser);
    // The picture is renewed twice a second, the panels once.
    browser.evaluate(
        "document.getElementById('paths-wide').focus(); document.getElementById('paths').dataset.old = 'yes'",
    );
    browser.wait_for("a new picture", "document.getElementById('paths').dataset.old !== 'yes'");
    assert_eq!(browser.text("document.activeElement.id"), "paths-wide");
    mounted.silence_node(true);
    browser.wait_for("the path in red", RED);
    look_in_all_ways(&mut browser);
    mounted.silence_node(false);
    assert!(writes.finish() > 0);
    no_problems(&browser);
}

#[test]
fn files_are_counted_while_the_page_shows_them() {
    let served = Served::start();
    let _load = Load::start(served.url(NODE, "/export"), "nolock".to_owned(), true);
    let mut browser = Browser::start(1000, 800);
    browser.open(&served.page);
    browser.click(".choice a[href='/?by=file']");
    let first =
        "document.querySelector('#groups tbody th')?.textContent.trim().startsWith('/export, fileid ')";
    browser.wait_for("the file", first);
    browser.wait_for("its reads", "document.querySelector('#groups tbody td').textContent !== '0'");
    let columns = "[...document.querySelectorAll('#operations .column title')]\
        .filter(title => title.textContent.includes('/export, fileid ')).length";
    browser.wait_for("the file in several seconds", &format!("{columns} >= 3"));
    let caption = browser.text("document.querySelector('#groups caption').textContent");
    assert!(caption.starts_with("By file, over those "), "{caption}");
    no_problems(&browser);
    browser.click("#pause");
    browser.wait_for("the past, which has the file too", &format!("{columns} >= 3 && {first}"));
    assert_eq!(
        browser.evaluate("document.querySelector('#operations path.c0').getAttribute('d').length > 0"),
        true
    );
    no_problems(&browser);
    // What happened while nobody looked is a gap.
    browser.open(&format!("{}/?by=operation", served.page));
    browser.wait_for("the operations", "document.querySelectorAll('#operations path.c0').length === 1");
    assert!(!browser.text("document.querySelector('.sheet').textContent").contains("By file"));
}

#[test]
fn hostile_names_are_text_and_the_page_works_without_scripts_and_network() {
    let served = Served::start();
    let mut load = Load::start(served.url(NODE, HOSTILE), "nolock".to_owned(), true);
    let mut browser = Browser::start(500, 900);
    browser.prefer_dark(true);
    browser.open(&format!("{}/?by=export", served.page));
    let name = format!(
        "[...document.querySelectorAll('#groups a')].some(a => a.textContent === {})",
        Value::from(HOSTILE)
    );
    browser.wait_for("the name as text", &name);
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length"), 0);
    // Only the table may be wider than a narrow window.
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
    let others: Vec<_> = browser.requests().iter().filter(|url| !url.starts_with(&served.page)).collect();
    assert!(others.is_empty(), "{others:?}");
    no_problems(&browser);
    load.finish();
    browser.forbid_scripts(true);
    browser.open(&format!("{}/?by=export", served.page));
    browser.click("#groups tbody tr:first-child a");
    browser.wait_for("the part", "document.querySelectorAll('.crumbs li').length === 2");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('#operations .shape, #operations path').length > 1"),
        true
    );
    no_problems(&browser);
}

#[test]
fn other_hosts_need_the_token_and_a_form_takes_it() {
    const TOKEN: &str = "0123456789abcdef0123";
    let net = Net::start(&Spec { rate: None, ..Spec::new(1, "1gbit".parse().unwrap()) });
    let net = net.unwrap_or_else(|error| panic!("cannot start a lab: {error}"));
    let directory = temp_dir("page");
    let file = directory.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let node = net.links()[0].node;
    let metrics = SocketAddr::from((node, 9100)).to_string();
    let listen = SocketAddr::from((node, 2049)).to_string();
    let token = file.display().to_string();
    let arguments = ["--mem", "16MiB", "--listen", &listen, "--metrics", &metrics, "--metrics-token", &token];
    let _server = ServerProcess::start(net.exec_in("nodes", &program()).unwrap(), &arguments);
    let name = net.exec_in("client", &Command::new("true")).unwrap();
    let name = name.get_args().nth(2).unwrap().to_string_lossy().into_owned();
    let namespace = std::fs::File::open(format!("/run/netns/{name}")).unwrap();
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    let mut browser = Browser::start_by(|command| net.exec_in("client", &command).unwrap(), 800, 600);
    let page = format!("http://{metrics}/");
    browser.open(&format!("{page}?by=operation&node=a%26b"));
    assert_eq!(browser.evaluate("document.getElementById('groups') === null"), true);
    assert_eq!(look(&mut browser), [] as [String; 0], "the form");
    assert_eq!(browser.evaluate("fetch('/history').then(answer => answer.status)"), 401);
    assert_eq!(browser.evaluate("fetch('/health').then(answer => answer.status)"), 200);
    for (shown, then) in [("wrong-wrong-wrong-1", "[role=alert]"), (TOKEN, "#groups")] {
        // A page that has just come may lose what is typed.
        Deadline::wait_until("the field to have the text", TIMEOUT, || {
            browser.evaluate("document.getElementById('token').value = ''");
            browser.click("#token");
            browser.type_text(shown);
            (browser.text("document.getElementById('token').value") == shown).then_some(())
        });
        browser.press("Enter");
        browser.wait_for(then, &format!("document.querySelector({}) !== null", Value::from(then)));
    }
    assert_eq!(browser.evaluate("document.cookie"), "", "scripts do not see the cookie");
    assert_eq!(browser.text("location.search"), "?by=operation&node=a%26b", "what was asked for");
    browser.evaluate("fetch('/history').then(answer => answer.json())");
    // One host that opens many connections leaves room for others.
    let address: SocketAddr = metrics.parse().unwrap();
    let mut held: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    let is_closed = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        matches!(stream.read(&mut [0]), Ok(0)) || stream.write_all(b"x").is_err()
    };
    Deadline::wait_until("most to be closed", TIMEOUT, || {
        held.retain_mut(|stream| !is_closed(stream));
        // All of them would be closed after ten seconds, because they ask for nothing.
        (1..=16).contains(&held.len()).then_some(())
    });
    let mut top = net.exec_in("nodes", &program()).unwrap();
    let top = top.args(["top", &metrics, "--batch", "0"]).output().unwrap();
    assert!(top.status.success(), "{top:?}");
    drop(held);
    // When the session is over, the page that is open brings the form.
    browser.call("Network.clearBrowserCookies", serde_json::json!({}));
    browser.wait_for("the form", "document.getElementById('token') !== null");
    // A link with the token leaves no token behind.
    browser.open(&format!("{page}?by=client&token={TOKEN}"));
    assert_eq!(browser.text("location.href"), format!("{page}?by=client"));
    // The browser says which answers were 401, as it should; nothing else is wrong.
    let others: Vec<_> = browser.problems().iter().filter(|problem| !problem.contains("401")).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn a_killed_node_turns_its_path_red_and_back() {
    let mut mounted = WatchedMount::start();
    let writes = Writes::start(mounted.directory.clone());
    let mut browser = Browser::start(1400, 1000);
    browser.open(&format!("http://{}/", mounted.metrics));
    wait_for_both_paths(&mut browser);
    let killed = Instant::now();
    mounted.kill_node();
    browser.wait_for("the path in red", RED);
    println!("red {} ms after the kill", killed.elapsed().as_millis());
    // The program goes on over the other path.
    browser.wait_for(
        "a second in red over time",
        "document.querySelector('#path-states .down, #path-states .probing')",
    );
    let row = "[...document.querySelectorAll('#paths tbody tr')].find(row => row.textContent.includes('127.0.0.2'))";
    let said = browser.text(&format!("{row}.textContent"));
    assert!(said.contains("down") || said.contains("probing"), "{said}");
    mounted.restart_node();
    browser.wait_for("the path back", "document.querySelectorAll('#picture .edge.up').length === 2");
    // The other node sees the same from its side.
    browser.open(&format!("http://{}/", mounted.nodes[0].metrics));
    browser.wait_for(
        "the client",
        "document.querySelector('#picture .edge title').textContent.includes('127.0.0.1')",
    );
    assert!(writes.finish() > 0);
    no_problems(&browser);
}

/// The connection of a killed node is closed by the system; here nothing says that the node is
/// gone.
#[test]
fn a_silent_node_turns_its_path_red_and_each_second_says_so() {
    let mounted = WatchedMount::start();
    let writes = Writes::start(mounted.directory.clone());
    let mut browser = Browser::start(1400, 1000);
    browser.open(&format!("http://{}/", mounted.metrics));
    wait_for_both_paths(&mut browser);
    let silent = Instant::now();
    mounted.silence_node(true);
    browser.wait_for("the path in red", RED);
    println!("red {} ms after the silence began", silent.elapsed().as_millis());
    browser.wait_for(
        "a second in red over time",
        "document.querySelector('#path-states .down, #path-states .probing')",
    );
    // The seconds of the path: it was up, and in the next one it was not, with none left out.
    let states = "fetch('/history').then(answer => answer.json()).then(history => \
        history.paths.find(path => path.name.includes('127.0.0.2')).states)";
    let states = browser.wait_for("the seconds of the path", states);
    let states: Vec<&str> =
        states.as_array().unwrap().iter().map(|state| state.as_str().unwrap_or("")).collect();
    let first_up = states.iter().position(|state| *state == "up").unwrap();
    let known = &states[first_up..];
    assert!(known.iter().all(|state| ["up", "suspect", "probing", "down"].contains(state)), "{states:?}");
    let lost = known.iter().position(|state| ["probing", "down"].contains(state)).unwrap();
    assert!(known[lost..].iter().all(|state| *state != "up"), "it stays red: {states:?}");
    mounted.silence_node(false);
    browser.wait_for("the path back", "document.querySelectorAll('#picture .edge.up').length === 2");
    assert!(writes.finish() > 0);
    no_problems(&browser);
}

/// The path to the second node in red.
const RED: &str = "[...document.querySelectorAll('#picture .edge')].some(edge => \
    getComputedStyle(edge.querySelector('path')).stroke === 'rgb(192, 32, 32)' && \
    edge.textContent.includes('127.0.0.2'))";

fn wait_for_both_paths(browser: &mut Browser) {
    browser.wait_for("both paths", "document.querySelectorAll('#picture .edge.up').length === 2");
    browser.wait_for(
        "shares of both",
        "[...document.querySelectorAll('#picture .edge text')].every(\
        text => / [1-9][0-9.]* %/.test(text.textContent))",
    );
}

/// A program that writes files in a mounted directory.
struct Writes {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Writes {
    fn start(directory: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for number in 0_u64.. {
                if ends.load(Ordering::Acquire) {
                    return number;
                }
                std::fs::write(directory.join(format!("f{}", number % 8)), vec![1; 4 * BLOCK]).unwrap();
            }
            0
        });
        Self { stop, thread }
    }

    /// Ends it, and returns the number of files that were written.
    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}
