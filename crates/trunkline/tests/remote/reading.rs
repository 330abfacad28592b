//! Tests `cat`.

use super::fixtures::{TIMEOUT, TestServer, make_file, pattern, trunkline};
use std::io::Read;
use std::process::{Command, Stdio};
use testkit::Deadline;

fn cat(arguments: &[&str]) -> Vec<u8> {
    let output = trunkline(&[&["cat"], arguments].concat()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
    output.stdout
}

#[test]
fn cat_prints_a_file_whole_and_in_parts() {
    let arguments = ["--mem", "64MiB", "--listen", "127.0.0.1:0", "--listen", "[::1]:0"];
    let served = TestServer::with(&arguments);
    let mount = served.mount();
    let data = pattern(9_000_001, 3);
    make_file(&mount, "/data", &data);
    make_file(&mount, "/empty", b"");
    let url = served.url("/data");
    assert!(cat(&[&url]) == data);
    assert!(cat(&["-o", "rsize=65536,nconnect=4", &url]) == data);
    let part = cat(&["--offset", "4000000", "--length", "3000000", &url]);
    assert!(part == data[4_000_000..7_000_000]);
    assert!(cat(&["--offset", "8999999", &url]) == data[8_999_999..]);
    assert!(cat(&["--offset", "9000001", &url]).is_empty());
    assert!(cat(&["--length", "0", &url]).is_empty());
    assert!(cat(&[&served.url("/empty")]).is_empty());
    assert!(cat(&["--length", "2", &url, &url]) == [&data[..2], &data[..2]].concat());
}

#[test]
fn cat_to_a_reader_that_closes_early_succeeds() {
    let served = TestServer::start();
    make_file(&served.mount(), "/data", &pattern(20 << 20, 4));
    let mut command: Command = trunkline(&["cat", &served.url("/data")]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let status = Deadline::wait_until("the end of cat", TIMEOUT, || child.try_wait().unwrap());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}
