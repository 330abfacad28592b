//! The configuration of an EF600 as requests to its REST interface (SANtricity Web Services), in
//! their order.
//!
//! Paths and bodies are those that the Ansible collection netapp_eseries.santricity 1.4.0 sends. An
//! id that the array chooses is named as `{...}` in a path or body; `ids` says which request finds
//! it.

use crate::model::{Array, Host, Port};
use plan::Scheme;
use plan::layout::{Group, Volume};
use serde_json::{Value, json};

/// GiB in bytes.
const GIB: u64 = 1 << 30;

/// The requests as JSON.
pub(super) fn requests(array: &Array, hosts: &[Host]) -> String {
    let groups = &array.layout.groups;
    let list: Vec<Value> = [
        of_step("settings", settings(array)),
        of_step("settings", array.ports.iter().map(|port| address(array, port)).collect()),
        of_step("volumes", groups.iter().flat_map(|group| group_and_volumes(array, group)).collect()),
        of_step("hosts", hosts.iter().map(host).chain([host_group(array, hosts)]).collect()),
        // rest.sh waits before its step `mappings`.
        vec![formatted()],
        of_step("mappings", array.volumes().map(|(lun, volume)| mapping(array, lun, volume)).collect()),
    ]
    .concat();
    let whole = json!({
        "array": array.label,
        "base": format!("https://{}:8443/devmgr/v2/storage-systems/1", array.management[0]),
        "authentication": "HTTP basic, user admin, the password of EF600_PASSWORD",
        "sent by": "./rest.sh do",
        "afterwards": "./run.sh 25-volume-settings.smcli",
        "ids": ids(),
        "requests": list,
    });
    serde_json::to_string_pretty(&whole).expect("texts and numbers have a form in JSON")
}

/// Names the step of rest.sh in which requests are sent.
fn of_step(step: &str, mut requests: Vec<Value>) -> Vec<Value> {
    for request in &mut requests {
        request["step"] = json!(step);
    }
    requests
}

/// How each id of a path or body is found.
fn ids() -> Value {
    json!({
        "interface CONTROLLER CHANNEL": "GET /interfaces?channelType=hostside: interfaceRef of the NVMe-oF interface, in the order of \
                                         channels, of the controller (GET /graph/xpath-filter?query=/controller/id, sorted: A, B)",
        "drive SLOT": "GET /drives: id where physicalLocation.slot is SLOT + 1",
        "pool NAME": "GET /storage-pools: id where name is NAME",
        "volume NAME": "GET /volumes: id where name is NAME",
        "controller LETTER": "GET /graph/xpath-filter?query=/controller/id, sorted: A, B",
        "host NAME": "GET /hosts: id where name is NAME",
        "group NAME": "GET /host-groups: id where name is NAME",
    })
}

fn post(what: String, path: &str, body: &Value) -> Value {
    json!({ "what": what, "method": "POST", "path": path, "body": body })
}

fn settings(array: &Array) -> Vec<Value> {
    let symbol =
        |what: &str, call: &str, body: Value| post(what.to_owned(), &format!("/symbol/{call}"), &body);
    vec![
        post("name the array".to_owned(), "/configuration", &json!({ "name": array.label })),
        symbol(
            "cache blocks of 32 KiB, flush at 50 %",
            "setSACacheParams",
            json!({ "cacheBlkSize": 32768, "demandFlushAmount": 50, "demandFlushThreshold": 50 }),
        ),
        symbol(
            "host type Linux DM-MP",
            "setStorageArrayProperties",
            json!({ "settings": { "defaultHostTypeIndex": 28 } }),
        ),
        symbol(
            "no automatic load balancing: it would move volumes between controllers under an even load",
            "setAutoLoadBalancing",
            json!({ "enableAutoLoadBalancing": false }),
        ),
        symbol(
            "no host connectivity reporting",
            "setHostConnectivityReporting",
            json!({ "enableHostConnectivityReporting": false }),
        ),
    ]
}

fn address(array: &Array, port: &Port) -> Value {
    let letter = port.controller.to_ascii_uppercase();
    let path = format!("/nvmeof/interfaces/{{interface {letter} {}}}", port.channel);
    let what = format!("address of port {} of controller {letter}", port.label);
    let Some(mask) = array.subnet_mask else {
        let network = json!({ "ipv4Address": port.address });
        return post(what, &path, &json!({ "settings": { "ibSettings": { "networkSettings": network } } }));
    };
    let mut network = json!({
        "ipv4Enabled": true,
        "ipv4Settings": { "configurationMethod": "configStatic", "address": port.address, "subnetMask": mask },
    });
    if let Some(mtu) = array.mtu {
        network["interfaceMtu"] = json!(mtu);
    }
    post(what, &path, &json!({ "settings": { "roceV2Settings": { "networkSettings": network } } }))
}

fn group_and_volumes(array: &Array, group: &Group) -> Vec<Value> {
    let level = if group.scheme == Scheme::Ddp { "raidDiskPool" } else { "raid6" };
    let drives: Vec<_> = group.slots.iter().map(|slot| format!("{{drive {slot}}}")).collect();
    let pool = json!({ "name": group.name, "raidLevel": level, "diskDriveIds": drives, "eraseSecuredDrives": false });
    let mut list = vec![post(format!("create {}", group.name), "/storage-pools", &pool)];
    for volume in &group.volumes {
        let mut body = json!({
            "name": volume.name,
            "poolId": format!("{{pool {}}}", group.name),
            "sizeUnit": "bytes",
            "size": volume.gib.unwrap_or_default() * GIB,
            "dataAssuranceEnabled": false,
        });
        if let Some(segment) = array.layout.stripe.segment_kib {
            body["segSize"] = json!(segment);
        }
        list.push(post(format!("create {}", volume.name), "/volumes", &body));
        let cache = json!({
            "readCacheEnable": true,
            "writeCacheEnable": true,
            "mirrorEnable": true,
            "cacheWithoutBatteries": false,
            "readAheadEnable": false,
        });
        let body = json!({ "cacheSettings": cache, "owningControllerId": format!("{{controller {}}}", volume.owner) });
        let path = format!("/volumes/{{volume {}}}", volume.name);
        list.push(post(format!("{} belongs to controller {}", volume.name, volume.owner), &path, &body));
    }
    list
}

fn host(host: &Host) -> Value {
    let port = json!({ "type": "nvmeof", "port": host.nqn, "label": host.initiator() });
    let body = json!({ "name": host.name, "hostType": { "index": 28 }, "ports": [port] });
    post(format!("create the host {}", host.name), "/hosts", &body)
}

fn host_group(array: &Array, hosts: &[Host]) -> Value {
    let ids: Vec<_> = hosts.iter().map(|host| format!("{{host {}}}", host.name)).collect();
    let body = json!({ "name": array.host_group(), "hosts": ids });
    post("create the host group".to_owned(), "/host-groups", &body)
}

fn formatted() -> Value {
    json!({
        "what": "repeat until longLivedOpsProgress lists no volume of these: only then map them",
        "method": "GET",
        "path": "/symbol/getLongLivedOpsProgress",
    })
}

fn mapping(array: &Array, lun: usize, volume: &Volume) -> Value {
    let body = json!({
        "mappableObjectId": format!("{{volume {}}}", volume.name),
        "targetId": format!("{{group {}}}", array.host_group()),
        "lun": lun,
    });
    post(format!("map {}", volume.name), "/volume-mappings", &body)
}
