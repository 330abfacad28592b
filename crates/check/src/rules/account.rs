//! The account that writes to a cluster: over AUTH_SYS the cluster goes by its number.

use crate::{Cluster, Evidence, Finding};

const NAME: &str = "passwd.txt";
/// What the capture of a host begins with: it may have no account.
pub(super) const HEAD: &str = "# NAME:UID of";

/// What a capture keeps of the accounts of a host: name and UID, of the planned account and of
/// those that have its UID. Who else has an account there is nobody's concern.
pub fn planned_accounts(text: &str, planned: &Cluster) -> String {
    let (user, wanted) = &planned.user;
    let kept = text.lines().filter_map(uid_of).filter(|(name, uid)| name == user || uid == wanted);
    let lines: String = kept.map(|(name, uid)| format!("{name}:{uid}\n")).collect();
    format!("{HEAD} {user} and of accounts with UID {wanted}\n{lines}")
}

pub(super) fn check(evidence: &Evidence, planned: &Cluster, out: &mut Vec<Finding>) {
    const RULE: &str = "nfs.account";
    if super::is_unread(evidence, NAME) {
        return;
    }
    let Some(text) = evidence.text(NAME) else { return };
    let (user, wanted) = &planned.user;
    let accounts: Vec<_> = text.lines().filter_map(uid_of).collect();
    let source = evidence.source(NAME);
    let found = accounts.iter().find(|(name, _)| name == user).map(|(_, uid)| *uid);
    let other = accounts.iter().find(|(name, uid)| name != user && uid == wanted).map(|(name, _)| *name);
    let finding = |seen: String| Finding::ok(RULE, source, seen);
    let why =
        "the cluster goes by the number: it refuses what others write, or takes it for another account's";
    out.push(match (found, other) {
        (Some(uid), _) if uid != *wanted => {
            finding(format!("{user} has UID {uid} here, and {wanted} on the cluster"))
                .fail(why, format!("usermod --uid {wanted} {user}    # and chown what it owns here"))
        }
        (Some(_), Some(other)) => finding(format!("{user} has UID {wanted}, and so has {other}"))
            .warn(why, format!("usermod --uid OTHER {other}")),
        (Some(_), None) => finding(format!("{user} has UID {wanted}, as on the cluster")),
        (None, Some(other)) => finding(format!("there is no {user}, and {other} has its UID {wanted}"))
            .fail(why, format!("usermod --uid OTHER {other}; useradd --uid {wanted} {user}")),
        // A directory service may know accounts that it does not list.
        (None, None) => finding(format!("no account {user} is listed")).warn(
            "programs need an account with the number of the cluster's",
            format!("id {user}    # unless a directory service knows it: useradd --uid {wanted} {user}"),
        ),
    });
}

/// The name and the UID of a line of passwd(5), or of one that has only these.
pub(super) fn uid_of(line: &str) -> Option<(&str, u32)> {
    let fields: Vec<_> = line.trim().split(':').collect();
    let ([name, _, uid, _, _, _, _] | [name, uid]) = fields[..] else { return None };
    Some((name, uid.parse().ok().filter(|_| !name.is_empty())?))
}
