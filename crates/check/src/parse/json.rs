//! JSON that commands print in place of text.

use serde_json::Value;

/// The value, if a text is JSON.
pub(super) fn value(text: &str) -> Option<Value> {
    let text = text.trim_start();
    text.starts_with(['{', '[']).then(|| serde_json::from_str(text).ok()).flatten()
}

/// The text of a value that is one.
pub(super) fn text_of(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str)
}
