//! Tests that the Linux kernel's host authenticates on our target, over TCP and RDMA. Linux 6.1 of
//! Debian is built without it.

use crate::kernel_client::started;
use crate::kernel_nvme::{HOST, SUBSYSTEM, device, fio_finds_what_it_wrote};
use crate::{alone, lab, sh};
use lab::vm::Running;

const PORT: u16 = 12460;
/// The secret of the host, that of the controller, and one of nobody.
const SECRETS: [&str; 3] = [
    "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
    "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
    "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
];

/// A target with two volumes that asks the guest for its secret, until dropped.
struct Served(Option<Running>);

impl Served {
    fn new(transport: &str, more: &str) -> Self {
        let prefix = if transport == "rdma" { "rdma:" } else { "" };
        let [host, controller, _] = SECRETS;
        let text = format!(
            "nqn = \"{SUBSYSTEM}\"\nlisten = [\"{prefix}10.77.1.2:{PORT}\"]\nallow = [\"guest\"]\n\
             state = \"/run/trunkline-secret\"\n[[host]]\nname = \"guest\"\n\
             nqn = \"nqn.2026-11.org.trunkline:guest\"\nsecret = \"{host}\"\n\
             controller_secret = \"{controller}\"\n{more}\n\
             [[volume]]\nsource = \"mem:64MiB\"\n[[volume]]\nsource = \"mem:64MiB\"\n"
        );
        let write =
            format!("umask 077; rm -f /run/secret.toml; cat > /run/secret.toml << 'END'\n{text}END\n");
        lab().server().sh(&write).expect("a file");
        sh(&format!("modprobe nvme-{transport}"));
        Self(Some(started(&["block", "serve", "-c", "/run/secret.toml"].map(str::to_owned))))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Before the target ends, or the kernel tries for ten minutes to connect again.
        let _ = lab().client().sh(&format!("nvme disconnect -n {SUBSYSTEM}"));
        drop(self.0.take());
    }
}

/// Without the secret, with a wrong one, and with a wrong one of the controller, the kernel gets
/// nothing; with the right ones it reads what it wrote, on queues that have all authenticated.
fn only_who_has_the_secret_connects(transport: &str) {
    let [host, controller, other] = SECRETS;
    let connect = format!("nvme connect -t {transport} -a 10.77.1.2 -s {PORT} -n {SUBSYSTEM} {HOST}");
    let found = sh(&format!("nvme discover -t {transport} -a 10.77.1.2 -s {PORT} {HOST}"));
    assert!(found.contains(SUBSYSTEM), "discovery asks for nothing: {found}");
    sh(&format!(
        "fails {connect}
         fails {connect} --dhchap-secret {other}
         fails {connect} --dhchap-secret {host} --dhchap-ctrl-secret {other}
         dmesg -C
         {connect} --dhchap-secret {host} --dhchap-ctrl-secret {controller} || {{ dmesg | tail -40; exit 1; }}
         {}settled
         dmesg | grep -i authenticated",
        device()
    ));
    fio_finds_what_it_wrote(1);
    sh(&format!("nvme disconnect -n {SUBSYSTEM} | grep 'disconnected 1 '"));
}

#[test]
fn the_kernels_host_authenticates_over_tcp() {
    let _turn = alone();
    let served = Served::new("tcp", "");
    only_who_has_the_secret_connects("tcp");
    drop(served);
    // With every group and hash function.
    for (hash, group) in [
        ("sha256", "null"),
        ("sha384", "ffdhe2048"),
        ("sha512", "ffdhe4096"),
        ("sha256", "ffdhe6144"),
        ("sha512", "ffdhe8192"),
    ] {
        let _served = Served::new("tcp", &format!("hashes = [\"{hash}\"]\ndhgroups = [\"{group}\"]"));
        let said = sh(&format!(
            "dmesg -C
             nvme connect -t tcp -a 10.77.1.2 -s {PORT} -n {SUBSYSTEM} {HOST} --nr-io-queues=1 \
                 --dhchap-secret {} || {{ dmesg | tail -40; exit 1; }}
             {}settled; dd if=$(device 1) of=/dev/null bs=1M count=1 iflag=direct 2>&1
             dmesg | grep -i authenticated",
            SECRETS[0],
            device()
        ));
        assert!(said.contains(hash) && said.contains(group), "{said}");
    }
}

#[test]
fn the_kernels_host_authenticates_over_rdma() {
    let _turn = alone();
    let _served = Served::new("rdma", "");
    only_who_has_the_secret_connects("rdma");
}
