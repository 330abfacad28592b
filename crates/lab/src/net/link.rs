//! A link: created, shaped, cut, silenced and restored.

use super::{Error, Layout, Rate, State, system};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A locally administered hardware address that no device of a lab has. The kernel chooses random
/// addresses, which practically never equal this one.
const UNUSED_ADDRESS: &str = "02:00:00:00:de:ad";

/// How long a packet may be queued at a shaped end. This is the buffer of a good switch port.
const QUEUE: &str = "20ms";

/// Packets that a delayed link holds in each direction: enough for a second of 10 Gbit/s in full
/// frames.
const DELAYED_PACKETS: &str = "1000000";

/// The state of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The link carries packets.
    Up,
    /// The link is cut: there is no carrier.
    Cut,
    /// The link is silent: packets are lost without an error.
    Silent,
}

impl Condition {
    /// The name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Cut => "cut",
            Self::Silent => "silent",
        }
    }
}

/// A link between the client and one node.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Link {
    /// The name of the link, and of its device at both ends.
    pub name: String,
    /// The client's address.
    pub client: Ipv4Addr,
    /// The node's address.
    pub node: Ipv4Addr,
    /// The client's IPv6 address.
    pub client_v6: Ipv6Addr,
    /// The node's IPv6 address.
    pub node_v6: Ipv6Addr,
    /// The node's namespace, by its name in the lab.
    pub node_namespace: String,
}

/// One end of a link: the namespace of its device, its addresses, and those of the other end.
struct End {
    namespace: String,
    own: [IpAddr; 2],
    remotes: [IpAddr; 2],
}

impl Link {
    /// The n-th link of a lab, counted from 1.
    pub(super) fn numbered(number: u8, node_namespace: String) -> Self {
        let v6 = |host| Ipv6Addr::new(0xfd77, number.into(), 0, 0, 0, 0, 0, host);
        Self {
            name: format!("n{number}"),
            client: Ipv4Addr::new(10, 77, number, 1),
            node: Ipv4Addr::new(10, 77, number, 2),
            client_v6: v6(1),
            node_v6: v6(2),
            node_namespace,
        }
    }

    fn ends(&self, lab: &State) -> [End; 2] {
        let client = [IpAddr::V4(self.client), IpAddr::V6(self.client_v6)];
        let node = [IpAddr::V4(self.node), IpAddr::V6(self.node_v6)];
        [
            End { namespace: lab.full_name("client"), own: client, remotes: node },
            End { namespace: lab.full_name(&self.node_namespace), own: node, remotes: client },
        ]
    }

    /// Creates both devices, sets their addresses and shapes them.
    pub(super) fn build(&self, lab: &State) -> Result<(), Error> {
        let [client, node] = self.ends(lab);
        let name = self.name.as_str();
        system::ip(&[
            "-n",
            &client.namespace,
            "link",
            "add",
            name,
            "type",
            "veth",
            "peer",
            "name",
            name,
            "netns",
            &node.namespace,
        ])?;
        for end in [&client, &node] {
            self.shape(end, lab.rate(), lab.delay())?;
        }
        for end in [&client, &node] {
            system::ip(&["-n", &end.namespace, "link", "set", name, "up"])?;
        }
        for end in [&client, &node] {
            self.address(end)?;
        }
        self.route(lab)
    }

    /// Lets a node in a namespace of its own reach all addresses of the client over this link. The
    /// client forwards nothing, so nodes do not reach each other.
    fn route(&self, lab: &State) -> Result<(), Error> {
        if lab.layout() != Layout::Apart {
            return Ok(());
        }
        let namespace = lab.full_name(&self.node_namespace);
        let (client, client_v6) = (self.client.to_string(), self.client_v6.to_string());
        for (family, network, via) in [("-4", "10.77.0.0/16", &client), ("-6", "fd77::/16", &client_v6)] {
            system::ip(&["-n", &namespace, family, "route", "replace", network, "via", via])?;
        }
        Ok(())
    }

    /// Sets the addresses of this end. They are already set unless the device was down.
    fn address(&self, end: &End) -> Result<(), Error> {
        for own in end.own {
            let (own, skip_detection): (String, &[&str]) = match own {
                IpAddr::V4(own) => (format!("{own}/24"), &[]),
                // The address is unique here; a second of duplicate address detection would only
                // delay a restore.
                IpAddr::V6(own) => (format!("{own}/64"), &["nodad"]),
            };
            let mut arguments = vec!["-n", &end.namespace, "addr", "replace", &own, "dev", &self.name];
            arguments.extend(skip_detection);
            system::ip(&arguments)?;
        }
        Ok(())
    }

    fn shape(&self, end: &End, rate: Option<Rate>, delay: Option<Duration>) -> Result<(), Error> {
        let device = ["-n", &end.namespace, "qdisc", "add", "dev", &self.name];
        if let Some(rate) = rate {
            let (rate_text, burst) = (rate.to_string(), rate.burst_bytes().to_string());
            let shaper =
                ["root", "handle", "1:", "tbf", "rate", &rate_text, "burst", &burst, "latency", QUEUE];
            system::tc(&[&device[..], &shaper].concat())
                .map_err(|error| map_missing_feature(error, "sch_tbf"))?;
        }
        if let Some(delay) = delay {
            let delay = format!("{}us", delay.as_micros());
            let parent: &[&str] = if rate.is_some() { &["parent", "1:1"] } else { &["root"] };
            let delayer = ["handle", "10:", "netem", "limit", DELAYED_PACKETS, "delay", &delay];
            system::tc(&[&device[..], parent, &delayer].concat()).map_err(|error| {
                map_missing_feature(error, "sch_netem, which delays packets; leave the delay out")
            })?;
        }
        Ok(())
    }

    /// Cuts the link: when the node's device is down, the client's has no carrier either.
    pub(super) fn cut(&self, lab: &State) -> Result<(), Error> {
        let [_, node] = self.ends(lab);
        system::ip(&["-n", &node.namespace, "link", "set", &self.name, "down"]).map(|_| ())
    }

    /// Makes the link silent: each end sends its packets to a hardware address that no device has.
    pub(super) fn drop_silently(&self, lab: &State) -> Result<(), Error> {
        for end in self.ends(lab) {
            for remote in end.remotes {
                let (remote, namespace) = (remote.to_string(), end.namespace.as_str());
                let wrong = ["lladdr", UNUSED_ADDRESS, "dev", &self.name, "nud", "permanent"];
                system::ip(&[&["-n", namespace, "neigh", "replace", &remote][..], &wrong].concat())?;
            }
        }
        Ok(())
    }

    /// Restores the link from being cut or silent.
    pub(super) fn restore(&self, lab: &State) -> Result<(), Error> {
        for end in self.ends(lab) {
            let (namespace, name) = (end.namespace.as_str(), self.name.as_str());
            system::ip(&["-n", namespace, "link", "set", name, "up"])?;
            system::ip(&["-n", namespace, "neigh", "flush", "dev", name, "nud", "permanent"])?;
            // A device that goes down loses its IPv6 addresses and its routes.
            self.address(&end)?;
        }
        self.route(lab)
    }
}

/// Tells a missing kernel feature from other errors.
fn map_missing_feature(error: Error, what: &str) -> Error {
    match error {
        Error::Refused { message, .. } if message.contains("kind is unknown") => {
            Error::Unsupported(format!("it was built without {what}"))
        }
        other => other,
    }
}
