//! The captures that show nothing, and why: what depends on them was not checked.

use crate::{CAPTURES, Capture, Evidence, Finding, Status, rules};

/// Why a capture shows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotSeen {
    /// It was not made, or could not be made.
    Missing,
    /// It has no text.
    Empty,
    /// It has a text of which nothing is understood.
    NotUnderstood,
}

impl NotSeen {
    /// The words for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Empty => "empty",
            Self::NotUnderstood => "not understood",
        }
    }
}

/// The captures that show nothing, in the order of [`CAPTURES`].
pub fn not_seen(evidence: &Evidence) -> Vec<(&'static Capture, NotSeen)> {
    let why = |capture: &'static Capture| {
        let text = evidence.0.get(capture.name).and_then(|captured| captured.text.as_deref().ok());
        let why = match text {
            None => NotSeen::Missing,
            Some(text) if text.trim().is_empty() => NotSeen::Empty,
            Some(_) if rules::is_unread(evidence, capture.name) => NotSeen::NotUnderstood,
            Some(_) => return None,
        };
        Some((capture, why))
    };
    CAPTURES.iter().filter_map(why).collect()
}

/// Whether anything was judged: some capture shows something, and not all that was found is
/// unknown.
/// That nothing but empty captures is there says nothing of a host, whatever an empty one means.
pub fn is_judged(evidence: &Evidence, findings: &[Finding]) -> bool {
    not_seen(evidence).len() < CAPTURES.len() && findings.iter().any(|of| of.status != Status::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Captured;

    #[test]
    fn each_capture_that_shows_nothing_has_its_reason() {
        let mut evidence = Evidence::default();
        let mut add = |name: &'static str, text: Result<&str, &str>| {
            let text = text.map(str::to_owned).map_err(str::to_owned);
            evidence.0.insert(name, Captured { source: name.to_owned(), text });
        };
        add("kernel-release.txt", Ok("6.8.0\n"));
        add("multipath.txt", Ok(" \n"));
        add("ibv_devinfo.txt", Ok("command not found\n"));
        add("rdma-link.txt", Err("rdma is not installed"));
        // Nothing is there, and the capture says so.
        add("nvme-list.txt", Ok("No NVMe devices detected.\n"));
        let found = not_seen(&evidence);
        let of = |name: &str| found.iter().find(|(of, _)| of.name == name).map(|(_, why)| why.name());
        assert_eq!(of("kernel-release.txt"), None);
        assert_eq!(of("nvme-list.txt"), None);
        assert_eq!(of("multipath.txt"), Some("empty"));
        assert_eq!(of("ibv_devinfo.txt"), Some("not understood"));
        assert_eq!((of("rdma-link.txt"), of("numa.txt")), (Some("missing"), Some("missing")));
        assert_eq!(found.len(), CAPTURES.len() - 2);
    }
}
