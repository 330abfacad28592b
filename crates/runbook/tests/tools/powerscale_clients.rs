//! The steps of a PowerScale cluster's clients, with stand-ins for the programs that would change
//! the network or mount, and on a copy of /etc.

use crate::scripts::{folder, run, write};
use runbook::System;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A client of the example's cluster, `p4-01`.
struct Client(TempDir);

impl Client {
    /// With stand-ins, each a script that finds the client's directory in `$AT`.
    fn new(site: &str, stand_ins: &[(&str, &str)]) -> Self {
        let client = Self(folder(site));
        let at = client.at("").display().to_string();
        for (name, script) in stand_ins {
            let whole = format!("#!/bin/bash\nAT={at}\n{script}\n");
            write(&client.at("bin").join(name), &whole, 0o755);
        }
        client
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Runs a script in the folder of the steps; `$AT` is the client's directory. /etc is a copy,
    /// and /home, /mnt, /sys and the mail of users are empty.
    fn run(&self, script: &str) -> (bool, String) {
        let whole = format!(
            "exec 2>&1; set -eu; AT={}; export AT; cp -a /etc $AT/etc; mount --bind $AT/etc /etc; \
             for at in /home /mnt /sys /var/mail; do mount -t tmpfs none $at; done; \
             export PATH=$AT/bin:$PATH RUNBOOK_STATE=$AT/state HOST_NAME=p4-01 \
             RUNBOOK_MOUNTS=$AT/mounts; : >$AT/mounts; cd $AT/nas-clients; {script}",
            self.0.path().display()
        );
        run(Command::new("unshare").args(["--mount", "sh", "-c", &whole]))
    }
}

/// The site with lines for NFSv4 too.
fn with_nfsv4() -> String {
    let site = System::PowerScale.site_file();
    site.replace("#nfsv4 = false", "nfsv4 = true").replace("\"9.5\"", "\"9.8\"")
}

/// NetworkManager's settings are the files of `nm`; what is up shows in /sys and in `ip`.
const NETWORK: [(&str, &str); 4] = [
    (
        "nmcli",
        r#"
case "$*" in
    '-g RUNNING general') echo running ;;
    '-g GENERAL.STATE device show ens6f1') echo '100 (connected)' ;;
    '-g GENERAL.CONNECTION device show ens6f1') echo 'Wired connection 2' ;;
    '-g '*' connection show Wired connection 2') for one in ${2//,/ }; do cat "$AT/nm/$one"; done ;;
    'connection modify Wired connection 2 '*)
        shift 3
        while [ $# -gt 0 ]; do echo "$2" >"$AT/nm/$1"; shift 2; done ;;
    'connection up Wired connection 2') sed 's/^auto$/1500/' "$AT/nm/802-3-ethernet.mtu" >/sys/class/net/ens6f1/mtu ;;
    *) echo "nmcli: no $*" >&2; exit 1 ;;
esac"#,
    ),
    (
        "ip",
        r#"
case "$*" in
    'route show default dev ens6f1') [ ! -e "$AT/default" ] || echo 'default via 10.0.0.1' ;;
    '-6 route show default dev ens6f1') [ ! -e "$AT/default6" ] || echo 'default via fe80::1' ;;
    '-o address show dev ens6f1')
        for one in $(cat "$AT/nm/ipv4.addresses" "$AT/more" 2>/dev/null); do
            echo "2: ens6f1    inet $one brd 10.5.255.255 scope global noprefixroute ens6f1\       valid_lft forever"
        done
        echo '2: ens6f1    inet6 fe80::1/64 scope link \       valid_lft forever' ;;
    '-o route get '*) case $4 in 192.168.1.*) echo "$4 dev ens6f1 src 192.168.1.21" ;; *) echo "$4 dev eno1" ;; esac ;;
    *) echo "ip: no $*" >&2; exit 1 ;;
esac"#,
    ),
    ("ping", "echo \"ping $*\""),
    ("ss", SESSIONS),
];

/// What `ss` prints of the sessions in a file, each with the user of the socket.
const SESSIONS: &str = r#"[ "$*" = '-Htnp state established' ] || exit 1
cat "$AT/sessions" 2>/dev/null || :"#;

fn networked() -> Client {
    let client = Client::new(System::PowerScale.site_file(), &NETWORK);
    for (name, value) in [
        ("ipv4.method", "auto\n"),
        ("ipv4.addresses", "10.5.0.7/16\n"),
        ("ipv4.gateway", "10.5.0.1\n"),
        ("ipv4.dns", "\n"),
        ("802-3-ethernet.mtu", "auto\n"),
    ] {
        write(&client.at("nm").join(name), value, 0o644);
    }
    client
}

/// "Setup RoCE on PowerScale", section On the Linux Side: the five settings and no others.
#[test]
fn a_client_gets_its_address_and_mtu_and_has_its_own_again_afterwards() {
    let client = networked();
    let (worked, said) = client.run(
        "mkdir -p /sys/class/net/ens6f1; echo 1500 >/sys/class/net/ens6f1/mtu; cp -r $AT/nm $AT/before; \
         export REPLACE_ADDRESSES=yes; step=./20-network.sh; ! $step verify; $step do; $step verify; grep -r . $AT/nm | sort; $step do; $step verify; \
         $step undo; diff -r $AT/before $AT/nm; cat /sys/class/net/ens6f1/mtu; [ ! -e $AT/state ]",
    );
    assert!(worked && said.ends_with("\n1500\n"), "{said}");
    assert!(said.starts_with("20-network.sh: ens6f1 does not have 192.168.1.21/24\n"), "{said}");
    assert_eq!(said.matches("ping -c 1 -M do -s 8972 192.168.1.201\n").count(), 2, "{said}");
    for set in ["ipv4.addresses:192.168.1.21/24", "ipv4.method:manual", "802-3-ethernet.mtu:9000"] {
        assert!(said.contains(&format!("/nm/{set}\n")), "{set}: {said}");
    }
    assert!(!said.contains("nm/ipv4.gateway:") && !said.contains("nm/ipv4.dns:"), "{said}");
}

/// Each of these would be cut off, by do and by undo, and neither has changed anything then.
#[test]
fn an_interface_that_carries_something_else_is_not_given_to_storage() {
    let at = "/sys/class/net/ens6f1";
    let ssh = |local: &str| {
        format!("echo '0 0 {local}:22 10.5.0.2:5000 users:((\"sshd\",pid=1,fd=4))' >$AT/sessions")
    };
    let nvme = "mkdir -p /sys/class/nvme/nvme0; echo 'traddr=192.168.1.9,trsvcid=4420' >/sys/class/nvme/nvme0/address";
    let mounted = |line: &str| format!("echo '{line} 0 0' >$AT/mounts");
    for (change, complaint) in [
        ("touch $AT/default".to_owned(), "ens6f1 has the default route"),
        ("touch $AT/default6".to_owned(), "ens6f1 has the default route"),
        (format!("ln -s ../bond0 {at}/master"), "ens6f1 is a part of bond0"),
        (format!("ln -s ../ens6f1.7 {at}/upper_ens6f1.7"), "ens6f1 is a part of ens6f1.7"),
        ("export SSH_CONNECTION='10.5.0.2 5 10.6.0.7 22'".to_owned(), "an SSH session comes through ens6f1"),
        (ssh("10.6.0.7"), "an SSH session comes through ens6f1 (10.6.0.7)"),
        (ssh("[::ffff:10.6.0.7]"), "an SSH session comes through ens6f1 (10.6.0.7)"),
        (nvme.to_owned(), "NFS or NVMe with 192.168.1.9 goes through ens6f1"),
        (mounted("nas:/a /a nfs rw,vers=3,addr=192.168.1.201"), "NFS or NVMe with 192.168.1.201 goes"),
        (mounted("192.168.1.201:/a /a fuse.trunkline rw"), "NFS or NVMe with 192.168.1.201 goes"),
        (
            mounted("10.0.0.1:/a /a nfs rw,remoteports=10.0.0.1~192.168.1.7,x"),
            "NFS or NVMe with 192.168.1.7 goes",
        ),
        (
            "unset REPLACE_ADDRESSES".to_owned(),
            "ens6f1 has other addresses (10.6.0.7/16), which would be lost",
        ),
    ] {
        for done in ["", "REPLACE_ADDRESSES=yes ./20-network.sh do >/dev/null;"] {
            let client = networked();
            let verb = if done.is_empty() { "do" } else { "undo" };
            let (worked, said) = client.run(&format!(
                "export REPLACE_ADDRESSES=yes; mkdir -p {at}; echo 1500 >{at}/mtu; {done} \
                 echo 10.6.0.7/16 >$AT/more; [ {verb} = undo ] || rm $AT/nm/ipv4.addresses; touch $AT/nm/ipv4.addresses; \
                 cp -r $AT/nm $AT/before; {change}; ! ./20-network.sh {verb}; diff -r $AT/before $AT/nm"
            ));
            assert!(worked && said.contains(complaint), "{verb} after {change}: {said}");
        }
    }
    // Sessions, mounts and targets elsewhere are no obstacle.
    let client = networked();
    let (worked, said) = client.run(&format!(
        "mkdir -p {at}; echo 1500 >{at}/mtu; : >$AT/nm/ipv4.addresses; {}; {}; ./20-network.sh do; ./20-network.sh verify; \
         export HOST_NAME=other; ! ./20-network.sh do",
        ssh("10.7.0.7"),
        mounted("10.0.0.1:/a /a nfs rw,addr=10.0.0.1")
    ));
    assert!(
        worked && said.contains("hosts.list has no other: set HOST_NAME to one of p4-01 p4-02"),
        "{said}"
    );
}

/// The connection is not taken down under what uses it, and another prefix is another address.
#[test]
fn a_client_that_has_all_already_is_left_alone() {
    let client = networked();
    let (worked, said) = client.run(
        "mkdir -p /sys/class/net/ens6f1; echo 1500 >/sys/class/net/ens6f1/mtu; : >$AT/nm/ipv4.addresses; step=./20-network.sh; \
         $step do; mv $AT/bin/nmcli $AT/bin/nmcli.real; \
         printf '#!/bin/sh\\ncase \"$*\" in *modify*|*up*) exit 1 ;; esac; exec nmcli.real \"$@\"\\n' >$AT/bin/nmcli; \
         chmod 755 $AT/bin/nmcli; echo 'nas:/a /a nfs rw,addr=192.168.1.201 0 0' >$AT/mounts; $step do; \
         echo 192.168.1.21/2 >$AT/nm/ipv4.addresses; ! $step verify",
    );
    assert!(worked && said.contains("ens6f1 has 192.168.1.21/24 and the MTU 9000 already\n"), "{said}");
    assert!(said.ends_with("ens6f1 does not have 192.168.1.21/24\n"), "{said}");
}

/// What an interface has is in files: its address, and its MTU in /sys. networkd reads the first
/// file that matches, ifupdown what `interfaces` names; neither takes an address back that it does
/// not manage any more.
const OTHERS: [(&str, &str); 8] = [
    ("nmcli", "case \"$*\" in '-g RUNNING general') exit 8 ;; *) echo \"nmcli: $*\" >&2; exit 1 ;; esac"),
    ("systemctl", "[ \"$*\" = 'is-active --quiet systemd-networkd' ] && [ -e \"$AT/has-networkd\" ]"),
    (
        "networkctl",
        r#"
case "$*" in
    reload) [ ! -e "$AT/no-reload" ] || exit 1; ls /etc/systemd/network /run/systemd/network 2>/dev/null >/dev/null || : ;;
    'reconfigure ens6f1')
        file=$(find /etc/systemd/network -name '*.network' 2>/dev/null | sort | head -n 1)
        [ -z "$file" ] || sed -n 's/^Address=//p' "$file" >"$AT/address"
        [ -z "$file" ] || sed -n 's/^MTUBytes=//p' "$file" >/sys/class/net/ens6f1/mtu ;;
    *) echo "networkctl: no $*" >&2; exit 1 ;;
esac"#,
    ),
    (
        "ifup",
        r#"
file=$(grep -lF "iface $1 " /etc/network/interfaces.d/*) || { echo "ifup: unknown interface $1" >&2; exit 1; }
sed -n 's/^ *address //p' "$file" >"$AT/address"; sed -n 's/^ *mtu //p' "$file" >/sys/class/net/ens6f1/mtu"#,
    ),
    ("ifdown", ": >\"$AT/address\""),
    (
        "ip",
        r#"
case "$*" in
    'route show default dev ens6f1' | '-6 route show default dev ens6f1') ;;
    '-o address show dev ens6f1')
        [ ! -s "$AT/address" ] || echo "2: ens6f1    inet $(cat "$AT/address") scope global ens6f1" ;;
    'address del '*' dev ens6f1') grep -qxF "$3" "$AT/address" && : >"$AT/address" ;;
    'link set dev ens6f1 mtu '*) echo "$6" >/sys/class/net/ens6f1/mtu ;;
    *) echo "ip: no $*" >&2; exit 1 ;;
esac"#,
    ),
    ("ping", "echo \"ping $*\""),
    ("ss", SESSIONS),
];

/// A client without NetworkManager, whose interface has another address.
const BARE: &str = "mkdir -p /sys/class/net/ens6f1; echo 1500 >/sys/class/net/ens6f1/mtu; : >$AT/address; \
    step=./20-network.sh; rm -rf /etc/systemd/network /etc/network; mkdir -p /etc/systemd/network";

#[test]
fn a_client_of_networkd_gets_its_address_and_mtu() {
    let client = Client::new(System::PowerScale.site_file(), &OTHERS);
    let (worked, said) = client.run(&format!(
        "{BARE}; touch $AT/has-networkd; file=/etc/systemd/network/05-trunkline-ens6f1.network; $step do; $step do; \
         $step verify; cat $file; sed -i s/21/22/ $file; ! $step verify; $step do; \
         touch $AT/no-reload; ! $step undo; rm $AT/no-reload; $step undo; \
         [ ! -s $AT/address ]; cat /sys/class/net/ens6f1/mtu; ls -A /etc/systemd/network; [ ! -e $AT/state ]; \
         echo OTHER; printf '[Network]\\nAddress=10.9.9.9/8\\n[Link]\\nMTUBytes=4000\\n' >/etc/systemd/network/10-a.network; \
         $step do; $step undo; cat $AT/address"
    ));
    assert!(worked, "{said}");
    for line in ["[Match]\nName=ens6f1\n", "\nMTUBytes=9000\n", "\nAddress=192.168.1.21/24\n"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.contains("05-trunkline-ens6f1.network is not as this step has made it"), "{said}");
    assert!(said.contains("\n1500\nOTHER\n"), "{said}");
    assert!(said.ends_with("10.9.9.9/8\n"), "the earlier file counts again: {said}");
}

#[test]
fn a_client_of_ifupdown_gets_its_address_and_mtu() {
    let client = Client::new(System::PowerScale.site_file(), &OTHERS);
    let (worked, said) = client.run(&format!(
        "{BARE}; mkdir -p /etc/network/interfaces.d; echo 'auto lo' >/etc/network/interfaces; ! $step do; \
         echo 'source /etc/network/interfaces.d/*' >>/etc/network/interfaces; \
         echo 'iface ens6f1 inet dhcp' >/etc/network/interfaces.d/other; ! $step do; rm /etc/network/interfaces.d/other; \
         $step do; $step do; $step verify; cat /etc/network/interfaces.d/trunkline-ens6f1; $step undo; \
         ls -A /etc/network/interfaces.d; cat $AT/address /sys/class/net/ens6f1/mtu; [ ! -e $AT/state ]"
    ));
    assert!(worked && said.ends_with("    mtu 9000\n1500\n"), "{said}");
    for part in [
        "/etc/network/interfaces does not read interfaces.d",
        "ens6f1 is in a file of /etc/network already",
        "auto ens6f1\niface ens6f1 inet static\n    address 192.168.1.21/24\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// A client without NetworkManager whose interface is the VLAN 100 of `ens6f1`. Its ifupdown reads
/// only files that source-directory reads.
fn of_vlan() -> (Client, String) {
    let vlan = |text: &str| text.replace("ens6f1", "ens6f1.100");
    let site = vlan(System::PowerScale.site_file());
    let stand_ins = OTHERS.map(|(name, script)| (name, vlan(script)));
    let strict = "for file in /etc/network/interfaces.d/*; do [[ ${file##*/} =~ ^[A-Za-z0-9_-]+$ ]] || rm $file; done\n";
    let stand_ins = stand_ins.map(|(name, script)| match name {
        "ifup" => (name, format!("{strict}{script}")),
        _ => (name, script),
    });
    let client = Client::new(&site, &stand_ins.each_ref().map(|(name, script)| (*name, script.as_str())));
    let below = "mkdir -p /sys/class/net/ens6f1; echo 9000 >/sys/class/net/ens6f1/mtu; \
                 ln -s ../ens6f1 /sys/class/net/ens6f1.100/lower_ens6f1; mkdir -p /etc/network/interfaces.d; \
                 echo 'source-directory /etc/network/interfaces.d' >/etc/network/interfaces";
    (client, format!("{}; {below}", vlan(BARE)))
}

// interfaces(5): source-directory reads files whose names have letters, digits, _ and - only.
#[test]
fn the_interface_of_a_vlan_gets_its_address_by_ifupdown() {
    let (client, bare) = of_vlan();
    let (worked, said) = client.run(&format!(
        "{bare}; echo 'iface ens6f1x100 inet dhcp' >/etc/network/interfaces.d/alike; $step do; $step do; $step verify; \
         ls /etc/network/interfaces.d; cat /etc/network/interfaces.d/trunk*; $step undo; ls -A /etc/network/interfaces.d; \
         cat $AT/address /sys/class/net/ens6f1.100/mtu; [ ! -e $AT/state ]"
    ));
    assert!(worked, "{said}");
    let file = "auto ens6f1.100\niface ens6f1.100 inet static\n    address 192.168.1.21/24\n    mtu 9000\n";
    assert!(said.ends_with(&format!("alike\ntrunkline-ens6f1-100\n{file}alike\n1500\n")), "{said}");
    assert!(said.starts_with("ens6f1.100 has 192.168.1.21/24 and the MTU 9000 already\n"), "{said}");
    // The dot is no wildcard, and a line of the VLAN itself counts.
    let (client, bare) = of_vlan();
    let (worked, said) = client.run(&format!(
        "{bare}; echo 'iface ens6f1.100 inet dhcp' >/etc/network/interfaces.d/other; ! $step do; [ ! -e $AT/state ]"
    ));
    assert!(worked && said.contains("ens6f1.100 is in a file of /etc/network already"), "{said}");
}

#[test]
fn the_interface_of_a_vlan_gets_its_address_by_networkd() {
    let (client, bare) = of_vlan();
    let (worked, said) = client.run(&format!(
        "{bare}; touch $AT/has-networkd; $step do; $step verify; cat /etc/systemd/network/05-trunkline-ens6f1.100.network; \
         $step undo; ls -A /etc/systemd/network; [ ! -e $AT/state ]; cat /sys/class/net/ens6f1.100/mtu"
    ));
    assert!(worked && said.contains("[Match]\nName=ens6f1.100\n") && said.ends_with("\n1500\n"), "{said}");
}

/// Frames of a VLAN are those of the interface below it.
#[test]
fn a_vlan_that_is_not_there_or_is_above_smaller_frames_is_refused() {
    for (change, complaint) in [
        (
            "echo 1500 >/sys/class/net/ens6f1/mtu",
            "the MTU of ens6f1 below ens6f1.100 is 1500: set it to 9000 first",
        ),
        ("rm -r /sys/class/net/ens6f1.100", "there is no interface ens6f1.100 here: a VLAN is created first"),
    ] {
        let (client, bare) = of_vlan();
        let (worked, said) =
            client.run(&format!("{bare}; {change}; ! $step do; ls $AT/state 2>&1 || :; cat $AT/address"));
        assert!(worked && said.contains(complaint) && said.contains("cannot access"), "{said}");
    }
}

#[test]
fn a_client_that_nothing_manages_is_told_what_to_set_and_a_choice_counts() {
    let client = Client::new(System::PowerScale.site_file(), &OTHERS);
    let (worked, said) = client.run(&format!(
        "{BARE}; ! $step do; [ ! -e $AT/state ]; ! NETWORK_BY=other $step do; touch $AT/has-networkd; mkdir -p /etc/network; \
         echo 'source-directory interfaces.d' >/etc/network/interfaces; mkdir /etc/network/interfaces.d; \
         NETWORK_BY=ifupdown $step do; ls /etc/network/interfaces.d /etc/systemd/network"
    ));
    assert!(worked, "{said}");
    assert!(
        said.contains("give ens6f1 the address 192.168.1.21/24 and the MTU 9000 by other means"),
        "{said}"
    );
    assert!(said.contains("NETWORK_BY is networkmanager, networkd or ifupdown"), "{said}");
    assert!(said.ends_with("trunkline-ens6f1\n\n/etc/systemd/network:\n"), "{said}");
}

/// A client that mounts over TCP only is not asked for a device that it does not have.
#[test]
fn rdma_is_asked_for_unless_the_client_is_to_use_tcp_only() {
    let stand_ins = [
        ("ibv_devinfo", "cat $AT/ports"),
        ("fio", "echo fio-3"),
        ("dpkg-query", "exit 0"),
        ("apt-get", "echo \"$*\" >>$AT/installed"),
        ("dnf", "echo \"$*\" >>$AT/installed"),
    ];
    let client = Client::new(System::PowerScale.site_file(), &stand_ins);
    let (worked, said) = client.run(
        "step=./10-packages.sh; : >$AT/ports; if $step verify; then exit 1; fi; TRANSPORT=tcp $step verify; \
         echo 'state: PORT_ACTIVE (4)' >$AT/ports; $step verify; if TRANSPORT=udp $step verify; then exit 1; fi; \
         TRANSPORT=tcp $step do; ! grep rdma $AT/installed; rm -f $AT/installed; $step do; grep -o rdma-core $AT/installed",
    );
    assert!(worked, "{said}");
    assert!(
        said.contains("no RDMA port is active") && said.contains("TRANSPORT=tcp ./10-packages.sh verify"),
        "{said}"
    );
    assert!(said.contains("TRANSPORT is rdma or tcp"), "{said}");
    assert!(said.ends_with("rdma-core\n") && said.matches("rdma-core").count() == 1, "{said}");
}

/// The system's own programs, on a copy of /etc.
#[test]
fn an_account_is_made_and_removed_with_a_home_that_nobody_used() {
    let client = Client::new(System::PowerScale.site_file(), &[]);
    let (worked, said) = client.run(
        "step=./40-identity.sh; cp /etc/passwd $AT/before; ! $step verify; $step do; $step verify; $step do; \
         id -u bench; ls /home; $step undo; cmp /etc/passwd $AT/before; ls -A /home /var/mail; [ ! -e $AT/state ]; \
         echo USED; $step do; echo >/home/bench/thesis; $step undo; cmp /etc/passwd $AT/before; ls /home/bench; \
         echo OTHER; useradd --uid 3000 --no-create-home bench; ! $step do; ! $step verify; $step undo; id -u bench; \
         usermod --uid 2010 bench; $step do; $step verify; $step undo; id -u bench",
    );
    assert!(worked, "{said}");
    let (first, rest) = said.split_once("USED\n").unwrap_or_else(|| panic!("{said}"));
    let (used, other) = rest.split_once("OTHER\n").unwrap_or_else(|| panic!("{said}"));
    assert!(first.contains("\n2010\nbench\n"), "made with a home: {said}");
    assert!(first.ends_with("/home:\n\n/var/mail:\n"), "nothing is left: {said}");
    assert!(used.contains("/home/bench stays: it has been used") && used.ends_with("thesis\n"), "{said}");
    let wrong = "bench has UID 3000 here, and 2010 on the cluster";
    assert_eq!(other.matches(wrong).count(), 2, "told by do and by verify: {said}");
    assert!(other.contains("usermod --uid 2010 bench"), "what to do: {said}");
    assert!(other.contains("\n3000\n") && other.ends_with("2010\n"), "an account of others stays: {said}");
}

/// What is mounted is in a list.
const MOUNTS: [(&str, &str); 6] = [
    ("mountpoint", "grep -qx \"$2\" \"$AT/mounted\" 2>/dev/null"),
    (
        "mount",
        r#"awk -v point="$1" '$2 == point { found = 1 } END { exit !found }' /etc/fstab && echo "$1" >>"$AT/mounted""#,
    ),
    ("umount", "grep -qx \"$1\" \"$AT/mounted\" && sed -i \"\\\\|^$1\\$|d\" \"$AT/mounted\""),
    ("runuser", "[ \"$1 $2 $3\" = '-u bench --' ] && exec \"${@:4}\""),
    ("mount.trunkline", ""),
    ("systemctl", ""),
];

#[test]
fn mounts_of_either_driver_are_made_and_taken_back_without_a_trace() {
    for (driver, routes) in [
        ("trunkline", "rdma\nrdma-mp\nrdma-mp-v4\nrdma-v4\ntcp\ntcp-mp\ntcp-mp-v4\ntcp-v4\n"),
        ("kernel", "rdma\nrdma-v4\ntcp\ntcp-v4\n"),
        ("vendor", "rdma\nrdma-mp\nrdma-mp-v4\nrdma-v4\ntcp\ntcp-mp\ntcp-mp-v4\ntcp-v4\n"),
    ] {
        let client = Client::new(&with_nfsv4(), &MOUNTS);
        // DRIVER is not given again to undo.
        let (worked, said) = client.run(&format!(
            "step=./50-mounts.sh; echo 'LABEL=a / ext4 defaults 0 1' >/etc/fstab; DRIVER={driver} $step do; \
             DRIVER={driver} $step verify >$AT/said; [ $(wc -l <$AT/mounted) = $(wc -l <$AT/said) ]; ls /mnt/f210; \
             DRIVER={driver} $step do; grep -c /mnt/f210 /etc/fstab; echo 'LABEL=b /b ext4 defaults 0 1' >>/etc/fstab; \
             $step undo; cat $AT/mounted /etc/fstab; ls /mnt; [ ! -e /etc/fstab.new ]; [ ! -e $AT/state ]"
        ));
        let count = routes.lines().count();
        let left = "LABEL=a / ext4 defaults 0 1\nLABEL=b /b ext4 defaults 0 1\n";
        assert_eq!(said, format!("{routes}{count}\n{left}"), "{driver}");
        assert!(worked, "{driver}: {said}");
    }
}

#[test]
fn a_client_with_local_addresses_mounts_by_lines_of_its_own() {
    let site = System::PowerScale.site_file().replace("#localports", "localports");
    let client = Client::new(&site, &MOUNTS);
    let (worked, said) = client.run(
        "step=./50-mounts.sh; : >/etc/fstab; for driver in trunkline vendor; do for name in p4-01 p4-02; do \
         HOST_NAME=$name DRIVER=$driver $step do; echo $name $(grep -c localports=192.168.1.21-192.168.1.22, /etc/fstab); \
         HOST_NAME=$name DRIVER=$driver $step undo; done; done; DRIVER=kernel $step do; ! grep localports /etc/fstab; \
         $step undo; export HOST_NAME=other; ! $step do; [ ! -s /etc/fstab ]; [ ! -e $AT/state ]",
    );
    assert!(worked, "{said}");
    let (counts, refused) = said.split_at(said.find("50-mounts.sh").unwrap_or_else(|| panic!("{said}")));
    assert_eq!(counts, "p4-01 2\np4-02 0\n".repeat(2));
    assert!(refused.contains("hosts.list has no other: set HOST_NAME to one of p4-01 p4-02"), "{said}");
}

#[test]
fn a_mount_point_that_fstab_has_already_is_left_alone() {
    let client = Client::new(System::PowerScale.site_file(), &MOUNTS);
    let (worked, said) = client.run(
        "step=./50-mounts.sh; mkdir -p /mnt/f210/tcp; echo 'nas:/a /mnt/f210/tcp nfs defaults 0 0' >/etc/fstab; \
         ! $step do; $step undo; cat /etc/fstab; ls /mnt/f210; ! DRIVER=other $step do; \
         rm $AT/bin/mount.trunkline; ! $step do",
    );
    assert!(worked, "{said}");
    assert!(said.contains("/etc/fstab has a line for /mnt/f210/tcp already"), "{said}");
    assert!(said.contains("nas:/a /mnt/f210/tcp nfs defaults 0 0\ntcp\n"), "what was there stays: {said}");
    assert!(said.contains("DRIVER is trunkline, kernel or vendor"), "{said}");
    assert!(said.contains("install trunkline first"), "{said}");
}

#[test]
fn the_baseline_runs_on_the_processors_beside_the_card() {
    let pass_on =
        |name: &str| format!("echo \"{name} $*\" >>$AT/log; while [ \"$1\" != -- ]; do shift; done; shift");
    let runuser = format!("{}; exec \"$@\"", pass_on("runuser"));
    let client = Client::new(
        System::PowerScale.site_file(),
        &[
            ("numactl", "echo \"numactl $1 $2\" >>$AT/log; shift 2; exec \"$@\""),
            ("runuser", &runuser),
            ("fio", "echo \"fio $* in $DIRECTORY\" >>$AT/log; echo '{ \"jobname\": \"streaming\" }'"),
            ("mountpoint", "[ -d \"$2\" ]"),
            ("trunkline", "echo \"trunkline $*\" >>$AT/log"),
        ],
    );
    let (worked, said) = client.run(
        "step=./70-baseline.sh; ! $step do; mkdir -p /mnt/f210/tcp /mnt/f210/rdma-mp /sys/class/net/ens6f1/device; \
         echo 1 >/sys/class/net/ens6f1/device/numa_node; $step do; $step verify; \
         echo -1 >/sys/class/net/ens6f1/device/numa_node; ROUTE=tcp $step do; \
         rm /sys/class/net/ens6f1/device/numa_node; ROUTE=tcp $step do; \
         mkdir -p /sys/class/net/card/device; echo 0 >/sys/class/net/card/device/numa_node; \
         ln -s ../card /sys/class/net/ens6f1/lower_card; ROUTE=tcp $step do; cat $AT/log; \
         touch /mnt/f210/rdma-mp/baseline.0 /mnt/f210/rdma-mp/mine; $step undo; ls /mnt/f210/rdma-mp; ls baseline*",
    );
    assert!(worked && said.starts_with("70-baseline.sh: /mnt/f210/rdma-mp is not mounted\n"), "{said}");
    let run = |route: &str| {
        format!(
            "runuser -u bench --preserve-environment -- fio --output-format=json+ baseline.fio\n\
             fio --output-format=json+ baseline.fio in /mnt/f210/{route}\n"
        )
    };
    let log = format!(
        "baseline-rdma-mp.json can be compared: trunkline report\nnumactl --cpunodebind=1 --membind=1\n{}\
         trunkline report baseline-rdma-mp.json\n{tcp}{tcp}numactl --cpunodebind=0 --membind=0\n{tcp}",
        run("rdma-mp"),
        tcp = run("tcp")
    );
    assert!(said.contains(&log), "{said}\n{log}");
    assert!(said.ends_with("\nmine\nbaseline-tcp.json\nbaseline.fio\n"), "{said}");
}

#[test]
fn networkd_is_not_given_an_interface_that_another_manager_has() {
    let client = Client::new(System::PowerScale.site_file(), &OTHERS);
    let (worked, said) = client.run(&format!(
        "{BARE}; touch $AT/has-networkd; mkdir -p /etc/network; echo 'iface ens6f1 inet dhcp' >/etc/network/interfaces; \
         ! $step do; ls -A /etc/systemd/network; [ ! -e $AT/state ]"
    ));
    assert!(
        worked && said.ends_with("ifupdown has ens6f1 (/etc/network/interfaces): take it out there first\n"),
        "{said}"
    );
    let client = networked();
    let (worked, said) = client.run(
        "mkdir -p /sys/class/net/ens6f1; echo 1500 >/sys/class/net/ens6f1/mtu; : >$AT/nm/ipv4.addresses; \
         for by in networkd ifupdown; do ! NETWORK_BY=$by ./20-network.sh do; done; [ ! -e $AT/state ]",
    );
    assert!(worked && said.contains("NetworkManager has ens6f1"), "{said}");
}
