//! Tests our client on our own group over RDMA: one connection, several connections to each node,
//! and additional paths over TCP.

use crate::kernel_client::started;
use crate::{alone, measured, sh, trunkline};

/// At the end the kernel must have no queue pair and no memory region of either end.
#[test]
fn our_client_reads_what_it_wrote_on_our_group_over_rdma() {
    let _turn = alone();
    let before = sh("rdma resource show qp type RC; rdma resource show mr");
    let serve = [
        "serve --mem 256MiB",
        "--listen 10.77.1.1:12070 --listen rdma:10.77.1.1:20070",
        "--listen 10.77.1.2:12070 --listen rdma:10.77.1.2:20070",
    ];
    let serve: Vec<String> = serve.join(" ").split(' ').map(str::to_owned).collect();
    let server = started(&serve);
    let rdma = "proto=rdma,port=20070,mountport=12070";
    let several = format!("{rdma},nconnect=4,remoteports=10.77.1.1~10.77.1.2");
    let routes = [
        ("rdma", format!("{rdma},nconnect=1")),
        ("rdma-mp", format!("{several},spread_reads,spread_writes")),
        ("mixed", format!("{several}~tcp:10.77.1.1:12070~tcp:10.77.1.2:12070,spread_reads,spread_writes")),
    ];
    let workloads =
        [("random", "4KiB", "128KiB"), ("sequential", "64KiB", "512KiB"), ("sequential", "1MiB", "2MiB")];
    let said = measured("10.77.1.2:/export", 1, &routes, &workloads);
    assert!(said.contains("rdma-mp") && !said.contains("skipped"), "all routes were measured: {said}");
    every_transport_carried_calls(&record::Record::read(&sh("cat /root/record.json")).expect("a record"));
    let program = trunkline().display();
    sh(&format!(
        "mkdir /root/ours; cd /root/ours
         for size in 0 1 4097 65537 3000001; do head -c $size /dev/urandom > f-$size; done
         {program} cp -r -o {several} /root/ours nfs://10.77.1.2/export/ours
         {program} cp -r -o {several} nfs://10.77.1.2/export/ours /root/ours-back
         diff -r /root/ours /root/ours-back"
    ));
    server.signal(rustix::process::Signal::KILL);
    drop(server);
    // Objects of a mount of another case may disappear meanwhile; no object of a program may be
    // new.
    testkit::Deadline::wait_until(
        "the kernel to free the objects",
        std::time::Duration::from_secs(120),
        || {
            let now = sh("rdma resource show qp type RC; rdma resource show mr");
            let mut of_programs = now.lines().filter(|line| !line.contains("comm ["));
            of_programs.all(|line| before.contains(line)).then_some(())
        },
    );
}

/// One session of version 4.2 over RDMA, and one over both transports.
#[test]
fn our_client_speaks_version_4_with_our_group_over_rdma() {
    let _turn = alone();
    let serve = [
        "serve --mem 256MiB --nfs-versions 3,4.1,4.2",
        "--listen 10.77.1.1:12075 --listen rdma:10.77.1.1:20075",
        "--listen 10.77.1.2:12075 --listen rdma:10.77.1.2:20075",
    ];
    let serve: Vec<String> = serve.join(" ").split(' ').map(str::to_owned).collect();
    let _server = started(&serve);
    let program = trunkline().display();
    let rdma = "vers=4.2,proto=rdma,port=20075,nconnect=4,remoteports=10.77.1.1~10.77.1.2";
    let mixed = format!("{rdma}~tcp:10.77.1.1:12075~tcp:10.77.1.2:12075");
    for (name, options) in [("rdma", rdma), ("mixed", &mixed)] {
        sh(&format!(
            "mkdir /root/v4-{name} /root/v4-{name}/many; cd /root/v4-{name}
             for size in 0 1 3 1023 4097 65537 3000001; do head -c $size /dev/urandom > f-$size; done
             (cd many; seq -f a-name-of-some-length-%04g 400 | xargs touch)
             ln -s $(seq -s / 300) long-link
             {program} cp -r -o {options} /root/v4-{name} nfs://10.77.1.2/export/{name}
             {program} cp -r -o {options} nfs://10.77.1.2/export/{name} /root/v4-{name}-back
             diff -r --no-dereference /root/v4-{name} /root/v4-{name}-back
             [ $({program} ls -o {options} nfs://10.77.1.2/export/{name}/many | sort -u | wc -l) = 400 ]
             {program} rm -r -o {options} nfs://10.77.1.2/export/{name}"
        ));
    }
}

/// The port of the device counted packets over RDMA, and in the mixed mount both transports carried
/// calls.
fn every_transport_carried_calls(record: &record::Record) {
    for (name, paths) in [("rdma", 1), ("rdma-mp", 2), ("mixed", 4)] {
        let route = record.route(name).expect("the route was measured");
        assert_eq!(route.paths.len(), paths, "{:?}", route.paths);
        let ports = route.workloads.iter().flat_map(|workload| &workload.ports);
        let sent = ports.filter_map(|port| port.sent_packets).sum::<u64>();
        assert!(sent > 0, "{name}: {:?}", route.workloads);
    }
    let mixed = record.route("mixed").expect("the route was measured");
    for over_rdma in [false, true] {
        let paths = mixed.workloads.iter().flat_map(|workload| &workload.paths);
        let of_it = paths.filter(|path| path.path.starts_with("rdma:") == over_rdma);
        assert!(
            of_it.map(|path| path.calls).sum::<u64>() > 0,
            "over RDMA {over_rdma}: {:?}",
            mixed.workloads
        );
    }
}

/// Tests two processes of a group that serve a directory, one over RDMA and one over TCP.
#[test]
fn calls_over_rdma_move_to_tcp_only_where_tcp_addresses_are_named() {
    let _turn = alone();
    sh("mkdir -p /srv/mixed; mount -t tmpfs none /srv/mixed; mkdir /srv/mixed/data /srv/mixed/state /srv/mixed/group
        chmod 700 /srv/mixed/state /srv/mixed/group; head -c 24000001 /dev/urandom > /root/original");
    let serve = |listen: &str| {
        let line = format!(
            "serve --dir /srv/mixed/data --state /srv/mixed/state --group /srv/mixed/group --export /mixed \
             --no-root-squash {listen}"
        );
        started(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let over_tcp = serve("--listen 10.77.1.2:12071");
    let over_rdma = serve("--listen 10.77.1.1:12071 --listen rdma:10.77.1.1:20071");
    let program = trunkline().display();
    let rdma = "proto=rdma,mountport=12071,remoteports=rdma:10.77.1.1:20071";
    let mixed = format!("{rdma}~tcp:10.77.1.2:12071,nconnect=4,spread_writes,spread_reads");
    // The server that is reached over RDMA is killed when a part of the file is written.
    let copy = format!("{program} cp -o {mixed} /root/original nfs://10.77.1.1/mixed/copy");
    let mut copying = std::process::Command::new("sh");
    copying.args(["-c", &format!("{copy} && echo copied")]);
    let mut copying = crate::lab().client().spawn(copying.current_dir("/")).expect("the guest runs");
    sh(
        "i=0; until [ \"$(du -sk /srv/mixed/data | cut -f1)\" -gt 1000 ]; do i=$((i+1)); [ $i -lt 6000 ]; sleep 0.05; done",
    );
    over_rdma.signal(rustix::process::Signal::KILL);
    drop(over_rdma);
    copying.wait_for_line("copied", std::time::Duration::from_secs(300)).expect("the copy succeeds");
    sh(&format!(
        "cmp /root/original /srv/mixed/data/copy
         {program} cp -o {mixed} nfs://10.77.1.1/mixed/copy /root/back; cmp /root/original /root/back
         fails {program} ls -o {rdma} nfs://10.77.1.2/mixed > /root/said
         grep -q 10.77.1 /root/said
         fails {program} ls -o proto=rdma,port=20072,mountport=12071 nfs://10.77.1.2/mixed > /root/said
         grep -q 'nobody takes connections over RDMA at 10.77.1.2:20072' /root/said; grep -q 'try:.*proto=tcp' /root/said"
    ));
    drop(over_tcp);
    sh("umount /srv/mixed; rm -f /root/original /root/back");
}
