//! The output of `ibv_devinfo`.

/// A port of an RDMA device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RdmaPort {
    pub device: String,
    pub port: String,
    pub firmware: String,
    /// `PORT_ACTIVE`, `PORT_DOWN`.
    pub state: String,
    pub link_layer: String,
    /// Bytes.
    pub active_mtu: Option<u32>,
    pub max_mtu: Option<u32>,
}

/// The ports in the order in which they are printed.
pub(crate) fn rdma_ports(text: &str) -> Vec<RdmaPort> {
    let (mut ports, mut device, mut firmware) = (Vec::<RdmaPort>::new(), "", "");
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        // `PORT_ACTIVE (4)`, `1024 (3)`
        let first = value.split_whitespace().next().unwrap_or_default();
        match (key, ports.last_mut()) {
            ("hca_id", _) => (device, firmware) = (value, ""),
            ("fw_ver", _) => firmware = value,
            ("port", _) => ports.push(RdmaPort {
                device: device.to_owned(),
                port: first.to_owned(),
                firmware: firmware.to_owned(),
                ..RdmaPort::default()
            }),
            ("state", Some(port)) => port.state = first.to_owned(),
            ("link_layer", Some(port)) => port.link_layer = first.to_owned(),
            ("active_mtu", Some(port)) => port.active_mtu = first.parse().ok(),
            ("max_mtu", Some(port)) => port.max_mtu = first.parse().ok(),
            _ => {}
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "hca_id:\tirdma0\n\tfw_ver:\t\t1.72\n\tphys_port_cnt:\t1\n\
        \t\tport:\t1\n\t\t\tstate:\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t4096 (5)\n\
        \t\t\tactive_mtu:\t1024 (3)\n\t\t\tlink_layer:\tEthernet\n\n\
        hca_id:\tmlx5_0\n\tfw_ver:\t\t16.35.4030\n\t\tport:\t1\n\t\t\tstate:\t\tPORT_DOWN (1)\n\
        \t\tport:\t2\n\t\t\tstate:\t\tPORT_INIT (2)\n\t\t\tlink_layer:\tInfiniBand\n";

    #[test]
    fn ports_have_the_device_above_them() {
        let ports = rdma_ports(TEXT);
        assert_eq!(ports.len(), 3);
        assert_eq!(
            ports[0],
            RdmaPort {
                device: "irdma0".into(),
                port: "1".into(),
                firmware: "1.72".into(),
                state: "PORT_ACTIVE".into(),
                link_layer: "Ethernet".into(),
                active_mtu: Some(1024),
                max_mtu: Some(4096),
            }
        );
        assert_eq!((&*ports[2].device, &*ports[2].port, &*ports[2].state), ("mlx5_0", "2", "PORT_INIT"));
        assert_eq!(ports[1].active_mtu, None);
        assert!(rdma_ports("No IB devices found\n").is_empty());
    }
}
