//! An address on which hosts connect, as options and files name it.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use target::{AddressError, Listen, Node};

/// An address of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Address(target::Address);

impl Address {
    /// As a port of a node.
    pub const fn of(self, node: Node) -> Listen {
        Listen { address: self.0.socket, transport: self.0.transport, node }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}
