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
before=$(value MainPID)
systemctl kill --signal KILL trunkline
for try in $(seq 100); do
    [ "$(value ActiveState) $(value MainPID)" != "active $before" ] && [ "$(value ActiveState)" = active ] && break
    sleep 0.2
done
trunkline ls nfs://127.0.0.1/export > /dev/null
echo "listed after a kill: $?"
echo "restarts: $(value NRestarts)"
systemctl stop trunkline
echo "stopped: $(value Result)"
"#;

#[test]
fn systemd_starts_reloads_restarts_and_stops_the_server() {
    let package = crate::package();
    let base = base("systemd", &["systemd-sysv", "dbus"]);
    let place = temp_dir("service");
    let file = |name: &str| place.path().join(name);
    fs::copy(package, file("trunkline.deb")).unwrap();
    fs::write(file("script"), SCRIPT).unwrap();
    fs::write(file("test.service"), UNIT).unwrap();
    let mut command = Command::new(require_program("systemd-nspawn"));
    command.args(["--quiet", "--ephemeral", "--register=no", "--keep-unit", "--private-network", "--boot"]);
    command.arg(format!("--bind={}:/test", place.path().display()));
    command.arg(format!("--bind-ro={}:/etc/systemd/system/test.service", file("test.service").display()));
    command.arg("--directory").arg(base).arg("systemd.wants=test.service");
    let mut container = Process::spawn(command);
    container.wait(TIMEOUT);
    let log = fs::read_to_string(file("log")).unwrap_or_default();
    for line in [
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
    ] {
        assert!(log.lines().any(|said| said == line), "{line} is not in\n{log}\n{}", container.all_output());
    }
}
