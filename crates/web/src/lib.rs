//! The web side: HTTP/1.1 around the WebSocket of the supr door (`docs/protocols/supr-http.md`).
//!
//! [`serve_web`] accepts connections, screens requests, answers the small endpoints by itself and hands each
//! socket, once its handshake is done, to a [`SocketHandler`]. What is said on a socket is none of its business,
//! and neither is where sessions are kept: an [`Archive`] tells of them.

mod answer;
mod archive;
mod arrival;
mod body;
mod chance;
mod choices;
mod connections;
mod console;
mod cookie;
mod endpoints;
mod fetch;
mod files;
mod guard;
mod handshake;
mod health;
mod id;
mod invitation;
mod metrics;
mod outflow;
mod page;
mod processes;
mod rate;
mod refusals;
mod screen;
mod server;
mod site;
mod socket;
mod store;
mod terminal;
mod token;
mod token_watch;
mod traceparent;
mod trust;
mod usage;
mod ws_url;

pub use archive::{
    Archive, ArchiveError, DEFAULT_EVENTS, DEFAULT_SESSIONS, EventPage, LastEvent, MAX_EVENTS,
    MAX_EVENTS_BYTES, MAX_SEARCHED, MAX_SESSION_TEXT_BYTES, MAX_SESSIONS, MessageText, SessionInfo,
    SessionTranscript,
};
pub use arrival::{HandshakeQuery, QueryError};
pub use body::{BODY_WAIT, MAX_BODY_BYTES, UNREAD_WAIT};
pub use chance::{RandomSource, system_chance};
pub use choices::{AgentInfo, ModelInfo, ModelMenu};
pub use connections::{ConnectionSlot, Connections, NoSlot, REPLACEMENT_ROOM, StopSignal};
pub use cookie::COOKIE_LIFE;
pub use fetch::{FETCH_WAIT, FetchError, Fetcher, MAX_REDIRECTS};
pub use files::{FILE_PIECE_BYTES, StoredFile};
pub use invitation::{INVITATION_LIFE, OneTimeLink};
pub use metrics::{Metrics, OutcomeLabel, ReasonLabel};
pub use outflow::{ANSWER_WAIT, HTTP_WRITE_WAIT, MAX_ANSWERS_MADE};
pub use page::{Asset, PAGE};
pub use processes::{ProcessApiError, ProcessTable};
pub use rate::{HANDSHAKE_RATE, LOCAL_HANDSHAKE_RATE, LOCAL_REQUEST_RATE, RATE_CLIENTS, REQUEST_RATE};
pub use refusals::{REFUSAL_LINES, REFUSAL_PATH_CHARS};
pub use server::{
    CONNECTION_LIFE, HEADER_WAIT, HTTP_SHARES, MAX_ADDRESS_HTTP_CONNECTIONS, MAX_HEADER_BYTES, MAX_HEADERS,
    MAX_HTTP_CONNECTIONS, MAX_STRANGER_HTTP_CONNECTIONS, OWNER_HTTP_CONNECTIONS, WEB_STOP_WAIT, serve_web,
};
pub use site::{ROUTES, Web, WebLimits, WebSettings};
pub use socket::{READ_BUFFER_BYTES, SocketHandler, WRITE_BUFFER_BYTES};
pub use store::{LearnSecret, STORE_BYTES, StoreError, StoredToken, TokenConfig, TokenStore};
pub use terminal::{MAX_TYPED_BYTES, TERMINAL_PING, TERMINAL_SILENCE, TERMINAL_WRITE_WAIT};
pub use token::{MAX_TOKEN_CHARS, STRONG_TOKEN_CHARS, Token, TokenError};
pub use token_watch::TokenWatch;
pub use traceparent::Traceparent;
pub use usage::{DEFAULT_USAGE_DAYS, DayUsage, MAX_USAGE_DAYS, ModelUsage, UsageReport};
