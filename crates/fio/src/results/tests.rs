//! Results of fio that are read, written, and broken.

use record::{Latency, Pattern};

use super::*;

/// A direction with these many operations of 4 KiB in a second, each of 100 us; `bins` as in json+.
fn direction(ops: u64, bins: bool) -> String {
    let bins = if bins && ops > 0 { format!(", \"bins\": {{\"100352\": {ops}}}") } else { String::new() };
    format!(
        "{{\"io_bytes\": {0}, \"bw_bytes\": {0}, \"bw\": {1}, \"iops\": {ops}.5, \"runtime\": 1000, \
         \"total_ios\": {ops}, \"short_ios\": 0, \"clat_ns\": {{\"min\": 1, \"max\": 100400, \"mean\": 100300.5, \
         \"N\": {ops}, \"percentile\": {{\"50.000000\": 100352, \"99.000000\": 101000}}{bins}}}}}",
        ops * 4096,
        ops * 4,
    )
}

fn job(name: &str, host: &str, group: u64, reads: u64, writes: u64, bins: bool) -> String {
    let host =
        if host.is_empty() { String::new() } else { format!(", \"hostname\": \"{host}\", \"port\": 8765") };
    format!(
        "{{\"jobname\": \"{name}\", \"groupid\": {group}, \"error\": 0{host}, \
         \"job options\": {{\"rw\": \"randrw\", \"iodepth\": \"8\"}}, \"read\": {}, \"write\": {}, \
         \"usr_cpu\": 5.0, \"sys_cpu\": 15.0, \"job_runtime\": 1000}}",
        direction(reads, bins),
        direction(writes, bins)
    )
}

fn file(list: &str, jobs: &[String]) -> String {
    format!(
        "{{\n \"fio version\": \"fio-3.33\", \"timestamp\": 1700000000,\n \
         \"global options\": {{\"bs\": \"4k\", \"group_reporting\": \"1\", \"numjobs\": \"3\"}},\n \
         \"{list}\": [{}], \"disk_util\": []\n}}\n",
        jobs.join(", ")
    )
}

#[test]
fn jobs_of_a_group_are_one_workload_whose_speeds_add_up() {
    let jobs =
        [job("a", "", 0, 300, 100, true), job("a", "", 0, 500, 0, true), job("b", "", 1, 0, 200, true)];
    let imported = read(&file("jobs", &jobs)).unwrap();
    let record = &imported.record;
    assert!(imported.notes.is_empty() && record.failed.is_empty(), "{:?}", imported.notes);
    assert_eq!(record.made_at, "2023-11-14T22:13:20Z");
    let route = record.route("fio").unwrap();
    let names: Vec<&str> = route.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let read = route.workloads[0].read.as_ref().unwrap();
    assert_eq!((read.ops, read.bytes, read.iops), (800, 800 * 4096, 801.0));
    assert!((read.gbytes_per_s - 800.0 * 4096.0 / 1e9).abs() < 1e-12);
    assert!((read.latency_us.p99 - 100.4).abs() < 0.2, "{:?}", read.latency_us);
    assert!((read.cpu_us_per_op.client - 444.4).abs() < 0.1, "0.4 s for 900 operations");
    assert!(route.workloads[1].read.is_none());
    let shape = &record.experiment.workloads[0];
    assert_eq!((shape.block_bytes, shape.depth, shape.pattern), (4096, 8, Pattern::Random));
    assert_eq!((shape.mixed, shape.readers), (3, 3));
}

#[test]
fn results_of_several_hosts_are_a_route_each() {
    let jobs = [
        job("a", "one", 0, 10, 0, false),
        job("a", "two", 0, 20, 0, false),
        job("All clients", "", 0, 30, 0, false),
    ];
    let imported = read(&file("client_stats", &jobs)).unwrap();
    let names: Vec<&str> = imported.record.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["one", "two", "all clients"]);
    let latency = imported.record.routes[0].workloads[0].read.as_ref().unwrap().latency_us;
    assert_eq!((latency.p50, latency.p99, latency.p99_99), (100.352, 101.0, None));
    assert!(imported.notes[0].contains("no bins"), "{:?}", imported.notes);
}

#[test]
fn hosts_have_their_parts_of_each_group_and_one_that_moved_little_is_a_straggler() {
    let host = |name: &str, port: u64, ops: u64| {
        let jobs = [job("a", name, 0, ops, 0, true), job("b", name, 1, 0, 10, true)];
        jobs.map(|job| job.replace("8765", &port.to_string()))
    };
    let slow = host("two", 8765, 10).map(|job| job.replace("\"runtime\": 1000", "\"runtime\": 1700"));
    let jobs = [host("one", 8765, 100), host("one", 8766, 100), slow];
    let sum = job("All clients", "one", 1, 210, 30, true);
    let text = file("client_stats", &[jobs.concat(), vec![sum]].concat());
    let record = read(&text).unwrap().record;
    let names: Vec<&str> = record.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["one,8765", "one,8766", "two", "all clients"]);
    let all = record.route("all clients").unwrap();
    let of_group = |index: usize| {
        let workload: &record::Workload = &all.workloads[index];
        let cells = workload.cells().map(|(_, cell)| cell.ops).sum::<u64>();
        let clients = workload.clients.iter().map(|it| (it.name.as_str(), it.ops, it.straggler));
        (workload.name.as_str(), cells, clients.collect::<Vec<_>>())
    };
    let parts = vec![("one,8765", 100, false), ("one,8766", 100, false), ("two", 10, true)];
    assert_eq!(of_group(0), ("a", 210, parts));
    let late = &all.workloads[1].clients[2];
    assert_eq!((of_group(1).1, late.ops, late.last_done_s), (30, 10, Some(1.7)));
    assert!(late.straggler && (late.share - 1.0 / 3.0).abs() < 1e-9, "it took longer");
    let named = |name: &str, host: &str, port| Host { name: name.into(), host: host.into(), port };
    let hosts = [named("x", "one", 8766), named("gone", "three", 8765)];
    let record = read_of(&file("client_stats", &host("one", 8766, 5)), &hosts).unwrap().record;
    let names: Vec<&str> = record.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["x", "all clients"], "two were asked");
    assert_eq!(record.routes[1].workloads[0].clients[0].name, "x");
    let hosts = [named("two", "two", 8765), named("one", "one", 8766)];
    let text = file("client_stats", &[host("one", 8766, 5), host("two", 8765, 5)].concat());
    let record = read_of(&text, &hosts).unwrap().record;
    let names: Vec<&str> = record.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["two", "one", "all clients"], "in the order of those who were asked");
}

#[test]
fn the_results_alone_are_without_what_is_printed_around_them() {
    let [one, two] = [10, 20].map(|ops| file("jobs", &[job("a", "", 0, ops, 0, true)]));
    let text = format!("<vm> Starting\n{one}{two}\nfio: bye {{\n");
    assert_eq!(json(&text).unwrap(), format!("{one}{two}").trim_end());
    assert!(matches!(json("fio: no\n"), Err(ReadError::NoJson)));
    assert!(matches!(json("{\"fio version\": "), Err(ReadError::Json(_))));
}

#[test]
fn text_before_the_json_and_results_along_the_way_are_skipped_with_a_note() {
    let early = file("jobs", &[job("a", "", 0, 10, 0, true)]);
    let late = file("jobs", &[job("a", "", 0, 20, 0, true)]);
    let imported = read(&format!("fio: a warning\n\nnote: both\n{early}{late}")).unwrap();
    assert_eq!(imported.record.routes[0].workloads[0].read.as_ref().unwrap().ops, 20);
    assert!(imported.notes[0].contains("2 lines before the JSON") && imported.notes[1].contains("2 results"));
    assert!(
        is_of_fio("fio: a warning\n{\n \"fio version\": 1")
            && !is_of_fio("{\"version\": 1}")
            && !is_of_fio("")
    );
}

#[test]
fn broken_results_are_refused_with_the_cause() {
    let whole = file("jobs", &[job("a", "", 0, 10, 0, true)]);
    assert!(matches!(read(""), Err(ReadError::NoJson)));
    assert!(matches!(read("fio: file not found\n"), Err(ReadError::NoJson)));
    assert!(matches!(read(&file("jobs", &[])), Err(ReadError::NoJobs)));
    for cut in [2, 40, whole.len() / 2, whole.len() - 4] {
        let error = read(&whole[..cut]).unwrap_err();
        assert!(matches!(error, ReadError::Json(_)) && error.to_string().contains("line"), "{cut}: {error}");
    }
    assert!(matches!(read(&whole.replace("\"iops\": 10.5", "\"iops\": \"x\"")), Err(ReadError::Json(_))));
    let failed = read(&whole.replace("\"error\": 0", "\"error\": 28")).unwrap();
    assert!(failed.record.failed[0].contains("error 28"));
}

#[test]
fn results_that_are_written_are_read_again() {
    let mut latency = Latency::new();
    (1..=1000).for_each(|us| latency.record_ns(us * 1000));
    let write = Results { bytes: 4_096_000, ops: 1000, runtime_ms: 500, latency };
    let job = JobResult {
        name: "w".into(),
        depth: 32,
        options: vec![("rw".into(), "write".into()), ("bs".into(), "4k".into())],
        directions: [Results::default(), write],
        ..JobResult::default()
    };
    let text = super::write("trunkline-0", 1_700_000_000, &[], &[job]);
    assert!(is_of_fio(&text));
    let imported = read(&text).unwrap();
    let cell = imported.record.routes[0].workloads[0].write.clone().unwrap();
    assert_eq!((cell.ops, cell.bytes, cell.iops), (1000, 4_096_000, 2000.0));
    assert!((cell.gbytes_per_s - 0.008192).abs() < 1e-9);
    assert!((cell.latency_us.p50 - 500.0).abs() < 5.0 && (cell.latency_us.p99 - 990.0).abs() < 10.0);
    assert!(imported.record.routes[0].workloads[0].read.is_none() && imported.notes.is_empty());
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\PC|\n|\\{|\"|:|,|\\}){0,120}") {
        let _ = (read(&text).is_ok(), is_of_fio(&text));
        let whole = file("jobs", &[job("a", "", 0, 10, 0, true)]);
        let _ = read(&whole.replacen("4096", &text, 1));
    }
}
