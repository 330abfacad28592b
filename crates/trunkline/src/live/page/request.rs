//! What the page is asked for: the parameters of its address.

use crate::live::collector::Side;
use metrics::Dimension;
use metrics::history::{Condition, Range};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The times that a person chooses from, in seconds.
pub const WINDOWS: [(u64, &str); 3] = [(120, "2 minutes"), (600, "10 minutes"), (3600, "1 hour")];
/// The shortest and the longest time.
const WINDOW_BOUNDS: std::ops::RangeInclusive<u64> = 10..=3600;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Of what: the process, or the embedded group within it.
    pub side: Side,
    /// The length of the time that is shown, in seconds.
    pub window_s: u64,
    /// The end of that time, in milliseconds since 1970; `None` for now.
    pub until_ms: Option<u64>,
    /// The dimension whose values are told apart; `None` for the first that is left.
    pub by: Option<Dimension>,
    /// Only operations for which these hold.
    pub conditions: Vec<Condition>,
}

impl Default for Request {
    fn default() -> Self {
        Self { side: Side::Process, window_s: WINDOWS[0].0, until_ms: None, by: None, conditions: Vec::new() }
    }
}

impl Request {
    /// Reads the parameters of an address. `others` are allowed besides.
    ///
    /// # Errors
    /// A parameter is unknown or out of its bounds.
    pub fn parse(parameters: &HashMap<String, String>, others: &[&str]) -> Result<Self, String> {
        let mut request = Self::default();
        for (name, value) in parameters {
            match name.as_str() {
                "of" => request.side = side(value)?,
                "window" => {
                    let seconds = value.parse().ok().filter(|seconds| WINDOW_BOUNDS.contains(seconds));
                    request.window_s = seconds.ok_or("window: 10 to 3600, in seconds")?;
                }
                "until" => {
                    let ms = value.parse().map_err(|_| "until: milliseconds since 1970")?;
                    request.until_ms = Some(ms);
                }
                "by" => request.by = Some(value.parse().map_err(|error| format!("by: {error}"))?),
                "token" => {}
                other if others.contains(&other) => {}
                other => {
                    let dimension = other.parse::<Dimension>().map_err(|_| unknown(other, others))?;
                    if dimension == Dimension::File {
                        return Err(
                            "file: by=file shows the busiest files; there is no page of one".to_owned()
                        );
                    }
                    request.conditions.push((dimension, Some(value.clone()).filter(|one| !one.is_empty())));
                }
            }
        }
        // The parameters come in no order: the one of the drill-down reads best.
        let place = |dimension| Dimension::DRILL.iter().position(|one| *one == dimension);
        request.conditions.sort_by_key(|(dimension, _)| place(*dimension));
        Ok(request)
    }

    /// The address that asks for this.
    pub fn href(&self, path: &str) -> String {
        let mut href = path.to_owned();
        let mut add = |name: &str, value: &str| {
            href.push(if href.contains('?') { '&' } else { '?' });
            _ = write!(href, "{name}={}", encode(value));
        };
        if self.side == Side::Group {
            add("of", GROUP);
        }
        if let Some(by) = self.by {
            add("by", by.name());
        }
        for (dimension, value) in &self.conditions {
            add(dimension.name(), value.as_deref().unwrap_or_default());
        }
        if self.window_s != Self::default().window_s {
            add("window", &self.window_s.to_string());
        }
        if let Some(until_ms) = self.until_ms {
            add("until", &until_ms.to_string());
        }
        href
    }

    /// The whole of a side.
    pub fn whole_of(&self, side: Side) -> Self {
        Self { side, window_s: self.window_s, ..Self::default() }
    }

    /// The same, broken down by another dimension.
    pub fn broken_down_by(&self, by: Option<Dimension>) -> Self {
        Self { by, ..self.clone() }
    }

    /// The same up to another time.
    pub fn until(&self, until_ms: Option<u64>) -> Self {
        Self { until_ms, ..self.clone() }
    }

    /// The same for a time of another length.
    pub fn over(&self, window_s: u64) -> Self {
        Self { window_s, ..self.clone() }
    }

    /// Only one value of the dimension by which this is broken down, and that by the next one.
    pub fn only(&self, by: Dimension, value: Option<&str>, dimensions: &[Dimension]) -> Self {
        let mut request = self.clone();
        request.conditions.push((by, value.map(str::to_owned)));
        request.by = request.first_left(dimensions);
        request
    }

    /// Without the conditions from this one on, broken down by its dimension.
    pub fn before(&self, condition: usize) -> Self {
        let by = self.conditions.get(condition).map(|(dimension, _)| *dimension);
        let conditions = self.conditions.iter().take(condition).cloned().collect();
        Self { by, conditions, ..self.clone() }
    }

    /// The first dimension that no condition fixes.
    pub fn first_left(&self, dimensions: &[Dimension]) -> Option<Dimension> {
        Dimension::next(dimensions, |dimension| self.fixes(dimension))
    }

    /// Whether the calls by file are asked for.
    pub fn wants_files(&self) -> bool {
        self.by == Some(Dimension::File)
    }

    /// Whether a condition fixes this dimension.
    pub fn fixes(&self, dimension: Dimension) -> bool {
        self.conditions.iter().any(|(fixed, _)| *fixed == dimension)
    }

    /// The time that is shown, of all the time there is.
    pub fn range(&self, all: Range) -> Range {
        let until_ms = self.until_ms.map_or(all.until_ms, |until_ms| until_ms.min(all.until_ms));
        Range { from_ms: until_ms.saturating_sub(self.window_s * 1000), until_ms }
    }
}

/// The value of `of` for the embedded group of a bench.
const GROUP: &str = "group";

/// What `of` names.
///
/// # Errors
/// Another value.
pub fn side(value: &str) -> Result<Side, String> {
    match value {
        GROUP => Ok(Side::Group),
        _ => Err("of: group, for the embedded group of a bench; without it, the process".to_owned()),
    }
}

fn unknown(name: &str, others: &[&str]) -> String {
    let names = Dimension::ALL.into_iter().filter(|one| *one != Dimension::File).map(Dimension::name);
    let dimensions = names.collect::<Vec<_>>().join(", ");
    let others: String = others.iter().map(|other| format!(", {other}")).collect();
    format!("`{name}` is no parameter; there are of, window, until, by{others}, and {dimensions}")
}

/// A text as the value of a parameter.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                encoded.push(char::from(byte));
            }
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Request, String> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Request::parse(&pairs.collect(), &["format"])
    }

    #[test]
    fn an_address_asks_for_what_it_was_made_from() {
        let request = parse(&[
            ("operation", "READ"),
            ("node", "a&b=c/é\"<"),
            ("by", "size"),
            ("client", ""),
            ("window", "600"),
            ("until", "1700000000000"),
        ])
        .unwrap();
        assert_eq!(
            request.href("/"),
            "/?by=size&node=a%26b%3Dc/%C3%A9%22%3C&client=&operation=READ&window=600&until=1700000000000"
        );
        assert_eq!(request.conditions[1], (Dimension::Client, None));
        assert_eq!(Request::default().href("/"), "/");
        let group = parse(&[("of", "group"), ("node", "node2"), ("window", "600")]).unwrap();
        assert_eq!(group.href("/"), "/?of=group&node=node2&window=600");
        assert_eq!(group.whole_of(Side::Group).href("/"), "/?of=group&window=600");
        assert_eq!(group.whole_of(Side::Process).href("/"), "/?window=600");
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (name, value, part) in [
            ("window", "5", "10 to 3600"),
            ("window", "x", "10 to 3600"),
            ("until", "now", "milliseconds"),
            ("of", "bench", "of: group, for the embedded group"),
            ("file", "/a", "by=file shows the busiest files"),
            ("by", "user", "`user` is no dimension"),
            ("user", "x", "`user` is no parameter; there are of, window, until, by, format, and node"),
        ] {
            let error = parse(&[(name, value)]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_click_leads_to_the_part_and_the_crumbs_lead_back() {
        let all = [Dimension::Node, Dimension::Client, Dimension::Operation, Dimension::Size];
        let start = Request::default();
        assert_eq!(start.first_left(&all), Some(Dimension::Node));
        let node = start.only(Dimension::Node, Some("node2"), &all);
        assert_eq!(node.href("/"), "/?by=client&node=node2");
        let client = node.only(Dimension::Client, Some("10.0.0.7"), &all);
        assert_eq!(client.href("/"), "/?by=operation&node=node2&client=10.0.0.7");
        assert_eq!(client.before(1).href("/"), "/?by=client&node=node2");
        assert_eq!(client.before(0).href("/"), "/?by=node");
    }

    #[test]
    fn the_time_ends_within_what_there_is() {
        let all = Range { from_ms: 1_000_000, until_ms: 2_000_000 };
        let range = Request::default().range(all);
        assert_eq!(range, Range { from_ms: 1_880_000, until_ms: 2_000_000 });
        assert_eq!(Request::default().until(Some(9_000_000)).range(all), range);
        assert_eq!(Request::default().until(Some(1_500_000)).range(all).until_ms, 1_500_000);
    }
}
