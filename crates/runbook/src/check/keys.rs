//! The planner's refusals in the words of a site file: keys instead of options, and advice that is
//! TOML when it is copied.

/// The options of the planner that are keys of a site file, and whether their values are strings.
const KEYS: [(&str, bool); 10] = [
    ("scheme", true),
    ("drives", false),
    ("drive-tb", false),
    ("order", true),
    ("slots", true),
    ("volumes", false),
    ("volume", true),
    ("segment-kib", false),
    ("request-kib", false),
    ("name", true),
];

/// What separates a setting from a remark.
const REMARK: &str = "        ";

/// `cannot read --volume 4992` as `cannot read volume = "4992"`.
pub(super) fn sentence(text: &str) -> String {
    let as_setting = || {
        let (before, rest) = text.split_once("--")?;
        let (option, value) = rest.split_once(' ')?;
        Some(format!("{before}{}", setting(option, value)?))
    };
    as_setting().unwrap_or_else(|| text.to_owned())
}

/// `--volume 4992GiB, or --mirrors 2` as `volume = "4992GiB"`: what a site file does not have is
/// left out.
pub(super) fn advice(text: &str) -> String {
    let (settings, remark) = text.split_once(REMARK).unwrap_or((text, ""));
    let mut kept: Vec<String> = Vec::new();
    let mut is_string = false;
    for part in settings.split(", or ") {
        if let Some(option) = part.strip_prefix("--").and_then(|rest| rest.split(' ').next()) {
            is_string = is_key(option) == Some(true);
        }
        let is_bare_value = is_string && !part.contains(' ') && !part.contains("--");
        let found = if is_bare_value { Some(format!("{part:?}")) } else { alternative(part) };
        kept.extend(found);
    }
    let settings = if kept.is_empty() { settings.to_owned() } else { kept.join(", or ") };
    // What an option of the planner alone could do is no advice here.
    let remark = remark.find("--").map_or(remark, |at| {
        let before = remark.get(..at).unwrap_or_default();
        before.rsplit_once("; ").map_or("", |(before, _)| before)
    });
    if remark.is_empty() { settings } else { format!("{settings}{REMARK}# {remark}") }
}

/// One of several ways out; none if a site file does not have the key.
fn alternative(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix("--").filter(|rest| !rest.contains("--")) {
        let (option, value) = rest.split_once(' ')?;
        let (value, more) =
            value.split_once(' ').map_or((value, String::new()), |(value, more)| (value, format!(" {more}")));
        return Some(setting(option, value)? + &more);
    }
    let key = |word: &str| match word.strip_prefix("--") {
        Some(option) => is_key(option).map(|_| option.replace('-', "_")),
        None => Some(word.to_owned()),
    };
    text.split(' ').map(key).collect::<Option<Vec<_>>>().map(|words| words.join(" "))
}

fn setting(option: &str, value: &str) -> Option<String> {
    let key = option.replace('-', "_");
    Some(match is_key(option)? {
        true => format!("{key} = {value:?}"),
        // The key has the unit already.
        false => format!("{key} = {}", value.strip_suffix("TB").unwrap_or(value)),
    })
}

/// Whether the value of a key is a string; none if there is no such key.
fn is_key(option: &str) -> Option<bool> {
    KEYS.iter().find(|(key, _)| *key == option).map(|(_, is_string)| *is_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_toml_of_a_site_file() {
        for (option, key) in [
            ("--volume 5135GiB", "volume = \"5135GiB\""),
            ("--scheme raid6, or raid1", "scheme = \"raid6\", or \"raid1\""),
            ("--order centre, or ends", "order = \"centre\", or \"ends\""),
            ("--slots 6-17", "slots = \"6-17\""),
            ("--name ef600", "name = \"ef600\""),
            ("--segment-kib 128", "segment_kib = 128"),
            ("--drive-tb 7.68TB", "drive_tb = 7.68"),
            ("--drives 19 or 21", "drives = 19 or 21"),
            ("leave --segment-kib out, or --scheme raid6", "leave segment_kib out, or scheme = \"raid6\""),
            ("fewer --volumes, or a smaller --optimization-percent", "fewer volumes"),
            ("--scheme ddp, or --scheme raid6 --mirrors 2", "scheme = \"ddp\""),
            (
                "--drive-tb 1.92 to use what the drives hold, or --volume 4096GiB",
                "drive_tb = 1.92 to use what the drives hold, or volume = \"4096GiB\"",
            ),
            (
                "--drives 24        the largest pool; for more, several arrays: --need-tib",
                "drives = 24        # the largest pool",
            ),
            ("--drives 20        mirrored pairs (plan layout --mirrors) or spares", "drives = 20"),
            ("a name of yours", "a name of yours"),
        ] {
            assert_eq!(advice(option), key);
        }
    }

    #[test]
    fn sentences_name_the_key_with_all_that_it_has() {
        assert_eq!(sentence("cannot read --volume 4992 gib"), "cannot read volume = \"4992 gib\"");
        assert_eq!(sentence("cannot use --drive-tb 0"), "cannot use drive_tb = 0");
        assert_eq!(sentence("cannot use the scheme raid5"), "cannot use the scheme raid5");
        assert_eq!(sentence("cannot use --mirrors 3"), "cannot use --mirrors 3");
    }
}
