//! The site file as it is written: TOML tables, each value with its place in the file.
//!
//! What the keys mean stands in docs/RUNBOOKS.md. Rules that need more than one value are in
//! `check`.

mod array;
mod hosts;
mod powerscale;
mod scale;
mod server;
mod target;

pub(crate) use array::{Array, Fabric, Topology};
pub(crate) use hosts::{Host, Hosts, IoPolicy, Os};
pub(crate) use powerscale::PowerScale;
pub(crate) use scale::Scale;
pub(crate) use server::{Namespace, Nfs, Nvmet, NvmetPort, Server, Trunkline};
pub(crate) use target::{Target, Transport, nvme_port};

use crate::error::{Error, Result};
use serde::Deserialize;
use toml::Spanned;

/// A value with its place in the file.
pub(crate) type At<T> = Spanned<T>;

/// A site.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Site {
    /// The name of the site.
    pub(crate) name: At<String>,
    /// What all hosts have in common.
    #[serde(default)]
    pub(crate) hosts: Option<At<Hosts>>,
    /// The Linux hosts.
    #[serde(default)]
    pub(crate) host: Vec<At<Host>>,
    /// The EF600 arrays.
    #[serde(default)]
    pub(crate) array: Vec<At<Array>>,
    /// Other NVMe-oF targets.
    #[serde(default)]
    pub(crate) target: Vec<At<Target>>,
    /// The Linux servers.
    #[serde(default)]
    pub(crate) server: Vec<At<Server>>,
    /// A PowerScale cluster.
    #[serde(default)]
    pub(crate) powerscale: Option<At<PowerScale>>,
    /// A Spectrum Scale cluster.
    #[serde(default)]
    pub(crate) scale: Option<At<Scale>>,
}

/// Reads a site file.
pub(crate) fn parse(text: &str) -> Result<Site> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| {
            text.as_bytes().iter().take(span.start).filter(|byte| **byte == b'\n').count() + 1
        });
        let sentence = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        Error::Form { cause: format!("line {line}: {sentence}"), origin: origin(text, line) }
    })
}

/// The section of docs/RUNBOOKS.md that has the keys of the table in which a line is.
fn origin(text: &str, line: usize) -> String {
    let name = |line: &str| {
        let end = line.find(['.', ']'])?;
        TABLES.into_iter().find(|table| line.get(..end) == Some(table))
    };
    let headers = text.lines().take(line).filter_map(|line| line.trim_start().strip_prefix('['));
    let tables = headers.filter_map(|line| name(line.trim_start_matches('[')));
    match tables.last() {
        None => "docs/RUNBOOKS.md, section The site file".to_owned(),
        Some(table) => format!("docs/RUNBOOKS.md, the keys of {table}"),
    }
}

/// The tables of a site file.
const TABLES: [&str; 7] = ["array", "hosts", "host", "target", "server", "powerscale", "scale"];
