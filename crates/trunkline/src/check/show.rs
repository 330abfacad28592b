//! Shows findings: as a table for people, or as JSON.

use super::capture::source;
use crate::output;
use ::check::{CAPTURES, Capture, Evidence, Finding, How, NotSeen, Status, is_judged, not_seen};
use serde_json::json;

/// The widths of the first two columns.
const STATUS_WIDTH: usize = 8;
const RULE_WIDTH: usize = 24;

/// Text for a terminal. Names, models and serial numbers come from devices and other machines, and
/// captured lines from anywhere: what would move the cursor, colour or clear, or turn the direction
/// of reading, is shown and not done.
fn printable(text: &str) -> String {
    let show = |c: char| if is_active(c) { c.escape_default().to_string() } else { c.into() };
    text.chars().map(show).collect()
}

/// Whether a terminal does something for this character instead of showing it.
fn is_active(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// A line per finding; below what is not ok: where it shows, why it matters, and what mends it.
pub(super) fn table(findings: &[Finding], evidence: &Evidence, quiet: bool, is_live: bool) -> String {
    let mut text = lines(findings, quiet);
    if !quiet {
        text.push_str(&unseen(evidence, is_live));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    if !is_judged(evidence, findings) {
        text.push_str("nothing could be judged: no capture shows what a rule looks at\n");
    }
    text + &counts(findings)
}

/// The findings, and how many there are of each status.
pub fn findings_table(findings: &[Finding]) -> String {
    format!("{}\n{}", lines(findings, false), counts(findings))
}

/// The findings as one object.
pub fn findings_json(findings: &[Finding]) -> String {
    shown(&json!({ "status": ::check::worst(findings), "findings": findings }))
}

fn lines(findings: &[Finding], quiet: bool) -> String {
    let mut text = String::new();
    for finding in findings.iter().filter(|finding| !quiet || finding.status != Status::Ok) {
        let Finding { status, rule, seen, source, why, mend } = finding;
        let name = format!("{:<STATUS_WIDTH$}", status.name());
        text.push_str(&format!("{}{rule:<RULE_WIDTH$} {}\n", coloured(*status, &name), printable(seen)));
        if *status == Status::Ok {
            continue;
        }
        for (label, value) in [("where", source), ("why", why), ("mend", mend)] {
            if !value.is_empty() {
                text.push_str(&format!("{:STATUS_WIDTH$}{label:<6} {}\n", "", printable(value)));
            }
        }
    }
    text
}

fn counts(findings: &[Finding]) -> String {
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    format!(
        "{} ok, {} warn, {} fail, {} unknown\n",
        count(Status::Ok),
        count(Status::Warn),
        count(Status::Fail),
        count(Status::Unknown)
    )
}

/// What was not seen: of this host each command or file and the cause, of a directory the names of
/// the captures by reason, as most of them may be missing there.
fn unseen(evidence: &Evidence, is_live: bool) -> String {
    let absent = absent(evidence, is_live);
    let mut text = String::new();
    if is_live {
        for (capture, _, cause) in absent {
            text.push_str(&format!("  {}: {}\n", source(capture), printable(cause)));
        }
    } else {
        for reason in [NotSeen::Missing, NotSeen::Empty, NotSeen::NotUnderstood] {
            let of = absent.iter().filter(|(_, why, _)| *why == reason);
            let names: Vec<_> = of.map(|(capture, ..)| capture.name).collect();
            if !names.is_empty() {
                text.push_str(&format!("  {}: {}\n", reason.name(), names.join(", ")));
            }
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("\nnot seen{}:\n{text}", if is_live { " on this host" } else { "" })
}

/// The captures that show nothing, with the reason and the cause, if one is known. Those of arrays
/// are never made on a host.
fn absent(evidence: &Evidence, is_live: bool) -> Vec<(&'static Capture, NotSeen, &str)> {
    let all = not_seen(evidence).into_iter();
    all.filter(|(capture, _)| !(is_live && matches!(capture.how, How::OnArray(_))))
        .map(|(capture, why)| {
            let captured = evidence.0.get(capture.name);
            let cause = captured.and_then(|captured| captured.text.as_ref().err());
            (capture, why, cause.map_or(why.name(), String::as_str))
        })
        .collect()
}

fn coloured(status: Status, text: &str) -> String {
    let colour = match status {
        Status::Ok => 32,
        Status::Unknown => 36,
        Status::Warn => 33,
        Status::Fail => 31,
    };
    if output::stdout_has_colour() { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// One object with all findings and the captures that show nothing.
pub(super) fn json(findings: &[Finding], evidence: &Evidence, is_live: bool) -> String {
    let absent: Vec<_> = absent(evidence, is_live)
        .into_iter()
        .map(|(capture, reason, why)| {
            let (name, reason) = (capture.name, reason.name());
            json!({ "name": name, "reason": reason, "source": source(capture), "why": why })
        })
        .collect();
    let value = json!({
        "status": if is_judged(evidence, findings) { ::check::worst(findings) } else { Status::Unknown },
        "findings": findings,
        "not_seen": absent,
    });
    shown(&value)
}

fn shown(value: &serde_json::Value) -> String {
    // RFC 8259 s7 lets DEL, C1 controls and marks of direction stand in strings as they are, and a
    // terminal obeys them. JSON has its own line ends beside what is within strings.
    let show =
        |c: char| if is_active(c) && c != '\n' { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    format!("{value:#}\n").chars().map(show).collect()
}

/// The names of the captures and how each is made.
pub(super) fn captures() -> String {
    let width = CAPTURES.iter().map(|capture| capture.name.len()).max().unwrap_or_default();
    let line = |capture: &::check::Capture| {
        let on = if matches!(capture.how, How::OnArray(_)) { "    # on the array" } else { "" };
        let command = match capture.how {
            How::File(path) => format!("cat {path}"),
            _ => source(capture),
        };
        format!("{:<width$}  {command}{on}\n", capture.name)
    };
    CAPTURES.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::check::Captured;

    /// What a device or a capture says does nothing to the terminal.
    #[test]
    fn control_characters_from_outside_are_shown_and_not_done() {
        let hostile = "model\u{1b}]0;title\u{7}\r\n\u{9b}2J\u{202e}é";
        let shown = "model\\u{1b}]0;title\\u{7}\\r\\n\\u{9b}2J\\u{202e}é";
        let finding = Finding::ok("nvme.firmware", hostile, hostile.to_owned()).warn("why", hostile);
        let mut evidence = Evidence::default();
        let absent = Captured { source: "nvme list".to_owned(), text: Err(hostile.to_owned()) };
        evidence.0.insert("nvme-list.txt", absent);
        let text = table(&[finding], &evidence, false, true);
        assert_eq!(text.matches(shown).count(), 4, "{text:?}");
        let own = text.replace("\u{1b}[33m", "").replace("\u{1b}[0m", "");
        assert!(!own.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(text.lines().filter(|line| line.contains("model")).count(), 4, "{text:?}");
    }

    /// RFC 8259 s7: an escaped character is the same character to a reader.
    #[test]
    fn json_escapes_all_that_a_terminal_would_do() {
        let hostile = "model\u{1b}]0;\u{7f}\r\n\u{9b}2J\u{202e}é";
        let finding = Finding::ok("nvme.firmware", hostile, hostile);
        let text = json(&[finding], &Evidence::default(), true);
        assert!(!text.chars().any(|c| is_active(c) && c != '\n'), "{text:?}");
        assert!(text.contains("\\u007f\\r\\n\\u009b2J\\u202eé"), "{text:?}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["findings"][0]["seen"], hostile);
    }
}
