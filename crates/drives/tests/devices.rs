//! Block devices, through the suite that every drive must pass, and what a device in use, a full
//! file system and a device that fails do. The devices are loop devices on files. Needs root and
//! loop devices; `cargo xtask test` runs it in the suite `drives`.

#[path = "conformance/suite.rs"]
mod suite;

use drives::{Choice, Drive, Error, Fault, How, Kind, Operation};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use suite::{ENGINES, Rig};
use tempfile::TempDir;
use testkit::Deadline;

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs a program of the system and returns what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A loop device over a file, taken down with the test.
struct Loop {
    device: PathBuf,
    file: PathBuf,
    _dir: TempDir,
}

impl Loop {
    fn new(bytes: u64, sector: u32) -> Self {
        Self::in_directory(directory(), bytes, sector)
    }

    fn in_directory(dir: TempDir, bytes: u64, sector: u32) -> Self {
        let file = dir.path().join("backing");
        fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        let sector = sector.to_string();
        let arguments = ["--find", "--show", "--sector-size", &sector, file.to_str().unwrap()];
        let device = run("losetup", &arguments).into();
        Self { device, file, _dir: dir }
    }

    fn open(&self, how: How) -> Result<Drive, Error> {
        Drive::open(&self.device, how)
    }

    fn name(&self) -> &str {
        self.device.to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// A file system mounted for the test.
struct Mount {
    dir: TempDir,
}

impl Mount {
    fn new(arguments: &[&str]) -> Self {
        let dir = directory();
        run("mount", &[arguments, &[dir.path().to_str().unwrap()]].concat());
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.dir.path()).status();
    }
}

#[test]
fn a_block_device_does_what_a_drive_does() {
    for (sector, seed) in [(512, 11), (4096, 12)] {
        let device = Loop::new(20 << 20, sector);
        let drive = device.open(How::Adopt { force: false }).unwrap();
        let info = drive.info();
        assert_eq!((info.kind, info.bytes, info.block_bytes), (Kind::Device, 20 << 20, sector));
        assert_eq!(info.preferred_block_bytes, sector);
        let cache = format!("/sys/block/{}/queue/write_cache", device.device.file_name().unwrap().display());
        assert_eq!(info.volatile_cache, fs::read_to_string(cache).unwrap().trim() == "write back");
        suite::all(&drive, seed);
    }
}

#[test]
fn a_discard_of_a_device_gives_storage_back() {
    use std::os::unix::fs::MetadataExt;
    let device = Loop::new(8 << 20, 512);
    let drive = device.open(How::Adopt { force: false }).unwrap();
    assert!(drive.info().discards && !drive.info().discard_zeroes);
    for engine in ENGINES {
        let mut rig = Rig::new(&drive, engine);
        rig.write(0, &vec![1; 4 << 20], true).unwrap();
        let used = || fs::metadata(&device.file).unwrap().blocks() * 512;
        assert!(used() >= 4 << 20);
        rig.run(Operation::Discard { at: 0, bytes: 2 << 20 }).unwrap();
        assert!(used() < 3 << 20);
        rig.run(Operation::Zero { at: 0, bytes: 4 << 20, deallocate: true, durable: true }).unwrap();
        assert!(used() < 1 << 20);
        rig.write(0, &vec![1; 1 << 20], true).unwrap();
        rig.run(Operation::Zero { at: 0, bytes: 1 << 20, deallocate: false, durable: true }).unwrap();
        assert_eq!(rig.read(0, 4096), Ok(vec![0; 4096]));
    }
}

#[test]
fn a_device_in_use_is_refused_and_its_user_named() {
    let device = Loop::new(32 << 20, 512);
    run("mkfs.ext4", &["-q", device.name()]);
    {
        let mount = Mount::new(&[device.name()]);
        let error = device.open(How::Adopt { force: true }).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error}");
        let name = device.device.file_name().unwrap().display();
        let user = format!("{name} is mounted at {}", mount.path().display());
        assert!(error.to_string().contains(&user), "{error}");
    }
    let drive = device.open(How::Adopt { force: true }).unwrap();
    let error = device.open(How::Known).unwrap_err();
    assert!(matches!(error, Error::InUse { .. } | Error::Locked { .. }), "{error}");
    assert!(error.to_string().contains(device.name()));
    drop(drive);
    assert!(device.open(How::Known).is_ok());
}

#[test]
fn a_device_with_something_on_it_is_adopted_by_force_only() {
    let device = Loop::new(32 << 20, 512);
    assert!(device.open(How::Adopt { force: false }).is_ok());
    run("mkfs.ext4", &["-q", "-L", "theirs", device.name()]);
    let error = device.open(How::Adopt { force: false }).unwrap_err();
    let Error::Foreign { found, .. } = &error else { panic!("{error}") };
    assert_eq!((found[0].kind.as_str(), found[0].label.as_deref()), ("ext4", Some("theirs")));
    assert!(run("wipefs", &["--no-act", device.name()]).contains("ext4"), "nothing was changed");
    assert!(device.open(How::Known).is_ok() && device.open(How::Adopt { force: true }).is_ok());
}

#[test]
fn a_device_that_fails_ends_operations_with_an_error() {
    let device = Loop::new(8 << 20, 512);
    let drive = device.open(How::Adopt { force: false }).unwrap();
    // What the device is on has become shorter: it cannot read there any more.
    fs::OpenOptions::new().write(true).open(&device.file).unwrap().set_len(4 << 20).unwrap();
    for engine in ENGINES {
        let mut rig = Rig::new(&drive, engine);
        rig.write(0, &[1; 4096], false).unwrap();
        assert_eq!(rig.read(6 << 20, 4096), Err(Fault::Io(rustix::io::Errno::IO.raw_os_error())));
        assert_eq!(rig.read(0, 4096), Ok(vec![1; 4096]));
    }
}

#[test]
fn a_full_file_system_fails_a_write_and_takes_others() {
    let device = Loop::new(8 << 20, 512);
    run("mkfs.ext4", &["-q", "-O", "^has_journal", device.name()]);
    let mount = Mount::new(&[device.name()]);
    let path = mount.path().join("drive.img");
    let reserved = Drive::open(&path, How::Create { bytes: 64 << 20, sparse: false });
    assert!(reserved.unwrap_err().to_string().contains("cannot reserve storage for"));
    assert!(!path.exists());
    for engine in ENGINES {
        let drive = Drive::open(&path, How::Create { bytes: 64 << 20, sparse: true }).unwrap();
        let mut rig = Rig::new(&drive, engine);
        rig.write(0, &[1; 4096], true).unwrap();
        let fill = |at: u64| rig.write(at << 20, &vec![2; 1 << 20], false);
        assert_eq!((1..64).map(fill).find_map(Result::err), Some(Fault::NoSpace));
        rig.write(0, &[3; 4096], true).unwrap();
        assert_eq!(rig.read(0, 4096), Ok(vec![3; 4096]), "what has storage is written");
        rig.run(Operation::Discard { at: 1 << 20, bytes: 63 << 20 }).unwrap();
        rig.write(60 << 20, &[4; 4096], true).unwrap();
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_full_tmpfs_fails_a_write_where_tmpfs_has_direct_io() {
    let mount = Mount::new(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
    let path = mount.path().join("drive.img");
    let drive = match Drive::open(&path, How::Create { bytes: 8 << 20, sparse: true }) {
        Ok(drive) => drive,
        // Before Linux 6.6.
        Err(error) => {
            assert!(matches!(error, Error::NotDirect { .. }), "{error}");
            return assert!(!path.exists());
        }
    };
    for engine in ENGINES {
        let mut rig = Rig::new(&drive, engine);
        assert_eq!(rig.write(0, &vec![1; 2 << 20], false), Err(Fault::NoSpace));
        rig.run(Operation::Zero { at: 0, bytes: 8 << 20, deallocate: true, durable: false }).unwrap();
        rig.write(0, &[2; 4096], false).unwrap();
        rig.run(Operation::Zero { at: 0, bytes: 4096, deallocate: false, durable: true }).unwrap();
        assert_eq!(rig.read(0, 4096), Ok(vec![0; 4096]));
    }
}

/// Another process that holds a device: a second copy of the test program. It writes once for each
/// line that it gets.
struct Holder {
    process: Child,
    said: BufReader<ChildStdout>,
}

/// Tells a second copy of the test program which device it is to hold.
const HOLD: &str = "TRUNKLINE_TEST_HOLD_DEVICE";
/// Tells it to use workers.
const WORKERS: &str = "TRUNKLINE_TEST_WORKERS";
const LONG: Duration = Duration::from_secs(20);

impl Holder {
    /// Starts one; a test of this name calls [`Holder::be`] first.
    fn start(test: &str, device: &Path, engine: Choice) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(HOLD, device);
        if engine == Choice::Workers {
            command.env(WORKERS, "");
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let mut holder = Self { process, said };
        holder.wait_for("holding");
        holder
    }

    fn wait_for(&mut self, what: &str) {
        let found = self.said.by_ref().lines().any(|line| line.unwrap().contains(what));
        assert!(found, "the other process has ended before it was {what}");
    }

    /// Is the other process, if this is one.
    fn be() {
        let Some(device) = std::env::var_os(HOLD) else { return };
        let engine = if std::env::var_os(WORKERS).is_some() { Choice::Workers } else { Choice::Automatic };
        let drive = Drive::open(Path::new(&device), How::Known).unwrap();
        let mut rig = Rig::new(&drive, engine);
        println!("holding");
        for _ in std::io::stdin().lines() {
            rig.write(0, &[9; 4096], false).unwrap();
            println!("written");
        }
        std::process::exit(0);
    }

    fn ask_for_a_write(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_killed_process_lets_go_of_its_device() {
    Holder::be();
    let device = Loop::new(8 << 20, 512);
    for engine in ENGINES {
        let mut holder = Holder::start("a_killed_process_lets_go_of_its_device", &device.device, engine);
        holder.ask_for_a_write();
        holder.wait_for("written");
        let error = device.open(How::Known).unwrap_err();
        assert!(matches!(error, Error::InUse { .. } | Error::Locked { .. }), "{error}");
        holder.process.kill().unwrap();
        let opened = || device.open(How::Known).ok();
        let drive = Deadline::wait_until("the device", LONG, opened);
        assert_eq!(Rig::new(&drive, engine).read(0, 4096), Ok(vec![9; 4096]));
    }
}

/// A file system whose writes wait until this is dropped.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn new(path: &'a Path) -> Self {
        run("fsfreeze", &["--freeze", path.to_str().unwrap()]);
        Self(path)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(self.0).status();
    }
}

#[test]
fn nobody_gets_the_device_of_a_killed_process_before_its_writes_have_ended() {
    Holder::be();
    let below = Loop::new(64 << 20, 512);
    run("mkfs.ext4", &["-q", "-O", "^has_journal", below.name()]);
    let mount = Mount::new(&[below.name()]);
    let inside = tempfile::tempdir_in(mount.path()).unwrap();
    let device = Loop::in_directory(inside, 8 << 20, 512);
    let in_flight = format!("/sys/block/{}/inflight", device.device.file_name().unwrap().display());
    for engine in ENGINES {
        let test = "nobody_gets_the_device_of_a_killed_process_before_its_writes_have_ended";
        let mut holder = Holder::start(test, &device.device, engine);
        let frozen = Frozen::new(mount.path());
        holder.ask_for_a_write();
        let writes = || {
            let counts = fs::read_to_string(&in_flight).unwrap();
            counts.split_whitespace().nth(1).filter(|writes| *writes != "0").map(drop)
        };
        Deadline::wait_until("a write that waits", LONG, writes);
        holder.process.kill().unwrap();
        // For longer than the system takes to close the files of a process that was killed.
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            let error = device.open(How::Known).unwrap_err();
            assert!(matches!(error, Error::InUse { .. } | Error::Locked { .. }), "{error}");
        }
        drop(frozen);
        let opened = || device.open(How::Known).ok();
        let drive = Deadline::wait_until("the device", LONG, opened);
        let mut rig = Rig::new(&drive, engine);
        assert_eq!(rig.read(0, 4096), Ok(vec![9; 4096]), "the write of the killed process has ended");
        rig.write(0, &[1; 4096], true).unwrap();
    }
}
