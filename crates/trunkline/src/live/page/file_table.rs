//! The table of files: those of the last seconds, because the history has none.

use super::Line;
use crate::figures;
use metrics::history::Condition;
use metrics::{Dimension, FileActivity, OTHER_CLIENTS, Operations, Tally};

/// The most files that are shown; the others are one line.
const FILES_MAX: usize = 20;

/// See the module's documentation.
#[derive(Debug)]
pub struct FileTable {
    /// What happened to each file, the busiest first; `None` if nothing has been counted yet.
    files: Option<Vec<(String, Tally)>>,
    total: Tally,
    /// The time in which that happened.
    seconds: f64,
}

impl FileTable {
    /// The files with calls for which the conditions hold.
    pub fn new(activity: Option<&FileActivity>, conditions: &[Condition]) -> Self {
        let Some(FileActivity { seconds, operations }) = activity else {
            return Self { files: None, total: Tally::default(), seconds: 0.0 };
        };
        let mut by_file = Operations::default();
        for (key, tally) in operations.iter() {
            if conditions.iter().all(|(dimension, value)| key.of(*dimension) == value.as_deref()) {
                by_file.add(key.only(&[Dimension::File]), tally);
            }
        }
        let total = by_file.total();
        let mut files: Vec<_> = by_file
            .iter()
            .map(|(key, tally)| (key.file.as_deref().unwrap_or_default().to_owned(), tally.clone()))
            .collect();
        files.sort_by(|(_, a), (_, b)| b.share_of(&total).total_cmp(&a.share_of(&total)));
        Self { files: Some(with_few(files)), total, seconds: *seconds }
    }

    /// The lines of the table, and that of all together.
    pub fn lines(&self) -> (Vec<Line>, Line) {
        let line = |name: &str, tally: &Tally| Line::new(name.to_owned(), tally, &self.total, self.seconds);
        let lines = self.files.iter().flatten().map(|(name, tally)| line(name, tally));
        (lines.collect(), line("all", &self.total))
    }

    /// What must be said about the table.
    pub fn note(&self) -> String {
        match &self.files {
            Some(_) => format!("over the last {} s, without latencies", figures::number(self.seconds)),
            None => "now: files are counted only while this page shows them live".to_owned(),
        }
    }
}

/// The busiest files. Those that are not told apart come last.
fn with_few(files: Vec<(String, Tally)>) -> Vec<(String, Tally)> {
    let (mut kept, mut others) = (Vec::new(), Tally::default());
    let mut has_others = false;
    for (name, tally) in files {
        if name == OTHER_CLIENTS || kept.len() >= FILES_MAX {
            others.add(&tally);
            has_others = true;
        } else {
            kept.push((name, tally));
        }
    }
    kept.extend(has_others.then(|| (OTHER_CLIENTS.to_owned(), others)));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::Key;

    fn activity() -> FileActivity {
        let mut operations = Operations::default();
        let mut add = |file: &str, client: &str, count: u64| {
            let key = Key { file: Some(file.into()), client: Some(client.into()), ..Key::default() };
            operations.add(key, &Tally { count, ..Tally::default() });
        };
        add("others", "others", 50);
        (0..30).for_each(|n| add(&format!("/x/{n}"), "10.0.0.7", 100 - n));
        add("/x/0", "10.0.0.8", 1000);
        FileActivity { seconds: 2.0, operations }
    }

    #[test]
    fn the_busiest_files_are_shown_and_the_rest_is_one_line() {
        let activity = activity();
        let (lines, all) = FileTable::new(Some(&activity), &[]).lines();
        assert_eq!((lines.len(), lines[0].name.as_str(), lines[0].cells[0].as_str()), (21, "/x/0", "550"));
        assert_eq!((lines[20].name.as_str(), all.name.as_str()), ("others", "all"));
        assert_eq!(all.cells[0], figures::number(activity.operations.total().count as f64 / 2.0));
        let one = [(Dimension::Client, Some("10.0.0.8".to_owned()))];
        let (lines, _) = FileTable::new(Some(&activity), &one).lines();
        assert_eq!((lines.len(), lines[0].cells[0].as_str()), (1, "500"));
    }

    #[test]
    fn a_table_that_is_not_counted_yet_says_so() {
        let table = FileTable::new(None, &[]);
        assert!(table.lines().0.is_empty() && table.note().contains("only while this page shows them live"));
    }
}
