//! Who may read what on the metrics address.
//!
//! Peers on this host need nothing. Others show the token: programs in a header or in the query,
//! people in a form. A person then has a session, which a cookie names. The cookie is not the
//! token, because a browser shows the cookies of a host to every port of that host.
//!
//! A request must name an address or `localhost` as its host, or show the token or a session: so a
//! web site whose name leads to this address cannot read it through the user's browser.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a session lasts.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// The most sessions; the oldest ends for a new one.
const SESSIONS_MAX: usize = 64;
/// What tells nothing but whether the process works, and what makes the form that asks for the
/// token.
const OPEN: [&str; 5] = ["/health", "/ready", "/login", "/style.css", "/icon.svg"];

/// The parameters of a request.
pub(super) type Parameters = HashMap<String, String>;

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// From this host.
    pub is_here: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Access {
    token: Option<String>,
    /// The name of the cookie: browsers do not tell ports apart.
    cookie: String,
    /// The oldest first.
    sessions: Mutex<VecDeque<(String, Instant)>>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its host is a name.
    Host {
        /// Whether there is a token, which admits under any name.
        token_exists: bool,
    },
    /// A web page of another site asks.
    OtherSite,
    /// It shows no token.
    Token {
        /// Whether there is one to show.
        exists: bool,
    },
}

impl Refusal {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::Host { token_exists: false } => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherSite => StatusCode::FORBIDDEN,
            Self::Host { token_exists: true } | Self::Token { .. } => StatusCode::UNAUTHORIZED,
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Host { .. } => "name an address or localhost as the host, or show the token\n",
            Self::OtherSite => "pages of other web sites may not read this\n",
            Self::Token { exists: true } => {
                "show the token: `Authorization: Bearer TOKEN`, or ?token=TOKEN\n"
            }
            Self::Token { exists: false } => {
                "only peers on this host may read this; --metrics-token FILE admits others\n"
            }
        }
    }
}

impl Access {
    /// Access with this token. Without one, peers on other hosts may read nothing.
    pub fn new(token: Option<String>, port: u16) -> Self {
        Self { token, cookie: format!("trunkline_{port}"), sessions: Mutex::default() }
    }

    /// Whether peers on other hosts can be admitted.
    pub(super) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Why a request is refused, if it is.
    pub(super) fn refusal(
        &self,
        path: &str,
        origin: Origin,
        headers: &HeaderMap,
        parameters: &Parameters,
    ) -> Option<Refusal> {
        // A browser that is misled by a name has neither the token nor a cookie of that name.
        let is_admitted = self.shows_token(headers, parameters) || self.has_session(headers);
        let is_open = OPEN.contains(&path);
        // The form is needed under any name, and tells nothing.
        let is_form = is_open && self.has_token() && !matches!(path, "/health" | "/ready");
        if !is_admitted && !is_form && !names_an_address(headers) {
            return Some(Refusal::Host { token_exists: self.has_token() });
        }
        if is_of_other_site(headers) {
            return Some(Refusal::OtherSite);
        }
        let is_allowed = is_open || origin.is_here || is_admitted;
        (!is_allowed).then_some(Refusal::Token { exists: self.has_token() })
    }

    /// Whether a text is the token.
    pub(super) fn is_token(&self, shown: &str) -> bool {
        self.token.as_deref().is_some_and(|token| is_same(shown, token))
    }

    fn shows_token(&self, headers: &HeaderMap, parameters: &Parameters) -> bool {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = value.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        bearer.is_some_and(|shown| self.is_token(shown))
            || parameters.get("token").is_some_and(|shown| self.is_token(shown))
    }

    fn has_session(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        });
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.any(|shown| {
            sessions.iter().any(|(name, begun)| begun.elapsed() < SESSION_TIME && is_same(shown, name))
        })
    }

    /// The number of sessions.
    #[cfg(test)]
    pub(super) fn sessions(&self) -> usize {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Begins a session; `None` if the system has no random numbers. The value is for `Set-Cookie`.
    pub(super) fn begin_session(&self) -> Option<HeaderValue> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).ok()?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        while sessions.len() >= SESSIONS_MAX {
            sessions.pop_front();
        }
        let (cookie, seconds) = (&self.cookie, SESSION_TIME.as_secs());
        let value = format!("{cookie}={name}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}");
        sessions.push_back((name, Instant::now()));
        HeaderValue::try_from(value).ok()
    }
}

/// Whether a page of another web site asks for data. A link that a person follows is not that.
fn is_of_other_site(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
    let is_other = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    is_other && !is("sec-fetch-mode", "navigate")
}

fn names_an_address(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return true };
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

/// Compares without telling by its duration where the texts differ.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Origin = Origin { is_here: true };
    const THERE: Origin = Origin { is_here: false };

    fn with_token() -> Access {
        Access::new(Some("secret".into()), 9100)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (header::HeaderName::from_static(name), HeaderValue::try_from(*value).unwrap())
        });
        pairs.collect()
    }

    fn status(access: &Access, path: &str, origin: Origin, headers: &HeaderMap) -> Option<u16> {
        access.refusal(path, origin, headers, &Parameters::new()).map(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        for host in ["127.0.0.1:9100", "10.0.0.1", "[::1]:9100", "[fd00::1]", "localhost", "localhost:80"] {
            assert!(names_an_address(&headers(&[("host", host)])), "{host}");
        }
        for host in ["example.org", "example.org:9100", "127.0.0.1.example.org", ""] {
            assert!(!names_an_address(&headers(&[("host", host)])), "{host}");
        }
    }

    #[test]
    fn other_hosts_read_health_and_readiness_only_unless_they_show_the_token() {
        let bare = HeaderMap::new();
        for path in ["/metrics", "/snapshot", "/", "/history", "/panels", "/worksheet", "/script.js"] {
            assert_eq!(status(&with_token(), path, HERE, &bare), None);
            assert_eq!(status(&with_token(), path, THERE, &bare), Some(401));
            assert_eq!(status(&Access::new(None, 1), path, THERE, &bare), Some(401));
            let token = headers(&[("authorization", "Bearer secret")]);
            assert_eq!(status(&with_token(), path, THERE, &token), None);
            let named = headers(&[("host", "evil.example")]);
            assert_eq!(status(&with_token(), path, HERE, &named), Some(401));
            assert_eq!(status(&Access::new(None, 1), path, HERE, &named), Some(421));
        }
        for path in ["/health", "/ready"] {
            assert_eq!(status(&with_token(), path, THERE, &bare), None);
            assert_eq!(status(&with_token(), path, THERE, &headers(&[("host", "evil.example")])), Some(401));
        }
    }

    #[test]
    fn a_name_is_a_host_for_those_who_show_the_token() {
        let access = with_token();
        assert_eq!(status(&access, "/metrics", HERE, &headers(&[("host", "nas1:9100")])), Some(401));
        let shown = headers(&[("host", "nas1:9100"), ("authorization", "Bearer secret")]);
        assert_eq!(status(&access, "/metrics", THERE, &shown), None);
        // Under a name the form can be filled in, where there is a token.
        assert_eq!(status(&access, "/login", THERE, &headers(&[("host", "nas1:9100")])), None);
        let without = Access::new(None, 9100);
        assert_eq!(status(&without, "/login", HERE, &headers(&[("host", "nas1:9100")])), Some(421));
    }

    #[test]
    fn a_token_is_shown_as_bearer_or_in_the_query() {
        let (access, none) = (with_token(), Parameters::new());
        assert!(access.shows_token(&headers(&[("authorization", "Bearer secret")]), &none));
        let query = [("token".to_owned(), "secret".to_owned())].into();
        assert!(access.shows_token(&HeaderMap::new(), &query));
        for wrong in ["Bearer secre", "Bearer secret2", "Basic secret", "secret"] {
            assert!(!access.shows_token(&headers(&[("authorization", wrong)]), &none), "{wrong}");
        }
        assert!(!access.shows_token(&HeaderMap::new(), &none));
        let without = Access::new(None, 1);
        assert!(!without.shows_token(&headers(&[("authorization", "Bearer ")]), &none));
    }

    #[test]
    fn a_session_admits_and_the_oldest_of_many_ends() {
        let access = with_token();
        let cookie = |value: &HeaderValue| {
            let value = value.to_str().unwrap().to_owned();
            assert!(value.contains("HttpOnly") && value.contains("SameSite=Strict"), "{value}");
            assert!(!value.contains("secret"), "{value}");
            headers(&[
                ("cookie", &format!("other=1; {}", value.split(';').next().unwrap())),
                ("host", "nas1"),
            ])
        };
        let first = cookie(&access.begin_session().unwrap());
        assert_eq!(status(&access, "/", THERE, &first), None);
        assert_eq!(status(&access, "/", THERE, &headers(&[("cookie", "trunkline_9100=")])), Some(401));
        for _ in 0..SESSIONS_MAX {
            assert_eq!(status(&access, "/", THERE, &cookie(&access.begin_session().unwrap())), None);
        }
        assert_eq!(status(&access, "/", THERE, &first), Some(401), "which brings the form");
    }

    #[test]
    fn pages_of_other_sites_may_link_here_and_read_nothing() {
        let read = headers(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]);
        assert_eq!(status(&with_token(), "/history", HERE, &read), Some(403));
        let link = headers(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]);
        assert_eq!(status(&with_token(), "/", HERE, &link), None);
        let own = headers(&[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")]);
        assert_eq!(status(&with_token(), "/history", HERE, &own), None);
    }
}
