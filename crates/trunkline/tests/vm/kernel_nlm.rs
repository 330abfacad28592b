//! Tests locks of the Linux kernel's client of NFS version 3 on our server, by NLM: without nolock.
//!
//! A host has one lock manager and one status monitor, so the server has a network namespace of its
//! own, with a port 111 that is free.

use crate::{alone, sh, trunkline};

/// Makes the server's namespace, and starts rpcbind and the status monitor that the client's lock
/// manager needs, unless they run already. `serve` starts the server and waits until it is ready.
/// What was started ends with the shell.
const PRELUDE: &str = "
    pids=''; server=''; cd /
    ending() {
      for at in one two four; do umount -f -l /mnt/nlm-$at 2>/dev/null || true; done
      kill $pids $server 2>/dev/null || true
      # A namespace goes only with its last process, and the link with it: not before the next test.
      ip link del nlm0 2>/dev/null || true; ip netns del nlm 2>/dev/null || true
    }
    trap ending EXIT
    ip netns add nlm; ip link add nlm0 type veth peer name nlm1; ip link set nlm1 netns nlm
    ip addr add 10.78.1.1/24 dev nlm0; ip link set nlm0 up; ip link set lo up
    ip -n nlm addr add 10.78.1.2/24 dev nlm1; ip -n nlm link set nlm1 up; ip -n nlm link set lo up
    mkdir -p /run/rpcbind /mnt/nlm-one /mnt/nlm-two /mnt/nlm-four
    # The status monitor keeps its notes where it may write.
    mkdir -p /tmp/nlm-statd/sm /tmp/nlm-statd/sm.bak; chown -R statd /tmp/nlm-statd 2>/dev/null || true
    waits() { for try in $(seq 300); do \"$@\" >/dev/null 2>&1 && return 0; sleep 0.2; done; \"$@\"; }
    if ! rpcinfo -p 127.0.0.1 >/dev/null 2>&1; then
      rpcbind -f -w >/dev/null 2>&1 & pids=\"$pids $!\"
      waits rpcinfo -p 127.0.0.1
    fi
    if ! rpcinfo -u 127.0.0.1 100024 1 >/dev/null 2>&1; then
      rpc.statd --foreground --no-notify -P /tmp/nlm-statd >/dev/null 2>&1 & pids=\"$pids $!\"
      waits rpcinfo -u 127.0.0.1 100024 1
    fi
    serve() {
      rm -f /tmp/nlm.says; mkfifo /tmp/nlm.says
      ip netns exec nlm $program serve --listen 10.78.1.2:2049 --rpcbind \"$@\" > /tmp/nlm.says & server=$!
      exec 3< /tmp/nlm.says
      while read -r line <&3; do [ \"$line\" != ready ] || break; done
      waits rpcinfo -t 10.78.1.2 100021 4; waits rpcinfo -u 10.78.1.2 100024 1
    }
    v3='vers=3,proto=tcp,nosharecache'";

/// Runs a script after the prelude.
fn run(script: &str) {
    sh(&format!("program={}\n{PRELUDE}\n{script}", trunkline().display()));
}

/// Two mounts that share no inode meet at the server, as two hosts do; so does a mount of version
/// 4.
#[test]
fn version_3_locks_at_the_server_and_against_version_4() {
    let _turn = alone();
    run("serve --mem 64MiB --nfs-versions 3,4.2
         mount -t nfs -o $v3 10.78.1.2:/export /mnt/nlm-one
         mount -t nfs -o $v3 10.78.1.2:/export /mnt/nlm-two
         mount -t nfs -o vers=4.2 10.78.1.2:/export /mnt/nlm-four
         grep ' /mnt/nlm-one ' /proc/mounts | grep local_lock=none
         # Until somebody holds the lock.
         held() { for try in $(seq 300); do flock -n $1/f true || return 0; sleep 0.2; done; return 1; }
         : > /mnt/nlm-one/f
         flock -x /mnt/nlm-one/f sleep 1000 & holder=$!; pids=\"$pids $holder\"
         held /mnt/nlm-two; held /mnt/nlm-four
         fails flock -n -s /mnt/nlm-two/f true; fails flock -n -s /mnt/nlm-four/f true
         rm -f /tmp/nlm-got; flock -x /mnt/nlm-two/f touch /tmp/nlm-got & waiter=$!
         sleep 2; [ ! -e /tmp/nlm-got ]
         pkill -P $holder; wait $holder || true; wait $waiter; [ -e /tmp/nlm-got ]
         flock -x /mnt/nlm-four/f sleep 1000 & holder=$!; pids=\"$pids $holder\"
         held /mnt/nlm-one; fails flock -n /mnt/nlm-one/f true
         pkill -P $holder; wait $holder || true
         flock -w 100 /mnt/nlm-one/f true; flock -w 100 /mnt/nlm-two/f true
         umount /mnt/nlm-one /mnt/nlm-two /mnt/nlm-four");
}

/// The server is killed and started again: its status monitor tells the client's, the kernel
/// reclaims, and nobody else gets the lock, also after the grace period.
#[test]
fn version_3_keeps_its_locks_over_a_restart_of_the_server() {
    let _turn = alone();
    run("mkdir -p /srv/nlm/data /srv/nlm/state; chmod 1777 /srv/nlm/data; chmod 700 /srv/nlm/state
         again() { serve --dir /srv/nlm/data --export /export --state /srv/nlm/state; }
         again
         mount -t nfs -o $v3 10.78.1.2:/export /mnt/nlm-one
         mount -t nfs -o $v3 10.78.1.2:/export /mnt/nlm-two
         : > /mnt/nlm-one/f
         flock -x /mnt/nlm-one/f sleep 10000 & holder=$!; pids=\"$pids $holder\"
         for try in $(seq 300); do flock -n /mnt/nlm-two/f true || break; sleep 0.2; done
         fails flock -n /mnt/nlm-two/f true
         kill -9 $server; wait $server || true; again
         # The grace period is a lease of 90 seconds; the first request waits for its end.
         fails flock -n /mnt/nlm-two/f true
         sleep 100; fails flock -n /mnt/nlm-two/f true
         pkill -P $holder; wait $holder || true
         flock -w 100 /mnt/nlm-two/f true
         umount /mnt/nlm-one /mnt/nlm-two");
}
