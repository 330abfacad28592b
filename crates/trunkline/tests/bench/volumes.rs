//! Routes to block volumes: those of a target that serves already, and what is refused.

use super::{bench, text};
use record::{Half, Record};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use testkit::Process;

/// A target that serves a file of this size at two addresses.
struct Served {
    directory: tempfile::TempDir,
    port: u16,
    nqn: String,
    _process: Process,
}

const WORKLOADS: &str = "repeats = 1\nwindow_ms = 100\n\
    [[workload]]\nname = 'read'\nblock = '64KiB'\ndepth = 4\nreaders = 2\nfile = '2MiB'\n\
    [[workload]]\nname = 'mixed'\nblock = '4KiB'\npattern = 'random'\ndepth = 4\nreaders = 1\nwriters = 2\nfile = '1MiB'\n\
    [[workload]]\nname = 'due'\nblock = '4KiB'\npattern = 'random'\ndepth = 4\nreaders = 1\nfile = '1MiB'\nrate = 1000\n";

impl Served {
    fn start(bytes: u64) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let image = directory.path().join("vm.img");
        // Every byte of it can be told from what a load writes.
        std::fs::write(&image, vec![0xa5; usize::try_from(bytes).unwrap()]).unwrap();
        let port = testkit::free_port();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        serve.args(["block", "serve", "--allow", "any", "--force", "--volume"]).arg(&image);
        serve.arg("--state").arg(directory.path().join("state"));
        for node in 1..=2 {
            serve.arg("--listen").arg(format!("127.0.0.{node}:{port}"));
        }
        let process = Process::spawn(serve);
        let subsystem = process.wait_for_line("subsystem ", Duration::from_secs(60));
        process.wait_for_line("ready", Duration::from_secs(60));
        let nqn = subsystem.split_whitespace().last().unwrap().to_owned();
        Self { directory, port, nqn, _process: process }
    }

    fn target(&self, options: &str) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{}{options}", self.port, self.nqn)
    }

    fn image(&self) -> Vec<u8> {
        std::fs::read(self.directory.path().join("vm.img")).unwrap()
    }

    /// Runs the workloads on routes with these targets.
    fn run(&self, targets: &[String]) -> (Output, Option<Record>) {
        let mut experiment = WORKLOADS.to_owned();
        for (index, target) in targets.iter().enumerate() {
            experiment += &format!("[[route]]\nname = 'route{index}'\ntarget = '{target}'\n");
        }
        run(self.directory.path(), &experiment)
    }
}

fn run(directory: &Path, experiment: &str) -> (Output, Option<Record>) {
    std::fs::write(directory.join("own.toml"), experiment).unwrap();
    let output = bench(directory, &["own.toml", "--record", "own.json", "--force"]);
    let record = std::fs::read_to_string(directory.join("own.json")).ok();
    (output, record.map(|record| Record::read(&record).unwrap()))
}

/// What a run said that ended with an error.
fn refusal((output, record): (Output, Option<Record>)) -> String {
    assert!(record.is_none() && !output.status.success());
    text(&output.stderr)
}

#[test]
fn a_volume_of_a_target_is_only_read_by_default() {
    let served = Served::start(16 << 20);
    let second = format!("?connect=127.0.0.2:{}&queues=1", served.port);
    let (output, record) = served.run(&[served.target(""), served.target(&second)]);
    let record = record.unwrap_or_else(|| panic!("{}", text(&output.stderr)));
    for (name, paths, connections) in [("route0", 1, 2), ("route1", 2, 2)] {
        let route = record.route(name).unwrap();
        assert_eq!((route.paths.len(), route.connections), (paths, Some(connections)), "{name}");
        let read = route.workload("read", Half::Raw).unwrap();
        assert!(read.read.as_ref().unwrap().ops > 0 && read.verified.is_none(), "{name}");
        assert!(read.note.as_ref().unwrap().contains("nothing is compared"), "{name}");
        assert!(route.workload("due", Half::Raw).unwrap().read.as_ref().unwrap().ops > 0, "{name}");
        let mixed = route.workload("mixed", Half::Raw).unwrap();
        assert!(mixed.skipped.as_ref().unwrap().contains("overwrite"), "{name}: {mixed:?}");
        assert!(mixed.read.is_none() && mixed.write.is_none(), "{name}");
    }
    let table = text(&output.stdout);
    assert!(table.contains("would destroy what is on the volume"), "{table}");
    assert!(served.image().iter().all(|byte| *byte == 0xa5), "nothing was written");
}

#[test]
fn the_built_in_workloads_read_a_volume_that_is_named_as_a_target() {
    let served = Served::start(640 << 20);
    let directory = served.directory.path();
    let arguments = ["--quick", "--repeats", "1", "--record", "own.json", &served.target("")];
    let output = bench(directory, &arguments);
    let record = std::fs::read_to_string(directory.join("own.json"));
    let record = record.unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let record = Record::read(&record).unwrap();
    let route = record.routes.first().unwrap();
    let names: Vec<&str> = route.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["read-1m", "randread-4k"]);
    assert!(route.workloads.iter().all(|workload| workload.read.as_ref().is_some_and(|cell| cell.ops > 0)));
}

#[test]
fn a_volume_that_may_be_overwritten_is_filled_and_compared() {
    let served = Served::start(16 << 20);
    let second = format!("?connect=127.0.0.2:{}&overwrite", served.port);
    let (output, record) = served.run(&[served.target("?overwrite&digests"), served.target(&second)]);
    let record = record.unwrap_or_else(|| panic!("{}", text(&output.stderr)));
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    for name in ["route0", "route1"] {
        let mixed = record.route(name).unwrap().workload("mixed", Half::Raw).unwrap();
        assert!(mixed.cells().count() == 2 && mixed.cells().all(|(_, cell)| cell.ops > 0), "{name}");
        let verified = mixed.verified.unwrap();
        assert!(verified.stamps > 0 && verified.bytes == 3 << 20 && verified.wrong == 0, "{verified:?}");
    }
    let image = served.image();
    assert!(image[..8 << 20].iter().filter(|byte| **byte == 0xa5).count() < 1 << 20, "it is filled");
    assert!(image[9 << 20..].iter().all(|byte| *byte == 0xa5), "nothing is written beyond the files");
}

#[test]
fn a_volume_that_is_smaller_than_the_files_is_refused() {
    let served = Served::start(4 << 20);
    for options in ["", "?overwrite"] {
        let said = refusal(served.run(&[served.target(options)]));
        assert!(said.contains("there is no room for the files") && said.contains("4194304"), "{said}");
    }
    assert!(served.image().iter().all(|byte| *byte == 0xa5), "nothing was written");
}

#[test]
fn a_namespace_that_is_not_there_is_refused_with_those_that_are() {
    let served = Served::start(4 << 20);
    let said = refusal(served.run(&[served.target("?namespace=7")]));
    assert!(said.contains("there is no namespace 7; the subsystem has [1]"), "{said}");
    let other = served.target("").replace(&served.nqn, "nqn.2026-11.test:another");
    let said = refusal(served.run(&[other]));
    assert!(said.contains("refuses") && said.contains("try:"), "{said}");
}

#[test]
fn an_address_where_nobody_listens_ends_the_run_whichever_path_it_is() {
    let served = Served::start(16 << 20);
    let dead = testkit::free_port();
    let first = format!("nvme-tcp://127.0.0.1:{dead}/{}", served.nqn);
    let second = served.target(&format!("?connect=127.0.0.1:{dead}"));
    for target in [first, second] {
        let said = refusal(served.run(std::slice::from_ref(&target)));
        let cause = format!("127.0.0.1:{dead}: cannot connect");
        assert!(said.contains(&cause) && said.contains("--connect ADDR:PORT"), "{target}: {said}");
    }
}

#[test]
fn what_is_no_volume_is_refused_before_anything_connects() {
    let directory = tempfile::tempdir().unwrap();
    for (target, cause) in [
        ("nvme-tcp://127.0.0.1/nqn.2026-11.test:a", "is no ADDR:PORT"),
        ("nvme-tcp://127.0.0.1:1/store", "store"),
        ("nvme-tcp://127.0.0.1:1/nqn.2026-11.test:a?nconnect=8", "is no option of a volume"),
        ("volume:4", "behind a ?"),
        ("volume:?overwrite", "is no option of a volume"),
    ] {
        let output = bench(directory.path(), &["--quick", target]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(cause), "{target}: {said}");
        let experiment = format!("[[route]]\nname = 'r'\ntarget = '{target}'\n");
        let said = refusal(run(directory.path(), &experiment));
        assert!(said.contains(cause), "{target}: {said}");
    }
    let paced =
        "pace = '1Gbit/s'\n[[route]]\nname = 'r'\ntarget = 'nvme-tcp://127.0.0.1:1/nqn.2026-11.test:a'\n";
    assert!(refusal(run(directory.path(), paced)).contains("only an embedded group can be paced"));
}

#[test]
fn a_target_that_asks_for_a_secret_is_measured_with_it() {
    use std::os::unix::fs::PermissionsExt as _;
    const HOST: &str = "nqn.2026-11.test:one";
    const SECRETS: [&str; 2] = [
        "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    ];
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let write = |name: &str, text: &str| {
        std::fs::write(at(name), text).unwrap();
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        at(name)
    };
    let [host, controller] = [0, 1].map(|of| write(&format!("secret-{of}"), SECRETS[of]));
    let config = format!(
        "nqn = \"nqn.2026-11.test:s\"\nlisten = [\"127.0.0.1:0\"]\nstate = \"{}\"\nallow = [\"one\"]\n\
         [[host]]\nname = \"one\"\nnqn = \"{HOST}\"\nsecret_file = \"{host}\"\n\
         controller_secret_file = \"{controller}\"\n[[volume]]\nsource = \"mem:16MiB\"\n",
        at("state")
    );
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    serve.args(["block", "serve", "-c", &write("block.toml", &config)]);
    let process = Process::spawn(serve);
    let address = process.wait_for_line("listening on ", Duration::from_secs(60));
    let address = address.strip_prefix("listening on ").unwrap();
    let run = |options: &str| {
        let target = format!("nvme-tcp://{address}/nqn.2026-11.test:s?hostnqn={HOST}{options}");
        run(directory.path(), &format!("{WORKLOADS}[[route]]\nname = 'r'\ntarget = '{target}'\n"))
    };
    for (options, expected) in [
        (String::new(), "secret-file"),
        (format!("&secret-file={controller}"), "the secrets that the target has for"),
        (format!("&secret-file={host}&controller-secret-file={host}"), "the secrets that the target has for"),
        (format!("&secret-file={}", at("none")), "umask 077"),
    ] {
        let (output, record) = run(&options);
        let said = text(&output.stderr);
        assert!(!output.status.success() && record.is_none(), "{options}: {said}");
        assert!(said.contains(expected) && !said.contains("ia6z"), "{options}: {said}");
    }
    let (output, record) = run(&format!("&secret-file={host}&controller-secret-file={controller}"));
    let record = record.unwrap_or_else(|| panic!("{}", text(&output.stderr)));
    let read = record.route("r").unwrap().workload("read", Half::Raw).unwrap();
    assert!(read.read.as_ref().unwrap().ops > 0);
}
