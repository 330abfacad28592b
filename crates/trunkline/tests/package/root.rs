//! A bare Debian in its own namespaces: debootstrap creates it once, below the target directory.
//! Each test gets an overlay in memory, which ends with the namespaces. The only network is
//! loopback.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use testkit::{Process, TempDir, require_program, temp_dir};

/// How long the start of the namespaces may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Creates the overlay, with the devices and file systems that programs need, and then waits.
const PREPARE: &str = r#"
mount -t tmpfs none "$PLACE"
mkdir "$PLACE/upper" "$PLACE/work" "$PLACE/root"
mount -t overlay none -o "lowerdir=$BASE,upperdir=$PLACE/upper,workdir=$PLACE/work" "$PLACE/root"
mount -t proc none "$PLACE/root/proc"
for device in null zero random urandom fuse; do
    [ -e "$PLACE/root/dev/$device" ] || touch "$PLACE/root/dev/$device"
    mount --bind "/dev/$device" "$PLACE/root/dev/$device"
done
ip link set lo up
echo prepared
exec sleep infinity
"#;

/// The output of a script in the root, and its status.
pub struct ProgramOutput {
    pub out: String,
    pub err: String,
    pub succeeded: bool,
}

impl From<Output> for ProgramOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let succeeded = output.status.success();
        Self { out: text(&output.stdout), err: text(&output.stderr), succeeded }
    }
}

/// The running namespaces. When this is dropped, all processes in them end.
pub struct Root {
    holder: Process,
    place: TempDir,
    /// The pid of the first process of the namespaces, as seen from outside.
    first: u32,
}

impl Root {
    pub fn start() -> Self {
        let place = temp_dir("package");
        let mut command = Command::new(require_program("unshare"));
        command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-euc", PREPARE]);
        command.env("BASE", base("base", &[])).env("PLACE", place.path());
        let holder = Process::spawn(command);
        holder.wait_for_line("prepared", TIMEOUT);
        let first = first_child(holder.id());
        Self { holder, place, first }
    }

    /// Copies a file of this machine into the root.
    pub fn put(&self, file: &Path, to: &str) {
        let mut command = self.enter();
        command.arg("cp").arg(file).arg(self.path().join(to.trim_start_matches('/')));
        let said = ProgramOutput::from(command.output().unwrap());
        assert!(said.succeeded, "{}{}", said.err, self.holder.all_output());
    }

    /// A command that runs a shell script in the root.
    pub fn command(&self, script: &str) -> Command {
        let mut command = self.enter();
        command.arg("chroot").arg(self.path()).args(["/bin/sh", "-euc", script]);
        command
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs a shell script in the root.
    pub fn try_run(&self, script: &str) -> ProgramOutput {
        self.command(script).output().unwrap().into()
    }

    /// The output of a shell script, which must succeed.
    #[track_caller]
    pub fn run(&self, script: &str) -> String {
        let said = self.try_run(script);
        assert!(said.succeeded, "{script}\n{}{}", said.out, said.err);
        said.out
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("root")
    }

    fn enter(&self) -> Command {
        let mut command = Command::new(require_program("nsenter"));
        command.args(["--mount", "--net", "--pid", "--target", &self.first.to_string(), "--"]);
        command
    }
}

/// The process in which the shell of the namespaces runs: `unshare --fork` waits for it.
fn first_child(process: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().next().and_then(|id| id.parse().ok()).expect("unshare has a child")
}

/// The directory with a bare Debian of this machine's release and some more packages, created by
/// the first call with this name.
pub fn base(name: &str, more: &[&str]) -> PathBuf {
    let release = release();
    let target = crate::project().join("target");
    let base = target.join(format!("debian-{name}-{release}"));
    if !base.is_dir() {
        let part = target.join(format!("debian-{name}-{release}.part"));
        // The remains of a call that was interrupted.
        let _ = std::fs::remove_dir_all(&part);
        let mut command = Command::new(require_program("debootstrap"));
        command.arg("--variant=minbase");
        if !more.is_empty() {
            command.arg(format!("--include={}", more.join(",")));
        }
        command.arg(&release).arg(&part).arg(mirror(&release));
        let said = ProgramOutput::from(command.output().unwrap());
        assert!(said.succeeded, "debootstrap failed:\n{}{}", said.out, said.err);
        std::fs::rename(&part, &base).unwrap();
    }
    base
}

/// The code name of this machine's Debian: the package needs the C library of that release.
fn release() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.expect("a Debian with a code name").trim_matches('"').to_owned()
}

/// The mirror from which apt takes this release.
fn mirror(release: &str) -> String {
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    let mut apt = Command::new(require_program("apt-get"));
    let said = ProgramOutput::from(apt.args(["indextargets", "--format", format]).output().unwrap());
    let wanted = format!(" {release} main");
    let uri = said.out.lines().find_map(|line| line.strip_suffix(&wanted));
    uri.expect("apt knows a mirror of this release").to_owned()
}
