//! The options of one job, after those of `[global]` and its own have been applied.

use crate::error::{Fault, Result};
use crate::ini::Entry;
use crate::job::{Access, Blocks, NAME_BYTES_MAX, Note, split_list};
use crate::options::{self, Kind};
use crate::units::{self, Base};

/// The highest number of clones, files or operations in flight; more is a slip of the pen.
const COUNT_MAX: u64 = 1 << 16;

/// The options that have an effect; absent ones are as in fio.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) name: Option<String>,
    pub(crate) access: Access,
    pub(crate) random: bool,
    pub(crate) blocks: [Option<Blocks>; 2],
    pub(crate) read_percent: Option<u8>,
    pub(crate) depth: Option<u32>,
    pub(crate) engine: Option<String>,
    pub(crate) clones: Option<u32>,
    pub(crate) filename: Option<String>,
    pub(crate) filename_format: Option<String>,
    pub(crate) directory: Option<String>,
    /// The line and the column of the last option that names files.
    pub(crate) named_at: Option<(usize, usize)>,
    pub(crate) size: Option<u64>,
    pub(crate) filesize: Option<u64>,
    pub(crate) nrfiles: Option<u32>,
    pub(crate) io_size: Option<u64>,
    pub(crate) loops: Option<u64>,
    pub(crate) runtime_us: Option<u64>,
    pub(crate) time_based: bool,
    pub(crate) ramp_us: u64,
    pub(crate) rate_iops: [Option<u64>; 2],
    pub(crate) rate_bytes: [Option<u64>; 2],
    pub(crate) no_random_map: bool,
    pub(crate) group_reporting: bool,
    pub(crate) new_group: bool,
    pub(crate) stonewall: bool,
    pub(crate) direct: bool,
    pub(crate) syncs: bool,
    pub(crate) base: Base,
    /// The options as written, in the order of the file.
    pub(crate) written: Vec<(String, String)>,
}

impl Settings {
    /// Applies one line of a section.
    pub(crate) fn apply(&mut self, entry: &Entry, notes: &mut Vec<Note>) -> Result<()> {
        let done = self.apply_named(entry, notes);
        if ["filename", "filename_format", "directory"].contains(&entry.name.as_str()) {
            self.named_at = Some((entry.line, entry.column));
        }
        done.map_err(|fault| fault.at(entry.line, entry.column))
    }

    fn apply_named(&mut self, entry: &Entry, notes: &mut Vec<Note>) -> std::result::Result<(), Fault> {
        let (name, kind) = options::find(&entry.name)?;
        let value = entry.value.as_deref();
        let mut note = |text: &str| {
            notes.push(Note { line: entry.line, option: entry.name.clone(), text: text.to_owned() });
        };
        match kind {
            Kind::Unsupported => {
                let cause = format!("{name} is not supported: it changes the load, the files or the results");
                return Err(Fault::new(cause, "the file without that line, or fio itself"));
            }
            Kind::NothingIf(allowed, why) if value.is_none_or(|value| is_same(value, allowed)) => note(why),
            Kind::NothingIf(allowed, why) => {
                let cause = format!("{name}={} is not supported: {why}", value.unwrap_or_default());
                return Err(Fault::new(cause, format!("{name}={allowed}, or the file without that line")));
            }
            Kind::Nothing(why) => {
                self.keep_for_directories(name, value)?;
                note(why);
            }
            Kind::Effect => {
                self.set(name, value)
                    .map_err(|fault| Fault { cause: format!("{name}: {}", fault.cause), ..fault })?;
                if name == "verify" && value != Some("0") {
                    note("the stamps of all data are checked, and at the end every byte");
                }
                let shown = value.unwrap_or_default().to_ascii_lowercase();
                if self.base == Base::Binary && value_is_size(name) && shown.contains(['i']) {
                    note("with kb_base=1024, KiB is 1000 bytes and k is 1024, as in fio");
                }
            }
        }
        self.written.push((entry.name.clone(), entry.value.clone().unwrap_or_default()));
        Ok(())
    }

    /// The number of files of all clones.
    pub(crate) fn files(&self) -> u64 {
        let each = match &self.filename {
            Some(list) => split_list(list).len() as u64,
            None => u64::from(self.nrfiles.unwrap_or(1)),
        };
        each.saturating_mul(u64::from(self.clones.unwrap_or(1)))
    }

    /// Options that change nothing over the client library, but in a directory of a kernel's mount.
    fn keep_for_directories(&mut self, name: &str, value: Option<&str>) -> std::result::Result<(), Fault> {
        match name {
            "direct" => self.direct = units::switch(value)?,
            "buffered" => self.direct = !units::switch(value)?,
            "sync" | "fsync" | "fdatasync" | "end_fsync" | "fsync_on_close" => {
                self.syncs |= !matches!(value, Some("0" | "none"));
            }
            _ => {}
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> std::result::Result<(), Fault> {
        match name {
            "time_based" => self.time_based = units::switch(value)?,
            "norandommap" => self.no_random_map = units::switch(value)?,
            "group_reporting" => self.group_reporting = units::switch(value)?,
            "new_group" => self.new_group = units::switch(value)?,
            "stonewall" => self.stonewall = units::switch(value)?,
            _ => {
                let value = value.filter(|value| !value.is_empty());
                let value = value.ok_or_else(|| Fault::new("no value", format!("{name}=VALUE")))?;
                self.set_value(name, value)?;
            }
        }
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: &str) -> std::result::Result<(), Fault> {
        let base = self.base;
        match name {
            "name" => self.name = Some(name_of_file(unquoted(value))?.to_owned()),
            "filename_format" => self.filename_format = Some(name_of_file(unquoted(value))?.to_owned()),
            "filename" => self.filename = Some(names_of_files(unquoted(value))?.to_owned()),
            "directory" => self.directory = Some(names_of_files(unquoted(value))?.to_owned()),
            "rw" => (self.access, self.random) = access(value)?,
            "bs" => self.blocks = pair(value, |one| Blocks::same(units::size(one, base)?))?,
            "bsrange" => self.blocks = pair(value, |one| range(one, base))?,
            "rwmixread" => self.read_percent = Some(percent(value)?),
            "rwmixwrite" => self.read_percent = Some(100 - percent(value)?),
            "iodepth" => self.depth = Some(count(value, base)?),
            "ioengine" => self.engine = Some(engine(value)?),
            "numjobs" => self.clones = Some(count(value, base)?),
            "nrfiles" => self.nrfiles = Some(count(value, base)?),
            "size" => self.size = Some(at_least_one(units::size(value, base)?)?),
            "filesize" => self.filesize = Some(at_least_one(units::size(value, base)?)?),
            "io_size" => self.io_size = Some(at_least_one(units::size(value, base)?)?),
            "loops" => self.loops = Some(at_least_one(units::number(value, base)?)?),
            "runtime" => self.runtime_us = Some(units::time_us(value)?).filter(|us| *us > 0),
            "ramp_time" => self.ramp_us = units::time_us(value)?,
            "rate_iops" => self.rate_iops = pair(value, |one| units::number(one, base))?.map(nonzero),
            "rate" => self.rate_bytes = pair(value, |one| units::size(one, base))?.map(nonzero),
            "kb_base" => {
                self.base = match value {
                    "1024" => Base::Binary,
                    "1000" => Base::Decimal,
                    _ => return Err(Fault::new(format!("`{value}` is no base"), "1024 or 1000")),
                }
            }
            // `verify`: the data are always checked.
            _ => {}
        }
        Ok(())
    }
}

/// Refuses a name that no system takes.
pub(crate) fn name_of_file(name: &str) -> std::result::Result<&str, Fault> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(name);
    }
    let cause = format!("a name of {} bytes; no system takes more than {NAME_BYTES_MAX}", name.len());
    Err(Fault::new(cause, "a shorter name"))
}

/// Refuses a list with such a name.
fn names_of_files(list: &str) -> std::result::Result<&str, Fault> {
    split_list(list).iter().try_for_each(|name| name_of_file(name).map(drop))?;
    Ok(list)
}

fn nonzero(value: Option<u64>) -> Option<u64> {
    value.filter(|value| *value > 0)
}

fn at_least_one(value: u64) -> std::result::Result<u64, Fault> {
    if value == 0 { Err(Fault::new("0 is too small", "at least 1")) } else { Ok(value) }
}

fn value_is_size(name: &str) -> bool {
    ["bs", "bsrange", "size", "filesize", "io_size", "rate"].contains(&name)
}

/// Whether a value is the allowed one; times and numbers may have a unit.
fn is_same(value: &str, allowed: &str) -> bool {
    value == allowed || (allowed == "0" && units::time_us(value) == Ok(0))
}

fn unquoted(value: &str) -> &str {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    inner.unwrap_or(value)
}

/// Values for reads and writes: one for both, or two with a comma between. An empty one is absent.
fn pair<T: Copy>(
    value: &str,
    parse: impl Fn(&str) -> std::result::Result<T, Fault>,
) -> std::result::Result<[Option<T>; 2], Fault> {
    let mut parts = value.split(',').map(str::trim);
    let mut next = || match parts.next() {
        None | Some("") => Ok(None),
        Some(part) => parse(part).map(Some),
    };
    let (read, write, _trim) = (next()?, next()?, next()?);
    if parts.next().is_some() {
        return Err(Fault::new("more than three values", "one for reads and one for writes, as in 4k,8k"));
    }
    // A single value is for writes too.
    let single = !value.contains(',');
    Ok([read, if single { read } else { write }])
}

fn range(text: &str, base: Base) -> std::result::Result<Blocks, Fault> {
    let (low, high) = text.split_once(['-', ':']).unwrap_or((text, text));
    let (min, max) = (units::size(low.trim(), base)?, units::size(high.trim(), base)?);
    Blocks::range(min, max)
}

fn access(value: &str) -> std::result::Result<(Access, bool), Fault> {
    Ok(match value {
        "read" => (Access::Read, false),
        "write" => (Access::Write, false),
        "rw" | "readwrite" => (Access::Mixed, false),
        "randread" => (Access::Read, true),
        "randwrite" => (Access::Write, true),
        "randrw" => (Access::Mixed, true),
        _ => {
            let cause = format!("`{value}` is not supported");
            return Err(Fault::new(cause, "read, write, rw, randread, randwrite or randrw"));
        }
    })
}

fn percent(value: &str) -> std::result::Result<u8, Fault> {
    let number = value.parse::<u8>().ok().filter(|percent| *percent <= 100);
    number.ok_or_else(|| Fault::new(format!("`{value}` is no percentage"), "0 to 100"))
}

fn count(value: &str, base: Base) -> std::result::Result<u32, Fault> {
    let number = units::number(value, base)?;
    let number = Some(number).filter(|number| (1..=COUNT_MAX).contains(number));
    number
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| Fault::new(format!("`{value}` is out of range"), format!("1 to {COUNT_MAX}")))
}

fn engine(value: &str) -> std::result::Result<String, Fault> {
    if options::ASYNCHRONOUS.contains(&value) || options::SYNCHRONOUS.contains(&value) {
        return Ok(value.to_owned());
    }
    let cause = format!("the engine {value} is not supported");
    let advice = format!("{} or {}", options::ASYNCHRONOUS.join(", "), options::SYNCHRONOUS.join(", "));
    Err(Fault::new(cause, advice))
}
