//! The units of the package, run by systemd in a container.

use crate::root::base;
use std::fs;
use std::process::Command;
use std::time::Duration;
use testkit::{Process, require_program, temp_dir};

/// How long the container may run on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Runs once systemd is up; then the container ends.
const UNIT: &str =
    "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'sh -x /test/script >/test/log 2>&1; poweroff'\n";

/// What an administrator does. Each line that says `name: value` is compared.
const SCRIPT: &str = r#"
apt-get install --yes --no-install-recommends /test/trunkline.deb
value() { systemctl show trunkline --property "$1" --value; }
echo "verify: $(systemd-analyze verify trunkline.service trunkline.socket 2>&1)"
systemd-analyze security --no-pager --threshold=30 trunkline.service > /dev/null
echo "exposed: $?"
echo "memory is bounded: $([ "$(value MemoryMax)" != infinity ]; echo $?)"
echo "state: $(value ActiveState)"
systemctl enable --now trunkline
# Started is ready: nothing waits here.
trunkline ls nfs://127.0.0.1/export > /dev/null
echo "listed: $?"
echo "type: $(value Type)"
echo "status: $(value StatusText)"
sed -i 's/^rw = true/rw = false/' /etc/trunkline/serve.toml
systemctl reload trunkline
echo "reloaded: $?"
echo x > /tmp/file
trunkline cp /tmp/file nfs://127.0.0.1/export/file 2> /tmp/refused && echo "still writable"
echo "refused: $(grep -c -i 'read-only' /tmp/refused)"
systemctl kill --signal KILL trunkline
for try in $(seq 100); do
    [ "$(value NRestarts) $(value ActiveState)" = "1 active" ] && break
    sleep 0.2
done
trunkline ls nfs://127.0.0.1/export > /dev/null
echo "listed after a kill: $?"
echo "restarts: $(value NRestarts)"
systemctl stop trunkline
echo "stopped: $(value Result)"
"#;

/// The same for block volumes: as one process, and then as a pair, whose node A hangs.
const BLOCK_SCRIPT: &str = r#"
apt-get install --yes --no-install-recommends /test/trunkline.deb
value() { systemctl show "$1" --property "$2" --value; }
wait_for() { for try in $(seq 150); do eval "$1" && return; sleep 0.2; done; echo "no: $1"; }
echo "verify: $(systemd-analyze verify trunkline-block.service trunkline-block@A.service 2>&1)"
systemd-analyze security --no-pager --threshold=35 trunkline-block.service > /dev/null
echo "exposed: $?"
echo "state: $(value trunkline-block ActiveState)"
truncate -s 64M /srv/vm.img
sed -i 's|^source = .*|source = "/srv/vm.img"|' /etc/trunkline/block.toml
systemctl enable --now trunkline-block
trunkline block list --json | grep -o '"reach": .*'
echo "status: $(value trunkline-block StatusText)"
sed -i 's|^allow = .*|allow = ["nqn.2026-11.org.example:host"]|' /etc/trunkline/block.toml
systemctl reload trunkline-block
echo "reloaded: $?"
trunkline block map --names
restarted() { [ "$(value $1 NRestarts) $(value $1 ActiveState)" = "1 active" ]; }
systemctl kill --signal KILL trunkline-block
wait_for 'restarted trunkline-block'
echo "restarts: $(value trunkline-block NRestarts)"
listen='listen = [{ address = "127.0.0.1:4420", node = "A" }, { address = "127.0.0.1:4421", node = "B" }]'
sed -i "s|^listen = .*|$listen|" /etc/trunkline/block.toml
systemctl disable trunkline-block
systemctl start trunkline-block@A trunkline-block@B
echo "alone: $(value trunkline-block ActiveState) $(value trunkline-block Result)"
trunkline block own 1 A
owner() { trunkline block list --json | tr -d '\n' | grep -q "\"owner\": \"$1\".*\"reach\": \"serving\""; }
wait_for 'owner A'
# A node that is killed before the other one has found it comes back with what it had.
wait_for '[ "$(trunkline block dump | grep -c "\"has_other\": true")" = 2 ]'
# Node A hangs: node B kills it, from within its unit.
systemctl kill --signal STOP trunkline-block@A
wait_for 'owner B'
wait_for 'restarted trunkline-block@A'
trunkline block list --json | grep -o '"owner": .*'
apt-get remove --yes trunkline
echo "after the removal: $(value trunkline-block@A ActiveState) $(value trunkline-block@B ActiveState)"
"#;

/// Runs a script as root where systemd has booted and the package is at hand; returns what it said.
fn run(script: &str) -> (String, Process) {
    let package = crate::package();
    let base = base("systemd", &["systemd-sysv", "dbus"]);
    let place = temp_dir("service");
    let file = |name: &str| place.path().join(name);
    fs::copy(package, file("trunkline.deb")).unwrap();
    fs::write(file("script"), script).unwrap();
    fs::write(file("test.service"), UNIT).unwrap();
    let mut command = Command::new(require_program("systemd-nspawn"));
    command.args(["--quiet", "--ephemeral", "--register=no", "--keep-unit", "--private-network", "--boot"]);
    command.arg(format!("--bind={}:/test", place.path().display()));
    command.arg(format!("--bind-ro={}:/etc/systemd/system/test.service", file("test.service").display()));
    command.arg("--directory").arg(base).arg("systemd.wants=test.service");
    let mut container = Process::spawn(command);
    container.wait(TIMEOUT);
    (fs::read_to_string(file("log")).unwrap_or_default(), container)
}

/// Requires lines in the log of a script.
fn require(lines: &[&str], (log, container): &(String, Process)) {
    for line in lines {
        assert!(log.lines().any(|said| said == *line), "{line} is not in\n{log}\n{}", container.all_output());
    }
}

#[test]
fn the_units_of_block_volumes_differ_by_the_node_alone() {
    let one = include_str!("../../../../dist/systemd/trunkline-block.service");
    let node = include_str!("../../../../dist/systemd/trunkline-block@.service");
    let service = |unit: &'static str| unit.split_once("[Service]").expect("a service").1;
    assert_eq!(service(one), service(node).replace(" --node %i", ""));
}

#[test]
fn systemd_runs_block_volumes_as_one_process_and_as_a_pair() {
    require(
        &[
            "verify: ",
            "exposed: 0",
            "state: inactive",
            "\"reach\": \"serving\",",
            "status: serving",
            "reloaded: 0",
            "nqn.2026-11.org.example:host",
            "restarts: 1",
            "alone: inactive success",
            "\"owner\": \"B\",",
            "after the removal: inactive inactive",
        ],
        &run(BLOCK_SCRIPT),
    );
}

#[test]
fn systemd_starts_reloads_restarts_and_stops_the_server() {
    require(
        &[
            "verify: ",
            "exposed: 0",
            "memory is bounded: 0",
            "state: inactive",
            "listed: 0",
            "type: notify",
            "status: serving",
            "reloaded: 0",
            "refused: 1",
            "listed after a kill: 0",
            "restarts: 1",
            "stopped: success",
        ],
        &run(SCRIPT),
    );
}
