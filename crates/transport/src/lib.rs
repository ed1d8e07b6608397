//! The transport drivers: they move frames between a peer and a door's machine, and pass the machine's requests to its
//! backend.
//!
//! Each driver is written once per transport (stdio, TCP, WebSocket) and serves any dialect. Every queue between a peer and
//! a backend is bounded: when a peer stops reading, its driver stops reading requests and process output for it, buffers
//! nothing more, and holds up no other connection.
//!
//! Deliberately absent: dialects and HTTP. The feature `network` adds everything except stdio.

#[cfg(feature = "network")]
mod accept;
#[cfg(feature = "network")]
mod cluster_key;
mod connection;
#[cfg(feature = "network")]
mod connection_limiter;
#[cfg(feature = "network")]
mod deflate;
mod frame_memory;
#[cfg(feature = "network")]
mod large_frames;
#[cfg(feature = "network")]
mod listeners;
#[cfg(feature = "network")]
mod log_limit;
#[cfg(feature = "network")]
mod metered_stream;
#[cfg(feature = "network")]
mod node_socket;
#[cfg(feature = "network")]
mod one_request;
mod outgoing;
#[cfg(feature = "network")]
mod peer;
#[cfg(feature = "network")]
mod peer_user;
#[cfg(feature = "network")]
mod process_sharing;
mod quiet;
mod reply_memory;
#[cfg(feature = "network")]
mod shared_stream;
mod signals;
#[cfg(feature = "network")]
mod silent_connections;
#[cfg(feature = "network")]
mod socket_file;
mod stdio;
#[cfg(feature = "network")]
mod tcp;
#[cfg(feature = "network")]
mod token_bucket;
mod traced_machine;
#[cfg(feature = "network")]
mod unix_socket;
#[cfg(feature = "network")]
mod websocket;

#[cfg(feature = "network")]
pub use accept::{ACCEPT_PAUSE, CONNECTION_LOG_RATE, STOP_WAIT, SendMachine};
#[cfg(feature = "network")]
pub use cluster_key::ClusterKey;
pub use connection::{
    CLEANUP_WAIT, ConnectionEnd, FLUSH_WAIT, INCOMING_CHUNKS, Incoming, SHUTDOWN_WAIT, serve,
};
#[cfg(feature = "network")]
pub use connection_limiter::{ConnectionLimiter, ConnectionLimits, ConnectionPermit};
#[cfg(feature = "network")]
pub use deflate::{COMPRESS_FROM_BYTES, Deflate, INFLATE_STEP_BYTES, MAX_WINDOW_BITS, MIN_WINDOW_BITS};
pub use frame_memory::{
    DEFAULT_FRAME_MEMORY, FRAME_WAIT, FREE_FRAME_BYTES, FrameAccount, FrameMemory, MIN_FRAME_MEMORY,
};
#[cfg(feature = "network")]
pub use large_frames::{LONG_FRAME_BYTES, block_in_place_if_large};
#[cfg(feature = "network")]
pub use listeners::{LISTEN_BACKLOG, LISTEN_PORT_TRIES, ListenError, Listeners};
#[cfg(feature = "network")]
pub use log_limit::LogLimit;
#[cfg(feature = "network")]
pub use metered_stream::MeteredStream;
#[cfg(feature = "network")]
pub use node_socket::{
    HANDSHAKE_WAIT, MAX_HANDSHAKES_OF_ADDRESS, MAX_NODE_HANDSHAKES, NODE_SILENCE_LIMIT, NodeServer,
    NodeStream, connect_node,
};
#[cfg(feature = "network")]
pub use one_request::serve_one_request;
pub use outgoing::{
    OUTGOING_FRAMES, OUTPUT_BACKLOG_BYTES, OUTPUT_BACKLOG_FRAMES, OutgoingReceiver, OutgoingSender,
    REPLY_BACKLOG_BYTES, REPLY_BACKLOG_FRAMES, outgoing,
};
#[cfg(feature = "network")]
pub use peer::{ConnectedPeer, PeerGroup};
#[cfg(feature = "network")]
pub use peer_user::{
    AcceptedConnection, AllowLocal, MAX_INSPECTED_FILES, PROC_NET_BYTES, PeerUser, accepting_user,
    listening_user,
};
#[cfg(feature = "network")]
pub use process_sharing::{
    MAX_SHARING_LINE_BYTES, MAX_SHARING_SERVERS, MAX_TERMINAL_SIDE, MAX_VIEWER_REQUEST_BYTES, MAX_VIEWERS,
    ProcessInfo, ProcessViewer, SHARING_WAIT, SOCKET_FOLDER, SharedProcesses, TerminalSize, VIEWER_WAIT,
    ViewerEvent, exit_code, list_shared_processes, remove_stale_sockets, watch_shared_process,
};
pub use reply_memory::REPLY_WAIT;
#[cfg(feature = "network")]
pub use shared_stream::HangUpProbe;
pub use signals::{ServerSignal, ServerSignals, termination_signal};
#[cfg(feature = "network")]
pub use socket_file::{connect_socket, remove_dead_sockets};
pub use stdio::{block_on, serve_stdio};
#[cfg(feature = "network")]
pub use tcp::{
    FINAL_READ_BYTES, FINAL_WRITE_WAIT, MAX_ADDRESS_CONNECTIONS, MAX_CONNECTIONS, MAX_OTHER_USER_CONNECTIONS,
    OWNER_CONNECTIONS, Service, log_refused_connection, serve_tcp,
};
#[cfg(feature = "network")]
pub use token_bucket::{Rate, TokenBucket};
pub use traced_machine::TracedMachine;
#[cfg(feature = "network")]
pub use unix_socket::{MAX_SOCKET_CONNECTIONS, SocketServer};
#[cfg(feature = "network")]
pub use websocket::{
    CloseReason, CountFrame, EVICTED_CLOSE_CODE, FrameDirection, Keepalive, LINGER_WAIT, REPLACED_CLOSE_CODE,
    Socket, serve_socket,
};
