//! Tests `trunkline bench` on mounts that it makes by the kernel's client: the four routes of TCP
//! and RDMA, with one path and with two, by the kernel and by ours.

use crate::kernel_client::started;
use crate::{alone, sh, trunkline};
use record::{Half, Record};

/// The kernel has its client's mounts of an experiment no more, and the temporary directories are
/// gone.
const NOTHING_IS_LEFT: &str = "fails grep trunkline-bench-kernel /proc/mounts
     fails ls -d /tmp/trunkline-bench-kernel-*";

const NFS4_TCP: &str = "kernel:nfs://10.77.1.2/export?vers=4.2&port=12090";
const NFS4_RDMA: &str = "kernel:nfs://10.77.1.2/export?vers=4.2&proto=rdma&port=20090";

fn serve() -> lab::vm::Running {
    let arguments = "serve --mem 256MiB --nfs-versions 3,4.2 --listen 10.77.1.1:12090 --listen rdma:10.77.1.1:20090 \
                     --listen 10.77.1.2:12090 --listen rdma:10.77.1.2:20090";
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    started(&arguments)
}

/// The four routes by the kernel and by ours, and that of the kernel over TCP by NFS version 4.2.
fn experiment() -> String {
    let (tcp, rdma) = ("port=12090&mountport=12090", "proto=rdma&port=20090&mountport=12090");
    let (both, listed) = ("remoteports=10.77.1.1-10.77.1.2", "remoteports=10.77.1.1~10.77.1.2");
    let mut routes: Vec<(String, String)> = Vec::new();
    for (name, options) in [
        ("tcp", format!("{tcp}&nconnect=2")),
        ("tcp-mp", format!("{tcp}&nconnect=2&{both}")),
        ("rdma", format!("{rdma}&nconnect=2")),
        ("rdma-mp", format!("{rdma}&nconnect=2&{listed}")),
    ] {
        for (by, scheme) in [("kernel", "kernel:"), ("ours", "")] {
            routes.push((format!("{by} {name}"), format!("{scheme}nfs://10.77.1.2/export?{options}")));
        }
    }
    routes.push(("kernel tcp nfs4".to_owned(), format!("{NFS4_TCP}&nconnect=2")));
    let route =
        |(name, target): (String, String)| format!("[[route]]\nname = \"{name}\"\ntarget = \"{target}\"\n");
    let workload = |(block, file): (&str, &str)| {
        format!(
            "[[workload]]\nname = \"{block}\"\nblock = \"{block}\"\nfile = \"{file}\"\ndepth = 2\nreaders = 1\n\
             writers = 1\n"
        )
    };
    let routes = routes.into_iter().map(route);
    let workloads = [("4KiB", "256KiB"), ("64KiB", "1MiB")].into_iter().map(workload);
    std::iter::once("repeats = 2\nwindow_ms = 200\n".to_owned()).chain(routes).chain(workloads).collect()
}

#[test]
fn the_four_routes_are_measured_by_the_kernels_client_and_by_ours() {
    let _turn = alone();
    let _server = serve();
    let (program, experiment) = (trunkline().display(), experiment());
    let table = sh(&format!(
        "cat > /root/routes.toml <<'END'\n{experiment}END\n\
         {program} bench --no-report --force --record /root/routes.json /root/routes.toml\n{NOTHING_IS_LEFT}"
    ));
    let record = Record::read(&sh("cat /root/routes.json")).expect("a record");
    assert_eq!(record.routes.len(), 9);
    for route in &record.routes {
        let (by, kind) = route.name.split_once(' ').expect("whose it is, and its kind");
        if by == "kernel" && kind.ends_with("-mp") {
            // A stock kernel has one path for each mount of version 3.
            let reason = route.skipped.as_deref().unwrap_or_default();
            assert!(reason.contains("few kernels know remoteports"), "{table}\n{reason}");
            continue;
        }
        assert_eq!(route.skipped, None, "{table}");
        for workload in ["4KiB", "64KiB"] {
            let measured = route.workload(workload, Half::Raw).expect("both workloads were measured");
            let verified = measured.verified.expect("the data were compared");
            assert!(verified.stamps > 0 && verified.bytes > 0 && verified.wrong == 0, "{verified:?}");
            assert_eq!(measured.cells().count(), 2, "{} {workload}", route.name);
            assert!(measured.cells().all(|(_, cell)| cell.ops > 0), "{} {workload}", route.name);
            let in_software = measured.simulated.as_deref().is_some_and(|it| it.contains("rxe"));
            assert_eq!(in_software, kind.starts_with("rdma"), "{:?}", measured.simulated);
        }
        let access = route.access.as_deref();
        let expected = (by == "kernel").then_some("O_DIRECT on the kernel's NFS client, by our threads");
        assert_eq!(access, expected, "{}", route.name);
        assert_eq!(route.connections, Some(2), "{}", route.name);
    }
    assert!(record.failed.is_empty(), "{:?}", record.failed);
}

#[test]
fn a_mount_by_version_4_over_the_connections_of_another_transport_is_refused() {
    let _turn = alone();
    let _server = serve();
    let program = trunkline().display();
    let bench = |targets: &str| {
        format!("cd /root; {program} bench --quick --no-report --force --record alone.json {targets}")
    };
    let said =
        sh(&format!("fails eval \"{}\"\n{NOTHING_IS_LEFT}", bench(&format!("'{NFS4_TCP}' '{NFS4_RDMA}'"))));
    let expected = "proto=rdma was asked for, and tcp is in use";
    assert!(said.contains(expected) && said.contains("in a run of its own"), "{said}");
    let experiment = format!(
        "repeats = 3\nwindow_ms = 400\n[[route]]\nname = \"kernel\"\ntarget = \"{NFS4_RDMA}\"\n\
         [[workload]]\nname = \"reads\"\nblock = \"64KiB\"\nfile = \"4MiB\"\ndepth = 1\nreaders = 1\n"
    );
    let table = sh(&format!(
        "cd /root; cat > alone.toml <<'END'\n{experiment}END
         {program} bench --no-report --force --record alone.json alone.toml\n{NOTHING_IS_LEFT}"
    ));
    let record = Record::read(&sh("cat /root/alone.json")).expect("a record");
    let route = &record.routes[0];
    assert_eq!(route.connections, Some(1), "{table}");
    for workload in &route.workloads {
        let moved = workload.ports.iter().any(|port| port.sent_packets.is_some_and(|packets| packets > 0));
        assert!(moved, "it went over RDMA: {:?}", workload.ports);
    }
}

#[test]
fn a_mount_by_the_kernel_that_fails_says_why_and_a_signal_unmounts_it() {
    let _turn = alone();
    let _server = serve();
    let program = trunkline().display();
    let target = "kernel:nfs://10.77.1.2:12090/export";
    let said = sh(&format!("fails {program} bench --quick kernel:nfs://10.77.1.2:12099/export"));
    assert!(
        said.contains("cannot mount nfs://10.77.1.2:12099/export") && said.contains("mount.nfs: "),
        "{said}"
    );
    let said = sh(&format!("fails {program} bench --quick '{target}?vers=4.1'"));
    assert!(said.contains("cannot mount") && said.contains("mount.nfs: "), "not served: {said}");
    let said = sh(&format!("fails {program} bench --quick '{target}?nconect=2'"));
    assert!(said.contains("incorrect mount option"), "{said}");
    let said = sh(&format!("fails setpriv --reuid=1000 --clear-groups {program} bench --quick {target}"));
    assert!(said.contains("only root may mount"), "{said}");
    let experiment = format!(
        "repeats = 100\nwindow_ms = 600000\n[[route]]\nname = \"kernel\"\ntarget = \"{target}\"\n\
         [[workload]]\nname = \"reads\"\nblock = \"4KiB\"\nfile = \"256KiB\"\ndepth = 1\nreaders = 1\n"
    );
    sh(&format!(
        "cd /root; cat > endless.toml <<'END'\n{experiment}END
         {program} bench --record /root/never.json endless.toml & bench=$!
         for try in $(seq 600); do ls /tmp/trunkline-bench-kernel-*/trunkline-bench-* && break; sleep 0.1; done
         grep trunkline-bench-kernel /proc/mounts
         kill -TERM $bench
         status=0; wait $bench || status=$?
         test $status = 143
         fails ls /root/never.json
         {NOTHING_IS_LEFT}"
    ));
}

/// A small program in the place of io500; the suite `bench` says what it does.
const IO500: &str = include_str!("../support/io500.sh");

#[test]
fn io500_runs_on_mounts_that_the_kernel_makes_and_they_are_unmounted() {
    let _turn = alone();
    let _server = serve();
    let program = trunkline().display();
    sh(&format!(
        "mkdir -p /root/suite; cat > /root/suite/io500 <<'END'\n{IO500}END\nchmod +x /root/suite/io500"
    ));
    let bench = |targets: &str, options: &str| {
        format!(
            "cd /root; rm -rf io; {program} bench --io500 --suite-dir suite --io500-results io {options} {targets}"
        )
    };
    let targets = "'kernel:nfs://10.77.1.2:12090/export?nconnect=2' \
        'kernel:nfs://10.77.1.2/export?vers=4.2&port=12090'";
    let said = sh(&format!("{}; {NOTHING_IS_LEFT}", bench(targets, "")));
    assert_eq!(said.matches("02091cf").count(), 2, "a run on each: {said}");
    assert!(said.contains("score   bandwidth 1.224745 GiB/s") && !said.contains("FAILED"), "{said}");
    let data = sh("grep -h datadir /root/io/*/trunkline.ini");
    assert_eq!(data.matches("/trunkline-bench-kernel-").count(), 2, "{data}");
    // A run that fails, and a mount that cannot be made, leave nothing either.
    sh("printf '[global]\\nverbosity = 9\\n' > /root/full.ini");
    let said = sh(&format!("fails eval \"{}\"; {NOTHING_IS_LEFT}", bench(targets, "--io500-ini full.ini")));
    assert_eq!(said.matches("IOR: No space left on device").count(), 2, "{said}");
    let nobody = "kernel:nfs://10.77.1.2:12099/export";
    let said = sh(&format!("fails eval \"{}\"; {NOTHING_IS_LEFT}", bench(nobody, "")));
    assert!(said.contains("FAILED") && said.contains("mount.nfs: "), "{said}");
    // What was written is removed from the server too.
    sh("mount -t nfs -o vers=3,proto=tcp,nolock,port=12090,mountport=12090,mountproto=tcp 10.77.1.2:/export /mnt
        left=$(ls -A /mnt); umount /mnt; [ -z \"$left\" ]");
}
