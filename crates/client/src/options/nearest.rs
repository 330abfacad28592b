//! The known name nearest to a mistyped one.

/// The candidate that the fewest insertions, deletions, replacements and swaps of neighbours turn
/// `name` into, if they are few: a third of its length.
pub(super) fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let bound = (name.chars().count() / 3).max(1);
    let name: Vec<char> = name.to_ascii_lowercase().chars().take(64).collect();
    known
        .map(|candidate| (distance(&name, &candidate.chars().collect::<Vec<_>>()), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= bound)
        .map(|(_, candidate)| candidate)
}

/// Optimal string alignment distance.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, l) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, r) in right.iter().enumerate() {
            let mut least =
                (above[column] + usize::from(l != r)).min(above[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && left[row - 1] == *r && *l == right[column - 1] {
                least = least.min(before[column - 1] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_if_it_is_near() {
        let known = || ["nconnect", "mdconnect", "remoteports", "localports", "soft", "hard"].into_iter();
        assert_eq!(nearest("nconect", known()), Some("nconnect"));
        assert_eq!(nearest("mconnect", known()), Some("nconnect"));
        assert_eq!(nearest("remoteprots", known()), Some("remoteports"));
        assert_eq!(nearest("NConnect", known()), Some("nconnect"));
        assert_eq!(nearest("sfot", known()), Some("soft"));
        assert_eq!(nearest("frobnicate", known()), None);
        assert_eq!(nearest("", known()), None);
    }
}
