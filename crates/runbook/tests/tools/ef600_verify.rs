//! The comparison of an EF600 with its plan, against a stand-in for the array's REST interface. Its
//! answers have the members that the Ansible collection netapp_eseries.santricity 1.4.0 reads.

use crate::scripts::{folder, run};
use runbook::System;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// The answers of an array, by path.
type Answers = BTreeMap<&'static str, Value>;

pub(crate) const SA: &str = "/graph/xpath-filter?query=/sa";
pub(crate) const CONTROLLERS: &str = "/graph/xpath-filter?query=/controller/id";
pub(crate) const INTERFACES: &str = "/interfaces?channelType=hostside";
/// The references of the controllers B and A: the array lists them in any order.
pub(crate) const REFERENCES: [&str; 2] = ["070000000000000000000002", "070000000000000000000001"];

/// The example with two hosts.
pub(crate) fn site() -> String {
    System::Ef600.site_file().replace("cmp[01-54]", "cmp[01-02]")
}

pub(crate) fn interface(controller: &str, channel: u32, address: &str) -> Value {
    let of_ib = json!({ "ipAddressData": { "addressType": "ipv4", "ipv4Data": { "ipv4Address": address } } });
    let nvmeof = json!({ "provider": "providerInfiniband", "ibProperties": of_ib });
    let nvme = json!({ "commandSet": "nvmeof", "nvmeofProperties": nvmeof });
    json!({
        "interfaceRef": format!("ref-{address}"),
        "controllerRef": controller,
        "ioInterfaceTypeData": { "interfaceType": "ib", "ib": { "channel": channel, "linkState": "active" } },
        "commandProtocolPropertiesList": {
            "commandProtocolProperties": [{ "commandProtocol": "nvme", "nvmeProperties": nvme }],
        },
    })
}

fn volume(name: &str, pool: &str, owner: &str, lun: u32) -> Value {
    let cache = json!({
        "readCacheEnable": true, "writeCacheEnable": true, "mirrorEnable": true, "cwob": false,
        "readAheadMultiplier": 0, "cacheFlushModifier": "flush10Sec",
    });
    json!({
        "name": name, "id": format!("id-{name}"), "volumeGroupRef": pool, "preferredManager": owner,
        "capacity": (4992_u64 << 30).to_string(), "segmentSize": 131_072, "cacheSettings": cache,
        "mediaScan": { "enable": true, "parityValidationEnable": true },
        "listOfMappings": [{ "lun": lun, "mapRef": "group-1" }],
    })
}

fn host(name: &str, group: &str) -> Value {
    let address = format!("nqn.2020-12.com.example.hpc:nvme:{name}-ib0");
    let port = json!({ "type": "nvmeof", "address": address, "label": format!("{name}-ib0") });
    json!({
        "label": name, "name": name, "hostRef": format!("host-{name}"), "clusterRef": group, "hostTypeIndex": 28,
        "hostSidePorts": [port],
    })
}

/// An array that is set up as the example says. It also has a pool, a volume and a host that are
/// somebody else's.
fn as_planned() -> Answers {
    let [b, a] = REFERENCES;
    let interfaces = (0..8_u32).map(|number| {
        let controller = if number < 4 { a } else { b };
        interface(controller, 10 + number, &format!("172.30.57.{}", 107 + number))
    });
    let drive = |slot: u32, pool: &str| json!({ "currentVolumeGroupRef": pool, "physicalLocation": { "slot": slot } });
    let plan: Value = folder_plan();
    let slots = |place: usize| plan["pools"][place]["slots"].as_array().expect("slots").clone();
    let of = |place: usize, pool: &'static str| {
        slots(place).into_iter().map(move |slot| {
            let slot = u32::try_from(slot.as_u64().expect("a number")).expect("small");
            drive(slot + 1, pool)
        })
    };
    let mut other = volume("other", "pool-9", a, 9);
    other["listOfMappings"] = json!([]);
    BTreeMap::from([
        (
            "",
            json!({
                "name": "de0704-ef600", "autoLoadBalancingEnabled": false,
                "hostConnectivityReportingEnabled": false, "mediaScanPeriod": 30,
            }),
        ),
        (
            SA,
            json!([{ "cache": { "cacheBlkSize": 32768, "demandFlushThreshold": 50 }, "defaultHostTypeIndex": 28 }]),
        ),
        (CONTROLLERS, json!(REFERENCES)),
        (INTERFACES, interfaces.collect()),
        (
            "/storage-pools",
            json!([
                { "name": "de0704a01", "volumeGroupRef": "pool-1", "raidLevel": "raid6" },
                { "name": "de0704a02", "volumeGroupRef": "pool-2", "raidLevel": "raid6" },
                { "name": "other", "volumeGroupRef": "pool-9", "raidLevel": "raid1" },
            ]),
        ),
        ("/drives", of(0, "pool-1").chain(of(1, "pool-2")).chain([drive(99, "pool-9")]).collect()),
        (
            "/volumes",
            json!([
                volume("de0704a01v1", "pool-1", a, 1),
                volume("de0704a01v2", "pool-1", b, 2),
                volume("de0704a02v1", "pool-2", a, 3),
                volume("de0704a02v2", "pool-2", b, 4),
                other,
            ]),
        ),
        ("/host-groups", json!([{ "name": "de0704_hg1", "clusterRef": "group-1" }])),
        (
            "/hosts",
            ["cmp01", "cmp02", "mgt01"]
                .map(|name| host(name, "group-1"))
                .into_iter()
                .chain([host("stranger", "none")])
                .collect(),
        ),
    ])
}

/// The plan that the runbook has, for the slots that the planner chose.
fn folder_plan() -> Value {
    let files = runbook::runbook(&site()).expect("a valid site");
    let plan = files.iter().find(|file| file.path.ends_with("plan.json")).expect("a plan");
    serde_json::from_str(&plan.text).expect("JSON")
}

/// Answers one request.
fn answer(stream: TcpStream, answers: &Answers) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).expect("a request");
    let mut is_admin = false;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        // admin:s3cret
        is_admin |= line.trim() == "Authorization: Basic YWRtaW46czNjcmV0";
        if line.trim().is_empty() {
            break;
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default();
    let found = path.strip_prefix("/devmgr/v2/storage-systems/1").and_then(|path| answers.get(path));
    let (status, body) = match found {
        Some(value) if is_admin => ("200 OK", value.to_string()),
        Some(_) => ("401 Unauthorized", String::new()),
        None => ("404 Not Found", String::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = reader.get_mut().write_all((head + &body).as_bytes());
}

/// Runs the comparison with these arguments on an array that answers like this.
fn verify(answers: Answers, password: &str, arguments: &[&str]) -> (bool, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let is_over = Arc::new(Mutex::new(false));
    let ended = Arc::clone(&is_over);
    let server = std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if *ended.lock().expect("no panic") {
                return;
            }
            answer(stream, &answers);
        }
    });
    let folder = folder(&site());
    let mut command = Command::new(folder.path().join("array-de0704/verify.py"));
    command
        .args(arguments)
        .env("EF600_URL", &url)
        .env("EF600_PASSWORD", password)
        .env_remove("EF600_PASSWORD_FILE");
    let said = run(&mut command);
    *is_over.lock().expect("no panic") = true;
    let _ = TcpStream::connect(url.trim_start_matches("http://"));
    server.join().expect("no panic");
    said
}

#[test]
fn an_array_that_is_set_up_as_planned_passes() {
    let (worked, said) = verify(as_planned(), "s3cret", &[]);
    assert!(worked && said == "settings, volumes, hosts, mappings: as planned\n", "{said}");
    for part in ["settings", "volumes", "hosts", "mappings"] {
        assert_eq!(verify(as_planned(), "s3cret", &[part]), (true, format!("{part}: as planned\n")));
    }
}

/// What is changed on the array, and what the comparison says of it.
type Change = (&'static str, fn(&mut Value), &'static str);

const CHANGES: &[Change] = &[
    (
        "",
        |v| v["autoLoadBalancingEnabled"] = json!(true),
        "automatic load balancing is True, and False is planned",
    ),
    ("", |v| v["mediaScanPeriod"] = json!(0), "array: media scan period in days is 0, and 30 is planned"),
    (
        "/volumes",
        |v| v[0]["mediaScan"]["enable"] = json!(false),
        "volume de0704a01v1: media scan is False, and True is planned",
    ),
    (
        "/volumes",
        |v| v[1]["mediaScan"]["parityValidationEnable"] = json!(false),
        "volume de0704a01v2: redundancy check is False, and True is planned",
    ),
    (
        "/volumes",
        |v| v[2]["cacheSettings"]["cacheFlushModifier"] = json!("flushInfinite"),
        "volume de0704a02v1: cache flush is flushInfinite, and flush10Sec is planned",
    ),
    ("", |v| v["name"] = json!("other"), "name is other, and de0704-ef600 is planned"),
    (SA, |v| v[0]["cache"]["cacheBlkSize"] = json!(16384), "cache block size is 16384, and 32768 is planned"),
    (SA, |v| v[0]["defaultHostTypeIndex"] = json!(0), "default host type is 0, and 28 is planned"),
    (
        INTERFACES,
        |v| v[5] = interface(REFERENCES[0], 15, "10.0.0.1"),
        "port 1b of controller B: address is 10.0.0.1, and 172.30.57.112 is planned",
    ),
    (INTERFACES, |v| drop(v.as_array_mut().expect("a list").pop()), "port 2b of controller B is missing"),
    ("/storage-pools", |v| v[1]["name"] = json!("renamed"), "pool de0704a02 is missing"),
    ("/storage-pools", |v| v[0]["raidLevel"] = json!("raid5"), "level is raid5, and raid6 is planned"),
    ("/drives", |v| v[0]["currentVolumeGroupRef"] = json!("none"), "pool de0704a01: drives are in slots"),
    (
        "/volumes",
        |v| v[1]["preferredManager"] = json!(REFERENCES[1]),
        "volume de0704a01v2: owner is A, and B is planned",
    ),
    (
        "/volumes",
        |v| v[0]["segmentSize"] = json!(65536),
        "volume de0704a01v1: segment KiB is 64, and 128 is planned",
    ),
    ("/volumes", |v| v[2]["cacheSettings"]["mirrorEnable"] = json!(false), "write cache mirroring is False"),
    ("/volumes", |v| v[2]["cacheSettings"]["readAheadMultiplier"] = json!(1), "read ahead is True"),
    ("/volumes", |v| v[3]["capacity"] = json!("1073741824"), "volume de0704a02v2: capacity is 1073741824"),
    ("/volumes", |v| v[4]["volumeGroupRef"] = json!("pool-2"), "volume other is there, and not planned"),
    ("/volumes", |v| v[3]["name"] = json!("renamed"), "volume de0704a02v2 is missing"),
    ("/volumes", |v| v[0]["listOfMappings"] = json!([]), "the mapping of volume de0704a01v1 is missing"),
    ("/volumes", |v| v[0]["listOfMappings"][0]["lun"] = json!(7), "LUN is 7, and 1 is planned"),
    (
        "/volumes",
        |v| v[4]["listOfMappings"] = json!([{ "lun": 9, "mapRef": "group-1" }]),
        "the mapping of volume other is there, and not planned",
    ),
    (
        "/volumes",
        |v| v[4]["listOfMappings"] = json!([{ "lun": 9, "mapRef": "host-cmp01" }]),
        "volume other is mapped to a host of de0704_hg1, and not planned",
    ),
    (
        "/volumes",
        |v| {
            v[0]["listOfMappings"] =
                json!([{ "lun": 1, "mapRef": "group-1" }, { "lun": 1, "mapRef": "group-2" }])
        },
        "volume de0704a01v1 is mapped to another target than de0704_hg1 too",
    ),
    ("/host-groups", |v| v[0]["name"] = json!("renamed"), "host group de0704_hg1 is missing"),
    ("/hosts", |v| v[0]["clusterRef"] = json!("none"), "host cmp01 is missing"),
    ("/hosts", |v| v[3]["clusterRef"] = json!("group-1"), "host stranger is there, and not planned"),
    ("/hosts", |v| v[1]["hostTypeIndex"] = json!(6), "host cmp02: type is 6, and 28 is planned"),
    (
        "/hosts",
        |v| v[1]["hostSidePorts"][0]["address"] = json!("nqn.other"),
        "host cmp02: initiator nqn.2020-12.com.example.hpc:nvme:cmp02-ib0 is missing",
    ),
    ("/hosts", |v| v[1]["hostSidePorts"][0]["label"] = json!("x"), "is x, and cmp02-ib0 is planned"),
];

#[test]
fn each_difference_from_the_plan_is_reported_and_fails() {
    for (path, change, complaint) in CHANGES {
        let mut answers = as_planned();
        change(answers.get_mut(path).expect("an answer"));
        let (worked, said) = verify(answers, "s3cret", &[]);
        assert!(!worked && said.contains(complaint), "{complaint} is not in\n{said}");
        assert!(!said.contains("Traceback"), "{said}");
    }
}

#[test]
fn an_array_that_does_not_answer_is_no_array_as_planned() {
    let (worked, said) = verify(as_planned(), "wrong", &[]);
    assert!(!worked && said.contains("401 Unauthorized; is the password right?"), "{said}");
    let mut answers = as_planned();
    answers.insert("/hosts", json!([{ "label": "cmp01" }]));
    let (worked, said) = verify(answers, "s3cret", &["hosts"]);
    assert!(!worked && said.contains("has another form than expected: KeyError('clusterRef')"), "{said}");
    let (worked, said) = verify(as_planned(), "s3cret", &["everything"]);
    assert!(!worked && said.contains("usage:"), "{said}");
}
