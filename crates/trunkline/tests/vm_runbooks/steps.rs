//! The steps of a folder of the runbook, run on their machine.

use crate::BOOK;
use lab::vm::Guest;
use std::time::Instant;

/// A folder of the runbook on its machine.
pub struct Folder {
    guest: &'static Guest,
    name: &'static str,
    /// What stands before a shell that runs a step.
    enter: &'static str,
}

impl Folder {
    pub fn new(guest: &'static Guest, name: &'static str) -> Self {
        Self { guest, name, enter: "" }
    }

    /// Its steps run in the namespaces of the machine's systemd.
    pub fn in_systemd(guest: &'static Guest, name: &'static str) -> Self {
        Self { guest, name, enter: "nsenter -t $(cat /run/book-systemd) -m -p --wd=$PWD" }
    }

    /// The steps in their order.
    #[track_caller]
    pub fn steps(&self) -> Vec<String> {
        let listed = crate::sh(self.guest, &format!("cd {BOOK}/{}; ls [0-9]*.sh", self.name));
        let steps: Vec<_> = listed.lines().map(str::to_owned).collect();
        assert!(steps.len() >= 4, "{listed}");
        steps
    }

    /// Runs a verb of a step, which must succeed; returns what it printed.
    #[track_caller]
    pub fn run(&self, step: &str, verb: &str) -> String {
        let (worked, said) = self.try_run(step, verb);
        assert!(worked, "{}/{step} {verb}:\n{said}", self.name);
        said
    }

    /// Runs a verb of a step, which must fail; returns what it printed.
    #[track_caller]
    pub fn fails(&self, step: &str, verb: &str) -> String {
        let (worked, said) = self.try_run(step, verb);
        assert!(!worked, "{}/{step} {verb} should have failed:\n{said}", self.name);
        said
    }

    /// Verifies a step until that succeeds, for some minutes.
    #[track_caller]
    pub fn wait_until_verified(&self, step: &str) {
        let script = format!(
            "cd {BOOK}/{}
             for attempt in $(seq 100); do {enter} ./{step} verify >/dev/null 2>&1 && exit 0; sleep 1; done
             {enter} ./{step} verify 2>&1",
            self.name,
            enter = self.enter,
        );
        crate::sh(self.guest, &script);
    }

    fn try_run(&self, step: &str, verb: &str) -> (bool, String) {
        let began = Instant::now();
        let script = format!("cd {BOOK}/{} && {} ./{step} {verb} 2>&1", self.name, self.enter);
        let output = self.guest.sh(&script).expect("the guest runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{}/{step} {verb}: {}, {:.0} s", self.name, output.status, began.elapsed().as_secs_f64());
        if verb == "undo" {
            print!("{said}");
        }
        (output.status.success(), said)
    }
}
