//! Job files: good ones, bad ones, and texts that are almost right.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<JobFile> {
    JobFile::parse(text, &Context::default())
}

fn one(text: &str) -> Job {
    parse(text).unwrap().phases.remove(0).jobs.remove(0)
}

fn paths(job: &Job) -> Vec<&str> {
    job.instances.iter().flat_map(|one| &one.files).map(|file| file.path.as_str()).collect()
}

#[test]
fn a_published_comparison_is_read_as_it_is() {
    let text = "[global]\nioengine=libaio\ndirect=1\nbs=1M # Block size set to 1MB\nsize=10G # File size\n\
        numjobs=1 # One job per file\niodepth=128\nruntime=60 # seconds\ntime_based=1\ngroup_reporting=1\n\
        # Simultaneous Writes\n[write1]\nrw=write # Write operation\nfilename=/mnt/tcp/testfile_write1 # First\n\
        [read1]\nrw=read\nfilename=/mnt/tcp/testfile_read1\n";
    let file = parse(text).unwrap();
    assert_eq!(file.phases.len(), 1);
    let [write, read] = file.phases[0].jobs.as_slice() else { panic!("{file:?}") };
    assert_eq!((write.name.as_str(), write.access, read.access), ("write1", Access::Write, Access::Read));
    assert_eq!(
        (write.depth, write.write, write.io_bytes),
        (128, Blocks { min: 1 << 20, max: 1 << 20 }, None)
    );
    assert_eq!((write.runtime_us, write.group_reporting, write.direct), (Some(60_000_000), true, true));
    assert_eq!(paths(write), ["/mnt/tcp/testfile_write1"]);
    assert_eq!(write.instances[0].files[0].bytes, 10 << 30);
    let noted: Vec<&str> = file.notes.iter().map(|note| note.option.as_str()).collect();
    assert!(noted.contains(&"direct") && noted.contains(&"ioengine"), "{noted:?}");
}

#[test]
fn globals_apply_to_the_sections_below_them() {
    let file =
        parse("[global]\nbs=8k\nsize=1m\n[a]\n[global]\nbs=16k\nstonewall\n[b]\n[c]\nbs=4k\n").unwrap();
    let blocks: Vec<Vec<u64>> =
        file.phases.iter().map(|phase| phase.jobs.iter().map(|job| job.read.min).collect()).collect();
    assert_eq!(blocks, [[8192], [16384], [4096]]);
}

#[test]
fn a_stonewall_begins_a_phase_and_a_group() {
    let file = parse("[global]\nsize=1m\n[a]\n[b]\nnew_group\n[c]\nwait_for_previous\n[d]\n").unwrap();
    let groups: Vec<Vec<(&str, usize)>> = file
        .phases
        .iter()
        .map(|phase| phase.jobs.iter().map(|job| (job.name.as_str(), job.group)).collect())
        .collect();
    assert_eq!(groups, [[("a", 0), ("b", 1)], [("c", 2), ("d", 2)]]);
}

#[test]
fn files_are_named_as_fio_names_them() {
    assert_eq!(
        paths(&one("[a]\nsize=8k\nnumjobs=2\nnrfiles=2\nbs=1k\n")),
        ["a.0.0", "a.0.1", "a.1.0", "a.1.1"]
    );
    assert_eq!(paths(&one("[a]\nsize=8k\ndirectory=/d/\nnumjobs=2\n")), ["/d/a.0.0", "/d/a.1.0"]);
    assert_eq!(paths(&one("[a]\nsize=8k\ndirectory=/d:/e\nnumjobs=2\n")), ["/d/a.0.0", "/e/a.1.0"]);
    let named = "[a]\nsize=8k\nfilename_format=f/$jobname-$jobnum-$filenum\nnumjobs=2\n";
    assert_eq!(paths(&one(named)), ["f/a-0-0", "f/a-1-0"]);
    // fio expands no keyword in `filename`, and all clones share the files.
    let job = one("[a]\nsize=8k\nfilename=x\\:1:y.$jobnum\nnumjobs=2\n");
    assert_eq!(paths(&job), ["x:1", "y.$jobnum", "x:1", "y.$jobnum"]);
    assert_eq!(job.instances[0].files[0].bytes, 4096, "the size is that of all files");
    assert_eq!(one("[a]\nfilesize=8k\nnrfiles=3\n").io_bytes, Some(3 * 8192));
}

#[test]
fn a_file_may_be_larger_than_what_the_job_moves_as_in_fio() {
    // fio 3.33 makes files of 4 MiB, and moves 1 MiB anywhere in them.
    let sizes = |text: &str| {
        let job = one(text);
        (job.instances[0].files.iter().map(|file| file.bytes >> 20).collect::<Vec<_>>(), job.io_bytes)
    };
    assert_eq!(sizes("[a]\nfilesize=4m\nsize=1m\n"), (vec![4], Some(1 << 20)));
    assert_eq!(sizes("[a]\nfilesize=4m\nsize=2m\nnrfiles=2\n"), (vec![4, 4], Some(2 << 20)));
    assert_eq!(sizes("[a]\nfilesize=4m\nsize=1m\nloops=2\n"), (vec![4], Some(2 << 20)));
    assert_eq!(sizes("[a]\nfilesize=4m\nsize=1m\nio_size=2m\n"), (vec![4], Some(2 << 20)));
    assert_eq!(sizes("[a]\nfilesize=4m\nio_size=1m\n"), (vec![4], Some(1 << 20)));
    assert_eq!(sizes("[a]\nfilesize=1m\nsize=8m\nnrfiles=2\n"), (vec![1, 1], Some(2 << 20)));
    assert_eq!(sizes("[a]\nfilesize=4m\nsize=1m\ntime_based\nruntime=1\n"), (vec![4], None));
    let error = parse("[a]\nfilesize=4m\nsize=1k\n").unwrap_err();
    assert!(error.cause.contains("files of 1024 bytes have no room"), "{error}");
}

#[test]
fn names_that_no_system_takes_are_refused_with_their_line() {
    let long = "x".repeat(4095);
    assert_eq!(paths(&one(&format!("[a]\nsize=8k\nfilename={long}\n"))), [long.as_str()]);
    let keyword = "$jobname".repeat(500);
    let name = "n".repeat(200);
    for (text, line) in [
        (format!("[a]\nsize=8k\nfilename={long}x\n"), 3),
        (format!("[a]\nfilename=a:{long}x:b\nsize=8k\n"), 2),
        (format!("[a]\nsize=8k\ndirectory=/d\nfilename={long}\n"), 4),
        (format!("[global]\nsize=8k\ndirectory={long}\n[a]\n"), 3),
        (format!("[a]\nsize=8k\ndirectory={long}x\n"), 3),
        (format!("[a]\nsize=8k\nname={long}x\n"), 3),
        (format!("[a]\nsize=8k\n[{long}x]\nsize=8k\n"), 3),
        (format!("[a]\nsize=8k\nname={long}\n"), 1),
        (format!("[global]\nsize=8k\nfilename_format={keyword}\n[{name}]\n"), 3),
    ] {
        let error = parse(&text).unwrap_err();
        assert_eq!(error.line, line, "{}", error.cause);
        assert!(error.cause.contains("no system takes more than 4095"), "{}", error.cause);
        assert!(error.advice.contains("shorter"), "{}", error.advice);
    }
    // It would have 2,000,000,000 bytes.
    let huge = format!("[{}]\nsize=8k\nfilename_format={}\n", "n".repeat(4000), "$jobname".repeat(500_000));
    assert_eq!(parse(&huge).unwrap_err().line, 3);
}

#[test]
fn depth_mix_and_rates_are_those_of_fio() {
    assert_eq!(one("[a]\nsize=1m\niodepth=32\n").depth, 1, "psync is the default");
    assert_eq!(one("[a]\nsize=1m\niodepth=32\nioengine=io_uring\n").depth, 32);
    assert_eq!(one("[a]\nsize=1m\nrw=randrw\nrwmixwrite=30\n").read_percent, 70);
    assert_eq!(one("[a]\nsize=1m\nrw=rw\n").read_percent, 50);
    assert_eq!(one("[a]\nsize=1m\nrate_iops=100,200\n").rate_iops, [Some(100.0), Some(200.0)]);
    assert_eq!(one("[a]\nsize=1m\nrate=1m\nbs=4k,8k\n").rate_iops, [Some(256.0), Some(128.0)]);
    let job = one("[a]\nsize=1m\nbsrange=1k-5k,8k-32k\nrw=randrw\nnorandommap\n");
    assert_eq!((job.read, job.write), (Blocks { min: 1024, max: 5120 }, Blocks { min: 8192, max: 32768 }));
    assert!(job.random && !job.random_map && job.smallest_block() == 1024 && job.largest_block() == 32768);
}

#[test]
fn a_job_ends_by_its_size_or_by_time() {
    assert_eq!(one("[a]\nsize=1m\nloops=3\n").io_bytes, Some(3 << 20));
    assert_eq!(one("[a]\nsize=1m\nio_size=2m\nruntime=500ms\n").io_bytes, Some(2 << 20));
    let timed = one("[a]\nsize=1m\ntime_based\nruntime=2\nramp_time=1\n");
    assert_eq!((timed.io_bytes, timed.runtime_us, timed.ramp_us), (None, Some(2_000_000), 1_000_000));
}

#[test]
fn what_cannot_be_carried_out_is_refused_with_line_cause_and_advice() {
    for (text, line, cause, advice) in [
        ("", 1, "no job", "[job1]"),
        ("[global]\nbs=4k\n", 1, "no job", "[job1]"),
        ("[a]\nsize=1m\nblocksiz=4k\n", 3, "unknown option blocksiz", "blocksize"),
        ("[a]\nsize=1m\nthinktime=5\n", 3, "thinktime is not supported", "without that line"),
        ("[a]\nsize=1m\nstartdelay=5\n", 3, "startdelay=5 is not supported", "startdelay=0"),
        ("[a]\nsize=1m\nrw=trim\n", 3, "`trim`", "randrw"),
        ("[a]\nsize=1m\nrw=randread:8\n", 3, "`randread:8`", "randread"),
        ("[a]\nsize=1m\nioengine=rados\n", 3, "engine rados", "libaio"),
        ("[a]\nsize=1m\niodepth=0\n", 3, "out of range", "1 to"),
        ("[a]\nsize=1m\nnumjobs=9999999\n", 3, "out of range", "1 to"),
        ("[a]\nsize=1m\nbs=0\n", 3, "no block", "4k"),
        ("[a]\nsize=1m\nbsrange=8k-4k\n", 3, "no block", "4k-16k"),
        ("[a]\nsize=1m\nbs=1,2,3,4\n", 3, "more than three", "4k,8k"),
        ("[a]\nsize=50%\n", 2, "percentage", "10G"),
        ("[a]\nsize=1.5m\n", 2, "no size", "10G"),
        ("[a]\nsize=\n", 2, "no value", "size=VALUE"),
        ("[a]\nrw=read\n", 1, "no size", "size=1G"),
        ("[a]\nsize=1k\n", 1, "no room for a block", "smaller bs"),
        ("[a]\nsize=1m\ntime_based\n", 1, "no runtime", "runtime=60"),
        ("[a]\nsize=1m\nruntime=soon\n", 3, "no time", "500ms"),
        ("[a]\nsize=1m\nrwmixread=120\n", 3, "percentage", "100"),
        ("[a]\nsize=1m\ndirect=true\n", 3, "neither 0 nor 1", "1 for on"),
        ("[a]\nsize=1m\nrate=1m\nrate_iops=5\n", 1, "together", "one of them"),
        ("[a]\nsize=1m\nrw=rw\nrate_iops=5,\n", 1, "one direction", "100,100"),
        ("[a]\nsize=1m\nkb_base=7\n", 3, "no base", "1024"),
        ("[a]\nsize=1m\nfilename=:\n", 3, "without a name", "filename=NAME"),
        ("[a]\nsize=1m\nruntime=1\n[b]\nsize=1m\nruntime=2\n", 4, "at the same time", "stonewall"),
        ("[a]\nsize=1m\nnrfiles=9000\nbs=1\n[b]\nsize=1m\nnrfiles=9000\nbs=1\n", 5, "more than", "fewer"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.cause.contains(cause) && error.advice.contains(advice), "{text}: {error:?}");
    }
}

#[test]
fn a_kibibyte_of_fio_is_pointed_out() {
    let file = parse("[a]\nsize=1MiB\nbs=4k\n").unwrap();
    assert_eq!(file.phases[0].jobs[0].io_bytes, Some(1_000_000));
    assert!(file.notes.iter().any(|note| note.line == 2 && note.text.contains("1000")), "{:?}", file.notes);
    let other = parse("[global]\nkb_base=1000\n[a]\nsize=1MiB\n").unwrap();
    assert_eq!(other.phases[0].jobs[0].io_bytes, Some(1 << 20));
}

/// Lines that are likely to be almost right.
fn line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "bs",
        "size",
        "rw",
        "iodepth",
        "numjobs",
        "nrfiles",
        "filename",
        "directory",
        "runtime",
        "rate",
        "rate_iops",
        "bsrange",
        "stonewall",
        "kb_base",
        "loops",
        "io_size",
        "filesize",
        "x",
    ]);
    let value = prop_oneof![
        "[0-9]{1,22}[kKmMgGtTpPiIbB%]{0,3}",
        "[0-9]{0,3}[-,:][0-9]{0,3}[kms]{0,2}",
        "\\PC{0,12}",
        Just("randrw".to_owned()),
    ];
    prop_oneof![
        (name, value).prop_map(|(name, value)| format!("{name}={value}")),
        "\\[[a-z]{0,6}\\]?",
        "\\PC{0,24}",
    ]
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "(\\PC|\n|\\[|\\]|=|#){0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn almost_right_lines_are_read_or_refused_with_a_place(lines in prop::collection::vec(line(), 0..12)) {
        let text = format!("[a]\nsize=64k\n{}\n", lines.join("\n"));
        match parse(&text) {
            Ok(file) => {
                prop_assert!(!file.phases.is_empty());
                for job in file.phases.iter().flat_map(|phase| &phase.jobs) {
                    prop_assert!(job.depth > 0 && job.smallest_block() > 0 && !job.instances.is_empty());
                    for file in job.instances.iter().flat_map(|one| &one.files) {
                        prop_assert!(file.bytes >= job.smallest_block());
                    }
                }
            }
            Err(error) => {
                prop_assert!(error.line <= text.lines().count() && error.column > 0);
                prop_assert!(!error.cause.is_empty() && !error.advice.is_empty());
            }
        }
    }
}
