//! HTTP/1.1: the JSON API, the page, and the WebSockets of the supr and ACP doors (`docs/protocols/supr-http.md`).
//!
//! [`serve_web`] accepts connections; `auth/screen.rs` checks every request; `routes.rs` leads it to a handler in `api/`,
//! to the page, or to `socket/`, which joins the supr door with the sessions. Settings and keys come as data
//! ([`WebDeps`]): this crate reads neither `parlor.toml` nor the environment.

mod admission;
mod api;
mod auth;
mod body;
mod connection_life;
mod exec_door;
mod executor_http;
mod fetch;
mod log_metrics;
mod mcp;
mod metrics;
mod page;
mod query;
mod random;
mod readiness;
mod response;
mod response_memory;
mod routes;
mod server;
mod settings;
mod site;
mod socket;
mod waiting_heads;

pub use admission::MAX_WAITING_CONNECTIONS;
pub use api::changes::{ChangesAnswer, MAX_DIFF_BYTES, MAX_LISTED_CHANGES, UndoAnswer};
pub use api::controls::{ListSkills, SkillInfo};
pub use api::event_stream::STREAM_KEEP_ALIVE;
pub use api::events::{DEFAULT_EVENTS, MAX_EVENTS, MAX_EVENTS_BYTES};
pub use api::media::FILE_PIECE_BYTES;
pub use api::models::{AgentInfo, CurrentCatalog, HasKey, KeyCheck, ModelCatalog, ModelInfo};
pub use api::sessions::{DEFAULT_SESSIONS, MAX_SEARCHED, MAX_SESSIONS, TitleCheck};
pub use api::terminal_socket::{MAX_TYPED_BYTES, TERMINAL_PING, TERMINAL_SILENCE, TERMINAL_WRITE_WAIT};
pub use api::terminals::ProcessApi;
pub use api::transcript::MAX_SESSION_TEXT_BYTES;
pub use api::usage::{DEFAULT_USAGE_DAYS, MAX_USAGE_DAYS};
pub use auth::cookie::COOKIE_LIFE;
pub use auth::cors::is_origin;
pub use auth::forwarded::{ProxyNetwork, ProxyNetworkError};
pub use auth::one_time_link::{ONE_TIME_LINK_LIFE, OneTimeLink};
pub use auth::rate::{HANDSHAKE_RATE, LOCAL_HANDSHAKE_RATE, LOCAL_REQUEST_RATE, RATE_CLIENTS, REQUEST_RATE};
pub use auth::refusal_log::{REFUSAL_LINES, REFUSAL_PATH_CHARS};
pub use auth::token::{MAX_TOKEN_CHARS, STRONG_TOKEN_CHARS, Token, TokenError};
pub use auth::token_store::{
    LearnSecret, STORE_BYTES, SharedToken, StoreError, StoredToken, TokenConfig, TokenStore,
};
pub use auth::token_watch::TokenWatch;
pub use body::{BODY_WAIT, MAX_BODY_BYTES, UNREAD_WAIT};
pub use exec_door::{
    EXEC_KEEPALIVE, ExecDoorDeps, MAX_ADDRESS_EXEC_CONNECTIONS, MAX_EXEC_CONNECTIONS,
    MAX_OTHER_USER_EXEC_CONNECTIONS, OWNER_EXEC_CONNECTIONS, serve_exec,
};
pub use executor_http::ExecutorHttp;
pub use fetch::{FETCH_WAIT, FetchError, Fetcher, MAX_REDIRECTS};
pub use log_metrics::LogMetrics;
pub use mcp::{FREE_OF_MCP, MAX_LARGE_MCP_BODIES, McpCall, STREAM_AFTER, ServeMcp};
pub use metrics::{Metrics, OutcomeLabel, ReasonLabel};
pub use page::{Asset, PAGE};
pub use random::{RandomSource, system_random};
pub use readiness::Readiness;
pub use response_memory::{ANSWER_WAIT, HTTP_WRITE_WAIT, MAX_SESSION_READERS};
pub use routes::ROUTES;
pub use server::{
    CONNECTION_LIFE, EVICTION_CHECK, HEADER_WAIT, HTTP_CONNECTION_LIMITS, MAX_ADDRESS_HTTP_CONNECTIONS,
    MAX_HEADER_BYTES, MAX_HEADERS, MAX_HTTP_CONNECTIONS, MAX_OTHER_USER_HTTP_CONNECTIONS,
    OWNER_HTTP_CONNECTIONS, WEB_STOP_WAIT, serve_web,
};
pub use settings::{WebLimits, WebSettings};
pub use site::WebDeps;
pub use socket::acp::{AcpConnection, ServeAcp};
pub use socket::connections::REPLACEMENT_ROOM;
pub use socket::{READ_BUFFER_BYTES, WRITE_BUFFER_BYTES};
