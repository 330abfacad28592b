//! Runbooks read by the tools that will run them. Needs ansible (with the collection
//! netapp_eseries.santricity, which Debian's package has), curl, fio, jq, ksh, multipath-tools,
//! nfs-kernel-server, nvme-cli, shellcheck, systemd and util-linux.

#[path = "tools/ef600_lost.rs"]
mod ef600_lost;
#[path = "tools/ef600_ports.rs"]
mod ef600_ports;
#[path = "tools/ef600_rest.rs"]
mod ef600_rest;
#[path = "tools/ef600_scripts.rs"]
mod ef600_scripts;
#[path = "tools/ef600_verify.rs"]
mod ef600_verify;
#[path = "tools/host_paths.rs"]
mod host_paths;
#[path = "tools/host_start.rs"]
mod host_start;
#[path = "tools/host_steps.rs"]
mod host_steps;
#[path = "tools/nfs_tables.rs"]
mod nfs_tables;
#[path = "tools/powerscale.rs"]
mod powerscale;
#[path = "tools/powerscale_clients.rs"]
mod powerscale_clients;
#[path = "tools/scale.rs"]
mod scale;
#[path = "tools/scripts.rs"]
mod scripts;
#[path = "tools/target.rs"]
mod target;

use runbook::{Artifact, System, runbook};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A runbook in a directory.
struct Folder {
    directory: TempDir,
    files: Vec<Artifact>,
}

impl Folder {
    fn of(site: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let files = runbook(site).expect("a valid site");
        for file in &files {
            let path = directory.path().join(&file.path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(&path, &file.text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(file.mode)).expect("set");
        }
        Self { directory, files }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// The files whose names end with this.
    fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a Artifact> {
        self.files.iter().filter(move |file| file.path.ends_with(end))
    }
}

/// The sites whose files are checked: every example, and what they vary.
fn sites() -> Vec<String> {
    // Two hosts say as much as 54, and take the tools less time.
    let fewer = |text: &str| text.replace("cmp[01-54]", "cmp[01-02]");
    let ef600 = &fewer(System::Ef600.site_file());
    let mut sites: Vec<_> = System::ALL.iter().map(|system| fewer(system.site_file())).collect();
    sites.push(ef600.replace("\"rhel8\"", "\"rhel7\""));
    let scale = fewer(System::Scale.site_file());
    sites.push(scale.replace("#reclaim = false", "reclaim = true").replace("11.70.1", "11.80"));
    let nas = System::PowerScale.site_file().replace("benchmark = true", "nfsv4 = true");
    sites.push(nas.replace("onefs = \"9.5\"", "onefs = \"9.8\"").replace("#localports", "localports"));
    let pool = ef600.replace("\"raid6\"", "\"ddp\"").replace("volume = \"4992GiB\"", "volume = \"4096GiB\"");
    sites.push(pool.replace("drives = 20", "drives = 24"));
    sites.push(ef600.replace(
        "fabric = \"infiniband\"",
        "fabric = \"roce\"\nsubnet_mask = \"255.255.255.0\"\nmtu = 9000",
    ));
    sites
}

/// Runs a program that must be there; returns what it printed.
fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| {
        panic!("{}: {error}; install its Debian package", command.get_program().to_string_lossy())
    })
}

/// The same, and it must succeed.
fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out + &err
}

#[test]
fn shellcheck_finds_nothing_in_the_scripts() {
    // Sites have many scripts in common.
    let mut checked = BTreeSet::new();
    for site in sites() {
        let folder = Folder::of(&site);
        let scripts = folder.files.iter().filter(|file| {
            file.text.starts_with("#!/bin/bash")
                || file.text.starts_with("#!/bin/sh")
                || file.path.ends_with("placing.sh")
        });
        for script in scripts {
            if !checked.insert(script.text.clone()) {
                continue;
            }
            let path = folder.path(&script.path);
            let directory = path.parent().expect("a parent");
            succeed(Command::new("shellcheck").arg("--external-sources").arg(&path).current_dir(directory));
        }
    }
}

#[test]
fn ksh_reads_the_script_that_spectrum_scale_calls() {
    let folder = Folder::of(System::Scale.site_file());
    for script in folder.ending("/nsddevices") {
        succeed(Command::new("ksh").arg("-n").arg(folder.path(&script.path)));
        succeed(Command::new("shellcheck").arg(folder.path(&script.path)));
    }
}

#[test]
fn fio_reads_the_baseline_as_one_group_of_eight_jobs() {
    let folder = Folder::of(System::PowerScale.site_file());
    for job in folder.ending(".fio") {
        let mut command = Command::new("fio");
        command.arg("--parse-only").arg("--showcmd").arg(folder.path(&job.path));
        let said = succeed(command.env("DIRECTORY", folder.directory.path()));
        assert_eq!(said.matches("--name=streaming").count(), 1, "{said}");
        assert!(
            said.contains("--numjobs=8") && said.contains("--filename_format=baseline.$jobnum"),
            "{said}"
        );
    }
}

#[test]
fn ansible_accepts_the_playbooks_and_knows_every_module() {
    for site in sites() {
        let folder = Folder::of(&site);
        for playbook in folder.ending("playbook.yml") {
            let path = folder.path(&playbook.path);
            let home = folder.path("home");
            let mut command = Command::new("ansible-playbook");
            command.arg("--syntax-check").arg("--inventory").arg("localhost,").arg(&path).env("HOME", home);
            let said = succeed(&mut command);
            assert!(said.contains("playbook:"), "{said}");
        }
    }
}

/// The options of a module, as its documentation has them: name to (type, choices, required).
fn options(module: &str) -> serde_json::Map<String, serde_json::Value> {
    let out = run(Command::new("ansible-doc").args(["--type", "module", "--json", module]));
    let doc: serde_json::Value = serde_json::from_slice(&out.stdout).expect("ansible-doc prints JSON");
    doc[module]["doc"]["options"].as_object().unwrap_or_else(|| panic!("{module} is not installed")).clone()
}

/// The tasks of a playbook: module, and its arguments of the first level.
fn tasks(playbook: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut tasks: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for line in playbook.lines() {
        let depth = line.len() - line.trim_start().len();
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        if key.starts_with("netapp_eseries.santricity.") || key.starts_with("ansible.builtin.") {
            tasks.push((key.to_owned(), BTreeMap::new()));
        } else if let Some((_, arguments)) =
            tasks.last_mut().filter(|_| depth > 4 && !key.starts_with(['-', '#']))
            && (depth == 6 || depth == 8)
            && !value.is_empty() | ["ports", "hosts"].contains(&key)
        {
            arguments.insert(key.to_owned(), value.trim().trim_matches('"').to_owned());
        }
    }
    tasks
}

/// `--syntax-check` resolves modules, but does not look at their arguments: these are compared with
/// the documentation of the installed collection.
#[test]
fn the_modules_have_every_argument_with_this_type_and_choice() {
    let mut known = BTreeMap::new();
    let mut count = 0;
    for site in sites() {
        let folder = Folder::of(&site);
        for playbook in folder.ending("playbook.yml") {
            for (module, arguments) in tasks(&playbook.text) {
                if module.starts_with("ansible.builtin.") {
                    continue;
                }
                let options = known.entry(module.clone()).or_insert_with(|| options(&module));
                for (key, value) in &arguments {
                    // Keys of the task itself.
                    if ["when", "changed_when", "check_mode", "register", "tags"].contains(&key.as_str()) {
                        continue;
                    }
                    let is_alias = |option: &serde_json::Value| {
                        option["aliases"].as_array().is_some_and(|names| names.iter().any(|name| name == key))
                    };
                    let option =
                        options.get(key).or_else(|| options.values().find(|option| is_alias(option)));
                    let option = option.unwrap_or_else(|| panic!("{module} has no {key}"));
                    check_value(&module, key, value, option);
                    count += 1;
                }
            }
        }
    }
    assert!(known.len() == 7 && count > 200, "{} modules and {count} arguments were compared", known.len());
}

fn check_value(module: &str, key: &str, value: &str, option: &serde_json::Value) {
    let place = format!("{module} {key}={value}");
    if let Some(choices) = option["choices"].as_array() {
        assert!(choices.iter().any(|choice| choice == value), "{place}: one of {choices:?}");
    }
    let is_of_type = match option["type"].as_str() {
        Some("int") => value.parse::<i64>().is_ok() || value.contains("{{"),
        Some("float") => value.parse::<f64>().is_ok(),
        Some("bool") => ["true", "false"].contains(&value) || value.contains("{{"),
        Some("list") => value.is_empty(),
        _ => !value.is_empty(),
    };
    assert!(is_of_type, "{place}: it is of type {}", option["type"]);
}

#[test]
fn systemd_accepts_the_units() {
    for site in sites() {
        let folder = Folder::of(&site);
        for unit in folder.ending(".service") {
            // The unit's programs are where the steps put them, below a root of their own.
            let root = folder.path("root");
            let units = root.join("etc/systemd/system");
            fs::create_dir_all(&units).expect("made");
            let name = Path::new(&unit.path).file_name().expect("a name");
            fs::write(units.join(name), &unit.text).expect("written");
            for line in unit.text.lines().filter_map(|line| line.strip_prefix("Exec")?.split_once("=")) {
                let program = line.1.trim_start_matches('-').split(' ').next().expect("a program");
                let path = root.join(program.trim_start_matches('/'));
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                fs::write(&path, "#!/bin/sh\n").expect("written");
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
            }
            let mut command = Command::new("systemd-analyze");
            command
                .arg("verify")
                .arg("--man=no")
                .arg("--recursive-errors=no")
                .arg("--root")
                .arg(&root)
                .arg(name);
            let said = succeed(&mut command);
            assert!(!said.contains(&*name.to_string_lossy()), "{said}");
        }
    }
}

/// A unit with a mistake is found, so that the test above can fail.
#[test]
fn systemd_finds_a_wrong_line_in_a_unit() {
    let directory = tempfile::tempdir().expect("a directory");
    let unit = directory.path().join("wrong.service");
    fs::write(&unit, "[Service]\nType=onceshot\nExecStart=/bin/true\n").expect("written");
    let output = run(Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&unit));
    assert!(String::from_utf8_lossy(&output.stderr).contains("wrong.service:2"), "{output:?}");
}

#[test]
fn multipath_reads_its_configuration() {
    for site in sites() {
        let folder = Folder::of(&site);
        for conf in folder.ending("multipath.conf") {
            // The configuration is read in a mount namespace of its own.
            let script = format!(
                "touch /etc/multipath.conf && mount --bind {} /etc/multipath.conf && multipath -t",
                folder.path(&conf.path).display()
            );
            let had_one = Path::new("/etc/multipath.conf").exists();
            let said = succeed(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
            if !had_one {
                fs::remove_file("/etc/multipath.conf").expect("the empty file is removed");
            }
            for wrong in ["invalid", "unknown", "ignoring"] {
                assert!(!said.to_lowercase().contains(wrong), "{said}");
            }
            let section = said.split("device {").find(|section| section.contains("NetApp E-Series*"));
            let section = section.unwrap_or_else(|| panic!("no section of the EF600 in\n{said}"));
            assert!(
                section.contains("no_path_retry 30") && section.contains("\"group_by_prio\""),
                "{section}"
            );
            assert_eq!(said.contains("enable_foreign \"^nvme$\""), conf.text.contains("enable_foreign"));
        }
    }
}

/// What `nvme connect-all` says of a discovery.conf, on a machine that seems to have no NVMe at
/// all.
fn connect_all(conf: &Path) -> String {
    let script = format!(
        "mkdir -p /etc/nvme && mount -t tmpfs none /etc/nvme && mount -t tmpfs none /sys && mount -t tmpfs none /dev && \
         mkdir -p /sys/class/nvme /sys/class/nvme-subsystem && cp {} /etc/nvme/discovery.conf && nvme connect-all 2>&1",
        conf.display()
    );
    let output = run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// `nvme` reads a line, finds nothing wrong with it, and tries to connect.
#[test]
fn nvme_reads_discovery_conf() {
    let mut count = 0;
    for site in sites() {
        let folder = Folder::of(&site);
        // The files of hosts differ in a name only.
        let Some(conf) = folder.ending("discovery.conf").next() else { continue };
        let lines = conf.text.lines().filter(|line| !line.starts_with('#')).count();
        let said = connect_all(&folder.path(&conf.path));
        assert_eq!(said.matches("Failed to open /dev/nvme-fabrics").count(), lines, "{said}\n{}", conf.text);
        count += lines;
    }
    assert!(count > 20, "{count} lines");
    let directory = tempfile::tempdir().expect("a directory");
    let wrong = directory.path().join("wrong.conf");
    fs::write(&wrong, "-t rdma -a 10.0.0.1 -Q many\n").expect("written");
    assert!(connect_all(&wrong).contains("Expected integer argument"));
}
