//! A host on which DM-Multipath joins the paths, and a target that shows a volume at one address
//! only: what `trunkline check` finds there, and in what nvme-cli says of it.

use crate::host_faults::checked;
use crate::pair::alone;
use crate::{TRUNKLINE, client, prepare, server, sh};

const SITE: &str = r#"
name = "joined"

[[server]]
name = "server"

[server.nvmet]
nqn = "nqn.2026-11.test.pair:joined"
namespaces = [{ device = "/dev/disk/by-id/pair-1", ana_group = 1 }]
ports = [
    { address = "10.77.1.2", transport = "tcp", optimized = [1] },
    { address = "10.77.2.2", transport = "tcp", optimized = [1] },
]

[hosts]
os = "rhel7"
interface = "n1"
nqn_prefix = "nqn.2026-11.test.pair:"

[[host]]
name = "client"
address = "10.77.1.1"
"#;

/// RHEL 7 joins paths by DM-Multipath, Debian by the NVMe driver.
const DM_PLAN: &str = "--plan /dev/shm/joined-rhel7.toml";
const NATIVE_PLAN: &str = "--plan /dev/shm/joined-debian12.toml";

#[test]
fn check_finds_each_fault_of_a_host_with_dm_multipath() {
    let _turn = alone();
    prepare();
    set_up();
    assert_eq!(checked("", DM_PLAN), [""; 0], "DM-Multipath joins the paths, as planned");
    let other = ["fail multipath.native", "fail nvme.native"];
    assert_eq!(checked("", NATIVE_PLAN), other, "the planned layer does not join the paths");
    // With a volume that the target shows at one of two addresses.
    assert_eq!(listed("list"), [""; 0]);
    assert_eq!(listed("list-subsys"), [""; 0]);
    sh(client(), "nvme connect -t tcp -a 10.77.1.2 -s 4420 -n nqn.2026-11.test.pair:more");
    // Devices are numbered within their subsystem.
    sh(
        client(),
        "for attempt in $(seq 300); do [ ! -b /dev/nvme2n1 ] || exit 0; sleep 0.2; done; ls /dev/nvme*; exit 1",
    );
    assert_eq!(listed("list"), ["fail nvme.devices"]);
    assert_eq!(listed("list-subsys"), ["fail nvme.subsystem"]);
    tear_down();
}

/// One storage system, by its serial number, with two subsystems: that of the plan, and one with
/// another volume that has one address. The host's driver does not join paths, so each is a device.
fn set_up() {
    sh(
        server(),
        "modprobe -a nvmet nvmet-tcp
         cd /sys/kernel/config/nvmet; number=0
         for name in joined more; do
             number=$((number + 1)); at=subsystems/nqn.2026-11.test.pair:$name; mkdir $at
             echo 1 > $at/attr_allow_any_host; echo 0123456789abcdef > $at/attr_serial
             mkdir $at/namespaces/$number; echo -n /dev/ram$((number - 1)) > $at/namespaces/$number/device_path
             echo 1 > $at/namespaces/$number/enable
         done
         for port in 1 2; do
             at=ports/$port; mkdir $at; echo ipv4 > $at/addr_adrfam; echo tcp > $at/addr_trtype
             echo 10.77.$port.2 > $at/addr_traddr; echo 4420 > $at/addr_trsvcid
             ln -s /sys/kernel/config/nvmet/subsystems/nqn.2026-11.test.pair:joined $at/subsystems/joined
         done
         ln -s /sys/kernel/config/nvmet/subsystems/nqn.2026-11.test.pair:more ports/1/subsystems/more",
    );
    sh(
        client(),
        &format!(
            "cat > /dev/shm/joined-rhel7.toml <<'END'\n{SITE}END
             sed s/rhel7/debian12/ /dev/shm/joined-rhel7.toml > /dev/shm/joined-debian12.toml
             mkdir -p /etc/nvme; cp -a /etc/nvme /dev/shm/nvme
             echo nqn.2026-11.test.pair:client-n1 > /etc/nvme/hostnqn; uuidgen > /etc/nvme/hostid
             modprobe -r nvme_core 2>/dev/null || :; modprobe nvme_core multipath=N; modprobe nvme-tcp
             for port in 1 2; do
                 nvme connect -t tcp -a 10.77.$port.2 -s 4420 -n nqn.2026-11.test.pair:joined
             done
             for attempt in $(seq 300); do [ $(ls /dev/nvme?n1 | wc -l) != 2 ] || break; sleep 0.2; done
             modprobe -a dm_multipath dm_service_time; set -- $(cd /dev; ls nvme?n1)
             block() {{ cat /sys/block/$1/$2; }}
             dmsetup create --noudevsync -u mpath-$(block $1 wwid) joined --table \"0 $(block $1 size) multipath \
                 0 0 1 1 service-time 0 2 1 $(block $1 dev) 1 $(block $2 dev) 1\"
             multipath -ll"
        ),
    );
}

/// The rules that find a fault in what nvme-cli says, where nothing else was captured.
#[track_caller]
fn listed(list: &str) -> Vec<String> {
    let said = sh(
        client(),
        &format!(
            "rm -rf /dev/shm/listed; mkdir /dev/shm/listed; nvme {list} > /dev/shm/listed/nvme-{list}.txt
             {TRUNKLINE} check --from /dev/shm/listed --paths 2 || [ $? = 1 ]; cat /dev/shm/listed/*"
        ),
    );
    assert!(said.contains("\nok ") || said.starts_with("ok "), "a rule has looked: {said}");
    let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let bad = said.lines().filter(|line| line.starts_with("warn ") || line.starts_with("fail "));
    println!("{said}");
    bad.map(words).collect()
}

fn tear_down() {
    sh(
        client(),
        "dmsetup remove --noudevsync joined; nvme disconnect-all
         rm -rf /etc/nvme; mv /dev/shm/nvme /etc/nvme; rm -f /dev/mapper/joined
         modprobe -r nvme_tcp; modprobe -r nvme_core; modprobe -r dm_service_time dm_multipath",
    );
    sh(
        server(),
        "cd /sys/kernel/config/nvmet; rm ports/*/subsystems/*; rmdir ports/*
         for at in subsystems/*; do echo 0 > $(echo $at/namespaces/*)/enable; done
         rmdir subsystems/*/namespaces/* subsystems/*; cd /; modprobe -r nvmet_tcp; modprobe -r nvmet",
    );
}
