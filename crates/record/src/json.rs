//! Reads and writes a record as JSON text.

use serde::Deserialize;
use serde_json::Value;

use crate::model::{Record, VERSION};

/// Why a text is not a record that this build can read. The fault is always in the text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not JSON.
    #[error("not a record: {0}")]
    NotJson(serde_json::Error),
    /// The text is JSON, but not a record.
    #[error("not a record: it has no `version`")]
    NoVersion,
    /// The record has another version, so its fields have other meanings.
    #[error(
        "the record has version {found}, and this build reads version {VERSION}: \
         use the trunkline that wrote it, or measure again"
    )]
    Version {
        /// The version of the record.
        found: String,
    },
    /// A field is missing or has the wrong type.
    #[error("a broken record: {0}")]
    Broken(serde_json::Error),
    /// The text of a histogram is invalid.
    #[error("a broken latency histogram: `{pair}` is not STEP:COUNT")]
    Histogram {
        /// The invalid part.
        pair: String,
    },
}

impl Record {
    /// Reads a record. Unknown fields are ignored; another version is refused.
    pub fn read(text: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Head {
            version: Option<Value>,
        }
        // The text is read as any JSON first, so that a truncated text or one that is not JSON can
        // be told from a record of another version.
        let value: Value = serde_json::from_str(text).map_err(Error::NotJson)?;
        let head = Head::deserialize(&value).map_err(|_| Error::NoVersion)?;
        let version = head.version.ok_or(Error::NoVersion)?;
        if version != VERSION {
            return Err(Error::Version { found: version.to_string() });
        }
        // The text is read again because its errors state line and column, unlike those of a value.
        serde_json::from_str(text).map_err(Error::Broken)
    }

    /// The record as JSON text. JSON has no form for a number that is not finite: such a number is
    /// written as 0, and the record fails with the name of the field. So neither the record nor the
    /// fault is lost.
    pub fn write(&self) -> String {
        let mut value = serde_json::to_value(self).expect("a record's keys are strings");
        let mut not_finite = Vec::new();
        // Absent values are omitted, so each null is a number that is not finite.
        replace_nulls(&mut value, "", &mut not_finite);
        if not_finite.is_empty() {
            return pretty(self);
        }
        let mut mended: Record =
            serde_json::from_value(value).expect("a record whose nulls are numbers again");
        not_finite
            .iter()
            .for_each(|at| mended.fail(format!("{at} is not a finite number; it is written as 0")));
        pretty(&mended)
    }
}

fn pretty(record: &Record) -> String {
    let mut text = serde_json::to_string_pretty(record).expect("a record's keys are strings");
    text.push('\n');
    text
}

fn replace_nulls(value: &mut Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Null => {
            found.push(at.to_owned());
            *value = Value::from(0.0);
        }
        Value::Array(items) => {
            items
                .iter_mut()
                .enumerate()
                .for_each(|(i, item)| replace_nulls(item, &format!("{at}[{i}]"), found));
        }
        Value::Object(fields) => {
            let dot = if at.is_empty() { "" } else { "." };
            fields
                .iter_mut()
                .for_each(|(name, item)| replace_nulls(item, &format!("{at}{dot}{name}"), found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Route, Workload};

    #[test]
    fn a_written_record_is_read_again_as_it_was() {
        let record =
            Record { routes: vec![Route::skipped("rdma", "no RDMA device here")], ..Record::default() };
        assert_eq!(Record::read(&record.write()).expect("its own text"), record);
    }

    #[test]
    fn fields_of_a_newer_build_are_ignored() {
        let text = Record::default().write().replacen('{', "{ \"colour\": {\"of\": [1, 2]}, ", 1);
        assert_eq!(Record::read(&text).expect("a newer minor version"), Record::default());
    }

    #[test]
    fn another_version_is_refused_and_says_what_to_do() {
        let text = Record::default().write().replace("\"version\": 1", "\"version\": 2");
        let error = Record::read(&text).expect_err("version 2").to_string();
        assert!(error.contains("has version 2") && error.contains("reads version 1"), "{error}");
        assert!(matches!(Record::read("{\"version\": \"1\"}"), Err(Error::Version { .. })));
        assert!(matches!(Record::read("{\"version\": 1.5}"), Err(Error::Version { .. })));
    }

    #[test]
    fn what_is_no_record_is_told_apart_from_a_broken_one() {
        assert!(matches!(Record::read(""), Err(Error::NotJson(_))));
        assert!(matches!(Record::read("{\"version\": 1"), Err(Error::NotJson(_))));
        assert!(matches!(Record::read("[1, 2]"), Err(Error::NoVersion)));
        assert!(matches!(Record::read("{}"), Err(Error::NoVersion)));
        let error = Record::read("{\"version\": 1}").expect_err("nothing else is there").to_string();
        assert!(error.contains("missing field `made_at`"), "{error}");
    }

    #[test]
    fn a_number_that_is_not_finite_fails_the_record_by_its_name() {
        let cell = Cell { iops: f64::NAN, interval_95: [0.0, f64::INFINITY], ..Cell::default() };
        let workload = Workload { read: Some(cell), ..Workload::default() };
        let route = Route { workloads: vec![workload], ..Route::default() };
        let record = Record { routes: vec![route], ..Record::default() };
        let again = Record::read(&record.write()).expect("a mended record");
        assert_eq!(again.failed.len(), 2);
        assert!(
            again.failed.iter().any(|it| it.starts_with("routes[0].workloads[0].read.iops is not a finite"))
        );
        assert!(again.failed.iter().any(|it| it.starts_with("routes[0].workloads[0].read.interval_95[1]")));
    }
}
