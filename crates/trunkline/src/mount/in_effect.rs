//! The options of a mount as they are in effect: with all defaults, and with what the server and
//! this machine made of them.

use client::Settings;
use client::options::{DirectoryReads, LookupCache, MountOptions, Proto};
use mount::{LocalLocks, Policy};

/// The options in effect, written as mount options; they have one form whatever the user wrote.
/// `transfer_bytes` are the sizes of READ and WRITE that the server takes.
pub fn options(settings: &Settings, transfer_bytes: (u32, u32), given: &MountOptions) -> String {
    let policy = Policy::new(given);
    let (rsize, wsize) = transfer_bytes;
    let mut all = vec![
        either(policy.read_only, "ro", "rw"),
        format!("vers={}", settings.version),
        format!("proto={}", if settings.proto == Proto::Rdma { "rdma" } else { "tcp" }),
        format!("port={}", settings.port),
        format!("rsize={rsize}"),
        format!("wsize={wsize}"),
        format!("nconnect={}", settings.nconnect),
        format!("mdconnect={}", settings.mdconnect),
        either(settings.soft, "soft", "hard"),
        format!("timeo={}", settings.timeo.as_millis() / 100),
        format!("retrans={}", settings.retrans),
    ];
    all.extend(settings.spread_reads.then(|| "spread_reads".to_owned()));
    all.extend(settings.spread_writes.then(|| "spread_writes".to_owned()));
    all.extend(attribute_cache(&policy));
    all.push(format!("lookupcache={}", lookups(policy.lookup_cache)));
    all.extend(match policy.directory_reads {
        DirectoryReads::Auto => None,
        DirectoryReads::AlwaysPlus => Some("forcerdirplus".to_owned()),
        DirectoryReads::NeverPlus => Some("nordirplus".to_owned()),
    });
    all.push(either(policy.close_to_open, "cto", "nocto"));
    all.push(either(policy.synchronous, "sync", "async"));
    all.push(format!("local_lock={}", locks(policy.local_locks)));
    all.join(",")
}

fn either(first: bool, one: &str, other: &str) -> String {
    if first { one } else { other }.to_owned()
}

fn attribute_cache(policy: &Policy) -> Vec<String> {
    let cache = &policy.attribute_cache;
    if !cache.enabled {
        return vec!["noac".to_owned()];
    }
    let bounds = [
        ("acregmin", cache.regular_min_s),
        ("acregmax", cache.regular_max_s),
        ("acdirmin", cache.directory_min_s),
        ("acdirmax", cache.directory_max_s),
    ];
    bounds.map(|(name, seconds)| format!("{name}={seconds}")).into()
}

const fn lookups(cache: LookupCache) -> &'static str {
    match cache {
        LookupCache::All => "all",
        LookupCache::Positive => "positive",
        LookupCache::None => "none",
    }
}

const fn locks(LocalLocks { posix, flock }: LocalLocks) -> &'static str {
    match (posix, flock) {
        (true, true) => "all",
        (true, false) => "posix",
        (false, true) => "flock",
        (false, false) => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_effect(text: &str) -> String {
        let settings = Settings::from_options("127.0.0.1:/export", text).unwrap();
        options(&settings, (settings.rsize, 65536), &text.parse().unwrap())
    }

    #[test]
    fn defaults_are_told_and_so_is_what_the_server_takes() {
        assert_eq!(
            in_effect(""),
            "rw,vers=3,proto=tcp,port=2049,rsize=1048576,wsize=65536,nconnect=1,mdconnect=0,hard,timeo=600,\
             retrans=2,acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,lookupcache=all,cto,async,\
             local_lock=none"
        );
        let text = in_effect("ro,softerr,noac,nolock,nocto,lookupcache=pos,nordirplus,spread_reads");
        for part in [
            "ro,",
            ",soft,",
            ",noac,",
            ",nocto,",
            ",sync,",
            "local_lock=all",
            "lookupcache=positive",
            ",nordirplus,",
            ",spread_reads,",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn they_are_options_that_a_mount_takes_again() {
        assert!(in_effect("vers=4.2").starts_with("rw,vers=4.2,proto=tcp,"));
        for given in
            ["", "vers=4.1", "ro,noac,local_lock=flock,actimeo=9,nconnect=4,mdconnect=2,forcerdirplus"]
        {
            let text = in_effect(given);
            let again = in_effect(&text);
            assert_eq!(text, again);
        }
    }
}
