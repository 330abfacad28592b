//! The domain of the names of owners, if the mount options do not give it: that of idmapd.conf(5),
//! otherwise the DNS domain of this host.

use std::fs::read_to_string;

/// The domain of a host that has none, as libnfsidmap has it.
const NO_DOMAIN: &str = "localdomain";

/// What says which domain it is.
#[derive(Debug, Default)]
struct Sources {
    idmapd: String,
    host: String,
    hosts: String,
    resolver: String,
}

/// Reads what this host says.
pub(crate) fn of_this_host() -> String {
    let text = |path: &str| read_to_string(path).unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (idmapd, hosts) = (text("/etc/idmapd.conf"), text("/etc/hosts"));
    Sources { idmapd, host, hosts, resolver: text("/etc/resolv.conf") }.domain()
}

impl Sources {
    fn domain(&self) -> String {
        configured(&self.idmapd)
            .or_else(|| domain_of(&self.host))
            .or_else(|| domain_of(full_name(&self.hosts, &self.host)?))
            .or_else(|| searched(&self.resolver))
            .unwrap_or(NO_DOMAIN)
            .to_owned()
    }
}

/// `Domain` in the section `General`.
fn configured(idmapd: &str) -> Option<&str> {
    let mut is_general = false;
    for line in idmapd.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            is_general = section.trim().eq_ignore_ascii_case("general");
        } else if let Some((key, value)) = line.split_once('=')
            && is_general
            && key.trim().eq_ignore_ascii_case("domain")
        {
            let value = value.split(['#', ';']).next().unwrap_or_default().trim();
            return Some(value).filter(|value| !value.is_empty());
        }
    }
    None
}

/// The part of a host's full name after the first dot.
fn domain_of(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, domain)| domain.trim_end_matches('.')).filter(|domain| !domain.is_empty())
}

/// The full name of a host: the first name in its line. hosts(5)
fn full_name<'a>(hosts: &'a str, host: &str) -> Option<&'a str> {
    let lines = hosts.lines().filter_map(|line| line.split('#').next());
    lines
        .filter(|line| line.split_whitespace().skip(1).any(|name| name.eq_ignore_ascii_case(host)))
        .find_map(|line| line.split_whitespace().nth(1).filter(|name| name.contains('.')))
}

/// The first domain that the resolver searches. resolv.conf(5)
fn searched(resolver: &str) -> Option<&str> {
    resolver.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_domain = matches!(words.next(), Some("domain" | "search"));
        let domain = words.next().filter(|_| is_domain)?.trim_end_matches('.');
        Some(domain).filter(|domain| !domain.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_knows_a_domain_says_which_it_is() {
        let mut sources = Sources { host: "vm".to_owned(), ..Sources::default() };
        assert_eq!(sources.domain(), "localdomain");
        sources.resolver = "nameserver 10.0.0.1\nsearch dns.example. other.example\n".to_owned();
        assert_eq!(sources.domain(), "dns.example");
        sources.hosts = "127.0.0.1 localhost\n10.0.0.2 VM.hosts.example vm # vm.no.example\n".to_owned();
        assert_eq!(sources.domain(), "hosts.example");
        sources.host = "vm.name.example".to_owned();
        assert_eq!(sources.domain(), "name.example");
        sources.idmapd =
            "[Mapping]\nDomain = no.example\n[General]\n#Domain = no.example\n domain=idmapd.example # x\n"
                .to_owned();
        assert_eq!(sources.domain(), "idmapd.example");
    }

    #[test]
    fn what_says_nothing_is_passed_over() {
        assert_eq!(configured("[General]\nDomain =\nVerbosity = 0"), None);
        assert_eq!(configured("Domain = before.any.section"), None);
        assert_eq!(domain_of("host."), None);
        assert_eq!(full_name("10.0.0.2 vm", "vm"), None);
        assert_eq!(full_name("10.0.0.2 vm.example other", "vm"), None, "another host");
        assert_eq!(searched("search\noptions ndots:1"), None);
    }
}
