//! Formats file names. A name is bytes: a program gets the bytes unchanged; a terminal gets only
//! what it can show, and nothing that moves its cursor.

use serde_json::{Map, Value, json};

/// A name for a terminal: control characters and bytes that are not UTF-8 as `\n` or `\xff`, and a
/// backslash as `\\`.
pub fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c => push_visibly(&mut text, c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Adds a character, escaped if it moves a terminal's cursor or is invisible, such as those that
/// reverse the direction of writing.
pub fn push_visibly(text: &mut String, c: char) {
    match c {
        c if c.is_control() && c.is_ascii() => text.extend(c.escape_default()),
        c if c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
        {
            text.extend(c.escape_unicode());
        }
        c => text.push(c),
    }
}

/// A name, escaped for a terminal, otherwise unchanged.
pub fn shown(name: &[u8], terminal: bool) -> Vec<u8> {
    if terminal { escaped(name).into_bytes() } else { name.to_vec() }
}

/// Adds a name to a JSON object: unchanged if it is UTF-8, otherwise escaped, with another member
/// that has its bytes.
pub fn put(object: &mut Map<String, Value>, key: &str, name: &[u8]) {
    match std::str::from_utf8(name) {
        Ok(text) => object.insert(key.to_owned(), json!(text)),
        Err(_) => {
            let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            object.insert(format!("{key}_hex"), json!(hex));
            object.insert(key.to_owned(), json!(escaped(name)))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_that_moves_its_cursor() {
        assert_eq!(escaped(b"plain name"), "plain name");
        assert_eq!(escaped("grün".as_bytes()), "grün");
        assert_eq!(escaped(b"a\nb\x1b[2J\\\xff\xfe"), r"a\nb\u{1b}[2J\\\xff\xfe");
        assert_eq!(escaped("x\u{202e}y".as_bytes()), r"x\u{202e}y");
        assert_eq!(shown(b"\xff\n", false), b"\xff\n");
    }

    #[test]
    fn json_has_all_bytes_of_a_name_that_is_not_text() {
        let mut object = Map::new();
        put(&mut object, "name", b"a\xff");
        put(&mut object, "plain", b"b");
        assert_eq!(Value::Object(object), json!({"name": r"a\xff", "name_hex": "61ff", "plain": "b"}));
    }
}
