//! The output of `nvme list`, as text and as JSON (`-o json`, also with `-v`), of nvme-cli 1.x and
//! 2.x.

use super::json::{self, text_of};
use serde_json::Value;
use std::collections::HashSet;
use std::ops::Range;

/// A namespace as a device. Without native multipath each path to a namespace is a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NvmeDevice {
    /// `/dev/nvme0n1`.
    pub node: String,
    pub serial: String,
    pub model: String,
    pub namespace: Option<u32>,
    pub firmware: String,
}

/// All devices, in their order.
pub(crate) fn nvme_devices(text: &str) -> Vec<NvmeDevice> {
    match json::value(text) {
        Some(value) => {
            let mut devices = Vec::new();
            walk(&value, &NvmeDevice::default(), &mut devices);
            let mut seen = HashSet::new();
            devices.retain(|device| seen.insert(device.node.clone()));
            devices
        }
        None => table(text),
    }
}

/// A table whose columns are told by a line of hyphens below the header, or by tabs.
fn table(text: &str) -> Vec<NvmeDevice> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("Node"));
    let Some(header) = lines.next() else { return Vec::new() };
    let mut columns = None;
    let mut devices = Vec::new();
    for line in lines {
        if line.starts_with("---") {
            columns = Some(columns_of(line));
        } else if line.starts_with("/dev/") || line.starts_with("nvme") {
            let cells = |line| cells(line, columns.as_deref());
            devices.extend(device(&cells(header), &cells(line)));
        }
    }
    devices
}

/// Where the columns of a line of hyphens stand. Each begins after the end of the one before.
fn columns_of(line: &str) -> Vec<Range<usize>> {
    let mut columns = Vec::new();
    let mut from = 0;
    for word in line.split(' ') {
        let end = from + word.len();
        if !word.is_empty() {
            columns.push(from..end);
        }
        from = end + 1;
    }
    // The last one may be longer than its hyphens.
    if let Some(last) = columns.last_mut() {
        last.end = usize::MAX;
    }
    columns
}

fn cells(line: &str, columns: Option<&[Range<usize>]>) -> Vec<String> {
    match columns {
        Some(columns) => {
            let cell = |column: &Range<usize>| {
                let chars = line.chars().skip(column.start).take(column.end.saturating_sub(column.start));
                chars.collect::<String>().trim().to_owned()
            };
            columns.iter().map(cell).collect()
        }
        None => line.split('\t').map(|cell| cell.trim().to_owned()).collect(),
    }
}

fn device(header: &[String], cells: &[String]) -> Option<NvmeDevice> {
    let cell = |name: &str| {
        let at = header.iter().position(|title| title == name)?;
        cells.get(at).cloned()
    };
    let node = cell("Node")?;
    Some(NvmeDevice {
        node: if node.starts_with("/dev/") { node } else { format!("/dev/{node}") },
        serial: cell("SN")?,
        model: cell("Model")?,
        namespace: cell("Namespace").and_then(|number| number_of(&number)),
        firmware: cell("FW Rev").unwrap_or_default(),
    })
}

/// `1`, or `0x1` of later releases.
fn number_of(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Objects with `DevicePath` are devices (the plain form). In the long form, and since 2.10 in the
/// plain form too, namespaces stand below a subsystem or a controller: `NameSpace` is their name,
/// and the controller before them has what they share. Some are listed in both places.
fn walk(value: &Value, outer: &NvmeDevice, devices: &mut Vec<NvmeDevice>) {
    if let Some(all) = value.as_array() {
        for one in all {
            walk(one, outer, devices);
        }
    }
    let Some(object) = value.as_object() else { return };
    let text = |key: &str| text_of(object.get(key));
    let mut known = outer.clone();
    // What a subsystem's own namespaces share is said by its first controller.
    let first = object.get("Controllers").and_then(|all| all.get(0)).unwrap_or(value);
    for (key, field) in [
        ("SerialNumber", &mut known.serial),
        ("ModelNumber", &mut known.model),
        ("Firmware", &mut known.firmware),
    ] {
        if let Some(found) = text_of(first.get(key)) {
            found.trim().clone_into(field);
        }
    }
    let number =
        |key: &str| object.get(key).and_then(Value::as_u64).and_then(|number| number.try_into().ok());
    if let Some(path) = text("DevicePath") {
        devices.push(NvmeDevice {
            node: path.to_owned(),
            namespace: number("NameSpace").or_else(|| number("Namespace")),
            ..known
        });
    } else if let (Some(name), Some(_)) = (text("NameSpace").or_else(|| text("Namespace")), number("NSID")) {
        devices.push(NvmeDevice { node: format!("/dev/{name}"), namespace: number("NSID"), ..known });
    } else {
        for key in ["Devices", "Subsystems", "Controllers", "Namespaces"] {
            if let Some(inner) = object.get(key) {
                walk(inner, &known, devices);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
Node             SN                   Model                                    Namespace Usage                      Format           FW Rev
---------------- -------------------- ---------------------------------------- --------- -------------------------- ---------------- --------
/dev/nvme0n1     021910045419         NetApp E-Series                          1           2.66  TB /   2.66  TB      4 KiB +  0 B   98710700
/dev/nvme1n12    021910045419         NetApp E-Series                          12          2.66  TB /   2.66  TB      4 KiB +  0 B   98710700
";
    const NEW: &str = "\
Node                  Generic               SN                   Model                                    Namespace  Usage                      Format           FW Rev
--------------------- --------------------- -------------------- ---------------------------------------- ---------- -------------------------- ---------------- --------
/dev/nvme1n12         /dev/ng1n12           021910045419         NetApp E-Series                          0xc          2.66  TB /   2.66  TB      4 KiB +  0 B   98710700
";

    fn device(node: &str, namespace: u32) -> NvmeDevice {
        NvmeDevice {
            node: node.to_owned(),
            serial: "021910045419".to_owned(),
            model: "NetApp E-Series".to_owned(),
            namespace: Some(namespace),
            firmware: "98710700".to_owned(),
        }
    }

    #[test]
    fn tables_of_both_releases_and_of_tabs_are_read() {
        assert_eq!(nvme_devices(OLD), [device("/dev/nvme0n1", 1), device("/dev/nvme1n12", 12)]);
        assert_eq!(nvme_devices(NEW), [device("/dev/nvme1n12", 12)]);
        let tabs = "Node\tSN\tModel\tNamespace\tUsage\tFormat\tFW Rev\n\
            /dev/nvme0n1\t021910045419\tNetApp E-Series\t1\t2.66 TB / 2.66 TB\t4 KiB + 0 B\t98710700\n...\t\t\t\t\t\t\n";
        assert_eq!(nvme_devices(tabs), [device("/dev/nvme0n1", 1)]);
        let bare = OLD.replace("/dev/nvme0n1     ", "nvme0n1          ");
        assert_eq!(nvme_devices(&bare)[0], device("/dev/nvme0n1", 1));
        for text in ["", "No NVMe devices detected.\n", "Node\n/dev/nvme0n1\n", "{", "[1, {}]"] {
            assert!(nvme_devices(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn json_of_both_releases_is_read() {
        let plain = r#"{ "Devices" : [ { "NameSpace" : 12, "DevicePath" : "/dev/nvme1n12", "Firmware" : "98710700",
            "Index" : 1, "ModelNumber" : "NetApp E-Series", "SerialNumber" : "021910045419 ", "SectorSize" : 4096 } ] }"#;
        assert_eq!(nvme_devices(plain), [device("/dev/nvme1n12", 12)]);
        let native = r#"{"Devices":[{"HostNQN":"nqn.h","Subsystems":[{"Subsystem":"nvme-subsys1","SubsystemNQN":"nqn.s",
            "Controllers":[{"Controller":"nvme1","SerialNumber":"021910045419","ModelNumber":"NetApp E-Series",
              "Firmware":"98710700","Transport":"rdma","Namespaces":[],"Paths":[{"Path":"nvme1c1n12","ANAState":"optimized"}]}],
            "Namespaces":[{"NameSpace":"nvme1n12","Generic":"ng1n12","NSID":12,"SectorSize":4096}]}]}]}"#;
        assert_eq!(nvme_devices(native), [device("/dev/nvme1n12", 12)]);
        let of_controller = r#"{"Devices":[{"Subsystem":"nvme-subsys0","Controllers":[{"Controller":"nvme0",
            "SerialNumber":"021910045419","ModelNumber":"NetApp E-Series","Firmware":"98710700",
            "Namespaces":[{"NameSpace":"nvme0n1","NSID":1},{"NameSpace":"nvme0n2","NSID":2}]}],
            "Namespaces":[{"NameSpace":"nvme0n1","NSID":1},{"NameSpace":"nvme0n2","NSID":2}]}]}"#;
        assert_eq!(nvme_devices(of_controller), [device("/dev/nvme0n1", 1), device("/dev/nvme0n2", 2)]);
    }
}
