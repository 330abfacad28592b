//! By what operations are told apart.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A property by which operations are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dimension {
    /// The node that served, or that was asked.
    Node,
    /// The address of the client.
    Client,
    /// The export.
    Export,
    /// The path from client to server: a local and a remote address.
    Path,
    /// The operation: `READ`, `WRITE`, `GETATTR`, ...
    Operation,
    /// How much payload the operation moved, see [`SizeClass`].
    Size,
    /// The file or directory. Servers tell files apart only while somebody asks for that, see
    /// [`Files`](crate::Files).
    File,
}

impl Dimension {
    /// All dimensions, in the order of the columns.
    pub const ALL: [Self; 7] =
        [Self::Node, Self::Client, Self::Export, Self::Path, Self::Operation, Self::Size, Self::File];

    /// All dimensions, in the order in which one looks from the whole into its parts.
    pub const DRILL: [Self; 7] =
        [Self::Node, Self::Client, Self::Path, Self::Operation, Self::Size, Self::Export, Self::File];

    /// The first of these dimensions, in the order of [`Dimension::DRILL`], that still tells
    /// operations apart where the values of others are known.
    #[must_use]
    pub fn next(there_are: &[Self], is_known: impl Fn(Self) -> bool) -> Option<Self> {
        // A path leads to one node.
        let is_left = |one| !(is_known(one) || one == Self::Node && is_known(Self::Path));
        Self::DRILL.into_iter().find(|one| there_are.contains(one) && is_left(*one))
    }

    /// The name in options, columns and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Client => "client",
            Self::Export => "export",
            Self::Path => "path",
            Self::Operation => "operation",
            Self::Size => "size",
            Self::File => "file",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// There is no dimension of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no dimension; there are node, client, export, path, operation, size and file")]
pub struct UnknownDimension(pub String);

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, UnknownDimension> {
        let found = Self::ALL.into_iter().find(|dimension| dimension.name() == text);
        found.ok_or_else(|| UnknownDimension(text.to_owned()))
    }
}

/// The client of operations whose client is not told apart. A server counts with it the clients
/// that no export admits, and what clients of long ago did.
pub const OTHER_CLIENTS: &str = "others";

/// A value for some of the dimensions. Operations of the same key are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Key {
    /// See [`Dimension::Node`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// See [`Dimension::Client`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Arc<str>>,
    /// See [`Dimension::Export`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<Arc<str>>,
    /// See [`Dimension::Path`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// See [`Dimension::Operation`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Arc<str>>,
    /// See [`Dimension::Size`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeClass>,
    /// See [`Dimension::File`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
}

impl Key {
    /// The value of a dimension as text.
    #[must_use]
    pub fn of(&self, dimension: Dimension) -> Option<&str> {
        match dimension {
            Dimension::Node => self.node.as_deref(),
            Dimension::Client => self.client.as_deref(),
            Dimension::Export => self.export.as_deref(),
            Dimension::Path => self.path.as_deref(),
            Dimension::Operation => self.operation.as_deref(),
            Dimension::Size => self.size.map(SizeClass::name),
            Dimension::File => self.file.as_deref(),
        }
    }

    /// The same key with these dimensions only.
    #[must_use]
    pub fn only(&self, by: &[Dimension]) -> Self {
        let keep = |dimension, value: &Option<Arc<str>>| value.clone().filter(|_| by.contains(&dimension));
        Self {
            node: keep(Dimension::Node, &self.node),
            client: keep(Dimension::Client, &self.client),
            export: keep(Dimension::Export, &self.export),
            path: keep(Dimension::Path, &self.path),
            operation: keep(Dimension::Operation, &self.operation),
            size: self.size.filter(|_| by.contains(&Dimension::Size)),
            file: keep(Dimension::File, &self.file),
        }
    }

    /// Whether every condition holds: a dimension and its value.
    #[must_use]
    pub fn matches(&self, conditions: &[(Dimension, String)]) -> bool {
        conditions.iter().all(|(dimension, value)| self.of(*dimension) == Some(value.as_str()))
    }
}

/// How much payload an operation moved. Each class ends at a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum SizeClass {
    /// No payload.
    #[default]
    #[serde(rename = "0")]
    None,
    /// Up to 4 KiB.
    #[serde(rename = "<=4K")]
    To4K,
    /// More than 4 KiB, up to 16 KiB.
    #[serde(rename = "<=16K")]
    To16K,
    /// Up to 64 KiB.
    #[serde(rename = "<=64K")]
    To64K,
    /// Up to 256 KiB.
    #[serde(rename = "<=256K")]
    To256K,
    /// Up to 1 MiB.
    #[serde(rename = "<=1M")]
    To1M,
    /// More than 1 MiB.
    #[serde(rename = ">1M")]
    Above1M,
    /// Any, where a history does not tell classes apart any more.
    #[serde(rename = "others")]
    Others,
}

impl SizeClass {
    /// All classes of operations, the smallest first.
    pub const ALL: [Self; 7] =
        [Self::None, Self::To4K, Self::To16K, Self::To64K, Self::To256K, Self::To1M, Self::Above1M];

    /// The class of an operation with this much payload.
    #[must_use]
    pub const fn of(payload_bytes: u64) -> Self {
        match payload_bytes {
            0 => Self::None,
            1..=0x1000 => Self::To4K,
            0x1001..=0x4000 => Self::To16K,
            0x4001..=0x1_0000 => Self::To64K,
            0x1_0001..=0x4_0000 => Self::To256K,
            0x4_0001..=0x10_0000 => Self::To1M,
            _ => Self::Above1M,
        }
    }

    /// The name in columns and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "0",
            Self::To4K => "<=4K",
            Self::To16K => "<=16K",
            Self::To64K => "<=64K",
            Self::To256K => "<=256K",
            Self::To1M => "<=1M",
            Self::Above1M => ">1M",
            Self::Others => OTHER_CLIENTS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dimension_is_found_by_its_name_and_others_are_refused() {
        for dimension in Dimension::ALL {
            assert_eq!(dimension.name().parse::<Dimension>(), Ok(dimension));
        }
        let error = "user".parse::<Dimension>().unwrap_err().to_string();
        assert!(error.contains("`user`") && error.contains("operation"), "{error}");
    }

    #[test]
    fn one_looks_from_the_whole_into_its_parts() {
        use Dimension::{Client, Node, Operation, Path, Size};
        let mut all = Dimension::DRILL;
        all.sort_unstable();
        assert_eq!(all, Dimension::ALL);
        let next = |there_are: &[Dimension], known: &[Dimension]| {
            Dimension::next(there_are, |dimension| known.contains(&dimension))
        };
        let (server, client) = ([Node, Client, Operation, Size], [Node, Path, Operation, Size]);
        assert_eq!(next(&server, &[Node, Operation]), Some(Client));
        assert_eq!(next(&client, &[Path, Operation]), Some(Size), "the node of a path is known");
        assert_eq!(next(&client, &client), None);
    }

    #[test]
    fn a_key_keeps_the_wanted_dimensions() {
        let key = Key {
            node: Some("node1".into()),
            client: Some("10.0.0.7".into()),
            operation: Some("READ".into()),
            size: Some(SizeClass::To1M),
            ..Key::default()
        };
        let by_node = key.only(&[Dimension::Node, Dimension::Export]);
        assert_eq!(by_node, Key { node: Some("node1".into()), ..Key::default() });
        assert!(key.matches(&[(Dimension::Client, "10.0.0.7".into()), (Dimension::Size, "<=1M".into())]));
        assert!(!key.matches(&[(Dimension::Export, "/data".into())]));
    }

    #[test]
    fn size_classes_end_at_their_names() {
        let classes = [0, 1, 4096, 4097, 16384, 16385, 65536, 65537, 1 << 18, (1 << 18) + 1, 1 << 20];
        let names: Vec<_> = classes.into_iter().map(|bytes| SizeClass::of(bytes).name()).collect();
        let expected =
            ["0", "<=4K", "<=4K", "<=16K", "<=16K", "<=64K", "<=64K", "<=256K", "<=256K", "<=1M", "<=1M"];
        assert_eq!(names, expected);
        assert_eq!(SizeClass::of((1 << 20) + 1), SizeClass::Above1M);
        for class in SizeClass::ALL.into_iter().chain([SizeClass::Others]) {
            assert_eq!(serde_json::to_value(class).unwrap(), class.name());
        }
    }
}
