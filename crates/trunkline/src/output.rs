//! Standard output: its properties, and writing to it so that a closed reader is not an error.

use crate::error::Error;
use ::copy::Stream;
use rustix::termios::tcgetwinsize;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

/// The width of a file, and of a terminal whose width is unknown.
const COLUMNS: usize = 80;

/// The file name that means standard output.
pub const STDOUT: &str = "-";

/// Writes text to standard output without buffering.
pub fn print(text: &str) -> Result<(), Error> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to standard output, unbuffered and unchanged.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Error> {
    // Not by `io::stdout`, which searches for line ends in what may be gigabytes.
    let mut left = bytes;
    while !left.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), left) {
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            // Another process that shares standard output may have made it non-blocking.
            Err(rustix::io::Errno::AGAIN) => wait_for_stdout(),
            Err(error) => return Err(Error::Print(error.into())),
        }
    }
    Ok(())
}

fn wait_for_stdout() {
    use rustix::event::{PollFd, PollFlags, poll};
    let stdout = rustix::stdio::stdout();
    // If waiting fails, the next write reports the error.
    let _ = poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None);
}

/// The stream that a file name stands for, if it is not a regular file: `-`, a pipe, a device, a
/// descriptor.
pub fn stream(file: &Path) -> Option<Stream> {
    if file.as_os_str() == STDOUT { Some(Stream::standard_output()) } else { Stream::named(file) }
}

/// Whether a file name stands for standard output.
pub fn is_stdout(file: &Path) -> bool {
    stream(file).is_some_and(|stream| stream.is_standard_output())
}

/// Whether standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Waits until the terminal of standard output is closed. A program that is not of the terminal's
/// session is not told by a signal.
pub fn wait_for_hangup() {
    while !has_hung_up(None) {}
}

/// Whether the terminal of standard output is closed now.
pub fn is_hung_up() -> bool {
    has_hung_up(Some(&rustix::event::Timespec::default()))
}

fn has_hung_up(timeout: Option<&rustix::event::Timespec>) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let stdout = rustix::stdio::stdout();
    // Without a wish, only a hangup or an error ends the wait.
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    !matches!(poll(&mut fds, timeout), Ok(0) | Err(rustix::io::Errno::INTR))
}

/// Checks that a file can be written, before the work for it begins, and creates its directory. A
/// pipe is not opened, because its reader would see an end of file.
pub fn check_writable(file: &Path) -> Result<(), Error> {
    let wrap = |cause| Error::Write { file: file.display().to_string(), cause };
    if stream(file).is_some() {
        return Ok(());
    }
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(wrap)?;
    }
    let is_new = !file.exists();
    OpenOptions::new().append(true).create(true).open(file).map_err(wrap)?;
    if is_new { fs::remove_file(file).map_err(wrap) } else { Ok(()) }
}

/// Refuses to overwrite a file that exists, unless it is a pipe or a device. `force` overwrites it.
pub fn spare(file: &Path, force: bool) -> Result<(), Error> {
    if force || stream(file).is_some() || file.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::Refused {
        sentence: format!("cannot write {}", file.display()),
        cause: "it exists".to_owned(),
        advice: "another name, or --force        to overwrite it".to_owned(),
    })
}

/// The same as [`spare`] for a page whose name was not given: a page that an earlier report wrote
/// there is overwritten too.
pub fn spare_page(page: &Path, force: bool) -> Result<(), Error> {
    // The mark is within the first bytes, and a foreign file may be large or no text.
    const HEAD_BYTES: u64 = 4096;
    let mut head = Vec::new();
    let is_regular = page.symlink_metadata().is_ok_and(|found| found.is_file());
    let opened = fs::File::open(page).ok().filter(|_| is_regular);
    let read = opened.is_some_and(|opened| opened.take(HEAD_BYTES).read_to_end(&mut head).is_ok());
    let is_ours = read && String::from_utf8_lossy(&head).contains(::report::PAGE_MARK);
    spare(page, force || is_ours)
}

/// Writes text to a file or to standard output; reports the path of a file. A file appears, or
/// replaces an older one, only once it is complete.
pub fn write(file: &Path, text: &str) -> Result<(), Error> {
    let wrap = |cause| Error::Write { file: file.display().to_string(), cause };
    match stream(file) {
        Some(stream) if stream.is_standard_output() => return print(text),
        Some(stream) => stream.write_all(text.as_bytes()).map_err(|error| wrap(io_error(error)))?,
        None => replace(file, text).map_err(wrap)?,
    }
    print_to_stderr(&format!("wrote {}\n", file.display()));
    Ok(())
}

/// Writes text to a file that appears only once it is complete, and creates its directory.
pub fn write_new(file: &Path, text: &str) -> Result<(), Error> {
    let wrap = |cause| Error::Write { file: file.display().to_string(), cause };
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(wrap)?;
    }
    replace(file, text).map_err(wrap)
}

/// Replaces the content of a file at once. What a symbolic link leads to is replaced, not the link.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = file.with_file_name(name);
    let written = match write_part(&part, &file, text) {
        Ok(()) => fs::rename(&part, &file),
        // The file may be written, but nothing may be made beside it.
        Err(_) if !part.exists() && file.exists() => return fs::write(&file, text),
        failed => failed,
    };
    if written.is_err() {
        // What remains is named as a part, and the cause is reported in any case.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Writes the part with the permissions of the file that it replaces.
fn write_part(part: &Path, file: &Path, text: &str) -> io::Result<()> {
    let mut written = OpenOptions::new().write(true).create(true).truncate(true).open(part)?;
    if let Ok(before) = fs::metadata(file) {
        written.set_permissions(before.permissions())?;
    }
    written.write_all(text.as_bytes())
}

fn io_error(error: ::copy::Error) -> io::Error {
    match error {
        ::copy::Error::Local { source, .. } => source,
        ::copy::Error::ReaderLeft(_) => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::other(other),
    }
}

/// Writes text to standard error. An error cannot be reported anywhere.
pub fn print_to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes text to standard error without the lock that a thread may hold whose terminal takes
/// nothing.
pub fn print_to_stderr_unlocked(text: &str) {
    // If it cannot be written, there is no other way to report it.
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
}

/// The number of columns of standard output.
pub fn stdout_columns() -> usize {
    let of_terminal = || {
        let stdout = io::stdout();
        let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    };
    let asked_for = || std::env::var("COLUMNS").ok()?.parse().ok();
    asked_for().or_else(of_terminal).unwrap_or(COLUMNS)
}

/// Whether to use colours on standard output.
pub fn stdout_has_colour() -> bool {
    io::stdout().is_terminal() && colour_is_wanted()
}

/// Whether to use colours on standard error.
pub fn stderr_has_colour() -> bool {
    io::stderr().is_terminal() && colour_is_wanted()
}

/// <https://no-color.org>: no colours if the variable is set and not empty, or on a dumb terminal.
fn colour_is_wanted() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Where nothing can be made, not even by root.
    #[test]
    fn a_file_in_a_directory_that_takes_no_others_is_written_where_it_is() {
        let name = Path::new("/proc/thread-self/comm");
        write(name, "tl-written").unwrap();
        assert_eq!(fs::read_to_string(name).unwrap(), "tl-written\n");
    }

    #[test]
    fn a_file_is_replaced_at_once_behind_its_link_and_with_its_permissions() {
        let directory = testkit::temp_dir("output");
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut reader = fs::File::open(&file).unwrap();
        write(&link, "after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "before", "who has opened it reads a whole file");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "no part is left");
    }
}
