//! Failback to a path that answers probes but fails path validation, while another path works.

use super::*;

/// How the preferred path responds to path validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    Given,
    Refused,
    /// No reply, as from a server whose disk hangs.
    Awaited,
}

/// One connection with preferred path 0 and alternative path 1, in steps of a millisecond. Both
/// paths accept connections and answer probes within one step.
struct Lone {
    table: Table,
    now: Duration,
    home_proof: Proof,
    /// How long path validation takes on path 1.
    abroad_takes: Duration,
    /// The path being connected to, and since when.
    connecting: Option<(PathId, Duration)>,
    probed: Option<PathId>,
    usable: Duration,
    /// When it left path 1 to fail back, and how long each failed failback then waited.
    homecomings: Vec<Duration>,
    waits: Vec<Duration>,
}

impl Lone {
    fn new(home_proof: Proof, abroad_takes: Duration) -> Self {
        Self {
            table: Table::new(config(2, 1), ms(0)),
            now: ms(0),
            home_proof,
            abroad_takes,
            connecting: None,
            probed: None,
            usable: ms(0),
            homecomings: Vec::new(),
            waits: Vec::new(),
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.table.advance(self.now);
            self.obey();
            self.now += ms(1);
            if let Some(path) = self.probed.take() {
                self.table.probe_answered(self.now, path);
                self.obey();
            }
            if let Some((path, since)) = self.connecting {
                self.attempt(path, self.now - since);
                self.obey();
            }
            self.usable += if self.table.usable() { ms(1) } else { ms(0) };
        }
    }

    /// Advances a connect attempt of this age.
    fn attempt(&mut self, path: PathId, age: Duration) {
        if age == ms(1) {
            self.table.reached(self.now, ConnId(0));
        }
        let (proof, takes) =
            if path == PathId(0) { (self.home_proof, ms(1)) } else { (Proof::Given, self.abroad_takes) };
        if age < takes || proof == Proof::Awaited {
            return;
        }
        self.connecting = None;
        match proof {
            Proof::Given => self.table.connected(self.now, ConnId(0)),
            Proof::Refused | Proof::Awaited => self.table.disconnected(self.now, ConnId(0)),
        }
    }

    fn obey(&mut self) {
        let at = self.table.path_of(ConnId(0)).unwrap();
        for output in outputs(&mut self.table) {
            match output {
                Output::Connect(_) => self.connecting = Some((at, self.now)),
                Output::FailOver { to, .. } => {
                    self.connecting = Some((to, self.now));
                    self.homecomings.extend((to == PathId(0)).then_some(self.now));
                }
                Output::Abort(_) => {
                    if let Some((PathId(0), since)) = self.connecting.take() {
                        self.waits.push(self.now - since);
                    }
                }
                Output::Probe(path) => self.probed = Some(path),
                Output::Move(_) | Output::StateChanged { .. } => {}
            }
        }
    }

    fn is_home(&self) -> bool {
        self.table.path_of(ConnId(0)) == Some(PathId(0)) && self.table.usable()
    }
}

#[test]
fn a_home_that_answers_and_does_not_prove_itself_takes_a_tenth_of_the_time_at_most() {
    // If validating the other path takes long, the preferred path has answered again before the
    // other path is connected.
    for abroad_takes in [ms(1), ms(250)] {
        let mut lone = Lone::new(Proof::Awaited, abroad_takes);
        lone.run(ms(60_000));
        assert!(lone.homecomings.len() > 1, "it is tried");
        assert!(lone.usable >= ms(54_000), "{:?} of 60 s, {abroad_takes:?}", lone.usable);
    }
}

#[test]
fn a_connection_that_comes_home_does_not_wait_longer_for_each_proof_that_it_was_not_given() {
    let mut lone = Lone::new(Proof::Awaited, ms(1));
    lone.run(ms(180_000));
    assert!(lone.waits.len() > 4, "{:?}", lone.waits);
    assert_eq!(lone.waits.iter().max(), Some(&(ms(1) + Timing::default().connect_timeout)));
}

#[test]
fn a_home_that_refuses_the_proof_is_tried_ever_more_seldom() {
    let mut lone = Lone::new(Proof::Refused, ms(1));
    lone.run(ms(120_000));
    let apart: Vec<_> = lone.homecomings.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(apart, [1, 2, 4, 8, 16, 30, 30]);
}

#[test]
fn a_connection_comes_home_once_that_proves_itself_and_its_next_fault_is_the_first_again() {
    let mut lone = Lone::new(Proof::Awaited, ms(1));
    lone.run(ms(60_000));
    assert!(!lone.is_home());
    lone.home_proof = Proof::Given;
    lone.run(Timing::default().hold_max + ms(100));
    assert!(lone.is_home());
    lone.run(Timing::default().stable_after);

    lone.home_proof = Proof::Awaited;
    lone.homecomings.clear();
    lone.table.disconnected(lone.now, ConnId(0));
    lone.run(ms(20_000));
    let [first, second] = lone.homecomings[..] else { panic!("{:?}", lone.homecomings) };
    assert!(second - first < ms(12_000), "{:?}", lone.homecomings);
}
