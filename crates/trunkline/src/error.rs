//! Turns errors into messages: a sentence, its causes, and what to do. This is the only place that
//! does so.
//!
//! ```text
//! error: cannot mount 10.0.0.1:/data
//!   cause: 10.0.0.1:2049 does not accept connections
//!   cause: Connection refused (os error 111)
//!   try:   trunkline serve on that host, or another port=
//! ```
//!
//! Each error of each crate has its `try:` line here, by exhaustive match where the crate allows
//! it. The server's errors have theirs in their own text.

mod fuse;

use crate::names;
use crate::output;
use client::{Address, MountError, RdmaError, VerbsError};
use std::io;
use std::path::Path;

/// The exit status of a command that failed.
const FAILED: u8 = 1;
/// The exit status of an invalid command line, the same as clap's.
pub const BAD_USAGE: u8 = 2;
/// The exit status of a command that a signal interrupted is this plus the signal's number, as in
/// shells.
pub const INTERRUPTED: u8 = 128;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is invalid in a way that clap cannot detect.
    #[error("{sentence}\n  cause: {cause}\n  try:   {advice}")]
    Usage {
        /// The error.
        sentence: String,
        /// The cause.
        cause: String,
        /// What to do.
        advice: String,
    },
    /// The server cannot be started.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// The server cannot be started, in the terms of the command line: a sentence, a cause and what
    /// to do.
    #[error("{0}")]
    Serve(String),
    /// The server's configuration is invalid.
    #[error(transparent)]
    Config(#[from] server::ConfigError),
    /// A mount failed.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// An object on a server cannot be used.
    #[error("{sentence}")]
    Remote {
        /// The error.
        sentence: String,
        /// The cause.
        #[source]
        cause: Box<client::Error>,
    },
    /// Nothing was copied, or the copy could not be started.
    #[error("{sentence}")]
    Copy {
        /// The error.
        sentence: String,
        /// The cause.
        #[source]
        cause: Box<copy::Error>,
    },
    /// Parts of a tree were not copied.
    #[error("{sentence}{causes}\n  try:   {advice}")]
    CopiedInPart {
        /// How much was copied.
        sentence: String,
        /// The causes, each with its lead.
        causes: String,
        /// What to do.
        advice: String,
    },
    /// A signal ended the command early.
    #[error("interrupted\n  cause: {cause}\n  try:   {advice}")]
    Interrupted {
        /// What has been done so far.
        cause: String,
        /// How to continue.
        advice: String,
        /// The signal's number.
        signal: u8,
    },
    /// A signal ended an experiment early.
    #[error("ended by a signal; {remains}; try: {advice}")]
    BenchInterrupted {
        /// What remains on the server.
        remains: String,
        /// How to continue.
        advice: String,
        /// The signal's number.
        signal: u8,
    },
    /// A directory cannot be mounted on, or unmounted.
    #[error(transparent)]
    Mount(#[from] mount::Error),
    /// The threads of a walk cannot be started.
    #[error("cannot start a thread")]
    Threads(#[source] io::Error),
    /// The command itself refused: a directory is not ours to unmount, a place cannot be removed, a
    /// tree contains itself.
    #[error("{sentence}\n  cause: {cause}\n  try:   {advice}")]
    Refused {
        /// The error.
        sentence: String,
        /// The cause.
        cause: String,
        /// What to do.
        advice: String,
    },
    /// The mount's process in the background ended before it mounted anything; it has reported the
    /// cause.
    #[error("cannot start the mount in the background")]
    Background(#[source] io::Error),
    /// An experiment failed.
    #[error(transparent)]
    Bench(#[from] bench::Error),
    /// A lab failed.
    #[error(transparent)]
    Lab(#[from] lab::net::Error),
    /// The request cannot be planned.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// A file for a plan is invalid.
    #[error("cannot use {file}")]
    PlanFile {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        cause: plan::Error,
    },
    /// A file for a plan is not text.
    #[error(
        "cannot use {file}\n  cause: {cause}\n  try:   trunkline plan --help        to see which files it reads"
    )]
    NoPlanText {
        /// The file.
        file: String,
        /// The cause.
        cause: String,
    },
    /// A site file is invalid.
    #[error("cannot use {file}")]
    Site {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        cause: Box<runbook::Error>,
    },
    /// A lab of virtual machines failed.
    #[error(transparent)]
    Vm(#[from] lab::vm::Error),
    /// A file is not a record that this build can read.
    #[error("cannot use {file} as a record")]
    Record {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        cause: record::Error,
    },
    /// A file of fio's results cannot be read.
    #[error("cannot use {file} as results of fio")]
    FioResults {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        cause: fio::results::ReadError,
    },
    /// A file that should be a record is not text.
    #[error("cannot use {file} as a record\n  cause: {cause}\n  try:   {RECORD_ADVICE}")]
    NoText {
        /// The file.
        file: String,
        /// The cause.
        cause: String,
    },
    /// A file cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {file}")]
    Write {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write the result")]
    Print(#[source] io::Error),
    /// Signals cannot be caught.
    #[error("cannot catch signals")]
    Signals(#[source] io::Error),
}

const RECORD_ADVICE: &str = "trunkline bench        to make a record; it says where it wrote it";

impl Error {
    /// Prints the error and returns the exit status. It is not an error if the reader of standard
    /// output has closed it.
    pub fn report_to_user(&self) -> u8 {
        match self {
            Self::Print(cause) if cause.kind() == io::ErrorKind::BrokenPipe => return 0,
            _ => output::print_to_stderr(&self.render()),
        }
        match self {
            Self::Usage { .. } => BAD_USAGE,
            Self::Interrupted { signal, .. } | Self::BenchInterrupted { signal, .. } => {
                INTERRUPTED.saturating_add(*signal)
            }
            _ => FAILED,
        }
    }

    /// The error and its causes in one line, without the advice.
    pub fn one_line(&self) -> String {
        let message = self.chain();
        let parts: Vec<_> =
            std::iter::once(&message.sentence).chain(&message.causes).map(|it| printable(it)).collect();
        parts.join(": ")
    }

    /// The complete message.
    fn render(&self) -> String {
        let mut message = self.chain();
        if message.advice.is_none() {
            message.advice = self.advice();
        }
        message.render()
    }

    fn chain(&self) -> Message {
        let mut message = Message::default();
        let mut said = String::new();
        let mut next: Option<&dyn std::error::Error> = Some(self);
        while let Some(error) = next {
            let text = error.to_string();
            // Some errors include their source in their own sentence.
            if !said.ends_with(&text) {
                message.add(&text);
            }
            // An error whose text contains causes contains all of them.
            next = if text.contains(CAUSE) { None } else { error.source() };
            said = text;
        }
        message
    }

    /// What to do, if the error's own text does not say so.
    fn advice(&self) -> Option<String> {
        let advice = match self {
            // Their texts contain the advice.
            Self::CopiedInPart { .. } | Self::Interrupted { .. } | Self::Refused { .. } => return None,
            Self::BenchInterrupted { .. } => return None,
            Self::Copy { cause, .. } => return Some(copy_advice(cause)),
            Self::Usage { .. } | Self::NoText { .. } | Self::Config(_) => return None,
            Self::Server(_) | Self::Serve(_) => return None,
            Self::Plan(_) | Self::PlanFile { .. } | Self::NoPlanText { .. } => return None,
            Self::Site { .. } => return None,
            Self::Client(error) => return client_advice(error),
            Self::Remote { cause, .. } => return client_advice(cause),
            Self::Mount(error) => return fuse::advice(error),
            Self::Background(_) => "trunkline mount -f        to mount in the foreground",
            Self::Bench(error) => return bench_advice(error),
            Self::Lab(error) => return lab_advice(error),
            Self::Vm(error) => return vm_advice(error),
            Self::Record { cause, .. } => record_advice(cause),
            Self::FioResults { .. } => {
                "fio --output-format=json+ --output=FILE JOB.fio        and let it end by itself"
            }
            Self::Read { file, cause } => return Some(file_advice(file, cause)),
            Self::Write { file, cause } => return Some(file_advice(file, cause)),
            Self::Print(_) => "another place for the output",
            Self::Signals(_) => "a higher `ulimit -n`",
            Self::Threads(_) => "a higher `ulimit -u`",
        };
        Some(advice.to_owned())
    }
}

/// What to do about a failed part of a copy.
pub fn copy_advice(error: &copy::Error) -> String {
    use copy::Error;
    let advice = match error {
        Error::Remote(error) => return client_advice(error).unwrap_or_else(|| "-v, to see more".to_owned()),
        _ if error.is_full() => "df        to see what is free",
        _ if error.is_not_found() => "ls        with the directory above, to see what is there",
        _ if error.is_not_permitted() => "ls -ld        to see who may use it; or another user",
        Error::Local { .. } => "another place",
        Error::Conflict(_) => "another name, or trunkline cp --help",
        Error::Cycle(_) => "fsck on the server: its directories are damaged, or it lies; or --exclude",
        Error::TooDeep(_) => "a source further down in the tree",
        Error::Changed => "the same again, when nobody writes to it",
        Error::Damaged => "the same again; if it stays, look after memory, disks and network of both ends",
        Error::ReaderLeft(_) => {
            "look at what the program that reads it says; trunkline cat --length        for a part"
        }
        Error::Replaced => "the same again, when the other copy has ended",
        Error::Interrupted => "the same again with --resume",
    };
    advice.to_owned()
}

fn client_advice(error: &client::Error) -> Option<String> {
    use client::Error;
    let advice = match error {
        Error::Status { status, .. } => return status_advice(*status),
        Error::Refused { .. } => "allow this host and user in the export's configuration on the server",
        Error::Declined { .. } => "the same later, or with another file",
        Error::PeerMisbehaved { .. } => "another server, to see whose fault it is; -vv shows the calls",
        Error::TimedOut { .. } => "a longer timeo=, or hard instead of soft",
        Error::Options(_) => "correct the option, or leave it out",
        Error::Target(_) => "SERVER:/EXPORT        as in 10.0.0.1:/data, [fd00::1]:/data, nfs://nas/data",
        Error::Mount { cause, .. } => return Some(mount_advice(cause)),
        Error::Step { cause, .. } => return client_advice(cause),
        Error::Closed => "mount again",
        Error::Io { .. } => "a higher `ulimit -n`, or fewer connections: nconnect=",
        Error::Misuse(_) => "correct what was asked for",
    };
    Some(advice.to_owned())
}

pub(crate) fn status_advice(status: fs::Status) -> Option<String> {
    use fs::Status;
    let advice = match status {
        Status::NotFound | Status::NotDirectory => {
            "trunkline ls        with the directory above, to see what is there"
        }
        // Most servers treat root of a client as nobody.
        Status::Access | Status::NotPermitted if rustix::process::geteuid().is_root() => {
            "another user, or an export without root_squash (trunkline serve --no-root-squash)"
        }
        Status::Access | Status::NotPermitted => {
            "trunkline stat        to see owner and mode; or another user"
        }
        Status::IsDirectory => "a file in that directory, or trunkline ls",
        Status::NoSpace | Status::Quota => "trunkline stat --fs        to see what is free",
        Status::NotEmpty => "trunkline rm -r        to remove everything in it too",
        Status::Exists => "another name; trunkline stat        to see what has this one",
        Status::ReadOnly => "an export that may be written",
        Status::Stale | Status::BadHandle => "the same again, if the server has started anew",
        Status::NameTooLong => "trunkline stat --fs        to see how long names may be",
        Status::Invalid => "a path without a loop of symbolic links",
        Status::Later => "the same again, later",
        _ => return None,
    };
    Some(advice.to_owned())
}

fn mount_advice(cause: &MountError) -> String {
    match cause {
        MountError::NoRdma { cause } => rdma_advice(cause),
        MountError::Rdma { address, cause: cause @ RdmaError::NotListening(_), .. } => format!(
            "echo rdma {} > /proc/fs/nfsd/portlist        as root on a Linux server; {}",
            address.port(),
            rdma_advice(cause)
        ),
        MountError::Rdma { cause, .. } => rdma_advice(cause),
        MountError::Resolve { host, .. } => format!("getent hosts {host}        or an address for the name"),
        MountError::Local(_) => {
            "ip address        to see the interfaces and addresses of this host".to_owned()
        }
        MountError::Connect { source, .. }
            if matches!(
                source.kind(),
                std::io::ErrorKind::AddrInUse | std::io::ErrorKind::PermissionDenied
            ) =>
        {
            "noresvport, where the server lets in who comes from other ports".to_owned()
        }
        MountError::Connect { address, .. } => {
            format!(
                "nc -vz {} {}        to see whether it is reachable; or another port=",
                Address::from(*address),
                address.port()
            )
        }
        MountError::Silent { address, .. } => {
            format!(
                "rpcinfo -n {} -t {} nfs 3        to see whether it is alive",
                address.port(),
                Address::from(*address)
            )
        }
        MountError::Refused { address, .. } => {
            let ip = Address::from(*address);
            format!("the server's exports and whom they allow (showmount -e {ip} where it runs rpcbind)")
        }
        MountError::NotDirectory { .. } => {
            "trunkline ls        to see what it is; only a directory can be mounted".to_owned()
        }
        MountError::NoExport { address, .. } => {
            format!(
                "one of the exports that it has, or what lies below (showmount -e {})",
                Address::from(*address)
            )
        }
        MountError::NoMountProgram { address, .. } => {
            format!("mountport=PORT, which `rpcinfo -p` shows on {} for mountd", Address::from(*address))
        }
        MountError::Protocol { .. } => {
            "another port= or mountport=, where NFS version 3 is served".to_owned()
        }
        MountError::NoVersion4 { .. } => {
            "vers=3        or NFS version 4 switched on at the server".to_owned()
        }
        MountError::NoMinorVersion { .. } => "vers=4        for any minor version; or vers=3".to_owned(),
        MountError::OtherFileSystem { .. } => {
            "remoteports= with addresses of one group: nodes that serve the same exports".to_owned()
        }
        MountError::NoPath(_) => {
            "a server and a network that answer sooner; -v shows each attempt".to_owned()
        }
    }
}

/// How to set up RDMA. Changing to another transport is the user's choice.
fn rdma_advice(cause: &RdmaError) -> String {
    let advice = match cause {
        RdmaError::Verbs(VerbsError::NoDevice) => {
            "rdma link add rxe0 type rxe netdev INTERFACE        as root, for RDMA in software; or proto=tcp"
        }
        RdmaError::Verbs(VerbsError::NoRoute(_)) => {
            "rdma link        to see the devices; localports= with an address of one; or proto=tcp"
        }
        RdmaError::NotListening(_) => "or another port=, or proto=tcp",
        RdmaError::Unreachable(_) => {
            "rdma link        on the server, to see whether it has a device; or proto=tcp"
        }
        RdmaError::DeviceGone => "rdma link        to see the devices; or proto=tcp",
        _ => "dmesg        to see what the device says; or proto=tcp",
    };
    advice.to_owned()
}

fn bench_advice(error: &bench::Error) -> Option<String> {
    use bench::{Error, ExperimentError};
    let advice = match error {
        // The server's error contains its advice.
        Error::Embedded { .. } => return None,
        Error::Experiment { file, cause } => match cause {
            ExperimentError::Read(cause) => return Some(file_advice(file, cause)),
            ExperimentError::Toml(_) | ExperimentError::Value(_) => "correct that line of the file",
        },
        Error::JobFile { cause, .. } => return Some(cause.advice.clone()),
        Error::Refused { advice, .. } => return Some(advice.clone()),
        Error::Target(_) => "the same again with -v; an address of loopback may be in use",
        Error::Volume { cause, .. } => match **cause {
            initiator::Error::Refused { refusal: initiator::Refusal::SecretNeeded, .. } => {
                "the option secret-file=FILE with the secret that the target has for this host"
            }
            initiator::Error::Refused { refusal: initiator::Refusal::NotAuthenticated(_), .. } => {
                "the secrets that the target has for this host, also in hostnqn=NQN; the log of the target says \
                 more"
            }
            initiator::Error::Refused { refusal: initiator::Refusal::NoProof, .. } => {
                "a secret for this host at the target, or no controller-secret-file"
            }
            initiator::Error::Refused { .. } => {
                "--allow at the target for the name of this host, and the NQN that `trunkline block attach \
                 --connect ADDR:PORT` lists"
            }
            initiator::Error::NoNamespace { .. } => "namespace=N with a number that the subsystem has",
            initiator::Error::NotServed { .. } => {
                "the address of a controller that serves it; `trunkline block list` at the target says which does"
            }
            _ => "the address of a controller: `trunkline block attach --connect ADDR:PORT` lists them",
        },
        Error::NoRoom { .. } => {
            "--shrink SIZE        for files of job files that fit into that; or a smaller `file` of each workload"
        }
        Error::Directory { path, cause, .. } => return Some(directory_advice(path, cause)),
        Error::Route { cause, .. } | Error::Prepare(cause) => return client_advice(cause),
        Error::Run { .. } if error.is_without_room() => {
            "df        there, and room for it: snapshots, thin volumes and file systems that copy on write need \
             room for what is overwritten, too; or smaller files"
        }
        Error::Run { .. } => "the same again with -v, to see what the server and the paths do",
        Error::Calibrate(cause) => match **cause {
            bench::limit::Error::Stalled { .. } | bench::limit::Error::Unready { .. } => {
                "the same when this machine has less to do, with fewer connections, or with smaller blocks"
            }
            _ => "a higher `ulimit -n`, or fewer connections",
        },
        Error::CalibrateRdma(_) => "`rdma link`, whether the device is still active; a higher `ulimit -l`",
        Error::Stopped => "the same again",
        Error::StoppedWithFiles { .. } => "trunkline rm -r        with this directory of the export",
        Error::Write { file, cause } => return Some(file_advice(file, cause)),
    };
    Some(advice.to_owned())
}

/// What to do about a directory that cannot be measured.
fn directory_advice(path: &str, cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("mount        to see how {path} is mounted; it needs `rw`")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            // The file is removed by now.
            let left = Path::new(path).ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
            format!("df {}        or quota; or smaller files", left.display())
        }
        io::ErrorKind::DirectoryNotEmpty => {
            format!("ls -lA {path}        to see what somebody else has put there")
        }
        io::ErrorKind::NotADirectory => "a directory, or EXPERIMENT.toml, or JOB.fio".to_owned(),
        io::ErrorKind::StaleNetworkFileHandle => {
            format!("ls {path}        to see whether the server still has it")
        }
        io::ErrorKind::PermissionDenied => {
            format!("ls -ld {path}        to see who may make files there; of an NFS export, its squash too")
        }
        _ => file_advice(path, cause),
    }
}

fn lab_advice(error: &lab::net::Error) -> Option<String> {
    use lab::net::Error;
    let advice = match error {
        // Their sentences contain the advice.
        Error::NotRoot | Error::Missing { .. } => return None,
        Error::Misuse(_) => "trunkline lab list        to see the labs that run and their links",
        Error::Unsupported(_) => "leave that option out, or a kernel that has it",
        Error::Refused { .. } => "the same command by hand, as root",
        Error::Io { .. } => "trunkline lab list        to see the labs that run",
        Error::Timeout(_) => "the server's command by hand, to see what it waits for",
        // The crate may add variants. They have no advice until they are named here.
        _ => return None,
    };
    Some(advice.to_owned())
}

fn vm_advice(error: &lab::vm::Error) -> Option<String> {
    use lab::vm::Error;
    let advice = match error {
        // Its sentence contains the advice.
        Error::Missing { .. } => return None,
        Error::Misuse(_) => "trunkline lab vm --help",
        Error::NoKernel(_) => {
            "apt-get update, or --kernel with a package that `apt-cache search linux-image` shows"
        }
        Error::Unsupported(_) => "the same on another machine",
        Error::Boot { .. } => "--accel tcg, or another --kernel; the end of the guest's console is above",
        Error::Refused { .. } => "the program's whole path; guests see this machine's files",
        Error::Gone { .. } => "more --memory, where it ran out of it",
        Error::Io { .. } => "the same again with -vv",
        Error::Timeout(_) => "the server's command by hand, to see what it waits for",
        Error::Interrupted => "the same again, and more patience",
        // The crate may add variants. They have no advice until they are named here.
        _ => return None,
    };
    Some(advice.to_owned())
}

const fn record_advice(cause: &record::Error) -> &'static str {
    match cause {
        record::Error::NotJson(_) | record::Error::NoVersion => RECORD_ADVICE,
        record::Error::Version { .. } => "trunkline --version        to see which this is",
        record::Error::Broken(_) | record::Error::Histogram { .. } => {
            "the file as it was written, or measure again"
        }
    }
}

fn file_advice(file: &str, cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::NotFound => {
            format!("ls -l {file}        to see whether it, and its directory, are there")
        }
        io::ErrorKind::PermissionDenied => format!("ls -l {file}        to see who may use it"),
        io::ErrorKind::IsADirectory => "a file in that directory".to_owned(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "df        there; or another file".to_owned()
        }
        _ => "another file".to_owned(),
    }
}

const CAUSE: &str = "\n  cause: ";

/// A message under construction.
#[derive(Debug, Default)]
struct Message {
    sentence: String,
    causes: Vec<String>,
    advice: Option<String>,
}

impl Message {
    /// Adds an error's text: a sentence, or one with causes and advice.
    fn add(&mut self, text: &str) {
        if text.contains(CAUSE) {
            text.lines().for_each(|line| match line.strip_prefix("  try:   ") {
                Some(advice) => self.advice = Some(advice.to_owned()),
                None => self.add_sentence(line.strip_prefix("  cause: ").unwrap_or(line)),
            });
        } else {
            let lines: Vec<_> = text.lines().filter(|line| !is_excerpt(line)).collect();
            self.add_sentence(&lines.join(": "));
        }
    }

    /// The first text is the sentence; the others are its causes.
    fn add_sentence(&mut self, text: &str) {
        let (sentence, advice) = text.split_once("; try: ").unwrap_or((text, ""));
        if !advice.is_empty() {
            self.advice = Some(advice.to_owned());
        }
        if self.sentence.is_empty() {
            self.sentence = sentence.to_owned();
        } else if !sentence.is_empty() {
            self.causes.push(sentence.to_owned());
        }
    }

    fn render(&self) -> String {
        let mut text = format!("error: {}\n", printable(&self.sentence));
        for cause in &self.causes {
            text.push_str(&format!("  cause: {}\n", printable(cause)));
        }
        if let Some(advice) = &self.advice {
            text.push_str(&format!("  try:   {}\n", printable(advice)));
        }
        text
    }
}

/// Whether a line is an excerpt of a faulty file (`3 | loops = "two"`), which the TOML parser
/// prints between its sentences.
fn is_excerpt(line: &str) -> bool {
    line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().starts_with('|')
}

/// Escapes text from a file or a server, so that it can neither move the cursor of a terminal nor
/// reverse the text that follows.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|c| names::push_visibly(&mut shown, c));
    shown
}

#[cfg(test)]
mod tests;
