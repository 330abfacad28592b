//! Rates of links, shares of headers, and PCIe, compared with the standards.

use super::*;
use proptest::prelude::*;

fn share(transport: Transport, mtu: u32) -> String {
    format!("{:.2}", efficiency(transport, mtu).expect("a valid MTU") * 100.0)
}

#[test]
fn a_port_carries_what_its_name_says() {
    // IEEE 802.3; InfiniBand Architecture Specification, volume 2.
    let rates =
        [("1GbE", 1.0), ("25GbE", 25.0), ("100GbE", 100.0), ("400GbE", 400.0), ("DDR", 16.0), ("QDR", 32.0)];
    for (name, gbit) in
        rates.into_iter().chain([("FDR10", 40.0), ("EDR", 100.0), ("HDR", 200.0), ("SDR", 8.0)])
    {
        let link: Link = name.parse().expect(name);
        assert!((link.line_gbit_per_s() - gbit).abs() < 1e-3, "{name}: {}", link.line_gbit_per_s());
    }
    let fdr: Link = "fdr".parse().expect("in any case");
    assert_eq!(format!("{:.2}", fdr.line_gbit_per_s()), "54.55");
}

#[test]
fn headers_take_their_share() {
    // RFC 9293 s3.1, RFC 7323 s3: 1448 of 1538 bytes, 8948 of 9038.
    assert_eq!(share(Transport::Tcp, 1500), "94.15");
    assert_eq!(share(Transport::Tcp, 9000), "99.00");
    assert_eq!(share(Transport::TcpIpv6, 1500), "92.85");
    assert_eq!(framing(Transport::RoceV2, 9000), Ok(Framing { payload: 4096, wire: 4178 }));
    assert_eq!(framing(Transport::RoceV2, 1500), Ok(Framing { payload: 1024, wire: 1106 }));
    assert_eq!(framing(Transport::InfiniBand, 4096), Ok(Framing { payload: 4096, wire: 4122 }));
    // RFC 4391 s6
    assert_eq!(framing(Transport::Ipoib, 2044), Ok(Framing { payload: 1992, wire: 2082 }));
    // RFC 4755: connected mode has no datagram header; this message takes 32 packets.
    assert_eq!(framing(Transport::Ipoib, 65_520), Ok(Framing { payload: 65_468, wire: 65_524 + 32 * 26 }));
}

#[test]
fn an_mtu_that_a_transport_cannot_have_is_refused_with_the_nearest() {
    for (transport, mtu, nearest) in [
        (Transport::Tcp, 100, "--mtu 1500"),
        (Transport::Tcp, 65_535, "--mtu 9000"),
        (Transport::InfiniBand, 9000, "--mtu 4096"),
        (Transport::InfiniBand, 1500, "--mtu 1024"),
        (Transport::Ipoib, 70_000, "--mtu 65520"),
        (Transport::RoceV2, 0, "--mtu 1500"),
    ] {
        let text = efficiency(transport, mtu).expect_err("no such MTU").to_string();
        assert!(text.contains(nearest), "{transport} {mtu}: {text}");
    }
}

#[test]
fn pcie_carries_its_lanes_after_encoding_and_packets() {
    // PCI Express Base Specification: 2.5 GT/s and 8b/10b, 8 GT/s and 128b/130b.
    let slot = |generation, lanes| Pcie { generation, lanes, slots: 1, payload_bytes: None };
    assert_eq!(slot(1, 8).slot_line_gbytes_per_s(), 2.0);
    assert_eq!(format!("{:.3}", slot(3, 16).slot_line_gbytes_per_s()), "15.754");
    assert_eq!(slot(1, 8).efficiency(), 128.0 / 152.0);
    for (wrong, nearest) in
        [(slot(6, 8), "generation = 5"), (slot(3, 12), "lanes = 8"), (slot(3, 0), "lanes = 1")]
    {
        let text = wrong.check("client").expect_err("no such slot").to_string();
        assert!(text.contains(nearest), "{text}");
    }
}

#[test]
fn unknown_links_and_transports_are_refused_with_the_nearest() {
    for (text, nearest) in [("90GbE", "100GbE"), ("30", "25GbE"), ("fibre", "EDR"), ("99999GbE", "400GbE")] {
        let message = text.parse::<Link>().expect_err(text).to_string();
        assert!(message.ends_with(nearest), "{message}");
    }
    let message = "rocev2".parse::<Transport>().expect_err("by its name").to_string();
    assert!(message.ends_with("try:   roce"), "{message}");
}

proptest! {
    #[test]
    fn payload_is_less_than_the_line_and_grows_with_the_line(mtu in 0_u32..70_000, line in 1e6_f64..1e12) {
        for transport in Transport::ALL {
            if let Ok(payload) = payload_bits_per_s(line, transport, mtu) {
                prop_assert!(payload > 0.0 && payload < line);
                prop_assert!(payload_bits_per_s(line * 2.0, transport, mtu).expect("the same MTU") > payload);
            }
        }
    }

    #[test]
    fn a_larger_mtu_never_carries_less(mtu in 576_u32..9000) {
        for transport in [Transport::Tcp, Transport::TcpIpv6, Transport::RoceV2] {
            prop_assert!(efficiency(transport, mtu + 1)? >= efficiency(transport, mtu)?);
        }
    }

    #[test]
    fn no_name_panics(text in "\\PC{0,10}") {
        let _ = (text.parse::<Link>(), text.parse::<Transport>());
    }
}
