//! Tests the Linux kernel's client of NFS version 4.1 and 4.2 on our server.

use crate::kernel_client::{Mounted, a_tree_is_copied_in, fio_finds_what_it_wrote};
use crate::{alone, lab, sh};

#[test]
fn version_4_1_reads_what_it_wrote() {
    let _turn = alone();
    let mounted = Mounted::version_4("v41", 12110, 1, "nconnect=2");
    let options = sh("grep ' /mnt/v41 ' /proc/mounts");
    assert!(options.contains("nfs4") && options.contains("vers=4.1"), "{options}");
    fio_finds_what_it_wrote(mounted.directory(), &[("4k", "2m"), ("64k", "8m"), ("1m", "16m")]);
    sh(&format!("rm {}/f*", mounted.directory()));
    a_tree_is_copied_in(mounted.directory(), 10);
}

/// What programs expect of names, links, sizes and attributes.
#[test]
fn version_4_2_behaves_as_any_file_system() {
    let _turn = alone();
    let mounted = Mounted::version_4("v42", 12111, 2, "noac");
    let directory = mounted.directory();
    fio_finds_what_it_wrote(directory, &[("64k", "8m")]);
    sh(&format!("rm {directory}/f*"));
    a_tree_is_copied_in(directory, 5);
    sh(&format!(
        "cd {directory}
         echo one > a; mv a b; [ ! -e a ]; [ \"$(cat b)\" = one ]
         mkdir d; mv b d/b; ln d/b hard; [ $(stat -c %h hard) = 2 ]; rm d/b; [ \"$(cat hard)\" = one ]
         ln -s hard soft; [ \"$(readlink soft)\" = hard ]; [ \"$(cat soft)\" = one ]
         mkfifo pipe; [ -p pipe ]; fails rmdir nothing; rmdir d; fails ls d
         chmod 640 hard; [ $(stat -c %a hard) = 640 ]; chown 12:34 hard; [ $(stat -c %u:%g hard) = 12:34 ]
         touch -d @1000000000 hard; [ $(stat -c %Y hard) = 1000000000 ]
         truncate -s 10 hard; truncate -s 20 hard; [ $(stat -c %s hard) = 20 ]
         [ $(df -B1 --output=size {directory} | tail -1) = 268435456 ]
         fails mkdir hard; fails cat nothing; echo more >> hard; [ $(stat -c %s hard) = 25 ]"
    ));
}

/// Locks of the two kinds that programs use, among processes of one client.
#[test]
fn version_4_locks_files_and_ranges() {
    let _turn = alone();
    let mounted = Mounted::version_4("v4-locks", 12112, 2, "nconnect=1");
    let directory = mounted.directory();
    sh(&format!(
        "cd {directory}; : > whole
         flock whole sleep 1000 & holder=$!
         for try in $(seq 100); do flock -n whole true || break; sleep 0.1; done
         fails flock -n whole true; fails flock -n -s whole true
         pkill -P $holder; wait $holder || true
         flock -w 30 whole true"
    ));
}

/// Holes, copies by the server and extended attributes, which version 4.2 adds.
#[test]
fn version_4_2_has_holes_copies_and_attributes() {
    let _turn = alone();
    let mounted = Mounted::version_4("v42-more", 12113, 2, "nconnect=1");
    let directory = mounted.directory();
    sh(&format!(
        "cd {directory}
         head -c 3000000 /dev/urandom > from; cp from to; cmp from to
         copies() {{ awk '$1 == \"COPY:\" {{ print $2 }}' /proc/self/mountstats | tail -1; }}
         [ $(copies) -gt 0 ]
         truncate -s 8M holes; printf x | dd of=holes bs=1 seek=4194304 conv=notrunc 2>/dev/null
         sync holes; [ $(stat -c %b holes) -lt 1000 ]
         cp --sparse=auto holes copy; cmp holes copy; [ $(stat -c %b copy) -lt 1000 ]
         fallocate -l 1M space; [ $(stat -c %s space) = 1048576 ]
         fallocate -p -o 0 -l 4096 from; cmp -n 4096 from /dev/zero; [ $(stat -c %s from) = 3000000 ]
         setfattr -n user.colour -v blue from
         [ \"$(getfattr --only-values -n user.colour from)\" = blue ]
         getfattr -d from | grep user.colour; setfattr -x user.colour from
         fails getfattr -n user.colour from"
    ));
}

/// A file that is removed while a program has it open can still be used, whoever removes it.
#[test]
fn version_4_keeps_a_file_that_is_open() {
    let _turn = alone();
    let mounted = Mounted::version_4("v4-open", 12114, 1, "nconnect=1");
    let directory = mounted.directory();
    sh(&format!(
        "cd {directory}; echo kept > f; exec 7<>f; rm f; [ \"$(cat <&7)\" = kept ]; echo more >&7; exec 7<&-
         echo kept > g; mkdir -p /mnt/v3-remover
         mount -t nfs -o vers=3,proto=tcp,port=12114,mountport=12114,mountproto=tcp,nolock 10.77.1.2:/export \
             /mnt/v3-remover
         exec 7<g; rm /mnt/v3-remover/g; umount /mnt/v3-remover
         echo 3 > /proc/sys/vm/drop_caches; [ \"$(cat <&7)\" = kept ]; exec 7<&-
         fails cat g; [ -z \"$(ls -A)\" ]"
    ));
}

/// A server that is killed and started again: an open file and its lock stay, and another client
/// does not get the lock meanwhile. The kernel is two clients here, one for each minor version.
#[test]
fn version_4_keeps_opens_and_locks_over_a_restart_of_the_server() {
    let _turn = alone();
    let at = "mkdir -p /srv/v4/data /srv/v4/state; chmod 1777 /srv/v4/data; chmod 700 /srv/v4/state";
    lab().server().sh(at).expect("the guest runs");
    let serve = ["--dir", "/srv/v4/data", "--export", "/export", "--state", "/srv/v4/state"];
    let mut mounted = Mounted::serving_version_4("v4-restart", 12115, 2, "nconnect=1", &serve);
    let directory = mounted.directory().to_owned();
    sh(&format!(
        "mkdir -p /mnt/v4-other; mount -t nfs -o vers=4.1,port=12115 10.77.1.2:/export /mnt/v4-other
         rm -f /tmp/v4-end; echo before > {directory}/held
         (flock -x 8; while [ ! -e /tmp/v4-end ]; do sleep 0.2; done; echo after >&8) 8>>{directory}/held \
             </dev/null >/dev/null 2>&1 &
         for try in $(seq 100); do flock -n /mnt/v4-other/held true || break; sleep 0.2; done
         fails flock -n /mnt/v4-other/held true"
    ));
    for _ in 0..2 {
        mounted.restart();
        // Both find the server changed when they next call it. Whoever asks for something new waits
        // until all have reclaimed, and only then is answered.
        sh(&format!(
            "echo 3 > /proc/sys/vm/drop_caches; ls {directory} | grep held
             fails flock -n /mnt/v4-other/held true"
        ));
    }
    sh(&format!(
        "touch /tmp/v4-end; flock -w 200 /mnt/v4-other/held true
         [ \"$(cat /mnt/v4-other/held)\" = \"$(echo before; echo after)\" ]
         echo new > {directory}/new; [ \"$(cat /mnt/v4-other/new)\" = new ]
         umount /mnt/v4-other"
    ));
}

/// A server with three addresses, of which the client is told one, and uses all for its one
/// session.
fn uses_all_three_addresses(name: &str, port: u16, minor: u32, options: &str) {
    const OTHERS: [&str; 2] = ["10.77.1.22", "10.77.1.23"];
    let _turn = alone();
    let change = |what: &str| {
        let device = "$(ip -o -4 address show to 10.77.1.2 | awk '{ print $2; exit }')";
        let each = OTHERS.map(|address| format!("ip address {what} {address}/32 dev {device}"));
        each.join("; ")
    };
    lab().server().sh(&change("add")).expect("the guest runs");
    let listen = OTHERS.map(|address| format!("{address}:{port}"));
    let serve = ["--mem", "64MiB", "--listen", &listen[0], "--listen", &listen[1]];
    {
        let mounted = Mounted::serving_version_4(name, port, minor, options, &serve);
        let directory = mounted.directory();
        fio_finds_what_it_wrote(directory, &[("64k", "8m")]);
        // The calls that each connection has sent.
        let sent = sh(&format!(
            "awk '$5 == \"{directory}\" {{ here = 1 }} $5 != \"{directory}\" && $1 == \"device\" {{ here = 0 }}
                  here && $1 == \"xprt:\" {{ print $8 }}' /proc/self/mountstats"
        ));
        let sent: Vec<u64> = sent.lines().map(|line| line.trim().parse().expect("a number")).collect();
        assert!(sent.len() == 3 && sent.iter().all(|calls| *calls > 20), "{sent:?}");
        let peers =
            sh(&format!("ss -Htn state established dport = :{port} | awk '{{ print $4 }}' | sort -u"));
        assert_eq!(peers.lines().count(), 3, "{peers}");
    }
    lab().server().sh(&change("del")).expect("the guest runs");
}

/// By `fs_locations`, which the client asks for because it is told so.
#[test]
fn version_4_finds_the_other_addresses_of_its_server() {
    uses_all_three_addresses("v4-trunk", 12116, 2, "trunkdiscovery");
}

/// By a layout, which the client asks for by itself, and not for small files.
#[test]
fn version_4_uses_all_addresses_without_any_option() {
    uses_all_three_addresses("v4-layout", 12117, 1, "hard");
}
