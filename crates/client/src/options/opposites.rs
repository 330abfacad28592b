//! Options that exclude each other, of those that are kept as given.

/// The last of each line counts, as for mount(8) and the kernel.
const OPPOSITES: &[&[&str]] = &[
    &["lock", "nolock", "local_lock"],
    &["sync", "async"],
    &["cto", "nocto"],
    &["dev", "nodev"],
    &["suid", "nosuid"],
    &["exec", "noexec"],
    &["atime", "noatime", "strictatime"],
    &["diratime", "nodiratime"],
    &["relatime", "norelatime"],
    &["fsc", "nofsc"],
    &["sharecache", "nosharecache"],
    &["sharetransport", "nosharetransport"],
    &["acl", "noacl"],
    &["softreval", "nosoftreval"],
    &["intr", "nointr"],
    &["trunkdiscovery", "notrunkdiscovery"],
    &["migration", "nomigration"],
    &["auto", "noauto"],
    &["user", "nouser"],
    &["mand", "nomand"],
    &["iversion", "noiversion"],
];

/// The family of an option, with itself.
pub(super) fn family(name: &str) -> &'static [&'static str] {
    OPPOSITES.iter().find(|family| family.contains(&name)).copied().unwrap_or_default()
}
