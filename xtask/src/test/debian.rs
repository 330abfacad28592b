//! Whether a bare Debian of this machine's release can be had: one that was made before, or apt's
//! mirror.

use crate::workspace::root;
use std::fs;
use std::process::{Command, Stdio};

/// Downloads as apt does, with its proxies.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";

/// Why it cannot be had, if so. crates/trunkline/tests/package/root.rs makes it.
pub(super) fn obstacle() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok().and_then(|text| code_name(&text));
    let Some(release) = release else { return Some("this machine is no Debian with a code name".to_owned()) };
    if root().join(format!("target/debian-base-{release}")).is_dir() {
        return None;
    }
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]).stderr(Stdio::null());
    let targets = apt.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let Some(mirror) = targets.ok().and_then(|targets| mirror(&targets, &release)) else {
        return Some(format!("apt has no mirror of {release} main; look at /etc/apt/sources.list"));
    };
    (!answers(&mirror, &release)).then(|| format!("{mirror} does not answer; connect this machine once"))
}

fn code_name(os_release: &str) -> Option<String> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(|name| name.trim_matches('"').to_owned())
}

fn mirror(targets: &str, release: &str) -> Option<String> {
    let wanted = format!(" {release} main");
    targets.lines().find_map(|line| line.strip_suffix(&wanted)).map(str::to_owned)
}

/// Whether the mirror delivers the release's index.
fn answers(mirror: &str, release: &str) -> bool {
    let file = root().join("target/debian-release");
    let uri = format!("{}/dists/{release}/InRelease", mirror.trim_end_matches('/'));
    let mut helper = Command::new(APT_HELPER);
    helper.args(["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20", "download-file", &uri]);
    let status = helper.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let _ = fs::remove_file(file);
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_the_release_itself() {
        let targets = "http://a/ b-updates main\nhttp://c/ b contrib\nhttp://d/ b main\n";
        assert_eq!(mirror(targets, "b").as_deref(), Some("http://d/"));
        assert_eq!(mirror(targets, "e"), None);
        assert_eq!(code_name("ID=debian\nVERSION_CODENAME=b\n").as_deref(), Some("b"));
    }
}
