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
    assert_eq!(links(None, None).gbytes_per_s(4, 1, Transport::Tcp), None);
    assert_eq!(links(Some(1), None).gbytes_per_s(1, 1, Transport::Tcp), Some(0.125));
    assert_eq!(links(Some(1), None).gbytes_per_s(4, 1, Transport::Tcp), Some(0.5));
    assert_eq!(links(Some(10), Some(25)).gbytes_per_s(4, 1, Transport::Tcp), Some(3.125));
    assert_eq!(links(None, Some(25)).gbytes_per_s(4, 1, Transport::Tcp), Some(3.125));
    assert_eq!(links(Some(10), Some(1)).gbytes_per_s(4, 6, Transport::Tcp), Some(0.75));
    // RFC 9293 s3.1, RFC 7323 s3: 8948 of 9038 bytes are payload; for RDMA 4096 of 4178.
    let framed = |transport| Links { mtu: Some(9000), ..links(Some(25), None) }.gbytes_per_s(1, 1, transport);
    assert_eq!(framed(Transport::Tcp), Some(25e9 * (8948.0 / 9038.0) / 8e9));
    assert_eq!(framed(Transport::RoceV2), Some(25e9 * (4096.0 / 4178.0) / 8e9));
}

/// An experiment with three clients in two groups, and these lines at its end.
fn with_clients(more: &str) -> Experiment {
    let text = format!(
        r#"
        clients = ["host1", "vm1=10.0.0.21", "vm2=10.0.0.22"]
        target.server = "a:/b"
        [[client_group]]
        name = "vms"
        clients = ["vm1", "vm2"]
        [[route]]
        name = "host"
        clients = "one"
        [[route]]
        name = "vms"
        clients = "vms"
        [[client_group]]
        name = "one"
        clients = ["host1"]
        [[workload]]
        name = "w"
        block = "4KiB"
        depth = 1
        readers = 1
        file = "1MiB"
        {more}
        "#
    );
    Experiment::from_toml(&text, Procedure::Standard).unwrap()
}

#[test]
fn a_group_has_the_steps_that_its_clients_suffice_for() {
    let experiment = with_clients("steps = { clients = [1, 2] }");
    experiment.check_clients().unwrap();
    let [host, vms] = experiment.routes.as_slice() else { panic!() };
    assert_eq!((experiment.clients_of(host), experiment.clients_of(vms)), (vec![0], vec![1, 2]));
    assert_eq!(experiment.workloads_of(host), Some(vec![0]));
    assert_eq!(experiment.workloads_of(vms), Some(vec![0, 1]));
    let whole = with_clients("");
    assert_eq!(whole.workloads_of(&whole.routes[0]), Some(vec![0]), "without steps, each group runs all");
    assert_eq!(whole.planned()[0].clients, 2);
}

#[test]
fn clients_that_do_not_suffice_or_contradict_are_refused_by_name() {
    let fault = |change: &dyn Fn(&mut Experiment)| {
        let mut experiment = with_clients("steps = { clients = [1, 2] }");
        change(&mut experiment);
        experiment.check_clients().unwrap_err().to_string()
    };
    let embedded = |addresses: &[&str]| Target::Embedded {
        nodes: 1,
        mem_bytes: 1 << 20,
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
    };
    type Change<'a> = &'a dyn Fn(&mut Experiment);
    let cases: [(Change<'_>, &str); 7] = [
        (
            &|it| it.workloads[0].steps = Some(Steps { clients: vec![3], depth: vec![] }),
            "needs 3 clients, there are 2",
        ),
        (&|it| it.clients.clear(), "no client is called vm1"),
        (&|it| it.clients[1].name = "host1".into(), "two clients are called host1"),
        (&|it| it.routes[0].clients = Some("x".into()), "no [[client_group]] is called x"),
        (&|it| it.groups[0].clients.clear(), "it has no clients"),
        (&|it| it.pace_bits_per_s = Some(1), "pace"),
        (&|it| it.target = embedded(&[]), "--nodes-on"),
    ];
    for (change, needle) in cases {
        let error = fault(change);
        assert!(error.contains(needle), "{error}");
    }
    let mut reached = with_clients("");
    reached.target = embedded(&["10.0.0.1"]);
    reached.check_clients().unwrap();
}

#[test]
fn steps_that_are_none_are_refused() {
    let workload =
        "[[route]]\nname='r'\n[[workload]]\nname='w'\nblock='4KiB'\ndepth=1\nfile='1MiB'\nreaders=1\n";
    for (more, needle) in [
        ("steps = {}", "`clients` or `depth`"),
        ("steps = { depth = [1], clients = [1] }", "either"),
        ("steps = { depth = [2, 1] }", "each greater"),
        ("steps = { depth = [0, 1] }", "from 1 up"),
        ("steps = { depth = [1, 2000] }", "depth = 2000"),
        ("steps = { jobs = [1] }", "jobs"),
        ("shared = true\nwriters = 1", "shared"),
        ("io = \"1KiB\"", "io"),
    ] {
        let text = format!("{workload}{more}");
        let error = Experiment::from_toml(&text, Procedure::Standard).unwrap_err().to_string();
        assert!(error.contains(needle), "{more}: {error}");
    }
    let text = format!("clients = [\"a b\"]\n{workload}");
    assert!(Experiment::from_toml(&text, Procedure::Standard).unwrap_err().to_string().contains("`a b`"));
    let text = format!("target.addresses = [\"10.0.0.1\"]\ntarget.nodes = 2\n{workload}");
    assert!(
        Experiment::from_toml(&text, Procedure::Standard)
            .unwrap_err()
            .to_string()
            .contains("target.addresses")
    );
}

#[test]
fn the_engine_auto_is_ours_on_clients_and_wrong_engines_are_refused_with_their_line() {
    let text = |engine: &str| {
        format!("engine = 'fio'\n[[route]]\nname = 'r'\ntarget = '/mnt/a'\nengine = '{engine}'\n")
    };
    let read = |engine: &str| Experiment::from_toml(&text(engine), Procedure::Quick);
    let mut auto = read("auto").unwrap();
    assert_eq!(auto.routes[0].engine, Some(EngineChoice::Auto));
    let here = auto.routes[0].load(&auto).engine;
    assert_eq!(here == Engine::Fio, crate::fio_program::check_version().is_ok());
    auto.clients = vec!["host1".parse().unwrap()];
    assert_eq!(auto.routes[0].load(&auto).engine, Engine::Ours);
    auto.routes[0].engine = None;
    assert_eq!(auto.routes[0].load(&auto).engine, Engine::Fio, "asked for by name");
    for wrong in ["Auto", "libaio", ""] {
        let said = read(wrong).unwrap_err().to_string();
        assert!(said.contains("line 5") && said.contains("expected one of `ours`, `fio`, `auto`"), "{said}");
    }
    let said = Experiment::from_toml("engine = 1\n", Procedure::Quick).unwrap_err().to_string();
    assert!(said.contains("line 1"), "{said}");
}

#[test]
fn the_example_files_are_experiments() {
    let read = |text: &str| Experiment::from_toml(text, Procedure::Standard).unwrap();
    let kernel = read(include_str!("../../../../docs/examples/kernel-four-routes.toml"));
    assert_eq!(kernel.routes.len(), 8);
    assert_eq!(kernel.routes[4].target, Some(Target::Kernel("nfs://192.168.1.201/ifs/depot".into())));
    let rdma = read(include_str!("../../../../docs/examples/tcp-against-rdma.toml"));
    rdma.check_clients().unwrap();
    assert_eq!((rdma.clients.len(), rdma.routes.len(), rdma.planned().len()), (7, 6, 16));
    let mut step = read(include_str!("../../../../docs/examples/step-test.toml"));
    assert!(step.check_clients().unwrap_err().to_string().contains("needs 9 clients"));
    step.clients = (1..=9).map(|number| format!("host{number}").parse().unwrap()).collect();
    step.check_clients().unwrap();
    assert_eq!(step.planned().last().unwrap().jobs.len(), 90);
    let four = read(include_str!("../../../../docs/examples/lab-four-routes.toml"));
    assert_eq!((four.routes.len(), four.planned().len()), (11, 2));
    let by_version_4: Vec<&RouteSpec> =
        four.routes.iter().filter(|route| route.options.contains("vers=4.2")).collect();
    let names: Vec<&str> = by_version_4.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["kernel tcp nfs4", "ours tcp nfs4", "ours rdma nfs4"]);
    let server = Target::Kernel("nfs://10.77.1.2/export".into());
    let by_kernel = by_version_4.iter().filter(|route| route.target.as_ref() == Some(&server));
    assert_eq!(by_kernel.count(), 1, "two would share their connections");
    for (text, clients, workloads) in [
        (include_str!("../../../../docs/examples/lab-clients.toml"), 7, 24),
        (include_str!("../../../../docs/examples/lab-rdma.toml"), 6, 16),
        (include_str!("../../../../docs/examples/lab-step-test.toml"), 9, 6),
        (include_str!("../../../../docs/examples/lab-fifty-agents.toml"), 50, 4),
    ] {
        let lab = read(text);
        lab.check_clients().unwrap();
        assert_eq!((lab.clients.len(), lab.planned().len()), (clients, workloads));
    }
}

#[test]
fn an_embedded_group_listens_on_as_many_addresses_as_it_has_nodes() {
    let addresses = |count: u8| (1..=count).map(|node| IpAddr::from([10, 0, 0, node])).collect::<Vec<_>>();
    let mut experiment = Experiment::built_in(Procedure::Quick);
    let error = experiment.listen_on(&addresses(2)).unwrap_err().to_string();
    assert!(error.contains("2 addresses for 4 nodes"), "{error}");
    experiment.listen_on(&addresses(4)).unwrap();
    assert_eq!(experiment.embedded().unwrap().addresses, addresses(4));
    assert!(experiment.target.to_string().ends_with("on 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4"));
    experiment.target = Target::Server("a:/b".into());
    let error = experiment.listen_on(&addresses(1)).unwrap_err().to_string();
    assert!(error.contains("a:/b is not an embedded group"), "{error}");
}
