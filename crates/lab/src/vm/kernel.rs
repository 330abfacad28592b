//! The kernel to boot. The system's package manager fetches it once; it is unpacked into the user's
//! cache directory and used from there, also without a network.

use super::Error;
use crate::net::Owner;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The package that depends on the distribution's current kernel.
const DEFAULT_PACKAGE: &str = "linux-image-amd64";

/// The prefix of a directory that is still being filled; the owner's identity follows.
const PARTIAL: &str = ".partial-";

/// An unpacked kernel with its modules.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    /// The version, as of `uname -r`.
    pub(super) version: String,
    pub(super) image: PathBuf,
    /// The directory of its modules.
    pub(super) modules: PathBuf,
}

impl Kernel {
    /// Finds the kernel in the cache, or fetches it by the package manager.
    pub(super) fn find(wanted: Option<&str>) -> Result<Self, Error> {
        let cache = cache_directory()?;
        fs::create_dir_all(&cache).map_err(Error::io(format!("create {}", cache.display())))?;
        remove_partial_directories(&cache);
        let package = match wanted {
            Some(name) if name.starts_with("linux-image-") && plain(name) => Some(real_package(name)),
            Some(name) => {
                return Err(Error::Misuse(format!(
                    "{name} is no package of a kernel, as linux-image-amd64 is"
                )));
            }
            None => named_by(DEFAULT_PACKAGE),
        };
        let Some(package) = package else {
            return newest(&cache).ok_or_else(|| {
                Error::NoKernel("apt knows no linux-image-amd64; try: apt-get update".to_owned())
            });
        };
        let directory = cache.join(&package);
        if directory.is_dir() {
            return Self::unpacked(&directory);
        }
        match fetch(&cache, &package) {
            Ok(()) => Self::unpacked(&directory),
            // Without a network, an older kernel is better than none, but it never replaces one
            // that was asked for.
            Err(error) if wanted.is_none() => {
                let older = newest(&cache).ok_or(error)?;
                tracing::warn!("cannot fetch {package}; using {} from the cache", older.version);
                Ok(older)
            }
            Err(error) => Err(error),
        }
    }

    fn unpacked(directory: &Path) -> Result<Self, Error> {
        let boot = directory.join("boot");
        let entries = fs::read_dir(&boot).map_err(Error::io(format!("read {}", boot.display())))?;
        let version = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name();
            Some(name.to_str()?.strip_prefix("vmlinuz-")?.to_owned())
        });
        let version = version.max().ok_or_else(|| {
            Error::NoKernel(format!("{} has none; remove that directory and try again", boot.display()))
        })?;
        let image = boot.join(format!("vmlinuz-{version}"));
        Ok(Self { image, modules: directory.join("lib/modules").join(&version), version })
    }

    /// The files of these modules and of their dependencies, in the order of loading. Built-in
    /// modules have none.
    pub(super) fn modules_for(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let list = self.modules.join("modules.dep");
        let text = fs::read_to_string(&list).map_err(Error::io(format!("read {}", list.display())))?;
        let mut order: Vec<&str> = Vec::new();
        for name in names {
            for path in chain(&text, name) {
                if !order.contains(&path) {
                    order.push(path);
                }
            }
        }
        order
            .into_iter()
            .map(|path| Ok((stem(path).to_owned(), read_module(&self.modules.join(path))?)))
            .collect()
    }
}

/// The file of a module and of those it depends on, dependencies first, from the text of
/// `modules.dep`.
fn chain<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let line = text.lines().filter_map(|line| line.split_once(':')).find(|(path, _)| stem(path) == name);
    let Some((path, needs)) = line else { return Vec::new() };
    let mut chain: Vec<_> = needs.split_whitespace().rev().collect();
    chain.push(path);
    chain
}

/// The name of a module: `kernel/fs/9p/9p.ko.xz` is `9p`.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split_once(".ko").map_or(name, |(stem, _)| stem)
}

/// Reads a module and decompresses it, because busybox only loads plain modules.
fn read_module(path: &Path) -> Result<Vec<u8>, Error> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return fs::read(path).map_err(Error::io(format!("read {}", path.display()))),
    };
    let mut command = Command::new(program);
    command.args(["-d", "-c"]).arg(path);
    run(&mut command)
}

/// The directory of kernels, in the user's cache directory.
fn cache_directory() -> Result<PathBuf, Error> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let root = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")));
    let root = root.ok_or_else(|| Error::Misuse("neither XDG_CACHE_HOME nor HOME is set".to_owned()))?;
    Ok(root.join("trunkline/kernels"))
}

/// Fetches and unpacks a package in a temporary directory, then renames it into place as a whole,
/// because other processes may do the same at the same time.
fn fetch(cache: &Path, package: &str) -> Result<(), Error> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    for (program, package) in [("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("depmod", "kmod")] {
        super::programs::find(program, package)?;
    }
    let owner = Owner::this_process().map_err(|error| Error::Unsupported(error.to_string()))?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let partial = cache.join(format!("{PARTIAL}{}-{}-{count}", owner.pid, owner.started));
    tracing::info!("fetching {package}");
    let outcome = fetch_into(&partial, package).and_then(|()| {
        match fs::rename(partial.join("root"), cache.join(package)) {
            // Another process was faster.
            Err(_) if cache.join(package).is_dir() => Ok(()),
            outcome => outcome.map_err(Error::io(format!("move the kernel into {}", cache.display()))),
        }
    });
    // The rest is useless. If it cannot be removed now, the next lab removes it.
    let _ = fs::remove_dir_all(&partial);
    outcome
}

fn fetch_into(partial: &Path, package: &str) -> Result<(), Error> {
    let root = partial.join("root");
    fs::create_dir_all(&root).map_err(Error::io(format!("create {}", root.display())))?;
    let mut download = Command::new("apt-get");
    // Without apt's sandbox user, which may not write here.
    download.args(["-q", "-o", "APT::Sandbox::User=", "download", package]).current_dir(partial);
    run(&mut download)?;
    let entries = fs::read_dir(partial).map_err(Error::io(format!("read {}", partial.display())))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let archive = files.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let archive = archive.ok_or_else(|| Error::NoKernel(format!("apt-get brought no file of {package}")))?;
    run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&root))?;
    let version = Kernel::unpacked(&root)?.version;
    run(Command::new(super::programs::find("depmod", "kmod")?).arg("-b").arg(&root).arg(version))?;
    Ok(())
}

/// Removes the temporary directories of processes that were killed.
fn remove_partial_directories(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PARTIAL)).and_then(Owner::of);
        if owner.is_some_and(|owner| !owner.is_alive()) {
            // Another lab may remove the directory at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The newest kernel in the cache, by the numbers in its name.
fn newest(cache: &Path) -> Option<Kernel> {
    let entries = fs::read_dir(cache).ok()?.flatten();
    let packages = entries.filter_map(|entry| {
        let name = entry.file_name().to_str()?.to_owned();
        let numbers: Vec<u32> =
            name.split(|byte: char| !byte.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
        name.starts_with("linux-image-").then_some((numbers, entry.path()))
    });
    Kernel::unpacked(&packages.max()?.1).ok()
}

/// Resolves a package such as `linux-image-amd64`, which only depends on a kernel, to the kernel's
/// package.
fn real_package(name: &str) -> String {
    named_by(name).unwrap_or_else(|| name.to_owned())
}

/// The kernel package that this one depends on, according to apt's lists.
fn named_by(name: &str) -> Option<String> {
    let output = Command::new("apt-cache").args(["depends", name]).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    depends.map(str::trim).find(|on| on.starts_with("linux-image-") && plain(on)).map(str::to_owned)
}

/// Whether a package name may be used in paths.
fn plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Runs a program to its end; returns its output, or its error messages.
fn run(command: &mut Command) -> Result<Vec<u8>, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut read = Vec::new();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.as_mut().map_err(|error| Error::io(format!("run {name}"))(error.kind().into()))?;
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut message = String::new();
        // Output that is not text is ignored.
        let _ = stderr.map(|mut from| from.read_to_string(&mut message));
        message
    });
    if let Some(mut from) = child.stdout.take() {
        from.read_to_end(&mut read).map_err(Error::io(format!("read from {name}")))?;
    }
    let status = child.wait().map_err(Error::io(format!("wait for {name}")))?;
    let message = reader.join().unwrap_or_default();
    if status.success() {
        return Ok(read);
    }
    let message = message.trim().replace('\n', "; ");
    Err(Error::NoKernel(format!("{name} failed: {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "kernel/net/9p/9pnet.ko:\nkernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko kernel/fs/netfs.ko\n";

    #[test]
    fn a_module_comes_after_those_it_needs() {
        assert_eq!(
            chain(LIST, "9p"),
            ["kernel/fs/netfs.ko", "kernel/net/9p/9pnet.ko", "kernel/fs/9p/9p.ko.xz"]
        );
        assert_eq!(chain(LIST, "9pnet"), ["kernel/net/9p/9pnet.ko"]);
        assert!(chain(LIST, "built_in").is_empty());
    }

    #[test]
    fn a_name_that_is_no_kernel_is_refused() {
        for wrong in ["hello", "linux-image-../../x", "linux-image-a b"] {
            assert!(matches!(Kernel::find(Some(wrong)), Err(Error::Misuse(_))), "{wrong}");
        }
    }
}
