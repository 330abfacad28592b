//! The rules, by area. Each says what it saw, where, why it matters and how to mend it.

mod account;
mod block;
mod client;
mod clock;
mod cluster;
mod limits;
mod modules;
mod multipath;
mod network;
mod nfs;
mod nvme;
mod nvme_cli;
mod powerscale;
mod rdma;
mod routing;
#[cfg(test)]
mod tests;
mod unread;
mod unseen;
mod volumes;

pub use account::planned_accounts;
pub use clock::server_clock;
pub(crate) use unread::is_unread;

use crate::{Evidence, Expected, Finding};

/// What all rules find, area by area.
pub(crate) fn all(evidence: &Evidence, expected: &Expected) -> Vec<Finding> {
    let mut findings = Vec::new();
    rdma::check(evidence, expected, &mut findings);
    network::check(evidence, expected, &mut findings);
    routing::check(evidence, expected, &mut findings);
    limits::check(evidence, &mut findings);
    nfs::check(evidence, &mut findings);
    modules::check(evidence, expected, &mut findings);
    nvme::check(evidence, expected, &mut findings);
    nvme_cli::check(evidence, expected, &mut findings);
    volumes::check(evidence, expected, &mut findings);
    multipath::check(evidence, expected, &mut findings);
    block::check(evidence, expected, &mut findings);
    clock::check(evidence, &mut findings);
    powerscale::check(evidence, expected, &mut findings);
    if let Some(planned) = &expected.cluster {
        cluster::check(evidence, planned, &mut findings);
        client::check(evidence, planned, &mut findings);
        account::check(evidence, planned, &mut findings);
    }
    unread::check(evidence, &mut findings);
    unseen::check(expected, &mut findings);
    findings
}

/// Several names as one text.
fn list<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}
