//! Valid and invalid experiment files.

use super::*;

#[test]
fn a_whole_experiment_file_is_understood() {
    let experiment = Experiment::from_toml(
        r#"
        name = "our array"
        repeats = 4
        window_ms = 500
        target.server = "10.0.0.1:/data"
        limits.link = "25Gbit/s"
        limits.client_link = "40Gbit/s"
        limits.mtu = 9000
        [[route]]
        name = "tcp-mp"
        options = "nconnect=8,remoteports=10.0.0.1-10.0.0.4"
        [[workload]]
        name = "backup"
        block = "1MiB"
        depth = 8
        writers = 4
        file = "1GiB"
        rate = 2500
        "#,
        Procedure::Standard,
    )
    .unwrap();
    assert_eq!(experiment.target, Target::Server("10.0.0.1:/data".into()));
    let links = Links {
        node_bits_per_s: Some(25_000_000_000),
        client_bits_per_s: Some(40_000_000_000),
        mtu: Some(9000),
    };
    assert_eq!(experiment.links, links);
    assert_eq!(experiment.workloads[0].rate, Some(2500.0));
    assert_eq!(experiment.workloads[0].file, 1 << 30);
    assert_eq!((experiment.repeats, experiment.routes.len()), (4, 1));
}

#[test]
fn nonsense_is_refused_by_name() {
    let route = "[[route]]\nname = \"tcp\"\n";
    let read = "[[workload]]\nname='w'\nblock='4KiB'\ndepth=1\nreaders=1\nfile='1MiB'\n";
    for (text, needle) in [
        ("", "no [[route]]"),
        ("colour = 1", "colour"),
        ("repeats = 0\n[[route]]\nname = \"tcp\"", "repeats = 0"),
        (&format!("{route}{route}"), "two routes"),
        (&format!("pace = \"1Gbit/s\"\ntarget.server = \"a:/b\"\n{route}"), "pace"),
        (&format!("pace = \"0\"\n{route}"), "pace"),
        (&format!("pace = \"fast\"\n{route}"), "pace"),
        (&format!("target.nodes = 99\n{route}"), "nodes = 99"),
        (&format!("target.server = \"a:/b\"\ntarget.nodes = 4\n{route}"), "either `server` or `nodes`"),
        (&format!("target.server = \"a:/b\"\ntarget.mem = \"1GiB\"\n{route}"), "target.mem"),
        (&format!("target.server = \"a:/b\"\nlimits.link = \"0Gbit/s\"\n{route}"), "limits.link"),
        (&format!("target.server = \"a:/b\"\nlimits.client_link = \"1 mile\"\n{route}"), "client_link"),
        (
            &format!("target.server = \"a:/b\"\nlimits.link = \"1Gbit/s\"\nlimits.mtu = 100\n{route}"),
            "limits.mtu = 100",
        ),
        (&format!("target.server = \"a:/b\"\nlimits.mtu = 9000\n{route}"), "`link` or `client_link`"),
        (&format!("limits.link = \"1Gbit/s\"\n{route}"), "an embedded group has no links"),
        (&format!("window_ms = 0\n{route}"), "window_ms = 0"),
        (&format!("{route}{read}{read}"), "two workloads"),
        (&format!("{route}{read}rate = 0"), "rate = 0"),
        (&format!("{route}{read}rate = nan"), "rate = NaN"),
        (&format!("{route}{read}rate = -5"), "rate = -5"),
        (&format!("{route}{read}rate = \"fast\""), "rate"),
        (
            &format!("{route}[[workload]]\nname='w'\nblock='5000'\ndepth=1\nreaders=1\nfile='1MiB'"),
            "block = 5000",
        ),
        (
            &format!("{route}[[workload]]\nname='w'\nblock='4KiB'\ndepth=0\nreaders=1\nfile='1MiB'"),
            "depth = 0",
        ),
        (
            &format!("{route}[[workload]]\nname='w'\nblock='4KiB'\ndepth=1\nfile='1MiB'"),
            "0 readers and 0 writers",
        ),
    ] {
        let error = Experiment::from_toml(text, Procedure::Standard).unwrap_err().to_string();
        assert!(error.contains(needle), "{text}: {error}");
    }
}

#[test]
fn the_built_in_experiments_are_sound() {
    for procedure in [Procedure::Quick, Procedure::Standard, Procedure::Thorough] {
        Experiment::built_in(procedure).check().unwrap();
    }
}

#[test]
fn the_limit_of_a_route_is_what_its_nodes_links_and_the_clients_carry() {
    let gbit = 1_000_000_000;
    let links = |node: Option<u64>, client: Option<u64>| Links {
        node_bits_per_s: node.map(|it| it * gbit),
        client_bits_per_s: client.map(|it| it * gbit),
        mtu: None,
    };
    assert_eq!(links(None, None).gbytes_per_s(4, Transport::Tcp), None);
    assert_eq!(links(Some(1), None).gbytes_per_s(1, Transport::Tcp), Some(0.125));
    assert_eq!(links(Some(1), None).gbytes_per_s(4, Transport::Tcp), Some(0.5));
    assert_eq!(links(Some(10), Some(25)).gbytes_per_s(4, Transport::Tcp), Some(3.125));
    assert_eq!(links(None, Some(25)).gbytes_per_s(4, Transport::Tcp), Some(3.125));
    // RFC 9293 s3.1, RFC 7323 s3: 8948 of 9038 bytes are payload; for RDMA 4096 of 4178.
    let framed = |transport| Links { mtu: Some(9000), ..links(Some(25), None) }.gbytes_per_s(1, transport);
    assert_eq!(framed(Transport::Tcp), Some(25e9 * (8948.0 / 9038.0) / 8e9));
    assert_eq!(framed(Transport::RoceV2), Some(25e9 * (4096.0 / 4178.0) / 8e9));
}
