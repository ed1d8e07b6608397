//! The drivers: they carry bytes between a peer and a door's machine, and pass the machine's requests to its backend.
//!
//! A driver is written once per transport, not once per dialect. Everything between a peer and a backend is bounded: a
//! peer that stops reading stops being served, and its processes stop being read; nothing is kept for it and nobody else
//! waits.
//!
//! Deliberately absent: dialects and HTTP. The feature `network` adds everything but stdio.

mod connection;
#[cfg(feature = "network")]
mod connection_shares;
mod frame_memory;
#[cfg(feature = "network")]
mod listeners;
#[cfg(feature = "network")]
mod log_limit;
mod long_work;
#[cfg(feature = "network")]
mod metered;
mod outgoing;
#[cfg(feature = "network")]
mod peer;
#[cfg(feature = "network")]
mod peer_user;
#[cfg(feature = "network")]
mod process_sharing;
#[cfg(feature = "network")]
mod rate;
mod replies;
mod signals;
mod stdio;
#[cfg(feature = "network")]
mod tcp;
mod traced;
#[cfg(feature = "network")]
mod websocket;

pub use connection::{ConnectionEnd, FLUSH_WAIT, GONE_WAIT, INCOMING_CHUNKS, Incoming, SHUTDOWN_WAIT, serve};
#[cfg(feature = "network")]
pub use connection_shares::{Place, Places, Shares};
pub use frame_memory::{
    DEFAULT_FRAME_MEMORY, FRAME_WAIT, FREE_FRAME_BYTES, FrameAccount, FrameMemory, MIN_FRAME_MEMORY,
};
#[cfg(feature = "network")]
pub use listeners::{LISTEN_BACKLOG, LISTEN_PORT_TRIES, ListenError, Listeners};
#[cfg(feature = "network")]
pub use log_limit::LogLimit;
pub use long_work::LONG_FRAME_BYTES;
#[cfg(feature = "network")]
pub use metered::Metered;
pub use outgoing::{
    OUTGOING_FRAMES, OUTPUT_BACKLOG_BYTES, OUTPUT_BACKLOG_FRAMES, Outgoing, Outlet, REPLY_BACKLOG_BYTES,
    REPLY_BACKLOG_FRAMES, outgoing,
};
#[cfg(feature = "network")]
pub use peer::{Account, Peer};
#[cfg(feature = "network")]
pub use peer_user::{Accepted, AllowLocal, LOOKED_AT_FILES, PROC_NET_BYTES, PeerUser, listening_user};
#[cfg(feature = "network")]
pub use process_sharing::{
    MAX_SHARING_LINE_BYTES, MAX_SHARING_SERVERS, MAX_TERMINAL_SIDE, MAX_VIEWER_REQUEST_BYTES, MAX_VIEWERS,
    ProcessInfo, ProcessViewer, SHARING_WAIT, SharedProcesses, TerminalSize, VIEWER_WAIT, ViewerEvent,
    exit_code, list_shared_processes, watch_shared_process,
};
#[cfg(feature = "network")]
pub use rate::{Bucket, Rate};
pub use replies::REPLY_WAIT;
pub use signals::asked_to_end;
pub use stdio::{block_on, serve_stdio};
#[cfg(feature = "network")]
pub use tcp::{
    ACCEPT_PAUSE, CONNECTION_LOG_RATE, MAX_ADDRESS_CONNECTIONS, MAX_CONNECTIONS, MAX_STRANGER_CONNECTIONS,
    OWNER_CONNECTIONS, PARTING_BYTES, PARTING_WAIT, STOP_WAIT, Service, serve_tcp, tell_of_no_place,
};
pub use traced::Traced;
#[cfg(feature = "network")]
pub use websocket::{CloseReason, Keepalive, LINGER_WAIT, REPLACED, Socket, serve_socket};
