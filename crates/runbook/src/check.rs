//! The rules: from a site file to a model, or to the first broken rule with its line.

mod addresses;
mod arrays;
mod hosts;
mod keys;
mod local;
mod names;
mod powerscale;
mod scale;
mod servers;

use crate::error::{Findings, Result};
use crate::model::{Model, Portal};
use crate::site::Site;
use addresses::Addresses;
use names::Names;

/// The title of the EF600's guide, for the sources of rules.
const GUIDE: &str = plan::ef600::TITLE;

/// A part of the EF600's guide as the source of a rule.
fn guide(place: &str) -> String {
    format!("{GUIDE}, {place}")
}

/// Checks a site.
///
/// # Errors
/// The broken rule that comes first in the file.
pub(crate) fn check(site: &Site, text: &str) -> Result<Model> {
    let mut findings = Findings::default();
    let mut addresses = Addresses::default();
    let mut names = Names::default();
    names.check_host_name(&site.name, ("name", "site"), &mut findings);
    has_anything(site, &mut findings);
    let arrays = arrays::check(site, &mut addresses, &mut names, &mut findings);
    let servers = servers::check(site, &mut addresses, &mut names, &mut findings);
    let mut portals = targets(site, &mut addresses, &mut names, &mut findings);
    let of_servers = servers.iter().filter_map(|server| server.nvmet.as_ref());
    portals.extend(of_servers.flat_map(|nvmet| nvmet.ports.iter().map(|port| port.portal.clone())));
    let (hosts, connect) = hosts::check(site, &arrays, &portals, &mut addresses, &mut names, &mut findings);
    let powerscale = powerscale::check(site, &mut addresses, &mut names, &mut findings);
    let scale = scale::check(site, &arrays, &hosts, &names, &mut findings);
    findings.into_result(text)?;
    Ok(Model { name: site.name.get_ref().clone(), hosts, connect, arrays, servers, powerscale, scale })
}

/// A site has at least one machine.
fn has_anything(site: &Site, findings: &mut Findings) {
    let is_empty = site.array.is_empty() && site.host.is_empty() && site.server.is_empty();
    if is_empty && site.powerscale.is_none() && site.scale.is_none() {
        findings.add(
            site.name.span(),
            "the site has no machine",
            "a site has at least one of [[array]], [[host]] and [[server]]",
            "docs/RUNBOOKS.md",
            "trunkline plan runbook --init ef600        for a site file to start from",
        );
    }
}

/// The paths to targets that are set up by other means.
fn targets(
    site: &Site,
    addresses: &mut Addresses,
    names: &mut Names,
    findings: &mut Findings,
) -> Vec<Portal> {
    let mut portals = Vec::new();
    for target in &site.target {
        let name = target.get_ref().name.get_ref();
        names.check_host_name(&target.get_ref().name, ("name", "target"), findings);
        names.check_unique(&target.get_ref().name, findings);
        if target.get_ref().addresses.get_ref().is_empty() {
            findings.add(
                target.get_ref().addresses.span(),
                format!("the target {name} has no address"),
                "a target answers at one address or more, each a path",
                "docs/RUNBOOKS.md",
                "addresses = [\"10.0.0.1\", \"10.0.1.1\"]",
            );
        }
        let portal = |address| Portal {
            target: name.clone(),
            transport: target.get_ref().transport,
            address,
            port: target.get_ref().port,
        };
        for address in target.get_ref().addresses.get_ref() {
            // A target may answer over RDMA and over TCP at one address.
            let Some(ip) = addresses.take(address, "an NVMe-oF target", findings) else { continue };
            let portal = portal(ip);
            if let Some(other) = portals.iter().find(|other| portal.is_at(other)) {
                findings.add(
                    address.span(),
                    format!(
                        "the address {ip} of the target {name} is used twice: {} has it too",
                        other.target
                    ),
                    "each address of a target is a path of its own",
                    "docs/RUNBOOKS.md",
                    "leave one of them out, or give one another transport or port",
                );
            }
            portals.push(portal);
        }
    }
    portals
}

#[cfg(test)]
mod tests;
