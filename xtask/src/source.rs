//! A minimal parser of Rust sources: what is code, what is a test, how long a function is.

/// A source in which comments and the contents of strings are replaced by blanks, so that only code
/// remains. Every line keeps its number and its length.
#[derive(Debug)]
pub(crate) struct Code {
    bytes: Vec<u8>,
}

/// A function and its number of lines, from `fn` to its last brace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// The name of the function.
    pub(crate) name: String,
    /// The line with `fn`, from 1.
    pub(crate) line: usize,
    /// The number of lines.
    pub(crate) lines: usize,
}

impl Code {
    /// Replaces everything that is not code by blanks.
    pub(crate) fn new(text: &str) -> Self {
        let source = text.as_bytes();
        let mut bytes = source.to_vec();
        let mut at = 0;
        while at < source.len() {
            let end = end_of_other(source, at);
            if end > at {
                let inside = bytes[at..end].iter_mut();
                inside.filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
                at = end;
            } else {
                at += 1;
            }
        }
        Self { bytes }
    }

    /// The lines of code.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.bytes.split(|byte| *byte == b'\n').map(|line| std::str::from_utf8(line).unwrap_or_default())
    }

    /// The range of lines, from 1, of each item under `#[cfg(test)]`.
    pub(crate) fn test_lines(&self) -> Vec<std::ops::RangeInclusive<usize>> {
        let mark = b"#[cfg(test)]";
        let starts = (0..self.bytes.len()).filter(|at| self.bytes[*at..].starts_with(mark));
        starts.map(|at| self.line_of(at)..=self.line_of(self.end_of_item(at + mark.len()))).collect()
    }

    /// All functions with a body, nested ones too.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let mut found = Vec::new();
        for at in 0..self.bytes.len() {
            let before = at.checked_sub(1).map(|before| self.bytes[before]);
            if !self.bytes[at..].starts_with(b"fn ") || before.is_some_and(word) {
                continue;
            }
            let name = self.bytes[at + 3..].iter().copied().take_while(|byte| word(*byte));
            let name = String::from_utf8(name.collect()).unwrap_or_default();
            let end = self.end_of_item(at);
            if !name.is_empty() && self.bytes.get(end) == Some(&b'}') {
                let line = self.line_of(at);
                found.push(Function { name, line, lines: self.line_of(end) - line + 1 });
            }
        }
        found
    }

    /// The end of the item that starts here: its closing brace, or a semicolon before any brace.
    fn end_of_item(&self, start: usize) -> usize {
        let (mut braces, mut others) = (0_usize, 0_usize);
        for (at, byte) in self.bytes.iter().enumerate().skip(start) {
            match byte {
                b'{' => braces += 1,
                b'}' if braces <= 1 => return at,
                b'}' => braces -= 1,
                b'(' | b'[' => others += 1,
                b')' | b']' => others = others.saturating_sub(1),
                b';' if braces == 0 && others == 0 => return at,
                _ => {}
            }
        }
        self.bytes.len().saturating_sub(1)
    }

    fn line_of(&self, at: usize) -> usize {
        self.bytes.iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }
}

/// The end of the comment, string or character that starts here; `at` itself if none starts here.
fn end_of_other(source: &[u8], at: usize) -> usize {
    let rest = &source[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return at + end_of_block_comment(rest);
    }
    match rest {
        [b'"', ..] => at + end_of_string(rest),
        [b'r', b'"' | b'#', ..] if !follows_a_word(source, at) => at + end_of_raw_string(rest),
        // A character, not a lifetime: an escape, or a quote after one character of up to four
        // bytes.
        [b'\'', b'\\', _, tail @ ..] => {
            at + 3 + tail.iter().position(|byte| *byte == b'\'').map_or(0, |quote| quote + 1)
        }
        [b'\'', first, ..] => {
            let width = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            if rest.get(1 + width) == Some(&b'\'') { at + width + 2 } else { at }
        }
        _ => at,
    }
}

/// Whether this letter belongs to a longer word; `br"` still begins a raw string.
fn follows_a_word(source: &[u8], at: usize) -> bool {
    match at.checked_sub(1).map(|before| source[before]) {
        Some(b'b') => at >= 2 && source[at - 2].is_ascii_alphanumeric(),
        Some(before) => before.is_ascii_alphanumeric() || before == b'_',
        None => false,
    }
}

fn end_of_block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn end_of_string(rest: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Zero if this is a raw identifier (`r#type`), not a string.
fn end_of_raw_string(rest: &[u8]) -> usize {
    let hashes = rest.iter().skip(1).take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let start = hashes + 2;
    let inside = &rest[start..];
    let length = inside.windows(close.len()).position(|window| window == close);
    length.map_or(rest.len(), |length| start + length + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Code::new(text).lines().collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn comments_strings_and_characters_are_no_code() {
        assert_eq!(code("a // b\nc").split_whitespace().collect::<String>(), "ac");
        assert_eq!(code("a /* b /* c */ d */ e").split_whitespace().collect::<String>(), "ae");
        assert_eq!(code(r#"f("}\"", '{', '\'', b'"', "x")"#).replace(' ', ""), "f(,,,b,)");
        assert_eq!(code("r#\"}\"# r#type").trim(), "r#type");
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn functions_are_measured_from_name_to_brace() {
        let found =
            Code::new("fn one() {}\n\npub fn two(\n  a: [u8; 3],\n) {\n  \"}\";\n}\nfn no();\n").functions();
        let seen: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.line, one.lines)).collect();
        assert_eq!(seen, [("one", 1, 1), ("two", 3, 5)]);
    }

    #[test]
    fn tests_are_found_by_their_attribute() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod more;\n";
        assert_eq!(Code::new(text).test_lines(), [2..=5, 7..=8]);
    }
}
