//! Valid configurations, and the error messages for invalid ones.

use super::*;

const GOOD: &str = r#"
loops = 2
congestion = "cubic"

[[node]]
name = "a"
listen = ["127.0.0.1:2049", "[::1]:2049"]
pace = "2Gbit"

[[export]]
path = "/export"
mem = "2GiB"
rw = true
allow = ["10.0.0.0/8", "192.168.7.2"]

[[export]]
path = "/closed"
mem = "1MiB"
root_squash = false
"#;

#[test]
fn a_file_says_nodes_exports_and_limits() {
    let config = Config::from_toml(GOOD, "serve.toml").unwrap();
    assert_eq!(config.loops, Some(2));
    assert_eq!(config.nodes[0].listen.len(), 2);
    assert_eq!(config.nodes[0].pace_bytes_per_s, Some(250_000_000));
    assert!(!config.exports[0].read_only);
    assert!(config.exports[0].root_squash);
    assert_eq!(config.exports[0].anonuid, ANONYMOUS_ID);
    assert!(matches!(config.exports[0].store, StoreConfig::Mem { bytes, .. } if bytes == 2 << 30));
    assert!(config.exports[1].read_only, "read-only unless the file says otherwise");
    assert!(config.exports[1].allow.is_empty(), "nobody may come unless the file says otherwise");
    assert_eq!(config.exports[1].fsid, 2);
    assert_eq!(config.limits, Limits::default());
}

#[test]
fn a_directory_is_one_store_and_memory_another() {
    let file = |export: &str| {
        let text = format!("[[node]]\nlisten = [\"127.0.0.1:1\"]\n\n[[export]]\npath = \"/data\"\n{export}");
        Config::from_toml(&text, "x.toml")
    };
    assert!(!file("dir = \"/srv/data\"").unwrap().exports[0].delegations);
    assert!(file("dir = \"/srv/data\"\ndelegations = true").unwrap().exports[0].delegations);
    assert!(file("mem = \"1MiB\"").unwrap().exports[0].delegations);
    assert!(!file("mem = \"1MiB\"\ndelegations = false").unwrap().exports[0].delegations);
    let config = file("dir = \"/srv/data\"\nstate = \"/srv/state\"\nserver_groups = true").unwrap();
    let expected =
        StoreConfig::Dir { path: "/srv/data".into(), state: Some("/srv/state".into()), server_groups: true };
    assert_eq!(config.exports[0].store, expected);
    for (export, cause) in [
        ("", "does not say what is behind it"),
        ("dir = \"/a\"\nmem = \"1MiB\"", "has `mem` and `dir`"),
        ("mem = \"1MiB\"\nstate = \"/b\"", "`state`"),
        ("mem = \"1MiB\"\nserver_groups = true", "`server_groups`"),
        ("dir = \"/a\"\nowner_uid = 7", "owner"),
    ] {
        let error = file(export).unwrap_err();
        assert!(error.cause().contains(cause) && error.line() == Some(4), "{error}");
    }
}

#[test]
fn the_example_is_right_and_its_comments_are_the_defaults() {
    let config = Config::from_toml(EXAMPLE, "example.toml").unwrap();
    let uncommented: String = EXAMPLE
        .lines()
        .filter(|line| {
            !["#pace", "#owner", "#dir", "#state", "#server_groups", "#group"]
                .iter()
                .any(|key| line.starts_with(key))
        })
        .map(|line| {
            line.strip_prefix('#').filter(|line| !line.starts_with(' ')).unwrap_or(line).to_owned() + "\n"
        })
        .collect();
    let spelled_out = Config::from_toml(&uncommented, "example.toml").unwrap();
    assert_eq!((spelled_out.loops, spelled_out.congestion.as_deref()), (Some(2), Some("cubic")));
    let metrics = spelled_out.metrics.clone().unwrap();
    assert_eq!(metrics.listen.to_string(), "127.0.0.1:9100");
    assert_eq!(metrics.token.unwrap().to_str(), Some("/etc/trunkline/token"));
    assert!(!spelled_out.may_leave_v4, "it is asked for");
    let defaults = Config { loops: None, congestion: None, metrics: None, may_leave_v4: true, ..spelled_out };
    assert_eq!(defaults, config);
}

#[test]
fn the_configuration_of_the_package_is_valid_and_open_to_this_host_only() {
    let config = Config::from_toml(include_str!("../../../../dist/serve.toml"), "serve.toml").unwrap();
    let listen = &config.nodes[0].listen;
    assert!(config.nodes.len() == 1 && listen.len() == 1, "{config:?}");
    assert_eq!(listen[0].to_string(), "127.0.0.1:2049");
    assert!(config.exports.iter().all(|export| export.secure && export.allow.len() == 1), "{config:?}");
}

#[test]
fn what_is_wrong_is_named_with_file_line_and_remedy() {
    for (from, to, line, cause) in [
        ("rw = true", "rv = true", 13, "unknown field `rv`"),
        ("mem = \"2GiB\"", "mem = \"2 goats\"", 12, "unknown unit"),
        ("\"10.0.0.0/8\"", "\"10.0.0.0/80\"", 14, "prefix"),
        ("127.0.0.1:2049", "127.0.0.1", 7, "no address with a port"),
        ("path = \"/closed\"", "path = \"/export\"", 16, "twice"),
        ("path = \"/closed\"", "path = \"closed\"", 16, "absolute"),
        ("mem = \"2GiB\"", "mem = \"0\"", 10, "0 bytes of memory"),
        ("loops = 2", "loops = ", 2, ""),
        ("loops = 2", "loops = \"two\"", 2, "invalid type"),
        ("loops = 2", "busy_poll_us = -1", 2, "invalid value"),
        ("loops = 2", "busy_poll_us = 1001", 10, "above 1000"),
        ("loops = 2", "metrics = { listen = \"9100\" }", 2, "is no address with a port"),
        ("loops = 2", "metrics = { listen = \"[fe80::1]:9100\" }", 2, "name its interface"),
        ("loops = 2", "metrics = { token = \"/a\" }", 2, "missing field `listen`"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        let error = Config::from_toml(&text, "serve.toml").unwrap_err();
        assert_eq!(error.line(), Some(line), "{error}");
        assert!(error.cause().contains(cause), "{error}");
        assert!(error.to_string().contains("serve.toml, line"), "{error}");
        assert!(error.to_string().contains("try:"), "{error}");
    }
}

#[test]
fn an_empty_file_is_told_what_it_lacks() {
    let error = Config::from_toml("", "empty.toml").unwrap_err();
    assert!(error.cause().contains("no address to listen on"), "{error}");
    let error = Config::from_toml("[[node]]\nlisten = [\"127.0.0.1:0\"]\n", "empty.toml").unwrap_err();
    assert!(error.cause().contains("no export"), "{error}");
}

#[test]
fn a_node_listens_over_rdma_beside_tcp_and_never_without() {
    let text = GOOD.replacen("\"[::1]:2049\"", "\"rdma:[::1]:20049\"", 1);
    let config = Config::from_toml(&text, "rdma.toml").unwrap();
    assert_eq!(config.nodes[0].listen, ["127.0.0.1:2049".parse().unwrap()]);
    assert_eq!(config.nodes[0].listen_rdma, ["[::1]:20049".parse().unwrap()]);
    let mut quick =
        Config::quick(1 << 20, "/export", &["10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap()]);
    quick.add_rdma(&["10.0.0.2:2".parse().unwrap(), "10.0.0.3:2".parse().unwrap()]);
    let of = |node: usize| quick.nodes[node].listen_rdma.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), (vec!["10.0.0.3:2".to_owned()], vec!["10.0.0.2:2".to_owned()]));
    let mut alone = Config::quick(1 << 20, "/export", &[]);
    alone.add_rdma(&["10.0.0.1:2".parse().unwrap()]);
    let error = alone.check().unwrap_err();
    assert!(error.to_string().contains("nobody could ask MOUNT"), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::from_file(Path::new("/nonexistent/serve.toml")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/serve.toml"), "{error}");
}

#[test]
fn a_quick_export_is_its_owners_and_writable() {
    let config =
        Config::quick(1 << 20, "/export", &["127.0.0.1:0".parse().unwrap(), "127.0.0.2:0".parse().unwrap()]);
    config.check().unwrap();
    assert_eq!(config.nodes.len(), 2);
    let export = &config.exports[0];
    assert!(!export.read_only && export.root_squash);
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(export.anonuid, uid);
    assert!(matches!(export.store, StoreConfig::Mem { owner_uid, .. } if owner_uid == uid));
}
