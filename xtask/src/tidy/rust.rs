//! Rules for Rust sources.

use crate::layers::{Layer, RULES};
use crate::source::Code;
use crate::workspace::File;

/// The maximum number of lines of a file; a longer one must be split.
const FILE_LINES_MAX: usize = 800;

/// The maximum for a file of tests, which may be longer because it is a list.
const TEST_FILE_LINES_MAX: usize = 1000;

/// The maximum number of lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// The maximum number of columns of a comment. Text that cannot be divided may be longer.
const COMMENT_COLUMNS_MAX: usize = 100;

/// Names that say nothing about the content.
const EMPTY_NAMES: [&str; 6] = ["util", "utils", "helper", "helpers", "common", "misc"];

/// Marks of unfinished work, which does not belong into a commit. Written in two halves, so that
/// this file does not match.
const LEFT_FOR_LATER: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
];

/// Where unsafe code is allowed, each block with its reason: the crates that know the operating
/// system, the file that processes of a group map, tests that count allocations (an allocator is
/// unsafe by nature), and tests that map files.
const UNSAFE_ALLOWED: [&str; 13] = [
    "crates/memory/",
    "crates/drives/src/ring.rs",
    "crates/drives/src/sys.rs",
    "crates/ublk/src/control.rs",
    "crates/ublk/src/queue.rs",
    "crates/ublk/src/sys.rs",
    "crates/store/",
    "crates/transport/",
    "crates/verbs/",
    "crates/client/",
    "crates/server/src/shared_reply_cache/",
    "crates/server/tests/",
    "crates/trunkline/tests/history/",
];

/// Sources of which only these parts, and tests, may name types of a file protocol. All other files
/// use the types of `fs`.
const SPEAK_FS: [(&str, &[&str]); 2] = [
    ("crates/client/src/", &["protocol.rs", "protocol/"]),
    (
        "crates/server/src/",
        &["nfs3.rs", "nfs3/", "nfs4.rs", "nfs4/", "nfs4_state.rs", "nfs4_state/", "mount.rs", "mount/"],
    ),
];

/// Finds comments with lines that are too long. Tables and drawings, which contain runs of blanks,
/// may be longer.
fn long_comments(file: &File) -> Vec<String> {
    let is_long = |line: &str| {
        let text = line.trim_start();
        text.starts_with("//")
            && line.chars().count() > COMMENT_COLUMNS_MAX
            && text.split_whitespace().count() > 2
            && !text.contains("    ")
            && !text.contains('|')
    };
    let long = file.text.lines().enumerate().filter(|(_, line)| is_long(line));
    long.map(|(at, _)| {
        format!("{}:{}: a comment beyond column {COMMENT_COLUMNS_MAX}; break the line", file.path, at + 1)
    })
    .collect()
}

/// All violations in one source.
pub(super) fn findings(file: &File) -> Vec<String> {
    let (path, mut found) = (file.path.as_str(), Vec::new());
    if !file.text.starts_with("//!") {
        found.push(format!("{path}:1: begin the file with `//!` and what it is, implements and leaves out"));
    }
    found.extend(long_comments(file));
    let (lines, most) = (file.text.lines().count(), lines_max(path));
    if lines > most {
        found.push(format!("{path}: {lines} lines, at most {most}; split it by what it is about"));
    }
    let (stem, place) = name_and_place(path);
    if stem == "mod" {
        found.push(format!("{path}: name it after its directory, as in foo.rs beside foo/"));
    }
    if EMPTY_NAMES.contains(&stem) || place.split('/').any(|part| EMPTY_NAMES.contains(&part)) {
        found.push(format!("{path}: that name says nothing; name it after what is inside"));
    }
    for (number, line) in file.text.lines().enumerate() {
        for mark in LEFT_FOR_LATER.iter().filter(|mark| line.contains(**mark)) {
            found.push(format!(
                "{path}:{}: {mark} does not belong into a commit; do it, or file it",
                number + 1
            ));
        }
    }
    found.extend(code_findings(file));
    found
}

/// Violations that are only visible without comments and strings.
fn code_findings(file: &File) -> Vec<String> {
    let (path, code) = (file.path.as_str(), Code::new(&file.text));
    let mut found = Vec::new();
    let may_be_unsafe = UNSAFE_ALLOWED.iter().any(|allowed| path.starts_with(allowed));
    for (number, line) in code.lines().enumerate() {
        if line.contains("allow(unsafe_code)") && !may_be_unsafe {
            found.push(format!("{path}:{}: unsafe code is not allowed in this crate", number + 1));
        }
    }
    if !is_test_file(path) {
        let tests = code.test_lines();
        let ours = |line: &usize| !tests.iter().any(|range| range.contains(line));
        found.extend(protocol_names(path, &code, ours));
        let long =
            code.functions().into_iter().filter(|one| one.lines > FUNCTION_LINES_MAX && ours(&one.line));
        found.extend(long.map(|one| {
            let (name, line, lines) = (one.name, one.line, one.lines);
            format!("{path}:{line}: fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}; split it")
        }));
    }
    found
}

/// Finds lines that name types of a file protocol where those of `fs` are used. Another rule says
/// which modules may name the modules `crate::nfs3` and `crate::nfs4`.
fn protocol_names(path: &str, code: &Code, ours: impl Fn(&usize) -> bool) -> Vec<String> {
    let of_crate = SPEAK_FS.iter().find_map(|(sources, parts)| Some((path.strip_prefix(*sources)?, *parts)));
    let Some((part, parts)) = of_crate else { return Vec::new() };
    if parts.iter().any(|allowed| part.starts_with(allowed)) {
        return Vec::new();
    }
    let names = |line: &str| {
        let line = line.replace("crate::nfs3::", "").replace("crate::nfs4::", "");
        // The client has a module of that name, which asks what a server offers.
        line.contains("nfs3::") || path.starts_with("crates/server/") && line.contains("nfs4::")
    };
    let lines = code.lines().enumerate().filter(|(number, line)| names(line) && ours(&(number + 1)));
    lines
        .map(|(number, _)| {
            let (number, parts) = (number + 1, parts.join(", "));
            format!("{path}:{number}: speak in types of fs; the versions of NFS are known in {parts}")
        })
        .collect()
}

/// Pure crates must forbid unsafe code, so that no inner attribute can allow it.
pub(super) fn missing_forbids(sources: &[File]) -> Vec<String> {
    let pure = RULES.iter().filter(|rule| rule.layer == Layer::Pure);
    let heads = pure.map(|rule| format!("crates/{}/src/lib.rs", rule.name));
    heads
        .filter(|head| {
            let file = sources.iter().find(|file| file.path == *head);
            !file.is_some_and(|file| file.text.contains("#![forbid(unsafe_code)]"))
        })
        .map(|head| format!("{head}: a pure crate says #![forbid(unsafe_code)]"))
        .collect()
}

/// Whether a file contains only tests.
pub(crate) fn is_test_file(path: &str) -> bool {
    let (stem, place) = name_and_place(path);
    stem == "tests" || place.split('/').any(|part| part == "tests")
}

fn lines_max(path: &str) -> usize {
    if is_test_file(path) { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX }
}

/// Splits `a/b/name.rs` into `name` and `a/b`.
fn name_and_place(path: &str) -> (&str, &str) {
    let (place, name) = path.rsplit_once('/').unwrap_or(("", path));
    (name.strip_suffix(".rs").unwrap_or(name), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        findings(&File { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_tidy_file_has_no_findings() {
        assert_eq!(found("crates/xdr/src/lib.rs", "//! What it is.\n\nfn f() {}\n"), Vec::<String>::new());
    }

    #[test]
    fn a_file_without_a_head_is_found() {
        assert!(found("a.rs", "fn f() {}\n")[0].starts_with("a.rs:1: begin the file"));
    }

    #[test]
    fn long_files_are_found_and_tests_may_be_longer() {
        let long = format!("//! Head.\n{}", "const A: u8 = 1;\n".repeat(899));
        assert!(found("src/a.rs", &long)[0].contains("900 lines, at most 800"));
        assert_eq!(found("src/a/tests.rs", &long), Vec::<String>::new());
        assert_eq!(found("crates/trunkline/tests/a.rs", &long), Vec::<String>::new());
    }

    #[test]
    fn comments_end_at_their_last_column_and_code_need_not() {
        let word = "word ".repeat(20);
        let long = found("src/a.rs", &format!("//! Head.\n    // {word}\n"));
        assert!(long[0].contains(":2: a comment beyond column 100"), "{long:?}");
        let code = format!("//! Head.\nlet a = \"{word}\"; // why\n// https://{}\n", "x".repeat(100));
        assert_eq!(found("src/a.rs", &code), Vec::<String>::new());
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for path in ["src/util.rs", "src/common/a.rs", "src/foo/mod.rs"] {
            assert_eq!(found(path, "//! Head.\n").len(), 1, "{path}");
        }
    }

    #[test]
    fn what_is_left_for_later_is_found() {
        for mark in LEFT_FOR_LATER {
            assert_eq!(found("src/a.rs", &format!("//! Head.\n// {mark}\n")).len(), 1, "{mark}");
        }
    }

    #[test]
    fn long_functions_are_found_except_in_tests() {
        let function = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(69));
        assert!(found("src/a.rs", &format!("//! Head.\n{function}"))[0].contains("fn f has 71 lines"));
        let in_tests = format!("//! Head.\n#[cfg(test)]\nmod tests {{\n{function}}}\n");
        assert_eq!(found("src/a.rs", &in_tests), Vec::<String>::new());
    }

    #[test]
    fn a_protocol_is_named_in_one_place_of_the_client() {
        let text = "//! Of nfs3::Status.\nuse nfs3::Status;\n";
        assert!(found("crates/client/src/engine/answers.rs", text)[0].contains(":2: speak in types of fs"));
        for path in ["crates/client/src/protocol/nfs3/data.rs", "crates/client/tests/files.rs"] {
            assert_eq!(found(path, text), Vec::<String>::new());
        }
    }

    #[test]
    fn a_protocol_is_named_in_two_modules_of_the_server_and_in_tests() {
        let text = "//! Head.\nuse crate::nfs3::Nfs3;\nuse nfs3::Status;\n";
        let named = found("crates/server/src/export.rs", text);
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(named[0].contains(":3: speak in types of fs"), "{named:?}");
        let tests = "//! Head.\n#[cfg(test)]\nmod tests {\n    use nfs3::Status;\n}\n";
        assert_eq!(found("crates/server/src/export.rs", tests), Vec::<String>::new());
        for path in ["nfs3/read.rs", "mount/mnt.rs", "server/tests.rs"] {
            assert_eq!(found(&format!("crates/server/src/{path}"), text), Vec::<String>::new());
        }
    }

    #[test]
    fn unsafe_code_is_found_where_it_is_not_allowed() {
        let text = "//! Head.\n#![allow(unsafe_code)]\n";
        assert_eq!(found("crates/bench/src/lib.rs", text).len(), 1);
        assert_eq!(found("crates/store/src/lib.rs", text), Vec::<String>::new());
    }
}
