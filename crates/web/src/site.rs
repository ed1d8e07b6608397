//! What the handlers of all requests share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::http::request::Parts;
use axum::response::Response;
use parlor_doors::SharedFrames;
use parlor_engine::Sessions;
use parlor_log::TimeOrderedIds;
use parlor_transport::{CountFrame, FrameDirection, FrameMemory};
use parlor_vocab::{Clock, IdSource};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::controls::ListSkills;
use crate::api::models::CurrentCatalog;
use crate::api::sessions::TitleCheck;
use crate::api::terminals::ProcessApi;
use crate::auth::forwarded::client_address;
use crate::auth::one_time_link::OneTimeLink;
use crate::auth::rate::RateLimiter;
use crate::auth::refusal_log::RefusalLog;
use crate::auth::token_store::TokenStore;
use crate::mcp::{OpenCalls, ServeMcp};
use crate::metrics::{Metrics, ReasonLabel};
use crate::page::Asset;
use crate::random::RandomSource;
use crate::readiness::Readiness;
use crate::response_memory::{MAX_SESSION_READERS, NoMemory};
use crate::settings::WebSettings;
use crate::socket::acp::ServeAcp;
use crate::socket::connections::Connections;
use crate::socket::handshake::HandshakeError;

/// Everything that the web server needs from the program that starts it.
pub struct WebDeps {
    /// Who may use the server, and its limits.
    pub settings: WebSettings,
    /// The token that clients must know.
    pub tokens: Arc<TokenStore>,
    /// The link that lets one browser in without the token; `None` if no person sees the output of the server.
    pub one_time_link: Option<Arc<OneTimeLink>>,
    /// The sessions that the API and the sockets work on.
    pub sessions: Arc<Sessions>,
    /// Whether the log of these sessions can be written.
    pub readiness: Arc<Readiness>,
    /// Decides which titles a session may be given.
    pub check_title: TitleCheck,
    /// The agents and models that clients can choose from.
    pub catalog: Arc<CurrentCatalog>,
    /// The skills that consoles list.
    pub skills: ListSkills,
    /// The terminals of this server, and the processes that other servers share.
    pub processes: Arc<ProcessApi>,
    /// Serves the clients of the ACP door.
    pub serve_acp: ServeAcp,
    /// Serves the requests of the MCP door.
    pub serve_mcp: ServeMcp,
    /// The counters that `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// The budget that all large messages and answers share.
    pub memory: FrameMemory,
    /// The source of ids for sessions that clients do not name.
    pub random: RandomSource,
    /// The time of day: of frames, and of the days in the usage report.
    pub clock: Arc<dyn Clock>,
    /// The files of the page; empty if the program was built without it.
    pub page: &'static [Asset],
}

/// The running server, as the handlers of its requests see it.
pub(crate) struct Site {
    pub(crate) deps: WebDeps,
    /// The address that the server listens at.
    pub(crate) bound: SocketAddr,
    pub(crate) started: Instant,
    pub(crate) connections: Arc<Connections>,
    pub(crate) handshakes: RateLimiter,
    pub(crate) requests: RateLimiter,
    pub(crate) refusals: RefusalLog,
    /// Counts the frames of all sockets of the supr door.
    pub(crate) count_frame: CountFrame,
    /// The frames that all sockets of the supr door share.
    pub(crate) supr_frames: Arc<SharedFrames>,
    /// New ids for the frames of the supr door.
    pub(crate) ids: Arc<dyn IdSource>,
    /// Whether the server accepts sockets of the supr door: as the settings say, or because a client has enabled it.
    is_enabled: AtomicBool,
    /// One permit for each answer that may read through a session at a time.
    session_readers: Arc<Semaphore>,
    /// The open requests of the MCP door.
    pub(crate) mcp_calls: Arc<OpenCalls>,
    /// The tasks of all connections and sockets.
    pub(crate) tasks: TaskTracker,
    stop: CancellationToken,
}

impl Site {
    /// The site at `bound`. After `stop` it accepts no more sockets; after `goodbye` it closes the open ones.
    pub(crate) fn new(
        deps: WebDeps,
        bound: SocketAddr,
        stop: CancellationToken,
        goodbye: CancellationToken,
    ) -> Arc<Self> {
        let limits = deps.settings.limits;
        Arc::new(Self {
            bound,
            started: Instant::now(),
            connections: Connections::new(deps.settings.max_connections, goodbye, deps.tokens.evictions()),
            handshakes: RateLimiter::new(limits.handshakes, limits.local_handshakes),
            requests: RateLimiter::new(limits.requests, limits.local_requests),
            refusals: RefusalLog::new(),
            count_frame: count_frames(&deps.metrics),
            supr_frames: Arc::default(),
            ids: Arc::new(TimeOrderedIds::new(Arc::clone(&deps.clock))),
            is_enabled: AtomicBool::new(deps.settings.is_enabled),
            session_readers: Arc::new(Semaphore::new(MAX_SESSION_READERS)),
            mcp_calls: Arc::new(OpenCalls::new(deps.settings.max_connections)),
            tasks: TaskTracker::new(),
            stop,
            deps,
        })
    }

    /// Counts and logs a refused handshake, and gives the answer to it.
    pub(crate) fn refuse(&self, error: HandshakeError, parts: &Parts) -> Response {
        let reason = error.reason();
        self.deps.metrics.refused.get_or_create(&ReasonLabel { reason }).inc();
        self.refusals.write(reason, client_address(parts), parts.uri.path());
        error.response()
    }

    /// Waits until an answer may read through a session. The next one may once the permit is dropped.
    pub(crate) async fn session_reader(&self) -> Result<SemaphorePermit<'_>, NoMemory> {
        let permit = timeout(self.deps.settings.limits.answer_wait, self.session_readers.acquire()).await;
        permit.map_err(|_| NoMemory)?.map_err(|_| NoMemory)
    }

    /// The permits of [`session_reader`](Self::session_reader), for event streams: they take one for each read.
    pub(crate) fn session_read_permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.session_readers)
    }

    /// Whether the supr door is enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Enables the supr door until the server ends: the settings are the user's, and parlor does not write them. Returns
    /// whether the door was disabled.
    pub(crate) fn enable(&self) -> bool {
        !self.is_enabled.swap(true, Ordering::Relaxed)
    }

    /// Whether the server still accepts sockets.
    pub(crate) fn is_running(&self) -> bool {
        !self.stop.is_cancelled()
    }
}

fn count_frames(metrics: &Arc<Metrics>) -> CountFrame {
    let metrics = Arc::clone(metrics);
    Arc::new(move |direction| {
        match direction {
            FrameDirection::Received => metrics.frames_received.inc(),
            FrameDirection::Sent => metrics.frames_sent.inc(),
        };
    })
}
