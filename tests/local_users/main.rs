//! A server that runs as one user of a machine, and attacks by another user of the same machine.
//!
//! Only root can switch to other users. Without root these tests do nothing and print that on stderr.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod closed_sockets;
mod connection_limits;
mod containers;
mod cookies;
mod exec;
mod files;
mod http;
mod instructions;
mod login;
mod loopback_addresses;
mod machine_address;
mod mock_provider;
mod owner;
mod peer_socket;
mod server;
mod supex;
mod users;
