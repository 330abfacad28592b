//! Tests the network lab on this machine's kernel: links are shaped in both directions, cut,
//! silenced and restored, and nothing is left behind. Needs root, `ip`, `tc` and `ping`: plain
//! `cargo test` does not run these tests, `cargo xtask test` does.

#[path = "support/mnt.rs"]
mod mnt;

use lab::net::{Condition, Layout, Net, Rate, Spec};
use mnt::{mnt, results};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::{Deadline, Process, require_program, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(60);

fn spec(nodes: u8) -> Spec {
    Spec::new(nodes, "200mbit".parse().expect("a rate"))
}

fn start(spec: &Spec) -> Net {
    match Net::start(spec) {
        Ok(net) => net,
        Err(error) => panic!("cannot start a lab: {error}"),
    }
}

/// Runs a program in a namespace of the lab and returns its output.
fn output_in(net: &Net, namespace: &str, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(require_program(words.next().expect("a program")));
    command.args(words);
    let mut inside = net.exec_in(namespace, &command).expect("the namespace exists");
    let output = inside.output().expect("the program runs");
    assert!(output.status.success(), "{line} in {namespace}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a packet to this address is answered within a second.
fn answers(net: &Net, namespace: &str, address: &str) -> bool {
    let mut ping = Command::new(require_program("ping"));
    ping.args(["-n", "-q", "-c", "1", "-W", "1", address]);
    let mut inside = net.exec_in(namespace, &ping).expect("the namespace exists");
    inside.output().expect("ping runs").status.success()
}

fn wait_for_answer(net: &Net, address: &str) {
    Deadline::wait_until(&format!("an answer from {address}"), TIMEOUT, || {
        answers(net, "client", address).then_some(())
    });
}

/// The namespaces of this machine whose name contains the id of the lab.
fn namespaces_of(lab: &str) -> Vec<String> {
    let output = Command::new(require_program("ip")).args(["netns", "list"]).output().expect("ip runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| line.contains(lab)).map(str::to_owned).collect()
}

fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments).env_remove("TRUNKLINE_LAB");
    command
}

/// A lab held by a separate process, and the id of the lab.
fn held_lab() -> (Process, String) {
    let script = "echo lab $TRUNKLINE_LAB; exec sleep 1000";
    let arguments = ["lab", "net", "--nodes", "2", "--rate", "200mbit", "--", "sh", "-c", script];
    let process = Process::spawn(trunkline(&arguments));
    let line = process.wait_for_line("lab ", TIMEOUT);
    (process, line.trim_start_matches("lab ").to_owned())
}

#[test]
fn every_link_is_shaped_at_both_ends_and_carries_packets() {
    let net = start(&spec(3));
    assert_eq!(net.links().len(), 3);
    for link in net.links() {
        for namespace in ["client", "nodes"] {
            let shaped = output_in(&net, namespace, &format!("tc qdisc show dev {}", link.name));
            assert!(shaped.contains("tbf") && shaped.contains("rate 200Mbit"), "{namespace}: {shaped}");
        }
        wait_for_answer(&net, &link.node.to_string());
        wait_for_answer(&net, &link.node_v6.to_string());
    }
    assert!(answers(&net, "nodes", "127.0.0.1"), "the loopback interface of the namespace works");
    net.stop().expect("the lab is removed");
}

#[test]
fn a_cut_link_carries_nothing_until_it_is_restored() {
    let net = start(&spec(2));
    wait_for_answer(&net, "10.77.1.2");
    net.cut("n1").expect("cut");
    assert!(!answers(&net, "client", "10.77.1.2"));
    assert!(output_in(&net, "client", "ip link show n1").contains("NO-CARRIER"));
    assert!(answers(&net, "client", "10.77.2.2"), "the other link is unaffected");
    assert_eq!(net.state().condition("n1").expect("a link"), Condition::Cut);
    net.restore("n1").expect("restored");
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "fd77:1::2");
    assert_eq!(net.state().condition("n1").expect("a link"), Condition::Up);
    let shaped = output_in(&net, "nodes", "tc qdisc show dev n1");
    assert!(shaped.contains("rate 200Mbit"), "still shaped: {shaped}");
}

#[test]
fn a_silenced_link_keeps_its_carrier_and_drops_every_packet() {
    let net = start(&spec(2));
    wait_for_answer(&net, "10.77.2.2");
    wait_for_answer(&net, "fd77:2::2");
    net.drop_silently("n2").expect("silenced");
    assert!(!answers(&net, "client", "10.77.2.2"));
    assert!(!answers(&net, "client", "fd77:2::2"));
    assert!(!answers(&net, "nodes", "10.77.2.1"), "the other direction is silent too");
    assert!(output_in(&net, "client", "ip link show n2").contains("LOWER_UP"));
    assert!(answers(&net, "client", "10.77.1.2"), "the other link is unaffected");
    net.restore("n2").expect("restored");
    wait_for_answer(&net, "10.77.2.2");
    wait_for_answer(&net, "fd77:2::2");
}

#[test]
fn separate_nodes_have_a_namespace_each() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(2) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "10.77.2.2");
    assert!(output_in(&net, "node2", "ip -o addr").contains("10.77.2.2"));
    assert!(!output_in(&net, "node2", "ip -o addr").contains("10.77.1.2"));
    assert!(!answers(&net, "node1", "10.77.2.2"), "the nodes cannot reach each other");
    for address in ["10.77.1.1", "10.77.2.1", "fd77:1::1"] {
        assert!(answers(&net, "node2", address), "all of the client: {address}");
    }
    net.cut("n2").expect("cut");
    assert!(!answers(&net, "node2", "10.77.1.1"), "over its own link only");
    net.restore("n2").expect("restored");
    wait_for_answer(&net, "10.77.2.2");
    assert!(answers(&net, "node2", "10.77.1.1"), "as before");
}

#[test]
fn errors_for_unknown_links_and_namespaces_list_the_existing_ones() {
    let net = start(&spec(2));
    assert!(net.cut("n3").expect_err("no such link").to_string().contains("n1 n2"));
    let error = net.exec_in("node1", &Command::new("true")).expect_err("no such namespace");
    assert!(error.to_string().contains("client nodes"), "{error}");
}

#[test]
fn a_lab_dropped_by_a_panic_removes_its_processes_and_namespaces() {
    let (tell, told) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let net = start(&spec(1));
        let mut stubborn = Command::new("sh");
        stubborn.args(["-c", "trap '' TERM; echo up; while :; do sleep 1; done"]);
        let process = Process::spawn(net.exec_in("nodes", &stubborn).expect("the namespace exists"));
        process.wait_for_line("up", TIMEOUT);
        tell.send((net.id().to_owned(), process)).expect("the test listens");
        panic!("as a failing test would");
    });
    assert!(panicked.join().is_err());
    let (id, mut process) = told.recv().expect("the lab was started");
    assert_eq!(namespaces_of(&id), Vec::<String>::new());
    process.wait(TIMEOUT);
}

#[test]
fn the_next_lab_removes_what_a_killed_lab_left_behind() {
    let (mut process, id) = held_lab();
    assert_eq!(namespaces_of(&id).len(), 2);
    process.signal(Signal::KILL);
    process.wait(TIMEOUT);
    // No assertion that the namespaces still exist: the lab of another test may have removed them
    // already.
    let net = start(&spec(1));
    assert_eq!(namespaces_of(&id), Vec::<String>::new());
    assert_eq!(namespaces_of(net.id()).len(), 2);
}

#[test]
fn a_terminated_lab_removes_its_namespaces() {
    let (mut process, id) = held_lab();
    process.terminate(TIMEOUT);
    assert_eq!(namespaces_of(&id), Vec::<String>::new());
}

#[test]
fn links_are_cut_and_restored_from_another_terminal() {
    let (mut process, id) = held_lab();
    let run = |arguments: &[&str]| {
        let output = trunkline(arguments).env("TRUNKLINE_LAB", &id).output().expect("the program runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let condition = || lab::net::find(Some(&id)).and_then(|lab| lab.condition("n2")).expect("the lab runs");
    run(&["lab", "cut", "n2"]);
    assert_eq!(condition(), Condition::Cut);
    assert!(run(&["lab", "list"]).contains(&id));
    run(&["lab", "restore", "n2"]);
    assert_eq!(condition(), Condition::Up);
    let addresses = run(&["lab", "exec", "nodes", "--", "ip", "-o", "addr"]);
    assert!(addresses.contains("10.77.2.2"), "{addresses}");
    process.terminate(TIMEOUT);
}

#[test]
fn a_command_gets_the_addresses_of_the_lab_and_its_status_is_returned() {
    let script = "echo $TRUNKLINE_LAB_NODES $TRUNKLINE_LAB_CLIENT_V6; exit 7";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    let net = start(&spec(2));
    let output = net.exec_in("client", &shell).expect("a client").output().expect("the program runs");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"10.77.1.2,10.77.2.2 fd77:1::1,fd77:2::1\n");
    let status = lab::net::run(&spec(1), Some("echo ready; sleep 1000"), &shell).expect("the program runs");
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_delay_is_set_or_the_error_names_the_missing_kernel_module() {
    let delayed = Spec { delay: Some(Duration::from_millis(1)), ..spec(1) };
    match Net::start(&delayed) {
        Ok(net) => assert!(output_in(&net, "client", "tc qdisc show dev n1").contains("netem")),
        Err(error) => assert!(error.to_string().contains("sch_netem"), "{error}"),
    }
}

#[test]
fn the_list_shows_the_rate_of_a_lab() {
    let rate: Rate = "2.5gbit".parse().expect("a rate");
    let net = start(&Spec { rate: Some(rate), ..spec(1) });
    let listed = lab::net::list().expect("the list").into_iter().find(|lab| lab.id() == net.id());
    assert_eq!(listed.and_then(|lab| lab.rate()), Some(rate));
}

/// The status of MOUNT for a path that a client in a namespace mounts.
fn mount_from(net: &Net, namespace: &str, address: &str, path: &str) -> u32 {
    in_namespace(net, namespace, || mnt(&mut TcpStream::connect(address).expect("the server accepts"), path))
}

/// Runs a function in a namespace of the lab.
fn in_namespace<T: Send>(net: &Net, namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let place = Path::new("/run/netns").join(net.state().full_name(namespace));
    let place = File::open(place).expect("the namespace exists");
    // In a separate thread, which stays in the namespace.
    let asking = || {
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        work()
    };
    std::thread::scope(|scope| scope.spawn(asking).join().expect("the call is answered"))
}

#[test]
fn a_thread_in_a_namespace_of_the_lab_can_remove_the_lab() {
    let net = start(&spec(1));
    let lab = net.state().id().to_owned();
    let place = Path::new("/run/netns").join(net.state().full_name("client"));
    let place = File::open(place).expect("the namespace exists");
    let removing = std::thread::spawn(move || {
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        net.stop()
    });
    removing.join().expect("no panic").expect("the lab is removed");
    assert_eq!(namespaces_of(&lab), Vec::<String>::new());
}

/// A server in the namespace `client` of a lab, where links to several hosts end.
fn serve_in(net: &Net, arguments: &[&str]) -> Process {
    let command = net.exec_in("client", &trunkline(arguments)).expect("the namespace exists");
    let process = Process::spawn(command);
    process.wait_for_line("ready", TIMEOUT);
    process
}

const OK: u32 = 0;
/// RFC 1813 s5.1.5
const ACCES: u32 = 13;

#[test]
fn export_rules_apply_by_client_address_and_after_a_reload() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(2) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "10.77.2.2");
    let dir = testkit::temp_dir("rules");
    let file = dir.path().join("rules.toml");
    let mut text = "[[node]]\nlisten = [\"0.0.0.0:2049\"]\n".to_owned();
    for (path, rules) in [
        ("/network", "allow = [\"10.77.1.0/24\"]"),
        ("/host", "allow = [\"10.77.2.2\"]"),
        ("/both", "allow = [\"10.77.0.0/16\"]"),
        ("/nobody", ""),
        ("/secure", "allow = [\"10.77.0.0/16\"]\nsecure = true"),
    ] {
        text.push_str(&format!("[[export]]\npath = \"{path}\"\nmem = \"1MiB\"\n{rules}\n"));
    }
    std::fs::write(&file, &text).expect("a file");
    let process = serve_in(&net, &["serve", "-c", file.to_str().expect("UTF-8")]);
    let check = |expected: [(&str, u32, u32); 5]| {
        for (path, first, second) in expected {
            assert_eq!(mount_from(&net, "node1", "10.77.1.1:2049", path), first, "{path} from 10.77.1.2");
            assert_eq!(mount_from(&net, "node2", "10.77.2.1:2049", path), second, "{path} from 10.77.2.2");
        }
    };
    check([
        ("/network", OK, ACCES),
        ("/host", ACCES, OK),
        ("/both", OK, OK),
        ("/nobody", ACCES, ACCES),
        ("/secure", ACCES, ACCES),
    ]);
    std::fs::write(&file, text.replace("10.77.1.0/24", "10.77.2.0/24")).expect("a file");
    process.signal(Signal::HUP);
    process.wait_for_line("reloaded: 1 changed, 0 not taken over", TIMEOUT);
    assert_eq!(mount_from(&net, "node1", "10.77.1.1:2049", "/network"), ACCES, "the new rules apply");
    assert_eq!(mount_from(&net, "node2", "10.77.2.1:2049", "/network"), OK);
}

/// Connects from a port of this range.
fn connected_from(ports: Range<u16>, address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().expect("an address");
    for port in ports {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        let own = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        // The port of an earlier connection may stay in TIME_WAIT.
        if bind(&socket, &own).is_ok() && connect(&socket, &address).is_ok() {
            return TcpStream::from(socket);
        }
    }
    panic!("no connection to {address}");
}

#[test]
fn a_secure_export_and_its_handles_require_a_port_below_1024() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(1) });
    wait_for_answer(&net, "10.77.1.2");
    let dir = testkit::temp_dir("secure");
    let file = dir.path().join("secure.toml");
    let rules = "allow = [\"10.77.1.2\"]\nsecure = true\n";
    let text = format!(
        "[[node]]\nlisten = [\"0.0.0.0:2049\"]\n[[export]]\npath = \"/safe\"\nmem = \"1MiB\"\n{rules}"
    );
    std::fs::write(&file, &text).expect("a file");
    let process = serve_in(&net, &["serve", "-c", file.to_str().expect("UTF-8")]);
    let at = "10.77.1.1:2049";
    let (low, high) = (|| connected_from(600..1024, at), || connected_from(1024..2048, at));
    let status = |results: &[u8]| u32::from_be_bytes(results[..4].try_into().expect("a status"));
    // GETATTR of the root.
    let attributes = |mut stream: TcpStream, handle: &[u8]| status(&results(&mut stream, 100_003, 1, handle));
    let handle = in_namespace(&net, "node1", || {
        assert_eq!(mnt(&mut high(), "/safe"), ACCES, "from a port of 1024 or more");
        let mounted = results(&mut low(), 100_005, 1, b"/safe");
        assert_eq!(status(&mounted), OK, "from a port below 1024");
        let len = u32::from_be_bytes(mounted[4..8].try_into().expect("a length"));
        mounted[8..8 + len as usize].to_vec()
    });
    in_namespace(&net, "node1", || {
        assert_eq!(attributes(low(), &handle), OK);
        assert_eq!(attributes(high(), &handle), ACCES, "the port is checked for a handle too");
    });
    std::fs::write(&file, text.replace("secure = true", "secure = false")).expect("a file");
    process.signal(Signal::HUP);
    process.wait_for_line("reloaded: 1 changed, 0 not taken over", TIMEOUT);
    in_namespace(&net, "node1", || assert_eq!(attributes(high(), &handle), OK, "the new rules apply"));
}

#[test]
fn a_quick_server_admits_its_own_subnet_and_addresses_named_by_allow() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(2) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "10.77.2.2");
    output_in(&net, "node2", "ip route add 10.77.1.0/24 via 10.77.2.1");
    let quick = ["serve", "--mem", "1MiB", "--listen", "10.77.1.1:2049"];
    let mut process = serve_in(&net, &quick);
    assert_eq!(mount_from(&net, "node1", "10.77.1.1:2049", "/export"), OK, "the listener's subnet");
    assert_eq!(mount_from(&net, "node2", "10.77.1.1:2049", "/export"), ACCES, "another subnet");
    process.terminate(TIMEOUT);
    let _process = serve_in(&net, &[&quick[..], &["--allow", "10.77.2.2"]].concat());
    assert_eq!(mount_from(&net, "node2", "10.77.1.1:2049", "/export"), OK);
}

#[test]
fn a_copy_over_ipv6_uses_both_paths() {
    let program = env!("CARGO_BIN_EXE_trunkline");
    let serve = format!("exec {program} serve --mem 64MiB $TRUNKLINE_LAB_LISTEN");
    // The tenth column is the number of bytes that each link has sent, counted at the client.
    let script = "set -e; dir=$(mktemp -d); trap 'rm -r $dir' EXIT
        head -c 16000000 /dev/urandom > $dir/data
        place='nfs://[fd77:1::2]/export'; more='proto=tcp6,nconnect=2,remoteports=fd77:1::2~fd77:2::2'
        \"$0\" cp --verify -o $more $dir/data $place/copy
        \"$0\" cat -o $more $place/copy | cmp - $dir/data
        \"$0\" ls -o $more $place
        awk '/^ *n[12]:/ { sub(\":\", \" \"); print $1, $2, $10 }' /proc/net/dev";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, program]);
    let net = start(&spec(2));
    for link in net.links() {
        wait_for_answer(&net, &link.node_v6.to_string());
    }
    let mut serving = Command::new("sh");
    serving
        .args(["-c", &serve])
        .env("TRUNKLINE_LAB_LISTEN", "--listen [fd77:1::2]:2049 --listen [fd77:2::2]:2049");
    let server = Process::spawn(net.exec_in("nodes", &serving).expect("the namespace exists"));
    server.wait_for_line("ready", TIMEOUT);
    let output = net.exec_in("client", &shell).expect("a client").output().expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.starts_with("copy\n"), "{out}");
    for link in ["n1", "n2"] {
        let line = out.lines().find(|line| line.starts_with(link)).unwrap_or_else(|| panic!("{out}"));
        let bytes: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
        assert!(bytes.iter().all(|bytes| *bytes > 3_000_000), "received and sent by {line}");
    }
}

#[test]
fn other_hosts_find_the_server_by_its_program_number_and_list_its_exports() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(1) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "fd77:1::2");
    let quick = ["serve", "--mem", "1MiB", "--rpcbind", "--listen", "0.0.0.0:4049", "--listen", "[::]:4049"];
    let _process = serve_in(&net, &quick);
    let listed = output_in(&net, "node1", "showmount -e --no-headers 10.77.1.1");
    assert!(listed.starts_with("/export "), "{listed}");
    // Each with its own transport and version: the port mapper, rpcbind, and IPv6.
    for line in [
        "rpcinfo -p 10.77.1.1",
        "rpcinfo -t 10.77.1.1 nfs 3",
        "rpcinfo -u 10.77.1.1 mountd 3",
        "rpcinfo -T tcp 10.77.1.1 nfs 3",
        "rpcinfo -T tcp6 fd77:1::1 mountd 3",
        "rpcinfo -T udp6 fd77:1::1 mountd 3",
        "rpcinfo -s 10.77.1.1",
    ] {
        let found = output_in(&net, "node1", line);
        assert!(found.contains("100003") || found.contains("ready and waiting"), "{line}: {found}");
    }
}

#[test]
fn the_server_registers_each_netid_with_the_rpcbind_of_the_host() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(1) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "fd77:1::2");
    for program in ["rpcbind", "unshare"] {
        let _ = require_program(program);
    }
    // The socket of rpcbind has a fixed path, so the host has its own /run.
    let script = "set -e; mount -t tmpfs none /run; rpcbind -f & rpcbind=$!
        until rpcinfo -s > /dev/null 2>&1; do sleep 0.1; done
        \"$0\" serve --mem 1MiB --rpcbind --listen 0.0.0.0:4049 --listen [::]:4049 & server=$!
        trap 'kill $server' TERM; wait $server || wait $server || :
        echo left: $(rpcinfo -s | awk '{ print $1 }'); kill $rpcbind; wait $rpcbind || :";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_trunkline")]);
    let mut process = Process::spawn(net.exec_in("client", &shell).expect("the namespace exists"));
    process.wait_for_line("ready", TIMEOUT);
    let listed = output_in(&net, "node1", "rpcinfo 10.77.1.1");
    let has = |program: &str, netid: &str| {
        let wanted = |line: &&str| line.split_whitespace().take(3).eq([program, "3", netid]);
        listed.lines().find(wanted).is_some_and(|line| line.contains(".15.209") && line.contains("superuser"))
    };
    for (program, netids) in [("100003", &["tcp", "tcp6"][..]), ("100005", &["tcp", "tcp6", "udp", "udp6"])] {
        for netid in netids {
            assert!(has(program, netid), "{program} by {netid}: {listed}");
        }
    }
    assert!(!has("100003", "udp"), "{listed}");
    for line in [
        "rpcinfo -T tcp6 fd77:1::1 nfs 3",
        "rpcinfo -T udp6 fd77:1::1 mountd 3",
        "rpcinfo -t 10.77.1.1 nfs 3",
    ] {
        let found = output_in(&net, "node1", line);
        assert!(found.contains("ready and waiting"), "{line}: {found}");
    }
    assert!(output_in(&net, "node1", "showmount -e --no-headers 10.77.1.1").starts_with("/export "));
    process.signal(Signal::TERM);
    let left = process.wait_for_line("left: ", TIMEOUT);
    assert!(left.contains("100000") && !left.contains("100003") && !left.contains("100005"), "{left}");
    process.wait(TIMEOUT);
}

#[test]
fn one_process_of_a_group_answers_rpcbind_requests_and_another_after_it_is_killed() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(1) });
    wait_for_answer(&net, "10.77.1.2");
    let place = temp_dir("found");
    std::fs::create_dir(place.path().join("served")).expect("a directory");
    let at = |name: &str| place.path().join(name).display().to_string();
    let (served, state, group) = (at("served"), at("state"), at("group"));
    let serve = |export_port: &str| {
        let listen = format!("10.77.1.1:{export_port}");
        let quick = ["serve", "--rpcbind", "--dir", &served, "--state", &state, "--group", &group];
        let command = trunkline(&[&quick[..], &["--listen", &listen]].concat());
        Process::spawn(net.exec_in("client", &command).expect("the namespace exists"))
    };
    let told = || output_in(&net, "node1", "rpcinfo -p 10.77.1.1");
    let mut first = serve("4049");
    first.wait_for_line("ready", TIMEOUT);
    assert!(told().contains("4049"), "{}", told());
    let second = serve("4050");
    second.wait_for_line("another process of the group is found", TIMEOUT);
    second.wait_for_line("ready", TIMEOUT);
    assert!(told().contains("4049") && !told().contains("4050"), "{}", told());
    first.signal(Signal::KILL);
    first.wait(TIMEOUT);
    // Over TCP: a connection to a port without a listener is refused at once, while the kernel soon
    // limits the errors that it reports for datagrams.
    Deadline::wait_until("an answer of the second process", TIMEOUT, || {
        let mut ask = Command::new(require_program("rpcinfo"));
        ask.args(["-p", "10.77.1.1"]);
        let asked =
            net.exec_in("node1", &ask).expect("the namespace exists").output().expect("the program runs");
        let told = String::from_utf8_lossy(&asked.stdout);
        (told.contains("4050") && !told.contains("4049")).then_some(())
    });
    assert!(output_in(&net, "node1", "showmount -e --no-headers 10.77.1.1").starts_with("/export "));
}

/// The interface of a namespace that has this address.
fn interface_with(net: &Net, namespace: &str, address: &str) -> String {
    let listed = output_in(net, namespace, "ip -o addr show");
    let line = listed.lines().find(|line| line.contains(&format!(" {address}/")));
    let line = line.unwrap_or_else(|| panic!("no {address} in {listed}"));
    let name = line.split_whitespace().nth(1).expect("a name");
    name.split('@').next().expect("a name").to_owned()
}

/// Runs `trunkline` in the client's namespace: whether it succeeded, and all that it printed.
fn run_in_client(net: &Net, arguments: &[&str]) -> (bool, String) {
    let mut inside = net.exec_in("client", &trunkline(arguments)).expect("the namespace is there");
    let output = inside.output().expect("the program runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_link_local_address_is_served_and_mounted_with_its_interface() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(1) });
    wait_for_answer(&net, "10.77.1.2");
    let (here, there) =
        (interface_with(&net, "client", "10.77.1.1"), interface_with(&net, "node1", "10.77.1.2"));
    output_in(&net, "client", &format!("ip addr add fe80::77:1/64 dev {here} nodad"));
    output_in(&net, "node1", &format!("ip addr add fe80::77:2/64 dev {there} nodad"));
    let number = output_in(&net, "client", &format!("cat /sys/class/net/{here}/ifindex"));
    let number = number.trim();
    // The quick export admits the listener's own link.
    let serve = trunkline(&["serve", "--mem", "64MiB", "--listen", &format!("[fe80::77:2%{there}]:2049")]);
    let mut server = Process::spawn(net.exec_in("node1", &serve).expect("the namespace is there"));
    server.wait_for_line("ready", TIMEOUT);
    let file = temp_dir("link-local");
    let file = file.path().join("file");
    std::fs::write(&file, vec![7; 3 << 20]).expect("a file");
    let remotes = format!("remoteports=fe80::77:2%{here},localports={here}");
    for (target, options) in [
        (format!("[fe80::77:2%{here}]:/export"), ""),
        (format!("[fe80::77:2%{number}]:/export"), "proto=tcp6"),
        (format!("nfs://[fe80::77:2%25{here}]:2049/export"), "localports=fe80::77:1%2"),
        (format!("[fe80::77:2%{here}]:/export"), remotes.as_str()),
    ] {
        let options = options.replace("fe80::77:1%2", &format!("fe80::77:1%{here}"));
        let copied =
            run_in_client(&net, &["cp", "-o", &options, &file.display().to_string(), &format!("{target}/")]);
        assert!(copied.0, "{target} {options}: {}", copied.1);
        let listed = run_in_client(&net, &["ls", "-o", &options, &target]);
        assert!(listed.0 && listed.1.contains("file"), "{target} {options}: {}", listed.1);
    }
    for (target, options, why) in [
        ("[fe80::77:2]:/export".to_owned(), "", "name its interface"),
        ("[fe80::77:2%nosuch0]:/export".to_owned(), "", "no interface"),
        (format!("[fe80::77:2%{here}]:/export"), "proto=tcp", "proto=tcp takes"),
    ] {
        let refused = run_in_client(&net, &["ls", "-o", options, &target]);
        assert!(!refused.0 && refused.1.contains(why), "{target} {options}: {}", refused.1);
    }
    server.signal(Signal::TERM);
    server.wait(TIMEOUT);
}

#[test]
fn a_server_at_another_port_is_found_by_its_rpcbind_unless_a_port_is_given() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(1) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "fd77:1::2");
    let serve = ["serve", "--rpcbind", "--mem", "64MiB", "--listen", "0.0.0.0:4049", "--listen", "[::]:4049"];
    let serve = trunkline(&serve);
    let mut server = Process::spawn(net.exec_in("node1", &serve).expect("the namespace is there"));
    server.wait_for_line("ready", TIMEOUT);
    for target in ["10.77.1.2:/export", "[fd77:1::2]:/export", "nfs://10.77.1.2/export"] {
        let listed = run_in_client(&net, &["ls", target]);
        assert!(listed.0, "{target}: {}", listed.1);
    }
    let refused = run_in_client(&net, &["ls", "-o", "port=2049", "10.77.1.2:/export"]);
    assert!(!refused.0 && refused.1.contains("10.77.1.2:2049 does not accept connections"), "{}", refused.1);
    server.signal(Signal::TERM);
    server.wait(TIMEOUT);
    // If the host has no rpcbind, the error names the port of NFS.
    let gone = run_in_client(&net, &["ls", "10.77.1.2:/export"]);
    assert!(!gone.0 && gone.1.contains("10.77.1.2:2049 does not accept connections"), "{}", gone.1);
}
