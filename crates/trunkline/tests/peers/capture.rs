//! A capture of the packets on the loopback interface, decoded by tshark.
//!
//! tshark must find no malformed packet and nothing unknown. The messages that tshark lists show
//! whether each call, identified by connection and xid, has exactly one reply.

use crate::fixtures::{TIMEOUT, run};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use testkit::{Deadline, Process, TempDir, require_program, temp_dir};

/// The size of the buffer for packets that dumpcap has not taken yet; large enough for a whole
/// capture.
const BUFFER_MIB: &str = "64";
/// Marks the end of a capture: the mark is sent last, so a file that contains the mark is complete.
const END: &[u8] = b"here the conversation ends, as the test knows and dumpcap does not";

/// A running capture.
#[derive(Debug)]
pub(crate) struct Capture {
    dumpcap: Process,
    file: PathBuf,
    ports: Vec<u16>,
    _place: TempDir,
}

impl Capture {
    /// Captures whole TCP packets with these ports at either end.
    pub(crate) fn start(ports: &[u16]) -> Self {
        let _ = require_program("tshark");
        let place = temp_dir("capture");
        let file = place.path().join("loopback.pcapng");
        let filter: Vec<String> = ports.iter().map(|port| format!("port {port}")).collect();
        let mut command = Command::new(require_program("dumpcap"));
        command.args(["-q", "-i", "lo", "-B", BUFFER_MIB, "-f", &filter.join(" or "), "-w"]).arg(&file);
        let dumpcap = Process::spawn(command);
        dumpcap.wait_for_line("File: ", TIMEOUT);
        Self { dumpcap, file, ports: ports.to_vec(), _place: place }
    }

    /// Ends the capture and decodes the packets.
    pub(crate) fn finish(mut self) -> Decoded {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Deadline::wait_until("the mark of the end in the capture", TIMEOUT, || {
            // Nothing listens on this UDP port, so the second send may fail.
            let _ = socket.send_to(END, ("127.0.0.1", self.ports[0]));
            let captured = fs::read(&self.file).unwrap_or_default();
            captured.windows(END.len()).rev().any(|window| window == END).then_some(())
        });
        self.dumpcap.signal(Signal::INT);
        self.dumpcap.wait(TIMEOUT);
        let said = self.dumpcap.all_output();
        let dropped = said.lines().find_map(|line| line.split_once("received/dropped on interface"));
        let dropped = dropped.and_then(|(_, rest)| rest.split_once('/')).map(|(_, rest)| rest);
        assert!(dropped.is_some_and(|rest| rest.starts_with("0 ")), "packets were dropped:\n{said}");
        Decoded::new(&self)
    }

    fn tshark(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(require_program("tshark"));
        command.arg("-n").arg("-r").arg(&self.file);
        for port in &self.ports {
            command.args(["-d", &format!("tcp.port=={port},rpc")]);
        }
        // Segments that the kernel retransmitted arrive out of order, which is no error of the
        // programs.
        command.args(["-o", "tcp.reassemble_out_of_order:TRUE"]).args(arguments);
        run(command)
    }
}

/// The program and the procedure of a call.
type Kind = (u32, u32);

/// The result of tshark for a capture, checked.
#[derive(Debug)]
pub(crate) struct Decoded {
    calls: BTreeMap<Kind, usize>,
}

impl Decoded {
    fn new(capture: &Capture) -> Self {
        let faults = capture.tshark(&["-Y", "_ws.malformed || _ws.unreassembled || _ws.short"]);
        assert_eq!(faults, "", "malformed packets");
        let text = capture.tshark(&["-V", "-Y", "rpc"]);
        let odd = ["Unknown", "unknown", "Malformed", "Continuation", "Dissector bug", "Fragment fragment"];
        // The bits of the type of a file, of which a mode of version 4 has none. RFC 8881 s6.2.4
        let is_mode = |line: &str| line.contains("Name: Unknown");
        let is_odd = |line: &&str| odd.iter().any(|word| line.contains(word)) && !is_mode(line);
        let odd: BTreeSet<&str> = text.lines().filter(is_odd).collect();
        assert!(odd.is_empty(), "unknown to tshark:\n{odd:#?}");
        Self { calls: match_calls_with_replies(&list_messages(capture)) }
    }

    /// Fails unless each of these procedures was called.
    #[track_caller]
    pub(crate) fn assert_called(&self, program: u32, procedures: &[u32]) {
        for procedure in procedures {
            let count = self.calls.get(&(program, *procedure)).copied().unwrap_or(0);
            assert!(count > 0, "no call of procedure {procedure} of {program} among {:?}", self.calls);
        }
    }
}

/// A message in a capture.
#[derive(Debug)]
struct Message {
    connection: String,
    xid: String,
    is_reply: bool,
    kind: Kind,
}

/// All messages in order. A frame may contain several; tshark lists each field of all of them,
/// separated by commas.
fn list_messages(capture: &Capture) -> Vec<Message> {
    let fields = ["tcp.stream", "rpc.xid", "rpc.msgtyp", "rpc.program", "rpc.procedure"];
    let mut arguments = vec!["-2", "-Y", "rpc", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"];
    arguments.extend(fields.iter().flat_map(|field| ["-e", field]));
    let listed = capture.tshark(&arguments);
    let mut messages = Vec::new();
    for line in listed.lines() {
        let columns: Vec<Vec<&str>> = line.split('\t').map(|column| column.split(',').collect()).collect();
        let [connection, xids, types, programs, procedures] = columns.as_slice() else {
            panic!("tshark printed {line:?}");
        };
        // tshark takes the program of a reply from its call: without the call the field is missing.
        let even = [types, programs, procedures].iter().all(|column| column.len() == xids.len());
        assert!(even, "a reply without a call: {line:?}");
        for (at, xid) in xids.iter().enumerate() {
            let number = |column: &[&str]| column[at].parse::<u32>().unwrap_or_else(|_| panic!("{line:?}"));
            messages.push(Message {
                connection: connection[0].to_owned(),
                xid: (*xid).to_owned(),
                is_reply: number(types) == 1,
                kind: (number(programs), number(procedures)),
            });
        }
    }
    messages
}

/// Matches each call with one reply and each reply with one call; counts the calls by kind.
fn match_calls_with_replies(messages: &[Message]) -> BTreeMap<Kind, usize> {
    let mut open: HashMap<(&str, &str), Kind> = HashMap::new();
    let mut calls = BTreeMap::new();
    for message in messages {
        let key = (message.connection.as_str(), message.xid.as_str());
        if message.is_reply {
            let call = open.remove(&key);
            assert_eq!(call, Some(message.kind), "a reply that fits no call: {message:?}");
        } else {
            let twice = open.insert(key, message.kind);
            assert!(twice.is_none(), "a call with the xid of one that is not answered yet: {message:?}");
            *calls.entry(message.kind).or_default() += 1;
        }
    }
    assert!(open.is_empty(), "calls without an answer: {open:?}");
    calls
}
