//! The settings of the web server: who may use it, and how often and how slowly clients may come.

use std::path::PathBuf;
use std::time::Duration;

use parlor_transport::{AllowLocal, ConnectionLimits, Keepalive, Rate};

use crate::api::event_stream::STREAM_KEEP_ALIVE;
use crate::auth::forwarded::ProxyNetwork;
use crate::auth::rate::{HANDSHAKE_RATE, LOCAL_HANDSHAKE_RATE, LOCAL_REQUEST_RATE, REQUEST_RATE};
use crate::body::BODY_WAIT;
use crate::response_memory::{ANSWER_WAIT, HTTP_WRITE_WAIT};
use crate::server::{CONNECTION_LIFE, HEADER_WAIT, HTTP_CONNECTION_LIMITS, WEB_STOP_WAIT};

/// What `parlor.toml`, the environment and the command line decide about the web server.
#[derive(Clone, Debug)]
pub struct WebSettings {
    /// Whether the server accepts sockets of the supr door from its start on. HTTP works either way.
    pub is_enabled: bool,
    /// Whether a socket may bring the token in the query of its address.
    pub allow_token_query: bool,
    /// How many sockets may be open at a time.
    pub max_connections: usize,
    /// Host names of this server, beside its addresses. `*` allows any name.
    pub allow_hosts: Vec<String>,
    /// The proxies whose headers about the original request are believed.
    pub trusted_proxies: Vec<ProxyNetwork>,
    /// Which users of this machine need no token.
    pub allow_local: AllowLocal,
    /// Whether clients of the supr door may send messages. The messages of a read-only client are dropped silently.
    pub may_send: bool,
    /// How often sockets of the supr door are pinged, and how long one may be silent.
    pub keepalive: Keepalive,
    /// The working folder of sessions that clients of the supr door create.
    pub folder: PathBuf,
    /// The limits that protect the server from slow and greedy clients.
    pub limits: WebLimits,
}

/// How often and how slowly clients may come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WebLimits {
    /// How long the head of a request may take to arrive, and how long a connection may be idle.
    pub header_wait: Duration,
    /// How long a body may take to arrive.
    pub body_wait: Duration,
    /// How long a connection that does not become a socket may last; event streams may last longer.
    pub connection_life: Duration,
    /// How long a client may read nothing of a large answer before the server disconnects it.
    pub write_wait: Duration,
    /// How long an answer waits for memory, or for its turn to read a session.
    pub answer_wait: Duration,
    /// After how much silence an event stream sends a comment.
    pub stream_keep_alive: Duration,
    /// How many HTTP connections may be open at a time, and how many of them each kind of client may have.
    pub http_connections: ConnectionLimits,
    /// How long connections and sockets may take to close when the server stops.
    pub stop_wait: Duration,
    /// How often one client on another machine may try a WebSocket handshake.
    pub handshakes: Rate,
    /// How often the owner may try a handshake from this machine; all other users of it together have the same rate.
    pub local_handshakes: Rate,
    /// How often one client on another machine may send other requests.
    pub requests: Rate,
    /// How often the owner may send other requests from this machine; all other users together have the same rate.
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
            stream_keep_alive: STREAM_KEEP_ALIVE,
            http_connections: HTTP_CONNECTION_LIMITS,
            stop_wait: WEB_STOP_WAIT,
            handshakes: HANDSHAKE_RATE,
            local_handshakes: LOCAL_HANDSHAKE_RATE,
            requests: REQUEST_RATE,
            local_requests: LOCAL_REQUEST_RATE,
        }
    }
}
