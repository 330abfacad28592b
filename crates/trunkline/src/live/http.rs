//! The metrics address: what this process counts, over HTTP.
//!
//! | path | content |
//! |---|---|
//! | `/metrics` | text for Prometheus |
//! | `/snapshot` | the snapshot as JSON; `?by=node,operation` tells operations apart by these only |
//! | `/health` | 200 if the process answers, else 503 |
//! | `/ready` | 200 if it serves, else 503 |
//!
//! Peers on this host need nothing. Others need the token, as a bearer token or in the query, but
//! for `/health` and `/ready`, which tell nothing else. A request must name an address or
//! `localhost` as its host, or show the token: so a web site whose name leads to this address
//! cannot read it through the user's browser.

use super::Watched;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics::{Dimension, Snapshot, prometheus};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The most connections at once; more wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a peer may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last: readers connect again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// The most readers of the counters at once: they wait for the event loops.
const READERS_MAX: usize = 4;
/// A process whose counters cannot be read within this time is not healthy.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(5);

/// Who may read what.
#[derive(Debug, Clone)]
pub struct Access {
    /// What peers on other hosts must show; without one, they may read nothing.
    pub token: Option<String>,
}

impl Access {
    fn is_token(&self, shown: &str) -> bool {
        self.token.as_deref().is_some_and(|token| is_same(shown, token))
    }
}

struct Shared {
    access: Access,
    watched: Watched,
}

/// Answers on this address until the process ends. Returns the address, with its port.
///
/// # Errors
/// The address cannot be listened on, or no thread can be started.
pub fn start(address: SocketAddr, access: Access, watched: Watched) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(READERS_MAX)
        .build()?;
    let shared = Arc::new(Shared { access, watched });
    let thread = std::thread::Builder::new().name("tl-http".into());
    thread.spawn(move || {
        if let Err(error) = runtime.block_on(serve(listener, shared)) {
            tracing::error!(%error, "the metrics address is served no more");
        }
    })?;
    Ok(address)
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let router = Router::new()
        .route("/metrics", get(metrics_text))
        .route("/snapshot", get(snapshot))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), admit))
        .with_state(shared);
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "no connection to the metrics address");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // From loopback, or from this very address.
        let is_here = peer.ip().to_canonical().is_loopback()
            || stream.local_addr().is_ok_and(|own| own.ip() == peer.ip());
        let router = router.clone().layer(Extension(Origin { is_here }));
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
            // A peer that leaves or sends nonsense ends its connection and nothing else.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            drop(place);
        });
    }
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    /// From this host.
    is_here: bool,
}

type Parameters = HashMap<String, String>;

/// Refuses who may not read.
async fn admit(
    State(shared): State<Arc<Shared>>,
    Extension(origin): Extension<Origin>,
    Query(parameters): Query<Parameters>,
    request: Request,
    next: Next,
) -> Response {
    match refusal(&shared.access, request.uri().path(), origin, request.headers(), &parameters) {
        None => next.run(request).await,
        Some((status, why)) if status == StatusCode::UNAUTHORIZED => {
            (status, [(header::WWW_AUTHENTICATE, "Bearer")], why).into_response()
        }
        Some(refusal) => refusal.into_response(),
    }
}

/// Why a request is refused, if it is.
fn refusal(
    access: &Access,
    path: &str,
    origin: Origin,
    headers: &HeaderMap,
    parameters: &Parameters,
) -> Option<(StatusCode, &'static str)> {
    // A browser that is misled by a name has no token to show.
    if !names_an_address(headers) && !has_bearer(access, headers) {
        return Some((StatusCode::MISDIRECTED_REQUEST, "name an address or localhost as the host\n"));
    }
    let is_open = matches!(path, "/health" | "/ready");
    if is_open || origin.is_here || has_token(access, headers, parameters) {
        return None;
    }
    let why = match access.token {
        Some(_) => "show the token: `Authorization: Bearer TOKEN`, or ?token=TOKEN\n",
        None => "only peers on this host may read this; --metrics-token FILE admits others\n",
    };
    Some((StatusCode::UNAUTHORIZED, why))
}

fn names_an_address(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return true };
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

fn has_token(access: &Access, headers: &HeaderMap, parameters: &Parameters) -> bool {
    has_bearer(access, headers) || parameters.get("token").is_some_and(|shown| access.is_token(shown))
}

fn has_bearer(access: &Access, headers: &HeaderMap) -> bool {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = value.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    shown.is_some_and(|shown| access.is_token(shown))
}

/// Compares without telling by its duration where the texts differ.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The counters, read on a thread that may wait for the event loops.
async fn read(shared: Arc<Shared>) -> Result<Snapshot, Response> {
    let read = tokio::task::spawn_blocking(move || (shared.watched.snapshot)());
    match tokio::time::timeout(SNAPSHOT_TIMEOUT, read).await {
        Ok(Ok(snapshot)) => Ok(snapshot),
        Ok(Err(_)) | Err(_) => {
            let why = "the counters cannot be read: an event loop does not answer\n";
            Err((StatusCode::SERVICE_UNAVAILABLE, why).into_response())
        }
    }
}

async fn metrics_text(State(shared): State<Arc<Shared>>) -> Response {
    match read(shared).await {
        Ok(snapshot) => {
            ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::text(&snapshot)).into_response()
        }
        Err(refused) => refused,
    }
}

async fn snapshot(State(shared): State<Arc<Shared>>, Query(parameters): Query<Parameters>) -> Response {
    let by: Result<Option<Vec<Dimension>>, _> =
        parameters.get("by").map(|by| by.split(',').map(str::parse).collect()).transpose();
    let by = match by {
        Ok(by) => by,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("by: {error}\n")).into_response(),
    };
    match read(shared).await {
        Ok(snapshot) => {
            let snapshot = by.map_or(snapshot.clone(), |by| snapshot.by(&by));
            ([(header::CONTENT_TYPE, "application/json")], snapshot.to_json()).into_response()
        }
        Err(refused) => refused,
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    match read(shared).await {
        Ok(_) => "healthy\n".into_response(),
        Err(refused) => refused,
    }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    match (shared.watched.is_ready)() {
        true => "ready\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        for host in ["127.0.0.1:9100", "10.0.0.1", "[::1]:9100", "[fd00::1]", "localhost", "localhost:80"] {
            assert!(names_an_address(&headers(header::HOST, host)), "{host}");
        }
        for host in ["example.org", "example.org:9100", "127.0.0.1.example.org", ""] {
            assert!(!names_an_address(&headers(header::HOST, host)), "{host}");
        }
    }

    #[test]
    fn other_hosts_read_health_and_readiness_only_unless_they_show_the_token() {
        let [here, there] = [true, false].map(|is_here| Origin { is_here });
        let access = Access { token: Some("secret".into()) };
        let none = Parameters::new();
        let status = |access: &Access, path, origin, headers: &HeaderMap| {
            refusal(access, path, origin, headers, &none).map(|(status, _)| status.as_u16())
        };
        let bare = HeaderMap::new();
        for path in ["/metrics", "/snapshot", "/"] {
            assert_eq!(status(&access, path, here, &bare), None);
            assert_eq!(status(&access, path, there, &bare), Some(401));
            assert_eq!(status(&Access { token: None }, path, there, &bare), Some(401));
            let token = headers(header::AUTHORIZATION, "Bearer secret");
            assert_eq!(status(&access, path, there, &token), None);
            assert_eq!(status(&access, path, here, &headers(header::HOST, "evil.example")), Some(421));
        }
        assert_eq!(status(&access, "/health", there, &bare), None);
        assert_eq!(status(&access, "/ready", there, &bare), None);
    }

    #[test]
    fn a_name_is_a_host_for_those_who_show_the_token() {
        let access = Access { token: Some("secret".into()) };
        let mut named = headers(header::HOST, "nas1:9100");
        let status = |named: &HeaderMap| {
            let refusal = refusal(&access, "/metrics", Origin { is_here: true }, named, &Parameters::new());
            refusal.map(|(status, _)| status.as_u16())
        };
        assert_eq!(status(&named), Some(421));
        named.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        assert_eq!(status(&named), None);
    }

    #[test]
    fn a_token_is_shown_as_bearer_or_in_the_query() {
        let access = Access { token: Some("secret".into()) };
        let none = (HeaderMap::new(), Parameters::new());
        assert!(has_token(&access, &headers(header::AUTHORIZATION, "Bearer secret"), &none.1));
        assert!(has_token(&access, &none.0, &[("token".to_owned(), "secret".to_owned())].into()));
        for wrong in ["Bearer secre", "Bearer secret2", "Basic secret", "secret"] {
            assert!(!has_token(&access, &headers(header::AUTHORIZATION, wrong), &none.1), "{wrong}");
        }
        assert!(!has_token(&access, &none.0, &none.1));
        assert!(!has_token(&Access { token: None }, &headers(header::AUTHORIZATION, "Bearer "), &none.1));
    }
}
