//! Tests that mount lines from published articles parse to what they mean.

use client::options::FstabLine;

#[test]
fn every_published_mount_line_parses() {
    let text = include_str!("data/mount_lines.txt");
    let mut line = None;
    let mut checked = 0;
    for (number, row) in text.lines().enumerate().filter(|(_, row)| !row.is_empty() && !row.starts_with('#'))
    {
        let at = format!("tests/data/mount_lines.txt:{}", number + 1);
        if !row.starts_with(['=', '!']) {
            assert!(line.is_none(), "{at}: the line before has no expected result");
            line = Some(row);
            continue;
        }
        let parsed = FstabLine::parse(line.take().expect("a mount line comes first")).expect(&at);
        let found = match parsed.mount_options() {
            Ok(options) => format!("= {} {} {options}", parsed.target, parsed.directory),
            Err(error) => format!("! {error}"),
        };
        assert_eq!(found, row, "{at}");
        checked += 1;
    }
    assert_eq!((checked, line), (12, None));
}
