//! Names: what they may consist of, and that no two things share one.

use crate::error::Findings;
use crate::nqn::is_label;
use crate::site::At;
use std::collections::HashSet;

/// The longest label that SANtricity takes.
pub(super) const SANTRICITY_LABEL_MAX: usize = 30;
/// The longest name of a network interface (IFNAMSIZ less the final NUL).
const INTERFACE_MAX: usize = 15;

/// The names that have been used.
#[derive(Debug, Default)]
pub(super) struct Names {
    used: HashSet<String>,
    /// The names in lines for /etc/hosts.
    lines: HashSet<String>,
}

impl Names {
    /// A name that is part of file names, host names and labels: the key, and what it names.
    pub(super) fn check_host_name(
        &self,
        name: &At<String>,
        (key, what): (&str, &str),
        findings: &mut Findings,
    ) {
        let text = name.get_ref();
        if is_label(text) {
            return;
        }
        let near = plain(text);
        let near = near.trim_matches('-');
        let near = if is_label(near) { near.to_owned() } else { what.replace(' ', "-") };
        not_a_name(name, text, what, format!("{key} = {near:?}"), findings);
    }

    /// The first name of a range of hosts, with the parts before and after the number.
    pub(super) fn check_range(
        &self,
        name: &At<String>,
        first: &str,
        (before, numbers, after): (&str, &str, &str),
        findings: &mut Findings,
    ) {
        if is_label(first) {
            return;
        }
        let (before, after) = (plain(before), plain(after));
        let (before, after) = (before.trim_start_matches('-'), after.trim_end_matches('-'));
        let digits = numbers.split('-').next().unwrap_or_default();
        let near = if is_label(&format!("{before}{digits}{after}")) {
            format!("{before}[{numbers}]{after}")
        } else {
            format!("host[{numbers}]")
        };
        not_a_name(name, first, "host", format!("name = {near:?}"), findings);
    }

    /// No two things share a name.
    pub(super) fn check_unique(&mut self, name: &At<String>, findings: &mut Findings) {
        self.take(name, name.get_ref(), findings);
    }

    /// The same for one of the names that a range of hosts stands for.
    pub(super) fn take(&mut self, place: &At<String>, name: &str, findings: &mut Findings) {
        if !self.used.insert(name.to_owned()) {
            findings.add(
                place.span(),
                format!("the name {name} is used twice"),
                "every host, array and target has a name of its own, which names its files",
                "docs/RUNBOOKS.md",
                format!("name = \"{name}-2\", or leave one of them out"),
            );
        }
    }
}

impl Names {
    /// A name in a line for /etc/hosts: of a host, of its interface, or of a port of an array.
    pub(super) fn take_line(&mut self, place: &At<String>, name: &str, findings: &mut Findings) {
        if !self.lines.insert(name.to_owned()) {
            findings.add(
                place.span(),
                format!("{name} would be twice in /etc/hosts"),
                "hosts, their interfaces (HOST-INTERFACE), an array's controllers (ARRAYa, ARRAYb) and its ports \
                 (ARRAYa-ib0 and so on, or their own name) have names of their own there",
                "hosts(5)",
                "another name for the host, or a name of its own for the port",
            );
        }
    }
}

fn not_a_name(place: &At<String>, text: &str, what: &str, advice: String, findings: &mut Findings) {
    findings.add(
        place.span(),
        format!("{text:?} is not a name for {}", with_article(what)),
        "a name has 1 to 63 lower-case letters, digits and hyphens, and begins and ends with a letter or digit",
        "RFC 1123, section 2.1",
        advice,
    );
}

/// A text with a hyphen for each character that a name cannot have.
fn plain(text: &str) -> String {
    text.to_lowercase().chars().map(|c| if is_plain(c) { c } else { '-' }).collect()
}

/// `an array`, `a host`.
fn with_article(what: &str) -> String {
    format!("{} {what}", if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" })
}

/// Whether a name of a network interface is possible and needs no quotes.
pub(super) fn check_interface(interface: &At<String>, findings: &mut Findings) {
    let text = interface.get_ref();
    let valid = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=INTERFACE_MAX).contains(&text.len()) && text.chars().all(valid) && !text.starts_with(['.', '-']) {
        return;
    }
    findings.add(
        interface.span(),
        format!("{text:?} is not the name of a network interface"),
        format!("an interface's name has 1 to {INTERFACE_MAX} letters, digits and ._-"),
        "Linux, IFNAMSIZ",
        "interface = \"ib0\"; `ip -brief link` on the host shows its interfaces",
    );
}

/// Whether this is a label of SANtricity.
pub(super) fn is_santricity_label(text: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=SANTRICITY_LABEL_MAX).contains(&text.len()) && text.chars().all(valid)
}

/// A label of SANtricity.
pub(super) fn check_label(label: &At<String>, findings: &mut Findings) {
    let text = label.get_ref();
    if is_santricity_label(text) {
        return;
    }
    findings.add(
        label.span(),
        format!("{text:?} is not a label"),
        format!("a label has 1 to {SANTRICITY_LABEL_MAX} letters, digits, - and _"),
        "SANtricity commands, naming conventions",
        "label = \"de0704-ef600\"",
    );
}

fn is_plain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// A path of a directory or a device that needs no quotes anywhere.
pub(super) fn check_path(path: &At<String>, what: &str, findings: &mut Findings) {
    let text = path.get_ref();
    let valid = |c: char| c.is_ascii_alphanumeric() || "/._-+:".contains(c);
    let parts_are = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_path = text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(parts_are));
    if is_path && text.chars().all(valid) {
        return;
    }
    findings.add(
        path.span(),
        format!("{text:?} is not the path of {}", with_article(what)),
        "a path begins with /, does not end with one, and has letters, digits and ._-+: only, without . and ..",
        "exports(5), fstab(5): other characters need escapes that differ between files",
        "a path such as \"/srv/data\"",
    );
}
