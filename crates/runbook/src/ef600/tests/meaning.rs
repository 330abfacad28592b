//! What a configuration means, read from each form of it: one sentence for each thing that an array
//! would be told, so that the forms can be compared whatever they look like.

use super::{Command, commands, text};
use crate::Artifact;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The sentences.
type Meaning = BTreeSet<String>;

/// The settings of a volume's cache, in this order: read, write, mirrored, without battery, read
/// ahead.
fn volume(name: &str, pool: &str, gib: u64, owner: &str, segment: Option<&str>, cache: [&str; 5]) -> String {
    let segment = segment.unwrap_or("the pool's");
    format!("volume {name} of {pool}: {gib} GiB, owner {owner}, segment {segment}, cache {}", cache.join(" "))
}

fn pool(name: &str, level: &str, slots: BTreeSet<u64>) -> String {
    format!("pool {name}: {level} of {slots:?}")
}

fn port(controller: &str, channel: &str, address: &str, mask: Option<&str>, mtu: Option<&str>) -> String {
    let controller = controller.to_ascii_uppercase();
    format!("port {channel} of {controller}: {address} {} {}", mask.unwrap_or("-"), mtu.unwrap_or("-"))
}

/// Name, size of a cache block in bytes, percent at which it is flushed, load balancing,
/// connectivity reporting, type of hosts.
fn settings(values: [&str; 6]) -> String {
    format!("settings: {}", values.join(", "))
}

fn host(name: &str, kind: &str, nqn: &str, label: &str) -> String {
    format!("host {name} of type {kind}: {nqn} as {label}")
}

fn member(host: &str, group: &str) -> String {
    format!("host {host} in {group}")
}

fn mapping(volume: &str, lun: &str, group: &str) -> String {
    format!("volume {volume} is {lun} for {group}")
}

fn plain(text: &str) -> &str {
    text.trim_matches(['[', ']', '"'])
}

/// The number of a port on its controller.
fn channel(label: &str) -> String {
    let place = ["1a", "1b", "2a", "2b"].iter().position(|known| *known == label);
    (place.unwrap_or_else(|| panic!("no port {label}")) + 1).to_string()
}

/// The commands of all scripts.
struct Scripts(Vec<Command>);

impl Scripts {
    /// The commands that begin with these words.
    fn of<'a>(&'a self, start: &'a [&str]) -> impl Iterator<Item = &'a Command> {
        let begins = |words: &[String]| words.iter().take(start.len()).eq(start.iter());
        self.0.iter().filter(move |(words, _)| begins(words))
    }

    /// The value of a parameter of the first one of these commands that has it.
    fn one(&self, start: &[&str], key: &str) -> String {
        let found = self.of(start).find_map(|(_, parameters)| parameters.get(key));
        plain(found.unwrap_or_else(|| panic!("no {key}"))).to_owned()
    }
}

/// From the SMcli scripts, which are compared with the guide's figures.
pub(super) fn of_scripts(files: &[Artifact]) -> Meaning {
    let read = |name: &str| commands(text(files, &format!("array-de0704/{name}.smcli")));
    let all = Scripts(
        ["10-basic", "15-ports", "20-volumes", "40-hosts", "50-map"].into_iter().flat_map(read).collect(),
    );
    let mut meaning = Meaning::new();
    let array = |key| all.one(&["set", "storageArray"], key);
    let is_silent = all.of(&["set", "storageArray", "hostConnectivityReporting", "disable"]).next().is_some();
    let block = array("cacheBlockSize").parse::<u32>().expect("KiB") << 10;
    meaning.insert(settings([
        &array("userLabel"),
        &block.to_string(),
        &array("cacheFlushStart"),
        &array("autoLoadBalancingEnable"),
        &(!is_silent).to_string(),
        &array("defaultHostType"),
    ]));
    for (words, parameters) in all.of(&["set", "controller"]) {
        let of = |key: &str| parameters.get(key).map(|text| &**text);
        let address = of("IPV4Address").expect("an address");
        let channel = channel(plain(&words[4]));
        meaning.insert(port(
            plain(&words[2]),
            &channel,
            address,
            of("IPV4SubnetMask"),
            of("maxFramePayload"),
        ));
    }
    scripted_volumes(&all, &mut meaning);
    let initiators: BTreeMap<&str, &BTreeMap<String, String>> =
        all.of(&["create", "initiator"]).map(|(_, of)| (plain(&of["host"]), of)).collect();
    for (_, parameters) in all.of(&["create", "host"]) {
        let name = plain(&parameters["userLabel"]);
        let initiator = initiators[name];
        let (nqn, label) = (plain(&initiator["identifier"]), plain(&initiator["userLabel"]));
        meaning.insert(host(name, &parameters["hostType"], nqn, label));
        meaning.insert(member(name, plain(&parameters["hostGroup"])));
    }
    for (words, parameters) in all.of(&["set", "volume"]) {
        if let Some(lun) = parameters.get("logicalUnitNumber") {
            meaning.insert(mapping(plain(&words[2]), lun, plain(&parameters["hostGroup"])));
        }
    }
    meaning
}

fn scripted_volumes(all: &Scripts, meaning: &mut Meaning) {
    for (kind, level) in [("volumeGroup", "raid6"), ("diskPool", "raidDiskPool")] {
        for (_, parameters) in all.of(&["create", kind]) {
            let slot = |drive: &str| drive.strip_prefix("0,").expect("tray 0").parse().expect("a slot");
            let slots = parameters["drives"].split_whitespace().map(slot).collect();
            meaning.insert(pool(plain(&parameters["userLabel"]), level, slots));
        }
    }
    let every = |key| all.one(&["set", "allVolumes"], key);
    let caches =
        ["readCacheEnabled", "writeCacheEnabled", "mirrorCacheEnabled", "cacheWithoutBatteryEnabled"];
    let caches = caches.map(every);
    for (_, parameters) in all.of(&["create", "volume"]) {
        let of = |key: &str| parameters.get(key).map(|text| plain(text));
        let group = of("volumeGroup").or(of("diskPool")).expect("a pool");
        // SMcli's GB are GiB.
        let gib = of("capacity").and_then(|text| text.strip_suffix("GB")).expect("a capacity");
        let ahead = of("cacheReadPrefetch").expect("a setting");
        let cache: [&str; 5] = [&caches[0], &caches[1], &caches[2], &caches[3], ahead];
        let (name, owner) = (of("userLabel").expect("a name"), of("owner").expect("an owner"));
        meaning.insert(volume(name, group, gib.parse().expect("GiB"), owner, of("segmentSize"), cache));
    }
}

/// A text or number as a text.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `{volume de0704a01v1}` as `de0704a01v1`.
fn id<'a>(text: &'a Value, kind: &str) -> &'a str {
    let text = text.as_str().unwrap_or_default();
    let start = text.find('{').map_or(0, |at| at + 1);
    let inner = text[start..].trim_end_matches('}');
    inner.strip_prefix(kind).unwrap_or_else(|| panic!("{text} names no {kind}")).trim_start()
}

/// The list of REST requests.
struct Requests(Vec<Value>);

impl Requests {
    /// The requests to paths that begin with this.
    fn to<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |one| one["path"].as_str().is_some_and(|path| path.starts_with(start)))
    }

    /// A value of the body of the first one of these that has it.
    fn body(&self, path: &str, pointer: &str) -> String {
        let found = self.to(path).find_map(|request| request["body"].pointer(pointer));
        shown(found.unwrap_or_else(|| panic!("no {pointer} of {path}")))
    }
}

/// From the list of REST requests.
pub(super) fn of_requests(files: &[Artifact]) -> Meaning {
    let whole: Value = serde_json::from_str(text(files, "array-de0704/rest-requests.json")).expect("JSON");
    let all = Requests(whole["requests"].as_array().expect("a list").clone());
    let mut meaning = Meaning::new();
    let flush = all.body("/symbol/setSACacheParams", "/demandFlushThreshold");
    assert_eq!(flush, all.body("/symbol/setSACacheParams", "/demandFlushAmount"));
    meaning.insert(settings([
        &all.body("/configuration", "/name"),
        &all.body("/symbol/setSACacheParams", "/cacheBlkSize"),
        &flush,
        &all.body("/symbol/setAutoLoadBalancing", "/enableAutoLoadBalancing"),
        &all.body("/symbol/setHostConnectivityReporting", "/enableHostConnectivityReporting"),
        &all.body("/symbol/setStorageArrayProperties", "/settings/defaultHostTypeIndex"),
    ]));
    for request in all.to("/nvmeof/interfaces/") {
        let (controller, channel) = id(&request["path"], "interface").split_once(' ').expect("two words");
        let settings = &request["body"]["settings"];
        let ib = &settings["ibSettings"]["networkSettings"]["ipv4Address"];
        let roce = &settings["roceV2Settings"]["networkSettings"];
        let address = ib.as_str().or(roce["ipv4Settings"]["address"].as_str()).expect("an address");
        let mtu = roce["interfaceMtu"].as_u64().map(|mtu| mtu.to_string());
        let mask = roce["ipv4Settings"]["subnetMask"].as_str();
        meaning.insert(port(controller, channel, address, mask, mtu.as_deref()));
    }
    requested_volumes(&all, &mut meaning);
    for request in all.to("/hosts") {
        let body = &request["body"];
        let [port] = &body["ports"].as_array().expect("ports")[..] else { panic!("{body}") };
        assert_eq!(port["type"], "nvmeof");
        let kind = shown(&body["hostType"]["index"]);
        meaning.insert(host(&shown(&body["name"]), &kind, &shown(&port["port"]), &shown(&port["label"])));
    }
    for request in all.to("/host-groups") {
        let body = &request["body"];
        let hosts = body["hosts"].as_array().expect("hosts").iter();
        meaning.extend(hosts.map(|one| member(id(one, "host"), &shown(&body["name"]))));
    }
    for request in all.to("/volume-mappings") {
        let body = &request["body"];
        let (volume, group) = (id(&body["mappableObjectId"], "volume"), id(&body["targetId"], "group"));
        meaning.insert(mapping(volume, &shown(&body["lun"]), group));
    }
    meaning
}

fn requested_volumes(all: &Requests, meaning: &mut Meaning) {
    for request in all.to("/storage-pools") {
        let body = &request["body"];
        let drives = body["diskDriveIds"].as_array().expect("drives").iter();
        let slots = drives.map(|drive| id(drive, "drive").parse().expect("a slot")).collect();
        meaning.insert(pool(&shown(&body["name"]), &shown(&body["raidLevel"]), slots));
    }
    for request in all.to("/volumes").filter(|request| request["path"] == "/volumes") {
        let body = &request["body"];
        let name = shown(&body["name"]);
        let path = format!("/volumes/{{volume {name}}}");
        let change = &all.to(&path).next().unwrap_or_else(|| panic!("no {path}"))["body"];
        let cache = [
            "readCacheEnable",
            "writeCacheEnable",
            "mirrorEnable",
            "cacheWithoutBatteries",
            "readAheadEnable",
        ];
        let cache = cache.map(|key| shown(&change["cacheSettings"][key]));
        let cache = cache.each_ref().map(|text| &**text);
        let gib = body["size"].as_u64().expect("bytes") >> 30;
        let segment = body.get("segSize").map(shown);
        let (owner, pool) = (id(&change["owningControllerId"], "controller"), id(&body["poolId"], "pool"));
        meaning.insert(volume(&name, pool, gib, owner, segment.as_deref(), cache));
    }
}

/// A task of a playbook: its module, and every argument, those of lists too; elements that have no
/// key are joined.
type Task = (String, BTreeMap<String, String>);

fn tasks(playbook: &str) -> Vec<Task> {
    let mut tasks = Vec::<Task>::new();
    let mut anchors = BTreeMap::new();
    let (_, list) = playbook.split_once("\n  tasks:\n").expect("tasks");
    let mut last = String::new();
    for line in list.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let depth = line.len() - line.trim_start().len();
        if depth < 6 {
            continue;
        }
        let text = line.trim().trim_start_matches("- ");
        let (key, value) =
            text.split_once(": ").or(text.strip_suffix(':').map(|key| (key, ""))).unwrap_or(("", text));
        if depth == 6 {
            // Other keys of a task have no dots.
            if !key.contains('.') {
                continue;
            }
            let module = key.rsplit("na_santricity_").next().unwrap_or_default().to_owned();
            // The arguments of an earlier task, by their name.
            let same = value.strip_prefix('*').map(|name| {
                let at: usize = *anchors.get(name).unwrap_or_else(|| panic!("no {name}"));
                tasks[at].1.clone()
            });
            if let Some(name) = value.strip_prefix('&') {
                anchors.insert(name.to_owned(), tasks.len());
            }
            tasks.push((module, same.unwrap_or_default()));
            continue;
        }
        let Some((_, arguments)) = tasks.last_mut() else { continue };
        if key.is_empty() {
            let joined = arguments.entry(last.clone()).or_default();
            joined.push_str(&format!("{} ", plain(value)));
        } else {
            last = key.to_owned();
            assert_eq!(arguments.insert(last.clone(), plain(value).to_owned()), None, "{key} twice");
        }
    }
    tasks
}

/// From the Ansible playbook.
pub(super) fn of_playbook(files: &[Artifact]) -> Meaning {
    let mut meaning = Meaning::new();
    for (module, arguments) in tasks(text(files, "array-de0704/playbook.yml")) {
        let of = |key: &str| &**arguments.get(key).unwrap_or_else(|| panic!("{module} without {key}"));
        let maybe = |key: &str| arguments.get(key).map(|text| &**text);
        let is_on = |key: &str| match of(key) {
            "enabled" => "true",
            "disabled" => "false",
            other => panic!("{key} is {other}"),
        };
        match &*module {
            "global" => {
                meaning.insert(settings([
                    of("name"),
                    of("cache_block_size"),
                    of("cache_flush_threshold"),
                    is_on("automatic_load_balancing"),
                    is_on("host_connectivity_reporting"),
                    of("default_host_type"),
                ]));
            }
            "nvme_interface" => {
                assert_eq!(maybe("config_method").is_some(), maybe("subnet_mask").is_some());
                let (mask, mtu) = (maybe("subnet_mask"), maybe("mtu"));
                meaning.insert(port(of("controller"), of("channel"), of("address"), mask, mtu));
            }
            "storagepool" => {
                let slot = |drive: &str| drive.strip_prefix("0:").expect("tray 0").parse().expect("a slot");
                let slots: BTreeSet<u64> = of("usable_drives").split(',').map(slot).collect();
                assert_eq!(of("criteria_drive_count"), slots.len().to_string());
                meaning.insert(pool(of("name"), of("raid_level"), slots));
            }
            "volume" => {
                meaning.insert(volume_of_task(&arguments));
            }
            "host" => {
                assert_eq!(of("type"), "nvmeof");
                meaning.insert(host(of("name"), of("host_type"), of("port"), of("label")));
            }
            "hostgroup" => {
                meaning.extend(of("hosts").split_whitespace().map(|host| member(host, of("name"))));
            }
            "lun_mapping" => {
                meaning.insert(mapping(of("volume_name"), of("lun"), of("target")));
            }
            other => assert!(other.starts_with("ansible.builtin."), "{other} is not read"),
        }
    }
    meaning
}

fn volume_of_task(arguments: &BTreeMap<String, String>) -> String {
    let of = |key: &str| &*arguments[key];
    // The collection's gb are GiB.
    assert_eq!(
        (of("size_unit"), of("thin_provision"), of("data_assurance_enabled")),
        ("gb", "false", "false")
    );
    let cache = [
        "read_cache_enable",
        "write_cache_enable",
        "write_cache_mirror_enable",
        "cache_without_batteries",
        "read_ahead_enable",
    ];
    let segment = arguments.get("segment_size_kb").map(|text| &**text);
    let (name, pool, gib) = (of("name"), of("storage_pool_name"), of("size").parse().expect("GiB"));
    volume(name, pool, gib, of("owning_controller"), segment, cache.map(of))
}

/// From what `verify.py` compares an array with.
pub(super) fn of_plan(files: &[Artifact]) -> Meaning {
    let whole: Value = serde_json::from_str(text(files, "array-de0704/plan.json")).expect("JSON");
    let list = |of: &Value, key: &str| of[key].as_array().unwrap_or_else(|| panic!("no {key}")).clone();
    let mut meaning = Meaning::new();
    let keys = [
        "name",
        "cache block size",
        "cache flush threshold",
        "automatic load balancing",
        "host connectivity reporting",
        "default host type",
    ];
    let values = keys.map(|key| shown(&whole["settings"][key]));
    meaning.insert(settings(values.each_ref().map(|text| &**text)));
    for one in list(&whole, "ports") {
        let network = &one["network"];
        let mtu = network.get("mtu").map(shown);
        let address = shown(&network["address"]);
        let (controller, channel) = (shown(&one["controller"]), shown(&one["channel"]));
        meaning.insert(port(&controller, &channel, &address, network["netmask"].as_str(), mtu.as_deref()));
    }
    for one in list(&whole, "pools") {
        let name = shown(&one["name"]);
        let slots = list(&one, "slots").iter().map(|slot| slot.as_u64().expect("a slot")).collect();
        meaning.insert(pool(&name, &shown(&one["level"]), slots));
        for volume in list(&one, "volumes") {
            let properties = &volume["properties"];
            let keys = [
                "read cache",
                "write cache",
                "write cache mirroring",
                "write cache without batteries",
                "read ahead",
            ];
            let cache = keys.map(|key| shown(&properties[key]));
            let segment = properties.get("segment KiB").map(shown);
            let gib = volume["bytes"].as_u64().expect("bytes") >> 30;
            meaning.insert(self::volume(
                &shown(&volume["name"]),
                &name,
                gib,
                &shown(&properties["owner"]),
                segment.as_deref(),
                cache.each_ref().map(|text| &**text),
            ));
        }
    }
    let group = shown(&whole["host_group"]);
    for one in list(&whole, "hosts") {
        let of = |key: &str| shown(&one[key]);
        meaning.insert(host(&of("name"), &of("type"), &of("nqn"), &of("label")));
        meaning.insert(member(&of("name"), &group));
    }
    let luns: &Map<String, Value> = whole["mappings"].as_object().expect("mappings");
    meaning.extend(luns.iter().map(|(volume, lun)| mapping(volume, &shown(lun), &group)));
    meaning
}
