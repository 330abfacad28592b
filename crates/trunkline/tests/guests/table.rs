//! Up to six guests beside their host, each with a disk of its own. Prints a table, and asserts
//! nothing on speed: the guests' figures are about emulation.

use crate::guest::{Done, Drive, FioResult, Guest};
use crate::image::check;
use crate::storage::{Kind, Storage};
use crate::{alone, run};
use std::process::Command;
use testkit::require_program;

/// How many guests are measured at once.
const GUESTS: [usize; 4] = [1, 2, 4, 6];
const GUESTS_MAX: usize = 6;

/// Pattern and block of fio, and what a row is called.
const WORKLOADS: [[&str; 3]; 4] = [
    ["read", "64k", "READ 64 KiB"],
    ["write", "64k", "WRITE 64 KiB"],
    ["randread", "4k", "random READ 4 KiB"],
    ["randwrite", "4k", "random WRITE 4 KiB"],
];

/// How long each is measured.
const SECONDS: u32 = 4;

#[track_caller]
fn done(result: FioResult) -> Done {
    let FioResult { error, read, written } = result;
    let done = if read.kib > 0 { read } else { written };
    assert!(error == 0 && done.kib > 0, "{result:?}");
    done
}

fn cell(done: &[Done]) -> String {
    let kib: u64 = done.iter().map(|done| done.kib_per_second).sum();
    let iops: u64 = done.iter().map(|done| done.iops).sum();
    format!("{} MiB/s, {iops}/s", kib / 1024)
}

/// Runs fio on this host, by the same socket as a guest's QEMU.
fn on_host(storage: &Storage, options: &[&str]) -> FioResult {
    let mut fio = Command::new(require_program("fio"));
    fio.args(["--minimal", "--name=host", "--ioengine=nbd", "--size=64m"]).args(options);
    FioResult::of_terse(&run(fio.arg(format!("--uri={}", storage.uri(0)))))
}

/// The column of the host.
fn host_alone(storage: &Storage) -> Vec<String> {
    // Holes would be read faster than data.
    on_host(storage, &["--rw=write", "--bs=1m"]);
    let seconds = format!("--runtime={SECONDS}");
    let measure = |[pattern, block, _]: [&str; 3]| {
        let (rw, bs) = (format!("--rw={pattern}"), format!("--bs={block}"));
        let options = [&rw, &bs, "--iodepth=128", "--time_based", &seconds, "--ramp_time=1"];
        cell(&[done(on_host(storage, &options))])
    };
    WORKLOADS.map(measure).to_vec()
}

/// The columns of the guests: of each workload, the cells of [`GUESTS`].
fn guests_together(storage: &Storage) -> Vec<Vec<String>> {
    let guests: Vec<_> = (0..GUESTS_MAX).map(|disk| Guest::start(storage, disk, Drive::Uri)).collect();
    guests.iter().for_each(Guest::wait_until_up);
    let all_do = |guests: &[Guest], script: &str| -> Vec<FioResult> {
        guests.iter().for_each(|guest| guest.begin(script));
        guests.iter().map(|guest| FioResult::of(&guest.end())).collect()
    };
    all_do(&guests, "run_fio --name=prepare --filename=/data/measured --size=64m --rw=write --bs=1m");
    let measure = |[pattern, block, _]: [&str; 3]| {
        let script = format!("measure {pattern} {block} {SECONDS}");
        let together = |count: usize| {
            let results = all_do(&guests[..count], &script);
            cell(&results.into_iter().map(done).collect::<Vec<_>>())
        };
        GUESTS.map(together).to_vec()
    };
    let columns = WORKLOADS.map(measure).to_vec();
    guests.into_iter().for_each(Guest::power_off);
    columns
}

#[test]
fn up_to_six_guests_are_measured_beside_their_host() {
    let _alone = alone();
    let mut table =
        "| disk | workload | host alone | 1 guest | 2 guests | 4 guests | 6 guests |\n".to_owned();
    table += "|---|---|---|---|---|---|---|\n";
    for (name, kind) in [("volume", Kind::Volume), ("NFS file", Kind::NfsFile("nconnect=4"))] {
        let mut storage = Storage::start(kind, GUESTS_MAX);
        let host = host_alone(&storage);
        (0..GUESTS_MAX).for_each(|disk| storage.fill(disk));
        let guests = guests_together(&storage);
        storage.end();
        (0..GUESTS_MAX).for_each(|disk| check(&storage.file(disk)));
        for (([_, _, row], host), guests) in WORKLOADS.iter().zip(host).zip(guests) {
            table += &format!("| {name} | {row} | {host} | {} |\n", guests.join(" | "));
        }
    }
    println!("{table}");
}
