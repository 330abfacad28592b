//! What `verify.py` compares an array with: the plan as the REST interface names it.

use crate::model::{Array, Host, Port};
use plan::Scheme;
use plan::layout::Volume;
use serde_json::{Map, Value, json};

/// GiB in bytes.
const GIB: u64 = 1 << 30;

/// The plan as JSON.
pub(super) fn expected(array: &Array, hosts: &[Host]) -> String {
    let mappings: Map<String, Value> =
        array.volumes().map(|(lun, volume)| (volume.name.clone(), json!(lun))).collect();
    let whole = json!({
        "controllers": array.management,
        "settings": {
            "name": array.label,
            "automatic load balancing": false,
            "host connectivity reporting": false,
            "cache block size": 32768,
            "cache flush threshold": 50,
            "default host type": 28,
            "media scan period in days": 30,
        },
        "ports": array.ports.iter().map(|port| network(array, port)).collect::<Vec<_>>(),
        "pools": pools(array),
        "host_group": array.host_group(),
        "hosts": hosts.iter().map(host).collect::<Vec<_>>(),
        "mappings": mappings,
    });
    serde_json::to_string_pretty(&whole).expect("texts and numbers have a form in JSON")
}

fn network(array: &Array, port: &Port) -> Value {
    let mut network = json!({ "address": port.address });
    if let Some(mask) = array.subnet_mask {
        network["netmask"] = json!(mask);
        network["method"] = json!("configStatic");
    }
    if let Some(mtu) = array.mtu {
        network["mtu"] = json!(mtu);
    }
    json!({
        "controller": port.controller.to_ascii_uppercase(),
        "label": port.label,
        "channel": port.channel,
        "network": network,
    })
}

fn pools(array: &Array) -> Vec<Value> {
    let pool = |group: &plan::layout::Group| {
        let volumes: Vec<_> = group.volumes.iter().map(|volume| self::volume(array, volume)).collect();
        json!({
            "name": group.name,
            "level": if group.scheme == Scheme::Ddp { "raidDiskPool" } else { "raid6" },
            "slots": group.slots,
            "volumes": volumes,
        })
    };
    array.layout.groups.iter().map(pool).collect()
}

fn volume(array: &Array, volume: &Volume) -> Value {
    let mut properties = json!({
        "owner": volume.owner,
        "read cache": true,
        "write cache": true,
        "write cache mirroring": true,
        "write cache without batteries": false,
        "read ahead": false,
        "cache flush": "flush10Sec",
        "media scan": true,
        "redundancy check": true,
    });
    if let Some(segment) = array.layout.stripe.segment_kib {
        properties["segment KiB"] = json!(segment);
    }
    let bytes = volume.gib.unwrap_or_default() * GIB;
    json!({ "name": volume.name, "bytes": bytes, "properties": properties })
}

fn host(host: &Host) -> Value {
    json!({ "name": host.name, "type": 28, "nqn": host.nqn, "label": host.initiator() })
}
