//! Arguments as `mount.trunkline`, which mount(8) calls with `SPEC DIR [-sfnv] [-N NS] [-o OPTIONS]
//! [-t TYPE]`.

use super::MountArgs;
use crate::error::{BAD_USAGE, INTERRUPTED};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the program was called for.
#[derive(Debug, PartialEq, Eq)]
pub enum Call {
    /// To run with these arguments, which include the program's name.
    Ours(Vec<OsString>),
    /// To do nothing (`-f`, a dry run).
    Nothing,
}

/// Whether this process was called as a mount helper.
pub fn is_helper() -> bool {
    std::env::args_os().next().is_some_and(|name| names_a_helper(&name))
}

fn names_a_helper(program: &OsStr) -> bool {
    Path::new(program).file_name().unwrap_or_default().as_bytes().starts_with(b"mount.")
}

/// The exit status: as of mount(8) if that called, otherwise unchanged.
pub fn status(own: u8) -> u8 {
    if is_helper() { for_mount_8(own) } else { own }
}

/// The exit statuses of mount(8): 1 incorrect invocation, 8 user interrupt, 32 mount failure.
const fn for_mount_8(own: u8) -> u8 {
    match own {
        0 => 0,
        BAD_USAGE => 1,
        INTERRUPTED.. => 8,
        _ => 32,
    }
}

/// Converts the arguments of a mount helper to those of `trunkline mount`.
pub fn arguments(args: Vec<OsString>) -> Call {
    if !args.first().is_some_and(|name| names_a_helper(name)) {
        return Call::Ours(args);
    }
    let mut ours: Vec<OsString> = vec!["trunkline".into(), "mount".into()];
    let mut rest = args.into_iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.as_bytes() {
            b"-o" => {
                ours.push(arg);
                ours.extend(rest.next());
            }
            // The type is known, and mount(8) enters namespaces itself.
            b"-t" | b"-N" => {
                rest.next();
            }
            [b'-', flags @ ..] if !flags.is_empty() && flags.iter().all(|flag| b"sfnv".contains(flag)) => {
                if flags.contains(&b'f') {
                    return Call::Nothing;
                }
                if flags.contains(&b'v') {
                    ours.push("-v".into());
                }
            }
            _ => ours.push(arg),
        }
    }
    Call::Ours(ours)
}

/// The arguments for the process in the background, whatever the name of this one.
pub fn own_arguments(args: &MountArgs, given: Vec<OsString>) -> Vec<OsString> {
    let directory = std::path::absolute(&args.directory).unwrap_or_else(|_| args.directory.clone());
    // ps(1) and pgrep(1) show `trunkline mount SERVER:/EXPORT DIR` first.
    let mut own: Vec<OsString> = vec!["mount".into(), args.target.clone().into(), directory.into()];
    // Options for log messages may be anywhere on the command line.
    let mut given = given.into_iter();
    while let Some(arg) = given.next() {
        if is_of_logging(&arg) {
            own.push(arg);
        } else if LOGGING.iter().any(|name| arg == *name) {
            own.push(arg);
            own.extend(given.next());
        }
    }
    if let Some(file) = &args.log_file {
        own.push("--log-file".into());
        own.push(std::path::absolute(file).unwrap_or_else(|_| file.clone()).into());
    }
    own.extend(["-o".into(), args.options().into()]);
    own
}

/// Options for log messages that have a value.
const LOGGING: [&str; 2] = ["--log-level", "--log-format"];

/// Whether an argument is an option for log messages without a value, or with its value attached.
fn is_of_logging(arg: &OsStr) -> bool {
    let bytes = arg.as_bytes();
    let with_value =
        |name: &&str| bytes.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    let short = bytes.len() > 1 && bytes.first() == Some(&b'-') && bytes.iter().skip(1).all(|b| *b == b'v');
    short || bytes == b"--verbose" || LOGGING.iter().any(with_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(args: &str) -> Call {
        arguments(args.split(' ').map(OsString::from).collect())
    }

    fn ours(args: &str) -> Call {
        Call::Ours(args.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn a_mount_helper_ends_with_the_statuses_of_mount_8() {
        assert_eq!([0, 1, 2, 128 + 2, 128 + 15].map(for_mount_8), [0, 32, 1, 8, 8]);
        assert_eq!([0, 1, 2, 130].map(status), [0, 1, 2, 130], "this program is no mount helper");
    }

    fn own(given: &str) -> String {
        let args = MountArgs {
            target: "nas:/data".to_owned(),
            directory: "/mnt".into(),
            options: vec!["ro".to_owned(), "nolock".to_owned()],
            foreground: false,
            log_file: Some("/var/log/mnt".into()),
        };
        let own = own_arguments(&args, given.split(' ').map(OsString::from).collect());
        own.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_process_in_the_background_logs_as_it_was_asked_for() {
        let (first, rest) = ("mount nas:/data /mnt", "--log-file /var/log/mnt -o ro,nolock");
        assert_eq!(own("mount nas:/data /mnt"), format!("{first} {rest}"));
        for logging in [
            "--log-format json",
            "--log-format=json --log-level=debug",
            "-vv --log-format json",
            "--verbose",
            "--log-level trace --log-format text",
        ] {
            assert_eq!(own(&format!("{logging} mount nas:/data /mnt")), format!("{first} {logging} {rest}"));
            assert_eq!(own(&format!("mount nas:/data {logging} /mnt")), format!("{first} {logging} {rest}"));
        }
    }

    #[test]
    fn a_mount_helper_takes_the_arguments_of_mount_8() {
        for name in ["mount.trunkline", "/sbin/mount.trunkline"] {
            assert_eq!(
                call(&format!("{name} nas:/data /mnt -n -o rw,nconnect=8,_netdev -t trunkline")),
                ours("trunkline mount nas:/data /mnt -o rw,nconnect=8,_netdev")
            );
            assert_eq!(
                call(&format!("{name} nas:/data /mnt -sv")),
                ours("trunkline mount nas:/data /mnt -v")
            );
            assert_eq!(call(&format!("{name} nas:/data /mnt -f -o rw")), Call::Nothing);
        }
        assert_eq!(call("trunkline mount -f a:/b /c"), ours("trunkline mount -f a:/b /c"));
        assert_eq!(call("/opt/mount/trunkline ls"), ours("/opt/mount/trunkline ls"));
    }
}
