//! `cargo xtask spec`: lists which sections of the standards the sources cite, and which no test
//! cites.
//!
//! A tag has the form `RFC nnnn sX.Y`. The result is a report, not a check: some sections are cited
//! only to explain a name.

use crate::error::Result;
use crate::source::Code;
use crate::tidy::is_test_file;
use crate::workspace::{File, files};
use std::collections::BTreeMap;

/// A section of a standard, ordered by the number of the RFC and then by the parts of the section.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Section {
    rfc: u32,
    parts: Vec<String>,
}

/// The number of citations of a section.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cited {
    in_code: usize,
    in_tests: usize,
}

/// Prints the report.
pub(crate) fn run() -> Result<bool> {
    let mut sections = BTreeMap::<Section, Cited>::new();
    for file in files("rs")?.iter().filter(|file| !file.path.starts_with("xtask/")) {
        count(file, &mut sections);
    }
    println!("{:<22} {:>6} {:>6}", "section", "code", "tests");
    for (section, cited) in &sections {
        let name = section.to_string();
        let remark = if cited.in_tests == 0 { "  no test" } else { "" };
        println!("{name:<22} {:>6} {:>6}{remark}", cited.in_code, cited.in_tests);
    }
    let without = sections.values().filter(|cited| cited.in_tests == 0).count();
    println!("{} sections cited, {without} without a test that cites them", sections.len());
    Ok(true)
}

fn count(file: &File, sections: &mut BTreeMap<Section, Cited>) {
    let all_tests = is_test_file(&file.path);
    let tests = Code::new(&file.text).test_lines();
    for (number, line) in file.text.lines().enumerate() {
        let in_tests = all_tests || tests.iter().any(|range| range.contains(&(number + 1)));
        for section in tags(line) {
            let cited = sections.entry(section).or_default();
            if in_tests { cited.in_tests += 1 } else { cited.in_code += 1 }
        }
    }
}

/// The sections cited in a line.
fn tags(line: &str) -> impl Iterator<Item = Section> {
    line.split("RFC ").skip(1).filter_map(|rest| {
        let (rfc, rest) = rest.split_once(" s")?;
        let part = |byte: char| byte.is_ascii_alphanumeric() || byte == '.';
        let section = rest.split(|byte| !part(byte)).next()?.trim_end_matches('.');
        let begins_well =
            section.starts_with(|first: char| first.is_ascii_digit() || first.is_ascii_uppercase());
        let parts = section.split('.').map(str::to_owned).collect();
        begins_well.then_some(Section { rfc: rfc.parse().ok()?, parts })
    })
}

impl std::fmt::Display for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RFC {} s{}", self.rfc, self.parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_from_comments() {
        let read = |line| tags(line).map(|section| section.to_string()).collect::<Vec<_>>();
        assert_eq!(
            read("// RFC 5531 s11. And RFC 1813 s3.3.7 (stable_how)"),
            ["RFC 5531 s11", "RFC 1813 s3.3.7"]
        );
        assert_eq!(read("// RFC 4506 says so; an RFC section"), Vec::<String>::new());
    }

    #[test]
    fn code_and_tests_are_counted_apart() {
        let text = "// RFC 1 s2\n#[cfg(test)]\nmod tests {\n    // RFC 1 s2\n}\n// RFC 1 s3\n".to_owned();
        let mut sections = BTreeMap::new();
        count(&File { path: "src/a.rs".to_owned(), text }, &mut sections);
        let seen: Vec<_> = sections.values().map(|cited| (cited.in_code, cited.in_tests)).collect();
        assert_eq!(seen, [(1, 1), (1, 0)]);
    }
}
