//! Two kernels that share files of our server by NFS version 4.2: locks, and delegations that are
//! called back. One of them is in the server's guest.

use crate::pair::{GuestServer, alone, pair, sh};
use lab::vm::Guest;

const CONFIGURATION: &str = r#"
versions = ["3", "4.2"]
[[node]]
listen = ["10.77.1.2:2049", "rdma:10.77.1.2:20049"]
[[export]]
path = "/export"
mem = "256MiB"
allow = ["10.0.0.0/8"]
rw = true
root_squash = false
"#;

/// What the scripts call. The kernel counts opens by the way in which it has found the file.
const PRELUDE: &str = "
    count() { awk -v name=\"$1:\" '$1 == name { print $2 }' /proc/self/mountstats | tail -1; }
    opens() { echo $(($(count OPEN) + $(count OPEN_NOATTR))); }
    delegated() { cat f > /dev/null; before=$(opens); cat f > /dev/null; [ $before = $(opens) ]; }
    fails() { if \"$@\"; then echo \"this should have failed: $*\"; exit 1; fi 2>&1; }
    waits_long() { for times in 1 2 3 4; do (waits \"$@\") && return 0; done; \"$@\"; }
    waits() { for try in $(seq 300); do \"$@\" && return 0; sleep 0.2; done; \"$@\"; }
    cd /mnt/two";

/// A directory that both guests have mounted, with the same options or others.
struct Shared {
    _server: GuestServer,
}

impl Shared {
    /// With a lease that a guest on a busy host does not miss.
    fn mounted(holder: &str, other: &str) -> Self {
        Self::with_lease(30, holder, other)
    }

    fn with_lease(seconds: u32, holder: &str, other: &str) -> Self {
        let (near, far) = (pair().server(), pair().client());
        sh(near, &format!("cat > /tmp/two.toml <<'END'\nlease_s = {seconds}\n{CONFIGURATION}END"));
        let server = GuestServer::with(&["-c", "/tmp/two.toml"]);
        for (guest, options) in [(far, holder), (near, other)] {
            sh(guest, &format!("mkdir -p /mnt/two; mount -t nfs -o {options} 10.77.1.2:/export /mnt/two"));
        }
        Self { _server: server }
    }

    /// Runs a script in the mounted directory of the guest without the server.
    #[track_caller]
    fn holder(&self, script: &str) -> String {
        sh(pair().client(), &format!("{PRELUDE}\n{script}"))
    }

    /// Runs a script in the mounted directory of the server's guest.
    #[track_caller]
    fn other(&self, script: &str) -> String {
        sh(pair().server(), &format!("{PRELUDE}\n{script}"))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let unmount = |guest: &Guest| guest.sh("umount -f /mnt/two || umount -l /mnt/two");
        let _ = (unmount(pair().client()), unmount(pair().server()));
    }
}

const V4: &str = "vers=4.2,proto=tcp";
const V4_OVER_RDMA: &str = "vers=4.2,proto=rdma,port=20049";
const V3: &str = "vers=3,proto=tcp,nolock,mountproto=tcp,port=2049,mountport=2049";

/// A lock of one guest keeps the other out, which waits and then has it.
#[test]
fn a_lock_of_one_kernel_keeps_the_other_out() {
    let _alone = alone();
    let shared = Shared::mounted(V4, V4_OVER_RDMA);
    shared.holder(
        ": > f; rm -f /tmp/end
         (flock -x 9; while [ ! -e /tmp/end ]; do sleep 0.2; done) 9>>f </dev/null >/dev/null 2>&1 &
         is_locked() { ! flock -n f true; }; waits is_locked",
    );
    shared.other(
        "fails flock -n f true; fails flock -n -s f true; rm -f /tmp/got
         flock f touch /tmp/got </dev/null >/dev/null 2>&1 & sleep 2; [ ! -e /tmp/got ]",
    );
    shared.holder("touch /tmp/end");
    shared.other(
        "waits [ -e /tmp/got ]; flock -n -s f sleep 1000 </dev/null >/dev/null 2>&1 & echo $! > /tmp/pid",
    );
    // Two readers share a lock; a writer has to wait for both.
    shared.holder("waits flock -n -s f true; fails flock -n -x f true");
    shared.other("pkill -P $(cat /tmp/pid)");
    shared.holder("waits flock -n -x f true");
}

/// A kernel that has a delegation opens the file without asking; when another changes it, it is
/// called back, and reads what is new at once.
fn a_delegation_is_called_back(holder: &str, other: &str) {
    let _alone = alone();
    let shared = Shared::mounted(holder, other);
    shared.other("echo old > f; sync f");
    for round in 0..3 {
        // A file that was open for writing a moment ago is not delegated at once.
        let opens = shared.holder(
            "waits delegated
             before=$(opens); for try in $(seq 20); do cat f; done > /dev/null; echo $(($(opens) - before))
             count DELEGRETURN > /tmp/returned; cat f",
        );
        let content = if round == 0 { "old".to_owned() } else { format!("new {}", round - 1) };
        assert_eq!(opens.lines().collect::<Vec<_>>(), ["0", &content], "round {round}");
        shared.other(&format!("echo new {round} > f; sync f"));
        let after = shared.holder("cat f; echo $(($(count DELEGRETURN) - $(cat /tmp/returned)))");
        assert_eq!(after.lines().collect::<Vec<_>>(), [&format!("new {round}"), "1"], "round {round}");
    }
}

#[test]
fn a_delegation_is_called_back_for_version_4() {
    a_delegation_is_called_back(V4, V4_OVER_RDMA);
}

#[test]
fn a_delegation_over_rdma_is_called_back_for_version_3() {
    a_delegation_is_called_back(V4_OVER_RDMA, V3);
}

/// A kernel that does not hear the recall loses its delegation after a lease, and the other goes
/// on. Once it is back it is told, and reads what is new from then on, although all that it asks
/// for meanwhile, of the file and of its directory, comes before it has given the delegation up.
#[test]
fn a_delegation_of_a_silent_kernel_is_revoked() {
    let _alone = alone();
    let shared = Shared::with_lease(10, V4, V4);
    // Always of one length: no kernel finds by the size alone that its data are old.
    shared.other("echo 'new x' > f; sync f");
    for round in 0..2 {
        // A client that has lost a delegation gets no other one for ten leases.
        shared.holder("waits_long delegated; rm -f /tmp/end; count FREE_STATEID > /tmp/freed; cat f");
        let silence = "nft add table ip two
             nft add chain ip two in '{ type filter hook input priority 0; }'
             nft add chain ip two out '{ type filter hook output priority 0; }'
             nft add rule ip two in tcp sport 2049 drop; nft add rule ip two out tcp dport 2049 drop";
        sh(pair().client(), silence);
        // The directory changes too, so that the other looks for the names in it again.
        let write = format!("echo 'new {round}' > f; sync f; : > g{round}");
        shared.other(&format!("timeout 120 sh -c \"{write}\"; [ \"$(cat f)\" = 'new {round}' ]"));
        shared.holder(
            "for loop in 'cat f' 'stat -c %Y f' 'ls -l'; do
                 (while [ ! -e /tmp/end ]; do $loop; done) </dev/null >/dev/null 2>&1 &
             done",
        );
        sh(pair().client(), "nft delete table ip two");
        let seen = shared.holder(
            "is_told() { [ $(count FREE_STATEID) -gt $(cat /tmp/freed) ]; }; waits is_told
             for try in $(seq 20); do cat f; done | sort | uniq -c; touch /tmp/end",
        );
        let seen: Vec<_> = seen.split_whitespace().collect();
        assert_eq!(seen, ["20", "new", &round.to_string()], "round {round}");
    }
}
