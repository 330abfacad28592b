//! The systemd units that the runbook writes, run by systemd: one in each machine, in a PID and a
//! mount namespace of its own, which starts nothing but what the steps enable and start.

use crate::pair::alone;
use crate::steps::Folder;
use crate::{TRUNKLINE, client, prepare, server, sh};
use lab::vm::Guest;

/// Starts systemd, and writes its number. Units that this machine's packages enable are hidden. Its
/// directory in /run tells the steps that it is there.
const START: &str = r#"
mkdir -p /run/systemd/system /sys/fs/cgroup /etc/systemd/system/multi-user.target.wants
printf '[Unit]\nDefaultDependencies=no\n' > /run/systemd/system/book.target
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
cat > /run/book-start <<'END'
for at in /lib/systemd/system/*.wants /etc/systemd/system/*.wants; do mount -t tmpfs none $at; done
# systemd sets the host's name from this file.
hostname > /run/book-name; [ -e /etc/hostname ] || : > /etc/hostname; mount --bind /run/book-name /etc/hostname
exec /lib/systemd/systemd --unit=book.target --log-target=console --show-status=0
END
container=lab setsid unshare --mount --pid --fork --mount-proc sh /run/book-start \
    </dev/null >/dev/shm/systemd.log 2>&1 &
for attempt in $(seq 300); do
    one=$(pgrep -x systemd | head -n 1)
    if [ -n "$one" ] && nsenter -t $one -m -p systemctl is-active -q book.target 2>/dev/null; then
        echo $one > /run/book-systemd; exit 0
    fi
    sleep 0.2
done
cat /dev/shm/systemd.log; exit 1
"#;

/// Ends it with all that it has started.
const END: &str = "kill -KILL $(cat /run/book-systemd); for attempt in $(seq 300); do pgrep -x systemd || break; sleep 0.2; done
    umount /sys/fs/cgroup; rm -rf /run/book-* /run/systemd";

#[test]
fn units_of_the_runbook_are_started_stopped_and_removed_by_systemd() {
    let _turn = alone();
    prepare();
    sh(server(), &format!("[ -e /usr/bin/trunkline ] || ln -s {TRUNKLINE} /usr/bin/trunkline"));
    for guest in [server(), client()] {
        sh(guest, START);
    }
    let serving = Folder::in_systemd(server(), "server-server");
    let hosting = Folder::in_systemd(client(), "hosts");
    for step in ["30-nvmet.sh", "40-trunkline.sh"] {
        serving.run(step, "do");
        serving.run(step, "verify");
    }
    for step in hosting.steps() {
        hosting.run(&step, "do");
        hosting.run(&step, "verify");
    }
    is(server(), "active", "trunkline-nvmet trunkline");
    is(client(), "active", "trunkline-nvme");
    // As at a shutdown and the next start.
    systemctl(client(), "stop trunkline-nvme");
    nothing_is(client(), "/sys/class/nvme/nvme*");
    systemctl(server(), "stop trunkline-nvmet trunkline");
    nothing_is(server(), "/sys/kernel/config/nvmet/ports/*");
    // Enabled is what the next start starts.
    for (guest, units) in [(server(), "trunkline-nvmet trunkline"), (client(), "trunkline-nvme")] {
        is(guest, "inactive", units);
        systemctl(guest, &format!("is-enabled {units}"));
        systemctl(guest, "start multi-user.target");
        is(guest, "active", units);
    }
    hosting.wait_until_verified("50-connect.sh");
    // A plan that is done again reloads the units, and their work goes on.
    serving.run("30-nvmet.sh", "do");
    hosting.run("50-connect.sh", "do");
    hosting.run("50-connect.sh", "verify");
    for step in hosting.steps().iter().rev() {
        hosting.run(step, "undo");
    }
    for step in ["40-trunkline.sh", "30-nvmet.sh"] {
        serving.run(step, "undo");
    }
    nothing_is(server(), "/sys/kernel/config/nvmet/ports/*");
    nothing_is(client(), "/sys/class/nvme/nvme*");
    assert_eq!(sh(server(), "pgrep -x trunkline -a | grep serve.toml || :"), "", "the server has ended");
    for (guest, unit) in
        [(server(), "trunkline-nvmet"), (server(), "trunkline"), (client(), "trunkline-nvme")]
    {
        let said = systemctl(guest, &format!("show --property LoadState {unit}"));
        assert_eq!(said.trim(), "LoadState=not-found", "{unit}");
    }
    for guest in [server(), client()] {
        sh(guest, END);
    }
    sh(server(), "[ ! -L /usr/bin/trunkline ] || rm /usr/bin/trunkline");
}

/// Runs systemctl in the namespaces of a machine's systemd; returns what it printed.
#[track_caller]
fn systemctl(guest: &Guest, arguments: &str) -> String {
    sh(
        guest,
        &format!(
            "in_it() {{ nsenter -t $(cat /run/book-systemd) -m -p systemctl --no-pager \"$@\"; }}
             in_it {arguments} || {{ in_it status {arguments}; tail -n 50 /dev/shm/systemd.log; exit 1; }}"
        ),
    )
}

#[track_caller]
fn nothing_is(guest: &Guest, at: &str) {
    assert_eq!(sh(guest, &format!("ls -d {at} 2>/dev/null || :")), "");
}

/// Each of the units is in this state.
#[track_caller]
fn is(guest: &Guest, state: &str, units: &str) {
    for unit in units.split(' ') {
        let said = systemctl(guest, &format!("show --property ActiveState --value {unit}"));
        assert_eq!(said.trim(), state, "{unit}: {}", systemctl(guest, &format!("show {unit}")));
    }
}
