//! A load through our client, the counterpart of `crates/trunkline/tests/peers/load.c`, which uses
//! libnfs: it takes the same arguments, uses the same files and prints the same line. `OPTIONS` are
//! additional mount options. docs/results compares the two.
//!
//! ```text
//! load HOST PORT MOUNT_PORT EXPORT MODE BLOCK_BYTES DEPTH CONNECTIONS SECONDS FILE_MIB [OPTIONS]
//! ```
//!
//! The load runs on `CONNECTIONS` files, `load.0` and so on, each with `DEPTH` requests in flight,
//! over one mount with as many connections. `MODE` is `fill`, `read`, `write`, `randread`,
//! `randwrite` or `check`. Every read checks the 16-byte stamp of each 4 KiB. In contrast to the
//! load through libnfs, a write counts only when its data are stable.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use client::options::CONNECTIONS_MAX;
use client::{Answer, Done, File, FileRef, Io, Mount, Op, Task};

const PAGE: usize = 4096;
const STAMP: usize = 16;
const USAGE: &str =
    "usage: load HOST PORT MOUNT_PORT EXPORT MODE BLOCK_BYTES DEPTH CONNECTIONS SECONDS FILE_MIB [OPTIONS]";

#[derive(Debug, Clone)]
struct Options {
    target: String,
    mount_options: String,
    connections: u16,
    mode: String,
    block: usize,
    blocks: u64,
    depth: usize,
    length: Duration,
}

impl Options {
    fn parse(words: &[String]) -> Option<Self> {
        let [host, port, mount_port, export, mode, block, depth, connections, seconds, file_mib, beside @ ..] =
            words
        else {
            return None;
        };
        let known = ["fill", "read", "write", "randread", "randwrite", "check"];
        known.contains(&mode.as_str()).then_some(())?;
        let block: usize = block.parse().ok().filter(|bytes| (PAGE..=1 << 20).contains(bytes))?;
        let block = block / PAGE * PAGE;
        let file_mib: u64 = file_mib.parse().ok().filter(|mib| (1..=1 << 20).contains(mib))?;
        let connections = connections.parse().ok().filter(|count| (1..=CONNECTIONS_MAX).contains(count))?;
        Some(Self {
            target: format!("{host}:{export}"),
            mount_options: [format!("port={port},mountport={mount_port},nconnect={connections}")]
                .iter()
                .chain(beside)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(","),
            connections,
            mode: mode.clone(),
            block,
            blocks: (file_mib << 20) / block as u64,
            depth: depth.parse().ok().filter(|depth| (1..=1024).contains(depth))?,
            length: Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?,
        })
    }

    fn writes(&self) -> bool {
        matches!(self.mode.as_str(), "fill" | "write" | "randwrite")
    }

    fn once(&self) -> bool {
        matches!(self.mode.as_str(), "fill" | "check")
    }
}

/// The content of every page after its stamp, the same in all pages.
fn noise(at: usize) -> u8 {
    (at * 167 + (at >> 8) * 13) as u8
}

fn stamp(file: u64, page: u64) -> [u8; STAMP] {
    let mut bytes = [0; STAMP];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&file.to_le_bytes());
    second.copy_from_slice(&page.to_le_bytes());
    bytes
}

fn stamp_block(block: &mut [u8], file: u64, offset: u64) {
    for (page, bytes) in (offset / PAGE as u64..).zip(block.chunks_exact_mut(PAGE)) {
        if let Some(place) = bytes.first_chunk_mut::<STAMP>() {
            *place = stamp(file, page);
        }
    }
}

fn check_block(block: &[u8], file: u64, offset: u64, every_byte: bool) -> Result<(), String> {
    for (page, bytes) in (offset / PAGE as u64..).zip(block.chunks_exact(PAGE)) {
        let (head, rest) = bytes.split_at(STAMP);
        if head != stamp(file, page) {
            return Err(format!("load.{file}: wrong stamp on page {page}"));
        }
        if every_byte && !rest.iter().enumerate().all(|(at, byte)| *byte == noise(at + STAMP)) {
            return Err(format!("load.{file}: wrong byte on page {page}"));
        }
    }
    Ok(())
}

/// The result of the load of one file.
#[derive(Debug, Default)]
struct Outcome {
    operations: u64,
    pages_checked: u64,
    error: Option<String>,
}

/// The load of one file.
struct Load {
    options: Options,
    number: u64,
    file: FileRef,
    issued: u64,
    random: u64,
    deadline: Instant,
    offsets: Vec<u64>,
    in_flight: usize,
    outcome: Outcome,
    report: Option<Sender<Outcome>>,
}

impl Load {
    fn next_offset(&mut self) -> Option<u64> {
        let over = if self.options.once() {
            self.issued == self.options.blocks
        } else {
            Instant::now() >= self.deadline
        };
        if over || self.outcome.error.is_some() {
            return None;
        }
        let mut block = self.issued % self.options.blocks;
        if self.options.mode.starts_with("rand") {
            // xorshift64, seeded with the number of the file.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            block = self.random % self.options.blocks;
        }
        self.issued += 1;
        Some(block * self.options.block as u64)
    }

    fn submit(&mut self, io: &mut Io<'_>, token: u64, mut buffer: client::Buffer) {
        let Some(offset) = self.next_offset() else { return };
        if let Some(place) = self.offsets.get_mut(token as usize) {
            *place = offset;
        }
        let file = self.file;
        let op = if self.options.writes() {
            stamp_block(&mut buffer, self.number, offset);
            Op::Write { file, offset, buffer }
        } else {
            Op::Read { file, offset, buffer }
        };
        self.in_flight += 1;
        io.submit(op, token);
    }

    fn account(&mut self, token: u64, done: &Done) -> Result<(), String> {
        let offset = self.offsets.get(token as usize).copied().unwrap_or_default();
        match &done.result {
            Err(error) => return Err(format!("load.{} at byte {offset}: {error}", self.number)),
            Ok(Answer::Read { count, .. }) if *count as usize == done.buffer.len() => {
                check_block(&done.buffer, self.number, offset, self.options.mode == "check")?;
                self.outcome.pages_checked += (done.buffer.len() / PAGE) as u64;
            }
            Ok(Answer::Read { count, .. }) => return Err(format!("only {count} bytes at byte {offset}")),
            Ok(_) => {}
        }
        self.outcome.operations += 1;
        Ok(())
    }

    fn report_when_over(&mut self) {
        if self.in_flight == 0
            && let Some(report) = self.report.take()
        {
            let _ = report.send(std::mem::take(&mut self.outcome));
        }
    }
}

impl Task for Load {
    fn start(&mut self, io: &mut Io<'_>) {
        self.deadline = Instant::now() + self.options.length;
        for token in 0..self.options.depth as u64 {
            let buffer = (0..self.options.block).map(|at| noise(at % PAGE)).collect::<Vec<u8>>().into();
            self.submit(io, token, buffer);
        }
        self.report_when_over();
    }

    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done) {
        self.in_flight -= 1;
        if let Err(error) = self.account(token, &done) {
            self.outcome.error.get_or_insert(error);
        }
        self.submit(io, token, done.buffer);
        self.report_when_over();
    }

    fn ended(&self) -> bool {
        self.report.is_none()
    }
}

fn run(options: &Options) -> Result<(), String> {
    let connections = options.connections;
    let mount = Mount::connect(&options.target, &options.mount_options)
        .map_err(|error| format!("cannot mount {}: {error:?}", options.target))?;
    let files: Vec<File> = (0..connections)
        .map(|number| {
            let path = format!("/load.{number}").into_bytes();
            if options.mode == "fill" { mount.create_file(&path, 0o666) } else { mount.open(&path) }
        })
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let (report, reports) = channel();
    let started = Instant::now();
    for (number, file) in files.iter().enumerate() {
        let load = Load {
            options: options.clone(),
            number: number as u64,
            file: file.file_ref(),
            issued: 0,
            random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1),
            deadline: started,
            offsets: vec![0; options.depth],
            in_flight: 0,
            outcome: Outcome::default(),
            report: Some(report.clone()),
        };
        mount.spawn(number, Box::new(load));
    }
    drop(report);
    let (mut operations, mut pages_checked) = (0, 0);
    for outcome in reports {
        if let Some(error) = outcome.error {
            return Err(error);
        }
        operations += outcome.operations;
        pages_checked += outcome.pages_checked;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} block={} depth={} connections={connections} operations={operations} pages_checked={pages_checked} \
         seconds={seconds:.3} iops={:.0} gbytes_per_s={:.3}",
        options.mode,
        options.block,
        options.depth,
        operations as f64 / seconds,
        (operations * options.block as u64) as f64 / seconds / 1e9,
    );
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = Options::parse(&words) else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    if let Err(error) = run(&options) {
        eprintln!("load: {error}");
        std::process::exit(1);
    }
}
