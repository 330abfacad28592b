//! What can be wrong with options, targets and mount lines; always the user's fault.

/// Why a string of mount options is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown mount option \"{name}\"{}", nearest.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default())]
    Unknown {
        /// As given.
        name: String,
        /// The known option with the nearest name, if one is near.
        nearest: Option<&'static str>,
    },
    /// `hard=1`.
    #[error("mount option \"{name}\" takes no value, but has \"{value}\"")]
    TakesNoValue {
        /// The option.
        name: &'static str,
        /// As given.
        value: String,
    },
    /// `rsize`, or `rsize=`.
    #[error("mount option \"{name}\" needs a value: {expected}")]
    NeedsValue {
        /// The option.
        name: &'static str,
        /// What it takes.
        expected: String,
    },
    /// `nconnect=257`.
    #[error("mount option \"{name}={value}\": {expected} is expected{why}")]
    BadValue {
        /// The option.
        name: &'static str,
        /// As given.
        value: String,
        /// What it takes.
        expected: String,
        /// What is wrong with the value, with a leading separator; may be empty.
        why: String,
    },
    /// Known, but not offered.
    #[error("mount option \"{option}\" is not offered: {why}")]
    Refused {
        /// As given.
        option: String,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// Two options that cannot both hold.
    #[error("mount options \"{first}\" and \"{second}\" contradict each other: {why}")]
    Contradiction {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// Why.
        why: &'static str,
    },
    /// An option without the one that it modifies.
    #[error("mount option \"{option}\" has no meaning without \"{missing}\"")]
    Alone {
        /// As given.
        option: &'static str,
        /// What it needs.
        missing: &'static str,
    },
}

/// Why `SERVER:/EXPORT` or an `nfs://` address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Neither form.
    #[error("\"{0}\" is not SERVER:/EXPORT, [IPv6]:/EXPORT or nfs://SERVER/EXPORT")]
    Form(String),
    /// The server part is no name and no address.
    #[error("\"{0}\" is not a server name or address; an IPv6 address stands in square brackets")]
    Host(String),
    /// An address that cannot be used as it is.
    #[error(transparent)]
    Address(#[from] transport::AddressError),
    /// The port part is no port.
    #[error("\"{0}\" is not a port (1 to 65535)")]
    Port(String),
    /// A `%` that two hexadecimal digits don't follow.
    #[error("\"{0}\" has a % that is not followed by two hexadecimal digits")]
    Escape(String),
    /// RFC 1813 s5.2.1 MNTPATHLEN
    #[error("the export's path is {0} bytes long; 1024 are allowed")]
    TooLong(usize),
}

/// Why a line of fstab, /proc/mounts or mount(8) is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Blank, or a comment.
    #[error("there is no mount on this line")]
    Nothing,
    /// A field is missing.
    #[error("the line has no {0}")]
    Missing(&'static str),
    /// Some other file system.
    #[error("\"{0}\" is not an NFS file system type")]
    NotNfs(String),
    /// The first field is no NFS source.
    #[error(transparent)]
    Target(#[from] TargetError),
}
