//! The metrics address: what this process counts, over HTTP.
//!
//! | path | content |
//! |---|---|
//! | `/` | the page, see `page.rs`; `/panels` and `/picture` are its parts that change |
//! | `/history` | what the page shows, as JSON |
//! | `/worksheet` | the same as a file: `?format=html`, `csv` or `json` |
//! | `/metrics` | text for Prometheus |
//! | `/snapshot` | the snapshot as JSON; `?by=node,operation` tells operations apart by these only |
//! | | `?of=group` on all of these: of the embedded group of a bench |
//! | `/health` | 200 if the counters can be read, else 503 |
//! | `/ready` | 200 if it serves, else 503 |
//! | `/login` | the form that asks for the token |
//!
//! `access.rs` says who may read what, `places.rs` how many at once. The counters are read by
//! `collector.rs`, once for all, so that an event loop that hangs holds no request.

mod access;
mod places;

use super::Watched;
use super::collector::{Collector, Side};
use super::page::request::{self, Request as PageRequest};
use super::page::worksheet::{self, Format};
use super::page::{self, Now, Sheet};
pub use access::Access;
use access::{Origin, Parameters, Refusal};
use axum::extract::{DefaultBodyLimit, Form, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics::{Dimension, Snapshot, prometheus};
use places::{Place, Places};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// How long a peer may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last: readers connect again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// The most threads that make pages and texts: making one of a whole hour takes a moment.
const WORKERS_MAX: usize = 4;
/// The longest content of a request: a token.
const BODY_BYTES_MAX: usize = 4096;
/// An answer with counters older than this says how old they are.
const AGE_TOLD_MIN: Duration = Duration::from_secs(1);

const JSON: &str = "application/json";

/// What browsers may do with an answer: only what is from here, and no script within the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The headers of every answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

struct Shared {
    access: Access,
    watched: Watched,
    collector: Arc<Collector>,
}

/// Answers on this address until the process ends. Returns the address, with its port. `token` is
/// what peers on other hosts must show; without one, they may read nothing.
///
/// # Errors
/// The address cannot be listened on, or no thread can be started.
pub fn start(address: SocketAddr, token: Option<String>, watched: Watched) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(WORKERS_MAX)
        .build()?;
    let collector = Collector::start(Arc::clone(&watched.snapshot), watched.by_file.clone())?;
    let shared = Arc::new(Shared { access: Access::new(token, address.port()), watched, collector });
    let thread = std::thread::Builder::new().name("tl-http".into());
    thread.spawn(move || {
        if let Err(error) = runtime.block_on(serve(listener, shared)) {
            tracing::error!(%error, "the metrics address is served no more");
        }
    })?;
    Ok(address)
}

fn router(shared: Arc<Shared>) -> Router {
    let of = |content_type, text| {
        get(move || async move { ([(header::CONTENT_TYPE, content_type)], text).into_response() })
    };
    Router::new()
        .route("/", get(whole_page))
        .route("/panels", get(panels))
        .route("/picture", get(picture))
        .route("/history", get(history))
        .route("/worksheet", get(worksheet_file))
        .route("/style.css", of("text/css; charset=utf-8", page::STYLE))
        .route("/script.js", of("text/javascript; charset=utf-8", page::SCRIPT))
        .route("/icon.svg", of("image/svg+xml", page::ICON))
        .route("/login", get(login_form).post(login))
        .route("/metrics", get(metrics_text))
        .route("/snapshot", get(snapshot))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), admit))
        .with_state(shared)
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (places, router) = (Places::default(), router(shared));
    loop {
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
        match places.take(peer.ip(), is_here) {
            Some(place) => {
                tokio::spawn(serve_one(stream, router.clone().layer(Extension(Origin { is_here })), place));
            }
            None => tracing::debug!(%peer, "too many connections to the metrics address: one is closed"),
        }
    }
}

async fn serve_one(stream: tokio::net::TcpStream, router: Router, place: Place) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A peer that leaves or sends nonsense ends its connection and nothing else.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
    drop(place);
}

/// Refuses who may not read, and tells browsers what they may do.
async fn admit(
    State(shared): State<Arc<Shared>>,
    Extension(origin): Extension<Origin>,
    Query(parameters): Query<Parameters>,
    request: Request,
    next: Next,
) -> Response {
    let (path, headers) = (request.uri().path(), request.headers());
    let mut response = match shared.access.refusal(path, origin, headers, &parameters) {
        None if path == "/" && parameters.contains_key("token") => {
            begin_session(&shared.access, &parameters, &without_token(request.uri()))
        }
        None => next.run(request).await,
        Some(refusal) => refused(refusal, request.uri(), headers),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refused(refusal: Refusal, uri: &Uri, headers: &HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_person = accepted.is_some_and(|accepted| accepted.contains("text/html"));
    match refusal {
        Refusal::Token { exists: true } | Refusal::Host { token_exists: true } if is_person => {
            (refusal.status(), html(page::login(false, &without_token(uri)))).into_response()
        }
        Refusal::Token { .. } | Refusal::Host { token_exists: true } => {
            (refusal.status(), [(header::WWW_AUTHENTICATE, "Bearer")], refusal.text()).into_response()
        }
        Refusal::Host { token_exists: false } | Refusal::OtherSite => {
            (refusal.status(), refusal.text()).into_response()
        }
    }
}

/// The same address without the token, which would otherwise stay in the browser's history.
fn without_token(uri: &Uri) -> String {
    let pairs = uri.query().unwrap_or_default().split('&');
    let pairs: Vec<_> = pairs.filter(|pair| !pair.is_empty() && !pair.starts_with("token=")).collect();
    let path = uri.path();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// Where the form leads: to an address of this host only.
fn next_of(form: &Parameters) -> &str {
    let is_here = |next: &&str| {
        let second = next.as_bytes().get(1);
        next.starts_with('/')
            && !matches!(second, Some(b'/' | b'\\'))
            && next.bytes().all(|byte| byte.is_ascii_graphic())
    };
    form.get("next").map(String::as_str).filter(is_here).unwrap_or("/")
}

/// Answers the token with a session, if it is the token.
fn begin_session(access: &Access, parameters: &Parameters, then: &str) -> Response {
    if !parameters.get("token").is_some_and(|shown| access.is_token(shown.trim())) {
        // On this host no token is needed, so a wrong one does no harm.
        return Redirect::to(then).into_response();
    }
    match access.begin_session() {
        Some(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to(then)).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn html(text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text)
}

async fn login_form() -> Response {
    html(page::login(false, "/")).into_response()
}

async fn login(State(shared): State<Arc<Shared>>, Form(form): Form<Parameters>) -> Response {
    if form.get("token").is_some_and(|shown| shared.access.is_token(shown.trim())) {
        return begin_session(&shared.access, &form, next_of(&form));
    }
    (StatusCode::UNAUTHORIZED, html(page::login(true, next_of(&form)))).into_response()
}

/// Makes something of a sheet, on a thread that may take a moment.
async fn of_sheet<T: IntoResponse + Send + 'static>(
    shared: Arc<Shared>,
    parameters: &Parameters,
    others: &[&str],
    make: impl FnOnce(&Sheet) -> T + Send + 'static,
) -> Response {
    let request = match PageRequest::parse(parameters, others) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    // The history has whole seconds, so that watching it makes no event loop work.
    let Some(now) = shared.collector.latest().await else { return unread() };
    let Some(snapshot) = now.of(request.side).cloned() else { return no_group() };
    let age = now.age();
    let made = tokio::task::spawn_blocking(move || {
        let has_group = now.group.is_some();
        let now = Now { snapshot: &snapshot, age, has_group };
        let wants_files = request.wants_files();
        let sheet = Sheet::new(&shared.collector.history(request.side), request, Some(now))?;
        let files = if wants_files { shared.collector.file_history() } else { None };
        Some(make(&match files {
            Some(files) => sheet.by_file(&files),
            None => sheet,
        }))
    });
    match made.await {
        Ok(Some(made)) => with_age(made.into_response(), age, page::OLD_AFTER),
        Ok(None) | Err(_) => unread(),
    }
}

async fn whole_page(State(shared): State<Arc<Shared>>, Query(parameters): Query<Parameters>) -> Response {
    of_sheet(shared, &parameters, &[], |sheet| html(page::page(sheet))).await
}

async fn panels(State(shared): State<Arc<Shared>>, Query(parameters): Query<Parameters>) -> Response {
    of_sheet(shared, &parameters, &[], |sheet| html(page::panels(sheet))).await
}

async fn history(State(shared): State<Arc<Shared>>, Query(parameters): Query<Parameters>) -> Response {
    let json = |sheet: &Sheet| {
        ([(header::CONTENT_TYPE, "application/json")], worksheet::content(sheet, Format::Json))
    };
    of_sheet(shared, &parameters, &[], json).await
}

/// The picture alone: twice a second, so it takes no more than it needs.
async fn picture(State(shared): State<Arc<Shared>>, Query(parameters): Query<Parameters>) -> Response {
    let request = match PageRequest::parse(&parameters, &[]) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let Some(now) = shared.collector.fresh().await else { return unread() };
    let Some(snapshot) = now.of(request.side).cloned() else { return no_group() };
    let age = now.age();
    let made = tokio::task::spawn_blocking(move || {
        let picture = Sheet::picture(&shared.collector.history(request.side), &request, &snapshot);
        picture.map(|picture| page::picture(&picture))
    });
    match made.await {
        Ok(Some(made)) => with_age(html(made).into_response(), age, page::OLD_AFTER),
        Ok(None) | Err(_) => unread(),
    }
}

async fn worksheet_file(State(shared): State<Arc<Shared>>, Query(parameters): Query<Parameters>) -> Response {
    let format = match Format::of(parameters.get("format").map(String::as_str)) {
        Ok(format) => format,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let file = move |sheet: &Sheet| {
        let name = worksheet::file_name(sheet, format);
        let disposition = format!("attachment; filename=\"{name}\"");
        let headers = [
            (header::CONTENT_TYPE, format.content_type().to_owned()),
            (header::CONTENT_DISPOSITION, disposition),
        ];
        (headers, worksheet::content(sheet, format))
    };
    of_sheet(shared, &parameters, &["format"], file).await
}

/// There are no counters yet, because an event loop has not answered since the start.
fn unread() -> Response {
    let why = "the counters cannot be read: an event loop does not answer\n";
    (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}

fn no_group() -> Response {
    (StatusCode::NOT_FOUND, "no embedded group has served yet\n").into_response()
}

/// Tells the age of what an answer was made of.
fn with_age(mut response: Response, age: Duration, told_from: Duration) -> Response {
    if age >= told_from {
        response.headers_mut().insert(header::AGE, age.as_secs().into());
    }
    response
}

/// Makes an answer of counters of now, on a thread that may take a moment.
async fn of_counters<T: IntoResponse + Send + 'static>(
    shared: &Shared,
    parameters: &Parameters,
    content_type: &'static str,
    make: impl FnOnce(Snapshot) -> T + Send + 'static,
) -> Response {
    let side = match parameters.get("of").map_or(Ok(Side::Process), |of| request::side(of)) {
        Ok(side) => side,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let Some(collected) = shared.collector.fresh().await else { return unread() };
    let age = collected.age();
    match tokio::task::spawn_blocking(move || collected.with_age(side).map(make)).await {
        Ok(None) => no_group(),
        Ok(Some(body)) => {
            let response = ([(header::CONTENT_TYPE, content_type)], body).into_response();
            with_age(response, age, AGE_TOLD_MIN)
        }
        Err(_) => unread(),
    }
}

async fn metrics_text(State(shared): State<Arc<Shared>>, Query(parameters): Query<Parameters>) -> Response {
    of_counters(&shared, &parameters, prometheus::CONTENT_TYPE, |snapshot| prometheus::text(&snapshot)).await
}

async fn snapshot(State(shared): State<Arc<Shared>>, Query(parameters): Query<Parameters>) -> Response {
    match parameters.get("files").map(|seconds| seconds.parse()) {
        None => {}
        Some(Ok(seconds)) => shared.collector.count_files(Duration::from_secs(seconds)),
        Some(Err(_)) => {
            let wanted = "files: for how many seconds to count by file, 1 to 7200\n";
            return (StatusCode::BAD_REQUEST, wanted).into_response();
        }
    }
    let by: Result<Option<Vec<Dimension>>, _> =
        parameters.get("by").map(|by| by.split(',').map(str::parse).collect()).transpose();
    let by = match by {
        Ok(by) => by,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("by: {error}\n")).into_response(),
    };
    let json = move |snapshot: Snapshot| match by {
        Some(by) => snapshot.by(&by).to_json(),
        None => snapshot.to_json(),
    };
    of_counters(&shared, &parameters, JSON, json).await
}

/// Reads no counters: strangers may ask as often as they like.
async fn health(State(shared): State<Arc<Shared>>) -> Response {
    if shared.collector.is_healthy() { "healthy\n".into_response() } else { unread() }
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
    use crate::live::Identity;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    use testkit::Deadline;

    /// The status of an answer.
    fn status(address: SocketAddr, path: &str) -> u16 {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_process_that_hangs_is_not_healthy_and_one_that_does_not_serve_is_not_ready() {
        let identity = Identity::new(::metrics::Kind::Mount, "/x");
        let (hangs, serves) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let (told, is_ready) = (Arc::clone(&hangs), Arc::clone(&serves));
        let watched = Watched {
            snapshot: Arc::new(move || Snapshot {
                silent_ms: if told.load(Ordering::Acquire) { 60_000 } else { 0 },
                ..identity.snapshot()
            }),
            is_ready: Arc::new(move || is_ready.load(Ordering::Acquire)),
            by_file: None,
        };
        let address = start("127.0.0.1:0".parse().unwrap(), None, watched).unwrap();
        let wait_for = |path: &str, expected: u16| {
            let what = format!("{expected} of {path}");
            Deadline::wait_until(&what, Duration::from_secs(60), || {
                (status(address, path) == expected).then_some(())
            });
        };
        wait_for("/health", 200);
        assert_eq!(status(address, "/ready"), 200);
        hangs.store(true, Ordering::Release);
        wait_for("/health", 503);
        assert_eq!(status(address, "/ready"), 200, "these are two questions");
        serves.store(false, Ordering::Release);
        assert_eq!(status(address, "/ready"), 503);
        hangs.store(false, Ordering::Release);
        wait_for("/health", 200);
        assert_eq!(status(address, "/ready"), 503);
        serves.store(true, Ordering::Release);
        assert_eq!(status(address, "/ready"), 200);
    }

    #[test]
    fn the_token_does_not_stay_in_the_address() {
        for (address, without) in
            [("/?token=secret", "/"), ("/?by=node&token=secret&node=a", "/?by=node&node=a"), ("/", "/")]
        {
            assert_eq!(without_token(&Uri::from_static(address)), without);
        }
    }

    #[test]
    fn a_wrong_token_begins_no_session() {
        let access = Access::new(Some("0123456789abcdef".into()), 9100);
        let shown = |token: &str| Parameters::from([("token".to_owned(), token.to_owned())]);
        let answer = begin_session(&access, &shown("0123456789abcdef"), "/?by=node");
        assert!(answer.headers().contains_key(header::SET_COOKIE));
        for _ in 0..100 {
            let answer = begin_session(&access, &shown("wrong"), "/");
            assert!(!answer.headers().contains_key(header::SET_COOKIE));
        }
        assert_eq!(access.sessions(), 1);
    }

    #[test]
    fn the_form_leads_back_and_to_this_host_only() {
        let next = |next: &str| next_of(&[("next".to_owned(), next.to_owned())].into()).to_owned();
        for here in ["/?by=size&node=a%20b&until=17", "/worksheet?format=csv", "/"] {
            assert_eq!(next(here), here);
        }
        for away in ["//evil.example/", "/\\evil.example", "https://evil.example", "", "/a\r\nb", "/é"] {
            assert_eq!(next(away), "/");
        }
        let uri = Uri::from_static("/?by=size&token=x");
        let asks: HeaderMap = [(header::ACCEPT, HeaderValue::from_static("text/html"))].into_iter().collect();
        for refusal in [Refusal::Host { token_exists: true }, Refusal::Token { exists: true }] {
            assert_eq!(refused(refusal, &uri, &asks).status(), StatusCode::UNAUTHORIZED);
        }
        let form = page::login(false, "/?by=size&node=a");
        assert!(form.contains("name=\"next\" value=\"/?by=size&#38;node=a\""), "{form}");
    }
}
