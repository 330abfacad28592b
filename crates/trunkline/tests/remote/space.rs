//! `du` and `df`.

use super::fixtures::{TestServer, fails, make_directory, make_file, prints, run};
use client::Mount;
use serde_json::Value;

/// Sixty directories with ten files each, and a file with three names.
fn tree(mount: &Mount) -> u64 {
    let top = make_directory(mount, mount.root(), b"tree");
    let mut bytes = 0;
    let mut used = |path: &str| bytes += mount.resolve(path.as_bytes()).unwrap().1.used;
    for number in 0..60 {
        make_directory(mount, top, format!("d{number}").as_bytes());
        for file in 0..10 {
            let path = format!("/tree/d{number}/f{file}");
            make_file(mount, &path, &[1; 5000]);
            used(&path);
        }
        used(&format!("/tree/d{number}"));
    }
    make_file(mount, "/tree/linked", &[1; 100_000]);
    let linked = mount.resolve(b"/tree/linked").unwrap().0;
    for directory in ["/tree/d1", "/tree/d2"] {
        mount.link(linked, mount.resolve(directory.as_bytes()).unwrap().0, b"again").unwrap();
    }
    used("/tree/linked");
    used("/tree");
    bytes
}

fn bytes_of(line: &str) -> u64 {
    serde_json::from_str::<Value>(line).unwrap()["bytes"].as_u64().unwrap()
}

#[test]
fn a_tree_is_measured_and_a_file_with_several_names_once() {
    let served = TestServer::start();
    let bytes = tree(&served.mount());
    let url = served.url("/tree");
    assert_eq!(prints(&["du", "-s", &url]), format!("{}\t{url}\n", bytes.div_ceil(1024)));
    assert_eq!(bytes_of(prints(&["du", "-s", "--json", &url]).trim()), bytes);
    let all = prints(&["du", &url]);
    assert_eq!(all.lines().count(), 61);
    assert_eq!(all.lines().last(), Some(format!("{}\t{url}", bytes.div_ceil(1024)).as_str()));
    assert_eq!(prints(&["du", "-a", &url]).lines().count(), 61 + 601);
    assert_eq!(prints(&["du", "-a", "-d", "0", &url]).lines().count(), 1);
    let lengths = prints(&["du", "-s", "--json", "--apparent-size", &url]);
    assert_eq!(bytes_of(lengths.trim()), 600 * 5000 + 100_000);
    let human = prints(&["du", "-sh", "--apparent-size", &url]);
    assert_eq!(human, format!("3.0M\t{url}\n"));
    let file = served.url("/tree/linked");
    let both = prints(&["du", "-sc", "--json", &url, &file]);
    let sum: Vec<u64> = both.lines().map(bytes_of).collect();
    assert_eq!(sum[2], sum[0] + sum[1]);
    assert!(both.lines().last().unwrap().contains("\"total\""), "{both}");
}

#[test]
fn what_cannot_be_measured_is_told_and_the_rest_is_measured() {
    let served = TestServer::start();
    make_file(&served.mount(), "/file", &[1; 5000]);
    let (code, out, err) = run(&["du", "-c", &served.url("/absent"), &served.url("/file")]);
    assert_eq!((code, out.lines().count()), (Some(1), 2), "{err}");
    assert!(err.starts_with(&format!("error: cannot measure {}\n", served.url("/absent"))), "{err}");
    let (code, ..) = run(&["du", "-s", "-a", &served.url("")]);
    assert_eq!(code, Some(2));
}

#[test]
fn space_and_inodes_are_shown_in_the_columns_of_df() {
    let served = TestServer::start();
    make_file(&served.mount(), "/file", &[1; 5000]);
    let url = served.url("/file");
    let json: Value = serde_json::from_str(&prints(&["df", "--json", &url])).unwrap();
    let of = |name: &str| json[name].as_u64().unwrap();
    assert_eq!(of("total_bytes"), 64 << 20);
    assert_eq!(of("used_bytes"), of("total_bytes") - of("free_bytes"));
    assert_eq!(of("used_files"), 2, "the root and the file");
    let out = prints(&["df", &url]);
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["Filesystem", "1K-blocks", "Used", "Available", "Use%", "Place"]);
    assert_eq!((lines[1][1], *lines[1].last().unwrap()), ("65536", url.as_str()));
    let out = prints(&["df", "-i", &url]);
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%", "Place"]);
    assert_eq!(lines[1][1], of("total_files").to_string());
    assert!(prints(&["df", "-h", &url]).contains(" 64M "));
    let err = fails(&["df", &served.url("/absent")]);
    assert!(err.starts_with(&format!("error: cannot examine {}\n", served.url("/absent"))), "{err}");
}

#[test]
fn h_is_for_humans_where_sizes_are_shown_and_for_help_elsewhere() {
    let served = TestServer::start();
    for command in ["ls", "du", "df"] {
        let (code, out, err) = run(&[command, "-h", &served.url("")]);
        assert_eq!(code, Some(0), "{err}");
        assert!(!out.contains("Usage:"), "{command}: {out}");
        let (code, out, _) = run(&[command, "--help"]);
        assert!(code == Some(0) && out.contains("-h is --human-readable"), "{command}: {out}");
    }
    for command in
        ["cat", "cp", "stat", "rm", "mkdir", "mount", "umount", "serve", "bench", "report", "plan", "lab"]
    {
        let (code, out, _) = run(&[command, "-h"]);
        assert!(code == Some(0) && out.contains("Usage:"), "{command}: {out}");
    }
}
