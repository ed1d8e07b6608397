//! What the web side consists of, and which path leads where.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::request::Parts;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{any, delete, get, post};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{endpoints, health, usage};
use crate::answer::not_found;
use crate::archive::{self, Archive};
use crate::body::BODY_WAIT;
use crate::chance::RandomSource;
use crate::choices::{self, ModelMenu};
use crate::connections::Connections;
use crate::console;
use crate::files;
use crate::guard::ConnectionEnds;
use crate::handshake::Refused;
use crate::invitation::OneTimeLink;
use crate::metrics::{Metrics, ReasonLabel};
use crate::outflow::{ANSWER_WAIT, HTTP_WRITE_WAIT, MAX_ANSWERS_MADE, NoMemory};
use crate::page::{self, Asset};
use crate::processes::{self, ProcessTable};
use crate::rate::{HANDSHAKE_RATE, LOCAL_HANDSHAKE_RATE, LOCAL_REQUEST_RATE, Limiter, REQUEST_RATE};
use crate::refusals::Refusals;
use crate::screen::screen;
use crate::server::{CONNECTION_LIFE, HEADER_WAIT, HTTP_SHARES, WEB_STOP_WAIT};
use crate::socket::{SocketHandler, shake_hands};
use crate::store::TokenStore;
use crate::terminal;
use parlor_transport::{AllowLocal, FrameMemory, Rate, Shares};

/// Every method and path that is answered, beside the page's own places.
pub const ROUTES: &[(&str, &str)] = &[
    ("GET", "/"),
    ("GET", "/assets/{name}"),
    ("GET", "/supr/ws"),
    ("GET", "/pico/ws"),
    ("GET", "/api/supr/token"),
    ("POST", "/api/supr/token"),
    ("POST", "/api/supr/setup"),
    ("POST", "/api/supr/claim"),
    ("GET", "/api/pico/token"),
    ("POST", "/api/pico/token"),
    ("POST", "/api/pico/setup"),
    ("GET", "/api/gateway/status"),
    ("GET", "/api/models"),
    ("GET", "/api/sessions"),
    ("GET", "/api/sessions/{id}"),
    ("PATCH", "/api/sessions/{id}"),
    ("DELETE", "/api/sessions/{id}"),
    ("GET", "/api/sessions/{id}/events"),
    ("GET", "/api/choices"),
    ("GET", "/api/media/{id}"),
    ("GET", "/api/processes"),
    ("POST", "/api/processes"),
    ("DELETE", "/api/processes/{id}"),
    ("GET", "/api/processes/{id}/ws"),
    ("GET", "/api/usage"),
    ("GET", "/api/config"),
    ("GET", "/api/channels/catalog"),
    ("GET", "/api/openapi.json"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
];

/// What the web side is set to.
#[derive(Clone, Debug)]
pub struct WebSettings {
    /// Whether sockets are let in at all.
    pub is_enabled: bool,
    /// Whether the token may stand in the address of a socket.
    pub allow_token_query: bool,
    /// How many sockets there may be.
    pub max_connections: usize,
    /// Names of this server, beside its addresses. `*` is any.
    pub allow_hosts: Vec<String>,
    /// Who needs no token on this machine.
    pub allow_local: AllowLocal,
    /// How often and how slowly clients may come.
    pub limits: WebLimits,
}

/// How often and how slowly clients may come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WebLimits {
    /// How long the head of a request may take to arrive, and how long a connection may be idle.
    pub header_wait: Duration,
    /// How long a body may take to arrive.
    pub body_wait: Duration,
    /// How long a connection that becomes no socket may last.
    pub connection_life: Duration,
    /// How long a client may leave a large answer lying.
    pub write_wait: Duration,
    /// How long an answer waits for memory, or for its turn.
    pub answer_wait: Duration,
    /// How many connections may speak HTTP at a time, and of whom.
    pub http_connections: Shares,
    /// How long connections and sockets may take to end when the server ends.
    pub stop_wait: Duration,
    /// Handshakes of one client on another machine.
    pub handshakes: Rate,
    /// Handshakes from this machine: of the owner, and of all others together.
    pub local_handshakes: Rate,
    /// Other requests of one client on another machine.
    pub requests: Rate,
    /// Other requests from this machine, likewise.
    pub local_requests: Rate,
}

impl Default for WebLimits {
    fn default() -> Self {
        Self {
            header_wait: HEADER_WAIT,
            body_wait: BODY_WAIT,
            connection_life: CONNECTION_LIFE,
            write_wait: HTTP_WRITE_WAIT,
            answer_wait: ANSWER_WAIT,
            http_connections: HTTP_SHARES,
            stop_wait: WEB_STOP_WAIT,
            handshakes: HANDSHAKE_RATE,
            local_handshakes: LOCAL_HANDSHAKE_RATE,
            requests: REQUEST_RATE,
            local_requests: LOCAL_REQUEST_RATE,
        }
    }
}

/// Everything that the web side needs.
pub struct Web {
    /// What it is set to.
    pub settings: WebSettings,
    /// What clients must know.
    pub tokens: Arc<TokenStore>,
    /// Who may have the token without knowing it, if anybody was told a code.
    pub invitation: Option<Arc<OneTimeLink>>,
    /// The agents and models, for whoever asks.
    pub menu: Arc<dyn ModelMenu>,
    /// Who serves the sockets.
    pub reception: Arc<dyn SocketHandler>,
    /// Where sessions are.
    pub archive: Arc<dyn Archive>,
    /// Where processes are.
    pub processes: Arc<dyn ProcessTable>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What large messages share.
    pub memory: FrameMemory,
    /// Where ids of new sessions come from.
    pub chance: RandomSource,
    /// The files of the page; none if the program was built without it.
    pub page: &'static [Asset],
}

pub(crate) type Shared = Arc<SiteState>;

/// The web side at work.
pub(crate) struct SiteState {
    pub(crate) web: Web,
    pub(crate) bound: SocketAddr,
    pub(crate) started: Instant,
    pub(crate) connections: Arc<Connections>,
    pub(crate) handshakes: Limiter,
    pub(crate) requests: Limiter,
    pub(crate) refusals: Refusals,
    /// Who may look through a session for an answer.
    pub(crate) making: Semaphore,
    /// All connections and sockets.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl SiteState {
    pub(crate) fn new(
        web: Web,
        bound: SocketAddr,
        stop: CancellationToken,
        goodbye: CancellationToken,
    ) -> Shared {
        let limits = web.settings.limits;
        let connections = Connections::new(web.settings.max_connections, goodbye);
        Arc::new(Self {
            web,
            bound,
            started: Instant::now(),
            connections,
            handshakes: Limiter::new(limits.handshakes, limits.local_handshakes),
            requests: Limiter::new(limits.requests, limits.local_requests),
            refusals: Refusals::new(),
            making: Semaphore::new(MAX_ANSWERS_MADE),
            tasks: TaskTracker::new(),
            stop,
        })
    }

    /// A handshake is refused: counts it, tells of it, and gives the answer.
    pub(crate) fn refuse(&self, refused: Refused, parts: &Parts) -> Response {
        let reason = refused.reason();
        self.web.metrics.refused.get_or_create(&ReasonLabel { reason }).inc();
        let peer = parts.extensions.get::<ConnectionEnds>().map(|ends| ends.peer);
        self.refusals.tell(reason, peer, parts.uri.path());
        refused.response()
    }

    /// Waits for the turn of an answer that looks through a session. Its place is free again when this is dropped.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, NoMemory> {
        let turn = timeout(self.web.settings.limits.answer_wait, self.making.acquire()).await;
        turn.map_err(|_| NoMemory)?.map_err(|_| NoMemory)
    }

    /// Whether sockets are still let in.
    pub(crate) fn is_running(&self) -> bool {
        !self.stop.is_cancelled()
    }
}

pub(crate) fn router(site: Shared) -> Router {
    let mut router = Router::new();
    if site.web.settings.is_enabled {
        for path in ["/supr/ws", "/supr/ws/", "/pico/ws", "/pico/ws/"] {
            router = router.route(path, any(shake_hands));
        }
    }
    for channel in ["supr", "pico"] {
        router = router
            .route(&format!("/api/{channel}/token"), get(endpoints::token).post(endpoints::rotate))
            .route(&format!("/api/{channel}/setup"), post(endpoints::set_up));
    }
    router
        .route("/", get(page::page))
        .route("/api/gateway/status", get(console::status))
        .route("/api/models", get(console::models))
        .route("/api/sessions", get(archive::list))
        .route("/api/sessions/{id}", get(archive::read).patch(archive::rename).delete(archive::delete))
        .route("/api/sessions/{id}/events", get(archive::events))
        .route("/api/supr/claim", post(endpoints::claim))
        .route("/api/choices", get(choices::choices))
        .route("/api/media/{id}", get(files::media))
        .route("/api/processes", get(processes::list).post(processes::start))
        .route("/api/processes/{id}", delete(processes::end))
        .route("/api/processes/{id}/ws", any(terminal::shake_hands))
        .route("/api/usage", get(usage::usage))
        .route("/api/config", get(console::config))
        .route("/api/channels/catalog", get(console::catalog))
        .route("/api/openapi.json", get(console::openapi))
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .fallback(page::otherwise)
        .method_not_allowed_fallback(async || not_found())
        .layer(from_fn_with_state(Arc::clone(&site), screen))
        .with_state(site)
}
