//! One file as one thread has it open: the calls that read and write the file, each with the times
//! before and after the call.

use crate::mapped::Mapping;
use crate::op::{AccessMethod, Run, now};
use crate::plan::{FilePlan, Kind, Meeting};
use crate::stamp::{ANYWHERE, Stamp, WORD_BYTES, filled};
use rustix::fs::{Advice, OFlags, copy_file_range, fadvise};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The largest alignment that O_DIRECT requires of memory.
const ALIGNMENT: usize = 4096;

/// The times before and after a call.
pub type Times = [u64; 2];

/// See the module's documentation.
pub struct Access<'a> {
    pub plan: &'a FilePlan,
    path: PathBuf,
    /// The file from which this thread copies; no other thread writes it.
    source: PathBuf,
    stays_open: bool,
    handles: HashMap<AccessMethod, File>,
    mapping: Option<Mapping>,
    memory: Vec<u8>,
}

/// The name of a file, by number.
pub fn name(file: usize) -> String {
    format!("file-{file}")
}

impl<'a> Access<'a> {
    pub fn new(plan: &'a FilePlan, directory: &Path, file: usize, writer: u8, meeting: Meeting) -> Self {
        let (path, source) = (directory.join(name(file)), directory.join(format!("source-{file}-{writer}")));
        let stays_open = meeting == Meeting::OneMount;
        Self { plan, path, source, stays_open, handles: HashMap::new(), mapping: None, memory: Vec::new() }
    }

    fn open(&self, method: AccessMethod) -> File {
        let flags = match method {
            AccessMethod::Sync => OFlags::SYNC,
            AccessMethod::Dsync => OFlags::DSYNC,
            AccessMethod::Direct => OFlags::DIRECT,
            AccessMethod::Buffered | AccessMethod::Mapped | AccessMethod::Copied | AccessMethod::Cut => {
                OFlags::empty()
            }
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).append(self.plan.kind == Kind::Appended);
        options.custom_flags(flags.bits() as i32).open(&self.path).expect("the file opens")
    }

    /// Does something with the file, opened first unless the file stays open.
    fn with<T>(&mut self, method: AccessMethod, act: impl FnOnce(&File) -> T) -> (T, Times) {
        if self.stays_open {
            let file = self.handles.remove(&method).unwrap_or_else(|| self.open(method));
            let begin = now();
            let done = act(&file);
            let times = [begin, now()];
            self.handles.insert(method, file);
            return (done, times);
        }
        let begin = now();
        let file = self.open(method);
        let done = act(&file);
        drop(file);
        (done, [begin, now()])
    }

    /// Aligns memory for O_DIRECT.
    fn aligned(mut memory: Vec<u8>, bytes: usize) -> (Vec<u8>, usize) {
        memory.clear();
        memory.resize(bytes + ALIGNMENT, 0);
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        (memory, start)
    }

    /// Writes stamps to cells.
    pub fn write(&mut self, method: AccessMethod, stamp: Stamp, first: u32, cells: u32) -> Times {
        let (offset, cell_bytes) = (self.plan.offset(first), self.plan.cell_bytes as usize);
        let (mut memory, start) =
            Self::aligned(std::mem::take(&mut self.memory), cells as usize * cell_bytes);
        let data = &mut memory[start..start + cells as usize * cell_bytes];
        for (cell, bytes) in (first..).zip(data.chunks_exact_mut(cell_bytes)) {
            let word = Stamp { cell: cell as u16, ..stamp }.word();
            bytes.iter_mut().zip(filled(word, cell_bytes)).for_each(|(byte, filled)| *byte = filled);
        }
        let times = match method {
            AccessMethod::Mapped => self.store(offset, data),
            AccessMethod::Copied => self.copy(offset, data),
            _ => self.with(method, |file| file.write_all_at(data, offset).expect("a write must not fail")).1,
        };
        self.memory = memory;
        times
    }

    fn mapping(&mut self) -> &Mapping {
        if self.mapping.is_none() {
            self.mapping = Some(Mapping::of(&self.open(AccessMethod::Mapped), self.plan.bytes() as usize));
        }
        self.mapping.as_ref().expect("made above")
    }

    /// Only on one mount.
    fn store(&mut self, offset: u64, data: &[u8]) -> Times {
        let mapping = self.mapping();
        let begin = now();
        mapping.store(offset as usize, data);
        [begin, now()]
    }

    /// Writes the data to a file of this thread and copies them from there.
    fn copy(&mut self, offset: u64, data: &[u8]) -> Times {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let source = options.open(&self.source).expect("the source opens");
        source.write_all_at(data, offset).expect("a write must not fail");
        self.with(AccessMethod::Copied, |file| {
            let (mut from, mut to) = (offset, offset);
            let mut left = data.len();
            while left > 0 {
                let copied = copy_file_range(&source, Some(&mut from), file, Some(&mut to), left);
                let copied = copied.expect("a copy must not fail");
                assert!(
                    copied > 0,
                    "copy_file_range copied nothing from offset {from}, where data were written"
                );
                left -= copied;
            }
        })
        .1
    }

    /// Appends one record.
    pub fn append(&mut self, method: AccessMethod, writer: u8, number: u32) -> Times {
        let bytes = self.plan.cell_bytes as usize;
        let (mut memory, start) = Self::aligned(std::mem::take(&mut self.memory), bytes);
        let record = &mut memory[start..start + bytes];
        let word = Stamp { writer, number, cell: ANYWHERE }.word();
        record.iter_mut().zip(filled(word, bytes)).for_each(|(byte, filled)| *byte = filled);
        let write =
            |mut file: &File| std::io::Write::write_all(&mut file, record).expect("a write must not fail");
        let times = self.with(method, write).1;
        self.memory = memory;
        times
    }

    /// Truncates the file before a cell, or at its full length, which removes nothing.
    pub fn cut(&mut self, cell: u32) -> Times {
        let bytes = if cell == 0 { 0 } else { self.plan.offset(cell) };
        self.with(AccessMethod::Cut, |file| file.set_len(bytes).expect("a truncation must not fail")).1
    }

    /// Reads cells; cells after the end of the file read as zeros.
    pub fn read(&mut self, method: AccessMethod, first: u32, cells: u32) -> (Vec<Run>, Times) {
        let (offset, bytes) = (self.plan.offset(first), (cells * self.plan.cell_bytes) as usize);
        let (mut memory, start) = Self::aligned(std::mem::take(&mut self.memory), bytes);
        let data = &mut memory[start..start + bytes];
        let times = match method {
            AccessMethod::Mapped if self.stays_open => {
                let mapping = self.mapping();
                let begin = now();
                mapping.load(offset as usize, data);
                [begin, now()]
            }
            AccessMethod::Mapped => {
                let length = self.plan.bytes() as usize;
                self.with(method, |file| Mapping::of(file, length).load(offset as usize, data)).1
            }
            _ => self.with(method, |file| read_to_the_end(file, data, offset)).1,
        };
        let runs = runs(data, first, self.plan.cell_bytes as usize);
        self.memory = memory;
        (runs, times)
    }

    /// The number of whole cells before the end of the file.
    pub fn cells_now(&mut self) -> u32 {
        let length =
            self.with(AccessMethod::Buffered, |file| file.metadata().expect("the file exists").len()).0;
        (length.saturating_sub(self.plan.shift) / u64::from(self.plan.cell_bytes)) as u32
    }

    /// Does something that changes no data: syncs, drops cached pages, or closes the file.
    pub fn disturb(&mut self, random: &mut fastrand::Rng) {
        let Some(&method) = self.handles.keys().min_by_key(|_| random.u32(..)) else { return };
        let file = &self.handles[&method];
        match random.u32(..4) {
            0 => file.sync_all().expect("a sync must not fail"),
            1 => file.sync_data().expect("a sync must not fail"),
            2 => fadvise(file, 0, None, Advice::DontNeed).expect("fadvise succeeds"),
            _ => {
                self.handles.remove(&method);
                self.mapping = None;
            }
        }
    }
}

fn read_to_the_end(file: &File, mut data: &mut [u8], mut offset: u64) {
    while !data.is_empty() {
        match file.read_at(data, offset).expect("a read must not fail") {
            0 => return,
            bytes => {
                data = &mut data[bytes..];
                offset += bytes as u64;
            }
        }
    }
}

/// The content of the cells.
fn runs(data: &[u8], first: u32, cell_bytes: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut next = None;
    for bytes in data.chunks_exact(cell_bytes) {
        let words =
            bytes.chunks_exact(WORD_BYTES).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        let mut words: Vec<u64> = words.collect();
        words.dedup();
        let [word] = words[..] else {
            words.sort_unstable();
            words.dedup();
            runs.push(Run::Torn(words));
            next = None;
            continue;
        };
        match runs.last_mut() {
            Some(Run::Whole { cells, .. }) if next == Some(word) => *cells += 1,
            _ => runs.push(Run::Whole { word, cells: 1 }),
        }
        next = match Stamp::parse(word) {
            Some(stamp) => stamp.cell.checked_add(1).map(|cell| Stamp { cell, ..stamp }.word()),
            None => (word == 0).then_some(0),
        };
    }
    debug_assert_eq!(
        runs.iter().map(Run::cells).sum::<u32>() as usize * cell_bytes,
        data.len(),
        "from cell {first}"
    );
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::words_of;

    #[test]
    fn runs_describe_the_content_of_the_cells() {
        let word = |cell| Stamp { writer: 2, number: 7, cell }.word();
        let cells =
            [[word(4), word(4)], [word(5), word(5)], [word(5), word(5)], [0, 0], [0, 0], [word(8), 0]];
        let data: Vec<u8> = cells.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
        let runs = runs(&data, 4, 16);
        assert_eq!(runs.len(), 4);
        let words: Vec<Vec<u64>> = runs.iter().flat_map(words_of).collect();
        let expected = [vec![word(4)], vec![word(5)], vec![word(5)], vec![0], vec![0]];
        assert_eq!(words[..5], expected);
        assert_eq!(words[5].len(), 2);
    }
}
