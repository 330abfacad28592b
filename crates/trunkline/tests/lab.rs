//! The network lab, on this machine's kernel: links shaped both ways, cut, silenced and restored,
//! and nothing left behind. Needs root, `ip`, `tc` and `ping`; `cargo xtask test` runs it, plain
//! `cargo test` does not.

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

const SOON: Duration = Duration::from_secs(60);

fn spec(nodes: u8) -> Spec {
    Spec::new(nodes, "200mbit".parse().expect("a rate"))
}

fn start(spec: &Spec) -> Net {
    match Net::start(spec) {
        Ok(net) => net,
        Err(error) => panic!("cannot start a lab: {error}"),
    }
}

/// Runs a program in a namespace of the lab and gives its output.
fn output_in(net: &Net, namespace: &str, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(require_program(words.next().expect("a program")));
    command.args(words);
    let mut inside = net.exec_in(namespace, &command).expect("the namespace is there");
    let output = inside.output().expect("it runs");
    assert!(output.status.success(), "{line} in {namespace}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether one packet to this address comes back within a second.
fn answers(net: &Net, namespace: &str, address: &str) -> bool {
    let mut ping = Command::new(require_program("ping"));
    ping.args(["-n", "-q", "-c", "1", "-W", "1", address]);
    let mut inside = net.exec_in(namespace, &ping).expect("the namespace is there");
    inside.output().expect("ping runs").status.success()
}

fn wait_for_answer(net: &Net, address: &str) {
    Deadline::wait_until(&format!("an answer from {address}"), SOON, || {
        answers(net, "client", address).then_some(())
    });
}

/// Namespaces of this machine whose name contains this.
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

/// A lab held by a process of its own, with the lab's name.
fn held_lab() -> (Process, String) {
    let script = "echo lab $TRUNKLINE_LAB; exec sleep 1000";
    let arguments = ["lab", "net", "--nodes", "2", "--rate", "200mbit", "--", "sh", "-c", script];
    let process = Process::spawn(trunkline(&arguments));
    let line = process.wait_for_line("lab ", SOON);
    (process, line.trim_start_matches("lab ").to_owned())
}

#[test]
fn every_link_is_shaped_at_both_ends_and_carries() {
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
    assert!(answers(&net, "nodes", "127.0.0.1"), "each namespace has a loopback");
    net.stop().expect("it is removed");
}

#[test]
fn a_cut_link_carries_nothing_until_it_is_restored() {
    let net = start(&spec(2));
    wait_for_answer(&net, "10.77.1.2");
    net.cut("n1").expect("cut");
    assert!(!answers(&net, "client", "10.77.1.2"));
    assert!(output_in(&net, "client", "ip link show n1").contains("NO-CARRIER"));
    assert!(answers(&net, "client", "10.77.2.2"), "the other link is left alone");
    assert_eq!(net.state().condition("n1").expect("a link"), Condition::Cut);
    net.restore("n1").expect("restored");
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "fd77:1::2");
    assert_eq!(net.state().condition("n1").expect("a link"), Condition::Up);
    let shaped = output_in(&net, "nodes", "tc qdisc show dev n1");
    assert!(shaped.contains("rate 200Mbit"), "still shaped: {shaped}");
}

#[test]
fn a_silent_link_keeps_its_carrier_and_loses_everything() {
    let net = start(&spec(2));
    wait_for_answer(&net, "10.77.2.2");
    wait_for_answer(&net, "fd77:2::2");
    net.drop_silently("n2").expect("silenced");
    assert!(!answers(&net, "client", "10.77.2.2"));
    assert!(!answers(&net, "client", "fd77:2::2"));
    assert!(!answers(&net, "nodes", "10.77.2.1"), "the other direction is silent too");
    assert!(output_in(&net, "client", "ip link show n2").contains("LOWER_UP"));
    assert!(answers(&net, "client", "10.77.1.2"), "the other link is left alone");
    net.restore("n2").expect("restored");
    wait_for_answer(&net, "10.77.2.2");
    wait_for_answer(&net, "fd77:2::2");
}

#[test]
fn nodes_apart_have_a_namespace_each() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(2) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "10.77.2.2");
    assert!(output_in(&net, "node2", "ip -o addr").contains("10.77.2.2"));
    assert!(!output_in(&net, "node2", "ip -o addr").contains("10.77.1.2"));
    assert!(!answers(&net, "node1", "10.77.2.2"), "nodes don't reach each other");
}

#[test]
fn unknown_links_and_namespaces_are_refused_with_those_there_are() {
    let net = start(&spec(2));
    assert!(net.cut("n3").expect_err("no such link").to_string().contains("n1 n2"));
    let error = net.exec_in("node1", &Command::new("true")).expect_err("no such namespace");
    assert!(error.to_string().contains("client nodes"), "{error}");
}

#[test]
fn a_lab_takes_its_processes_and_namespaces_with_it_even_in_a_panic() {
    let (tell, told) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let net = start(&spec(1));
        let mut stubborn = Command::new("sh");
        stubborn.args(["-c", "trap '' TERM; echo up; while :; do sleep 1; done"]);
        let process = Process::spawn(net.exec_in("nodes", &stubborn).expect("the namespace is there"));
        process.wait_for_line("up", SOON);
        tell.send((net.id().to_owned(), process)).expect("the test listens");
        panic!("as a failing test would");
    });
    assert!(panicked.join().is_err());
    let (id, mut process) = told.recv().expect("the lab was started");
    assert_eq!(namespaces_of(&id), Vec::<String>::new());
    process.wait(SOON);
}

#[test]
fn a_killed_lab_is_collected_by_the_next_one() {
    let (mut process, id) = held_lab();
    assert_eq!(namespaces_of(&id).len(), 2);
    process.signal(Signal::KILL);
    process.wait(SOON);
    // Not asserted that it is still there: the lab of another test may have collected it already.
    let net = start(&spec(1));
    assert_eq!(namespaces_of(&id), Vec::<String>::new());
    assert_eq!(namespaces_of(net.id()).len(), 2);
}

#[test]
fn a_terminated_lab_ends_its_command_and_cleans_up() {
    let (mut process, id) = held_lab();
    process.terminate(SOON);
    assert_eq!(namespaces_of(&id), Vec::<String>::new());
}

#[test]
fn links_are_cut_and_restored_from_another_terminal() {
    let (mut process, id) = held_lab();
    let run = |arguments: &[&str]| {
        let output = trunkline(arguments).env("TRUNKLINE_LAB", &id).output().expect("it runs");
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
    process.terminate(SOON);
}

#[test]
fn the_command_learns_where_it_is_and_its_status_is_passed_on() {
    let script = "echo $TRUNKLINE_LAB_NODES $TRUNKLINE_LAB_CLIENT_V6; exit 7";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    let net = start(&spec(2));
    let output = net.exec_in("client", &shell).expect("a client").output().expect("it runs");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"10.77.1.2,10.77.2.2 fd77:1::1,fd77:2::1\n");
    let status = lab::net::run(&spec(1), Some("echo ready; sleep 1000"), &shell).expect("it runs");
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_delay_is_set_or_the_kernel_is_named_as_lacking_it() {
    let delayed = Spec { delay: Some(Duration::from_millis(1)), ..spec(1) };
    match Net::start(&delayed) {
        Ok(net) => assert!(output_in(&net, "client", "tc qdisc show dev n1").contains("netem")),
        Err(error) => assert!(error.to_string().contains("sch_netem"), "{error}"),
    }
}

#[test]
fn a_rate_is_shown_in_the_list_as_it_was_given() {
    let rate: Rate = "2.5gbit".parse().expect("a rate");
    let net = start(&Spec { rate: Some(rate), ..spec(1) });
    let listed = lab::net::list().expect("the list").into_iter().find(|lab| lab.id() == net.id());
    assert_eq!(listed.and_then(|lab| lab.rate()), Some(rate));
}

/// MOUNT's status for a path that a client in a namespace asks for.
fn mount_from(net: &Net, namespace: &str, address: &str, path: &str) -> u32 {
    in_namespace(net, namespace, || mnt(&mut TcpStream::connect(address).expect("it accepts"), path))
}

/// What this gives in a namespace of the lab.
fn in_namespace<T: Send>(net: &Net, namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let place = Path::new("/run/netns").join(net.state().full_name(namespace));
    let place = File::open(place).expect("the namespace is there");
    // A thread of its own: it stays in the namespace.
    let asking = || {
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        work()
    };
    std::thread::scope(|scope| scope.spawn(asking).join().expect("the call is answered"))
}

#[test]
fn a_lab_is_removed_by_a_thread_that_is_in_it() {
    let net = start(&spec(1));
    let lab = net.state().id().to_owned();
    let place = Path::new("/run/netns").join(net.state().full_name("client"));
    let place = File::open(place).expect("the namespace is there");
    let removing = std::thread::spawn(move || {
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        net.stop()
    });
    removing.join().expect("no panic").expect("it is removed");
    assert_eq!(namespaces_of(&lab), Vec::<String>::new());
}

/// A server in the namespace `client` of a lab, where links to several hosts end.
fn serve_in(net: &Net, arguments: &[&str]) -> Process {
    let command = net.exec_in("client", &trunkline(arguments)).expect("the namespace is there");
    let process = Process::spawn(command);
    process.wait_for_line("ready", SOON);
    process
}

const OK: u32 = 0;
/// RFC 1813 s5.1.5
const ACCES: u32 = 13;

#[test]
fn export_rules_hold_for_hosts_with_other_addresses() {
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
    process.wait_for_line("reloaded: 1 changed, 0 not taken over", SOON);
    assert_eq!(mount_from(&net, "node1", "10.77.1.1:2049", "/network"), ACCES, "the rules of now");
    assert_eq!(mount_from(&net, "node2", "10.77.2.1:2049", "/network"), OK);
}

/// A connection from a port of this range.
fn connected_from(ports: Range<u16>, address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().expect("an address");
    for port in ports {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        let own = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        // One that an earlier connection had rests for a while.
        if bind(&socket, &own).is_ok() && connect(&socket, &address).is_ok() {
            return TcpStream::from(socket);
        }
    }
    panic!("no connection to {address}");
}

#[test]
fn a_secure_export_is_for_ports_below_1024_and_so_are_its_handles() {
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
        assert_eq!(attributes(high(), &handle), ACCES, "who has the handle is held to the port too");
    });
    std::fs::write(&file, text.replace("secure = true", "secure = false")).expect("a file");
    process.signal(Signal::HUP);
    process.wait_for_line("reloaded: 1 changed, 0 not taken over", SOON);
    in_namespace(&net, "node1", || assert_eq!(attributes(high(), &handle), OK, "the rules of now"));
}

#[test]
fn a_quick_server_admits_its_own_subnet_and_others_when_it_is_told() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(2) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "10.77.2.2");
    output_in(&net, "node2", "ip route add 10.77.1.0/24 via 10.77.2.1");
    let quick = ["serve", "--mem", "1MiB", "--listen", "10.77.1.1:2049"];
    let mut process = serve_in(&net, &quick);
    assert_eq!(mount_from(&net, "node1", "10.77.1.1:2049", "/export"), OK, "the listener's subnet");
    assert_eq!(mount_from(&net, "node2", "10.77.1.1:2049", "/export"), ACCES, "another");
    process.terminate(SOON);
    let _process = serve_in(&net, &[&quick[..], &["--allow", "10.77.2.2"]].concat());
    assert_eq!(mount_from(&net, "node2", "10.77.1.1:2049", "/export"), OK);
}

#[test]
fn a_copy_over_ipv6_uses_both_of_two_paths() {
    let program = env!("CARGO_BIN_EXE_trunkline");
    let serve = format!("exec {program} serve --mem 64MiB $TRUNKLINE_LAB_LISTEN");
    // What each link has sent, by the client's count, stands in the tenth column.
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
    let server = Process::spawn(net.exec_in("nodes", &serving).expect("the namespace is there"));
    server.wait_for_line("ready", SOON);
    let output = net.exec_in("client", &shell).expect("a client").output().expect("it runs");
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
    // Each transport and version of its own: the port mapper, rpcbind, and IPv6.
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
fn a_host_that_has_an_rpcbind_is_asked_by_its_local_socket_to_tell_every_netid() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(1) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "fd77:1::2");
    for program in ["rpcbind", "unshare"] {
        let _ = require_program(program);
    }
    // Its socket lies at a fixed place, so the host has a /run of its own.
    let script = "set -e; mount -t tmpfs none /run; rpcbind -f & rpcbind=$!
        until rpcinfo -s > /dev/null 2>&1; do sleep 0.1; done
        \"$0\" serve --mem 1MiB --rpcbind --listen 0.0.0.0:4049 --listen [::]:4049 & server=$!
        trap 'kill $server' TERM; wait $server || wait $server || :
        echo left: $(rpcinfo -s | awk '{ print $1 }'); kill $rpcbind; wait $rpcbind || :";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_trunkline")]);
    let mut process = Process::spawn(net.exec_in("client", &shell).expect("the namespace is there"));
    process.wait_for_line("ready", SOON);
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
    let left = process.wait_for_line("left: ", SOON);
    assert!(left.contains("100000") && !left.contains("100003") && !left.contains("100005"), "{left}");
    process.wait(SOON);
}

#[test]
fn one_process_of_a_group_is_found_and_the_next_when_it_is_killed() {
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
        Process::spawn(net.exec_in("client", &command).expect("the namespace is there"))
    };
    let told = || output_in(&net, "node1", "rpcinfo -p 10.77.1.1");
    let mut first = serve("4049");
    first.wait_for_line("ready", SOON);
    assert!(told().contains("4049"), "{}", told());
    let second = serve("4050");
    second.wait_for_line("another process of the group is found", SOON);
    second.wait_for_line("ready", SOON);
    assert!(told().contains("4049") && !told().contains("4050"), "{}", told());
    first.signal(Signal::KILL);
    first.wait(SOON);
    // By TCP: where nobody has the port that is refused at once, while the kernel soon stops to say
    // so of datagrams.
    Deadline::wait_until("the second to be found", SOON, || {
        let mut ask = Command::new(require_program("rpcinfo"));
        ask.args(["-p", "10.77.1.1"]);
        let asked = net.exec_in("node1", &ask).expect("the namespace is there").output().expect("it runs");
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
    let output = inside.output().expect("it runs");
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
    server.wait_for_line("ready", SOON);
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
    server.wait(SOON);
}

#[test]
fn a_server_at_another_port_is_found_by_its_rpcbind_unless_a_port_is_given() {
    let net = start(&Spec { layout: Layout::Apart, ..spec(1) });
    wait_for_answer(&net, "10.77.1.2");
    wait_for_answer(&net, "fd77:1::2");
    let serve = ["serve", "--rpcbind", "--mem", "64MiB", "--listen", "0.0.0.0:4049", "--listen", "[::]:4049"];
    let serve = trunkline(&serve);
    let mut server = Process::spawn(net.exec_in("node1", &serve).expect("the namespace is there"));
    server.wait_for_line("ready", SOON);
    for target in ["10.77.1.2:/export", "[fd77:1::2]:/export", "nfs://10.77.1.2/export"] {
        let listed = run_in_client(&net, &["ls", target]);
        assert!(listed.0, "{target}: {}", listed.1);
    }
    let refused = run_in_client(&net, &["ls", "-o", "port=2049", "10.77.1.2:/export"]);
    assert!(!refused.0 && refused.1.contains("10.77.1.2:2049 does not accept connections"), "{}", refused.1);
    server.signal(Signal::TERM);
    server.wait(SOON);
    // Without an rpcbind there, the port of NFS is what the error names.
    let gone = run_in_client(&net, &["ls", "10.77.1.2:/export"]);
    assert!(!gone.0 && gone.1.contains("10.77.1.2:2049 does not accept connections"), "{}", gone.1);
}
