//! Tests that hold for every option of the table, the conventions of the kernel, and which options
//! contradict each other.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> MountOptions {
    MountOptions::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    match MountOptions::parse(text) {
        Ok(options) => panic!("{text} is taken for {options}"),
        Err(error) => error.to_string(),
    }
}

/// Values that an option accepts.
fn samples(spec: &OptionSpec) -> Vec<Option<String>> {
    let texts: &[&str] = match (spec.name, spec.kind) {
        (_, Kind::Flag) => return vec![None],
        ("minorversion", _) => &["1", "2"],
        (_, Kind::Number { min, max, .. }) => return vec![Some(min.to_string()), Some(max.to_string())],
        ("vers" | "nfsvers", _) => &["3", "4", "4.1", "4.2"],
        ("proto", _) => &["tcp", "tcp6", "rdma", "rdma6"],
        (_, Kind::Size) => &["0", "1", "1024", "2047", "5000", "65536", "1048576", "4294967295"],
        ("remoteports", _) => &["dns", "10.0.0.1", "fd00::1-fd00::9~10.1.0.0-10.1.0.3"],
        ("localports", _) => &["eth0", "10.0.0.1-10.0.0.2~br-lan", "fd00::5"],
        ("sec", _) => &["sys", "krb5:sys"],
        ("xprtsec", _) => &["none"],
        (_, Kind::Choice(choices)) => choices,
        ("congestion", _) => &["cubic", "bbr"],
        (_, Kind::Any) => return vec![None, Some("x=y".to_owned())],
        (_, Kind::Text(_)) => &["10.0.0.1"],
    };
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

fn given(spec: &OptionSpec, value: Option<&str>) -> String {
    let name = spec.name.replace('*', "systemd.automount");
    value.map_or(name.clone(), |value| format!("{name}={value}"))
}

/// Adds the options without which some options are refused.
fn with_company(spec: &OptionSpec, text: &str) -> String {
    match spec.name {
        "minorversion" => format!("vers=4,{text}"),
        "localports_failover" => format!("localports=eth0,{text}"),
        "remoteports_offset" => format!("remoteports=dns,{text}"),
        "acregmin" => format!("acregmax=4294967295,{text}"),
        "acregmax" => format!("acregmin=0,{text}"),
        "acdirmin" => format!("acdirmax=4294967295,{text}"),
        "acdirmax" => format!("acdirmin=0,{text}"),
        _ => text.to_owned(),
    }
}

#[test]
fn the_expected_options_are_in_the_table_once() {
    let listed = "vers nfsvers proto port mountport nconnect remoteports remoteports_offset localports \
        localports_failover mdconnect spread_reads spread_writes max_connect rsize wsize timeo retrans busypoll hard soft \
        ro rw nolock noac actimeo acregmin acregmax acdirmin acdirmax lookupcache forcerdirplus sec noidlexprt idmapdomain \
        resvport noresvport congestion rdma tcp relatime noatime namlen mountaddr mountvers mountproto local_lock \
        addr clientaddr defaults nofail _netdev x-systemd.requires";
    for name in listed.split_whitespace() {
        assert!(spec::find(name).is_some(), "{name}");
    }
    for spec in OPTIONS {
        assert_eq!(OPTIONS.iter().filter(|other| other.name == spec.name).count(), 1, "{}", spec.name);
        let says = !spec.doc.is_empty() || !matches!(spec.effect, Effect::Works);
        assert!(says, "{} says nothing", spec.name);
    }
}

#[test]
fn every_option_takes_its_samples_and_writes_them_back() {
    for spec in OPTIONS {
        for value in samples(spec) {
            let text = with_company(spec, &given(spec, value.as_deref()));
            match spec.effect {
                Effect::Refused(why) => assert!(refusal(&text).contains(why), "{text}"),
                _ if spec.name == "v4.0" => assert!(refusal(&text).contains("version 4.0"), "{text}"),
                _ => {
                    let options = parse(&text);
                    assert_eq!(parse(&options.to_string()), options, "{text}");
                }
            }
        }
    }
}

#[test]
fn every_option_refuses_values_of_another_kind() {
    for spec in OPTIONS {
        let named = |error: String| assert!(error.contains(spec.name.trim_end_matches('*')), "{error}");
        match spec.kind {
            Kind::Flag => named(refusal(&given(spec, Some("1")))),
            Kind::Any => {}
            Kind::Number { min, max, .. } => {
                for value in [i64::from(min) - 1, i64::from(max) + 1] {
                    named(refusal(&given(spec, Some(&value.to_string()))));
                }
                named(refusal(&given(spec, Some("+1"))));
            }
            Kind::Size => named(refusal(&given(spec, Some("1M")))),
            Kind::Choice(_) => named(refusal(&given(spec, Some("frob")))),
            Kind::Text(_) => {}
        }
        if !matches!(spec.kind, Kind::Flag | Kind::Any) {
            named(refusal(&given(spec, None)));
            named(refusal(&given(spec, Some(""))));
        }
    }
}

#[test]
fn options_that_are_not_given_have_their_defaults() {
    let options = MountOptions::default();
    assert_eq!(parse(""), options);
    assert_eq!(parse("hard,rw,tcp,vers=3,ac,rdirplus,port=0,mountport=0,rsize=0,, sec=sys"), options);
    assert_eq!(options.to_string(), "");
    assert_eq!((options.nfs_port(), options.mount_port()), (2049, 2049));
    assert_eq!((options.rsize, options.wsize, options.retrans), (1 << 20, 1 << 20, 2));
    assert_eq!(options.timeo, Duration::from_secs(60));
    for spec in OPTIONS.iter().filter(|spec| matches!(spec.kind, Kind::Number { .. } | Kind::Size)) {
        if let Ok(default) = spec.default.parse::<u32>() {
            assert_eq!(parse(&given(spec, Some(&default.to_string()))).to_string(), "", "{}", spec.name);
        }
    }
}

#[test]
fn ports_follow_the_transport_and_each_other() {
    let ports = |text: &str| (parse(text).nfs_port(), parse(text).mount_port());
    assert_eq!(ports("port=3049"), (3049, 3049));
    assert_eq!(ports("port=3049,mountport=20048"), (3049, 20048));
    assert_eq!(ports("rdma"), (20049, 2049));
    assert_eq!(ports("proto=rdma,port=20050"), (20050, 2049));
}

#[test]
fn without_nconnect_there_is_a_connection_for_each_remote() {
    assert_eq!(parse("").bulk_connections(1), 1);
    assert_eq!(parse("").bulk_connections(0), 1);
    assert_eq!(parse("remoteports=10.0.0.1-10.0.0.4").bulk_connections(4), 4);
    assert_eq!(parse("mdconnect=8,remoteports=10.0.0.0-10.0.0.255").bulk_connections(256), 248);
    assert_eq!(parse("remoteports=10.0.0.0-10.0.1.255").bulk_connections(512), 256);
    assert_eq!(parse("nconnect=3").bulk_connections(4), 3);
}

#[test]
fn sizes_are_rounded_as_the_kernel_does() {
    let cases =
        [(1, 4096), (1023, 4096), (1024, 1024), (2000, 1024), (2048, 2048), (4095, 2048), (4097, 4096)];
    let large = [(65_536, 65_536), (70_000, 69_632), (1_048_575, 1_044_480), (1_048_577, 1_048_576)];
    for (given, rounded) in cases.into_iter().chain(large) {
        assert_eq!(parse(&format!("rsize={given}")).rsize, rounded);
        assert_eq!(parse(&format!("wsize={given}")).wsize, rounded);
    }
}

#[test]
fn the_last_of_two_values_of_an_option_counts() {
    assert!(parse("hard,soft").soft);
    assert!(!parse("soft,hard").soft);
    assert!(parse("rw,ro").read_only);
    assert_eq!(parse("nconnect=2,nconnect=8").nconnect, Some(8));
    assert_eq!(parse("resvport,noresvport").reserved_port, Some(false));
    assert_eq!(parse("vers=4.1,vers=3").to_string(), "");
    assert_eq!(parse("proto=tcp6,proto=rdma").proto_text(), "rdma");
    assert_eq!(parse("actimeo=5,acregmax=9").to_string(), "acregmin=5,acregmax=9,acdirmin=5,acdirmax=5");
}

/// Tests each option with its opposite, and other options that exclude each other.
#[test]
fn the_last_of_two_opposite_options_counts() {
    let is_option = |name: &&str| OPTIONS.iter().any(|spec| spec.name == *name);
    let mut pairs: Vec<(&str, &str)> = OPTIONS
        .iter()
        .filter_map(|spec| Some((spec.name, spec.name.strip_prefix("no").filter(is_option)?)))
        .collect();
    assert!(pairs.len() >= 20, "{pairs:?}");
    pairs.extend([
        ("sync", "async"),
        ("bg", "fg"),
        ("hard", "soft"),
        ("hard", "softerr"),
        ("ro", "rw"),
        ("local_lock=posix", "nolock"),
        ("local_lock=flock", "lock"),
        ("local_lock=all", "local_lock=none"),
        ("noatime", "strictatime"),
        ("rdirplus", "forcerdirplus"),
        ("forcerdirplus", "nordirplus"),
    ]);
    for (one, other) in pairs {
        for (first, last) in [(one, other), (other, one)] {
            assert_eq!(parse(&format!("{first},{last}")), parse(last), "{first},{last}");
        }
        let (with_one, with_other) = (parse(one), parse(other));
        assert!(with_one != with_other, "{one} and {other} are no opposites");
    }
}

#[test]
fn softerr_means_the_same_as_soft() {
    assert!(parse("softerr").soft && !parse("softerr,hard").soft && parse("hard,softerr").soft);
    assert_eq!(parse("softerr").to_string(), "soft");
}

#[test]
fn options_without_effect_are_listed_unless_mount_8_handles_them_or_they_hold_anyway() {
    let idle = |text: &str| parse(text).without_effect().join(",");
    assert_eq!(idle("fsc,ro,nolock,intr,max_connect=4,hard"), "fsc,intr,max_connect");
    assert_eq!(idle("context=system_u:object_r:nfs_t:s0"), "context");
    assert_eq!(idle("defaults,noauto,user,nofail,_netdev,x-systemd.automount,X-mount.mkdir,comment=hi"), "");
    assert_eq!(idle("relatime,nofsc,nosharecache,noacl,noidlexprt,localports=lo,localports_failover"), "");
    assert_eq!(idle("bg,retry=3,softerr,xprtsec=none"), "");
}

#[test]
fn unknown_options_are_refused_by_name_with_the_nearest() {
    assert_eq!(refusal("ro,nconect=4"), "unknown mount option \"nconect\"; did you mean \"nconnect\"?");
    assert_eq!(
        refusal("remoteport=10.0.0.1"),
        "unknown mount option \"remoteport\"; did you mean \"remoteports\"?"
    );
    assert_eq!(refusal("frobnicate"), "unknown mount option \"frobnicate\"");
    assert!(refusal("=3").starts_with("unknown mount option \"\""));
}

#[test]
fn contradictory_options_are_refused() {
    let cases = [
        ("proto=rdma,tcp", "\"proto=rdma\" and \"tcp\" contradict"),
        ("rdma,proto=tcp6", "\"proto=tcp6\" and \"rdma\" contradict"),
        ("nconnect=252,mdconnect=5", "more than 256"),
        ("localports_failover", "no meaning without \"localports\""),
        ("remoteports_offset=3", "no meaning without \"remoteports\""),
        ("acregmin=61", "minimum is above the maximum"),
        ("acdirmin=9,acdirmax=8", "minimum is above the maximum"),
        ("vers=4.1,mountport=20048", "\"vers=4.1\" and \"mountport=20048\" contradict"),
        ("v4,minorversion=1,vers=4.2", "they name two minor versions"),
        ("minorversion=1", "version 3 has no minor versions"),
        (
            "proto=tcp6,remoteports=10.0.0.1",
            "\"proto=tcp6\" contradict each other: it takes IPv6 addresses only",
        ),
        (
            "proto=rdma,remoteports=fd00::1",
            "\"proto=rdma\" contradict each other: it takes IPv4 addresses only",
        ),
        ("remoteports=10.0.0.1,localports=fd00::1", "no path"),
    ];
    for (text, why) in cases {
        let error = refusal(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    parse("rdma,proto=rdma,vers=3");
    parse("nconnect=248,mdconnect=8");
    parse("remoteports=10.0.0.1,localports=fd00::1~eth0");
}

#[test]
fn the_version_is_that_which_was_given_last() {
    for (text, version, shown) in [
        ("", Version::V3, ""),
        ("vers=4.1,vers=3", Version::V3, ""),
        ("vers=3,v4", Version::V4(None), "vers=4"),
        ("nfsvers=4.1", Version::V4(Some(1)), "vers=4.1"),
        ("vers=4,minorversion=2,spread_reads", Version::V4(Some(2)), "vers=4.2,spread_reads"),
        ("v4.2,minorversion=2,nolock", Version::V4(Some(2)), "vers=4.2,nolock"),
    ] {
        let options = parse(text);
        assert_eq!((options.version, options.to_string().as_str()), (version, shown), "{text}");
    }
    assert_eq!(Version::V4(None).minors(), [2, 1]);
}

#[test]
fn options_that_are_not_implemented_are_refused_with_advice() {
    let cases = [
        (
            "vers=4.0",
            "mount option \"vers=4.0\" is not offered: NFS version 4.0 is not built; use vers=4.1 or vers=4.2",
        ),
        (
            "minorversion=0,v4",
            "mount option \"minorversion=0\" is not offered: NFS version 4.0 is not built; use vers=4.1 or vers=4.2",
        ),
        ("vers=2", "mount option \"vers=2\" is not offered: NFS version 2 was never built; use vers=3"),
        ("udp", "mount option \"udp\" is not offered: NFS runs over TCP or RDMA here; use proto=tcp"),
        (
            "proto=udp",
            "mount option \"proto=udp\" is not offered: NFS runs over TCP or RDMA here; use proto=tcp",
        ),
        (
            "xprtsec=mtls",
            "mount option \"xprtsec=mtls\" is not offered: RPC with TLS is not built; leave it out on networks that you trust",
        ),
        ("sec=krb5p", "mount option \"sec=krb5p\" is not offered: only AUTH_SYS is built; use sec=sys"),
    ];
    for (text, error) in cases {
        assert_eq!(refusal(text), error);
    }
}

#[test]
fn errors_for_invalid_values_say_what_is_expected() {
    assert_eq!(
        refusal("nconnect=257"),
        "mount option \"nconnect=257\": connections from 1 to 256 is expected"
    );
    let error = refusal("remoteports=10.0.0.9-10.0.0.1");
    assert!(error.ends_with("is expected; the range \"10.0.0.9-10.0.0.1\" runs backwards"), "{error}");
    assert_eq!(refusal("hard=1"), "mount option \"hard\" takes no value, but has \"1\"");
    assert!(refusal("congestion=../x").contains("name of a congestion control"));
    assert!(refusal("idmapdomain=a@b").contains("a domain, such as"));
    assert_eq!(parse("vers=4.2,idmapdomain=example.org").owner_domain.as_deref(), Some("example.org"));
}

fn any_option() -> impl Strategy<Value = String> {
    (0..OPTIONS.len(), any::<prop::sample::Index>()).prop_map(|(index, value)| {
        let spec = &OPTIONS[index];
        let samples = samples(spec);
        given(spec, samples[value.index(samples.len())].as_deref())
    })
}

proptest! {
    #[test]
    fn options_are_the_same_after_writing_and_reading_back(list in prop::collection::vec(any_option(), 0..12)) {
        if let Ok(options) = MountOptions::parse(&list.join(",")) {
            let text = options.to_string();
            prop_assert_eq!(MountOptions::parse(&text), Ok(options), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC{0,80}") {
        let _ = MountOptions::parse(&text);
        let _ = Target::parse(&text);
        let _ = FstabLine::parse(&text);
        let _ = MountOptions::parse(&format!("remoteports={text}"));
    }
}
