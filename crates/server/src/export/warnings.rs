//! Rules of an export that are valid, but with which it is of no use: it admits nobody, or says
//! that it is writable and nobody can write.

use super::Export;
use crate::config::{ExportConfig, StoreConfig};
use store::{Attributes, Wait};

/// Permission to write, for the owner, the group and the others.
const OWNER_WRITE: u32 = 0o200;
const GROUP_WRITE: u32 = 0o020;
const OTHER_WRITE: u32 = 0o002;

impl Export {
    /// Sentences about rules that make a new export useless, with the key to change.
    pub(super) fn warnings(&self) -> Vec<String> {
        let path = self.config.path.escape_debug();
        let mut warnings = Vec::new();
        if self.config.allow.is_empty() {
            warnings.push(format!(
                "export {path} admits nobody; name its clients in `allow`, such as allow = [\"10.0.0.0/8\"]"
            ));
        }
        if !self.config.read_only
            && self.is_empty()
            && let Ok(Ok(root)) = self.store.attributes(self.store.root(), Wait::Allowed)
            && !can_anybody_write(&self.config, &root)
        {
            let remedy = match &self.config.store {
                StoreConfig::Mem { .. } => "give its root directory another owner (`owner_uid`, `owner_gid`)",
                StoreConfig::Dir { .. } => "give the directory to the user who shall write (chown, chmod)",
            };
            let squash = if self.config.all_squash { "all_squash" } else { "root_squash" };
            let (owner, anonymous) = (root.uid, self.config.anonuid);
            warnings.push(format!(
                "export {path} is writable (`rw`), and nobody can write: its root directory belongs to user {owner}, and \
                 callers are squashed to user {anonymous}; {remedy}, or set `{squash} = false`"
            ));
        }
        warnings
    }

    /// Whether the export has no objects: only then does its root directory decide who can write.
    fn is_empty(&self) -> bool {
        match &self.config.store {
            // Called at the start.
            StoreConfig::Mem { .. } => true,
            // Without root, all callers act as the user that started the server.
            StoreConfig::Dir { path, .. } => {
                rustix::process::geteuid().is_root()
                    && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
            }
        }
    }
}

/// Whether the rules let any caller make an object in the root directory.
fn can_anybody_write(rules: &ExportConfig, root: &Attributes) -> bool {
    let (owner, group) = (root.mode & OWNER_WRITE != 0, root.mode & GROUP_WRITE != 0);
    if root.mode & OTHER_WRITE != 0 || rules.anonuid == 0 {
        return true;
    }
    if rules.all_squash {
        return owner && root.uid == rules.anonuid || group && root.gid == rules.anongid;
    }
    !rules.root_squash || owner && (root.uid != 0) || group && (root.gid != 0 || rules.anongid == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn warnings(rules: &str) -> Vec<String> {
        let text = format!(
            "[[node]]\nlisten = [\"127.0.0.1:0\"]\n[[export]]\npath = \"/x\"\nmem = \"1MiB\"\n{rules}\n"
        );
        let config = Config::from_toml(&text, "x.toml").unwrap();
        Export::new(&config.exports[0], None).unwrap().warnings()
    }

    #[test]
    fn an_export_that_admits_nobody_is_named_with_its_key() {
        let told = warnings("allow = []");
        assert!(
            told.len() == 1 && told[0].contains("/x admits nobody") && told[0].contains("`allow`"),
            "{told:?}"
        );
        assert_eq!(warnings("allow = [\"10.0.0.0/8\"]"), Vec::<String>::new());
    }

    #[test]
    fn a_writable_export_on_which_nobody_can_write_is_named_with_its_key() {
        let rules = |rules: &str| warnings(&format!("allow = [\"10.0.0.0/8\"]\nrw = true\n{rules}"));
        for useless in [
            "owner_uid = 0",
            "owner_uid = 0\nowner_gid = 7",
            "owner_uid = 7\nall_squash = true",
            "owner_uid = 0\nanonuid = 7",
        ] {
            let told = rules(useless);
            assert!(told.len() == 1 && told[0].contains("`owner_uid`"), "{useless}: {told:?}");
            assert!(told[0].contains("_squash = false`"), "{useless}: {told:?}");
        }
        for useful in [
            "owner_uid = 7",
            "owner_uid = 0\nroot_squash = false",
            "owner_uid = 0\nanonuid = 0",
            "owner_uid = 7\nanonuid = 7\nall_squash = true",
            "owner_uid = 65534",
        ] {
            assert_eq!(rules(useful), Vec::<String>::new(), "{useful}");
        }
        assert_eq!(warnings("allow = [\"10.0.0.0/8\"]\nowner_uid = 0"), Vec::<String>::new(), "read-only");
    }

    #[test]
    fn the_example_has_no_warnings() {
        let mut config = Config::from_toml(crate::config::EXAMPLE, "example.toml").unwrap();
        for export in &mut config.exports {
            if let StoreConfig::Mem { bytes, .. } = &mut export.store {
                *bytes = 1 << 20;
            }
            assert_eq!(Export::new(export, None).unwrap().warnings(), Vec::<String>::new());
        }
    }
}
