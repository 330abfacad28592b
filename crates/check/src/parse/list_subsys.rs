//! The output of `nvme list-subsys`, as text and as JSON (`-o json`), of nvme-cli 1.x and 2.x.

use super::json::{self, text_of};
use serde_json::Value;

/// A subsystem and the controllers that lead to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subsystem {
    /// `nvme-subsys0`.
    pub name: String,
    pub nqn: String,
    pub controllers: Vec<SubsystemPath>,
}

/// A controller, which is a path to its subsystem.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SubsystemPath {
    /// `nvme0`.
    pub name: String,
    /// `rdma`, `tcp`, `pcie`.
    pub transport: String,
    /// `traddr=10.0.0.7,trsvcid=4420`, and more; 1.x prints blanks in place of commas.
    pub address: String,
    /// `live`, `connecting`.
    pub state: String,
    /// Of one namespace, where it is shown.
    pub ana: Option<String>,
}

/// All subsystems, in their order.
pub(crate) fn subsystems(text: &str) -> Vec<Subsystem> {
    let mut all = Vec::new();
    match json::value(text) {
        Some(value) => walk(&value, &mut all),
        None => lines(text, &mut all),
    }
    all
}

/// A line for a subsystem, lines with its properties, and one for each controller:
///
/// ```text
/// nvme-subsys0 - NQN=nqn.1992-08.com.netapp:6000
///                hostnqn=nqn.2014-08.org.nvmexpress:uuid:1
/// \
///  +- nvme0 rdma traddr=10.0.0.7,trsvcid=4420 live optimized
/// ```
fn lines(text: &str, all: &mut Vec<Subsystem>) {
    for line in text.lines() {
        if let Some((name, nqn)) = line.split_once(" - NQN=") {
            all.push(Subsystem {
                name: name.trim().to_owned(),
                nqn: nqn.trim().to_owned(),
                ..Subsystem::default()
            });
        } else if let (Some(subsystem), Some(rest)) = (all.last_mut(), line.trim_start().strip_prefix("+- "))
        {
            subsystem.controllers.extend(controller(rest));
        }
    }
}

fn controller(text: &str) -> Option<SubsystemPath> {
    let mut words = text.split_whitespace();
    let (name, transport) = (words.next()?.to_owned(), words.next()?.to_owned());
    let rest: Vec<_> = words.collect();
    // The address of a PCIe device has no `=`, and is one word.
    let is_address = |word: &&&str| word.contains('=');
    let len = rest.iter().take_while(is_address).count().max(1);
    let (address, states) = rest.split_at_checked(len)?;
    Some(SubsystemPath {
        name,
        transport,
        address: address.join(","),
        state: states.first().copied().unwrap_or_default().to_owned(),
        ana: states.get(1).map(|state| (*state).to_owned()),
    })
}

/// `{"Subsystems": [...]}`, or since 2.0 a list of hosts, each with such a list. Some releases of
/// 1.x put the paths into an object of their own, after the one of their subsystem.
fn walk(value: &Value, all: &mut Vec<Subsystem>) {
    if let Some(hosts) = value.as_array() {
        for host in hosts {
            walk(host, all);
        }
    }
    let Some(subsystems) = value.get("Subsystems").and_then(Value::as_array) else { return };
    for object in subsystems {
        if let Some(name) = text_of(object.get("Name")) {
            let nqn = text_of(object.get("NQN")).unwrap_or_default().to_owned();
            all.push(Subsystem { name: name.to_owned(), nqn, ..Subsystem::default() });
        }
        let paths = object.get("Paths").and_then(Value::as_array);
        if let (Some(subsystem), Some(paths)) = (all.last_mut(), paths) {
            subsystem.controllers.extend(paths.iter().filter_map(path));
        }
    }
}

fn path(value: &Value) -> Option<SubsystemPath> {
    let text = |key: &str| text_of(value.get(key)).map(str::trim);
    Some(SubsystemPath {
        name: text("Name")?.to_owned(),
        transport: text("Transport")?.to_owned(),
        address: text("Address").unwrap_or_default().replace(' ', ","),
        state: text("State").unwrap_or_default().to_owned(),
        ana: text("ANAState").map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str, address: &str, state: &str, ana: Option<&str>) -> SubsystemPath {
        SubsystemPath {
            name: name.to_owned(),
            transport: "rdma".to_owned(),
            address: address.to_owned(),
            state: state.to_owned(),
            ana: ana.map(str::to_owned),
        }
    }

    fn subsystem(controllers: Vec<SubsystemPath>) -> Subsystem {
        Subsystem { name: "nvme-subsys0".to_owned(), nqn: "nqn.x:y".to_owned(), controllers }
    }

    const LIVE: &str = "traddr=10.0.0.7,trsvcid=4420";
    const LOST: &str = "traddr=10.0.0.8,trsvcid=4420";

    #[test]
    fn text_of_both_releases_is_read() {
        let expected =
            [subsystem(vec![path("nvme0", LIVE, "live", None), path("nvme1", LOST, "connecting", None)])];
        let old = "nvme-subsys0 - NQN=nqn.x:y\n\\\n +- nvme0 rdma traddr=10.0.0.7 trsvcid=4420 live\n \
            +- nvme1 rdma traddr=10.0.0.8 trsvcid=4420 connecting\n";
        assert_eq!(subsystems(old), expected);
        let new = "nvme-subsys0 - NQN=nqn.x:y\n               hostnqn=nqn.h\n               iopolicy=numa\n\\\n \
            +- nvme0 rdma traddr=10.0.0.7,trsvcid=4420 live \n +- nvme1 rdma traddr=10.0.0.8,trsvcid=4420 connecting \n";
        assert_eq!(subsystems(new), expected);
        let states = new.replace("live ", "live optimized");
        assert_eq!(subsystems(&states)[0].controllers[0], path("nvme0", LIVE, "live", Some("optimized")));
        let pcie = "nvme-subsys1 - NQN=nqn.p\n\\\n +- nvme2 pcie 0000:3d:00.0 live\n";
        let found = &subsystems(pcie)[0].controllers[0];
        assert_eq!((&*found.transport, &*found.address, &*found.state), ("pcie", "0000:3d:00.0", "live"));
        assert!(subsystems(" +- nvme0 rdma traddr=1 live\nrubbish\n").is_empty());
        assert!(subsystems("nvme-subsys0 - NQN=x\n +- nvme0\n +- nvme0 rdma\n")[0].controllers.is_empty());
    }

    #[test]
    fn json_of_both_releases_is_read() {
        let one =
            r#"{"Name":"nvme0","Transport":"rdma","Address":"traddr=10.0.0.7 trsvcid=4420","State":"live"}"#;
        let expected = [subsystem(vec![path("nvme0", LIVE, "live", None)])];
        for text in [
            format!(r#"{{"Subsystems":[{{"Name":"nvme-subsys0","NQN":"nqn.x:y"}},{{"Paths":[{one}]}}]}}"#),
            format!(r#"{{"Subsystems":[{{"Name":"nvme-subsys0","NQN":"nqn.x:y","Paths":[{one}]}}]}}"#),
            format!(
                r#"[{{"HostNQN":"nqn.h","Subsystems":[{{"Name":"nvme-subsys0","NQN":"nqn.x:y","Paths":[{one}]}}]}}]"#
            ),
        ] {
            assert_eq!(subsystems(&text), expected, "{text}");
        }
        let states = r#"[{"Subsystems":[{"Name":"nvme-subsys0","NQN":"nqn.x:y","Paths":[{"Name":"nvme0",
            "Transport":"rdma","Address":"traddr=10.0.0.7,trsvcid=4420","State":"live","ANAState":"non-optimized"}]}]}]"#;
        assert_eq!(subsystems(states)[0].controllers[0].ana.as_deref(), Some("non-optimized"));
        assert!(subsystems("[{\"Subsystems\":[{\"Paths\":[{}]}]}]").is_empty());
    }
}
