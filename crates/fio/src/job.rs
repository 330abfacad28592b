//! What a job file asks for: phases of jobs that run at the same time.

use std::collections::BTreeSet;

use crate::Context;
use crate::error::{Error, Fault, Result};
use crate::ini::{self, Section};
use crate::options::ASYNCHRONOUS;
use crate::settings::{Settings, name_of_file};

/// fio's default block size.
const BLOCK_BYTES: u64 = 4096;
/// What stands for the name of the job in the name of a file.
const JOB_KEYWORD: &str = "$jobname";
/// fio's default name of a file.
const FILENAME_FORMAT: &str = "$jobname.$jobnum.$filenum";
/// More files than this in one job file is a slip of the pen.
const FILES_MAX: u64 = 1 << 14;
/// The longest name of a file with its directory: `PATH_MAX` with the zero at its end.
pub(crate) const NAME_BYTES_MAX: usize = 4095;

/// A job file.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// The phases, which run one after the other.
    pub phases: Vec<Phase>,
    /// What changes nothing here, and why.
    pub notes: Vec<Note>,
    /// The options of `[global]`, as written.
    pub globals: Vec<(String, String)>,
}

/// Jobs that run at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// The jobs, in the order of the file.
    pub jobs: Vec<Job>,
}

/// A remark on an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The line of the option.
    pub line: usize,
    /// The option, as written.
    pub option: String,
    /// The remark.
    pub text: String,
}

/// Reading, writing, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Reads only.
    #[default]
    Read,
    /// Writes only.
    Write,
    /// Reads and writes.
    Mixed,
}

/// The sizes of the blocks of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// The smallest, in bytes. All others are multiples of it.
    pub min: u64,
    /// The largest, in bytes.
    pub max: u64,
}

impl Blocks {
    pub(crate) fn same(bytes: u64) -> std::result::Result<Self, Fault> {
        Self::range(bytes, bytes)
    }

    pub(crate) fn range(min: u64, max: u64) -> std::result::Result<Self, Fault> {
        if min == 0 || max < min {
            return Err(Fault::new(format!("no block has {min} to {max} bytes"), "as in 4k, or 4k-16k"));
        }
        // Blocks are multiples of the smallest.
        Ok(Self { min, max: max / min * min })
    }
}

/// A file of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUse {
    /// The name, with its directory, as the file says it.
    pub path: String,
    /// The size of the file, anywhere in which the job accesses it.
    pub bytes: u64,
}

/// One of the `numjobs` clones of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The files, which take turns.
    pub files: Vec<FileUse>,
}

/// A job: one section of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The name of the section.
    pub name: String,
    /// The line of the section.
    pub line: usize,
    /// Reads, writes or both.
    pub access: Access,
    /// The share of reads among the operations of [`Access::Mixed`], in percent.
    pub read_percent: u8,
    /// Whether blocks are accessed in random order.
    pub random: bool,
    /// Whether each block is accessed once before any is accessed again.
    pub random_map: bool,
    /// The blocks of reads.
    pub read: Blocks,
    /// The blocks of writes.
    pub write: Blocks,
    /// The operations in flight of each instance.
    pub depth: u32,
    /// The clones of the job.
    pub instances: Vec<Instance>,
    /// The bytes after which each instance ends; `None` if time ends it.
    pub io_bytes: Option<u64>,
    /// The time after which the job ends, in microseconds, if there is one. It counts from the end
    /// of `ramp_us`.
    pub runtime_us: Option<u64>,
    /// The time at the start that is not measured, in microseconds.
    pub ramp_us: u64,
    /// The operations per second of each instance: reads and writes.
    pub rate_iops: [Option<f64>; 2],
    /// The number of the reporting group in the file.
    pub group: usize,
    /// Whether the results of the group are reported together.
    pub group_reporting: bool,
    /// Whether the job asks for O_DIRECT.
    pub direct: bool,
    /// Whether the job asks for synchronous writes or for syncs.
    pub syncs: bool,
    /// The options of the section, as written.
    pub options: Vec<(String, String)>,
}

impl Job {
    /// The smallest block of the directions that the job has.
    #[must_use]
    pub fn smallest_block(&self) -> u64 {
        match self.access {
            Access::Read => self.read.min,
            Access::Write => self.write.min,
            Access::Mixed => self.read.min.min(self.write.min),
        }
    }

    /// The largest block of the directions that the job has.
    #[must_use]
    pub fn largest_block(&self) -> u64 {
        match self.access {
            Access::Read => self.read.max,
            Access::Write => self.write.max,
            Access::Mixed => self.read.max.max(self.write.max),
        }
    }
}

impl JobFile {
    /// Reads a job file.
    ///
    /// # Errors
    /// The first line that cannot be carried out.
    pub fn parse(text: &str, context: &Context) -> Result<Self> {
        let mut globals = Settings::default();
        let (mut notes, mut phases) = (Vec::new(), Vec::<Phase>::new());
        let (mut group, mut files) = (0, 0);
        for section in ini::sections(text, context)? {
            if section.name == "global" {
                section.entries.iter().try_for_each(|entry| globals.apply(entry, &mut notes))?;
                continue;
            }
            // Without what is written there, which may be long, and is kept once.
            let written = std::mem::take(&mut globals.written);
            let mut settings = globals.clone();
            globals.written = written;
            section.entries.iter().try_for_each(|entry| settings.apply(entry, &mut notes))?;
            let is_first = phases.is_empty();
            if !is_first && (settings.stonewall || settings.new_group) {
                group += 1;
            }
            let fault = |fault: Fault| fault.at(section.line, 1);
            files += settings.files();
            if files > FILES_MAX {
                return Err(fault(Fault::new(format!("more than {FILES_MAX} files"), "fewer jobs or files")));
            }
            name_of_file(&section.name).map_err(fault)?;
            let job = resolve(&section, &settings, group, &mut notes)?;
            match phases.last_mut() {
                Some(phase) if !settings.stonewall => phase.jobs.push(job),
                _ => phases.push(Phase { jobs: vec![job] }),
            }
        }
        if phases.is_empty() {
            return Err(Fault::new("there is no job", "a section as in `[job1]`").at(1, 1));
        }
        phases.iter().try_for_each(Phase::check)?;
        // The same remark on many sections is made once, for the first of them.
        notes.sort_by_key(|note| note.line);
        let mut made = BTreeSet::new();
        notes.retain(|note| made.insert((note.option.clone(), note.text.clone())));
        Ok(Self { phases, notes, globals: globals.written })
    }
}

impl Phase {
    /// The jobs of a phase are measured together, so their times must agree.
    fn check(&self) -> std::result::Result<(), Error> {
        let Some(first) = self.jobs.first() else { return Ok(()) };
        for job in &self.jobs {
            if (job.runtime_us, job.ramp_us) != (first.runtime_us, first.ramp_us) {
                let cause = format!(
                    "the jobs {} and {} run at the same time and differ in runtime or ramp_time",
                    first.name, job.name
                );
                return Err(
                    Fault::new(cause, "the same times for both, or `stonewall` in one").at(job.line, 1)
                );
            }
        }
        Ok(())
    }
}

fn resolve(section: &Section, settings: &Settings, group: usize, notes: &mut Vec<Note>) -> Result<Job> {
    let fault = |fault: Fault| fault.at(section.line, 1);
    let name = settings.name.clone().unwrap_or_else(|| section.name.clone());
    let default = Blocks { min: BLOCK_BYTES, max: BLOCK_BYTES };
    let [read, write] = settings.blocks.map(|blocks| blocks.unwrap_or(default));
    let mut job = Job {
        line: section.line,
        access: settings.access,
        read_percent: settings.read_percent.unwrap_or(50),
        random: settings.random,
        random_map: !settings.no_random_map,
        read,
        write,
        depth: depth(section, settings, notes),
        instances: Vec::new(),
        io_bytes: None,
        runtime_us: settings.runtime_us,
        ramp_us: settings.ramp_us,
        rate_iops: [None; 2],
        group,
        group_reporting: settings.group_reporting,
        direct: settings.direct,
        syncs: settings.syncs,
        options: settings.written.clone(),
        name,
    };
    job.rate_iops = rates(settings, &job).map_err(fault)?;
    if settings.time_based && settings.runtime_us.is_none() {
        let cause = format!("the job {} has time_based and no runtime", job.name);
        return Err(fault(Fault::new(cause, "runtime=60")));
    }
    let (line, column) = settings.named_at.unwrap_or((section.line, 1));
    let names = Names::of(settings, &job.name).map_err(|fault| fault.at(line, column))?;
    let bytes = file_bytes(settings, &job, names.len()).map_err(fault)?;
    let instance = |clone: u32| {
        let paths = names.of_clone(clone).map_err(|fault| fault.at(line, column))?;
        Ok(Instance { files: paths.into_iter().map(|path| FileUse { path, bytes }).collect() })
    };
    job.instances = (0..settings.clones.unwrap_or(1)).map(instance).collect::<Result<_>>()?;
    let of_files = bytes.saturating_mul(names.len());
    if !settings.time_based {
        // A size below that of the files is what the job moves, anywhere in them.
        let whole = settings.size.map_or(of_files, |size| size.min(of_files));
        let once = settings.io_size.unwrap_or(whole);
        job.io_bytes = Some(once.saturating_mul(settings.loops.unwrap_or(1)));
    }
    Ok(job)
}

/// The operations in flight. A synchronous engine has one.
fn depth(section: &Section, settings: &Settings, notes: &mut Vec<Note>) -> u32 {
    let asked = settings.depth.unwrap_or(1);
    let engine = settings.engine.as_deref().unwrap_or("psync");
    let remark = |text: String| Note { line: section.line, option: "ioengine".to_owned(), text };
    if ASYNCHRONOUS.contains(&engine) {
        notes.push(remark(format!("the client library, with iodepth operations in flight as with {engine}")));
        return asked;
    }
    if asked > 1 {
        notes.push(remark(format!("{engine} is synchronous: one operation in flight, as in fio")));
    }
    1
}

/// The operations per second of each direction: of `rate_iops`, or of `rate` in blocks.
fn rates(settings: &Settings, job: &Job) -> std::result::Result<[Option<f64>; 2], Fault> {
    let mut rates = [None; 2];
    let both = settings.rate_iops.iter().zip(&settings.rate_bytes).zip([job.read, job.write]);
    for (rate, ((iops, bytes), blocks)) in rates.iter_mut().zip(both) {
        *rate = match (iops, bytes) {
            (Some(_), Some(_)) => return Err(Fault::new("rate and rate_iops together", "one of them")),
            (Some(iops), None) => Some(*iops as f64),
            (None, Some(bytes)) if blocks.min == blocks.max => Some(*bytes as f64 / blocks.min as f64),
            (None, Some(_)) => {
                return Err(Fault::new("rate with blocks of several sizes", "rate_iops instead of rate"));
            }
            (None, None) => None,
        };
    }
    let has = |direction: usize| rates.get(direction).is_some_and(Option::is_some);
    if job.access == Access::Mixed && has(0) != has(1) {
        return Err(Fault::new(
            "a rate for one direction of a mixed job",
            "two rates, as in rate_iops=100,100",
        ));
    }
    Ok(rates)
}

/// The size of each of a job's files.
fn file_bytes(settings: &Settings, job: &Job, number: u64) -> std::result::Result<u64, Fault> {
    let (bytes, moved) = match (settings.filesize, settings.size) {
        // The files have their size, and the job moves as much as it says.
        (Some(each), all) => (each, all.unwrap_or(each)),
        (None, Some(all)) => (all / number, all / number),
        (None, None) => {
            let cause = format!("the job {} has no size", job.name);
            return Err(Fault::new(cause, "size=1G, or another size of its files"));
        }
    };
    if bytes.min(moved) < job.smallest_block() {
        let bytes = bytes.min(moved);
        let cause = format!("files of {bytes} bytes have no room for a block of {}", job.smallest_block());
        return Err(Fault::new(cause, "a larger size, or a smaller bs"));
    }
    Ok(bytes)
}

/// How the files of a job are named.
enum Names {
    /// The same files for all clones.
    List { directories: Vec<String>, names: Vec<String> },
    /// A name for each, in which keywords are replaced.
    Format { directories: Vec<String>, format: String, number: u32 },
}

impl Names {
    fn of(settings: &Settings, job: &str) -> std::result::Result<Self, Fault> {
        let directories = split_list(settings.directory.as_deref().unwrap_or_default());
        if let Some(list) = &settings.filename {
            let names = split_list(list);
            if names.is_empty() {
                return Err(Fault::new("filename without a name", "filename=NAME"));
            }
            return Ok(Self::List { directories, names });
        }
        let format = settings.filename_format.as_deref().unwrap_or(FILENAME_FORMAT);
        // Its length is known before it is made: a short format may name a long job many times.
        let times = format.matches(JOB_KEYWORD).count();
        let bytes = format.len().saturating_add(times.saturating_mul(job.len()));
        let bytes = bytes.saturating_sub(times * JOB_KEYWORD.len());
        too_long(bytes)?;
        let format = format.replace(JOB_KEYWORD, job).replace("$clientuid", "localhost");
        Ok(Self::Format { directories, format, number: settings.nrfiles.unwrap_or(1) })
    }

    /// The number of files of a clone.
    fn len(&self) -> u64 {
        match self {
            Self::List { names, .. } => names.len() as u64,
            Self::Format { number, .. } => u64::from(*number),
        }
    }

    /// The names for one clone, each with its directory.
    fn of_clone(&self, clone: u32) -> std::result::Result<Vec<String>, Fault> {
        let (Self::List { directories, .. } | Self::Format { directories, .. }) = self;
        let directory = directories.get(clone as usize % directories.len().max(1));
        let below = |name: String| {
            let path = match directory.map(|directory| directory.trim_end_matches('/')) {
                None => name,
                Some("") => format!("/{name}"),
                Some(directory) => format!("{directory}/{name}"),
            };
            too_long(path.len()).map(|()| path)
        };
        match self {
            Self::List { names, .. } => names.iter().cloned().map(below).collect(),
            Self::Format { format, number, .. } => {
                let of_clone = format.replace("$jobnum", &clone.to_string());
                (0..*number).map(|file| below(of_clone.replace("$filenum", &file.to_string()))).collect()
            }
        }
    }
}

/// Refuses a name of so many bytes that no system takes it.
fn too_long(bytes: usize) -> std::result::Result<(), Fault> {
    if bytes <= NAME_BYTES_MAX {
        return Ok(());
    }
    let cause = format!(
        "with directory and keywords a file's name has {bytes} bytes; no system takes more than {NAME_BYTES_MAX}"
    );
    Err(Fault::new(cause, "a shorter name, or fewer keywords in it"))
}

/// The names of a list with colons between. A colon within a name is written `\:`.
pub(crate) fn split_list(list: &str) -> Vec<String> {
    let (mut names, mut name) = (Vec::new(), String::new());
    let mut characters = list.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&':') => name.extend(characters.next()),
            ':' => names.push(std::mem::take(&mut name)),
            other => name.push(other),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests;
