//! The volumes of a layout, as `trunkline plan layout --json` prints it. What else a layout has
//! (slots, segments) is for arrays.

use super::{node, refused};
use crate::error::Error;
use serde::Deserialize;
use std::io::{self, Read};
use std::path::Path;

/// No layout is longer.
const LAYOUT_BYTES_MAX: u64 = 4 << 20;
const GIB: u64 = 1 << 30;

/// A volume that is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The letter of its node.
    pub(super) owner: Option<char>,
}

#[derive(Deserialize)]
struct Layout {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    volumes: Vec<Volume>,
}

#[derive(Deserialize)]
struct Volume {
    name: String,
    owner: Option<char>,
    gib: Option<u64>,
}

/// Reads a layout; each volume has this size, if one is given.
pub(super) fn read(path: &Path, size: Option<u64>) -> Result<Vec<Planned>, Error> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(LAYOUT_BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(LAYOUT_BYTES_MAX).read_to_string(&mut text))
    };
    read.map_err(|cause| Error::Read { file: name.clone(), cause })?;
    parse(&text, size).map_err(|(cause, advice)| refused(format!("{name} is no layout"), cause, advice))
}

fn parse(text: &str, size: Option<u64>) -> Result<Vec<Planned>, (String, &'static str)> {
    let printed = "the output of `trunkline plan layout ... --json`";
    let layout: Layout = serde_json::from_str(text).map_err(|error| (error.to_string(), printed))?;
    let planned = |Volume { name, owner, gib }: Volume| {
        if let Some(letter) = owner.filter(|letter| node(*letter).is_none()) {
            return Err((format!("the volume {name} belongs to {letter}, and nodes are A and B"), printed));
        }
        let bytes = size.or_else(|| gib?.checked_mul(GIB)).ok_or_else(|| {
            let advice = "a layout with --drive-tb or --volume, or --size SIZE here";
            (format!("the volume {name} has no capacity"), advice)
        })?;
        Ok(Planned { name, bytes, owner })
    };
    layout.groups.into_iter().flat_map(|group| group.volumes).map(planned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: Option<&str>) -> plan::layout::Layout {
        let mut request = plan::layout::Request::new(plan::Scheme::Raid6, 20);
        request.volume = size.map(|size| plan::units::parse_capacity("volume", size).expect("a size"));
        plan::layout::layout(&request).expect("it fits")
    }

    #[test]
    fn what_plan_prints_is_read() {
        let text = plan::show::json(&layout(Some("4992GiB")));
        let planned = parse(&text, None).expect("it is a layout");
        let names: Vec<_> = planned.iter().map(|one| (one.name.as_str(), one.owner)).collect();
        assert_eq!(
            names,
            [
                ("ef600a01v1", Some('A')),
                ("ef600a01v2", Some('B')),
                ("ef600a02v1", Some('A')),
                ("ef600a02v2", Some('B'))
            ]
        );
        assert!(planned.iter().all(|one| one.bytes == 4992 * GIB), "{planned:?}");
    }

    #[test]
    fn a_layout_without_capacities_needs_a_size() {
        let text = plan::show::json(&layout(None));
        let (cause, advice) = parse(&text, None).unwrap_err();
        assert!(cause.contains("no capacity") && advice.contains("--size"), "{cause} {advice}");
        let planned = parse(&text, Some(GIB)).expect("it has sizes now");
        assert!(planned.iter().all(|one| one.bytes == GIB), "{planned:?}");
    }

    #[test]
    fn what_is_no_layout_is_refused_with_the_cause() {
        for (text, cause) in [
            ("", "EOF"),
            ("{}", "groups"),
            (r#"{"groups":[{"volumes":[{"name":"a","owner":"C","gib":1}]}]}"#, "nodes are A and B"),
            (r#"{"groups":[{"volumes":[{"name":"a","owner":"A","gib":-1}]}]}"#, "-1"),
            (
                r#"{"groups":[{"volumes":[{"name":"a","owner":"A","gib":18446744073709551615}]}]}"#,
                "no capacity",
            ),
        ] {
            let error = parse(text, None).unwrap_err();
            assert!(error.0.contains(cause), "{text}: {error:?}");
        }
    }
}
