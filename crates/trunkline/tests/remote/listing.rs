//! Tests `ls` and `stat`.

use super::fixtures::{TestServer, fails, make_directory, make_file, prints, run, trunkline};
use client::Mount;
use fs::{CreateMode, SetAttributes, SetTime, Special, Time};

/// A tree with a file of each kind.
fn tree(served: &TestServer) -> Mount {
    let mount = served.mount();
    make_file(&mount, "/plain", b"contents");
    make_file(&mount, "/.hidden", b"");
    let directory = make_directory(&mount, mount.root(), b"directory");
    make_file(&mount, "/directory/below", &[1; 5000]);
    mount.make_symlink(mount.root(), b"symbolic", b"directory/below").unwrap();
    mount.make_special(mount.root(), b"pipe", Special::Fifo, SetAttributes::mode(0o600)).unwrap();
    let plain = mount.resolve(b"/plain").unwrap().0;
    mount.link(plain, directory, b"again").unwrap();
    let mtime = SetTime::To(Time { seconds: 951_782_400, nanoseconds: 5 });
    mount
        .set_attributes(plain, SetAttributes { mtime, mode: Some(0o4711), ..SetAttributes::default() }, None)
        .unwrap();
    mount
}

#[test]
fn names_are_listed_in_order_and_hidden_ones_on_request() {
    let served = TestServer::start();
    let _mount = tree(&served);
    assert_eq!(prints(&["ls", &served.url("")]), "directory\npipe\nplain\nsymbolic\n");
    assert_eq!(prints(&["ls", "-a", &served.url("/")]), ".hidden\ndirectory\npipe\nplain\nsymbolic\n");
    assert_eq!(prints(&["ls", &served.url("/plain")]), "plain\n");
    assert_eq!(prints(&["ls", &served.url("/directory/../directory")]), "again\nbelow\n");
    let source = format!("{}:/export", served.addresses()[0].ip());
    let options = format!("port={}", served.addresses()[0].port());
    assert_eq!(prints(&["ls", "-o", &options, &source]), "directory\npipe\nplain\nsymbolic\n");
}

#[test]
fn a_long_listing_has_mode_links_owner_size_time_and_targets() {
    let served = TestServer::start();
    let _mount = tree(&served);
    let out = prints(&["ls", "-l", &served.url("")]);
    let line = |name: &str| out.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{out}"));
    let words: Vec<_> = line("plain").split_whitespace().collect();
    assert_eq!((words[0], words[1], words[4], words[5]), ("-rws--x--x", "2", "8", "2000-02-29T00:00:00Z"));
    assert!(line("symbolic").ends_with("symbolic -> directory/below"), "{out}");
    assert!(line("pipe").starts_with("prw-------"), "{out}");
}

#[test]
fn a_tree_is_listed_directory_by_directory() {
    let served = TestServer::start();
    let _mount = tree(&served);
    let url = served.url("");
    let expected = format!("{url}:\ndirectory\npipe\nplain\nsymbolic\n\n{url}/directory:\nagain\nbelow\n");
    assert_eq!(prints(&["ls", "-R", &url]), expected);
    let json = prints(&["ls", "-R", "--json", &url]);
    let paths: Vec<String> = json
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["path"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(paths, ["directory", "pipe", "plain", "symbolic", "directory/again", "directory/below"]);
}

#[test]
fn a_name_that_is_not_text_is_printed_unchanged_and_in_hexadecimal_in_json() {
    let served = TestServer::start();
    let mount = served.mount();
    let name = b"odd \xff\n\x1b name";
    mount.create(mount.root(), name, CreateMode::Unchecked(SetAttributes::default())).unwrap();
    let raw = trunkline(&["ls", &served.url("")]).output().unwrap();
    assert_eq!(raw.stdout, [&name[..], b"\n"].concat());
    let json: serde_json::Value = serde_json::from_str(&prints(&["ls", "--json", &served.url("")])).unwrap();
    assert_eq!(json["path_hex"], "6f646420ff0a1b206e616d65");
    assert_eq!(json["path"], r"odd \xff\n\u{1b} name");
    // In a URL such bytes are written as %XX.
    assert!(prints(&["stat", &served.url("/odd%20%ff%0a%1b%20name")]).contains("type          file"));
}

#[test]
fn stat_prints_the_attributes_of_a_file() {
    let served = TestServer::start();
    let _mount = tree(&served);
    let out = prints(&["stat", &served.url("/plain")]);
    for needle in [
        "type          file\n",
        "mode          4711 -rws--x--x\n",
        "size          8 bytes, ",
        "links         2\n",
        "modified      2000-02-29T00:00:00.000000005Z\n",
    ] {
        assert!(out.contains(needle), "{needle}: {out}");
    }
    let link = prints(&["stat", &served.url("/symbolic")]);
    assert!(link.contains("points to     directory/below\n"), "{link}");
    assert!(prints(&["stat", "-L", &served.url("/symbolic")]).contains("size          5000 bytes"));
    let line = prints(&["stat", "--json", &served.url("/plain")]);
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&json["size_bytes"], &json["mode"], &json["links"]), (&8.into(), &"4711".into(), &2.into()));
}

#[test]
fn stat_prints_the_space_and_limits_of_the_file_system() {
    let served = TestServer::start();
    let line = prints(&["stat", "--fs", "--json", &served.url("/")]);
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(json["read_max_bytes"], 1 << 20);
    assert!(json["total_bytes"].as_u64().unwrap() >= 32 << 20, "{line}");
    assert_eq!(json["hard_links"], true);
    assert!(prints(&["stat", "--fs", &served.url("/")]).contains("names         up to "));
}

#[test]
fn errors_name_the_path_and_the_cause() {
    let served = TestServer::start();
    let _mount = tree(&served);
    let err = fails(&["ls", &served.url("/nothing/below")]);
    assert!(err.contains("/export/nothing/below\n") && err.contains("no such file or directory"), "{err}");
    let err = fails(&["stat", &served.url("/plain/below")]);
    assert!(err.contains("not a directory"), "{err}");
    let err = fails(&["ls", &format!("nfs://{}/other/path", served.addresses()[0])]);
    assert!(err.contains("no export of") && err.contains("it exports /export\n"), "{err}");
    let err = fails(&["cat", &served.url("/directory")]);
    assert!(err.contains("cannot read") && err.contains("it is a directory"), "{err}");
    let err = fails(&["cat", &served.url("/pipe")]);
    assert!(err.contains("named pipe"), "{err}");
    let err = fails(&["ls", "-o", "nconect=4", &served.url("")]);
    assert!(err.contains("nconnect"), "{err}");
    let err = fails(&["ls", "/export"]);
    assert!(err.contains("/export"), "{err}");
    assert_eq!(run(&["ls"]).0, Some(2));
}

#[test]
fn a_directory_of_5000_names_is_listed_whole() {
    let served = TestServer::start();
    let mount = served.mount();
    let mut wanted = String::new();
    for number in 0..5000 {
        let name = format!("name {number:05}");
        let how = CreateMode::Unchecked(SetAttributes::default());
        mount.create(mount.root(), name.as_bytes(), how).unwrap();
        wanted.push_str(&format!("{name}\n"));
    }
    assert_eq!(prints(&["ls", &served.url("")]), wanted);
}

#[test]
fn names_are_sorted_by_time_and_size_and_directories_are_listed_themselves() {
    let served = TestServer::start();
    let mount = served.mount();
    for (name, bytes, seconds) in [("b", 5000, 3), ("a", 0, 2), ("c", 3_000_000, 1)] {
        make_file(&mount, name, &vec![1; bytes]);
        let mtime = SetTime::To(Time { seconds, nanoseconds: 5 });
        let file = mount.resolve(name.as_bytes()).unwrap().0;
        mount.set_attributes(file, SetAttributes { mtime, ..SetAttributes::default() }, None).unwrap();
    }
    let url = served.url("");
    for (flags, names) in [
        ("-1", "a\nb\nc\n"),
        ("-r", "c\nb\na\n"),
        ("-t", "b\na\nc\n"),
        ("-tr", "c\na\nb\n"),
        ("-S", "c\nb\na\n"),
        ("-Sr", "a\nb\nc\n"),
        ("-St", "b\na\nc\n"),
    ] {
        assert_eq!(prints(&["ls", flags, &url]), names, "{flags}");
    }
    let long = prints(&["ls", "-lhS", &url]);
    let sizes: Vec<&str> = long.lines().filter_map(|line| line.split_whitespace().nth(4)).collect();
    assert_eq!(sizes, ["2.9M", "4.9K", "0"]);
    let directory = make_directory(&mount, mount.root(), b"directory");
    make_file(&mount, "/directory/below", b"");
    mount.make_symlink(mount.root(), b"link", b"directory").unwrap();
    assert_eq!(prints(&["ls", "-d", &served.url("/directory"), &served.url("/link")]), "directory\nlink\n");
    assert!(prints(&["ls", "-ld", &served.url("/link")]).ends_with("link -> directory\n"));
    assert!(prints(&["ls", "-ld", &url]).starts_with("drwx"));
    mount.make_symlink(directory, b"up", b"..").unwrap();
    assert_eq!(prints(&["ls", "-R", &served.url("/directory")]).lines().count(), 3, "no link is followed");
}
