//! The drivers: what carries bytes between a peer and a door's machine, and does what the machine
//! asks.
//!
//! A driver is written once per transport, not once per dialect. Everything between a peer and the
//! engine is bounded: a peer that stops reading stops being served, and its processes stop being
//! read; nothing is kept for it and nobody else waits.

mod connection;
mod engine;
mod fetch;
mod frame_memory;
mod listeners;
mod log_limit;
mod long_work;
mod look;
mod metered;
mod offer;
mod outgoing;
mod peer;
mod peer_user;
mod places;
mod rate;
mod replies;
mod signals;
mod stdio;
mod tcp;
mod traced;
mod upstream;
pub mod web;
mod websocket;

pub use connection::{ConnectionEnd, FLUSH_WAIT, GONE_WAIT, INCOMING_CHUNKS, Incoming, SHUTDOWN_WAIT, serve};
pub use engine::{Engine, News};
pub use fetch::{FETCH_WAIT, FetchFlaw, Fetcher, MAX_REDIRECTS};
pub use frame_memory::{DEFAULT_FRAME_MEMORY, FRAME_WAIT, FREE_FRAME_BYTES, FrameMemory, MIN_FRAME_MEMORY};
pub use listeners::{LISTEN_BACKLOG, LISTEN_PORT_TRIES, ListenError, Listeners};
pub use long_work::LONG_FRAME_BYTES;
pub use look::{MAX_OFFER_LINE_BYTES, MAX_OFFERS, OFFER_WAIT, look, offered};
pub use metered::Metered;
pub use offer::{MAX_ONLOOKERS, MAX_QUESTION_BYTES, ONLOOKER_WAIT, Offered, exit_code};
pub use outgoing::{
    OUTGOING_FRAMES, OUTPUT_BACKLOG_BYTES, OUTPUT_BACKLOG_FRAMES, Outgoing, Outlet, REPLY_BACKLOG_BYTES,
    REPLY_BACKLOG_FRAMES, outgoing,
};
pub use peer::{Account, Peer};
pub use peer_user::{Accepted, AllowLocal, LOOKED_AT_FILES, PROC_NET_BYTES, PeerUser, listening_user};
pub use places::Shares;
pub use replies::REPLY_WAIT;
pub use signals::asked_to_end;
pub use stdio::{block_on, serve_stdio};
pub use tcp::{
    ACCEPT_PAUSE, CONNECTION_LOG_RATE, MAX_ADDRESS_CONNECTIONS, MAX_CONNECTIONS, MAX_STRANGER_CONNECTIONS,
    OWNER_CONNECTIONS, PARTING_BYTES, PARTING_WAIT, STOP_WAIT, Service, serve_tcp,
};
pub use traced::Traced;
pub use upstream::{UPSTREAM_CALL_WAIT, UPSTREAM_HELLO_WAIT, Upstream};
pub use websocket::{Farewell, Keepalive, LINGER_WAIT, REPLACED, Socket, serve_socket};
