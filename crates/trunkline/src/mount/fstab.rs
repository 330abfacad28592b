//! Arguments as `mount.trunkline`, which mount(8) calls with `SPEC DIR [-sfnv] [-N NS] [-o OPTIONS]
//! [-t TYPE]`, and as `umount.trunkline`, with `DIR [-flnrv] [-N NS] [-t TYPE]`.

use super::MountArgs;
use crate::error::{BAD_USAGE, INTERRUPTED};
use crate::umount::UmountArgs;
use clap::{Arg, ArgAction, Args, Command};
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

/// A program that mount(8) or umount(8) calls for a type of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// `mount.trunkline`.
    Mount,
    /// `umount.trunkline`.
    Umount,
}

impl Helper {
    fn of(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_name().unwrap_or_default().as_bytes();
        match name {
            _ if name.starts_with(b"mount.") => Some(Self::Mount),
            _ if name.starts_with(b"umount.") => Some(Self::Umount),
            _ => None,
        }
    }

    /// The command that does the work.
    const fn command(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Umount => "umount",
        }
    }

    /// Each option with a letter and no value, and its meaning here.
    const fn flags(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Mount => &[
                ("f", "Do nothing; a dry run."),
                ("n", "No effect: /etc/mtab is never written."),
                ("s", "No effect: an unknown mount option is always an error."),
                ("v", "Show more log messages."),
            ],
            Self::Umount => &[
                ("f", "No effect: calls under way are not aborted."),
                ("l", "Unmount even if the directory is in use, as `trunkline umount --lazy`."),
                ("n", "No effect: /etc/mtab is never written."),
                ("r", "No effect: the mount is never changed to read-only."),
                ("v", "Show more log messages."),
            ],
        }
    }

    /// The definition of the arguments, for the man page. [`arguments`] reads them.
    pub fn definition(self) -> Command {
        let (name, usage) = match self {
            Self::Mount => {
                ("mount.trunkline", "SERVER:/EXPORT DIR [-fnsv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]")
            }
            Self::Umount => ("umount.trunkline", "DIR [-flnrv] [-N NAMESPACE] [-t TYPE]"),
        };
        let command = Command::new(name).override_usage(format!("{name} {usage}")).disable_help_flag(true);
        let command = match self {
            Self::Mount => MountArgs::augment_args(command)
                .mut_arg("foreground", |arg| arg.hide(true).short(None))
                .mut_arg("options", |arg| arg.long(None)),
            Self::Umount => {
                UmountArgs::augment_args(command).mut_arg("lazy", |arg| arg.hide(true).short(None))
            }
        };
        let option = |letter: &'static str, help| Arg::new(letter).short(letter.chars().next()).help(help);
        let flag = |&(letter, help)| option(letter, help).action(ArgAction::SetTrue);
        command.args(self.flags().iter().map(flag)).args([
            option("N", "No effect: the caller has entered the namespace.").value_name("NAMESPACE"),
            option("t", "No effect: the type is known.").value_name("TYPE"),
        ])
    }
}

fn helper() -> Option<Helper> {
    std::env::args_os().next().and_then(|name| Helper::of(&name))
}

/// Whether this process was called as a helper of mount(8) or umount(8).
pub fn is_helper() -> bool {
    helper().is_some()
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

/// Converts the arguments of a helper to those of `trunkline mount` or `trunkline umount`.
pub fn arguments(args: Vec<OsString>) -> Call {
    let Some(helper) = args.first().and_then(|name| Helper::of(name)) else { return Call::Ours(args) };
    let is_flag = |byte: &u8| helper.flags().iter().any(|(letter, _)| letter.as_bytes() == [*byte]);
    let mut ours: Vec<OsString> = vec!["trunkline".into(), helper.command().into()];
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
            [b'-', flags @ ..] if !flags.is_empty() && flags.iter().all(is_flag) => {
                if helper == Helper::Mount && flags.contains(&b'f') {
                    return Call::Nothing;
                }
                if flags.contains(&b'l') {
                    ours.push("-l".into());
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
    own.extend(args.metrics.arguments());
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
    use crate::live::MetricsArgs;

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
            metrics: MetricsArgs::default(),
        };
        let own = own_arguments(&args, given.split(' ').map(OsString::from).collect());
        own.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_process_in_the_background_answers_on_the_same_metrics_address() {
        use clap::Parser;
        #[derive(Parser)]
        struct Program {
            #[command(flatten)]
            args: MountArgs,
        }
        let given = [
            "x",
            "a:/b",
            "/c",
            "--metrics",
            "127.0.0.1:9100",
            "--metrics-token",
            "/t",
            "--metrics-file",
            "/f",
        ];
        let Program { args } = Program::parse_from(given);
        let own = own_arguments(&args, Vec::new());
        let again = Program::parse_from([OsString::from("x")].into_iter().chain(own.into_iter().skip(1)));
        assert_eq!(again.args.metrics.arguments(), args.metrics.arguments());
        assert_eq!(args.metrics.arguments().len(), 6);
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

    #[test]
    fn an_umount_helper_takes_the_arguments_of_umount_8() {
        for name in ["umount.trunkline", "/sbin/umount.trunkline"] {
            assert_eq!(call(&format!("{name} /mnt")), ours("trunkline umount /mnt"));
            assert_eq!(
                call(&format!("{name} /mnt -n -l -f -v -r -N 7 -t fuse.trunkline")),
                ours("trunkline umount /mnt -l -v")
            );
            assert_eq!(call(&format!("{name} -flnrv /mnt")), ours("trunkline umount -l -v /mnt"));
        }
    }

    #[test]
    fn the_definitions_of_the_helpers_have_what_they_take() {
        for helper in [Helper::Mount, Helper::Umount] {
            let mut definition = helper.definition();
            definition.build();
            definition.clone().debug_assert();
            let shown = definition.get_arguments().filter(|argument| !argument.is_hide_set());
            let shorts: String = shown.filter_map(Arg::get_short).collect();
            for (letter, _) in helper.flags() {
                assert!(shorts.contains(letter), "{helper:?} -{letter}");
            }
            let program = format!("/sbin/{}.trunkline", helper.command());
            let taken = arguments([&program, "/mnt", "-N", "1", "-t", "x"].map(OsString::from).to_vec());
            assert_eq!(taken, ours(&format!("trunkline {} /mnt", helper.command())));
        }
    }
}
