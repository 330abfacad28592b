//! Failback to a path that answers probes but fails path validation, while another path works.

use super::*;

/// How the preferred path responds to path validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Validation {
    Succeeds,
    Refused,
    /// No reply, as from a server whose disk hangs.
    Unanswered,
}

/// One connection with preferred path 0 and alternative path 1, in steps of a millisecond. Both
/// paths accept connections and answer probes within one step.
struct OneConnection {
    table: Table,
    now: Duration,
    preferred_validates: Validation,
    /// How long path validation takes on path 1.
    other_takes: Duration,
    /// The path being connected to, and since when.
    connecting: Option<(PathId, Duration)>,
    probed: Option<PathId>,
    usable: Duration,
    /// When it left path 1 to fail back, and how long each failed failback then waited.
    failbacks: Vec<Duration>,
    waits: Vec<Duration>,
}

impl OneConnection {
    fn new(preferred_validates: Validation, other_takes: Duration) -> Self {
        Self {
            table: Table::new(config(2, 1), ms(0)),
            now: ms(0),
            preferred_validates,
            other_takes,
            connecting: None,
            probed: None,
            usable: ms(0),
            failbacks: Vec::new(),
            waits: Vec::new(),
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.table.advance(self.now);
            self.carry_out();
            self.now += ms(1);
            if let Some(path) = self.probed.take() {
                self.table.probe_answered(self.now, path);
                self.carry_out();
            }
            if let Some((path, since)) = self.connecting {
                self.attempt(path, self.now - since);
                self.carry_out();
            }
            self.usable += if self.table.usable() { ms(1) } else { ms(0) };
        }
    }

    /// Advances a connect attempt of this age.
    fn attempt(&mut self, path: PathId, age: Duration) {
        if age == ms(1) {
            self.table.reached(self.now, ConnId(0));
        }
        let (validation, takes) = match path {
            PathId(0) => (self.preferred_validates, ms(1)),
            _ => (Validation::Succeeds, self.other_takes),
        };
        if age < takes || validation == Validation::Unanswered {
            return;
        }
        self.connecting = None;
        match validation {
            Validation::Succeeds => self.table.connected(self.now, ConnId(0)),
            Validation::Refused | Validation::Unanswered => self.table.disconnected(self.now, ConnId(0)),
        }
    }

    fn carry_out(&mut self) {
        let at = self.table.path_of(ConnId(0)).unwrap();
        for output in outputs(&mut self.table) {
            match output {
                Output::Connect(_) => self.connecting = Some((at, self.now)),
                Output::FailOver { to, .. } => {
                    self.connecting = Some((to, self.now));
                    self.failbacks.extend((to == PathId(0)).then_some(self.now));
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

    fn has_failed_back(&self) -> bool {
        self.table.path_of(ConnId(0)) == Some(PathId(0)) && self.table.usable()
    }
}

#[test]
fn a_preferred_path_that_answers_and_fails_validation_takes_a_tenth_of_the_time_at_most() {
    // If validating the other path takes long, the preferred path has answered again before the
    // other path is connected.
    for other_takes in [ms(1), ms(250)] {
        let mut one = OneConnection::new(Validation::Unanswered, other_takes);
        one.run(ms(60_000));
        assert!(one.failbacks.len() > 1, "it is tried");
        assert!(one.usable >= ms(54_000), "{:?} of 60 s, {other_takes:?}", one.usable);
    }
}

#[test]
fn a_failback_does_not_wait_longer_for_validation_each_time() {
    let mut one = OneConnection::new(Validation::Unanswered, ms(1));
    one.run(ms(180_000));
    assert!(one.waits.len() > 4, "{:?}", one.waits);
    assert_eq!(one.waits.iter().max(), Some(&(ms(1) + Timing::default().connect_timeout)));
}

#[test]
fn a_preferred_path_that_refuses_validation_is_tried_less_and_less_often() {
    let mut one = OneConnection::new(Validation::Refused, ms(1));
    one.run(ms(120_000));
    let apart: Vec<_> = one.failbacks.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(apart, [1, 2, 4, 8, 16, 30, 30]);
}

#[test]
fn a_connection_fails_back_once_validation_succeeds_and_its_next_fault_counts_as_the_first() {
    let mut one = OneConnection::new(Validation::Unanswered, ms(1));
    one.run(ms(60_000));
    assert!(!one.has_failed_back());
    one.preferred_validates = Validation::Succeeds;
    one.run(Timing::default().hold_max + ms(100));
    assert!(one.has_failed_back());
    one.run(Timing::default().stable_after);

    one.preferred_validates = Validation::Unanswered;
    one.failbacks.clear();
    one.table.disconnected(one.now, ConnId(0));
    one.run(ms(20_000));
    let [first, second] = one.failbacks[..] else { panic!("{:?}", one.failbacks) };
    assert!(second - first < ms(12_000), "{:?}", one.failbacks);
}
