//! Tests with fio: every block is read back and compared.

use crate::fixture::{mounted, shell};
use testkit::require_program;

/// Runs fio with verification.
fn fio(arguments: &str) {
    let (_server, mount) = mounted();
    let _ = require_program("fio");
    shell(
        &mount.directory,
        &format!("fio --name=job --directory=. --verify=crc32c --verify_fatal=1 --do_verify=1 {arguments}"),
    );
}

#[test]
fn fio_finds_its_data_after_buffered_writes_of_every_size() {
    fio("--ioengine=psync --rw=randrw --bsrange=4k-1m --size=24m --numjobs=2");
}

#[test]
fn fio_finds_its_data_after_small_buffered_writes() {
    fio("--ioengine=psync --rw=randwrite --bs=4k --size=8m");
}

#[test]
fn fio_finds_its_data_after_direct_writes_in_flight_together() {
    fio("--ioengine=libaio --iodepth=16 --direct=1 --rw=randwrite --bsrange=4k-1m --size=32m");
}

#[test]
fn fio_finds_its_data_after_writes_through_a_mapping() {
    fio("--ioengine=mmap --rw=randrw --bs=4k --size=8m");
}
