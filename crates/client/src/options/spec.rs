//! What the table says of one option, and the checks that follow from it alone.

use super::{Draft, MountOptions, OPTIONS, OptionError};

/// One mount option.
#[derive(Debug)]
pub struct OptionSpec {
    /// Its name; one that ends with `*` stands for all that begin so.
    pub name: &'static str,
    /// What value it takes.
    pub kind: Kind,
    /// What holds when it isn't given, in words or as its value.
    pub default: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Whether it does anything here.
    pub effect: Effect,
    /// Where it stands in the documentation.
    pub group: Group,
    pub(super) set: Set,
    /// Its value when it differs from the default; empty for a flag.
    pub(super) show: fn(&MountOptions) -> Option<String>,
}

/// What value an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// None.
    Flag,
    /// A decimal number.
    Number {
        /// Least.
        min: u32,
        /// Largest.
        max: u32,
        /// Of what.
        unit: &'static str,
    },
    /// A number of bytes, rounded to what is usable.
    Size,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Anything of this description.
    Text(&'static str),
    /// A value or none.
    Any,
}

/// Whether an option does anything here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It does what it says.
    Works,
    /// It is accepted, and has no effect, for this reason.
    Noted(&'static str),
    /// It is accepted, and nothing is to be done for it: it holds anyway, or is for somebody else.
    /// This is why.
    Holds(&'static str),
    /// It is known, and refused, for this reason.
    Refused(&'static str),
}

/// Where an option stands in the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Version, transport, ports.
    Transport,
    /// Connections and paths.
    Multipath,
    /// Sizes, times, recovery.
    Behaviour,
    /// Caches.
    Caching,
    /// What only a mounted directory heeds.
    Directory,
    /// What fstab and /proc/mounts carry besides.
    Others,
}

impl Group {
    /// All groups, in order.
    pub const ALL: [Self; 6] =
        [Self::Transport, Self::Multipath, Self::Behaviour, Self::Caching, Self::Directory, Self::Others];

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Transport => "Version, transport and ports",
            Self::Multipath => "Connections and paths",
            Self::Behaviour => "Sizes, times and recovery",
            Self::Caching => "Caches",
            Self::Directory => "The mounted directory",
            Self::Others => "Other options of fstab and /proc/mounts",
        }
    }
}

/// A checked value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Flag,
    Number(u32),
    Text(&'a str),
}

impl<'a> Value<'a> {
    pub fn number(self) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Flag | Self::Text(_) => 0,
        }
    }

    /// For ports and counts, whose kinds bound them so.
    pub fn short(self) -> u16 {
        u16::try_from(self.number()).unwrap_or(u16::MAX)
    }

    pub fn text(self) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Flag | Self::Number(_) => "",
        }
    }
}

/// What a setter finds wrong with a value.
pub(super) enum Fault {
    /// Misformed; the end of a sentence.
    Bad(String),
    /// Known, but not offered.
    Refused(&'static str),
}

/// What an option does to the draft.
#[derive(Debug, Clone, Copy)]
pub(super) enum Set {
    /// It is kept as it was given.
    Note,
    /// This.
    With(fn(&mut Draft, Value<'_>) -> Result<(), Fault>),
}

/// The option of this name.
pub(super) fn find(name: &str) -> Option<&'static OptionSpec> {
    let prefixed =
        |spec: &&OptionSpec| spec.name.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix));
    OPTIONS.iter().find(|spec| spec.name == name).or_else(|| OPTIONS.iter().find(prefixed))
}

impl Kind {
    /// What is expected, as the middle of a sentence.
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            Self::Flag => "no value".to_owned(),
            Self::Number { min, max: u32::MAX, unit } => format!("{unit} from {min} on"),
            Self::Number { min, max, unit } => format!("{unit} from {min} to {max}"),
            Self::Size => "a number of bytes".to_owned(),
            Self::Choice(choices) => choices.join(", "),
            Self::Text(what) => what.to_owned(),
            Self::Any => "anything".to_owned(),
        }
    }
}

impl OptionSpec {
    /// Checks a value against the kind.
    pub(super) fn check<'a>(&'static self, value: Option<&'a str>) -> Result<Value<'a>, OptionError> {
        let value = match (self.kind, value) {
            (Kind::Flag | Kind::Any, None) => return Ok(Value::Flag),
            (Kind::Flag, Some(value)) => {
                return Err(OptionError::TakesNoValue { name: self.name, value: value.to_owned() });
            }
            (_, None | Some("")) => {
                return Err(OptionError::NeedsValue { name: self.name, expected: self.kind.expected() });
            }
            (_, Some(value)) => value,
        };
        let bad = |why: &str| self.bad_value(value, why.to_owned());
        match self.kind {
            Kind::Number { min, max, .. } => match decimal(value) {
                Some(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
                _ => Err(bad("")),
            },
            Kind::Size => decimal(value).map(Value::Number).ok_or_else(|| bad("")),
            Kind::Choice(choices) if !choices.contains(&value) => Err(bad("")),
            Kind::Choice(_) | Kind::Text(_) | Kind::Any | Kind::Flag => Ok(Value::Text(value)),
        }
    }

    pub(super) fn bad_value(&'static self, value: &str, why: String) -> OptionError {
        OptionError::BadValue {
            name: self.name,
            value: value.to_owned(),
            expected: self.kind.expected(),
            why,
        }
    }
}

/// Digits alone: `parse` would take a sign too. Too large is as wrong as no number.
fn decimal(value: &str) -> Option<u32> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok())?
}
