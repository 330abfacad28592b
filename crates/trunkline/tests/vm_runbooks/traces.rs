//! What a runbook could leave on a machine, as a list of lines: files with their sizes and times
//! where steps put any, the kernel's objects, modules, mounts, exports, services, processes and
//! sockets.

use lab::vm::Guest;
use std::collections::BTreeSet;

const LIST: &str = r#"
places='/etc /usr/local/sbin /srv'
for more in /var/lib/trunkline /var/lib/trunkline-runbook /run/trunkline*; do
    [ ! -e $more ] || places="$places $more"
done
find $places \( -type d -printf 'directory %p %m\n' -o -path /etc/hosts -o \
    -printf 'file %p %m %s %T@ %l\n' \)
# A step adds lines, and its undo takes them away: what was there before is there as it was.
stat -c 'file %n %f' /etc/hosts
sed 's/^/hosts /' /etc/hosts
find /sys/kernel/config -maxdepth 3 -printf 'configfs %p\n'
cut -d ' ' -f 1-3 /proc/mounts | sed 's/^/mount /'
cut -d ' ' -f 1 /proc/modules | sed 's/^/module /'
for at in /sys/class/nvme/* /sys/class/nvme-subsystem/* /sys/block/nvme*; do
    [ ! -e $at ] || echo "nvme $at"
done
[ ! -e /proc/fs/nfsd/exports ] || sed 's/^/export /' /proc/fs/nfsd/exports
sed 's/^/export /' /var/lib/nfs/etab
for name in rpc.mountd rpc.nfsd rpcbind nfsd; do
    ! pgrep -x $name >/dev/null || echo "process $name"
done
for one in $(pgrep -x trunkline); do tr '\0' ' ' < /proc/$one/cmdline | sed 's/^/process /'; echo; done
ss -Hltun | awk '{ print "listens", $1, $5 }'
rdma resource show cm_id | sed -n '/ LISTEN /s/.*\(src-addr [^ ]*\).*/listens rdma \1/p'
"#;

/// All that a machine has of these things.
#[track_caller]
pub fn traces(guest: &Guest) -> BTreeSet<String> {
    crate::sh(guest, LIST).lines().map(str::to_owned).collect()
}

/// Nothing has come to the machines, and nothing has gone.
#[track_caller]
pub fn assert_same(before: &[BTreeSet<String>; 2], after: &[BTreeSet<String>; 2]) {
    let differ = |one: &[BTreeSet<String>; 2], other: &[BTreeSet<String>; 2]| {
        let pairs = one.iter().zip(other);
        pairs.map(|(one, other)| one.difference(other).cloned().collect()).collect::<Vec<Vec<String>>>()
    };
    let (came, went) = (differ(after, before), differ(before, after));
    let is_same = came.iter().chain(&went).all(Vec::is_empty);
    assert!(is_same, "left on the server and on the host: {came:#?}\ngone: {went:#?}");
}
