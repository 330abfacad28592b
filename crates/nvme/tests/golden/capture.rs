//! Reads captures: each PDU with its end and its queue, decoded once, and the exchanges that they
//! are parts of.

use nvme::pdu::{Bounds, Digests, Layout, Pdu, R2t, Receiver, Sender};
use nvme::{Cqe, Sqe};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the kernel's target takes in a capsule of an I/O queue, in bytes.
pub const CAPSULE_DATA_BYTES: u32 = 16_384;

/// More than any command of the captures moves, in bytes.
pub const TRANSFER_BYTES: u32 = 2 << 20;

/// The end that has sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Host,
    Target,
}

/// A PDU as it was captured.
#[derive(Debug, Clone)]
pub struct Packet {
    /// The queue of its connection; 0 is the admin queue.
    pub qid: u16,
    pub from: End,
    pub bytes: Vec<u8>,
    /// How this end sends.
    pub sender: Sender,
    pub layout: Layout,
    pub pdu: Pdu,
}

impl Packet {
    /// What stands before the data, or everything if there are none.
    pub fn head(&self) -> &[u8] {
        &self.bytes[..self.layout.data_offset.into()]
    }

    /// The header with its digest.
    pub fn header(&self) -> &[u8] {
        &self.bytes[..self.layout.header_bytes()]
    }

    pub fn data(&self) -> &[u8] {
        &self.bytes[self.layout.data_offset.into()..][..self.layout.data_bytes as usize]
    }

    /// The digest of the data, if they have one.
    pub fn data_digest(&self) -> &[u8] {
        &self.bytes[self.head().len() + self.data().len()..]
    }

    /// The command that it belongs to.
    pub fn cid(&self) -> Option<u16> {
        match self.pdu {
            Pdu::CapsuleCmd(command) => Some(command.sqe.cid),
            Pdu::CapsuleResp(response) => Some(response.cqe.cid),
            Pdu::H2cData(data) => Some(data.cccid),
            Pdu::C2hData(data) => Some(data.cccid),
            Pdu::R2t(r2t) => Some(r2t.cccid),
            _ => None,
        }
    }

    /// The bounds of the end that receives it.
    pub fn bounds(&self) -> Bounds {
        bounds(self.from, self.sender.digests)
    }
}

fn bounds(from: End, digests: Digests) -> Bounds {
    let receiver = match from {
        End::Host => Receiver::Controller,
        End::Target => Receiver::Host,
    };
    let (capsule_data_bytes, data_bytes) = (CAPSULE_DATA_BYTES, TRANSFER_BYTES);
    Bounds { receiver, digests, alignment: 4, capsule_data_bytes, data_bytes }
}

/// What happened, in its order.
#[derive(Debug)]
pub enum Event {
    /// A command was given to nvme-cli, or something was done at the target.
    Note(String),
    Packet(Packet),
    /// The host has closed the connection of this queue.
    Closed(u16),
}

/// A command with everything that belongs to it.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub qid: u16,
    /// What was done when the command was sent.
    pub note: String,
    pub sqe: Sqe,
    pub to_controller: Vec<u8>,
    pub to_host: Vec<u8>,
    pub asked: Vec<R2t>,
    /// The completion; none if the data have implied it.
    pub cqe: Option<Cqe>,
    /// Which event of the capture was its last one.
    pub end: usize,
}

impl Exchange {
    fn begun(qid: u16, note: &str, sqe: Sqe) -> Self {
        let (to_controller, to_host, asked) = (Vec::new(), Vec::new(), Vec::new());
        Self { qid, note: note.to_owned(), sqe, to_controller, to_host, asked, cqe: None, end: 0 }
    }

    fn add(&mut self, at: usize, packet: &Packet) {
        self.end = at;
        match packet.pdu {
            Pdu::R2t(r2t) => self.asked.push(r2t),
            Pdu::CapsuleResp(response) => self.cqe = Some(response.cqe),
            _ if packet.from == End::Host => self.to_controller.extend_from_slice(packet.data()),
            _ => self.to_host.extend_from_slice(packet.data()),
        }
    }
}

/// One capture.
#[derive(Debug)]
pub struct Capture {
    /// The folder and the name of its file.
    pub name: String,
    pub events: Vec<Event>,
}

impl Capture {
    /// All captures.
    pub fn all() -> Vec<Self> {
        let mut files: Vec<PathBuf> = Vec::new();
        for folder in std::fs::read_dir(folder()).expect("the folder of this test") {
            let folder = folder.expect("an entry").path();
            if folder.is_dir() {
                files.extend(
                    std::fs::read_dir(folder).expect("captures").map(|file| file.expect("one").path()),
                );
            }
        }
        files.sort();
        files.iter().map(|file| Self::of(file)).collect()
    }

    /// The capture of this name with Linux 6.1.
    pub fn named(name: &str) -> Self {
        Self::of(&folder().join(format!("linux_6.1/{name}.txt")))
    }

    fn of(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("a capture");
        let name = file.strip_prefix(folder()).expect("below it").display().to_string();
        let (mut events, mut digests) = (Vec::new(), BTreeMap::new());
        for line in entries(&text) {
            let event = match line.strip_prefix("# ") {
                Some(note) => Event::Note(note.to_owned()),
                None => event(&line, &mut digests).unwrap_or_else(|| panic!("{name}: {line}")),
            };
            events.push(event);
        }
        Self { name, events }
    }

    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.events.iter().filter_map(|event| match event {
            Event::Packet(packet) => Some(packet),
            _ => None,
        })
    }

    /// The exchanges, by the order of their commands.
    pub fn exchanges(&self) -> Vec<Exchange> {
        let (mut exchanges, mut open, mut note) = (Vec::<Exchange>::new(), BTreeMap::new(), "");
        for (at, event) in self.events.iter().enumerate() {
            let packet = match event {
                Event::Packet(packet) => packet,
                Event::Note(text) => {
                    note = text;
                    continue;
                }
                Event::Closed(_) => continue,
            };
            let Some(cid) = packet.cid() else { continue };
            if let Pdu::CapsuleCmd(command) = packet.pdu {
                open.insert((packet.qid, cid), exchanges.len());
                exchanges.push(Exchange::begun(packet.qid, note, command.sqe));
            }
            exchanges[open[&(packet.qid, cid)]].add(at, packet);
        }
        exchanges
    }

    /// The exchanges during a command of nvme-cli.
    pub fn during(&self, note: &str) -> Vec<Exchange> {
        self.exchanges().into_iter().filter(|one| one.note == note).collect()
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Lines, with those that continue them.
fn entries(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("  "), entries.last_mut()) {
            (Some(more), Some(entry)) => entry.extend([" ", more]),
            _ => entries.push(line.to_owned()),
        }
    }
    entries
}

/// Reads a line: the queue, the direction, and the bytes.
fn event(line: &str, digests: &mut BTreeMap<u16, Digests>) -> Option<Event> {
    let mut words = line.split(' ');
    let qid = match words.next()? {
        "admin" => 0,
        "io" => 1,
        _ => return None,
    };
    let from = match words.next()? {
        ">" => End::Host,
        "<" => End::Target,
        _ => return None,
    };
    if line.ends_with(" end") {
        return Some(Event::Closed(qid));
    }
    let mut bytes = Vec::new();
    for word in words {
        let (hex, times) = word.split_once('*').unwrap_or((word, "1"));
        bytes.extend(unhex(hex)?.repeat(times.parse().ok()?));
    }
    let agreed = digests.get(&qid).copied().unwrap_or_default();
    let (packet, bytes_read) = packet(qid, from, &bytes, agreed)?;
    if bytes_read != bytes.len() {
        return None;
    }
    if let Pdu::IcResp(response) = packet.pdu {
        digests.insert(qid, response.digests);
    }
    Some(Event::Packet(packet))
}

/// Reads the first PDU of what one end has sent; also returns its length in bytes.
pub fn packet(qid: u16, from: End, bytes: &[u8], digests: Digests) -> Option<(Packet, usize)> {
    let layout = Layout::of(bytes.first_chunk()?, &bounds(from, digests)).ok()?;
    let pdu = Pdu::decode(&layout, bytes.get(..layout.header_bytes())?).ok()?;
    let length = usize::try_from(layout.pdu_bytes()).ok()?;
    let bytes = bytes.get(..length)?.to_vec();
    let sender = Sender { digests, alignment: 4 };
    Some((Packet { qid, from, bytes, sender, layout, pdu }, length))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
