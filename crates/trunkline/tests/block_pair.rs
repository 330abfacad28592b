//! Tests the pair of nodes as two processes, `trunkline block serve --node`: one that is killed,
//! one that hangs, one that returns, and volumes that move, under a load that checks what it reads.

use initiator::{Attachment, Config, HostId, Nqn, Operation, Volume};
use rustix::process::Signal;
use std::cell::Cell;
use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::{Deadline, Process, Relay, Stream, free_port};

/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
const HOST: &str = "nqn.2026-11.test:host";
const OTHER_HOST: &str = "nqn.2026-11.test:other-host";
const SUBSYSTEM: &str = "nqn.2026-11.test:pair";
const BLOCK: usize = 4096;
/// Writers of a volume, each with a block of its own.
const WRITERS: u64 = 8;

/// A configuration, and where its two processes are.
struct Pair {
    directory: TempDir,
    addresses: [SocketAddr; 2],
    /// The process that was started last.
    pid: Cell<u32>,
}

impl Pair {
    /// Volume 1 of A and volume 2 of B, in turn.
    fn new() -> Self {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let addresses = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        let pair = Self { directory, addresses, pid: Cell::new(0) };
        pair.configure("");
        for nsid in [1, 2] {
            File::create(pair.image(nsid)).and_then(|file| file.set_len(1 << 20)).expect("a file");
        }
        pair
    }

    fn configure(&self, of_first: &str) {
        let [a, b] = self.addresses;
        let [one, two] = [1, 2].map(|nsid| self.image(nsid).display().to_string());
        let text = format!(
            "nqn = \"{SUBSYSTEM}\"\nstate = \"{}\"\nallow = [\"{HOST}\", \"{OTHER_HOST}\"]\nloops = 2\n\
             listen = [{{ address = \"{a}\", node = \"A\" }}, {{ address = \"{b}\", node = \"B\" }}]\n\
             [[volume]]\nsource = \"{one}\"\n{of_first}[[volume]]\nsource = \"{two}\"\n",
            self.path("state").display(),
        );
        std::fs::write(self.path("block.toml"), text).expect("a file");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn image(&self, nsid: u32) -> PathBuf {
        self.path(&format!("{nsid}.img"))
    }

    fn block(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.arg("block").args(arguments).env_remove("TRUNKLINE_LOG");
        command
    }

    fn serve(&self, node: &str) -> Command {
        self.block(&["serve", "-c", &self.path("block.toml").display().to_string(), "--node", node])
    }

    fn start(&self, node: &str) -> Process {
        let process = Process::spawn(self.serve(node));
        process.wait_for_line("ready", PATIENCE);
        self.pid.set(process.id());
        process
    }

    /// Both processes, when each serves its volume.
    fn both(&self) -> [Process; 2] {
        let processes = ["A", "B"].map(|node| self.start(node));
        self.wait_for(&[("A", "serving"), ("B", "serving")]);
        processes
    }

    /// What both processes tell together.
    fn list(&self) -> Option<Vec<(String, String)>> {
        let output =
            self.block(&["list", "--json", "--pid", &self.pid.get().to_string()]).output().expect("it runs");
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let word = |volume: &serde_json::Value, key: &str| volume[key].as_str().map(str::to_owned);
        list.as_array()?.iter().map(|volume| Some((word(volume, "owner")?, word(volume, "reach")?))).collect()
    }

    /// Waits until the volumes are owned and reached like this.
    fn wait_for(&self, states: &[(&str, &str)]) {
        Deadline::wait_until(&format!("{states:?}"), PATIENCE, || {
            let list = self.list()?;
            let is = list.iter().map(|(owner, reach)| (owner.as_str(), reach.as_str()));
            is.eq(states.iter().copied()).then_some(())
        });
    }

    /// What a rule of `check` has found, and what mends it.
    fn check(&self, rule: &str) -> Vec<(String, String)> {
        let pid = self.pid.get().to_string();
        let output = self.block(&["check", "--json", "--pid", &pid]).output().expect("it runs");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = found["findings"].as_array().expect("findings").iter();
        let word = |found: &serde_json::Value, key: &str| found[key].as_str().expect(key).to_owned();
        let all = all.filter(|found| word(found, "rule") == rule);
        all.map(|found| (format!("{} {}", word(found, "status"), word(found, "seen")), word(found, "mend")))
            .collect()
    }

    /// The table of `list`.
    fn table(&self) -> String {
        let output = self.block(&["list", "--pid", &self.pid.get().to_string()]).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text")
    }

    fn own(&self, nsid: u32, node: &str) -> (bool, String) {
        let pid = self.pid.get().to_string();
        let output = self.block(&["own", &nsid.to_string(), node, "--pid", &pid]).output().expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Has a volume move, and waits until it is there.
    fn move_to(&self, nsid: u32, node: &str) {
        Deadline::wait_until(&format!("{nsid} at {node}"), PATIENCE, || {
            let (_, text) = self.own(nsid, node);
            text.contains("owned it already").then_some(())
        });
    }

    fn record(&self, nsid: u32) -> String {
        let state = std::fs::read_to_string(self.path("state/block.toml")).expect("the state");
        let state: toml::Table = state.parse().expect("TOML");
        let volumes = state["volume"].as_array().expect("volumes");
        let known = volumes.iter().find(|volume| volume["nsid"].as_integer() == Some(nsid.into()));
        let uuid = known.expect("the volume")["uuid"].as_str().expect("a UUID");
        std::fs::read_to_string(self.path("state/owners").join(uuid)).expect("a record")
    }

    /// Ends a load, its host and the processes: the file has what was written last.
    fn check_at_the_end(&self, nsid: u32, load: Load, host: (Volume, Attachment), nodes: [Process; 2]) {
        let last = load.end();
        drop(host);
        nodes.into_iter().for_each(|mut node| _ = node.terminate(PATIENCE));
        check_image(&self.image(nsid), &last);
    }

    fn attach(&self) -> Attachment {
        self.attach_to(&self.addresses)
    }

    fn attach_to(&self, addresses: &[SocketAddr]) -> Attachment {
        Attachment::start(self.host(addresses)).expect("an attachment")
    }

    /// The same for which nothing is over by time alone, before the test is.
    fn attach_without_time(&self, addresses: &[SocketAddr]) -> Attachment {
        let keep_alive = 4 * PATIENCE;
        Attachment::start(Config { keep_alive, ..self.host(addresses) }).expect("an attachment")
    }

    fn host(&self, addresses: &[SocketAddr]) -> Config {
        let nqn = |name| Nqn::new(name).expect("a name");
        let config = Config::new(nqn(HOST), HostId([7; 16]), nqn(SUBSYSTEM), addresses.to_vec());
        Config { no_path_timeout: PATIENCE, ..config }
    }
}

fn wait_for_paths(attachment: &Attachment, paths: usize) {
    Deadline::wait_until(&format!("{paths} paths"), PATIENCE, || {
        let live = attachment.paths().iter().filter(|path| path.cntlid.is_some()).count();
        (live == paths).then_some(())
    });
}

/// A block that says which write of which writer it is.
fn content(writer: u64, number: u64) -> Vec<u8> {
    let words = [writer, number, writer ^ number ^ 0x5555_5555];
    words.iter().cycle().take(BLOCK / 8).flat_map(|word| word.to_le_bytes()).collect()
}

/// Writers that each write one block again and again, each time something newer, and read it.
struct Load {
    written: Vec<Arc<AtomicU64>>,
    ends: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(volume: &Volume) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let began = Arc::new(Barrier::new(WRITERS as usize + 1));
        let written: Vec<Arc<AtomicU64>> = (0..WRITERS).map(|_| Arc::default()).collect();
        let threads = (0..).zip(&written).map(|(writer, written)| {
            let (volume, written) = (volume.clone(), Arc::clone(written));
            let (ends, began) = (Arc::clone(&ends), Arc::clone(&began));
            std::thread::spawn(move || {
                let at = writer * BLOCK as u64;
                began.wait();
                for number in 1.. {
                    volume.write(at, content(writer, number)).expect("written");
                    written.store(number, Ordering::SeqCst);
                    let read = volume.read(at, BLOCK).expect("read");
                    assert!(read == content(writer, number), "writer {writer}, write {number}");
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                }
            })
        });
        let threads = threads.collect();
        began.wait();
        let load = Self { written, ends, threads };
        load.wait_for_more();
        load
    }

    /// Waits until each writer has written again.
    fn wait_for_more(&self) {
        for written in &self.written {
            let before = written.load(Ordering::SeqCst);
            Deadline::wait_until("more writes", PATIENCE, || {
                assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a writer has failed");
                (written.load(Ordering::SeqCst) > before + 2).then_some(())
            });
        }
    }

    /// Ends the writers; returns the number of the last write of each.
    fn end(self) -> Vec<u64> {
        self.ends.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a writer that is right"));
        self.written.iter().map(|written| written.load(Ordering::SeqCst)).collect()
    }
}

/// The file has what was written last.
fn check_image(image: &Path, last: &[u64]) {
    let bytes = std::fs::read(image).expect("the file");
    for ((writer, number), block) in (0..).zip(last).zip(bytes.chunks(BLOCK)) {
        assert!(block == content(writer, *number), "writer {writer}, write {number}");
    }
}

#[test]
fn the_other_process_takes_what_a_killed_one_had_and_no_write_is_lost() {
    let pair = Pair::new();
    let mut processes = pair.both();
    let attachment = pair.attach();
    wait_for_paths(&attachment, 2);
    let [one, two] = [1, 2].map(|nsid| attachment.volume(Some(nsid), PATIENCE).expect("a volume"));
    let loads = [Load::start(&one), Load::start(&two)];
    for (killed, name, other) in [(0, "A", "B"), (1, "B", "A")] {
        let began = Instant::now();
        processes[killed].kill();
        loads.iter().for_each(Load::wait_for_more);
        println!("{name} killed: all writers go on after {:?}", began.elapsed());
        pair.wait_for(&[(other, "serving"), (other, "serving")]);
        // It takes nothing back by itself.
        processes[killed] = pair.start(name);
        wait_for_paths(&attachment, 2);
        loads.iter().for_each(Load::wait_for_more);
        pair.wait_for(&[(other, "serving"), (other, "serving")]);
        let owner = format!("owner = \"{other}\"");
        assert!([1, 2].iter().all(|nsid| pair.record(*nsid).starts_with(&owner)));
    }
    let last = loads.map(Load::end);
    drop((one, two, attachment));
    processes.iter_mut().for_each(|process| _ = process.terminate(PATIENCE));
    check_image(&pair.image(1), &last[0]);
    check_image(&pair.image(2), &last[1]);
}

/// What a process had not read, had admitted or had given to the system when it stood still is
/// written before what the host writes after it, or not at all.
#[test]
fn a_process_that_hangs_is_replaced_and_its_late_writes_change_nothing_newer() {
    let pair = Pair::new();
    let mut processes = pair.both();
    let attachment = pair.attach();
    wait_for_paths(&attachment, 2);
    let volume = attachment.volume(Some(1), PATIENCE).expect("a volume");
    let load = Load::start(&volume);
    for (at, name) in [(0, "A"), (1, "B"), (0, "A")] {
        // It goes on before the other one has given it up.
        processes[at].signal(Signal::STOP);
        wait_for_paths(&attachment, 1);
        processes[at].signal(Signal::CONT);
        wait_for_paths(&attachment, 2);
        load.wait_for_more();
        // It does not go on, and is killed.
        let began = Instant::now();
        processes[at].signal(Signal::STOP);
        let ended = processes[at].wait(PATIENCE);
        load.wait_for_more();
        println!("{name} hung: all writers go on after {:?}", began.elapsed());
        assert!(!ended.success());
        processes[at] = pair.start(name);
        wait_for_paths(&attachment, 2);
        load.wait_for_more();
    }
    pair.check_at_the_end(1, load, (volume, attachment), processes);
}

/// A host is fenced when no process can write for it any more, whether it answers or not.
#[test]
fn a_fence_waits_until_a_process_that_hangs_has_ended() {
    let pair = Pair::new();
    let [mut first, second] = pair.both();
    let attachment = pair.attach();
    wait_for_paths(&attachment, 2);
    first.signal(Signal::STOP);
    let pid = second.id().to_string();
    let run = |command: &str| {
        let output = pair.block(&[command, HOST, "--pid", &pid]).output().expect("it runs");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run("fence");
    assert!(!first.is_running(), "the other one has killed it");
    let states = pair.list().expect("a list");
    assert!(
        states.iter().all(|(owner, reach)| (owner.as_str(), reach.as_str()) == ("B", "serving")),
        "{states:?}"
    );
    wait_for_paths(&attachment, 0);
    // The node that returns has read it.
    let _first = pair.start("A");
    assert!(
        pair.block(&["fenced", "--pid", &pid]).output().expect("it runs").stdout.starts_with(HOST.as_bytes())
    );
    run("unfence");
    wait_for_paths(&attachment, 2);
}

/// Where other commands ask a server.
fn control_socket(process: &Process) -> PathBuf {
    let uid = rustix::process::geteuid();
    let directory = if uid.is_root() {
        PathBuf::from("/run")
    } else {
        std::env::var_os("XDG_RUNTIME_DIR")
            .map_or_else(|| PathBuf::from(format!("/run/user/{}", uid.as_raw())), PathBuf::from)
    };
    directory.join(format!("trunkline-block/{}.sock", process.id()))
}

/// The host may write there.
#[test]
fn a_host_is_not_fenced_while_a_node_runs_that_cannot_be_asked() {
    let pair = Pair::new();
    let [first, mut second] = pair.both();
    let socket = control_socket(&second);
    std::fs::rename(&socket, pair.path("away.sock")).expect("it is there");
    let pid = first.id().to_string();
    let fence = || pair.block(&["fence", HOST, "--timeout", "1", "--pid", &pid]).output().expect("it runs");
    let output = fence();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("node B runs, and does not answer"), "{error}");
    std::fs::rename(pair.path("away.sock"), &socket).expect("it is there");
    let output = fence();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(second.terminate(PATIENCE).success());
}

/// Whoever fences a host finds each server that may serve it: one that cannot be found yet reads
/// later who is fenced.
#[test]
fn a_node_can_be_found_before_it_reads_who_is_fenced_and_before_it_serves() {
    let pair = Pair::new();
    drop(pair.start("B"));
    let lock = File::options().write(true).open(pair.path("state/fenced.lock")).expect("it was made");
    lock.lock().expect("nobody has it");
    let process = Process::spawn(pair.serve("B"));
    let socket = control_socket(&process);
    Deadline::wait_until("its socket", PATIENCE, || socket.exists().then_some(()));
    assert!(TcpStream::connect(pair.addresses[1]).is_err(), "it serves");
    std::fs::write(pair.path("state/fenced.toml"), format!("hosts = [\"{HOST}\"]\n")).expect("a file");
    drop(lock);
    process.wait_for_line("ready", PATIENCE);
    let fenced = pair.block(&["fenced", "--pid", &process.id().to_string()]).output().expect("it runs");
    assert_eq!(fenced.stdout, format!("{HOST}\n").into_bytes());
}

/// Each command is executed by the owner, although it came to the other process.
#[test]
fn the_node_that_does_not_own_a_volume_is_a_way_to_it() {
    let pair = Pair::new();
    let [first, second] = pair.both();
    let attachment = pair.attach_to(&pair.addresses[1..]);
    let volume = attachment.volume(Some(1), PATIENCE).expect("a volume");
    let data: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
    let whole = data.len();
    volume.write(0, data.clone()).expect("1 MiB is written");
    assert!(volume.read(0, whole).expect("read") == data);
    let durable = Operation::Write { offset: 8192, data: Arc::new(vec![3; BLOCK]), durable: true };
    volume.execute(durable).expect("a write with FUA");
    volume.flush().expect("flushed");
    let zeroes = Operation::WriteZeroes { offset: 4096, bytes: 4096, deallocate: false, durable: false };
    volume.execute(zeroes).expect("zeroes");
    volume.execute(Operation::Deallocate { offset: 16384, bytes: 8192 }).expect("trimmed");
    let mut expected = data;
    expected[4096..8192].fill(0);
    expected[8192..12288].fill(3);
    let read = volume.read(0, whole).expect("read");
    // What is not needed any more may read as anything.
    assert!(read[..16384] == expected[..16384] && read[24576..] == expected[24576..]);
    // Beyond its end, the owner refuses as it does at its own addresses.
    let size = 1 << 20;
    assert!(volume.execute(Operation::Read { offset: size, memory: vec![0; BLOCK] }).is_err());
    // It is not owned by the node that it was reached by, before and after.
    pair.wait_for(&[("A", "serving"), ("B", "serving")]);
    let load = Load::start(&volume);
    for node in ["B", "A"] {
        pair.move_to(1, node);
        load.wait_for_more();
    }
    let last = load.end();
    drop((volume, attachment, first, second));
    check_image(&pair.image(1), &last);
}

/// What was forwarded is answered when it is known what became of it, and what is written later
/// stays.
#[test]
fn an_owner_that_is_killed_or_hangs_with_forwarded_writes_is_replaced() {
    let pair = Pair::new();
    let mut processes = pair.both();
    let attachment = pair.attach_to(&pair.addresses[1..]);
    wait_for_paths(&attachment, 1);
    let volume = attachment.volume(Some(1), PATIENCE).expect("a volume");
    let load = Load::start(&volume);
    for signal in [Signal::KILL, Signal::STOP, Signal::KILL] {
        let began = Instant::now();
        processes[0].signal(signal);
        assert!(!processes[0].wait(PATIENCE).success());
        load.wait_for_more();
        println!("owner got {signal:?}: all writers go on after {:?}", began.elapsed());
        pair.pid.set(processes[1].id());
        pair.wait_for(&[("B", "serving"), ("B", "serving")]);
        processes[0] = pair.start("A");
        pair.move_to(1, "A");
        load.wait_for_more();
    }
    pair.check_at_the_end(1, load, (volume, attachment), processes);
}

/// A node that ends with commands that it has forwarded: the owner executes none of them after what
/// the host has written since.
#[test]
fn a_node_that_is_killed_while_it_forwards_leaves_nothing_that_lands_later() {
    let pair = Pair::new();
    let mut processes = pair.both();
    // There is no other way to volume 2, which B owns.
    let attachment = pair.attach_to(&pair.addresses[..1]);
    wait_for_paths(&attachment, 1);
    let volume = attachment.volume(Some(2), PATIENCE).expect("a volume");
    let load = Load::start(&volume);
    for signal in [Signal::KILL, Signal::STOP, Signal::KILL] {
        let began = Instant::now();
        processes[0].signal(signal);
        assert!(!processes[0].wait(PATIENCE).success());
        processes[0] = pair.start("A");
        load.wait_for_more();
        println!("forwarder got {signal:?}: all writers go on after {:?}", began.elapsed());
    }
    pair.check_at_the_end(2, load, (volume, attachment), processes);
}

/// Also what comes to the process that does not own the volume has ended when the fence is there.
#[test]
fn a_fenced_host_writes_nothing_by_way_of_the_other_process() {
    let pair = Pair::new();
    let [first, second] = pair.both();
    let attachment = pair.attach_to(&pair.addresses[1..]);
    wait_for_paths(&attachment, 1);
    let volume = attachment.volume(Some(1), PATIENCE).expect("a volume");
    let load = Load::start(&volume);
    let pid = second.id().to_string();
    let run = |command: &str| {
        let output = pair.block(&[command, HOST, "--pid", &pid]).output().expect("it runs");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for _ in 0..3 {
        run("fence");
        let left = std::fs::read(pair.image(1)).expect("the file");
        wait_for_paths(&attachment, 0);
        // Neither by a retry nor by what had waited at the owner.
        assert!(pair.list().is_some() && std::fs::read(pair.image(1)).expect("the file") == left);
        run("unfence");
        load.wait_for_more();
    }
    let last = load.end();
    drop((volume, attachment, first, second));
    check_image(&pair.image(1), &last);
}

/// The owner is asked by way of the other process whether the controller is finished whose
/// connections are lost.
#[test]
fn writes_of_a_link_that_is_lost_go_on_by_the_other_process_at_once() {
    let pair = Pair::new();
    let processes = pair.both();
    let relays = pair.addresses.map(Relay::to);
    let attachment = pair.attach_without_time(&[relays[0].address, relays[1].address]);
    wait_for_paths(&attachment, 2);
    let volume = attachment.volume(Some(1), PATIENCE).expect("a volume");
    let load = Load::start(&volume);
    for (at, is_silent) in [(0, false), (0, true), (1, false), (0, true)] {
        let began = Instant::now();
        if is_silent {
            relays[at].silence()
        } else {
            relays[at].cut()
        }
        wait_for_paths(&attachment, 1);
        load.wait_for_more();
        println!("link {at} lost, silent {is_silent}: all writers go on after {:?}", began.elapsed());
        // What was kept is delivered.
        relays[at].pass();
        wait_for_paths(&attachment, 2);
        load.wait_for_more();
    }
    pair.check_at_the_end(1, load, (volume, attachment), processes);
}

/// What an attachment that ended has left at one process, another one ends by the other process,
/// before it writes.
#[test]
fn an_attachment_ends_what_an_earlier_one_has_left_at_the_process_that_it_does_not_reach() {
    let pair = Pair::new();
    let [first, second] = pair.both();
    for round in 1..=3 {
        let relay = Relay::to(pair.addresses[0]);
        let earlier = pair.attach_without_time(&[relay.address]);
        let volume = earlier.volume(Some(1), PATIENCE).expect("a volume");
        volume.write(0, content(0, round)).expect("written");
        relay.silence();
        let late = std::thread::spawn(move || volume.write(0, content(1, round)));
        let before = relay.bytes();
        Deadline::wait_until("a write on its way", PATIENCE, || (relay.bytes() > before).then_some(()));
        drop(earlier);
        assert!(late.join().expect("no panic").is_err(), "its attachment has ended");

        let attachment = pair.attach_without_time(&pair.addresses[1..]);
        let volume = attachment.volume(Some(1), PATIENCE).expect("a volume");
        volume.write(0, content(2, round)).expect("written");
        relay.pass();
        Deadline::wait_until("all was delivered", PATIENCE, || relay.is_idle().then_some(()));
        assert!(volume.read(0, BLOCK).expect("read") == content(2, round), "the late one landed");
    }
    // Alone with both volumes, a node knows it as well.
    drop(first);
    pair.pid.set(second.id());
    pair.wait_for(&[("B", "serving"), ("B", "serving")]);
    let attachment = pair.attach_without_time(&pair.addresses);
    let volume = attachment.volume(Some(1), PATIENCE).expect("a volume");
    volume.write(0, content(3, 1)).expect("written");
}

/// Two hosts with one host identifier would have each other's reservations.
#[test]
fn a_host_identifier_stands_for_one_host_at_both_processes() {
    let pair = Pair::new();
    let [first, mut second] = pair.both();
    let attach = |host: &str, at: usize| {
        let host = Nqn::new(host).expect("a name");
        Attachment::start(Config { host, ..pair.host(&pair.addresses[at..=at]) }).expect("an attachment")
    };
    let is_refused = |attachment: &Attachment| {
        Deadline::wait_until("a refusal", PATIENCE, || {
            let path = attachment.paths().pop()?;
            let is_that = path.last_error?.contains("CONNECT_INVALID_PARAMETERS");
            (path.cntlid.is_none() && is_that).then_some(())
        });
    };
    let one = attach(HOST, 0);
    wait_for_paths(&one, 1);
    let other = attach(OTHER_HOST, 1);
    is_refused(&other);
    // Until the first one has ended.
    drop(one);
    wait_for_paths(&other, 1);
    // Also a process that comes later learns it, and what a killed one had is free.
    let one = attach(HOST, 0);
    is_refused(&one);
    second.kill();
    wait_for_paths(&one, 1);
    let second = pair.start("B");
    is_refused(&other);
    drop((one, other, first, second));
}

/// Whoever looks at a node that has lost its partner, or never had it, learns how to start that.
#[test]
fn a_node_without_its_partner_is_a_warning_that_says_how_to_start_it() {
    let pair = Pair::new();
    let second = pair.start("B");
    let config = pair.path("block.toml").display().to_string();
    let start = format!("trunkline block serve -c {config} --node A");
    let is_alone = || {
        let (seen, mend) = pair.check("block.pair").pop().expect("a finding");
        assert!(seen.starts_with("warn ") && seen.contains("node A does not run"), "{seen}");
        assert_eq!(mend, start);
        let table = pair.table();
        assert!(table.ends_with(&format!("node A of the pair does not run: {start}\n")), "{table}");
    };
    is_alone();
    let mut first = pair.start("A");
    pair.wait_for(&[("A", "serving"), ("B", "serving")]);
    let (seen, _) = pair.check("block.pair").pop().expect("a finding");
    assert!(seen.starts_with("ok "), "{seen}");
    assert!(!pair.table().contains("does not"));
    let attachment = pair.attach();
    wait_for_paths(&attachment, 2);
    assert!(pair.check("block.paths").iter().all(|(seen, _)| seen.starts_with("ok ")));
    first.kill();
    wait_for_paths(&attachment, 1);
    pair.pid.set(second.id());
    pair.wait_for(&[("B", "serving"), ("B", "serving")]);
    is_alone();
    for rule in ["block.paths", "block.addresses"] {
        for (seen, mend) in pair.check(rule) {
            assert!(seen.starts_with("warn ") && seen.ends_with("1 of 2 nodes"), "{seen}");
            assert!(mend.contains("start node A"), "{mend}");
        }
    }
    drop((attachment, second));
}

/// A volume that only one process knows would be lost with it, and a host that only one allows has
/// one way: both logs and `check` name them, until the file is the same and was read.
#[test]
fn two_files_for_one_pair_are_found_by_both_processes() {
    let pair = Pair::new();
    let first = pair.start("A");
    let same = std::fs::read_to_string(pair.path("block.toml")).expect("a file");
    let third = pair.image(3);
    File::create(&third).and_then(|file| file.set_len(1 << 20)).expect("a file");
    let more = format!("[[volume]]\nsource = \"{}\"\n", third.display());
    let fewer = same.replace(&format!(", \"{OTHER_HOST}\""), "");
    std::fs::write(pair.path("block.toml"), fewer.clone() + &more).expect("a file");
    let mut second = pair.start("B");
    let mut expected: Vec<String> =
        [1, 2].map(|nsid| format!("namespace {nsid} is seen at node A alone by {OTHER_HOST}")).into();
    let file = third.display();
    expected.push(format!("namespace 3 ({file}) is known to node B alone, and is lost with it"));
    for process in [&first, &second] {
        for difference in &expected {
            process.wait_for_line(difference, PATIENCE);
        }
    }
    let found = pair.check("block.configuration");
    let seen: Vec<&str> =
        found.iter().map(|(seen, _)| seen.strip_prefix("warn ").expect("a warning")).collect();
    assert_eq!(seen, expected);
    let hup = format!("then kill -HUP {} {}", first.id(), second.id());
    assert!(found[..2].iter().all(|(_, mend)| mend.ends_with(&hup)), "{found:?}");
    assert!(found[2].1.ends_with("start both again, one after the other"), "{found:?}");
    assert!(pair.table().contains("not configured alike"));

    // What is done about it.
    let is_same = || {
        let found = pair.check("block.configuration");
        (found.len() == 1 && found[0].0.starts_with("ok ")).then_some(())
    };
    second.terminate(PATIENCE);
    std::fs::write(pair.path("block.toml"), &fewer).expect("a file");
    let second = pair.start("B");
    Deadline::wait_until("hosts alone differ, and that was said", PATIENCE, || {
        let is_said_again = first.all_output().matches(&expected[1]).count() == 2;
        (is_said_again && pair.check("block.configuration").len() == 2).then_some(())
    });
    std::fs::write(pair.path("block.toml"), &same).expect("a file");
    [&first, &second].iter().for_each(|process| process.signal(Signal::HUP));
    Deadline::wait_until("the same", PATIENCE, is_same);
    // After one of them alone has read another file.
    std::fs::write(pair.path("block.toml"), &fewer).expect("a file");
    first.signal(Signal::HUP);
    first.wait_for_line(&format!("namespace 1 is seen at node B alone by {OTHER_HOST}"), PATIENCE);
    drop((first, second));
}

#[test]
fn a_volume_moves_between_processes_under_load() {
    let pair = Pair::new();
    let [first, second] = pair.both();
    let attachment = pair.attach();
    wait_for_paths(&attachment, 2);
    let volume = attachment.volume(Some(1), PATIENCE).expect("a volume");
    let load = Load::start(&volume);
    for node in ["B", "A", "B"] {
        pair.move_to(1, node);
        load.wait_for_more();
        assert!(pair.record(1).starts_with(&format!("owner = \"{node}\"")));
    }
    pair.wait_for(&[("B", "serving"), ("B", "serving")]);
    // The file is read again by both; the owner does what it says.
    pair.configure("owner = \"A\"\n");
    [&first, &second].iter().for_each(|process| process.signal(Signal::HUP));
    pair.wait_for(&[("A", "serving"), ("B", "serving")]);
    load.wait_for_more();
    let last = load.end();
    drop((volume, attachment, first, second));
    check_image(&pair.image(1), &last);
}

#[test]
fn a_node_is_one_process_and_what_cannot_be_a_pair_is_refused() {
    let pair = Pair::new();
    let first = pair.start("A");
    let refused = |command: &mut Command| {
        let output = command.output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let twin = refused(&mut pair.serve("A"));
    assert!(twin.contains("node A runs already"), "{twin}");
    // Both nodes in one process would be two processes of one node.
    let config = pair.path("block.toml").display().to_string();
    let whole = refused(&mut pair.block(&["serve", "-c", &config]));
    assert!(whole.contains("another process"), "{whole}");
    let alone = refused(&mut pair.block(&["serve", "--volume", "mem:1MiB", "--node", "A"]));
    assert!(alone.contains("addresses of both nodes"), "{alone}");
    // Alone, it takes what is the other's after a while, and gives nothing to nobody.
    pair.wait_for(&[("A", "serving"), ("A", "serving")]);
    let (is_given, text) = pair.own(1, "B");
    assert!(!is_given && text.contains("the other node is not there"), "{text}");
    assert!(first.output(Stream::Out).contains("(node A)"));
    drop(first);
    let text = std::fs::read_to_string(&config).expect("the file");
    let image = pair.image(2).display().to_string();
    std::fs::write(&config, text.replace(&image, "mem:1MiB")).expect("a file");
    assert!(refused(&mut pair.serve("B")).contains("memory"));
    std::fs::write(&config, text.replace("node = \"B\"", "node = \"A\"")).expect("a file");
    assert!(refused(&mut pair.serve("B")).contains("addresses of both nodes"));
}
