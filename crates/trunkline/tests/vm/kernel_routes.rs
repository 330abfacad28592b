//! Tests `trunkline bench` on mounts that it makes by the kernel's client: the four routes of TCP
//! and RDMA, with one path and with two, by the kernel and by ours.

use crate::kernel_client::started;
use crate::{alone, sh, trunkline};
use record::{Half, Record};

/// The kernel has its client's mounts of an experiment no more, and the temporary directories are
/// gone.
const NOTHING_IS_LEFT: &str = "fails grep trunkline-bench-kernel /proc/mounts
     fails ls -d /tmp/trunkline-bench-kernel-*";

fn serve() -> lab::vm::Running {
    let arguments = "serve --mem 256MiB --listen 10.77.1.1:12090 --listen rdma:10.77.1.1:20090 \
                     --listen 10.77.1.2:12090 --listen rdma:10.77.1.2:20090";
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    started(&arguments)
}

#[test]
fn the_four_routes_are_measured_by_the_kernels_client_and_by_ours() {
    let _turn = alone();
    let _server = serve();
    let (tcp, rdma) = ("port=12090&mountport=12090", "proto=rdma&port=20090&mountport=12090");
    let (both, listed) = ("remoteports=10.77.1.1-10.77.1.2", "remoteports=10.77.1.1~10.77.1.2");
    let mut experiment = "repeats = 2\nwindow_ms = 200\n".to_owned();
    for (name, options) in [
        ("tcp", format!("{tcp}&nconnect=2")),
        ("tcp-mp", format!("{tcp}&nconnect=2&{both}")),
        ("rdma", format!("{rdma}&nconnect=2")),
        ("rdma-mp", format!("{rdma}&nconnect=2&{listed}")),
    ] {
        for (by, scheme) in [("kernel", "kernel:"), ("ours", "")] {
            experiment += &format!(
                "[[route]]\nname = \"{by} {name}\"\ntarget = \"{scheme}nfs://10.77.1.2/export?{options}\"\n"
            );
        }
    }
    for (block, file) in [("4KiB", "256KiB"), ("64KiB", "1MiB")] {
        experiment += &format!(
            "[[workload]]\nname = \"{block}\"\nblock = \"{block}\"\nfile = \"{file}\"\ndepth = 2\nreaders = 1\n\
             writers = 1\n"
        );
    }
    let program = trunkline().display();
    let table = sh(&format!(
        "cat > /root/routes.toml <<'END'\n{experiment}END\n\
         {program} bench --no-report --force --record /root/routes.json /root/routes.toml\n{NOTHING_IS_LEFT}"
    ));
    let record = Record::read(&sh("cat /root/routes.json")).expect("a record");
    for name in ["tcp", "tcp-mp", "rdma", "rdma-mp"] {
        for by in ["kernel", "ours"] {
            let route = record.route(&format!("{by} {name}")).expect("the route is in the record");
            if by == "kernel" && name.ends_with("-mp") {
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
                assert_eq!(measured.cells().count(), 2, "{by} {name} {workload}");
                assert!(measured.cells().all(|(_, cell)| cell.ops > 0), "{by} {name} {workload}");
                let in_software = measured.simulated.as_deref().is_some_and(|it| it.contains("rxe"));
                assert_eq!(in_software, name.starts_with("rdma"), "{:?}", measured.simulated);
            }
            let access = route.access.as_deref();
            let expected = (by == "kernel").then_some("O_DIRECT on the kernel's NFS client, by our threads");
            assert_eq!(access, expected, "{by} {name}");
        }
    }
    assert!(record.failed.is_empty(), "{:?}", record.failed);
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
