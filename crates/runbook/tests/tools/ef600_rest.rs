//! `rest.sh` of an EF600, against an array that keeps what it is told and writes down each request.
//! The members of its answers are those that the Ansible collection netapp_eseries.santricity 1.4.0
//! reads.

use crate::ef600_verify::{CONTROLLERS, INTERFACES, REFERENCES, SA, interface, site};
use crate::scripts::{folder, run, write};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// What keeps an answer from coming: a method, what the path begins with, and whether the array has
/// done what it was asked for.
type Loss = (&'static str, &'static str, bool);

/// What an array refuses: a method, what the path begins with, the status and the body.
type Refusal = (&'static str, &'static str, &'static str, &'static str);

/// Tells about the REST interface itself, without a login.
const ABOUT: &str = "/devmgr/utils/about";

/// An array: its objects by path, the changes it was asked for, what it refuses, and which answer
/// is lost next.
pub(crate) struct Array {
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) changes: Vec<String>,
    refusal: Option<Refusal>,
    pub(crate) loss: Option<Loss>,
    /// The base64 of the login.
    login: &'static str,
}

/// What undo may want.
pub(crate) const ALL_CONSENTS: [(&str, &str); 3] =
    [("HOSTS_DISCONNECTED", "yes"), ("DELETE_DATA", "yes"), ("CHANGE_PORT_ADDRESSES", "yes")];

/// admin:s3cret
const LOGIN: &str = "YWRtaW46czNjcmV0";

impl Array {
    /// As it comes from the factory, with a host of somebody else.
    fn new() -> Self {
        let [b, a] = REFERENCES;
        let interfaces = (0..8_u32).map(|number| {
            let controller = if number < 4 { a } else { b };
            let mut one = interface(controller, 10 + number, &format!("169.254.1.{number}"));
            one["interfaceRef"] = json!(format!("if{number}"));
            one
        });
        let drive = |slot: u32| {
            json!({
                "id": format!("drive{slot}"), "currentVolumeGroupRef": "none",
                "physicalLocation": { "slot": slot + 1 },
            })
        };
        let cache = json!({ "cacheBlkSize": 16384, "demandFlushThreshold": 80, "demandFlushAmount": 80 });
        let objects = [
            (
                "",
                json!({
                    "name": "unnamed", "autoLoadBalancingEnabled": true, "hostConnectivityReportingEnabled": true,
                    "mediaScanPeriod": 30,
                }),
            ),
            (
                SA,
                json!([{ "saData": { "chassisSerialNumber": "S1" }, "cache": cache, "defaultHostTypeIndex": 0 }]),
            ),
            (CONTROLLERS, json!(REFERENCES)),
            (INTERFACES, interfaces.collect()),
            ("/drives", (0..24).map(drive).collect()),
            ("/storage-pools", json!([])),
            ("/volumes", json!([])),
            ("/host-groups", json!([])),
            (
                "/hosts",
                json!([{ "id": "h9", "hostRef": "h9", "name": "other", "label": "other", "clusterRef": "none" }]),
            ),
            ("/symbol/getLongLivedOpsProgress", json!({ "longLivedOpsProgress": [] })),
        ];
        let objects = objects.map(|(path, value)| (path.to_owned(), value)).into_iter().collect();
        Self { objects, changes: Vec::new(), refusal: None, loss: None, login: LOGIN }
    }

    pub(crate) fn object(&mut self, path: &str) -> &mut Value {
        self.objects.get_mut(path).expect("an object")
    }

    pub(crate) fn list(&mut self, path: &str) -> &mut Vec<Value> {
        self.object(path).as_array_mut().expect("a list")
    }

    fn find(&mut self, path: &str, key: &str, id: &str) -> &mut Value {
        self.list(path).iter_mut().find(|one| one[key] == id).unwrap_or_else(|| panic!("no {id} at {path}"))
    }

    /// The status and the body of an answer, unless it is lost.
    fn answer_or_loss(
        &mut self,
        method: &str,
        path: &str,
        login: &str,
        body: &str,
    ) -> Option<(String, String)> {
        let loss = self.loss.take_if(|(of, start, _)| *of == method && path.starts_with(*start));
        if let Some((.., false)) = loss {
            return None;
        }
        let answer = self.answer(method, path, login, body);
        loss.is_none().then_some(answer)
    }

    fn answer(&mut self, method: &str, path: &str, login: &str, body: &str) -> (String, String) {
        if path == ABOUT {
            let about = json!({ "version": "06.00.0000.0000", "runningAsProxy": false });
            return ("200 OK".to_owned(), about.to_string());
        }
        if login != format!("Basic {}", self.login) {
            return ("401 Unauthorized".to_owned(), String::new());
        }
        if method != "GET" {
            self.changes.push(format!("{method} {path}"));
        }
        if let Some((_, _, status, body)) =
            self.refusal.filter(|(of, start, ..)| *of == method && path.starts_with(start))
        {
            return (status.to_owned(), body.to_owned());
        }
        match method {
            "GET" => match self.objects.get(path) {
                Some(value) => ("200 OK".to_owned(), value.to_string()),
                None => ("404 Not Found".to_owned(), String::new()),
            },
            "POST" => {
                self.post(path, &serde_json::from_str(body).expect("JSON"));
                ("200 OK".to_owned(), "{}".to_owned())
            }
            _ => {
                self.delete(path);
                ("204 No Content".to_owned(), String::new())
            }
        }
    }

    fn post(&mut self, path: &str, body: &Value) {
        let name = body["name"].as_str().unwrap_or_default();
        match path {
            "/configuration" => self.object("")["name"] = body["name"].clone(),
            "/symbol/setSACacheParams" => self.object(SA)[0]["cache"] = body.clone(),
            "/symbol/setStorageArrayProperties" => {
                self.object(SA)[0]["defaultHostTypeIndex"] = body["settings"]["defaultHostTypeIndex"].clone();
            }
            "/symbol/setAutoLoadBalancing" => {
                self.object("")["autoLoadBalancingEnabled"] = body["enableAutoLoadBalancing"].clone();
            }
            "/symbol/setHostConnectivityReporting" => {
                let is_on = body["enableHostConnectivityReporting"].clone();
                self.object("")["hostConnectivityReportingEnabled"] = is_on;
            }
            "/storage-pools" => {
                let id = format!("pool-{name}");
                for drive in body["diskDriveIds"].as_array().expect("drives") {
                    self.find("/drives", "id", drive.as_str().expect("an id"))["currentVolumeGroupRef"] =
                        json!(id);
                }
                let pool =
                    json!({ "id": id, "volumeGroupRef": id, "name": name, "raidLevel": body["raidLevel"] });
                self.list("/storage-pools").push(pool);
            }
            "/volumes" => self.create_volume(body),
            "/hosts" => {
                let port = &body["ports"][0];
                let port = json!({ "type": "nvmeof", "address": port["port"], "label": port["label"] });
                self.list("/hosts").push(json!({
                    "id": format!("host-{name}"), "hostRef": format!("host-{name}"), "name": name, "label": name,
                    "clusterRef": "none", "hostTypeIndex": body["hostType"]["index"], "hostSidePorts": [port],
                }));
            }
            "/host-groups" => {
                for host in body["hosts"].as_array().expect("hosts") {
                    self.find("/hosts", "id", host.as_str().expect("an id"))["clusterRef"] = json!("group-1");
                }
                self.list("/host-groups")
                    .push(json!({ "id": "group-1", "clusterRef": "group-1", "name": name }));
            }
            "/volume-mappings" => {
                let id = body["mappableObjectId"].as_str().expect("an id");
                let mapping = json!({
                    "lunMappingRef": format!("map-{id}"), "mapRef": body["targetId"], "lun": body["lun"],
                });
                self.find("/volumes", "id", id)["listOfMappings"] = json!([mapping]);
            }
            _ => self.post_to(path, body),
        }
    }

    fn create_volume(&mut self, body: &Value) {
        let cache = json!({
            "readCacheEnable": true, "writeCacheEnable": true, "mirrorEnable": true, "cwob": false,
            "readAheadMultiplier": 1, "cacheFlushModifier": "flush10Sec",
        });
        let id = format!("volume-{}", body["name"].as_str().expect("a name"));
        self.list("/volumes").push(json!({
            "id": id, "name": body["name"], "volumeGroupRef": body["poolId"], "preferredManager": REFERENCES[1],
            "capacity": body["size"].to_string(), "segmentSize": body["segSize"].as_u64().expect("KiB") << 10,
            "cacheSettings": cache, "listOfMappings": [],
            "mediaScan": { "enable": true, "parityValidationEnable": true },
        }));
    }

    /// A change of one object.
    fn post_to(&mut self, path: &str, body: &Value) {
        if let Some(id) = path.strip_prefix("/volumes/") {
            let volume = self.find("/volumes", "id", id);
            volume["preferredManager"] = body["owningControllerId"].clone();
            let is_on = body["cacheSettings"]["readAheadEnable"].as_bool().expect("a setting");
            volume["cacheSettings"]["readAheadMultiplier"] = json!(u8::from(is_on));
            return;
        }
        let id = path.strip_prefix("/nvmeof/interfaces/").unwrap_or_else(|| panic!("POST {path}"));
        let address = &body["settings"]["ibSettings"]["networkSettings"]["ipv4Address"];
        let found = self.find(INTERFACES, "interfaceRef", id);
        if let Some(wanted) = body["settings"]["roceV2Settings"].get("networkSettings") {
            assert!(wanted.get("interfaceSpeed").is_none(), "the speed is not ours: {body}");
            return set_roce(found, wanted);
        }
        let properties = &mut found["commandProtocolPropertiesList"]["commandProtocolProperties"][0];
        properties["nvmeProperties"]["nvmeofProperties"]["ibProperties"]["ipAddressData"]["ipv4Data"]["ipv4Address"] =
            address.clone();
    }

    fn delete(&mut self, path: &str) {
        let (list, id) = path.rsplit_once('/').expect("an id");
        if list == "/volume-mappings" {
            let id = id.strip_prefix("map-").expect("a mapping");
            self.find("/volumes", "id", id)["listOfMappings"] = json!([]);
            return;
        }
        let before = self.list(list).len();
        self.list(list).retain(|one| one["id"] != id);
        assert_eq!(self.list(list).len(), before - 1, "DELETE {path}");
        let (of, key, ids) = match list {
            "/storage-pools" => ("/drives", "currentVolumeGroupRef", id),
            "/host-groups" => ("/hosts", "clusterRef", id),
            _ => return,
        };
        self.list(of).iter_mut().filter(|one| one[key] == ids).for_each(|one| one[key] = json!("none"));
    }
}

/// Makes a host port one of RoCE.
fn into_roce(interface: &mut Value) {
    let ethernet = json!({ "maximumFramePayloadSize": 1500, "currentInterfaceSpeed": "speed100gig" });
    let channel = interface["ioInterfaceTypeData"]["ib"]["channel"].clone();
    interface["ioInterfaceTypeData"] = json!({ "interfaceType": "ethernet",
        "ethernet": { "channel": channel, "interfaceData": { "ethernetData": ethernet } } });
    let ipv4 = json!({ "ipv4AddressConfigMethod": "configDhcp",
        "ipv4AddressData": { "ipv4Address": "0.0.0.0", "ipv4SubnetMask": "0.0.0.0" } });
    interface["commandProtocolPropertiesList"]["commandProtocolProperties"][0]["nvmeProperties"]["nvmeofProperties"] = json!({
        "provider": "providerRocev2", "roceV2Properties": { "ipv4Enabled": false, "ipv4Data": ipv4 } });
}

fn set_roce(interface: &mut Value, wanted: &Value) {
    interface["ioInterfaceTypeData"]["ethernet"]["interfaceData"]["ethernetData"]["maximumFramePayloadSize"] =
        wanted["interfaceMtu"].clone();
    let properties = &mut interface["commandProtocolPropertiesList"]["commandProtocolProperties"][0];
    let settings = &wanted["ipv4Settings"];
    properties["nvmeProperties"]["nvmeofProperties"]["roceV2Properties"] = json!({
        "ipv4Enabled": wanted["ipv4Enabled"],
        "ipv4Data": { "ipv4AddressConfigMethod": settings["configurationMethod"],
            "ipv4AddressData": { "ipv4Address": settings["address"], "ipv4SubnetMask": settings["subnetMask"] } },
    });
}

/// An array that listens, and the folder of the runbook.
pub(crate) struct Site {
    array: Arc<Mutex<Array>>,
    pub(crate) address: SocketAddr,
    is_over: Arc<Mutex<bool>>,
    server: Option<JoinHandle<()>>,
    pub(crate) folder: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::of(&site())
    }

    pub(crate) fn of(text: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (array, is_over) = (Arc::new(Mutex::new(Array::new())), Arc::new(Mutex::new(false)));
        let (of_server, ended) = (Arc::clone(&array), Arc::clone(&is_over));
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if *ended.lock().expect("no panic") {
                    return;
                }
                serve(stream, &of_server);
            }
        });
        let folder = folder(text);
        // What every user of the machine sees of a program.
        let curl = format!(
            "#!/bin/sh\ntr '\\0' ' ' </proc/$$/cmdline >>{at}/seen\nPATH=${{PATH#*:}} exec curl \"$@\"\n",
            at = folder.path().display()
        );
        write(&folder.path().join("bin/curl"), &curl, 0o755);
        Self { array, address, is_over, server: Some(server), folder }
    }

    /// Runs rest.sh with these words.
    pub(crate) fn rest(&self, words: &str) -> (bool, String) {
        self.rest_with(words, "s3cret", &[])
    }

    pub(crate) fn rest_with(
        &self,
        words: &str,
        password: &str,
        variables: &[(&str, &str)],
    ) -> (bool, String) {
        let path = format!("{}/bin:{}", self.folder.path().display(), std::env::var("PATH").expect("a path"));
        let mut command = Command::new(self.folder.path().join("array-de0704/rest.sh"));
        command.args(words.split(' ')).env("PATH", path).env("EF600_URL", format!("http://{}", self.address));
        command.env("EF600_PASSWORD", password).env_remove("EF600_PASSWORD_FILE").env("CONFIRM_S", "0");
        command.env("WAIT_S", "0").envs(variables.iter().copied());
        run(&mut command)
    }

    pub(crate) fn array(&self) -> std::sync::MutexGuard<'_, Array> {
        self.array.lock().expect("no panic")
    }

    /// The changes since the last time.
    pub(crate) fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.array().changes)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Ok(mut is_over) = self.is_over.lock() {
            *is_over = true;
        }
        // Wakes the server, which ends then.
        let _ = TcpStream::connect(self.address);
        let ended = self.server.take().expect("a server").join();
        assert!(std::thread::panicking() || ended.is_ok(), "the array panicked");
    }
}

fn serve(stream: TcpStream, array: &Mutex<Array>) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    let (mut login, mut length) = (String::new(), 0);
    // Somebody who connects and asks for nothing.
    if reader.read_line(&mut first).unwrap_or_default() == 0 {
        return;
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        match line.trim().split_once(": ") {
            Some(("Authorization", value)) => login = value.to_owned(),
            Some(("Content-Length", value)) => length = value.parse().expect("a number"),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let mut words = first.split(' ');
    let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
    let path = path.strip_prefix("/devmgr/v2/storage-systems/1").unwrap_or(path);
    let body = String::from_utf8(body).expect("UTF-8");
    let answer = array.lock().expect("no panic").answer_or_loss(method, path, &login, &body);
    let Some((status, answer)) = answer else { return };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    let _ = reader.get_mut().write_all((head + &answer).as_bytes());
}

#[test]
fn the_requests_bring_an_array_to_the_plan_and_are_taken_back() {
    let site = Site::new();
    let before = site.array().objects.clone();
    let (worked, said) = site.rest("verify settings");
    assert!(!worked && said.contains("name is unnamed, and de0704-ef600 is planned"), "{said}");
    let (worked, said) = site.rest("do");
    assert!(worked, "{said}");
    assert!(said.starts_with("name the array\n") && said.ends_with("map de0704a02v2\n"), "{said}");
    // 5 settings, 8 ports, 2 pools, 4 volumes with a change each (those of A have read ahead), 3
    // hosts, their group, 4 mappings.
    assert_eq!(site.changes().len(), 5 + 8 + 2 + 4 + 4 + 3 + 1 + 4, "{said}");
    let as_planned = (true, "settings, volumes, hosts, mappings: as planned\n".to_owned());
    assert_eq!(site.rest("verify"), as_planned);
    // Once more: nothing is left to do.
    assert_eq!(site.rest("do"), (true, String::new()));
    assert!(site.changes().is_empty());
    // Data are not deleted unless that is wanted, nor while hosts may use them.
    for variables in [&[][..], &[("DELETE_DATA", "yes")]] {
        let (worked, said) = site.rest_with("undo volumes", "s3cret", variables);
        assert!(!worked && said.contains("de0704a01v1 is mapped: ./rest.sh undo mappings"), "{said}");
    }
    for (words, variables, complaint) in [
        ("undo", &[][..], "HOSTS_DISCONNECTED=yes"),
        ("undo", &[("DELETE_DATA", "yes")], "this takes the volumes away from every host"),
        ("undo", &[("HOSTS_DISCONNECTED", "yes")], "DELETE_DATA=yes"),
        ("undo mappings", &[("HOSTS_DISCONNECTED", "true")], "HOSTS_DISCONNECTED=yes"),
        ("undo hosts", &ALL_CONSENTS[..2], "volumes are mapped to the group de0704_hg1"),
        ("undo settings", &ALL_CONSENTS[..2], "CHANGE_PORT_ADDRESSES=yes"),
    ] {
        let (worked, said) = site.rest_with(words, "s3cret", variables);
        assert!(!worked && said.contains(complaint), "{words}: {said}");
        assert!(site.changes().is_empty(), "{words} has changed something");
    }
    let (worked, said) = site.rest_with("undo", "s3cret", &ALL_CONSENTS[..2]);
    assert!(worked && said.contains("unmap de0704a01v1\n"), "{said}");
    assert_eq!(site.array().objects, before);
    assert!(!site.folder.path().join("array-de0704/rest-made").exists());
    site.changes();
    assert_eq!(site.rest("undo"), (true, String::new()));
    assert!(site.changes().is_empty());
    let seen = std::fs::read_to_string(site.folder.path().join("seen")).expect("what was seen");
    assert!(seen.contains("--config -") && !seen.contains("s3cret"), "{seen}");
}

#[test]
fn what_somebody_else_has_made_is_neither_taken_nor_removed() {
    let site = Site::new();
    let other = json!({ "id": "x", "hostRef": "x", "name": "cmp01", "label": "cmp01", "clusterRef": "none" });
    site.array().list("/hosts").push(other);
    let (worked, said) = site.rest("do hosts");
    assert!(!worked && said.contains("there is a host cmp01 already, which this has not made"), "{said}");
    assert_eq!(site.rest("undo hosts"), (true, String::new()));
    assert!(site.changes().is_empty());
    // A step that needs another one says so.
    let (worked, said) = site.rest("do mappings");
    assert!(!worked && said.contains("the array has no group de0704_hg1"), "{said}");
}

/// A step that ends in the middle goes on when it runs again, and undo takes back the first half.
#[test]
fn a_refused_request_ends_the_step_and_it_can_go_on() {
    let site = Site::new();
    for (status, body, said) in [
        (
            "422 Unprocessable Entity",
            "{\"errorMessage\":\"no free capacity\"}",
            "/volumes: 422: no free capacity",
        ),
        ("409 Conflict", "<html>", "/volumes: 409: <html>"),
        ("500 Internal Server Error", "", "/volumes: 500: "),
    ] {
        site.array().refusal = Some(("POST", "/volumes", status, body));
        let (worked, all) = site.rest("do volumes");
        assert!(!worked && all.contains(said), "{all}");
        let is_noted = site.folder.path().join("array-de0704/rest-made/volume").exists();
        assert_eq!(is_noted, status.starts_with('5'), "{status}");
    }
    assert_eq!(site.changes().iter().filter(|change| *change == "POST /storage-pools").count(), 1);
    site.array().refusal = None;
    // The last refusal was none that says for sure that nothing was made.
    let notes = site.folder.path().join("array-de0704/rest-made");
    assert_eq!(std::fs::read_to_string(notes.join("volume")).expect("a note"), "de0704a01v1\t\n");
    let (worked, said) = site.rest("do volumes");
    assert!(worked && said.contains("create de0704a01v1\n"), "{said}");
    assert_eq!(site.rest("verify volumes"), (true, "volumes: as planned\n".to_owned()));
    site.array().refusal = Some(("DELETE", "/storage-pools", "422 No", "{\"localizedMessage\":\"in use\"}"));
    let (worked, said) = site.rest_with("undo volumes", "s3cret", &[("DELETE_DATA", "yes")]);
    assert!(!worked && said.contains(": 422: in use"), "{said}");
    site.array().refusal = None;
    let (worked, said) = site.rest_with("undo volumes", "s3cret", &[("DELETE_DATA", "yes")]);
    assert!(worked, "{said}");
    for path in ["/volumes", "/storage-pools"] {
        assert_eq!(site.array().list(path).len(), 0, "{path}");
    }
}

#[test]
fn volumes_are_not_mapped_while_they_are_formatted() {
    let site = Site::new();
    let (worked, said) = site.rest("do volumes hosts");
    assert!(worked, "{said}");
    let running = json!({ "longLivedOpsProgress": [{ "volAction": "initializing",
        "init": { "volumeRef": "volume-de0704a02v1", "percentComplete": 42 } }] });
    *site.array().object("/symbol/getLongLivedOpsProgress") = running;
    let (worked, said) = site.rest("do mappings");
    assert!(!worked && said.contains("volumes are still being formatted"), "{said}");
    *site.array().object("/symbol/getLongLivedOpsProgress") = json!({ "longLivedOpsProgress": [
        { "volAction": "initializing", "init": { "volumeRef": "volume-other", "percentComplete": 42 } }] });
    let (worked, said) = site.rest("do mappings");
    assert!(worked && said.contains("map de0704a01v1\n"), "{said}");
    let wrong = json!([{ "lunMappingRef": "m", "mapRef": "group-1", "lun": 9 }]);
    site.array().list("/volumes")[0]["listOfMappings"] = wrong;
    let (worked, said) = site.rest("do mappings");
    assert!(!worked && said.contains("de0704a01v1 is mapped already, and not as planned"), "{said}");
}

#[test]
fn an_array_that_does_not_answer_is_changed_by_nothing() {
    let site = Site::new();
    let (worked, said) = site.rest_with("do", "wrong", &[]);
    assert!(!worked && said.contains(": 401; is the password right?"), "{said}");
    let (worked, said) = site.rest_with("do", "", &[]);
    assert!(!worked && said.contains("set EF600_PASSWORD_FILE or EF600_PASSWORD"), "{said}");
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|of| of.local_addr()).expect("an address");
    let (worked, said) = site.rest_with("do", "s3cret", &[("EF600_URL", &format!("http://{nobody}"))]);
    assert!(!worked && said.contains("no controller answers") && said.contains("(7)"), "{said}");
    *site.array().object("/storage-pools") = json!("rubbish");
    let (worked, said) = site.rest("do volumes");
    assert!(!worked && !said.contains("create"), "{said}");
    for words in ["", "did", "do everything", "undo settings twice"] {
        let (worked, said) = site.rest(words);
        assert!(!worked && said.contains("usage: "), "{words}: {said}");
    }
    assert!(site.changes().is_empty());
}

/// curl's configuration has a syntax of its own.
#[test]
fn a_password_may_have_any_characters_and_come_from_a_file() {
    let site = Site::new();
    // admin:p"a\s s
    site.array().login = "YWRtaW46cCJhXHMgcw==";
    let (worked, said) = site.rest_with("do settings", "p\"a\\s s", &[]);
    assert!(worked, "{said}");
    let file = site.folder.path().join("password");
    write(&file, "p\"a\\s s\n", 0o600);
    let file = file.to_str().expect("UTF-8");
    let (worked, said) = site.rest_with("undo settings", "", &[("EF600_PASSWORD_FILE", file)]);
    assert!(worked, "{said}");
    assert_eq!(site.array().object("")["name"], "unnamed");
}

/// The addresses of ports are the ends of the paths of hosts.
#[test]
fn the_address_of_a_port_is_not_changed_while_a_volume_is_mapped() {
    let site = Site::new();
    let mapped = json!([{ "id": "v9", "name": "v9", "volumeGroupRef": "p9",
        "listOfMappings": [{ "lunMappingRef": "m9", "mapRef": "h9", "lun": 1 }] }]);
    *site.array().object("/volumes") = mapped;
    let (worked, said) = site.rest("do settings");
    assert!(!worked && said.contains("CHANGE_PORT_ADDRESSES=yes"), "{said}");
    assert!(site.changes().is_empty());
    let (worked, said) = site.rest_with("do settings", "s3cret", &ALL_CONSENTS[2..]);
    assert!(worked, "{said}");
    site.changes();
    // As planned: nothing would change.
    assert_eq!(site.rest("do settings"), (true, String::new()));
    let (worked, said) = site.rest("undo settings");
    assert!(!worked && said.contains("CHANGE_PORT_ADDRESSES=yes"), "{said}");
    assert!(site.changes().is_empty());
    let (worked, said) = site.rest_with("undo settings", "s3cret", &ALL_CONSENTS[2..]);
    assert!(worked && site.changes().len() == 13, "{said}");
}

/// Something else may have the name, the place or the address of what was made.
#[test]
fn undo_leaves_what_is_not_what_was_made() {
    let site = Site::new();
    let (worked, said) = site.rest("do volumes hosts mappings");
    assert!(worked, "{said}");
    // Another array answers.
    site.array().object(SA)[0]["saData"]["chassisSerialNumber"] = json!("S2");
    site.changes();
    for words in ["undo", "do hosts"] {
        let (worked, said) = site.rest_with(words, "s3cret", &ALL_CONSENTS);
        assert!(!worked && said.contains("is of the array S1, and this is S2"), "{said}");
    }
    assert!(site.changes().is_empty());
    site.array().object(SA)[0]["saData"]["chassisSerialNumber"] = json!("S1");
    // Somebody has mapped a volume elsewhere, and made a host anew.
    site.array().list("/volumes")[0]["listOfMappings"][0]["mapRef"] = json!("h9");
    for host in site.array().list("/hosts").iter_mut().filter(|host| host["name"] == "cmp01") {
        host["id"] = json!("anew");
    }
    let (worked, said) = site.rest("do hosts");
    assert!(!worked && said.contains("cmp01, which is not the one that this has made"), "{said}");
    let (worked, said) = site.rest_with("undo mappings hosts", "s3cret", &ALL_CONSENTS);
    assert!(worked && said.contains("the host cmp01 is not the one that this has made: it stays"), "{said}");
    assert_eq!(said.matches("unmap ").count(), 3, "{said}");
    assert_eq!(site.array().list("/volumes")[0]["listOfMappings"].as_array().expect("a list").len(), 1);
    assert!(site.array().list("/hosts").iter().any(|host| host["id"] == "anew"));
    site.changes();
    let (worked, said) = site.rest_with("undo volumes", "s3cret", &ALL_CONSENTS);
    assert!(!worked && said.contains("de0704a01v1 is mapped") && site.changes().is_empty(), "{said}");
}

/// A plan that has changed since is not taken for one that is met.
#[test]
fn what_was_made_by_another_plan_is_named() {
    let site = Site::new();
    let (worked, said) = site.rest("do");
    assert!(worked, "{said}");
    let requests = site.folder.path().join("array-de0704/rest-requests.json");
    let text = std::fs::read_to_string(&requests).expect("read");
    site.changes();
    for (from, to, step, complaint) in [
        ("nvme:cmp01-ib0", "nvme:cmp01-ib7", "hosts", "the host cmp01 is not as planned"),
        ("\"name\": \"cmp02\"", "\"name\": \"other\"", "hosts", "there is a host other already"),
        ("\"lun\": 1,", "\"lun\": 8,", "mappings", "is mapped already, and not as planned"),
        ("\"raid6\"", "\"raid5\"", "volumes", "the pool de0704a01 is not as planned"),
        ("\"segSize\": 128", "\"segSize\": 64", "volumes", "the volume de0704a01v1 is not as planned"),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        std::fs::write(&requests, changed).expect("written");
        let (worked, said) = site.rest(&format!("do {step}"));
        assert!(!worked && said.contains(complaint) && said.contains("./verify.py"), "{from}: {said}");
        assert!(site.changes().is_empty(), "{from}");
    }
    // A host fewer.
    let mut fewer: Value = serde_json::from_str(&text).expect("JSON");
    let list = fewer["requests"].as_array_mut().expect("a list");
    list.retain(|one| one["step"] != "mappings" || one["body"]["mappableObjectId"] != "{volume de0704a01v1}");
    std::fs::write(&requests, fewer.to_string()).expect("written");
    let (worked, said) = site.rest("do mappings");
    assert!(!worked && said.contains("the mapping de0704a01v1 is of an earlier plan"), "{said}");
    assert!(site.changes().is_empty());
}

/// A proxy of the environment has no business with an array.
#[test]
fn no_proxy_is_asked() {
    let site = Site::new();
    let proxy = [("http_proxy", "http://127.0.0.1:1"), ("all_proxy", "http://127.0.0.1:1")];
    let (worked, said) = site.rest_with("do settings", "s3cret", &proxy);
    assert!(worked, "{said}");
    let (worked, said) = site.rest_with("verify settings", "s3cret", &proxy);
    assert!(worked || said.contains("this differs from the plan"), "{said}");
    assert!(!said.contains("no controller answers"), "{said}");
}

/// What was off is off again, and a speed that somebody has fixed stays.
#[test]
fn a_port_of_roce_gets_back_what_it_had() {
    let roce = "fabric = \"roce\"\nsubnet_mask = \"255.255.255.0\"\nmtu = 9000";
    let site = Site::of(&site().replace("fabric = \"infiniband\"", roce));
    site.array().list(INTERFACES).iter_mut().for_each(into_roce);
    let before = site.array().objects.clone();
    let (worked, said) = site.rest("do settings");
    assert!(worked && said.contains("address of port"), "{said}");
    assert_eq!(site.rest("do settings"), (true, String::new()));
    let (worked, said) = site.rest("undo settings");
    assert!(worked, "{said}");
    assert_eq!(site.array().objects, before);
}
