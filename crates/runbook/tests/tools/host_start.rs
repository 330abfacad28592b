//! How long systemd lets `trunkline-nvme.service` start, against the longest time that its program
//! takes: with a clock that its waits and its attempts advance.

use crate::host_paths::{Controller, Machine};
use crate::scripts::write;
use runbook::System;
use std::fs;

/// The time is in a file. A wait adds its seconds and an attempt all that it may take, after which
/// it has failed. The paths are live just before the program would give up.
const CLOCK: &str = r#"
tick() {
    local now state
    read -r now <"$CLOCK"
    now=$((now + $1))
    echo $now >"$CLOCK"
    if [ $now -ge $((LIVE_AT)) ]; then
        for state in /sys/class/nvme/nvme[0-3]/state; do echo live >$state; done
    fi
}
sleep() { tick "$1"; }
# timeout -k SECONDS SECONDS COMMAND. Probes run side by side and are not counted.
timeout() {
    case $4 in nvme) tick $(($2 + $3)) ;; esac
    return 124
}
set -T
trap 'read -r SECONDS <"$CLOCK"' DEBUG
"#;

/// A number after a text that begins a line.
fn number(text: &str, start: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(start));
    found.unwrap_or_else(|| panic!("no {start}")).parse().expect("a number")
}

/// The planned paths lead to no data, and one of an earlier plan does: both waits are whole.
const SLOW: [Controller<'_>; 5] = [
    ("rdma", "10.0.0.1", 4420, "connecting", &["inaccessible"]),
    ("rdma", "10.0.1.1", 4420, "connecting", &["inaccessible"]),
    ("tcp", "10.0.2.1", 4420, "connecting", &["inaccessible"]),
    ("tcp", "10.0.3.1", 4420, "connecting", &["inaccessible"]),
    ("tcp", "10.0.4.1", 4420, "live", &["optimized"]),
];

#[test]
fn systemd_waits_longer_than_the_program_that_it_starts() {
    for (wait_s, delay_s) in [(5, 0), (45, 30)] {
        let site = System::LinuxHost
            .site_file()
            .replace("#connect_wait_s = 180", &format!("connect_wait_s = {wait_s}"))
            .replace("#connect_delay_s = 30", &format!("connect_delay_s = {delay_s}"));
        let machine = Machine::new(&site, &SLOW);
        let file =
            |name: &str| fs::read_to_string(machine.at(&format!("hosts/files/{name}"))).expect("a file");
        let program = file("trunkline-nvme");
        assert_eq!((number(&program, "wait_s="), number(&program, "delay_s=")), (wait_s, delay_s));
        write(&machine.at("clock.sh"), CLOCK, 0o644);
        let (worked, said) = machine.run(&format!(
            "export BASH_ENV={} CLOCK=/etc/nvme/clock LIVE_AT={wait_s}-1; echo 0 >$CLOCK; $nvme connect --now && exit 3; \
             cat $CLOCK",
            machine.at("clock.sh").display()
        ));
        assert!(worked && said.contains("paths of an earlier plan stay"), "{said}");
        let end: u64 =
            said.lines().find_map(|line| line.parse().ok()).unwrap_or_else(|| panic!("no time: {said}"));
        assert!(end >= wait_s + wait_s - 1, "both waits were whole: {end} s, {said}");
        // A random delay before, and one round of probes beyond the end of the first wait.
        let longest = delay_s + end + 3;
        let unit = file("trunkline-nvme.service");
        assert!(number(&unit, "TimeoutStartSec=") > longest, "{longest} s, and\n{unit}");
        assert!(unit.contains("\nExecStart=/usr/local/sbin/trunkline-nvme connect\n"), "{unit}");
    }
}

/// Every site: the bound follows the keys, also where these are as large as a number can be.
#[test]
fn the_start_timeout_follows_the_waits_of_the_site() {
    for site in crate::sites() {
        for waits in ["", "connect_wait_s = 7200\nconnect_delay_s = 600\n", "connect_wait_s = 4294967295\n"] {
            // The first key of [hosts].
            let own = site.replacen("\nos = ", &format!("\n{waits}os = "), 1);
            let files = runbook::runbook(&own).unwrap_or_else(|error| panic!("{error}"));
            let of =
                |end: &str| files.iter().find(|file| file.path.ends_with(end)).map(|file| file.text.as_str());
            let (Some(unit), Some(program)) = (of("trunkline-nvme.service"), of("files/trunkline-nvme"))
            else {
                continue;
            };
            let (wait_s, delay_s) = (number(program, "wait_s="), number(program, "delay_s="));
            let start_s = number(unit, "TimeoutStartSec=");
            assert!(start_s > delay_s + wait_s + wait_s.max(10) || start_s == u64::from(u32::MAX), "{unit}");
            assert!(waits.is_empty() || wait_s >= 7200, "{waits}");
        }
    }
}
