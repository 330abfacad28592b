//! The output of `rdma link show`.

/// A port of an RDMA device as iproute2 shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RdmaLink<'a> {
    pub device: &'a str,
    pub port: &'a str,
    /// `ACTIVE`, `DOWN`.
    pub state: &'a str,
    /// The network interface; InfiniBand shows none.
    pub interface: Option<&'a str>,
}

/// The links in the order in which they are printed.
pub(crate) fn rdma_links(text: &str) -> Vec<RdmaLink<'_>> {
    text.lines().filter_map(link).collect()
}

/// `link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens6f0`; releases before 4.20 begin a
/// line with `1/1: mlx5_0/1: `. InfiniBand has its addresses before the state.
fn link(line: &str) -> Option<RdmaLink<'_>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [first, name, fields @ ..] = &words[..] else { return None };
    let name = match *first {
        "link" => *name,
        number if number.ends_with(':') => name.strip_suffix(':')?,
        _ => return None,
    };
    let (device, port) = name.split_once('/')?;
    let after = |field: &str| fields.iter().skip_while(|word| **word != field).nth(1).copied();
    let is_port = !device.is_empty() && port.parse::<u32>().is_ok();
    is_port.then_some(RdmaLink { device, port, state: after("state")?, interface: after("netdev") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_all_releases_and_of_infiniband_are_read() {
        let text = "link irdma0/1 state ACTIVE physical_state LINK_UP netdev ens6f0 \n\
            1/1: mlx5_0/1: state DOWN physical_state DISABLED\n\
            link mlx5_1/2 subnet_prefix fe80:0000:0000:0000 lid 7 sm_lid 1 lmc 0 state INIT physical_state LINK_UP\n";
        let link = |device, port, state, interface| RdmaLink { device, port, state, interface };
        assert_eq!(
            rdma_links(text),
            [
                link("irdma0", "1", "ACTIVE", Some("ens6f0")),
                link("mlx5_0", "1", "DOWN", None),
                link("mlx5_1", "2", "INIT", None),
            ]
        );
    }

    #[test]
    fn lines_that_are_no_links_are_skipped() {
        for text in [
            "",
            "x",
            "link",
            "link mlx5_0/1",
            "link mlx5_0 state ACTIVE",
            "link mlx5_0/x state ACTIVE",
            "link /1 state ACTIVE",
            "link mlx5_0/1 state",
            "1/1: mlx5_0/1 state ACTIVE",
            "2: ens6f0: mtu 9000 state UP",
        ] {
            assert!(rdma_links(text).is_empty(), "{text}");
        }
    }
}
