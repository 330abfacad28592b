//! Rules of the EF600: ports, names, layout, and segments that keep full-stripe writes.

use super::addresses::{Addresses, v4};
use super::guide;
use super::keys;
use super::names::{Names, check_label};
use crate::error::Findings;
use crate::model;
use crate::nqn::is_label;
use crate::site::{Array, At, Fabric, Site};
use plan::layout::{Layout, Order, Request};
use plan::{Refusal, Scheme};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::ops::Range;

/// The labels of host ports: two cards of two ports on each controller.
const PORT_LABELS: [&str; 4] = ["1a", "1b", "2a", "2b"];

/// Checks all arrays. An array with a finding may be left out of the result.
pub(super) fn check(
    site: &Site,
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> Vec<model::Array> {
    site.array.iter().filter_map(|array| one(site, array, addresses, names, findings)).collect()
}

fn one(
    site: &Site,
    array: &At<Array>,
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> Option<model::Array> {
    let keys = array.get_ref();
    let name = keys.name.get_ref();
    names.check_host_name(&keys.name, ("name", "array"), findings);
    names.check_unique(&keys.name, findings);
    keys.label.iter().for_each(|label| check_label(label, findings));
    keys.domain.iter().for_each(|domain| check_domain(domain, findings));
    keys.firmware.iter().for_each(|firmware| check_firmware(firmware, findings));
    let management = management(keys, name, addresses, findings);
    for letter in ['a', 'b'] {
        names.take_line(&keys.name, &format!("{name}{letter}"), findings);
    }
    let ports = ports(keys, name, addresses, names, findings);
    let subnet_mask = roce(keys, findings);
    let layout = layout(site, array, findings)?;
    Some(model::Array {
        name: name.clone(),
        label: keys.label.as_ref().map_or_else(|| format!("{name}-ef600"), |label| label.get_ref().clone()),
        topology: keys.topology,
        management: management?,
        domain: keys.domain.as_ref().map(|domain| domain.get_ref().clone()),
        firmware: keys.firmware.as_ref().map(|firmware| firmware.get_ref().clone()),
        subnet_mask,
        mtu: keys.mtu.as_ref().map(|mtu| *mtu.get_ref()),
        ports,
        script: layout.script().ok()?,
        settings: layout.settings_script(),
        layout,
    })
}

fn check_domain(domain: &At<String>, findings: &mut Findings) {
    if !domain.get_ref().split('.').all(is_label) {
        findings.add(
            domain.span(),
            format!("{:?} is not a domain", domain.get_ref()),
            "a domain is names of lower-case letters, digits and hyphens, joined by dots",
            "RFC 1123, section 2.1",
            "domain = \"hpc.example.com\"",
        );
    }
}

// Deploying NetApp EF600, section NetApp EF600 Overview: at least 11.60.
fn check_firmware(firmware: &At<String>, findings: &mut Findings) {
    let parts: Option<Vec<u32>> = firmware.get_ref().split('.').map(|part| part.parse().ok()).collect();
    if parts.is_some_and(|parts| parts.len() >= 2 && parts >= vec![11, 60]) {
        return;
    }
    findings.add(
        firmware.span(),
        format!("{:?} is no SANtricity version of an EF600", firmware.get_ref()),
        "an EF600 runs SANtricity 11.60 or later, and 11.70.1 or later is recommended",
        guide("section NetApp EF600 Overview"),
        "firmware = \"11.70.1\"",
    );
}

/// The addresses of the management ports of A and B.
fn management(
    keys: &Array,
    name: &str,
    addresses: &mut Addresses,
    findings: &mut Findings,
) -> Option<[Ipv4Addr; 2]> {
    let given = keys.management.get_ref();
    if given.len() != 2 {
        findings.add(
            keys.management.span(),
            format!("{name} has {} management addresses", given.len()),
            "each of the controllers A and B has one management port with an address",
            guide("section NetApp EF600 Overview"),
            "management = [\"ADDRESS OF A\", \"ADDRESS OF B\"]",
        );
        return None;
    }
    let user = |letter: char| format!("{name}'s management port {letter}");
    let mut take = |place, letter| {
        let ip = addresses.take(place, &user(letter), findings)?;
        let rule = "SMcli and the URLs of this runbook name the controllers by IPv4 addresses";
        v4(place, ip, (rule, guide("section Basic EF600 Storage Subsystem Configuration")), findings)
    };
    let (a, b) = (take(&given[0], 'A'), take(&given[1], 'B'));
    Some([a?, b?])
}

fn ports(
    keys: &Array,
    name: &str,
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> Vec<model::Port> {
    let mut ports = Vec::new();
    let mut labels = HashSet::new();
    let mut numbers = [0, 0];
    for port in keys.ports.get_ref() {
        let (letter, label) = (port.get_ref().controller.letter(), port.get_ref().port.get_ref());
        if !PORT_LABELS.contains(&label.as_str()) || !labels.insert((letter, label.clone())) {
            findings.add(
                port.get_ref().port.span(),
                format!("{name} has no further host port {label:?} on controller {letter}"),
                "each controller has the host ports 1a and 1b, and with two cards 2a and 2b, each once",
                guide("figure 9"),
                "port = \"1a\", \"1b\", \"2a\" or \"2b\"",
            );
            continue;
        }
        let number = &mut numbers[usize::from(letter == 'b')];
        let index = *number;
        *number += 1;
        let given = port.get_ref().name.as_ref();
        given.iter().for_each(|given| {
            names.check_host_name(given, ("name", "host port"), findings);
            names.check_unique(given, findings);
        });
        let user = format!("port {label} of {name}'s controller {letter}");
        let address = &port.get_ref().address;
        let Some(ip) = addresses.take(address, &user, findings) else { continue };
        let rule =
            "the guide, the Ansible collection and these runbooks set IPv4 addresses on the array's ports";
        let Some(ip) = v4(address, ip, (rule, guide("figure 9")), findings) else { continue };
        let name = given.map_or_else(|| format!("{name}{letter}-ib{index}"), |given| given.get_ref().clone());
        names.take_line(given.unwrap_or(&keys.name), &name, findings);
        let channel = PORT_LABELS.iter().position(|known| known == label).unwrap_or_default() + 1;
        ports.push(model::Port { controller: letter, label: label.clone(), channel, address: ip, name });
    }
    if numbers.contains(&0) {
        findings.add(
            keys.ports.span(),
            format!("{name} has no host port on controller {}", if numbers[0] == 0 { "a" } else { "b" }),
            "hosts reach each volume through both controllers, so that one may fail",
            guide("section NetApp EF600 Overview"),
            "ports = [{ controller = \"a\", port = \"1a\", address = \"...\" }, ...] for a and for b",
        );
    }
    ports
}

/// The keys that only ports of RoCE have.
fn roce(keys: &Array, findings: &mut Findings) -> Option<Ipv4Addr> {
    let is_roce = keys.fabric == Fabric::Roce;
    let spare = keys.subnet_mask.as_ref().map(At::span).or_else(|| keys.mtu.as_ref().map(At::span));
    match (is_roce, spare) {
        (false, Some(span)) => findings.add(
            span,
            "ports of InfiniBand have neither subnet_mask nor mtu",
            "on InfiniBand the array takes an address only",
            guide("figure 9"),
            "leave both keys out, or fabric = \"roce\"",
        ),
        (true, _) if keys.subnet_mask.is_none() => findings.add(
            keys.ports.span(),
            "ports of RoCE need subnet_mask",
            "a static address of RoCE has a netmask",
            "netapp_eseries.santricity 1.4.0, na_santricity_nvme_interface",
            "subnet_mask = \"255.255.255.0\"",
        ),
        _ => {}
    }
    if let Some(mtu) = keys.mtu.as_ref().filter(|mtu| !(1500..=9000).contains(mtu.get_ref())) {
        findings.add(
            mtu.span(),
            format!("an MTU of {} is not possible", mtu.get_ref()),
            "an MTU is 1500 to 9000 on every port between host and array",
            "SANtricity commands, set controller hostPort",
            "mtu = 9000",
        );
    }
    let given = keys.subnet_mask.as_ref()?;
    let mask = given
        .get_ref()
        .parse()
        .ok()
        .filter(|mask| u32::from(*mask).leading_ones() + u32::from(*mask).trailing_zeros() == 32);
    if mask.is_none() {
        findings.add(
            given.span(),
            format!("{:?} is not a netmask", given.get_ref()),
            "a netmask is ones, then zeros",
            "RFC 950",
            "subnet_mask = \"255.255.255.0\"",
        );
    }
    mask
}

/// Lays out drives and volumes.
fn layout(site: &Site, array: &At<Array>, findings: &mut Findings) -> Option<Layout> {
    let keys = array.get_ref();
    let request_kib = site.hosts.as_ref().and_then(|hosts| hosts.get_ref().request_kib.as_ref());
    let planned = request(keys, request_kib.map(|kib| *kib.get_ref())).and_then(|request| {
        let layout = plan::layout::layout(&request)?;
        layout.script().map(|_| layout)
    });
    let layout = match planned {
        Ok(layout) => layout,
        Err(plan::Error::Refused(refusal)) => {
            refused(array, request_kib, &refusal, findings);
            return None;
        }
        // Only topologies and results of IO500 have the other errors.
        Err(other) => {
            findings.add(
                array.span(),
                other.to_string(),
                "a layout",
                GUIDE_LAYOUT,
                "trunkline plan layout --help",
            );
            return None;
        }
    };
    keeps_full_stripes(array, request_kib, &layout, findings);
    Some(layout)
}

const GUIDE_LAYOUT: &str = "docs/MODEL.md";

fn request(keys: &Array, request_kib: Option<u32>) -> plan::Result<Request> {
    let volume = keys.volume.as_ref();
    Ok(Request {
        order: keys.order.as_ref().map_or(Ok(Order::Centre), |order| order.get_ref().parse())?,
        slots: keys.slots.as_ref().map(|slots| slots.get_ref().clone()),
        volumes: keys.volumes.as_ref().map(|volumes| *volumes.get_ref()),
        volume: volume.map(|size| plan::units::parse_capacity("--volume", size.get_ref())).transpose()?,
        drive: keys.drive_tb.as_ref().map(|tb| plan::size::drive("--drive-tb", *tb.get_ref())).transpose()?,
        segment_kib: keys.segment_kib.as_ref().map(|segment| *segment.get_ref()),
        request_kib,
        name: keys.name.get_ref().clone(),
        ..Request::new(keys.scheme.get_ref().parse::<Scheme>()?, *keys.drives.get_ref())
    })
}

/// A refusal of the planner, in the words of the site file.
fn refused(array: &At<Array>, request_kib: Option<&At<u32>>, refusal: &Refusal, findings: &mut Findings) {
    let table = array.get_ref();
    let option = refusal.nearest.split("--").nth(1).and_then(|rest| rest.split([' ', ',']).next());
    let span: Option<Range<usize>> = match option.unwrap_or_default() {
        "scheme" => Some(table.scheme.span()),
        "drives" => Some(table.drives.span()),
        "drive-tb" => table.drive_tb.as_ref().map(At::span),
        "order" => table.order.as_ref().map(At::span),
        "slots" => table.slots.as_ref().map(At::span),
        "volumes" => table.volumes.as_ref().map(At::span),
        "volume" => table.volume.as_ref().map(At::span),
        "segment-kib" => table.segment_kib.as_ref().map(At::span),
        "request-kib" => request_kib.map(At::span),
        "name" => Some(table.name.span()),
        // A scheme that cannot be read may have no option in its advice.
        _ => table.scheme.get_ref().parse::<Scheme>().is_err().then(|| table.scheme.span()),
    };
    // The planner lays out other schemes for other arrays.
    let is_scheme = span.as_ref().is_some_and(|span| *span == table.scheme.span());
    let advice = if is_scheme {
        "scheme = \"raid6\", or scheme = \"ddp\"".to_owned()
    } else {
        keys::advice(&refusal.nearest)
    };
    findings.add(
        span.unwrap_or_else(|| array.span()),
        keys::sentence(&refusal.sentence),
        refusal.rule.clone(),
        refusal.origin.clone(),
        advice,
    );
}

/// RAID 6 without accelerated full stripes is a mistake: DDP would lose nothing and rebuild faster.
fn keeps_full_stripes(
    array: &At<Array>,
    request_kib: Option<&At<u32>>,
    layout: &Layout,
    findings: &mut Findings,
) {
    let stripe = &layout.stripe;
    if layout.scheme != Scheme::Raid6 || stripe.is_accelerated {
        return;
    }
    let segment = array.get_ref().segment_kib.as_ref();
    let span = segment.map(At::span).or_else(|| request_kib.map(At::span));
    let data = plan::ef600::ef600().raid6.data;
    let best = (stripe.request_kib / data).min(plan::ef600::ef600().segment_kib_max_full_stripe);
    let advice = if best >= 32 {
        format!("segment_kib = {}, or leave it out", 1 << best.ilog2())
    } else {
        "request_kib = 1024 in [hosts]".to_owned()
    };
    findings.add(
        span.unwrap_or_else(|| array.span()),
        stripe.why.clone(),
        "a full stripe is at most 2048 KiB, and the hosts' largest request (max_sectors_kb) holds it; otherwise writes lose half \
         their speed",
        guide("section Configuring Volumes on RAID Volume Groups"),
        advice,
    );
}
