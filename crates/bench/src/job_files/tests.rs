//! Plans of job files: maps, sizes, names, phases, and what is refused.

use record::Direction;

use super::*;
use crate::jobs::Order;

const CLASSIC: &str = "[global]\nioengine=libaio\nbs=1M\nsize=1G\niodepth=16\nruntime=60\ntime_based=1\n";

/// The plan of job files with these texts, `a.fio`, `b.fio` and so on.
fn plan(texts: &[&str], maps: &[&str], shrink_bytes: Option<u64>) -> Result<Plan> {
    let directory = tempfile::tempdir().unwrap();
    let name = |index: usize| directory.path().join(format!("{}.fio", char::from(b'a' + index as u8)));
    let files: Vec<PathBuf> = (0..texts.len()).map(name).collect();
    files.iter().zip(texts).for_each(|(file, text)| std::fs::write(file, text).unwrap());
    let maps = maps.iter().map(ToString::to_string).collect();
    JobFiles { files, maps, shrink_bytes, ..JobFiles::default() }.plan()
}

fn chain(error: &Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn two_files_that_differ_in_their_directory_share_their_workloads() {
    let text = |directory: &str| {
        format!("{CLASSIC}[w]\nrw=write\nfilename={directory}/w\n[r]\nfilename={directory}/r\n")
    };
    let (one, other) = (text("/mnt/tcp"), text("/mnt/tcp-mp"));
    let maps = ["/mnt/tcp=nfs://h/one?nconnect=2&port=7", "/mnt/tcp-mp=group:2?nconnect=2"];
    let experiment = plan(&[&one, &other], &maps, Some(512 << 20)).unwrap().experiment;
    let names: Vec<&str> = experiment.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["tcp", "tcp-mp"]);
    assert_eq!(experiment.routes[0].target, Some(Target::Server("nfs://h/one".into())));
    assert_eq!(experiment.routes[0].options, "nconnect=2,port=7");
    assert!(
        matches!(experiment.routes[1].target, Some(Target::Embedded { nodes: 2, mem_bytes, .. }) if mem_bytes > 256 << 20)
    );
    let [mix] = experiment.job_files.as_slice() else { panic!("{:?}", experiment.job_files) };
    assert_eq!((mix.name(), mix.shape.readers, mix.shape.writers, mix.shape.depth), ("mix-1m", 1, 1, 16));
    assert_eq!(mix.bytes(), 256 << 20, "half of the room for each of the two job files");
    assert!(mix.has(Direction::Read) && mix.has(Direction::Write) && !mix.ends());
    assert_eq!(mix.window, Some(crate::Window { warm: Duration::ZERO, end: Duration::from_secs(60) }));
    assert_eq!(experiment.repeats, 8);
}

#[test]
fn phases_are_workloads_and_share_their_files() {
    let text = "[global]\nsize=1m\ndirectory=d\nfilename=x\n[fill]\nrw=write\n[read]\nstonewall\nbs=8k\n\
        [again]\nstonewall\nbs=8k\n[mix]\nstonewall\nrw=randrw\nrwmixread=70\nbs=512,3m\nsize=8m\nrate_iops=70,30\n";
    let plan = plan(&[text], &[".=nfs://h/e"], None).unwrap();
    let names: Vec<&str> = plan.experiment.job_files.iter().map(PlannedWorkload::name).collect();
    assert_eq!(names, ["fill", "read", "again", "mix"]);
    let workloads = &plan.experiment.job_files;
    assert!(workloads.iter().all(|workload| workload.files[0].name == "file.0"));
    assert!(workloads.iter().all(|workload| workload.files[0].bytes == 8 << 20), "the largest use");
    assert_eq!((workloads[0].jobs[0].io_bytes, workloads[0].jobs[0].file_bytes), (Some(1 << 20), 1 << 20));
    let mix = &workloads[3].jobs[0];
    assert_eq!((mix.read_percent, mix.order, mix.blocks[1].max), (70, Order::RandomOnce, 3 << 20));
    assert!(mix.rate.is_some_and(|rate| (rate - 100.0).abs() < 1e-9), "{:?}", mix.rate);
    assert_eq!(workloads[3].block_bytes(), None);
    assert_eq!((plan.experiment.repeats, plan.experiment.routes[0].name.as_str()), (1, "a"));
}

#[test]
fn files_are_shrunk_by_the_same_factor_to_whole_blocks() {
    let text =
        "[global]\nfilename_format=$jobname\nbs=64k\n[a]\nsize=3g\n[b]\nsize=1g\n[c]\nsize=1g\nio_size=2g\n";
    let experiment = plan(&[text], &[".=nfs://h/e"], Some(100_000_000)).unwrap().experiment;
    let [phase] = experiment.job_files.as_slice() else { panic!() };
    let blocks: Vec<u64> = phase.files.iter().map(|file| file.bytes / 65_536).collect();
    assert_eq!(blocks, [915, 305, 305]);
    assert!(phase.files.iter().all(|file| file.bytes % 65_536 == 0) && phase.bytes() <= 100_000_000);
    assert_eq!(phase.jobs[2].io_bytes, Some(2 * 305 * 65_536));
}

#[test]
fn phases_that_differ_are_not_compared() {
    let text = |directory: &str, bs: &str| format!("{CLASSIC}[j]\nfilename=/{directory}/r\nbs={bs}\n");
    let (one, other) = (text("x", "4k"), text("y", "8k"));
    let experiment = plan(&[&one, &other], &["/x=nfs://h/e", "/y=nfs://h/e"], None).unwrap().experiment;
    let names: Vec<&str> = experiment.job_files.iter().map(PlannedWorkload::name).collect();
    assert_eq!(names, ["j", "y-j"]);
    assert_eq!(experiment.routes[1].workloads, Some(vec![1]));
}

#[test]
fn what_cannot_run_is_refused_with_cause_and_advice() {
    let one = format!("{CLASSIC}[j]\nfilename=/x/r\n");
    let map = "/x=nfs://h/e";
    let deep = one.replace("iodepth=16", "iodepth=8192");
    let many = format!("{CLASSIC}[j]\nfilename=/x/r\nnumjobs=5000\n");
    for (texts, maps, shrink, cause, advice) in [
        (&[one.as_str()][..], &[][..], None, "no --map covers the file /x/r of the job j", "--map /x="),
        (&["[j]\nsize=1m\n"], &[map], None, "no --map covers the file j.0.0", "--map .="),
        (&["[j]\nsize=1m\nfilename=../r\n"], &[map], None, "above its directory", ".."),
        (&["[j]\nsize=1m\nbs=4k\nbx=1\n"], &[map], None, "line 4, column 1: unknown option bx", "bs"),
        (&[&one, &one], &[map, "/x/=nfs://h/f"], None, "a job file is one route", "a copy"),
        (&[&one], &["/x"], None, "no `=`", "--map"),
        (&[&one], &["=nfs://h/e"], None, "the directory is empty", "--map"),
        (&[&one], &["/x=h"], None, "", "--map"),
        (&[&one], &["/x=group:40?nconnect=2"], None, "1 to 16 nodes", "--map"),
        (&[&one], &[map, "/y=group:2", "/z=group:3"], None, "the same group", "group:3"),
        (&["[j]\nsize=1m\nfilename=/x/r:/y/r\n"], &[map, "/y=group:"], None, "of /x and of /y", "each"),
        (&[&one], &[map], Some(1000), "no room for a block", "--shrink 2MiB"),
        (&[&deep], &[map], None, "more than 4 GiB in flight", "iodepth"),
        (&[&many], &[map], None, "5000 jobs at the same time", "numjobs"),
        (&[&one.replace("1G", "900T")], &["/x=group:"], None, "of this machine's memory", "--shrink"),
    ] {
        let error = plan(texts, maps, shrink).expect_err(cause);
        let given = match &error {
            Error::JobFile { cause, .. } => cause.advice.clone(),
            Error::Refused { advice, .. } => advice.clone(),
            other => panic!("{other:?}"),
        };
        let said = chain(&error);
        assert!(said.contains(cause) && given.contains(advice), "{maps:?}: {said}; {given}");
    }
    assert!(matches!(
        JobFiles { files: vec!["/nowhere/x.fio".into()], ..JobFiles::default() }.plan(),
        Err(Error::Experiment { .. })
    ));
}

#[test]
fn the_innermost_map_decides_and_dots_do_not_matter() {
    let text = "[j]\nsize=1m\nfilename=//x/./y/r\n";
    let experiment = plan(&[text], &["/x=nfs://h/outer", "/x/y/=nfs://h/inner"], None).unwrap().experiment;
    assert_eq!(experiment.routes[0].target, Some(Target::Server("nfs://h/inner".into())));
    assert_eq!(experiment.routes[0].name, "y");
}

#[test]
fn a_map_may_lead_to_a_mount_of_the_kernels_client() {
    let text = "[j]\nsize=1m\nfilename=/x/r\n";
    let route = plan(&[text], &["/x=kernel:nfs://h/e?nconnect=8"], None).unwrap().experiment.routes.remove(0);
    assert_eq!(
        (route.options.as_str(), route.target),
        ("nconnect=8", Some(Target::Kernel("nfs://h/e".into())))
    );
}
