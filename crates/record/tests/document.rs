//! Tests docs/RECORD.md: its example is a record, and it names every field.

use std::collections::BTreeSet;

use record::Record;
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../docs/RECORD.md");
const TYPES: [&str; 7] = [
    include_str!("../src/cell.rs"),
    include_str!("../src/clients.rs"),
    include_str!("../src/environment.rs"),
    include_str!("../src/latency_over_time.rs"),
    include_str!("../src/limits.rs"),
    include_str!("../src/model.rs"),
    include_str!("../src/verdict.rs"),
];

fn example() -> &'static str {
    let (_, after) = DOCUMENT.split_once("```json\n").expect("the document has an example");
    after.split_once("\n```").expect("the example ends").0
}

/// The names of all public fields in the sources of the record.
fn fields() -> BTreeSet<&'static str> {
    let lines = TYPES.iter().flat_map(|source| source.lines());
    let names = lines.filter_map(|line| line.strip_prefix("    pub ")?.split_once(": "));
    names.map(|(name, _)| name).filter(|name| !name.contains(['(', ' '])).collect()
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| {
            found.insert(name.clone());
            keys(inner, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn the_example_is_unchanged_after_reading_and_writing() {
    let record = Record::read(example()).expect("the example is a record");
    let before: Value = serde_json::from_str(example()).expect("the example is JSON");
    let after: Value = serde_json::from_str(&record.write()).expect("a written record is JSON");
    assert_eq!(before, after);
}

#[test]
fn the_example_has_every_field_and_the_tables_name_each() {
    let mut shown = BTreeSet::new();
    keys(&serde_json::from_str(example()).expect("the example is JSON"), &mut shown);
    let (tables, _) = DOCUMENT.split_once("## Example").expect("the document has an example");
    assert!(fields().len() > 60, "the fields were found in the sources: {:?}", fields());
    for field in fields() {
        assert!(shown.contains(field), "the example lacks {field}");
        let named = tables.contains(&format!("`{field}`")) || tables.contains(&format!(".{field}`"));
        assert!(named, "no table names {field}");
    }
}

#[test]
fn the_documented_histogram_merges() {
    let record = Record::read(example()).expect("the example is a record");
    let cell = record.routes[0].workloads[0].read.as_ref().expect("the example has reads");
    let mut latency = record::Latency::from_text(&cell.latency_histogram_ns).expect("the documented form");
    assert_eq!(latency.count(), cell.ops);
    latency.merge(&latency.clone());
    assert_eq!(latency.count(), 2 * cell.ops);
}
