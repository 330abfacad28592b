//! Whether calls in flight bind a result, as far as the steps of a workload and the place of its
//! server show it.
//!
//! [`super::binding`] finds `slots` where it has seen no stage at its limit. That is also the case
//! where the stage at its limit is one that nobody looks at: the machine of a server that this
//! program did not start, or the drive below a directory. So `slots` holds only if a step with more
//! in flight gained something, or if everything behind the route was seen.

use record::{
    Binding, Half, Route, Stage,
    steps::{Curve, GAIN_SHARE_MIN, Point, Unit},
};

/// What is behind a route, and whether its processors are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Nodes whose processors this process sees.
    Seen,
    /// A server on another machine.
    Server,
    /// A directory whose device or server is not known.
    Directory,
}

impl Behind {
    const fn unseen(self) -> Option<&'static str> {
        match self {
            Self::Seen => None,
            Self::Server => Some("the server's machine is not seen"),
            Self::Directory => Some("what is behind the directory is not seen"),
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::Seen => "look at the links and at memory",
            Self::Server => "look at the server's processors, drives and links",
            Self::Directory => "look at the device or the server that it is on",
        }
    }
}

/// What the next step of a workload showed.
enum Trend {
    /// There is none.
    Untried,
    /// More in flight gained, as this text says.
    Pays(String),
    /// More in flight gained less than half of what the first step did.
    Stalls(String),
}

/// Judges all cells of a half for which [`super::binding`] found `slots`.
pub fn judge(route: &mut Route, half: Half, behind: Behind) {
    let trends: Vec<(String, Trend)> = route.curves(half).iter().flat_map(trends).collect();
    for workload in route.workloads.iter_mut().filter(|workload| workload.half() == half) {
        let trend = trends.iter().find(|(name, _)| *name == workload.name).map(|(_, trend)| trend);
        let cells = [&mut workload.read, &mut workload.write].into_iter().flatten();
        for cell in cells.filter(|cell| cell.binding.stage == Stage::Slots) {
            cell.binding = judged(&cell.binding.evidence, trend.unwrap_or(&Trend::Untried), behind);
        }
    }
}

fn judged(little: &str, trend: &Trend, behind: Behind) -> Binding {
    match (trend, behind.unseen()) {
        (Trend::Pays(how), _) => Binding::new(Stage::Slots, format!("{little}; {how}")),
        (Trend::Untried, None) => Binding::new(Stage::Slots, little),
        (Trend::Untried, Some(unseen)) => {
            let evidence = format!(
                "{unseen}, and no greater depth was tried ({little}); try steps = {{ depth = [...] }}, and {}",
                behind.hint()
            );
            Binding::new(Stage::Unknown, evidence)
        }
        (Trend::Stalls(how), unseen) => {
            let unseen = unseen.unwrap_or("nothing seen was at its limit");
            let evidence = format!("{unseen}; {how}, so more in flight is no help: {}", behind.hint());
            Binding::new(Stage::Unknown, evidence)
        }
    }
}

/// The trend at each step: the next step's gain, or that of the last step itself.
fn trends(curve: &Curve<'_>) -> Vec<(String, Trend)> {
    let first = curve.points.first().map_or(0.0, |point| point.gain);
    if curve.points.len() < 2 || first <= 0.0 {
        return Vec::new();
    }
    let trend = |(at, point): (usize, &Point<'_>)| {
        let next = curve.points.get(at + 1);
        let judge = next.unwrap_or(point);
        let share = judge.gain / first;
        let (what, each) = match curve.unit {
            Unit::Clients => (format!("{} clients", judge.units), "client"),
            Unit::Depth => (format!("depth {}", judge.units), "operation in flight"),
        };
        let gained = format!("{what} gained {:.0} % of the first step for each {each}", share * 100.0);
        let trend = match next.and_then(bound_by) {
            _ if share >= GAIN_SHARE_MIN => Trend::Pays(gained),
            // More in flight brought a stage that is seen to its limit.
            Some(stage) => Trend::Pays(format!("with {what}, {stage} binds")),
            None => Trend::Stalls(gained),
        };
        (point.workload.name.clone(), trend)
    };
    curve.points.iter().enumerate().map(trend).collect()
}

/// The stage that was seen to bind a whole step.
fn bound_by<'a>(point: &Point<'a>) -> Option<&'a str> {
    let seen = |stage: &&Stage| !matches!(stage, Stage::Slots | Stage::Unknown);
    let mut stages = point.workload.cells().map(|(_, cell)| &cell.binding.stage);
    let first = stages.next().filter(seen)?;
    stages.all(|stage| seen(&stage)).then(|| first.label())
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Cell, Repeat, Step, Workload};

    fn workload(name: &str, speed: f64, stage: Stage) -> Workload {
        let repeats = vec![Repeat { gbytes_per_s: speed, ..Repeat::default() }];
        let binding = Binding::new(stage, "4 in flight");
        Workload {
            name: name.into(),
            read: Some(Cell { repeats, binding, ..Cell::default() }),
            ..Workload::default()
        }
    }

    /// A step test of clients on one route; the last step has the stage that is given.
    fn steps(speeds: &[f64], last: Stage) -> Route {
        let step = |(index, speed): (usize, &f64)| {
            let clients = 1 << index;
            let stage = if index + 1 == speeds.len() { last.clone() } else { Stage::Slots };
            let step = Step { series: "read".into(), clients, depth: 1, added: Some(Unit::Clients) };
            Workload { step: Some(step), ..workload(&format!("read x{clients}"), *speed, stage) }
        };
        Route { workloads: speeds.iter().enumerate().map(step).collect(), ..Route::default() }
    }

    fn judged_steps(speeds: &[f64], last: Stage, behind: Behind) -> Vec<Binding> {
        let mut route = steps(speeds, last);
        judge(&mut route, Half::Raw, behind);
        route.workloads.into_iter().map(|workload| workload.read.unwrap().binding).collect()
    }

    #[test]
    fn where_the_next_step_gains_nothing_the_stage_is_unknown_and_the_servers_machine_is_named() {
        let found = judged_steps(&[1.0, 2.0, 2.1, 2.1], Stage::Slots, Behind::Server);
        let stages: Vec<&Stage> = found.iter().map(|binding| &binding.stage).collect();
        assert_eq!(stages, [&Stage::Slots, &Stage::Unknown, &Stage::Unknown, &Stage::Unknown]);
        assert_eq!(
            found[0].evidence,
            "4 in flight; 2 clients gained 100 % of the first step for each client"
        );
        assert_eq!(
            found[1].evidence,
            "the server's machine is not seen; 4 clients gained 5 % of the first step for each client, so more \
             in flight is no help: look at the server's processors, drives and links"
        );
        assert!(found[3].evidence.contains("; 8 clients gained 0 % "), "the last step judges itself");
    }

    #[test]
    fn every_step_that_pays_is_bound_by_its_slots_whatever_is_seen() {
        for behind in [Behind::Seen, Behind::Server, Behind::Directory] {
            let found = judged_steps(&[1.0, 1.9, 3.7], Stage::Slots, behind);
            assert!(found.iter().all(|binding| binding.stage == Stage::Slots), "{found:?}");
        }
    }

    #[test]
    fn nothing_at_its_limit_is_unknown_even_where_all_is_seen() {
        let found = judged_steps(&[1.0, 1.1], Stage::Slots, Behind::Seen);
        assert_eq!(found[0].stage, Stage::Unknown);
        assert!(found[0].evidence.starts_with("nothing seen was at its limit; 2 clients gained 10 %"));
    }

    #[test]
    fn a_next_step_that_a_seen_stage_binds_explains_why_it_gains_nothing() {
        let found = judged_steps(&[1.0, 1.1], Stage::Cpu, Behind::Server);
        assert_eq!(found[0], Binding::new(Stage::Slots, "4 in flight; with 2 clients, CPU binds"));
        assert_eq!(found[1], Binding::new(Stage::Cpu, "4 in flight"), "what was seen stays");
    }

    #[test]
    fn a_single_workload_is_bound_by_its_slots_only_where_all_is_seen() {
        let single = |behind| {
            let mut route = Route { workloads: vec![workload("mix", 1.0, Stage::Slots)], ..Route::default() };
            judge(&mut route, Half::Raw, behind);
            route.workloads.remove(0).read.unwrap().binding
        };
        assert_eq!(single(Behind::Seen), Binding::new(Stage::Slots, "4 in flight"));
        for (behind, begin) in [
            (
                Behind::Server,
                "the server's machine is not seen, and no greater depth was tried (4 in flight)",
            ),
            (Behind::Directory, "what is behind the directory is not seen, and no greater depth was tried"),
        ] {
            let found = single(behind);
            assert_eq!(found.stage, Stage::Unknown);
            assert!(found.evidence.starts_with(begin), "{}", found.evidence);
            assert!(found.evidence.contains("try steps = { depth = [...] }"), "{}", found.evidence);
        }
    }

    #[test]
    fn one_step_that_was_measured_shows_no_trend_and_the_other_half_is_left_alone() {
        assert_eq!(judged_steps(&[1.0], Stage::Slots, Behind::Server)[0].stage, Stage::Unknown);
        assert_eq!(judged_steps(&[0.0, 0.0], Stage::Slots, Behind::Seen)[0].stage, Stage::Slots);
        let mut route = steps(&[1.0, 1.0], Stage::Slots);
        judge(&mut route, Half::Paced, Behind::Server);
        assert_eq!(route, steps(&[1.0, 1.0], Stage::Slots));
    }
}
