//! Which versions of NFS are served.

use std::fmt;
use std::str::FromStr;

/// The versions of NFS that a server serves: at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfsVersions {
    v3: bool,
    /// By minor version from 1.
    v4: [bool; 2],
}

impl NfsVersions {
    /// Version 3 alone.
    pub const V3: Self = Self { v3: true, v4: [false; 2] };

    /// All that there are: the default.
    pub const ALL: Self = Self { v3: true, v4: [true; 2] };

    const NONE: Self = Self { v3: false, v4: [false; 2] };

    /// Whether version 3 is served.
    #[must_use]
    pub const fn has_v3(self) -> bool {
        self.v3
    }

    /// Whether any minor version of version 4 is served.
    #[must_use]
    pub const fn has_v4(self) -> bool {
        self.v4[0] || self.v4[1]
    }

    /// These without version 4.
    pub(crate) const fn without_v4(self) -> Self {
        Self { v3: self.v3, v4: [false; 2] }
    }

    /// Whether this minor version of version 4 is served. There is no 4.0.
    #[must_use]
    pub fn has_minor(self, minor: u32) -> bool {
        let index = usize::try_from(minor).ok().and_then(|minor| minor.checked_sub(1));
        index.and_then(|index| self.v4.get(index)).copied().unwrap_or(false)
    }

    /// Whether this version of the program is served.
    #[must_use]
    pub(crate) const fn has(self, version: u32) -> bool {
        match version {
            3 => self.v3,
            4 => self.has_v4(),
            _ => false,
        }
    }

    /// The versions that are named one by one: `3`, `4.1`, `4.2`.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what to write.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut versions = Self::NONE;
        for name in names {
            match name.trim() {
                "3" => versions.v3 = true,
                "4.1" => versions.v4[0] = true,
                "4.2" => versions.v4[1] = true,
                other => {
                    return Err(format!("\"{other}\" is not a version that is served: 3, 4.1 and 4.2 are"));
                }
            }
        }
        if versions == Self::NONE {
            return Err("no version of NFS is named: 3, 4.1 and 4.2 can be".to_owned());
        }
        Ok(versions)
    }
}

impl Default for NfsVersions {
    fn default() -> Self {
        Self::ALL
    }
}

/// Versions joined by commas: `3,4.1,4.2`.
impl FromStr for NfsVersions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of_names(text.split(','))
    }
}

impl fmt::Display for NfsVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [(self.v3, "3"), (self.v4[0], "4.1"), (self.v4[1], "4.2")];
        let mut served = named.iter().filter(|(is_served, _)| *is_served).map(|(_, name)| name);
        if let Some(first) = served.next() {
            f.write_str(first)?;
        }
        served.try_for_each(|name| write!(f, ",{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_written() {
        for text in ["3", "4.1", "4.2", "3,4.2", "3,4.1,4.2"] {
            assert_eq!(text.parse::<NfsVersions>().unwrap().to_string(), text);
        }
        let some: NfsVersions = "4.2, 3".parse().unwrap();
        assert!(some.has(3) && some.has(4) && some.has_minor(2));
        assert!(!some.has_minor(0) && !some.has_minor(1) && !some.has_minor(3) && !some.has(2));
        assert_eq!(NfsVersions::default().to_string(), "3,4.1,4.2");
        for text in ["", "4", "4.0", "3;4.1"] {
            assert!(text.parse::<NfsVersions>().is_err(), "{text}");
        }
    }
}
