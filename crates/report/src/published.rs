//! Results that others have published, beside a record on request: each figure with its machine,
//! and what does not add up. They are no limits of the reader's machine and take part in no
//! verdict.

use std::collections::BTreeSet;

use record::{Measure, Pattern, Record, Route, Workload, stats};
use serde::Deserialize;

use crate::route_class::{self, Nfs, RouteClass};
use crate::{number, view};

/// A published document with its figures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The name for `--published`.
    pub name: String,
    /// The document.
    pub title: String,
    /// Where it was measured.
    pub machine: String,
    /// What was measured.
    pub load: String,
    /// What does not add up.
    pub doubts: Vec<String>,
    figures: Vec<Figure>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// The kind of the route: `tcp`, `rdma-mp`, `tcp-nfs4`; [`ANY_ROUTE`] if the document does not
    /// say over which transport.
    route: String,
    /// The route that a ratio is over.
    over: Option<String>,
    direction: Measure,
    /// Whether reads and writes ran at once.
    mixed: bool,
    /// In which order; absent if the document does not say.
    pattern: Option<Pattern>,
    block_bytes: Option<u64>,
    /// The number of clients in that step of a step test.
    clients: Option<u32>,
    gbytes_per_s: Option<f64>,
    iops: Option<f64>,
    ratio: Option<f64>,
    /// What was published, if the figure is computed from it.
    derived: Option<String>,
    note: Option<String>,
}

/// The route of a figure that stands beside every route.
const ANY_ROUTE: &str = "any";

/// All published results that this build knows.
pub fn published() -> Vec<Published> {
    #[derive(Deserialize)]
    struct File {
        result: Vec<Published>,
    }
    let file: File =
        toml::from_str(include_str!("../data/published.toml")).expect("a test reads the same text");
    file.result
}

/// The names of all published results, with their documents and machines.
pub fn published_list() -> String {
    let all = published();
    let width = all.iter().map(|it| it.name.len()).max().unwrap_or_default();
    let line = |it: &Published| format!("{:width$}  {}\n{:width$}  {}\n", it.name, it.title, "", it.machine);
    all.iter().map(line).collect()
}

/// A figure beside what a record has alike.
pub(crate) struct Beside {
    pub(crate) route: String,
    /// `reads, sequential, 1 MiB blocks`
    pub(crate) what: String,
    pub(crate) published: String,
    /// The comparable values of the record, each with its workload.
    pub(crate) here: Vec<String>,
}

impl Published {
    /// Each figure beside the comparable values of a record.
    pub(crate) fn beside(&self, record: &Record) -> Vec<Beside> {
        self.figures.iter().map(|figure| figure.beside(record)).collect()
    }
}

impl Figure {
    fn beside(&self, record: &Record) -> Beside {
        let direction = match self.direction {
            Measure::Both => "reads and writes together",
            Measure::Read => "reads",
            Measure::Write => "writes",
        };
        let pattern = match self.pattern {
            Some(Pattern::Sequential) => ", sequential",
            Some(Pattern::Random) => ", random",
            None => "",
        };
        let alone = if self.direction != Measure::Both && self.mixed { ", both at once" } else { "" };
        let blocks = self.block_bytes.map(|bytes| format!(", {} blocks", number::bytes(bytes)));
        let clients = self.clients.map(|clients| format!(", {clients} clients")).unwrap_or_default();
        let over = self.over.as_ref().map_or_else(String::new, |over| format!(" over {over}"));
        Beside {
            route: format!("{}{over}", self.route),
            what: format!("{direction}{alone}{pattern}{}{clients}", blocks.unwrap_or_default()),
            published: self.value(),
            here: self.here(record),
        }
    }

    fn value(&self) -> String {
        let value = match (self.gbytes_per_s, self.iops, self.ratio) {
            (Some(speed), ..) => format!("{} GB/s", number::fine(speed)),
            (_, Some(iops), _) => format!("{} kIOPS", number::kiops(iops)),
            (_, _, Some(ratio)) => format!("{} times", number::ratio(ratio)),
            _ => "-".to_owned(),
        };
        let more: Vec<&str> = self.derived.iter().chain(&self.note).map(String::as_str).collect();
        if more.is_empty() { value } else { format!("{value} ({})", more.join("; ")) }
    }

    fn here(&self, record: &Record) -> Vec<String> {
        let mut found = Vec::new();
        for route in record.routes.iter().filter(|route| is_of(&self.route, route)) {
            let alike = route.workloads.iter().filter(|workload| self.is_alike(record, workload));
            for workload in alike {
                let mut of_routes: Vec<(Option<&Route>, String)> = Vec::new();
                match &self.over {
                    None => of_routes.extend(self.found(route, workload).map(|value| (None, value))),
                    Some(over) => of_routes.extend(
                        partners(record, over, route, workload)
                            .filter_map(|other| Some((Some(other), self.ratio(workload, other)?))),
                    ),
                }
                found.extend(of_routes.into_iter().map(|(over, value)| {
                    let routes = [Some(route), over].into_iter().flatten();
                    let named = [Some(&self.route), self.over.as_ref()].into_iter().flatten();
                    format!("{value} ({})", name_of(routes, named, workload))
                }));
            }
        }
        found
    }

    fn is_alike(&self, record: &Record, workload: &Workload) -> bool {
        let shape = record.experiment.workloads.iter().find(|shape| shape.name == workload.name);
        shape.is_some_and(|shape| {
            let is_mixed = workload.read.is_some() && workload.write.is_some();
            let clients = workload.step.as_ref().map(|step| step.clients);
            is_mixed == self.mixed
                && (self.clients.is_none() || self.clients == clients)
                && self.pattern.is_none_or(|pattern| pattern == shape.pattern)
                && self.block_bytes.is_none_or(|bytes| bytes == shape.block_bytes)
        })
    }

    /// The ratio of a workload's speed to that on another route.
    fn ratio(&self, workload: &Workload, over: &Route) -> Option<String> {
        let other = over.workload(&workload.name, workload.half())?;
        let (speeds, others) = (workload.speeds(self.direction), other.speeds(self.direction));
        let ratio = stats::ratio_of_pairs(&speeds, &others, 1)?;
        let [low, high] = number::interval_of_ratio(ratio.interval_95);
        Some(format!("{} times (95 %: {low} to {high})", number::ratio(ratio.ratio)))
    }

    /// The record's value of the same kind.
    fn found(&self, route: &Route, workload: &Workload) -> Option<String> {
        if self.direction == Measure::Both && (workload.read.is_none() || workload.write.is_none()) {
            return None;
        }
        let speeds = workload.speeds(self.direction);
        let speed = stats::median(&speeds)?;
        if self.iops.is_some() {
            let cells = workload.cells().filter(|(direction, _)| match self.direction {
                Measure::Both => true,
                Measure::Read => *direction == record::Direction::Read,
                Measure::Write => *direction == record::Direction::Write,
            });
            return Some(format!("{} kIOPS", number::kiops(cells.map(|(_, cell)| cell.iops).sum())));
        }
        let limit = route.workload(&workload.name, workload.half()).and_then(|found| match self.direction {
            Measure::Read => found.read.as_ref()?.limit_share,
            Measure::Write => found.write.as_ref()?.limit_share,
            Measure::Both => None,
        });
        let limit = limit.map(|share| format!(", {} % of its limit", number::percent(share)));
        Some(format!("{} GB/s{}", number::fine(speed), limit.unwrap_or_default()))
    }
}

/// Whether a route is of the kind that a figure names: by what it is, and only where the record
/// does not say that, by its name.
fn is_of(name: &str, route: &Route) -> bool {
    match RouteClass::of(route) {
        RouteClass::Nfs(class) => name == ANY_ROUTE || Nfs::of_name(name) == Some(class),
        RouteClass::Unknown => name == ANY_ROUTE || name == route.name,
        RouteClass::Other => Nfs::of_name(name).is_none() && name == route.name,
    }
}

/// The routes of the kind `over` with which this one can be compared: by the same NFS client, on
/// the same clients.
fn partners<'a>(
    record: &'a Record,
    over: &'a str,
    route: &'a Route,
    workload: &'a Workload,
) -> impl Iterator<Item = &'a Route> {
    let clients = |workload: &Workload| {
        workload.clients.iter().map(|client| client.name.clone()).collect::<BTreeSet<String>>()
    };
    record.routes.iter().filter(move |other| {
        let same = other.workload(&workload.name, workload.half());
        let same_clients = same.is_some_and(|same| clients(same) == clients(workload));
        is_of(over, other) && other.access == route.access && same_clients
    })
}

/// The workload with what applies to its numbers: `mix-1m, paced at 2 Gbit/s a node`, after the
/// routes whose names are not those of the figure: `rdma host over tcp host, read-64k`.
fn name_of<'a>(
    routes: impl Iterator<Item = &'a Route>,
    named: impl Iterator<Item = &'a String>,
    workload: &Workload,
) -> String {
    let routes: Vec<&Route> = routes.collect();
    let names: Vec<&str> = routes.iter().map(|route| route.name.as_str()).collect();
    let is_told = names.iter().copied().eq(named.map(String::as_str));
    let routes_named = (!is_told).then(|| names.join(" over "));
    let by_kernel = routes.iter().any(|route| route.access.as_deref().is_some_and(route_class::is_nfs));
    let by_kernel = by_kernel.then(|| "by the kernel's client".to_owned());
    let pace = workload.pace.map(|pace| format!("paced at {}", number::pace(pace)));
    let simulated = workload.simulated.as_ref().map(|what| format!("simulated: {what}"));
    let name = std::iter::once(workload.name.clone());
    let parts = routes_named.into_iter().chain(by_kernel).chain(name).chain(pace).chain(simulated);
    parts.collect::<Vec<String>>().join(", ")
}

/// The machine of the record, for the heading of its column.
pub(crate) fn this_machine(record: &Record) -> String {
    format!("this record ({})", view::machine(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn of(name: &str) -> Published {
        published().into_iter().find(|it| it.name == name).expect("a published result")
    }

    #[test]
    fn each_result_has_its_machine_its_doubts_and_one_value_for_each_figure() {
        let all = published();
        assert!(all.len() >= 6);
        for result in &all {
            assert!(!result.machine.is_empty() && !result.load.is_empty() && !result.doubts.is_empty());
            for figure in &result.figures {
                let values = [figure.gbytes_per_s, figure.iops, figure.ratio];
                assert_eq!(values.iter().flatten().count(), 1, "{}: {figure:?}", result.name);
                assert_eq!(figure.ratio.is_some(), figure.over.is_some(), "{}: {figure:?}", result.name);
                assert!(values.iter().flatten().all(|value| *value > 0.0));
            }
        }
        let list = published_list();
        assert!(all.iter().all(|it| list.contains(&it.name) && list.contains(&it.machine)), "{list}");
    }

    #[test]
    fn figures_computed_from_published_ones_are_right() {
        // Gbit/s and binary units in decimal GB/s, and the sums that the doubts mention.
        let near = |one: f64, other: f64| (one - other).abs() < 0.006;
        let speed = |name: &str, derived: &str| {
            let figures = of(name).figures;
            let figure = figures.iter().find(|it| it.derived.as_deref() == Some(derived)).expect("derived");
            figure.gbytes_per_s.expect("a speed")
        };
        assert!(near(speed("powerscale-f210", "65.81 Gbit/s"), 65.81 / 8.0));
        assert!(near(speed("powerscale-f210", "17.38 Gbit/s"), 17.38 / 8.0));
        assert!(near(speed("powerscale-f210", "93.38 Gbit/s"), 93.38 / 8.0));
        assert!(near(speed("powerscale-f210", "20.50 Gbit/s"), 20.50 / 8.0));
        assert!(near(speed("powerscale-f200", "1451 MiB/s"), 1451.0 * 1.048576e-3));
        assert!(near(speed("powerscale-f200", "1446 MiB/s"), 1446.0 * 1.048576e-3));
        for (derived, gib) in [
            ("39 GiB/s", 39.0),
            ("41 GiB/s", 41.0),
            ("33 GiB/s", 33.0),
            ("11.6 GiB/s", 11.6),
            ("15 GiB/s", 15.0),
            ("22.4 GiB/s", 22.4),
        ] {
            assert!(near(speed("ef600", derived), gib * 1.073741824), "{derived}");
        }
        let steps: Vec<u32> = (1..=20).map(|clients: u32| clients * 21_000).collect();
        assert_eq!(4 * 42_000 + 20_000, 188_000);
        assert_eq!(188_000 + steps[4], 293_000);
        assert_eq!(188_000 + steps[9], 398_000, "with ten more, nineteen");
        let doubts = of("sun-7410").doubts.join(" ");
        for number in ["188,000", "293,000", "398,000"] {
            assert!(doubts.contains(number), "{number}");
        }
    }

    #[test]
    fn a_figure_stands_beside_what_is_alike_and_nothing_else() {
        let record = sample::record();
        let beside = of("powerscale-f210").beside(&record);
        let row = |route: &str, what: &str| {
            beside.iter().find(|row| row.route == route && row.what.starts_with(what)).expect("a figure")
        };
        let both = row("tcp-mp", "reads and writes together");
        assert_eq!(both.published, "8.20 GB/s (nodes 0.72, 3.0, 3.7 and 0.89 GB/s)");
        assert_eq!(both.here.len(), 2, "{:?}", both.here);
        assert!(both.here[1].ends_with("GB/s (mix-1m, paced at 2 Gbit/s a node)"), "{:?}", both.here);
        let read = row("tcp-mp", "reads, ");
        assert!(read.here[0].contains("% of its limit (mix-1m)"), "{:?}", read.here);
        assert!(row("rdma", "reads and writes together").here.is_empty(), "skipped");
        let sun = of("sun-7410").beside(&record);
        assert!(sun.iter().all(|row| row.here.is_empty()), "streams of reads alone are not half a mix");
        let mut alone = sample::record();
        alone.routes[0].workloads[0].write = None;
        let sun = of("sun-7410").beside(&alone);
        assert!(sun.iter().any(|row| row.here.iter().any(|it| it.ends_with("(mix-1m)"))));
        let mut several = sample::record();
        several.routes[1].options = "proto=rdma,remoteports=127.0.0.1-127.0.0.4".into();
        several.routes.truncate(2);
        let aff = of("aff-a400").beside(&several);
        assert!(aff.iter().any(|row| row.here.iter().any(|it| it.ends_with("kIOPS (tcp-mp, random-4k)"))));
        let ratios = of("linux-ramdisk").beside(&record);
        assert!(ratios.iter().all(|row| row.here.is_empty()), "no such blocks, no RDMA");
    }

    /// Every figure that the documents give, as they give it.
    #[test]
    fn no_published_figure_is_left_out() {
        let all = published();
        let known = |name: &str, values: &[f64], of: fn(&Figure) -> Option<f64>| {
            let result = all.iter().find(|it| it.name == name).expect("a result");
            let known: Vec<f64> = result.figures.iter().filter_map(of).collect();
            for value in values {
                assert!(known.iter().any(|one| (one - value).abs() < 1e-9), "{name}: {value} of {known:?}");
            }
            assert_eq!(known.len(), values.len(), "{name}: {known:?}");
        };
        let speed = |it: &Figure| it.gbytes_per_s;
        let iops = |it: &Figure| it.iops;
        let ratio = |it: &Figure| it.ratio;
        known("powerscale-f210", &[6.4, 8.2, 8.226, 2.173, 7.7, 14.6, 11.673, 2.563], speed);
        known("powerscale-f200", &[1.522, 1.516], speed);
        known("linux-ramdisk", &[2.39, 1.39, 1.84, 1.35, 2.23, 1.41, 2.30, 1.80], ratio);
        known("aff-a400", &[11.342, 3.628, 5.752, 2.385], speed);
        known("aff-a400", &[433e3, 174e3, 136e3, 75.6e3], iops);
        known("sun-7410", &[3.18, 2.51, 1.0, 2.4, 1.51, 0.752], speed);
        known("sun-7410", &[42e3, 188e3], iops);
        known("ef600", &[41.88, 12.46, 44.02, 12.46, 35.43, 16.11, 44.02, 24.05], speed);
        known("ef600", &[2e6], iops);
    }

    #[test]
    fn a_step_test_whose_transport_is_not_named_stands_beside_the_same_step_of_each_route() {
        let mut record = sample::steps();
        record.experiment.workloads.iter_mut().for_each(|shape| shape.block_bytes = 4096);
        let beside = of("sun-7410").beside(&record);
        let steps: Vec<&Beside> = beside.iter().filter(|row| row.route == ANY_ROUTE).collect();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].what, "reads, 4 KiB blocks, 2 clients");
        assert!(steps[0].published.starts_with("42.0 kIOPS"), "{}", steps[0].published);
        assert_eq!(steps[0].here.len(), 2, "one of each route: {:?}", steps[0].here);
        assert!(steps[0].here.iter().all(|it| it.contains(" kIOPS (")), "{:?}", steps[0].here);
        assert!(steps[1].here.is_empty(), "no step of nine clients: {:?}", steps[1].here);
    }

    /// The routes of a record with other names, options and whose mounts they are.
    fn renamed(routes: [(&str, &str, Option<&str>); 2]) -> Record {
        let mut record = sample::record();
        record.routes.retain(|route| route.skipped.is_none());
        for (route, (name, options, access)) in record.routes.iter_mut().zip(routes) {
            (route.name, route.options) = (name.into(), options.into());
            route.access = access.map(str::to_owned);
            route.paths.clear();
        }
        record
    }

    const KERNEL: Option<&str> = Some("O_DIRECT on the kernel's NFS client, by our threads");

    #[test]
    fn a_ratio_is_that_of_routes_of_these_kinds_by_the_same_client() {
        let ratio = |record: &Record, route: &str| -> Vec<String> {
            let ratios = of("linux-ramdisk").beside(record);
            let is_random = |row: &Beside| row.route == route && row.what.starts_with("reads, random");
            ratios.into_iter().find(is_random).expect("a figure").here
        };
        let plain = renamed([("tcp", "nconnect=1", None), ("rdma", "proto=rdma", None)]);
        let here = ratio(&plain, "rdma over tcp");
        assert!(here[0].ends_with("(random-4k)") && here[0].contains(" times (95 %: "), "{here:?}");
        let named = renamed([("tcp host", "nconnect=1", None), ("rdma host", "proto=rdma", None)]);
        let here = ratio(&named, "rdma over tcp");
        assert!(here[0].ends_with("(rdma host over tcp host, random-4k)"), "{here:?}");
        let v4 = renamed([("a", "vers=4.2", KERNEL), ("b", "vers=4.2,proto=rdma", KERNEL)]);
        let here = ratio(&v4, "rdma-nfs4 over tcp-nfs4");
        assert!(here[0].ends_with("(b over a, by the kernel's client, random-4k)"), "{here:?}");
        assert!(ratio(&v4, "rdma over tcp").is_empty(), "another version");
        let unlike = renamed([("kernel tcp", "", KERNEL), ("ours rdma", "proto=rdma", None)]);
        assert!(ratio(&unlike, "rdma over tcp").is_empty(), "two clients say nothing of two transports");
        let mut groups = renamed([("tcp vms", "nconnect=1", None), ("rdma host", "proto=rdma", None)]);
        let vm = record::ClientResult { name: "vm1".into(), ..record::ClientResult::default() };
        groups.routes[0].workloads.iter_mut().for_each(|workload| workload.clients = vec![vm.clone()]);
        assert!(ratio(&groups, "rdma over tcp").is_empty(), "other clients");
    }

    #[test]
    fn routes_are_matched_by_what_they_are_and_not_by_their_names() {
        let kernel = ("kernel tcp", "nconnect=4,port=2049", KERNEL);
        let several = ("tcp-multipath", "nconnect=8,remoteports=10.0.0.1-10.0.0.4", None);
        let beside = of("powerscale-f210").beside(&renamed([kernel, several]));
        let here = |route: &str| {
            let row =
                beside.iter().find(|row| row.route == route && row.what.starts_with("reads and writes"));
            row.expect("a figure").here.clone()
        };
        assert!(
            here("tcp")[0].ends_with("GB/s (kernel tcp, by the kernel's client, mix-1m)"),
            "{:?}",
            here("tcp")
        );
        assert!(here("tcp-mp")[0].ends_with("GB/s (tcp-multipath, mix-1m)"), "{:?}", here("tcp-mp"));
        assert!(here("rdma").is_empty() && here("rdma-mp").is_empty());
        let local = Some("O_DIRECT on ext4, by our threads");
        let misnamed = renamed([("rdma", "nconnect=4", None), ("tcp", "", local)]);
        let beside = of("powerscale-f210").beside(&misnamed);
        let found: Vec<&str> =
            beside.iter().filter(|row| !row.here.is_empty()).map(|row| row.route.as_str()).collect();
        assert_eq!(found, ["tcp"], "a name is no transport, and a local file system no route over TCP");
        let mut of_fio = renamed([("tcp", "", None), ("disk", "", local)]);
        assert!(!of("powerscale-f210").beside(&of_fio)[0].here.is_empty(), "only its name says what it is");
        of_fio.experiment.workloads.iter_mut().for_each(|shape| shape.block_bytes = 4096);
        let any = of("sun-7410").beside(&of_fio);
        assert!(any.iter().all(|row| row.here.iter().all(|it| !it.contains("disk"))), "{}", any.len());
    }
}
