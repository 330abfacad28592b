//! The checker: each operation, with an obstacle and without, meets each cut. Then the result and
//! the directory must be those of an operation that was done once, and a call that arrives late
//! must change nothing.

use super::cuts::{Cut, Cuts, Target};
use super::operations::{Operation, list};
use client::options::Version;
use client::{Mount, Settings};
use fs::SetAttributes;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A late call is answered within this time on any machine.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// The server to check.
pub struct Server<'a> {
    pub nodes: &'a [SocketAddr],
    /// The port of MOUNT, if that is another port.
    pub mount_port: Option<u16>,
    pub export: &'a str,
    pub version: Version,
    /// Whether the nodes answer a replay from a reply cache.
    pub remembers: bool,
}

/// The findings on one server.
#[derive(Debug, Default)]
pub struct Findings {
    pub cases: u64,
    /// Wrong results or directories.
    pub wrong: Vec<String>,
    /// Operations that were done and returned an error, where the server cannot know and the client
    /// says so.
    pub undecided: BTreeMap<Operation, u64>,
    /// Removals of nothing that counted as done.
    pub taken_for_done: BTreeMap<Operation, u64>,
}

impl Findings {
    /// A summary in one line, for people.
    pub fn summary(&self) -> String {
        let sum = |counts: &BTreeMap<Operation, u64>| counts.values().sum::<u64>();
        format!(
            "{} cases: {} wrong, {} could not be told apart {:?}, {} removals of nothing taken for done {:?}",
            self.cases,
            self.wrong.len(),
            sum(&self.undecided),
            self.undecided,
            sum(&self.taken_for_done),
            self.taken_for_done,
        )
    }
}

impl Server<'_> {
    fn settings(&self, at: SocketAddr) -> Settings {
        let mount_port = self.mount_port.unwrap_or(at.port());
        Settings {
            version: self.version,
            mount_port,
            loops: 1,
            ..Settings::new(at.ip(), at.port(), self.export)
        }
    }

    /// Runs all cases with these cuts.
    pub fn check(&self, cuts: &[Cut]) -> Findings {
        let proxies = Cuts::start(self.nodes, self.mount_port);
        let observer = Mount::with_settings(self.settings(self.nodes[0])).expect("the observer mounts");
        let mut findings = Findings::default();
        for operation in Operation::ALL {
            for refused in [false, true] {
                if refused && operation.refusal().is_none() {
                    continue;
                }
                for &cut in cuts {
                    findings.cases += 1;
                    self.one(&proxies, &observer, (operation, refused, cut), &mut findings);
                }
            }
        }
        findings
    }

    fn one(
        &self,
        proxies: &Cuts,
        observer: &Mount,
        (operation, refused, cut): (Operation, bool, Cut),
        findings: &mut Findings,
    ) {
        let case = format!("{operation:?}{} {cut:?}", if refused { " (to be refused)" } else { "" });
        let name = format!("case-{:?}-{}", self.version, findings.cases);
        let attributes = SetAttributes::mode(0o777);
        let (directory, _) =
            observer.make_directory(observer.root(), name.as_bytes(), attributes).expect("made");
        operation.prepare(observer, directory, refused);
        let before = list(observer, directory);
        // A new mount for each case, so that nothing is known about the paths.
        let mount = Mount::with_settings(Settings {
            remotes: proxies.addresses.iter().copied().map(Into::into).collect(),
            nconnect: self.nodes.len().max(2) as u16,
            ..self.settings(SocketAddr::new(proxies.addresses[0], proxies.port))
        })
        .expect("the client mounts");
        let target = match self.version {
            Version::V3 => Target::Version3(operation.procedure()),
            Version::V4(_) => Target::Version4(operation.operation_4()),
        };
        proxies.arm(target, cut);
        let result = operation.perform(&mount, directory, refused);
        assert!(proxies.was_cut(), "{case}: no such call has come by");
        proxies.heal();
        let replays = mount.statistics().replays;
        let status = result.as_ref().err().map(client::Error::status);
        let expected = operation.refusal().filter(|_| refused);
        let said = match (expected, status) {
            (None, None) => Ok(()),
            (Some(expected), Some(Some(status))) if expected == status => Ok(()),
            (None, Some(_)) if !self.remembers && replays.undecided > 0 => {
                Err(findings.undecided.entry(operation))
            }
            (Some(_), None) if replays.reconciled > 0 => Err(findings.taken_for_done.entry(operation)),
            _ => {
                findings.wrong.push(format!("{case}: {result:?}, and should be {expected:?}"));
                Ok(())
            }
        };
        if let Err(counter) = said {
            *counter.or_default() += 1;
        }
        let after = if refused { before } else { operation.done(&before) };
        let mut compare = |when: &str, wanted| {
            let found = list(observer, directory);
            if found != wanted {
                findings.wrong.push(format!("{case}: {when} there is {found:?}, and should be {wanted:?}"));
            }
        };
        compare("afterwards", after);
        if !refused {
            operation.undo(observer, directory);
        }
        if cut == Cut::Late {
            let undone = list(observer, directory);
            proxies.deliver_late(MOUNT_TIMEOUT);
            compare("after the late call", undone);
        }
    }
}
